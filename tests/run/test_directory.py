"""Run folders: what is written, that it is written whole, and that runs are found again."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
import subprocess
import sys

import pytest

from rayfish.errors import CheckpointError, RayfishError, RunNotFound
from rayfish.experiment import Experiment
from rayfish.files import atomic_link, atomic_write, set_aside, why_unwritable
from rayfish.metrics import names
from rayfish.run import directory
from rayfish.run.directory import (
    DAMAGED,
    RunDirectory,
    all_runs,
    find_checkpoint,
    find_folder,
    find_run,
    list_runs,
)
from tests.helpers import info_of, small_disk


@pytest.fixture(scope="module")
def experiment():
    return Experiment.compose("cartpole", ["training.lr=3e-4"])


@pytest.fixture
def make(experiment, workdir):
    """Makes runs in the scratch folder."""

    def make(name="cartpole", checkpoints=()):
        run = RunDirectory.create(experiment, name=name, command=["rayfish", "train", "cart pole"])
        for iteration in checkpoints:
            path = run.checkpoints / f"{iteration:06d}"
            path.mkdir()
            (path / "rayfish.json").write_text("{}")
            atomic_link(run.checkpoints / "last", path.name)
        return run

    return make


def test_a_new_run_writes_down_what_it_is_made_from(make):
    run = make()
    assert run.path.parts[:2] == ("runs", "cartpole")
    assert Experiment.load(run.config_file).get("training.lr") == pytest.approx(3e-4)
    assert run.overrides == ["training.lr=3e-4"]
    assert (run.path / "command.txt").read_text() == "rayfish train 'cart pole'\n"
    provenance = json.loads((run.path / "provenance.json").read_text())
    assert provenance["versions"]["ray"].startswith("2.60")
    assert provenance["hardware"]["cores"] >= 1
    data = json.loads((run.path / "run.json").read_text())
    assert (data["layout"], data["status"], data["algo"], data["env"]) == (1, "running", "PPO", "CartPole-v1")


def test_a_run_is_named_by_the_experiment_else_after_algorithm_and_environment(experiment, workdir):
    assert RunDirectory.create(experiment).path.parent.name == "cartpole"
    unnamed = experiment.with_values({"runtime.name": None, "runtime.local_dir": "elsewhere"}, "test")
    assert RunDirectory.create(unnamed).path.parts[:2] == ("elsewhere", "PPO-CartPole-v1")


def test_names_become_safe_folders(make):
    assert make(name="../my run/β").path.parent.name == "my-run-β"


def test_progress_and_the_end_reach_run_json(make):
    run = make()
    run.begin("rllib", "rollouts.runner=auto")
    best = {"metric": names.RETURN_MEAN, "value": 31.0, "checkpoint": "000020"}
    run.progress({names.ENV_STEPS: 4096, names.RETURN_MEAN: 31.0, names.ENV_SHARE: 0.5}, best)
    run.finish("done", "goal reached")
    data = RunDirectory.open(run.path).data
    assert data["counters"] == {names.ENV_STEPS: 4096}
    assert data["best"] == best
    assert (data["status"], data["reason"]) == ("done", "goal reached")
    assert data["runner"] == {"used": "rllib", "why": "rollouts.runner=auto"}
    assert data["times"]["ended"] >= data["times"]["created"]


def test_progress_does_not_write_with_every_iteration(make, monkeypatch):
    run = make()
    written = []
    monkeypatch.setattr(directory, "atomic_write", lambda path, text: written.append(path))
    run.update()
    for iteration in range(100):
        run.progress({names.ITERATION: iteration})
    assert len(written) == 1
    assert run.data["counters"] == {names.ITERATION: 99}


def test_a_run_whose_process_is_gone_is_lost(make):
    run = make()
    assert run.status == "running"
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    run.update(process={"pid": int(gone.stdout)})
    assert RunDirectory.open(run.path).status == "lost"
    run.finish("failed", "x")
    assert run.status == "failed"


def test_a_process_that_took_over_the_number_is_not_the_run(make):
    run = make()
    run.update(process={"start": run.data["process"]["start"] - 3600})
    assert run.status == "lost"


def test_a_newer_layout_is_refused_with_one_sentence(make):
    run = make()
    run.update(layout=2)
    with pytest.raises(RayfishError, match="has layout 2, this Rayfish reads layouts up to 1"):
        RunDirectory.open(run.path)


def test_runs_are_found_by_path_name_id_and_last(make):
    first, second, other = make(), make(), make("pendulum")
    assert find_run(first.path) == first.path
    assert find_run(str(first.path / "checkpoints")).resolve() == first.path.resolve()
    assert find_run("cartpole") == second.path
    assert find_run("runs/cartpole") == second.path
    assert find_run(first.data["id"][:5]) == first.path
    assert find_run(first.path.name) == first.path
    assert find_run("last") == other.path
    assert [run.path for run in list_runs()] == [other.path, second.path, first.path]


def test_an_unknown_run_names_the_nearest(make):
    make("cartpole")
    with pytest.raises(RunNotFound) as error:
        find_run("cartpol")
    assert str(error.value) == (
        "no run under runs/ answers to 'cartpol'\n"
        "  next step: did you mean cartpole? `rayfish runs list` shows all"
    )


def test_no_runs_at_all_says_how_to_make_one(workdir):
    with pytest.raises(RunNotFound, match="no runs under runs/"):
        find_run("last")


def test_an_ambiguous_beginning_is_refused(make):
    first, second = make(), make()
    with pytest.raises(RunNotFound, match="is the beginning of 2 runs"):
        find_run(first.path.name[:8])
    assert first.path != second.path


def test_a_run_means_its_best_checkpoint_else_its_last(make):
    run = make(checkpoints=(20, 40))
    assert find_checkpoint("cartpole").name == "000040"
    atomic_link(run.checkpoints / "best", (run.checkpoints / "000020").name)
    assert find_checkpoint("cartpole").name == "000020"
    assert find_checkpoint(run.checkpoints / "last").name == "000040"
    assert find_checkpoint("cartpole/checkpoints/000020").name == "000020"
    assert find_checkpoint(str(run.checkpoints / "000020")).name == "000020"


def test_a_missing_checkpoint_says_which_there_are(make):
    make(checkpoints=(20,))
    with pytest.raises(CheckpointError, match="has no checkpoint '000040'; it has 000020"):
        find_checkpoint("cartpole/checkpoints/000040")
    make("empty")
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        find_checkpoint("empty")


def test_an_unwritable_root_is_a_plain_message(experiment, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RayfishError, match="cannot be made"):
        RunDirectory.create(experiment, tmp_path / "file", "x")


def test_atomic_writing_leaves_the_old_or_the_new(tmp_path, monkeypatch):
    target = tmp_path / "run.json"
    atomic_write(target, "old")

    def crash(*_):
        raise OSError("power cut")

    monkeypatch.setattr("os.fsync", crash)
    with pytest.raises(OSError, match="power cut"):
        atomic_write(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_end_of_a_run_is_written_on_a_full_disk(experiment, tmp_path):
    with small_disk(tmp_path / "disk", "1m") as disk:
        run = RunDirectory.create(experiment, disk)
        fill(disk / "filler")
        with pytest.raises(OSError, match="No space left"):
            run.update(note="x" * 10_000)
        run.finish("failed", "the disk is full")
        assert info_of(run.path)["status"] == "failed"
        assert [path.name for path in run.path.glob(".*")] == [".lock"]


def test_a_resume_on_a_full_disk_leaves_no_empty_file(experiment, tmp_path):
    with small_disk(tmp_path / "disk", "1m") as disk:
        run = RunDirectory.create(experiment, disk)
        run.finish("stopped", "for the test")
        fill(disk / "filler")
        with pytest.raises(OSError, match="No space left"):
            set_aside(run.path)
        assert [path.name for path in run.path.glob(".*")] == [".lock"]


@pytest.mark.skipif(shutil.which("chattr") is None, reason="no chattr")
def test_the_end_of_a_run_is_written_where_no_file_can_be_added(make):
    run = make()
    if subprocess.run(["chattr", "+i", run.path], capture_output=True, check=False).returncode:
        pytest.skip("no file system that has immutable folders, or not root")
    try:
        run.finish("failed", "x")
    finally:
        subprocess.run(["chattr", "-i", run.path], check=True)
    assert info_of(run.path)["status"] == "failed"


def test_a_full_disk_is_named_with_what_is_free_there(tmp_path):
    with small_disk(tmp_path / "disk", "1m") as disk:
        fill(disk / "filler")
        full = OSError(errno.ENOSPC, "No space left on device")
        what, hint = why_unwritable(full, disk / "runs" / "x")
        assert what == f"No space left on device: 0 kB free at {disk}"
        assert hint == f"free space under {disk}"


def fill(file):
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as out:
        while True:
            out.write(bytes(4096))


def test_a_link_is_replaced_in_one_step(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        atomic_link(tmp_path / "last", name)
    assert (tmp_path / "last").resolve() == tmp_path / "b"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "last"]


def test_a_mistyped_last_is_recognised(make):
    make()
    with pytest.raises(RunNotFound) as caught:
        find_run("lats")
    assert "did you mean last" in caught.value.hint


@pytest.mark.parametrize("content", [b"rayfish train \xff\xfe\n", None])
def test_a_resume_adds_its_words_to_whatever_command_txt_holds(make, experiment, content):
    run = make()
    file = run.path / "command.txt"
    file.unlink() if content is None else file.write_bytes(content)
    run.continued(experiment, 20)
    added = f"rayfish train --resume {run.path} training.lr=3e-4\n".encode()
    assert file.read_bytes() == (content or b"") + added


@pytest.mark.parametrize("content", [b"- \xff\xfe\n", b"- [a\n", b"- training.lr=1\n- {a: b}\n", b"5\n"])
def test_damaged_overrides_are_no_reason_to_fail(make, content):
    run = make()
    (run.path / "overrides.yaml").write_bytes(content)
    assert all(isinstance(word, str) for word in run.overrides)


@pytest.fixture
def sweep(make, experiment):
    """Makes sweeps; the best of each is a trial with a checkpoint."""

    def sweep(name="tuned", sweep_id="abc123", created="2999-01-01T00:00:00+00:00", best=True):
        folder = directory.Path("runs") / name / f"20990101-000000-{sweep_id}"
        trial = RunDirectory.create(experiment, at=folder / "trials" / "0001", command="x")
        path = trial.checkpoints / "000020"
        path.mkdir()
        (path / "rayfish.json").write_text("{}")
        about = {"layout": 1, "id": sweep_id, "name": name, "created": created, "status": "done"}
        (folder / "sweep.json").write_text(json.dumps(about))
        (folder / "trials.jsonl").touch()
        if best:
            atomic_link(folder / "best", "trials/0001")
        return folder

    return sweep


def test_a_sweep_is_found_like_a_run_and_means_its_best_trial(make, sweep):
    make(checkpoints=(20,))
    folder = sweep()
    best = (folder / "trials" / "0001").resolve()
    for word in ("tuned", "abc123", "abc", folder.name, str(folder), "runs/tuned", "last"):
        assert find_run(word) == best, word
        assert find_folder(word) == folder, word
        assert find_checkpoint(word) == best / "checkpoints" / "000020", word


def test_a_sweep_without_a_best_trial_says_so(make, sweep):
    sweep(best=False)
    with pytest.raises(RunNotFound, match="has no best trial yet") as caught:
        find_checkpoint("tuned")
    assert "rayfish tune --resume runs/tuned/" in caught.value.hint


def scored(folder, *values):
    """Writes trials with these scores into the table of a sweep, as if they ran or had ended."""
    status = json.loads((folder / "sweep.json").read_text())["status"]
    with (folder / "trials.jsonl").open("w") as table:
        for number, value in enumerate(values, 1):
            about = {"trial": number, "time": 0.0}
            new = {"event": "new", "name": f"{number:04d}", "params": {}, "point": number, **about}
            start = {"event": "start", **about}
            report = {"event": "report", "step": 1, "value": value, **about}
            end = {"event": "end", "state": "done", **about}
            for event in (new, start, report, *([end] if status == "done" else [])):
                table.write(json.dumps(event) + "\n")


def test_the_best_trial_of_a_sweep_without_its_link_is_found_by_its_score(make, sweep):
    folder = sweep(best=False)
    scored(folder, 5.0)
    assert find_run("tuned") == (folder / "trials" / "0001").resolve()
    assert find_checkpoint("last").name == "000020"


def test_where_the_folder_of_the_best_trial_is_gone_the_next_one_is_taken(make, sweep, caplog):
    folder = sweep(best=False)
    scored(folder, 5.0, 9.0)
    atomic_link(folder / "best", "trials/0002")
    assert find_run("tuned") == (folder / "trials" / "0001").resolve()
    (record,) = caplog.records
    assert "the folder of its best trial 2 is gone" in record.getMessage()
    assert "trial 1 is the next best" in record.getMessage()


def test_a_running_sweep_means_its_best_trial_so_far(make, sweep, caplog, monkeypatch):
    monkeypatch.setattr("rayfish.run.lease.alive", lambda *_: True)
    folder = sweep(best=False)
    about = json.loads((folder / "sweep.json").read_text())
    (folder / "sweep.json").write_text(json.dumps({**about, "status": "running"}))
    with pytest.raises(RunNotFound, match="is running, and none of its trials has a score") as caught:
        find_run("tuned")
    assert "--resume" not in caught.value.hint
    scored(folder, 5.0)
    assert find_run("tuned") == (folder / "trials" / "0001").resolve()
    assert "is running; its best trial with a checkpoint so far is 1" in caplog.text


def test_two_copies_of_a_sweep_are_distinguished_by_their_paths(make, sweep):
    folder = sweep()
    shutil.copytree(folder, folder.parent.parent / "copied" / folder.name, symlinks=True)
    with pytest.raises(RunNotFound, match=r"runs/copied/.*runs/tuned/|runs/tuned/.*runs/copied/") as caught:
        find_folder("abc123")
    assert caught.value.hint == "they have the same id: give the path"


def test_a_mistyped_sweep_is_recognised(make, sweep):
    sweep()
    with pytest.raises(RunNotFound) as caught:
        find_run("tunde")
    assert "did you mean tuned" in caught.value.hint


def test_last_is_the_last_run_with_a_checkpoint_and_says_so(make, caplog):
    good = make(checkpoints=(20,))
    assert find_checkpoint("last").name == "000020"
    assert not caplog.records
    failed = make("pendulum")
    failed.finish("failed", "the environment raised")
    assert find_checkpoint("last") == (good.checkpoints / "000020").resolve()
    assert find_run("last") == failed.path
    (record,) = caplog.records
    assert record.getMessage() == (
        f"note: last is {good.path}, the last with a checkpoint; "
        f"{failed.path} after it has no checkpoint (its status is failed)"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"id": ', "is cut short or damaged at line 1"),
        ("[]", "it holds a list"),
        ('{"counters": 5}', "counters is 5"),
        ('{"counters": {"run/env_steps": "many"}}', "counters.run/env_steps is 'many'"),
        ('{"best": {"value": "x"}}', "best.value is 'x'"),
        ('{"times": {"created": "yesterday"}}', "times.created is 'yesterday'"),
        ('{"resumes": [{"iteration": 1, "changed": {"a": 5}}]}', "resumes has"),
        ('{"layout": 99}', "has layout 99"),
        ("[" * 100_000, "is cut short or damaged"),
        (f'{{"tags": {"[" * 900}{"]" * 900}}}', "is cut short or damaged"),
    ],
)
def test_a_damaged_run_is_known_as_damaged(make, content, why):
    run, other = make(), make("other")
    (run.path / "run.json").write_text(content)
    (found,) = [run for run in all_runs() if run.status == DAMAGED]
    assert found.path == run.path
    assert (found.status, found.data["name"], found.data["id"]) == ("damaged", "cartpole", run.data["id"])
    assert why in found.data["reason"]
    assert [entry.path for entry in list_runs()] == [other.path]
    assert find_run("last") == other.path
    with pytest.raises(RayfishError, match=r"damaged|layout"):
        RunDirectory.open(find_run(run.data["id"]))


def test_a_run_json_that_is_a_folder_is_a_damaged_run(make):
    run = make()
    (run.path / "run.json").unlink()
    (run.path / "run.json").mkdir()
    (found,) = [run for run in all_runs() if run.status == DAMAGED]
    assert "cannot be read: Is a directory" in found.data["reason"]
    for word in (run.path, run.data["id"]):
        assert find_run(word) == find_folder(word) == run.path


def test_run_json_tells_which_settings_held_when(make, experiment):
    run = make()
    first = experiment.with_values({"training.lr": 1e-4, "training.gamma": 0.9}, "test")
    gamma = experiment.get("training.gamma")
    run.continued(first, 20)
    run.continued(first, 40)
    second = first.with_values({"training.lr": 1e-5}, "test")
    run.continued(second, 60)
    held = [(entry["iteration"], entry["changed"]) for entry in RunDirectory.open(run.path).data["resumes"]]
    assert held == [
        (20, {"training.lr": [3e-4, 1e-4], "training.gamma": [gamma, 0.9]}),
        (40, {}),
        (60, {"training.lr": [1e-4, 1e-5]}),
    ]
    run.continued(second, 10)  # the checkpoints after it were damaged
    (entry,) = run.data["resumes"]
    assert entry["iteration"] == 10
    assert entry["changed"] == {"training.lr": [3e-4, 1e-5], "training.gamma": [gamma, 0.9]}


def test_run_json_tells_the_default_and_the_stop_condition_that_held_before_a_resume(workdir):
    run = RunDirectory.create(Experiment.compose(None, ["algo.name=PPO", "environment.env=CartPole-v1"]))
    experiment = Experiment.load(run.config_file)
    assert experiment.get("training.lr") is None
    longer = experiment.with_overrides(["training.lr=1e-4", "stop_conditions.run/env_steps=9000"])
    run.continued(longer, 20)
    assert run.data["resumes"][-1]["changed"] == {
        "training.lr": [5e-5, 1e-4],
        "stop_conditions.run/env_steps": [experiment.get("stop_conditions.timesteps_total"), 9000],
    }
    run.continued(experiment.with_overrides(["training.lr=null"]), 10)  # RLlib's default, as before
    assert run.data["resumes"][-1]["changed"] == {}
