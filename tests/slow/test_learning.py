"""The algorithms learn: short runs that only a working learner passes (PPO to 475: test_fresh_clone)."""

from __future__ import annotations

import pytest

import rayfish
from tests.helpers import info_of, metrics_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_session", "workdir")]


def best_return(run) -> float:
    return max(line.get("rollout/return_mean", float("-inf")) for line in metrics_of(run))


OLD_FILES = {
    "cartpole-ppo": """
        env: CartPole-v0
        run: PPO
        stop: {episode_reward_mean: 150, timesteps_total: 100000}
        config:
            framework: tf
            gamma: 0.99
            lr: 0.0003
            num_workers: 1
            observation_filter: MeanStdFilter
            num_sgd_iter: 6
            vf_loss_coeff: 0.01
            model: {fcnet_hiddens: [32], fcnet_activation: linear, vf_share_layers: true}
    """,
    "cartpole-dqn": """
        env: CartPole-v0
        run: DQN
        stop: {episode_reward_mean: 150, timesteps_total: 50000}
        config:
            framework: tf
            model: {fcnet_hiddens: [64], fcnet_activation: linear}
            n_step: 3
            num_workers: 0
    """,
    "pendulum-sac": """
        env: Pendulum-v0
        run: SAC
        stop: {episode_reward_mean: -300, timesteps_total: 12000}
        config:
            framework: torch
            horizon: 200
            soft_horizon: false
            Q_model: {fcnet_activation: relu, fcnet_hiddens: [128, 128]}
            policy_model: {fcnet_activation: relu, fcnet_hiddens: [128, 128]}
            tau: 0.005
            target_entropy: auto
            no_done_at_end: true
            n_step: 1
            rollout_fragment_length: 1
            prioritized_replay: false
            train_batch_size: 64
            target_network_update_freq: 1
            timesteps_per_iteration: 500
            learning_starts: 256
            optimization:
                actor_learning_rate: 0.001
                critic_learning_rate: 0.001
                entropy_learning_rate: 0.001
            num_workers: 0
            num_gpus: 0
            metrics_smoothing_episodes: 5
    """,
    "cartpole-impala": """
        env: CartPole-v0
        run: IMPALA
        stop: {episode_reward_mean: 150, timesteps_total: 500000}
        config: {framework: tf, num_workers: 2, num_gpus: 0}
    """,
    "cartpole-appo": """
        env: CartPole-v1
        run: APPO
        stop: {episode_reward_mean: 150, timesteps_total: 200000}
        config:
            framework: tf
            num_envs_per_worker: 5
            num_workers: 1
            num_gpus: 0
            observation_filter: MeanStdFilter
            num_sgd_iter: 6
            vf_loss_coeff: 0.01
            model: {fcnet_hiddens: [32], fcnet_activation: linear, vf_share_layers: true}
    """,
}


ASYNCHRONOUS = ("cartpole-impala", "cartpole-appo")
"""How well these learn depends on how fast runners and learner are: other tests beside them would tell."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.alone if name in ASYNCHRONOUS else ()) for name in OLD_FILES],
)
def test_an_old_file_trains_to_its_old_stop_reward(name, workdir):
    (workdir / "old.yaml").write_text(f"{name}:{OLD_FILES[name]}")
    # An iteration of theirs takes RLlib ten seconds, 100,000 steps: they reach the goal and leave it in one.
    words = ["reporting.min_time_s_per_iteration=1"] if name in ASYNCHRONOUS else []
    run = rayfish.train("old.yaml", *words, plain=True)
    info = info_of(run)
    assert "return_mean" in info["reason"], f"{info['reason']}, not by its reward; best {best_return(run)}"


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


@pytest.mark.parametrize(("name", "goal"), [("cartpole-dqn", 475), ("pendulum", -250)])
def test_the_off_policy_presets_reach_their_goals_on_the_batched_path(name, goal):
    run = rayfish.train(name, plain=True)
    info = info_of(run)
    assert info["runner"]["used"] == "batched"
    assert "return_mean" in info["reason"], f"{info['reason']}; best {best_return(run)}"
    assert best_return(run) >= goal
