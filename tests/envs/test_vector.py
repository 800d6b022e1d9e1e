"""Many environments as one: whatever the autoreset mode, the same steps, ends and sums."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rayfish.envs.agents import AgentsVector
from rayfish.envs.guard import Guard
from rayfish.envs.rewards import Clip, ClippedRewards
from rayfish.envs.vector import GymVector
from rayfish.errors import EnvironmentFault


class Counter(gym.Env):
    """Observes its own step; ends by itself after 3 steps in odd episodes, is cut off after 4 in others."""

    metadata = {"render_modes": []}  # noqa: RUF012  (a vector writes into it)
    observation_space = gym.spaces.Dict(
        {"step": gym.spaces.Box(-1, 9, (1,), np.float32), "episode": gym.spaces.Discrete(99)}
    )
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        self.episode = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self.seen(), {}

    def step(self, action):
        self.t += 1
        odd = self.episode % 2 == 1
        ends, cut = odd and self.t == 3, not odd and self.t == 4
        info = {"metrics": {"length": self.t}} if ends or cut else {}
        return self.seen(), float(self.t), ends, cut, info

    def seen(self):
        return {"step": np.array([self.t], np.float32), "episode": self.episode}


def run(vector: GymVector, steps: int):
    obs = vector.reset(seed=1)
    seen = []
    for _ in range(steps):
        before = {key: value.copy() for key, value in obs.items()}
        moment = vector.step(np.zeros(vector.num_slots, np.int64))
        for slot in range(vector.num_slots):
            if moment.valid is None or moment.valid[slot]:
                final = None
                if slot in moment.ended:
                    place = int(np.flatnonzero(moment.ended == slot)[0])
                    final = (int(moment.final_obs["step"][place, 0]), int(moment.final_obs["episode"][place]))
                seen.append(
                    (
                        slot,
                        int(before["episode"][slot]),
                        int(before["step"][slot, 0]),
                        float(moment.rewards[slot]),
                        bool(moment.terminated[slot]),
                        bool(moment.truncated[slot]),
                        final,
                    )
                )
        obs = moment.obs
    return sorted(seen), vector.take_finished()


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_every_mode_gives_the_same_steps_with_the_true_last_observations(mode):
    vector = GymVector(SyncVectorEnv([Counter] * 2, autoreset_mode=mode))
    seen, finished = run(vector, 16)
    first = [row[1:] for row in seen if row[0] == 0][:7]
    assert first == [
        (1, 0, 1.0, False, False, None),
        (1, 1, 2.0, False, False, None),
        (1, 2, 3.0, True, False, (3, 1)),
        (2, 0, 1.0, False, False, None),
        (2, 1, 2.0, False, False, None),
        (2, 2, 3.0, False, False, None),
        (2, 3, 4.0, False, True, (4, 2)),
    ]
    assert finished.returns[:4] == [6.0, 6.0, 10.0, 10.0]
    assert finished.lengths[:4] == [3, 3, 4, 4]
    assert finished.slots[:4] == [0, 1, 0, 1]
    assert finished.env["length"] == [float(length) for length in finished.lengths]


def test_processes_step_as_one_process_does():
    here, _ = run(GymVector(SyncVectorEnv([Counter] * 2, autoreset_mode=AutoresetMode.SAME_STEP)), 12)
    processes = GymVector(AsyncVectorEnv([Counter] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    there, finished = run(processes, 12)
    processes.close()
    assert there == here
    assert finished.env["length"] == [float(length) for length in finished.lengths]


def test_clipped_rewards_leave_the_returns_true():
    def make():
        return ClippedRewards(Counter(), Clip(-1, 1))

    vector = GymVector(SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    seen, finished = run(vector, 8)
    assert {row[3] for row in seen} == {1.0}
    assert finished.returns[:2] == [6.0, 6.0]


def test_gymnasiums_own_vector_of_cartpoles_is_counted_exactly():
    vector = GymVector(gym.make_vec("CartPole-v1", 8, "vector_entry_point", max_episode_steps=20))
    vector.reset(seed=3)
    rng, steps = np.random.default_rng(0), 0
    for _ in range(200):
        moment = vector.step(rng.integers(0, 2, 8))
        steps += 8 if moment.valid is None else int(moment.valid.sum())
    finished = vector.take_finished()
    assert finished.returns == [float(length) for length in finished.lengths]
    assert steps == sum(finished.lengths) + int(vector._lengths.sum())
    assert max(finished.lengths) == 20


class Pair:
    """Two agents in the shape of RLlib's multi-agent environments; `b` ends two steps before `a`."""

    possible_agents = ("a", "b")
    observation_spaces = {agent: gym.spaces.Box(-9, 99, (2,), np.float32) for agent in "ab"}  # noqa: RUF012
    action_spaces = {agent: gym.spaces.Discrete(2) for agent in "ab"}  # noqa: RUF012

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, *, seed=None, options=None):
        self.t, self.agents = 0, ["a", "b"]
        return {agent: self.seen(agent) for agent in self.agents}, {}

    def step(self, actions):
        assert set(actions) == set(self.agents), (actions, self.agents)
        self.t += 1
        acted = list(self.agents)
        ends = {agent: agent == "b" and self.t == 2 for agent in acted}
        cut = {agent: agent == "a" and self.t == 4 for agent in acted}
        self.agents = [agent for agent in acted if not (ends[agent] or cut[agent])]
        over = not self.agents
        obs = {agent: self.seen(agent) for agent in acted}
        rewards = {agent: 1.0 if agent == "a" else 10.0 for agent in acted}
        return obs, rewards, {**ends, "__all__": False}, {**cut, "__all__": over}, {}

    def seen(self, agent):
        return np.array([self.t, 0 if agent == "a" else 1], np.float32)

    def close(self):
        pass


def test_agents_that_end_early_wait_and_their_ends_are_their_own():
    vector = AgentsVector([Pair(), Pair()], "shared")
    assert vector.reset(seed=0)[:, 0].tolist() == [0, 0, 0, 0]
    valid, ended = [], []
    for _ in range(8):
        moment = vector.step(np.zeros(4, np.int64))
        valid.append([True] * 4 if moment.valid is None else moment.valid.tolist())
        ended += [
            (int(slot), moment.final_obs[place].tolist(), bool(moment.terminated[slot]))
            for place, slot in enumerate(moment.ended)
        ]
    assert valid[:4] == [[True] * 4, [True] * 4, [True, False] * 2, [True, False] * 2]
    assert ended[:4] == [(1, [2, 1], True), (3, [2, 1], True), (0, [4, 0], False), (2, [4, 0], False)]
    finished = vector.take_finished()
    assert finished.returns == [24.0] * 4
    assert finished.lengths == [4] * 4
    assert finished.policy == {"shared": [24.0] * 4}


class Reusing(gym.Env):
    """Gives the same array again and again, as fast simulators do."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gym.spaces.Box(0, 99, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        self.seen = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.seen[:] = 0
        return self.seen, {}

    def step(self, action):
        self.seen += 1
        return self.seen, 1.0, False, bool(self.seen[0] == 5), {}


def test_the_last_observation_is_true_though_the_environment_writes_over_it():
    vector = GymVector(
        SyncVectorEnv([lambda: Guard(Reusing())] * 2, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
    )
    vector.reset(seed=0)
    for _ in range(5):
        moment = vector.step(np.zeros(2, np.int64))
    assert moment.final_obs.tolist() == [[5.0], [5.0]]
    assert moment.obs.tolist() == [[0.0], [0.0]]


def test_what_absent_agents_saw_last_is_not_learnt_from_again():
    vector = AgentsVector([Pair()], "shared")
    vector.reset(seed=0)
    present = []
    for _ in range(4):
        moment = vector.step(np.zeros(2, np.int64))
        present.append([True, True] if moment.present is None else moment.present.tolist())
    assert present == [[True, True], [True, False], [True, False], [True, True]]


class Renamed(gym.vector.VectorWrapper):
    """A same-step vector whose infos hold the last observations in another form."""

    def __init__(self, form, declared=True):
        super().__init__(SyncVectorEnv([Counter] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP} if declared else {}
        self.form = form

    def step(self, actions):
        *result, infos = self.env.step(actions)
        final, mask = infos.pop("final_obs", None), infos.pop("_final_obs", None)
        if final is not None and self.form == "old objects":
            infos |= {"final_observation": final, "_final_observation": mask}
        elif final is not None and self.form == "old arrays":
            rows = [row or {"step": np.zeros(1, np.float32), "episode": 0} for row in final]
            stacked = {key: np.stack([row[key] for row in rows]) for key in ("step", "episode")}
            stacked |= {f"_{key}": mask for key in stacked}
            infos |= {"final_observation": stacked, "_final_observation": mask}
        elif final is not None and self.form == "empty":
            infos |= {"final_obs": np.full(2, None, dtype=object), "_final_obs": ~mask}
        return (*result, infos)


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
@pytest.mark.parametrize("form", ["old objects", "old arrays"])
def test_last_observations_under_gymnasiums_older_key_are_the_true_ones(form, declared):
    expected, _ = run(GymVector(SyncVectorEnv([Counter] * 2, autoreset_mode=AutoresetMode.SAME_STEP)), 12)
    seen, finished = run(GymVector(Renamed(form, declared)), 12)
    assert seen == expected
    assert finished.lengths[:4] == [3, 3, 4, 4]


@pytest.mark.parametrize("form", ["missing", "empty"])
def test_a_same_step_vector_without_last_observations_is_refused_with_the_key_to_set(form):
    with pytest.raises(EnvironmentFault) as raised:
        run(GymVector(Renamed(form)), 12)
    assert "SyncVectorEnv resets environment 0 in the step that ends its episode" in raised.value.what
    assert 'infos["final_obs"]' in raised.value.hint
