"""A checkpoint that Ray wrote by itself is recognised wherever it is named, and refused in one sentence."""

from __future__ import annotations

import json
import pickle

import pytest

import rayfish
from rayfish.errors import CheckpointError, ConfigError, RayfishError
from rayfish.run.directory import find_checkpoint

pytestmark = pytest.mark.usefixtures("workdir")


class Trap:
    """Fails the test when it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a checkpoint of unknown origin was unpickled",))


def ray_1(folder, *, name="checkpoint-10", metadata=True):
    """`checkpoint_000010/checkpoint-10` as Ray 0.8 to 2.0 wrote it."""
    folder.mkdir(parents=True)
    (folder / name).write_bytes(pickle.dumps(Trap()))
    if metadata:
        told = {"experiment_id": "1f", "iteration": 10, "ray_version": "1.13.0", "trap": Trap()}
        (folder / f"{name}.tune_metadata").write_bytes(pickle.dumps(told))
        (folder / ".is_checkpoint").touch()
    return folder


def ray_2(folder, version="1.1", state="algorithm_state.pkl"):
    """The folder of Ray 2.1 to 2.9."""
    (folder / "policies" / "default_policy").mkdir(parents=True)
    (folder / state).write_bytes(pickle.dumps(Trap()))
    (folder / "policies" / "default_policy" / "policy_state.pkl").write_bytes(pickle.dumps(Trap()))
    header = {"type": "Algorithm", "checkpoint_version": version, "ray_version": "2.7.1"}
    (folder / "rllib_checkpoint.json").write_text(json.dumps(header))
    return folder


NETWORKS = "its weights belong to networks that RLlib no longer has"
AGAIN = "train it again from its old experiment file: rayfish train -f FILE.yaml"

OLD = {
    "file of ray 1": lambda here: ray_1(here / "checkpoint_000010") / "checkpoint-10",
    "folder of ray 1": lambda here: ray_1(here / "checkpoint_000010"),
    "folder of ray 0.8": lambda here: ray_1(here / "checkpoint_10", metadata=False),
    "file without a dash": lambda here: (
        ray_1(here / "checkpoint_000010", name="checkpoint10", metadata=False) / "checkpoint10"
    ),
    "file that was copied out": lambda here: ray_1(here / "mine", metadata=False) / "checkpoint-10",
    "trial of ray 1": lambda here: ray_1(here / "PPO_CartPole_1f" / "checkpoint_000010").parent,
    "folder of ray 2.7": lambda here: ray_2(here / "checkpoint_000010"),
    "msgpack state of ray 2.7": lambda here: ray_2(here / "best", state="algorithm_state.msgpck"),
    "header file of ray 2.7": lambda here: ray_2(here / "best") / "rllib_checkpoint.json",
    "below a folder called checkpoints": lambda here: ray_2(here / "checkpoints" / "checkpoint_000010"),
}


@pytest.mark.parametrize("case", OLD)
def test_old_checkpoints_are_refused_in_one_sentence(case, tmp_path):
    path = OLD[case](tmp_path)
    with pytest.raises(CheckpointError) as refused:
        find_checkpoint(str(path))
    assert refused.value.what.startswith(f"{path} is an old checkpoint of RLlib")
    assert refused.value.what.endswith(NETWORKS)
    assert refused.value.hint == AGAIN


def test_the_version_of_ray_is_reported_where_it_is_written(tmp_path):
    with pytest.raises(CheckpointError, match=r"of RLlib \(Ray 1\.13\.0\): its weights"):
        find_checkpoint(ray_1(tmp_path / "checkpoint_000010"))
    with pytest.raises(CheckpointError, match=r"of RLlib \(Ray 2\.7\.1\): its weights"):
        find_checkpoint(ray_2(tmp_path / "other"))


@pytest.mark.parametrize(
    "use",
    [
        rayfish.load,
        rayfish.evaluate,
        rayfish.rollout,
        lambda path: rayfish.train(resume=path),
        lambda path: rayfish.train("cartpole", f"algo.checkpoint_path={path}"),
    ],
    ids=["load", "evaluate", "rollout", "resume", "warm start"],
)
def test_every_way_in_refuses_it(use, tmp_path):
    with pytest.raises((CheckpointError, ConfigError)) as refused:
        use(ray_1(tmp_path / "checkpoint_000010"))
    assert NETWORKS in str(refused.value)
    assert AGAIN in str(refused.value)
    assert not (tmp_path / "runs").exists()


def test_a_checkpoint_of_todays_rllib_is_distinguished_from_an_old_one(tmp_path, ray_session):
    small = ("training.train_batch_size_per_learner=64", "training.minibatch_size=64")
    with rayfish.Trainer("cartpole", *small) as trainer:
        trainer.algorithm.save_to_path(str(tmp_path / "theirs"))
        ours = trainer.save(tmp_path / "ours")
    with pytest.raises(CheckpointError) as refused:
        rayfish.load(tmp_path / "theirs")
    assert "is a checkpoint of RLlib itself (Ray 2.60.0), not of Rayfish" in refused.value.what
    assert find_checkpoint(ours) == ours
    # Rayfish's own checkpoints hold such a folder, which is nobody else's.
    with pytest.raises(RayfishError) as part:
        rayfish.load(ours / "algorithm")
    assert "of RLlib itself" not in part.value.what


def test_what_lies_beside_an_old_checkpoint_is_not_taken_for_one(tmp_path):
    trial = ray_1(tmp_path / "trial" / "checkpoint_000010").parent
    (trial / "params.json").write_text("{}")
    with pytest.raises(RayfishError) as refused:
        find_checkpoint(trial / "params.json")
    assert NETWORKS not in refused.value.what
