"""A run that is saved, ended and restored goes on bit for bit as it would have."""

from __future__ import annotations

import inspect
import json
import threading
import time

import gymnasium as gym
import numpy as np
import pytest
from pettingzoo import ParallelEnv

import rayfish
from tests.helpers import comparable
from tests.helpers import rayfish as rayfish_command

pytestmark = pytest.mark.usefixtures("ray_session", "workdir")

NET = ("training.model.fcnet_hiddens=[16]",)
PPO = (
    "cartpole", *NET, "rollouts.num_envs_per_env_runner=3", "training.train_batch_size_per_learner=240",
    "training.minibatch_size=80", "training.num_epochs=2",
)  # fmt: skip
RECURRENT = (
    *PPO, "rollouts.num_env_runners=2", "rollouts.observation_filter=MeanStdFilter",
    "training.model.use_lstm=true", "training.model.lstm_cell_size=16", "training.model.max_seq_len=8",
    "training.lr=[[0,0.001],[2000,0.0]]", "training.entropy_coeff=[[0,0.01],[2000,0.0]]",
    "evaluation.evaluation_interval=2", "evaluation.evaluation_duration=2",
)  # fmt: skip
REPLAY = (
    *NET, "training.num_steps_sampled_before_learning_starts=100",
    "reporting.min_sample_timesteps_per_iteration=60",
)  # fmt: skip
DQN = ("cartpole-dqn", *REPLAY, "training.target_network_update_freq=50")
SAC = ("pendulum", *REPLAY)
LEARNER = (*PPO, "learners.num_learners=1", "rollouts.num_env_runners=1")


class Counting(gym.Env):
    """Not to be pickled; its observations show how far it is."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        self.lock = threading.Lock()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.goal = 0, int(self.np_random.integers(15, 40))
        return np.array([self.steps, self.goal], np.float32), {}

    def step(self, action):
        self.steps += 1
        reward = float(action) + float(self.np_random.normal())
        return np.array([self.steps, self.goal], np.float32), reward, self.steps == self.goal, False, {}


class Stateful(Counting):
    """The same with a state that can be asked for."""

    def get_state(self):
        return self.steps, self.goal

    def set_state(self, state):
        self.steps, self.goal = state


class Duel(ParallelEnv):
    """Two agents whose episodes are longer than a rollout."""

    metadata = {"name": "duel"}  # noqa: RUF012
    possible_agents = ["red", "blue"]  # noqa: RUF012

    def __init__(self):
        self.random = np.random.default_rng(0)

    def observation_space(self, agent):
        return gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def action_space(self, agent):
        return gym.spaces.Discrete(2)

    def observe(self):
        return {a: self.random.normal(size=2).astype(np.float32) + self.steps for a in self.possible_agents}

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents, self.steps = list(self.possible_agents), 0
        return self.observe(), {a: {} for a in self.agents}

    def step(self, actions):
        self.steps += 1
        over = self.steps == 90
        rewards = {a: float(actions[a]) + float(self.random.normal()) for a in self.agents}
        result = self.observe(), rewards, dict.fromkeys(rewards, False), dict.fromkeys(rewards, over)
        self.agents = [] if over else self.agents
        return *result, {a: {} for a in rewards}


class ToldDuel(Duel):
    """Not to be pickled, but with a state that can be asked for."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def get_state(self):
        return self.random.bit_generator.state, self.agents, self.steps

    def set_state(self, state):
        self.random.bit_generator.state, self.agents, self.steps = state[0], list(state[1]), state[2]


class Chatty(Counting):
    """Saves well by itself, but its infos hold what cannot be pickled."""

    def get_state(self):
        return self.steps, self.goal

    def set_state(self, state):
        self.steps, self.goal = state

    def step(self, action):
        return *super().step(action)[:4], {"lock": self.lock}


def flat(trainer) -> dict[str, bytes]:
    return {
        f"{policy}/{name}": np.ascontiguousarray(value).tobytes()
        for policy, weights in trainer.get_weights().items()
        for name, value in weights.items()
    }


def check_exact(words, folder, env=None) -> tuple[str, list[str]]:
    """Saved after two iterations: the next two are the same here and in a restored trainer."""
    with rayfish.Trainer(*words, env=env) as trainer:
        for _ in range(2):
            trainer.step()
        checkpoint = trainer.save(folder / "checkpoint")
        expected = [comparable(trainer.step()) for _ in range(2)]
        weights, saved_by = flat(trainer), trainer.info.saved_by
    with rayfish.Trainer(*words, env=env) as trainer:
        notes = trainer.restore(checkpoint)
        assert [comparable(trainer.step()) for _ in range(2)] == expected
        assert flat(trainer) == weights
    return saved_by, notes


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(PPO, id="PPO"),
        pytest.param(
            RECURRENT, id="PPO recurrent, normalised, scheduled, on two runners", marks=pytest.mark.slow
        ),
        pytest.param(DQN, id="DQN"),
        pytest.param(SAC, id="SAC"),
        pytest.param(LEARNER, id="PPO with a remote learner", marks=pytest.mark.slow),
        pytest.param((*SAC, "algo.name=TQC"), id="TQC", marks=pytest.mark.slow),
        pytest.param((*DQN, "rollouts.num_env_runners=2"), id="DQN on two runners", marks=pytest.mark.slow),
    ],
)
def test_a_restored_trainer_goes_on_bit_for_bit(words, tmp_path):
    assert check_exact(words, tmp_path) == ("pickle", [])


@pytest.mark.parametrize(
    ("env", "saved_by"), [(Stateful, "get_state"), (Counting, "fresh"), (Chatty, "get_state")]
)
def test_environments_that_cannot_be_pickled_are_exact_too(env, saved_by, tmp_path):
    assert check_exact(PPO, tmp_path, env) == (saved_by, [])


@pytest.mark.parametrize(("env", "saved_by"), [(Duel, "pickle"), (ToldDuel, "get_state")])
def test_several_agents_with_policies_of_their_own_are_exact_too(env, saved_by, tmp_path):
    words = (
        *PPO, "rollouts.observation_filter=MeanStdFilter", "multi_agent.mapping={red: one, blue: two}",
        "rollouts.horizon=70",
    )  # fmt: skip
    assert check_exact(words, tmp_path, env) == (saved_by, [])


@pytest.mark.parametrize("words", [PPO, DQN], ids=["PPO", "DQN"])
def test_saving_changes_nothing(words, tmp_path):
    def lines(save: bool) -> list[dict[str, float]]:
        with rayfish.Trainer(*words) as trainer:
            found = []
            for index in range(3):
                found.append(comparable(trainer.step()))
                if save:
                    trainer.save(tmp_path / str(index))
            return found

    assert lines(save=True) == lines(save=False)


def test_fresh_episodes_at_a_checkpoint_begin_from_other_seeds_each_time(tmp_path):
    seeds = []
    with rayfish.Trainer(*PPO, env=Counting) as trainer:
        for _ in range(3):
            trainer.step()
            trainer.save(tmp_path / "checkpoint")
            seeds += trainer.foreach_runner(lambda runner: runner._seed)
    assert len(set(seeds)) == 3


def test_runners_that_the_checkpoint_does_not_fit_are_named(tmp_path):
    with rayfish.Trainer(*PPO) as trainer:
        trainer.step()
        checkpoint = trainer.save(tmp_path / "checkpoint")
    for changed, runner in (
        ("rollouts.num_env_runners=1", "runner-1"),
        ("rollouts.num_envs_per_env_runner=2", "runner-0"),
    ):
        with rayfish.Trainer(*PPO, changed) as trainer:
            (note,) = trainer.restore(checkpoint)
            assert note == f"this checkpoint has no state that fits {runner}: new episodes there"
            assert trainer.step()["run/iteration"] == 2


@pytest.mark.parametrize("runner", ["batched", pytest.param("rllib", marks=pytest.mark.slow)])
def test_without_its_replay_buffer_a_restored_run_refills_it_before_it_learns(runner, tmp_path):
    """100 steps before learning starts, 60 per iteration."""
    words = (*DQN, f"rollouts.runner={runner}")

    def updates(trainer):
        return trainer.algorithm.learner_group._learner._weights_seq_no

    with rayfish.Trainer(*words, "checkpoint.replay_buffer=false") as trainer:
        learnt = [updates(trainer) for _ in range(3) if trainer.step()]
        assert learnt[0] == 0 and learnt[-1] > 0
        checkpoint = trainer.save(tmp_path / "checkpoint")
    assert not (checkpoint / "replay.lz4").exists()
    with rayfish.Trainer(*words) as trainer:
        note = "this checkpoint has no replay buffer: learning continues after 100 new steps"
        assert trainer.restore(checkpoint) == [note]
        before = updates(trainer)
        trainer.step()
        assert updates(trainer) == before, "60 new steps"
        checkpoint = trainer.save(tmp_path / "refilling")
        after = [comparable(trainer.step()) for _ in range(2)]
        assert updates(trainer) > before
        assert trainer.restore(checkpoint) == []
        assert [comparable(trainer.step()) for _ in range(2)] == after


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["APPO", "IMPALA"])
def test_asynchronous_algorithms_go_on_with_counters_and_schedules_and_say_they_are_not_exact(algo, tmp_path):
    words = (
        None, f"algo.name={algo}", "environment.env=CartPole-v1", *NET, "rollouts.num_env_runners=1",
        "training.train_batch_size_per_learner=200", "reporting.min_time_s_per_iteration=1",
        "training.lr=[[0,0.001],[100000,0.0]]",
    )  # fmt: skip
    with rayfish.Trainer(*words) as trainer:
        while trainer.metrics.get("learn/default_policy/default_optimizer_learning_rate", 1) > 0.0009:
            before = trainer.step()
        checkpoint = trainer.save(tmp_path / "checkpoint")
    with rayfish.Trainer(*words) as trainer:
        (note,) = trainer.restore(checkpoint)
        assert f"{algo} goes on with its counters and schedules, but not bit for bit" in note
        after = trainer.step()
        assert after["run/iteration"] == before["run/iteration"] + 1
        rate = "learn/default_policy/default_optimizer_learning_rate"
        until = time.monotonic() + 120  # the first rollouts may still be on their way, and the first update
        while time.monotonic() < until and not (
            after["run/env_steps"] > before["run/env_steps"] and rate in after
        ):
            after = trainer.step()
    assert after["run/env_steps"] > before["run/env_steps"]
    assert 0.0005 < after[rate] <= before[rate]


@pytest.mark.slow
def test_several_agents_repeat_from_command_to_command(tmp_path):
    (tmp_path / "duel.py").write_text(
        "import numpy as np, gymnasium as gym\nfrom pettingzoo import ParallelEnv\n\n\n"
        + inspect.getsource(Duel)
    )
    lines = []
    for number in range(2):
        words = (
            "train", "algo.name=PPO", "environment.env=duel.py:Duel", *PPO[2:],
            "multi_agent.mapping={red: one, blue: two}", "stop_conditions.training_iteration=1",
            f"runtime.name=duel{number}", "rollouts.num_env_runners=1", "debugging.deterministic=true",
        )  # fmt: skip
        rayfish_command(*words, cwd=tmp_path)
        (file,) = tmp_path.glob(f"runs/duel{number}/*/metrics.jsonl")
        lines.append(comparable(json.loads(file.read_text())))
    assert lines[0] == lines[1]
