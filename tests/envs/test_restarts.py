"""Environments that fail are remade: another seed each time, one lost episode, the others untouched."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rayfish.algorithm.adapters import ParallelAdapter
from rayfish.algorithm.batched.replay.buffer import ReplayBuffer
from rayfish.algorithm.batched.sampler import Decision, Sampler
from rayfish.envs.agents import AgentsVector
from rayfish.envs.restarts import RESTARTS_IN_A_ROW, SKIP, TRUNCATE, RestartsExhausted, restarting
from rayfish.envs.vector import GymVector


class Shaky(gym.Env):
    """Sees the first draw of its episode and its step; fails at random, episodes end after 12 steps."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gym.spaces.Box(-1, 99, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    seeds: list = []  # noqa: RUF012

    def __init__(self, rate=0.08):
        self.rate = rate

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.seeds.append(seed)
        self.episode, self.t = self.np_random.random(), 0
        return self.seen(), {}

    def step(self, action):
        self.t += 1
        if self.np_random.random() < self.rate:
            raise RuntimeError("the simulator is gone")
        return self.seen(), 1.0, self.t == 12, False, {}

    def seen(self):
        return np.array([self.episode, self.t], np.float32)


class ShakyPair:
    """The same world seen by two agents."""

    metadata = {"name": "pair"}  # noqa: RUF012
    possible_agents = ("a", "b")
    observation_space = staticmethod(lambda agent: Shaky.observation_space)
    action_space = staticmethod(lambda agent: Shaky.action_space)

    def __init__(self):
        self.world, self.agents = Shaky(), []

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        seen, _ = self.world.reset(seed=seed)
        return dict.fromkeys(self.agents, seen), {}

    def step(self, actions):
        seen, reward, over, _, _ = self.world.step(0)
        acted, self.agents = self.agents, [] if over else self.agents
        return tuple(dict.fromkeys(acted, value) for value in (seen, reward, over, False, {}))

    def close(self):
        pass


class Zero:
    """Always the same action."""

    def act(self, obs, state, t):
        import torch

        return Decision(torch.zeros(len(obs), dtype=torch.int64))

    def initial_state(self):
        return None


def vector(kind, rates=(0.08, 0.08, 0.0)):
    if kind == "agents":
        envs = [restarting(lambda: ParallelAdapter(ShakyPair()), "pair", SKIP) for _ in range(3)]
        return AgentsVector(envs, "shared")
    makers = [lambda rate=rate: restarting(lambda: Shaky(rate), "shaky", SKIP) for rate in rates]
    if kind == "whole":
        whole = lambda: SyncVectorEnv([lambda: Shaky(0.015)] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)  # noqa: E731
        return GymVector(restarting(whole, "shaky", SKIP))
    return GymVector(SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP))


@pytest.mark.parametrize("kind", ["single", "whole", "agents"])
def test_no_transition_joins_two_episodes(kind):
    sampler = Sampler(vector(kind), Zero())
    sampler.reset(5)
    buffer, seen = ReplayBuffer(2000, seed=0), 0
    for _ in range(30):
        rollout = sampler.collect(7)
        buffer.add(rollout)
        ends = {int(at): rollout.final_obs[place] for place, at in enumerate(rollout.final_index)}
        assert list(ends) == sorted(ends)
        steps, slots = rollout.shape
        for t, n in np.ndindex(steps, slots):
            if rollout.valid is not None and not rollout.valid[t, n]:
                continue
            after = rollout.last_obs[n] if t == steps - 1 else rollout.obs[t + 1, n]
            after = ends[t * slots + n] if rollout.done[t, n] else after
            assert after.tolist() == [rollout.obs[t, n, 0].item(), rollout.obs[t, n, 1].item() + 1]
            assert bool(rollout.terminated[t, n]) == (after[1].item() == 12)
            seen += 1
    assert sampler.vector.lost_episodes >= 5
    assert seen + sampler.vector.lost_episodes * (2 if kind == "agents" else 1) <= 30 * 7 * slots
    batch = buffer.sample(500)
    np.testing.assert_array_equal(batch["obs"][:, 0], batch["next_obs"][:, 0])
    np.testing.assert_array_equal(batch["obs"][:, 1] + 1, batch["next_obs"][:, 1])


def test_every_restart_has_a_seed_of_its_own_and_a_run_repeats():
    runs = []
    for _ in range(2):
        Shaky.seeds = []
        made = vector("single")
        made.reset(5)
        rewards = [made.step(np.zeros(3, np.int64)) for _ in range(200)]
        runs.append((Shaky.seeds, [moment.obs.tolist() for moment in rewards]))
    assert runs[0] == runs[1]
    assert len(set(runs[0][0])) == len(runs[0][0]) > 10
    assert made.take_restarts() == len(runs[0][0]) - 3


def test_environments_that_do_not_fail_are_not_disturbed():
    alone = GymVector(SyncVectorEnv([lambda: Shaky(0.0)], autoreset_mode=AutoresetMode.SAME_STEP))
    made = vector("single")
    alone.reset(5 + 2), made.reset(5)
    for _ in range(100):
        expected, seen = alone.step(np.zeros(1, np.int64)), made.step(np.zeros(3, np.int64))
        assert seen.obs[2].tolist() == expected.obs[0].tolist()
        assert seen.rewards[2] == 1.0


def test_a_failed_step_that_truncates_ends_the_episode_where_it_was():
    env = restarting(Shaky, "shaky", TRUNCATE)
    before, _ = env.reset(seed=0)
    while True:
        seen, reward, terminated, truncated, _ = env.step(0)
        if truncated:
            break
        before = seen if not terminated else env.reset()[0]
    assert (seen.tolist(), reward, terminated) == (before.tolist(), 0.0, False)
    assert env.reset()[0][0] != before[0]


def test_an_environment_that_only_fails_ends_with_its_reason():
    env = restarting(lambda: Shaky(1.0), "shaky", SKIP)
    env.reset(seed=0)
    with pytest.raises(RestartsExhausted, match=f"remade {RESTARTS_IN_A_ROW} times in a row .* is gone"):
        for _ in range(20):
            env.step(0)
