"""Run folders: what is written, that it is written whole, and that runs are found again."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rayfish.errors import CheckpointError, RayfishError, RunNotFound
from rayfish.experiment import Experiment
from rayfish.metrics import names
from rayfish.run import directory
from rayfish.run.directory import (
    RunDirectory,
    atomic_link,
    atomic_write,
    find_checkpoint,
    find_run,
    list_runs,
)


@pytest.fixture(scope="module")
def experiment():
    return Experiment.compose("cartpole", ["training.lr=3e-4"])


@pytest.fixture
def make(experiment, workdir):
    """Makes runs in the scratch folder."""

    def make(name="cartpole", checkpoints=()):
        run = RunDirectory.create(experiment, name=name, command=["rayfish", "train", "cart pole"])
        for iteration in checkpoints:
            path = run.checkpoint_path(iteration)
            path.mkdir()
            (path / "rayfish.json").write_text("{}")
            run.link("last", path)
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
    run.update(process={"host": "another-machine"})
    assert run.status == "running"
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
    run.link("best", run.checkpoint_path(20))
    assert find_checkpoint("cartpole").name == "000020"
    assert find_checkpoint(run.checkpoints / "last").name == "000040"
    assert find_checkpoint("cartpole/checkpoints/000020").name == "000020"
    assert find_checkpoint(str(run.checkpoint_path(20))).name == "000020"


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
    assert target in list(tmp_path.iterdir())


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
