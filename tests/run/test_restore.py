"""`rayfish train --restore`: a new run that goes on from a checkpoint's whole state."""

from __future__ import annotations

import pytest

import rayfish
from rayfish.cli.main import main
from rayfish.errors import CheckpointError
from tests.helpers import comparable, info_of, metrics_of
from tests.run.test_train import train

pytestmark = pytest.mark.usefixtures("ray_session", "workdir")


def test_a_restored_run_is_the_run_that_went_on_in_a_folder_of_its_own():
    whole = train("stop_conditions.training_iteration=4", "checkpoint.checkpoint_frequency=2")
    donor = whole / "checkpoints" / "000002"
    run = rayfish.train(None, {"checkpoint.checkpoint_frequency": 0}, restore=donor, plain=True)
    assert run != whole
    assert [*map(comparable, metrics_of(run))] == [*map(comparable, metrics_of(whole)[2:])]
    assert info_of(run)["restored_from"] == str(donor.resolve())
    assert [p.name for p in sorted((run / "checkpoints").glob("0*"))] == ["000002", "000004"]
    before_its_own = train(
        "stop_conditions.training_iteration=3",
        "checkpoint.checkpoint_frequency=0",
        "checkpoint.checkpoint_at_end=false",
        restore=donor,
    )
    rayfish.train(resume=before_its_own, plain=True)
    lines = metrics_of(before_its_own)
    assert [line["run/iteration"] for line in lines] == [3], "a resume begins at the checkpoint too"
    assert comparable(lines[0]) == comparable(metrics_of(whole)[2])


def test_what_does_not_go_together_is_refused_before_a_run_is_made(workdir, capsys):
    train("stop_conditions.training_iteration=1")
    runs = sorted(workdir.glob("runs/*/*"))
    for words, said in (
        (["--run", "DQN", "--env", "CartPole-v1"], "was made with algo.name=PPO; you have algo.name=DQN"),
        (["cartpole", "--seeds", "2"], "would repeat one run"),
        (["cartpole", "--num-samples", "2"], "would repeat one run"),
        (["--resume", "last"], "give one of them"),
    ):
        with pytest.raises(SystemExit):
            main(["train", *words, "--restore", "last"])
        assert said in capsys.readouterr().err
    assert sorted(workdir.glob("runs/*/*")) == runs


def test_a_checkpoint_of_old_ray_is_distinguished_from_ours(workdir):
    folder = workdir / "checkpoint_000010"
    folder.mkdir()
    (folder / "checkpoint-10").write_bytes(b"")
    with pytest.raises(CheckpointError, match="an old checkpoint of RLlib"):
        train(restore=folder / "checkpoint-10")
