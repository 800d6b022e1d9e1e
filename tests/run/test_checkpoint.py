"""Checkpoints: whole or not there, self-contained, and plain words for those that do not fit."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

import rayfish
from rayfish.errors import CheckpointError
from rayfish.files import exchange
from rayfish.run import checkpoint
from tests.helpers import metrics_of
from tests.run.test_train import SMALL

pytestmark = pytest.mark.usefixtures("ray_session", "workdir")


@pytest.fixture(scope="module")
def trained(ray_session, tmp_path_factory) -> Path:
    """A run of three iterations with a checkpoint of each."""
    folder = tmp_path_factory.mktemp("trained")
    words = (
        *SMALL, "stop_conditions.training_iteration=3", "checkpoint.checkpoint_frequency=1",
        f"runtime.local_dir={folder}",
    )  # fmt: skip
    return rayfish.train("cartpole", *words, plain=True)


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy of it, to be broken."""
    return Path(shutil.copytree(trained, tmp_path / "runs" / "cartpole" / trained.name, symlinks=True))


def resume(run: Path, *words: str) -> None:
    rayfish.train(None, *words, resume=run, plain=True)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def change_header(folder: Path, **values: object) -> None:
    path = folder / "rayfish.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_continued(run, capsys):
    cut(next((run / "checkpoints/000003/algorithm").rglob("*.pkl")))
    resume(run, "stop_conditions.training_iteration=4")
    out = capsys.readouterr().out
    assert "checkpoints/000003 is damaged: algorithm/" in out
    assert "resumed at iteration 2" in out
    assert [line["run/iteration"] for line in metrics_of(run)] == [1, 2, 3, 4]
    assert (run / "checkpoints/last").resolve().name == "000004"


def test_a_run_whose_checkpoints_are_all_damaged_is_one_clear_message(run):
    for path in run.glob("checkpoints/0*/policy/*.safetensors"):
        cut(path)
    with pytest.raises(
        CheckpointError, match=r"no checkpoint of this run can be read: .* is damaged: policy/"
    ):
        resume(run, "stop_conditions.training_iteration=4")


def test_what_a_killed_session_left_half_done_is_swept_away(run):
    for name in (".writing-000004-1", ".dropping-000001-1"):
        shutil.copytree(run / "checkpoints/000003", run / "checkpoints" / name)
    resume(run, "stop_conditions.training_iteration=4")
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == [
        "000001", "000002", "000003", "000004", "best", "last",
    ]  # fmt: skip


def test_links_lost_in_a_crash_are_made_again(run):
    best = (run / "checkpoints/best").resolve().name
    (run / "checkpoints/best").unlink()
    (run / "checkpoints/last").unlink()
    (run / "checkpoints/last").symlink_to("000001")
    resume(run)
    assert (run / "checkpoints/last").resolve().name == "000003"
    assert (run / "checkpoints/best").resolve().name == best


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"env": "Acrobot-v1"},
            "was made with environment.env=Acrobot-v1; you have environment.env=CartPole-v1",
        ),
        ({"algo": "DQN"}, "was made with algo.name=DQN; you have algo.name=PPO"),
        ({"versions": {"ray": "2.48.0"}}, "was made with Ray 2.48.0; you have Ray 2.60"),
        (
            {"layout": 99, "versions": {"rayfish": "9.0"}},
            r"was made with Rayfish 9.0 \(layout 99\); you have",
        ),
        (
            {"spaces": {"default_agent": ["Box(6,) float32 in [-1, 1]", "Discrete(2)"]}},
            r"other spaces of CartPole-v1: observations Box\(6,\) float32 in \[-1, 1\] then, Box\(4,\)",
        ),
    ],
)
def test_a_checkpoint_of_something_else_is_one_sentence(values, said, run):
    folder = run / "checkpoints/000003"
    change_header(folder, **values)
    with (
        rayfish.Trainer("cartpole", *SMALL) as trainer,
        pytest.raises(CheckpointError, match=said) as caught,
    ):
        trainer.restore(folder)
    assert caught.value.hint


def test_a_full_disk_while_writing_leaves_the_checkpoint_before_it(tmp_path, monkeypatch):
    with rayfish.Trainer("cartpole", *SMALL) as trainer:
        trainer.step()
        folder = trainer.save(tmp_path / "checkpoint")
        before = json.loads((folder / "rayfish.json").read_text())
        trainer.step()

        def full(path: Path) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        monkeypatch.setattr(checkpoint, "_sync", full)
        with pytest.raises(
            CheckpointError, match=r"No space left on device.*earlier checkpoints are untouched"
        ):
            trainer.save(folder)
        monkeypatch.undo()
        assert json.loads((folder / "rayfish.json").read_text()) == before
        assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]
        trainer.save(folder)
        assert json.loads((folder / "rayfish.json").read_text())["iteration"] == 2


def test_the_replay_buffer_is_kept_with_the_last_and_the_best_checkpoint_only():
    run = rayfish.train(
        "cartpole-dqn", "training.num_steps_sampled_before_learning_starts=50",
        "training.model.fcnet_hiddens=[16]",
        "reporting.min_sample_timesteps_per_iteration=80", "stop_conditions.training_iteration=4",
        "checkpoint.checkpoint_frequency=1", plain=True,
    )  # fmt: skip
    best, last = ((run / "checkpoints" / name).resolve().name for name in ("best", "last"))
    kept = {path.parent.name for path in run.glob("checkpoints/0*/replay.lz4")}
    assert kept == {best, last}
    checkpoint.require_whole(run / "checkpoints/000001", checkpoint.read_header(run / "checkpoints/000001"))


def test_two_paths_change_places_in_one_step(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "b").exists()
    assert (tmp_path / "b" / "a").exists()
