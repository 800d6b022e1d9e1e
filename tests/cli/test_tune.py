"""`rayfish tune` on the command line: what it says when something is wrong, and the ways in."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rayfish.cli.app import app
from rayfish.cli.main import main
from rayfish.jobs import Job, JobList
from rayfish.run.directory import find_run
from rayfish.sweep.directory import SweepDirectory
from rayfish.sweep.records import DONE, fold, read_events
from tests.helpers import info_of, only_run, rayfish

WRONG = {
    ("cartpole",): ("nothing to search", "loguniform"),
    ("cartpole", "training.lr=loguniform(1,0)"): ("1 is not below 0", "lower number first"),
    ("cartpole", "training.lr=lguniform(1e-5,1e-2)"): ("no type 'lguniform'", "did you mean loguniform"),
    ("cartpole", "training.lr=uniform(0,1"): ("not closed", "write uniform(0,1)"),
    ("cartpole", "training.lr=loguniform"): ("loguniform has no values", "write loguniform("),
    ("cartpole", "training.lr=uniform(0,1)", "search.num_samples=abc"): ("search.num_samples", "takes int"),
    ("cartpole", "training.lr=uniform(0,1) if training.gama=1"): ("training.gama is None", "for example"),
    ("cartpole", "training.lr=uniform(0,1)", "search.start_from=[nosuch]"): (
        "neither a sweep nor a run",
        "next",
    ),
    ("cartpole", "training.lr=uniform(0,1)", "--on", "127.0.0.1:9"): (
        "no Ray answers at 127.0.0.1:9",
        "next",
    ),
    ("cartpole", "training.lr=uniform(0,1)", "search.metod=grid"): ("search.metod", "did you mean"),
    ("cartpole", "training.lr=uniform(0,1)", "search.method=optunna"): ("optunna", "did you mean optuna?"),
    ("cartpole", "training.lr=uniform(0,1)", "search.scheduler=ahsa"): ("ahsa", "did you mean asha?"),
    ("cartpole", "training.lr=uniform(0,1)", "search.method=hebo"): ("HEBO does not run here", "optuna"),
    ("cartpole", "training.lr=sample_from(nothere.py:x)"): ("no file 'nothere.py'", "check the path"),
    ("cartpole", "training.lr=uniform(0,1)", "search.num_samples=0"): ("search.num_samples", "1 or more"),
    ("cartpole", "training.lr=uniform(0,1)", "search.repeat=2", "search.scheduler=pbt"): ("pbt", "leave one"),
    ("cartpol", "training.lr=uniform(0,1)"): ("cartpol", "did you mean"),
    ("--resume", "nothing"): ("no sweep answers to 'nothing'", "rayfish tune begins one"),
    ("--function", "missing.py:train", "x=uniform(0,1)"): ("missing.py", "next step"),
    ("--program", "no-such-program {x}", "x=uniform(0,1)", "search.metric=loss"): (
        "no-such-program",
        "next step",
    ),
    ("--program", "python -c 1 {y}", "x=uniform(0,1)", "search.metric=loss"): (
        "{y}",
        "name it in program.command as {x}",
    ),
    ("--program", "python -c 1 {x}", "x=uniform(0,1)"): ("search.metric", "name one that it writes"),
    ("--function", "a:b", "--program", "c", "x=uniform(0,1)"): ("exclude each other", "give one"),
    ("-f", "a.yaml", "--program", "c {x}", "x=uniform(0,1)"): (
        "-f and --program exclude",
        "give one of them",
    ),
    ("-f", "a.yaml", "--function", "a:b", "x=uniform(0,1)"): ("-f and --function exclude", "`program: "),
    ("-f", "a.yaml", "--sub_jobs", "echo a"): ("-f and --sub-jobs exclude", "give one of them"),
    ("--program", "python -c 1 {x} {b}", "x=choice(1,2)", "if", "b=1", "b=choice(1,2)"): (
        "search.metric",
        "name one that it writes",
    ),
    ("--program", "python -c 1 {x}", "x=uniform(0,1)", "search.metric=a", "search.resources.cpu=nan"): (
        "search.resources.cpu: cannot be nan",
        "finite",
    ),
    ("--gpu_per_worker", "1.5", "--sub_jobs", "echo a"): ("gpu_per_worker: is 1.5", "give 1 or 2"),
    ("--sub_jobs", "echo a", "--gpu_per_worker", "nan"): ("gpu_per_worker: cannot be nan", "finite"),
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_mistakes_are_reported_before_anything_starts(words, workdir, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main(["tune", *words])
    told = capsys.readouterr().err
    assert ended.value.code in (1, 2)
    for said in WRONG[words]:
        assert said in told
    assert "Traceback" not in told
    assert not list(workdir.glob("runs/*/*/sweep.json"))


WRITTEN = """\
environment: {env: CartPole-v1}
tunables:
  training:
    gama: uniform(0,1)
  rollouts:
    num_envs_per_env_runer: {type: choice, values: [1, 2]}
search:
  scheduler: ahsa
"""


def test_mistakes_in_a_file_are_reported_with_its_lines(workdir, capsys):
    (workdir / "mine.yaml").write_text(WRITTEN)
    with pytest.raises(SystemExit):
        main(["tune", "mine.yaml", "training.lrr=uniform(0,1)"])
    assert "search.scheduler: cannot be 'ahsa'\n    written in: mine.yaml:8" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["tune", "mine.yaml", "training.lrr=uniform(0,1)", "search.scheduler=asha"])
    told = capsys.readouterr().err
    for key, where in (
        ("training.gama", "mine.yaml:4"),
        ("rollouts.num_envs_per_env_runer", "mine.yaml:6"),
        ("training.lrr", "command line"),
    ):
        assert f"{key}: there is no such key\n    written in: {where}" in told


@pytest.fixture
def jobs_started(monkeypatch):
    """Lists of jobs as they would be started: commands, CPUs, GPUs, and where their results go."""
    from rayfish import jobs

    started = []
    monkeypatch.setattr(jobs, "run_and_tell", lambda *given: started.append(given) or 0)
    return started


def run_tune(*words):
    app(args=["tune", *words], standalone_mode=False)


ISAAC_LAB = "python train.py --task A --headless + python train.py --task B --num_workers 4 -f x"


def test_all_words_after_sub_jobs_are_the_jobs_own(jobs_started):
    run_tune("--num_workers", "2", "--sub_jobs", *ISAAC_LAB.split())
    ((jobs, *_),) = jobs_started
    assert [" ".join(job.command) for job in jobs.jobs] == ISAAC_LAB.split(" + ")
    assert jobs.share == 2


@pytest.mark.parametrize("flag", ["--sub_jobs", "--sub-jobs"])
@pytest.mark.parametrize("after_first", [True, False])
def test_options_after_a_quoted_command_are_rayfishs_own(flag, after_first, jobs_started):
    commands, each = (
        ["python train.py --task A", "+", "python train.py --task B"],
        ["--gpu_per_worker", "0.5"],
    )
    place = 1 if after_first else 3
    run_tune(flag, *commands[:place], *each, *commands[place:], "--local-dir", "there")
    ((jobs, _, _, root),) = jobs_started
    assert [job.command[-1] for job in jobs.jobs] == ["A", "B"]
    assert [job.gpus for job in jobs.jobs] == [0.5, 0.5] and root == "there"


def test_the_documented_jobs_are_read_by_the_command(jobs_started):
    words = ["python train.py --task A", "+", "python train.py --task B", "--gpu_per_worker", "0.5"]
    with pytest.raises(SystemExit) as ended:
        main(["tune", "--local-dir", "there", "--sub_jobs", *words])
    ((jobs, _, _, root),) = jobs_started
    assert ended.value.code == 0 and root == "there"
    assert [(job.command[-1], job.gpus) for job in jobs.jobs] == [("A", 0.5), ("B", 0.5)]


def test_results_of_a_file_of_jobs_go_where_local_dir_says(workdir, jobs_started):
    (workdir / "tasks.yaml").write_text("tasks: [{command: echo a}]")
    for words in (["--local-dir", "my runs"], ["runtime.local_dir=my runs"], []):
        with pytest.raises(SystemExit) as ended:
            main(["tune", "-f", "tasks.yaml", *words])
        assert ended.value.code == 0
    assert [given[3] for given in jobs_started] == ["my runs", "my runs", "runs"]


def test_words_for_a_resumed_list_of_jobs_are_refused(workdir, jobs_started, capsys):
    folder = SweepDirectory.create("runs", "mine", {"kind": "jobs"})
    JobList((Job("a", ("echo", "a")),)).keep(folder.path)
    folder.release()
    for word in ("search.num_samples=4", "runtime.local_dir=there"):
        with pytest.raises(SystemExit) as ended:
            main(["tune", "--resume", str(folder.path), word])
        told = capsys.readouterr().err
        assert ended.value.code == 1 and f"is a list of jobs, which '{word}' says nothing about" in told
    assert not jobs_started


def test_hydras_way_without_a_space_trains_one_sample(workdir, ray_session, capsys):
    small = (
        "training.train_batch_size_per_learner=64",
        "training.minibatch_size=64",
        "training.num_epochs=1",
    )
    with pytest.raises(SystemExit) as ended:
        main(["tune", "experiment=cartpole", *small])
    assert ended.value.code == 1 and "nothing to search" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "cli.mode=tune",
                "experiment=cartpole",
                *small,
                "stop_conditions.training_iteration=1",
                "--plain",
            ]
        )
    assert not ended.value.code
    assert "trains one sample, as rayfish train does" in capsys.readouterr().out
    assert info_of(only_run(workdir))["status"] == "done"


@pytest.mark.slow
def test_hydras_way_in_a_sweep_in_the_list_of_runs_and_its_best_by_its_folder(tmp_path):
    words = ("training.gamma=0.9,0.99", "stop_conditions.training_iteration=1", "runtime.name=swept")
    rayfish("cli.mode=tune", "experiment=cartpole", *words, "--plain", cwd=tmp_path)
    (table,) = tmp_path.glob("runs/swept/*/trials.jsonl")
    trials = fold(read_events(table))
    assert [t.state for t in trials.values()] == [DONE, DONE]
    listed = rayfish("runs", "list", cwd=tmp_path).stdout
    assert "swept" in listed and "2 of 2" in listed
    assert find_run(table.parent).name.startswith("000")
    told = rayfish("evaluate", str(table.parent), "--episodes", "2", cwd=tmp_path).stdout
    assert "2 episodes" in told


def test_help_shows_an_example_of_each_kind(tmp_path):
    text = rayfish("tune", "--help", cwd=tmp_path).stdout
    for word in ("loguniform", "--function", "--program", "--resume", "--on", "--sub-jobs"):
        assert word in text


def test_num_samples_is_an_option_too(monkeypatch):
    from rayfish.sweep import tune

    given = []

    def recorded(target, space, *words, **_):
        given.extend(words)
        return SimpleNamespace(status="done", best=1)

    monkeypatch.setattr(tune, "tune", recorded)
    with pytest.raises(SystemExit):
        main(["tune", "cartpole", "training.lr=uniform(0,1)", "--num-samples", "7"])
    assert given == ["training.lr=uniform(0,1)", "search.num_samples=7"]
