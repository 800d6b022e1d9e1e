"""`rayfish runs list|show|rm`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from rayfish import load_sweep, tune
from rayfish.cli.run_entries import remove
from rayfish.cli.runs import app
from rayfish.errors import RayfishError, RunNotFound
from rayfish.experiment import Experiment
from rayfish.files import atomic_link
from rayfish.metrics import names
from rayfish.metrics.sinks import open_sinks
from rayfish.run.directory import RunDirectory
from rayfish.sweep.directory import SweepDirectory
from rayfish.sweep.records import EventTable


@pytest.fixture
def run(workdir):
    experiment = Experiment.compose("cartpole", ["training.lr=0.0007", "trackers.tensorboard=false"])
    run = RunDirectory.create(experiment, command="rayfish train cartpole")
    run.begin("rllib", "asked for")
    with open_sinks(run.path, experiment) as sinks:
        for i in range(1, 31):
            line = {
                names.ITERATION: i,
                names.ENV_STEPS: 4096 * i,
                names.EPISODES: i,
                names.TIME_TOTAL: 2.0 * i,
            }
            line |= {names.RETURN_MEAN: 10.0 * i, names.RETURN_MIN: 1.0, names.RETURN_MAX: 400.0}
            if i == 20:
                line |= {names.EVAL_RETURN_MEAN: 222.0, names.EVAL_CI_LOW: 200.0, names.EVAL_CI_HIGH: 250.0}
            sinks.write(line)
    (run.checkpoints / "000020").mkdir()
    run.progress(line, {"metric": names.RETURN_MEAN, "value": 200.0, "checkpoint": "000020"})
    run.finish("done", "rollout/return_mean 300 >= 300")
    return run


def invoke(*words, width=120):
    return CliRunner().invoke(app, list(words), env={"COLUMNS": str(width)}, catch_exceptions=False)


def test_the_list_shows_each_run_on_one_line(run):
    output = invoke("list").output
    (row,) = [line for line in output.splitlines() if run.data["id"] in line]
    for part in ("cartpole", "PPO", "CartPole-v1", "done", "122,880", "200", "1:00"):
        assert part in row


def test_figures_stay_whole_on_a_narrow_terminal(run):
    output = invoke("list", width=80).output
    assert max(map(len, output.splitlines())) <= 80
    for part in (run.data["id"], "122,880", "1:00", "done"):
        assert part in output


def test_the_list_can_be_narrowed_by_name(run):
    assert run.data["id"] in invoke("list", "cartp").output
    assert "no run under runs/ has 'pendulum'" in invoke("list", "pendulum").output


def test_an_empty_folder_says_how_to_begin(workdir):
    assert "no runs under runs/ yet" in invoke("list").output


def test_show_tells_how_a_run_went_and_what_to_do_next(run):
    output = invoke("show", "last").output
    for part in (
        "done",
        "rollout/return_mean 300 >= 300",
        "█",
        "200  in checkpoint 000020",
        "222  95 % in 200 to 250",
        "122,880 steps",
        "training.lr=0.0007",
        "0.0007",
        "metrics.jsonl",
        f"rayfish evaluate {run.path}",
        f"rayfish train --resume {run.path}",
    ):
        assert part in output, part


def test_show_tells_which_settings_held_when(run):
    changed = {"training.lr": [0.0007, 0.0001], "training.gamma": [0.99, 0.9]}
    run.update(resumes=[{"iteration": 1200, "changed": changed}, {"iteration": 1300, "changed": {}}])
    output = invoke("show", "last").output
    assert "after iteration 1,200" in output
    assert "training.lr: 0.0007 → 0.0001" in output
    assert "1,300" not in output


def test_show_of_a_run_that_has_not_measured_anything_yet(workdir):
    RunDirectory.create(Experiment.compose("cartpole"), command="x")
    output = invoke("show", "last").output
    assert "no episode has ended yet" in output
    assert "rayfish evaluate" not in output


def test_an_unknown_run_is_a_plain_error(workdir):
    with pytest.raises(RunNotFound):
        invoke("show", "nothing")


@pytest.fixture
def sweep(workdir):
    """Two points with two seeds each: the best single trial is of the point that is worse on the mean."""
    about = {
        "kind": "experiment",
        "title": "tuned · PPO on CartPole-v1",
        "tags": ["baseline"],
        "metric": "score",
        "time": "run/iteration",
        "space": {"training.lr": {"type": "choice", "values": [0.1, 0.2]}},
        "search": {"mode": "max", "repeat": 2},
    }
    sweep = SweepDirectory.create("runs", "tuned", about)
    table = EventTable(sweep.table_file)
    for number, (point, value) in enumerate([(1, 90.0), (1, 10.0), (2, 60.0), (2, 62.0)], 1):
        params = {"training.lr": 0.1 * point}
        table.write("new", number, name=f"{number:04d}", params=params, point=point, seed=number)
        table.write("start", number)
        table.write("report", number, step=1, value=value, seconds=1.0)
        table.write("end", number, state="done", seconds=1.0)
    table.close()
    experiment = Experiment.compose("cartpole")
    RunDirectory.create(experiment, at=sweep.trials / "0004", command="x").finish("done", "over")
    atomic_link(sweep.path / "best", "trials/0004")
    sweep.update(status="done")
    sweep.release()
    return sweep


def test_a_sweep_is_listed_with_the_mean_of_its_best_point(sweep):
    (row,) = [line for line in invoke("list").output.splitlines() if sweep.data["id"] in line]
    assert " 61 " in row
    assert "4 of 4" in row


def test_the_limit_counts_sweeps(run, sweep):
    output = invoke("list", "--limit", "1").output
    assert sweep.data["id"] in output
    assert run.data["id"] not in output
    assert "and 1 older" in output


def test_a_sweep_is_shown_with_its_points_and_its_best_trial(sweep):
    for word in ("tuned", sweep.data["id"], "last", str(sweep.path)):
        output = invoke("show", word).output
        for part in ("61 [", "0.2", "4 done", "PPO on CartPole-v1   ✔ done  over"):
            assert part in output, (word, part)


def test_damaged_lines_of_a_sweep_are_shown(sweep):
    with sweep.table_file.open("a") as file:
        file.write("garbage\n")
    assert "trials.jsonl: line 17 is damaged and left out" in invoke("show", "tuned").output
    assert invoke("list").output.replace("\n", "").count("line 17 is damaged and left out") == 1
    (entry,) = json.loads(invoke("list", "--json").output)
    assert (entry["status"], entry["reason"]) == ("done", "trials.jsonl: line 17 is damaged and left out")


def test_damaged_lines_of_a_sweep_are_reported_once_in_python(sweep, caplog):
    with sweep.table_file.open("a") as file:
        file.write("garbage\n")
    for _ in range(2):
        assert len(load_sweep("tuned").trials) == 4
    (record,) = caplog.records
    assert f"{sweep.path}: trials.jsonl: line 17 is damaged and left out" in record.getMessage()


def test_a_sweep_without_its_table_is_damaged(sweep):
    sweep.table_file.unlink()
    assert "damaged" in invoke("list").output
    for look in (lambda: invoke("show", "tuned"), lambda: load_sweep("tuned"), lambda: tune(resume="tuned")):
        with pytest.raises(RunNotFound, match=r"is damaged: trials\.jsonl is missing"):
            look()


def test_a_sweep_that_has_just_begun_is_listed_with_all_its_trials(sweep):
    sweep.update(status="stopped", total=6)
    assert "4 of 6" in invoke("list").output
    assert "2 waiting, 4 done" in invoke("show", "tuned").output


def test_only_a_sweep_that_does_not_run_is_offered_to_be_resumed(sweep, monkeypatch):
    sweep.update(status="stopped")
    assert "tune --resume" in invoke("show", "tuned").output
    monkeypatch.setattr("rayfish.run.lease.alive", lambda *_: True)
    sweep.update(status="running")
    assert "tune --resume" not in invoke("show", "tuned").output


def test_only_the_best_point_of_an_experiment_is_offered_for_training(sweep):
    (sweep.path / "best.yaml").touch()
    assert "rayfish train -f" in invoke("show", "tuned").output
    sweep.update(kind="function")
    output = invoke("show", "tuned").output
    assert "best.yaml" in output and "rayfish train -f" not in output


def test_a_limit_below_zero_is_refused(workdir):
    refused = invoke("list", "--limit", "-1")
    assert refused.exit_code == 2


def test_damaged_runs_and_sweeps_stand_in_the_list_by_their_age(run, sweep):
    for number, (folder, record) in enumerate([(run.path, "run.json"), (sweep.path, "sweep.json")]):
        moved = folder.with_name(f"2999010{number + 1}-000000-abcde{number}")
        folder.rename(moved)
        (moved / record).write_text("{")
    RunDirectory.create(Experiment.compose("cartpole"), name="other", command="x")
    shown = json.loads(invoke("list", "--json", "--limit", "2").output)
    assert [entry["id"] for entry in shown] == ["abcde1", "abcde0"]
    assert all(entry["status"] == "damaged" for entry in shown)


def test_the_list_as_one_document_for_scripts(run, sweep):
    run.update(return_mean=float("nan"))
    output = invoke("list", "--json").output
    swept, trained = json.loads(output, parse_constant=pytest.fail)
    assert "\x1b" not in output
    assert (swept["kind"], swept["best"]["value"], swept["best"]["params"]) == (
        "sweep",
        61.0,
        {"training.lr": 0.2},
    )
    assert (trained["kind"], trained["path"]) == ("run", str(run.path.absolute()))
    assert (trained["steps"], trained["best"]["value"], trained["return_mean"]) == (122880, 200.0, None)
    assert trained["checkpoints"] == ["000020"]


def test_an_empty_list_is_an_empty_document(workdir):
    assert json.loads(invoke("list", "--json").output) == []


def test_the_list_by_tag(run, sweep):
    tagged = RunDirectory.create(Experiment.compose("cartpole", ["runtime.tags=[baseline,new]"]), command="x")
    alone = RunDirectory.create(Experiment.compose("cartpole", ["runtime.tags=baseline"]), command="x")
    ids = [entry["id"] for entry in json.loads(invoke("list", "--json", "--tag", "baseline").output)]
    assert set(ids) == {tagged.data["id"], alone.data["id"], sweep.data["id"]}
    assert [tagged.data["id"]] == [
        entry["id"]
        for entry in json.loads(invoke("list", "--json", "--tag", "baseline", "--tag", "new").output)
    ]
    assert "has the tag 'old'" in invoke("list", "--tag", "old").output


def test_the_list_in_another_order(run, sweep):
    for name, value in (("b", 300.0), ("a", 100.0)):
        other = RunDirectory.create(Experiment.compose("cartpole"), name=name, command="x")
        other.update(best={"value": value})
    order = {
        sort: [entry["name"] for entry in json.loads(invoke("list", "--json", "--sort", sort).output)]
        for sort in ("name", "best", "age")
    }
    assert order["name"] == ["a", "b", "cartpole", "tuned"]
    assert order["best"] == ["b", "cartpole", "a", "tuned"]
    assert order["age"][:2] == ["a", "b"]
    with pytest.raises(RayfishError) as caught:
        invoke("list", "--sort", "bset")
    assert caught.value.hint == "did you mean --sort best?"


def test_a_damaged_run_is_listed_and_shown_as_damaged(run):
    (run.path / "run.json").write_text('{"id": ')
    (row,) = [line for line in invoke("list").output.splitlines() if run.data["id"] in line]
    assert "damaged" in row
    (entry,) = json.loads(invoke("list", "--json").output)
    assert "is cut short or damaged at line 1" in entry["reason"]
    with pytest.raises(RunNotFound, match="is cut short or damaged at line 1"):
        invoke("show", run.data["id"])


def test_a_run_json_that_is_a_folder_is_shown_and_removed_as_damaged(run):
    (run.path / "run.json").unlink()
    (run.path / "run.json").mkdir()
    with pytest.raises(RunNotFound, match="cannot be read: Is a directory"):
        invoke("show", run.data["id"])
    invoke("rm", "--yes", run.data["id"])
    assert not run.path.exists()


@pytest.mark.parametrize("content", ["algo: \x01\n", "a: [", None])
def test_a_run_is_shown_without_a_config_that_cannot_be_read(run, content):
    if content is None:
        run.config_file.unlink()
    else:
        run.config_file.write_text(content)
    output = invoke("show", "last").output
    (row,) = [line for line in output.splitlines() if line.startswith("config")]
    assert "config.yaml" in row
    assert "rayfish evaluate" in output


def test_rm_asks_first(run, sweep, monkeypatch, capsys):
    with pytest.raises(RayfishError, match="there is no terminal") as caught:
        invoke("rm", "cartpole")
    assert "--yes" in caught.value.hint
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", lambda question: question != "Remove these 2 folders?")
    assert remove(["cartpole", "tuned"], "runs", sure=False) == []
    asked = capsys.readouterr().out
    assert f"{run.path}  (run, " in asked
    assert f"{sweep.path.relative_to(Path.cwd())}  (sweep, " in asked
    assert run.path.is_dir()
    assert len(remove(["cartpole"], "runs", sure=False)) == 1
    assert not run.path.exists()


def test_rm_removes_runs_sweeps_and_damaged_ones(run, sweep):
    other = RunDirectory.create(Experiment.compose("cartpole"), name="other", command="x")
    other.finish("failed", "x")
    (other.path / "run.json").write_text("{")
    output = invoke("rm", run.data["id"], "tuned", "other", "--yes").output
    assert output.count("removed ") == 3
    assert list((run.path.parent.parent).iterdir()) == []


def test_rm_takes_whole_runs_that_are_not_in_training(run, sweep):
    with pytest.raises(RayfishError, match="is a part of"):
        invoke("rm", str(run.checkpoints / "000020"), "--yes")
    with pytest.raises(RayfishError, match="is a trial of the sweep"):
        invoke("rm", str(sweep.path / "best"), "--yes")
    training = RunDirectory.create(Experiment.compose("cartpole"), name="training", command="x")
    with pytest.raises(RayfishError, match="is in training: process"):
        invoke("rm", "cartpole", "training", "--yes")
    assert run.path.is_dir()
    assert training.path.is_dir()


def test_a_sweep_is_read_from_python_without_ray(sweep):
    code = (
        "import sys, rayfish; r = rayfish.load_sweep('tuned');"
        "print(r.best_config, r.best_value, r.status, len(list(r.rows())), r.best.name);"
        "print([m for m in ('ray', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["{'training.lr': 0.2} 61.0 done 4 0004", "[]"]


FOREIGN = "\x1b]0;title\x07\x1b[2J[/bold]na\x9b31mme\r"


def test_escape_sequences_of_a_foreign_run_do_not_reach_the_terminal(run, sweep):
    best = {"metric": FOREIGN, "value": 1.0, "checkpoint": FOREIGN}
    run.update(name=FOREIGN, algo=FOREIGN, env=FOREIGN, reason=FOREIGN, best=best, runner={"used": FOREIGN})
    sweep.update(title=FOREIGN, name=FOREIGN)
    for words in (["list"], ["list", "--json"], ["show", run.data["id"]], ["show", sweep.data["id"]]):
        output = invoke(*words).output
        assert not set(output) & set("\x1b\x07\x9b\r"), words
        assert "[/bold]name" in output or words[-1] == "--json"


@pytest.mark.parametrize(
    "content",
    [
        '{"id": ',
        "[]",
        '{"search": 5}',
        '{"space": {"a": {"type": "x"}}}',
        '{"times": 5, "space": 5}',
        "[" * 100_000,
    ],
)
def test_a_damaged_sweep_is_listed_as_damaged(run, sweep, content):
    (sweep.path / "sweep.json").write_text(content)
    (row,) = [line for line in invoke("list").output.splitlines() if sweep.path.name[-6:] in line]
    assert "damaged" in row
    assert run.data["id"] in invoke("list").output
    assert "return" in invoke("show", "cartpole").output
    (entry,) = [e for e in json.loads(invoke("list", "--json").output) if e["kind"] == "sweep"]
    assert entry["status"] == "damaged"
    with pytest.raises(RunNotFound, match=r"damaged|cannot be read"):
        invoke("show", str(sweep.path))
    for word in (entry["name"], entry["id"]):
        with pytest.raises(RunNotFound, match=r"damaged|cannot be read"):
            invoke("show", word)
        with pytest.raises(RunNotFound, match=r"damaged|cannot be read"):
            load_sweep(word)
    assert "removed" in invoke("rm", entry["name"], "--yes").output
    assert "damaged" in entry["reason"] or "cannot be read" in entry["reason"]
