"""The algorithms learn: short runs that only a working learner passes."""

from __future__ import annotations

import pytest

import rayfish
from tests.helpers import metrics_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_session", "workdir")]


def best_return(run) -> float:
    return max(line.get("rollout/return_mean", float("-inf")) for line in metrics_of(run))


def test_ppo_solves_cartpole():
    run = rayfish.train("cartpole", plain=True)
    assert best_return(run) >= 475


@pytest.mark.parametrize("name", ["APPO", "IMPALA"])
def test_asynchronous_algorithms_learn_cartpole(name):
    run = rayfish.train(
        None,
        f"algo.name={name}",
        "environment.env=CartPole-v1",
        "rollouts.num_env_runners=1",
        "rollouts.num_envs_per_env_runner=16",
        "training.train_batch_size_per_learner=500",
        "training.lr=1e-3",
        "training.vf_loss_coeff=0.05",
        "training.model.fcnet_hiddens=[64,64]",
        "training.model.vf_share_layers=true",
        "stop_conditions.episode_reward_mean=150",
        "stop_conditions.time_total_s=240",
        plain=True,
    )
    assert best_return(run) >= 150


def test_dqn_learns_cartpole():
    run = rayfish.train(
        "cartpole-dqn",
        "stop_conditions.episode_reward_mean=100",
        "stop_conditions.time_total_s=300",
        plain=True,
    )
    assert best_return(run) >= 100


def test_sac_swings_the_pendulum_up():
    run = rayfish.train(
        "pendulum",
        "stop_conditions.episode_reward_mean=-600",
        "stop_conditions.time_total_s=400",
        plain=True,
    )
    assert best_return(run) >= -600


def test_two_agents_with_policies_of_their_own_learn(workdir):
    (workdir / "guess.py").write_text(
        "import numpy as np\n"
        "from gymnasium import spaces\n"
        "from pettingzoo import ParallelEnv\n"
        "class Guess(ParallelEnv):\n"
        "    metadata = {'name': 'guess'}\n"
        "    possible_agents = ['copies', 'inverts']\n"
        "    def __init__(self):\n"
        "        self.rng = np.random.default_rng(0)\n"
        "    def observation_space(self, agent):\n"
        "        return spaces.Box(0, 1, (2,), np.float32)\n"
        "    def action_space(self, agent):\n"
        "        return spaces.Discrete(2)\n"
        "    def _observe(self):\n"
        "        self.bit = {a: int(self.rng.integers(2)) for a in self.possible_agents}\n"
        "        return {a: np.eye(2, dtype=np.float32)[b] for a, b in self.bit.items()}\n"
        "    def reset(self, seed=None, options=None):\n"
        "        if seed is not None:\n"
        "            self.rng = np.random.default_rng(seed)\n"
        "        self.agents, self.t = list(self.possible_agents), 0\n"
        "        return self._observe(), {a: {} for a in self.agents}\n"
        "    def step(self, actions):\n"
        "        right = {'copies': self.bit['copies'], 'inverts': 1 - self.bit['inverts']}\n"
        "        rewards = {a: float(actions[a] == right[a]) for a in self.agents}\n"
        "        self.t += 1\n"
        "        over = {a: self.t == 20 for a in self.agents}\n"
        "        never, nothing = {a: False for a in self.agents}, {a: {} for a in self.agents}\n"
        "        out = self._observe(), rewards, never, over, nothing\n"
        "        if self.t == 20:\n"
        "            self.agents = []\n"
        "        return out\n"
    )
    run = rayfish.train(
        None,
        "algo.name=PPO",
        "environment.env=guess.py:Guess",
        "multi_agent.mapping={copies: one, inverts: two}",
        "rollouts.num_envs_per_env_runner=1",
        "training.train_batch_size_per_learner=400",
        "training.minibatch_size=100",
        "training.lr=3e-3",
        "training.model.fcnet_hiddens=[16]",
        "stop_conditions.episode_reward_mean=36",
        "stop_conditions.training_iteration=40",
        plain=True,
    )
    last = metrics_of(run)[-1]
    assert last["rollout/return_mean"] >= 36
    assert last["rollout/one/return_mean"] >= 16
    assert last["rollout/two/return_mean"] >= 16
    found = rayfish.evaluate(run, episodes=3)
    assert found.return_mean >= 38
    assert set(found.policy_returns) == {"one", "two"}
