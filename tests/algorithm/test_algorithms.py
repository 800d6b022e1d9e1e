"""Every algorithm by its name: builds from an experiment and makes a training step."""

from __future__ import annotations

import time

import pytest

import rayfish
from tests.helpers import comparable, info_of

pytestmark = pytest.mark.usefixtures("ray_session", "workdir")

MODEL = ("training.model.fcnet_hiddens=[16]",)
ON_POLICY = (
    "rollouts.num_envs_per_env_runner=4",
    "training.train_batch_size_per_learner=200",
    *MODEL,
)
OFF_POLICY = (
    "training.num_steps_sampled_before_learning_starts=64",
    "training.train_batch_size_per_learner=32",
    "reporting.min_sample_timesteps_per_iteration=100",
    *MODEL,
)
QUICK = "reporting.min_time_s_per_iteration=1"  # theirs is 10 s
CASES = {
    "PPO": ("CartPole-v1", (*ON_POLICY, "training.minibatch_size=50", "training.num_epochs=2")),
    "APPO": ("CartPole-v1", (*ON_POLICY, "rollouts.num_env_runners=1", QUICK)),
    "IMPALA": ("CartPole-v1", (*ON_POLICY, "rollouts.num_env_runners=1", QUICK)),
    "DQN": ("CartPole-v1", OFF_POLICY),
    "SAC": ("Pendulum-v1", OFF_POLICY),
    "TQC": ("Pendulum-v1", OFF_POLICY),
}
DREAMER = (
    "training.model_size=XS",
    "training.training_ratio=16",
    "training.batch_size_B=4",
    "training.batch_length_T=16",
)


_LONG = ("APPO", "IMPALA")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in _LONG else ()) for name in CASES]
)
def test_builds_steps_saves_and_loads(name, tmp_path):
    env, settings = CASES[name]
    with rayfish.Trainer(None, f"algo.name={name}", f"environment.env={env}", *settings) as trainer:
        # Asynchronous algorithms report samples and losses some iterations after they were made.
        seen: set[str] = set()
        deadline = time.monotonic() + 150  # a remote runner takes long to start on a busy machine
        while time.monotonic() < deadline:
            metrics = trainer.step()
            seen |= {key.split("/")[1] for key in metrics if key.startswith("learn/")}
            if seen and metrics["run/env_steps"]:
                break
        assert seen == {"default_policy"}
        assert metrics["run/env_steps"] > 0
        agent = rayfish.load(trainer.save(tmp_path / "checkpoint"))
    observation = trainer.info.observation_space.sample()
    assert trainer.info.action_space.contains(agent.act(observation))


def test_dreamer_builds_and_steps(tmp_path):
    with rayfish.Trainer(None, "algo.name=DreamerV3", "environment.env=CartPole-v1", *DREAMER) as trainer:
        assert trainer.step()["run/env_steps"] > 0


@pytest.fixture(scope="module")
def recorded(ray_session, tmp_path_factory):
    """Episodes of CartPole and Pendulum, recorded by RLlib while training a little."""
    folder = tmp_path_factory.mktemp("recorded")
    for env, name in (("CartPole-v1", "PPO"), ("Pendulum-v1", "PPO")):
        with rayfish.Trainer(
            None,
            f"algo.name={name}",
            f"environment.env={env}",
            *ON_POLICY,
            "training.minibatch_size=50",
            f"offline_data.output={folder / env}",
            "offline_data.output_max_rows_per_file=3",
            "rollouts.batch_mode=complete_episodes",
        ) as trainer:
            for _ in range(3):
                trainer.step()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "env"),
    [("BC", "CartPole-v1"), ("MARWIL", "CartPole-v1"), ("CQL", "Pendulum-v1"), ("IQL", "Pendulum-v1")],
)
def test_offline_algorithms_learn_from_recorded_episodes_and_resume_exactly(name, env, recorded, tmp_path):
    folders = sorted({str(path.parent) for path in (recorded / env).rglob("*.parquet")})
    assert folders, "nothing was recorded"
    with rayfish.Trainer(
        None,
        f"algo.name={name}",
        f"environment.env={env}",
        f"offline_data.input_=[{','.join(folders)}]",
        "offline_data.input_read_episodes=true",
        "offline_data.input_read_batch_size=1",
        "offline_data.dataset_num_iters_per_learner=2",
        "training.train_batch_size_per_learner=64",
        *MODEL,
    ) as trainer:
        metrics = trainer.step()
        assert any(key.startswith("learn/default_policy/") for key in metrics), metrics
        checkpoint = trainer.save(tmp_path / "checkpoint")
        expected = comparable(trainer.step())
        assert trainer.restore(checkpoint) == []
        assert trainer.iteration == 1
        assert comparable(trainer.step()) == expected
        agent = rayfish.load(checkpoint)
    assert trainer.info.action_space.contains(agent.act(trainer.info.observation_space.sample()))


def test_an_algorithm_that_does_not_exist_names_the_ones_that_do():
    with pytest.raises(rayfish.RayfishError, match="PPO"):
        rayfish.Trainer(None, "algo.name=PPOO", "environment.env=CartPole-v1")


def test_run_json_names_the_algorithm(workdir):
    run = rayfish.train(
        None,
        "algo.name=DQN",
        "environment.env=CartPole-v1",
        *OFF_POLICY,
        "stop_conditions.training_iteration=1",
        plain=True,
    )
    assert info_of(run)["algo"] == "DQN"


@pytest.mark.parametrize("name", ["DQN", "SAC"])
def test_several_agents_replay_and_save_though_they_are_numbers(name):
    env = "MultiAgentCartPole" if name == "DQN" else "MultiAgentPendulum"
    place = f"environment.env=ray.rllib.examples.envs.classes.multi_agent.{env}"
    words = (f"algo.name={name}", place, "environment.env_config.num_agents=2", *OFF_POLICY)
    with rayfish.Trainer(None, *words) as trainer:
        trainer.step()
        saved = trainer.save()
        after = trainer.step()
        trainer.restore(saved)
        assert trainer.step()["run/env_steps"] == after["run/env_steps"]
