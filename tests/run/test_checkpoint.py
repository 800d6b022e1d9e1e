"""Checkpoints: whole or not there, self-contained, and plain words for those that do not fit."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import rayfish
from rayfish.errors import CheckpointError
from rayfish.files import exchange
from rayfish.run import checkpoint, signing
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
    path.write_text(signing.sealed_json("rayfish.json", json.loads(path.read_text()) | values))


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
            raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28]")

        monkeypatch.setattr(checkpoint, "sync", full)
        with pytest.raises(
            CheckpointError,
            match=r"No space left on device: .* free at /.*; earlier checkpoints are untouched",
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


def flips(file: Path) -> Iterator[int]:
    """Flips one bit of the file at a time, at both ends and spread over it, and puts it back."""
    sound, size = file.read_bytes(), file.stat().st_size
    for number in sorted(
        {*range(min(size, 6)), *range(max(0, size - 6), size), *range(0, size, size // 9 + 1)}
    ):
        changed = bytearray(sound)
        changed[number] ^= 1 << number % 8
        file.write_bytes(changed)
        yield number
    file.write_bytes(sound)


def test_a_flipped_bit_of_any_file_is_found_and_named_before_the_file_is_used(run):
    folder = run / "checkpoints/000003"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    read_by_all = {folder / "rayfish.json", folder / "config.yaml", *(folder / "policy").iterdir()}
    assert len(files) > 20
    for file in files:
        for number in flips(file):
            named = f"{file.relative_to(folder)}"
            with pytest.raises(CheckpointError, match=re.escape(named)):
                checkpoint.require_whole(folder, checkpoint.read_header(folder))
            if file in read_by_all and number % 3 == 0:
                with pytest.raises(CheckpointError, match=re.escape(named)):
                    rayfish.evaluate(folder, episodes=1)
    checkpoint.require_whole(folder, checkpoint.read_header(folder))


def test_a_damaged_checkpoint_is_no_warm_start_and_no_donor(run):
    folder = run / "checkpoints/000003"
    cut(next((folder / "algorithm/learner_group").rglob("*.pkl")))
    with pytest.raises(CheckpointError, match="is damaged: algorithm/learner_group/"):
        rayfish.Trainer("cartpole", *SMALL, f"algo.checkpoint_path={folder}")
    with pytest.raises(CheckpointError, match="is damaged: algorithm/learner_group/"):
        checkpoint.adopt(run / "other", folder)


def test_a_file_or_folder_that_was_added_is_not_opened(run):
    folder = run / "checkpoints/000003"
    for name in ("processes/more.lz4", "algorithm/more"):
        (folder / name).symlink_to("/tmp")
        with pytest.raises(CheckpointError, match=f"{name} was not there when it was written"):
            checkpoint.require_whole(folder, checkpoint.read_header(folder))
        (folder / name).unlink()


def test_a_checkpoint_with_crc_checksums_is_still_read_and_checked(run):
    folder = run / "checkpoints/000003"
    header = checkpoint.read_header(folder)
    crc = {
        name: (size, zlib.crc32((folder / name).read_bytes())) for name, (size, _) in header["files"].items()
    }
    del header["seal"]
    (folder / "rayfish.json").write_text(json.dumps(header | {"layout": 2, "files": crc}))
    assert rayfish.evaluate(folder, episodes=1).episodes == 1
    checkpoint.require_whole(folder, checkpoint.read_header(folder))
    weights = next((folder / "policy").glob("*.safetensors"))
    next(flips(weights))
    with pytest.raises(CheckpointError, match=r"is damaged: policy/default_policy\.safetensors"):
        rayfish.load(folder)


def test_all_files_of_a_checkpoint_have_the_permissions_that_the_umask_gives(tmp_path):
    before = os.umask(0o027)
    try:
        with rayfish.Trainer("cartpole", *SMALL) as trainer:
            folder = trainer.save(tmp_path / "checkpoint")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    assert set(modes.values()) == {0o640}, modes


def test_two_paths_change_places_in_one_step(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a" / "b").exists()
    assert (tmp_path / "b" / "a").exists()


def test_an_environment_variable_is_nowhere_in_the_run_folder_but_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("THE_TOKEN", "s3cret-value")
    (tmp_path / "world.py").write_text(
        "import gymnasium as gym, os\n"
        "class World(gym.Wrapper):\n"
        "    def __init__(self, token):\n"
        "        assert token == os.environ['THE_TOKEN'], token\n"
        "        super().__init__(gym.make('CartPole-v1'))\n"
    )
    words = (
        *SMALL,
        "environment.env_config={token: '${oc.env:THE_TOKEN}'}",
        "environment.env='world.py:World'",
    )
    run = rayfish.train("cartpole", *words, "stop_conditions.training_iteration=1", plain=True)
    holding = [file for file in run.rglob("*") if file.is_file() and b"s3cret-value" in file.read_bytes()]
    assert not holding
    monkeypatch.setenv("THE_TOKEN", "another-value")
    resume(run, "stop_conditions.training_iteration=2")
    assert len(metrics_of(run)) == 2
    assert rayfish.evaluate(run, episodes=1).return_mean > 0
    holding = [file for file in run.rglob("*") if file.is_file() and b"another-value" in file.read_bytes()]
    assert not holding
