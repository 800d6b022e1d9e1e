"""Environments of several agents that are stepped as one, where their class offers it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from pettingzoo import ParallelEnv

import rayfish
from rayfish.algorithm.adapters import EnvCreator
from rayfish.algorithm.batched.eligibility import AGENTS
from rayfish.envs.agents import AgentSlots, AgentsVector
from rayfish.envs.rewards import Clip
from rayfish.envs.spec import EnvConfig, EnvSpec
from rayfish.errors import RayfishError
from rayfish.experiment import Experiment
from rayfish.run import preflight

HERE = "tests.envs.test_native_agents"
SEEN, DONE = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32), gym.spaces.Discrete(2)
LONG = 7


class Team(ParallelEnv):
    """Three agents that see noise, the time and who they are; `ends` steps long at most."""

    metadata = {"name": "team"}  # noqa: RUF012
    possible_agents = ("a", "b", "c")

    def __init__(self, ends=LONG):
        self.ends, self.rng = ends, np.random.default_rng()

    @classmethod
    def vector_of_agents(cls, num_envs, ends=LONG, max_episode_steps=None):
        return Teams([Team(ends) for _ in range(num_envs)], max_episode_steps)

    def observation_space(self, agent):
        return SEEN

    def action_space(self, agent):
        return DONE

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.t, self.agents = 0, list(self.possible_agents)
        return self.look(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.t += 1
        over = self.rng.random() < 0.1
        cut = not over and self.t == self.ends
        rewards = {agent: 0.1 * int(actions[agent]) + self.rng.normal() for agent in self.agents}
        everyone, info = self.agents, {"metrics": {"time": self.t}} if over or cut else {}
        self.agents = [] if over or cut else self.agents
        ends = dict.fromkeys(everyone, over), dict.fromkeys(everyone, cut)
        return self.look(), rewards, *ends, {agent: info if agent == "a" else {} for agent in everyone}

    def look(self):
        return {
            agent: np.array([self.rng.normal(), self.t, index], np.float32)
            for index, agent in enumerate(self.possible_agents)
        }


class Teams(VectorEnv):
    """Many of them in Gymnasium's form; a real one would not loop."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    possible_agents = Team.possible_agents

    def __init__(self, teams, limit=None):
        self.teams, self.limit, self.num_envs = teams, limit, 3 * len(teams)
        self.single_observation_space, self.single_action_space = SEEN, DONE
        self.observation_space = batch_space(SEEN, self.num_envs)
        self.action_space = batch_space(DONE, self.num_envs)

    def reset(self, *, seed=None, options=None):
        firsts = [team.reset(None if seed is None else seed + e)[0] for e, team in enumerate(self.teams)]
        return np.stack([seen for first in firsts for seen in first.values()]), {}

    def step(self, actions):
        rows, final, times = [], np.full(self.num_envs, None, object), np.zeros(self.num_envs)
        for e, team in enumerate(self.teams):
            obs, rewards, over, cut, _ = team.step(dict(zip("abc", actions[3 * e : 3 * e + 3], strict=True)))
            if team.t == self.limit:
                cut = {agent: not over[agent] for agent in over}
            if over["a"] or cut["a"]:
                final[3 * e : 3 * e + 3] = list(obs.values())
                times[3 * e] = team.t
                obs, _ = team.reset()
            rows += [(obs[agent], rewards[agent], over[agent], cut[agent]) for agent in "abc"]
        obs, rewards, over, cut = (np.array(column) for column in zip(*rows, strict=True))
        infos = {}
        if any(seen is not None for seen in final):
            infos = {"final_obs": final, "final_info": {"metrics": {"time": times, "_time": times > 0}}}
        return obs, rewards, over, cut, infos


class Uneven(Team):
    """Its vector ends the agents of one environment at different times."""

    @classmethod
    def vector_of_agents(cls, num_envs):
        made = super().vector_of_agents(num_envs)
        step = made.step

        def uneven(actions):
            obs, rewards, over, cut, infos = step(actions)
            over[::3] = True
            return obs, rewards, over, np.zeros_like(cut), infos

        made.step = uneven
        return made


class Nameless(Team):
    @classmethod
    def vector_of_agents(cls, num_envs):
        made = super().vector_of_agents(num_envs)
        made.possible_agents = ()
        return made


class Stranger(Team):
    @classmethod
    def vector_of_agents(cls, num_envs):
        made = super().vector_of_agents(num_envs)
        made.possible_agents = ("a", "b", "x")
        return made


class Late(Team):
    @classmethod
    def vector_of_agents(cls, num_envs):
        made = super().vector_of_agents(num_envs)
        made.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        return made


class Broken(Team):
    @classmethod
    def vector_of_agents(cls, num_envs):
        raise ValueError("no memory for it")


class Taught(Team):
    """A curriculum sets its task, which its vector would not hear of."""

    def get_task(self):
        return self.ends

    def set_task(self, task):
        self.ends = task


class Plain(Team):
    vector_of_agents = None


def made(cls, num_envs, config=None, **spec):
    creator = EnvCreator(EnvSpec(cls.__name__, object=cls, **spec), vector=AGENTS, policy="shared")
    return creator.many(EnvConfig(config or {}), num_envs)


def together(one, other, steps, seed=3):
    """Steps both with the same actions and compares all that they give."""
    np.testing.assert_array_equal(one.reset(seed), other.reset(seed))
    space = batch_space(one.action_space, one.num_slots)
    space.seed(0)
    for _ in range(steps):
        actions = space.sample()
        mine, theirs = one.step(actions), other.step(actions)
        for name, value in vars(mine).items():
            np.testing.assert_array_equal(value, getattr(theirs, name), err_msg=name)
            assert getattr(value, "dtype", None) == getattr(getattr(theirs, name), "dtype", None), name
    finished = one.take_finished()
    assert finished == other.take_finished()
    return finished


@pytest.mark.parametrize("clip", [None, Clip(-0.5, 0.5)], ids=["true", "clipped"])
def test_environments_stepped_as_one_give_what_they_give_one_by_one(clip):
    looped = made(Plain, 4, {"ends": 9}, clip_rewards=clip)
    slots = made(Team, 4, {"ends": 9}, clip_rewards=clip)
    assert type(looped) is AgentsVector and type(slots) is AgentSlots
    finished = together(looped, slots, 60)
    assert len(finished.returns) > 20 and 9 in finished.lengths
    assert finished.env["time"] == [float(length) for length in finished.lengths]
    assert finished.policy == {"shared": finished.returns}
    assert (finished.returns != finished.earned) == (clip is not None)


def test_what_rllib_sees_is_the_same_either_way():
    looped, slots = made(Plain, 2), made(Team, 2)
    for name in ("single_observation_space", "single_action_space", "observation_space", "action_space"):
        assert getattr(looped.env, name) == getattr(slots.env, name)
    assert looped.num_slots == slots.num_slots == 6
    assert (looped.observation_space, looped.action_space) == (slots.observation_space, slots.action_space)


def test_the_horizon_reaches_a_vector_that_takes_it_and_others_are_stepped_one_by_one():
    vector = made(Team, 2, horizon=3)
    assert type(vector) is AgentSlots
    vector.reset(seed=0)
    for _ in range(30):
        vector.step(np.zeros(6, np.int64))
    assert max(vector.take_finished().lengths) == 3
    assert type(made(Uneven, 2, horizon=3)) is AgentsVector


def test_environments_with_tasks_are_stepped_one_by_one():
    assert type(made(Taught, 2)) is AgentsVector


def test_agents_that_end_apart_are_reported():
    vector = made(Uneven, 2)
    vector.reset(seed=0)
    with pytest.raises(RayfishError, match="of environment 1 some agents ended"):
        vector.step(np.zeros(6, np.int64))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("Nameless", "does not say which agents it has"),
        ("Stranger", "other agents or spaces"),
        ("Late", "does not begin ended episodes in the same step"),
        ("Broken", "ValueError: no memory for it"),
    ],
)
def test_a_vector_that_is_not_what_it_should_be_is_reported_before_training(name, what):
    experiment = Experiment.compose(None, ["algo.name=PPO", f"environment.env={HERE}:{name}"])
    problems, _ = preflight.inspect(experiment)
    assert what in problems[0].what


def test_slots_that_agents_do_not_divide_are_reported():
    teams = Team.vector_of_agents(2)
    teams.num_envs = 5
    with pytest.raises(RayfishError, match="num_envs=5, which 3 agents do not divide"):
        AgentSlots(teams, "shared")


@pytest.mark.parametrize(("name", "vector"), [("Plain", AgentsVector), ("Team", AgentSlots)])
def test_a_restored_trainer_goes_on_with_the_very_same_episodes(name, vector, tmp_path, ray_session):
    words = (
        "algo.name=PPO",
        f"environment.env={HERE}:{name}",
        "environment.clip_rewards=0.5",
        "rollouts.num_envs_per_env_runner=4",
        "training.train_batch_size_per_learner=120",
        "training.minibatch_size=60",
        "training.num_epochs=1",
        "training.model.fcnet_hiddens=[8]",
        "debugging.seed=5",
    )
    figures = ("rollout/return_mean", "rollout/length_mean", "env/time", "learn/shared/total_loss")
    with rayfish.Trainer(None, *words) as trainer:
        trainer.step()
        saved = trainer.save(tmp_path / "saved")
        expected = [[(metrics := trainer.step())[name] for name in figures] for _ in range(2)]
        assert type(trainer.algorithm.env_runner.vector) is vector
        assert metrics["rollout/shared/return_mean"] == metrics["rollout/return_mean"]
    with rayfish.Trainer(None, *words) as trainer:
        assert trainer.restore(saved) == []
        assert [[(metrics := trainer.step())[name] for name in figures] for _ in range(2)] == expected
