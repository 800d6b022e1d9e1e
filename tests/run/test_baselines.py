"""Baselines beside an agent: the same episodes for everyone, paired differences, names that do not exist."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import rayfish
from rayfish.errors import RayfishError
from rayfish.experiment import Experiment
from rayfish.run import baselines
from rayfish.run.evaluate import evaluate
from rayfish.run.player import EpisodePlan
from rayfish.worlds.wildfire import WildfireVectorEnv

FIRES = (
    "environment.env=rayfish/Wildfire-v0",
    "environment.env_config.simulation=small",
    "+environment.env_config.scenarios={count: 24, evaluation: 12, part: evaluation}",
    "environment.env_config.scenario_order=in_turn",
    "rollouts.horizon=40",
)
SMALL = (
    "algo.name=PPO",
    "training.train_batch_size_per_learner=64",
    "training.minibatch_size=64",
    "rollouts.num_envs_per_env_runner=1",
    "training.model.fcnet_hiddens=[8]",
)


class Number(gym.Env):
    """An episode seeded with `s` is worth `s` for every action 1; it has two steps."""

    observation_space = gym.spaces.Box(-1e6, 1e6, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.number, self.t, self.ones = seed or 0, 0, 0
        return np.array([self.number], np.float32), {}

    def step(self, action):
        self.t, self.ones = self.t + 1, self.ones + int(action)
        over = self.t == 2
        info = {"metrics": {"ones": self.ones, "number": self.number}} if over else {}
        return np.array([self.number], np.float32), float(self.number * action), over, False, info


class Always:
    """The same action for all."""

    def __init__(self, env, seed, action):
        self.action = action

    def reset(self, env, which):
        pass

    def act(self, env):
        return np.full(env.num_envs, self.action)


BASELINES = {
    "one": lambda env, seed: Always(env, seed, 1),
    "zero": lambda env, seed: Always(env, seed, 0),
}
FIGURES = ("ones",)


class Standing:
    """Stands in for a trained agent: does nothing, and notes how many observations it is shown at once."""

    def __init__(self):
        self.widths = set()

    def act_batch(self, observations, *, explore=False):
        self.widths.add(len(observations))
        return np.zeros(len(observations), np.int64)

    def reset(self, agent_id=None, *, rows=None):
        pass


def silent(done, last):
    pass


@pytest.fixture
def fires():
    return baselines.required(Experiment.compose(None, FIRES))


def spied(offer, name, seen):
    """The offer with a baseline that notes with which fires and from which cells episodes began."""
    made = offer.policies[name]

    def factory(env, seed):
        policy = made(env, seed)
        begun = policy.reset

        def reset(env, which):
            if len(which) == env.num_envs:
                crew = env.episodes.crew
                seen.extend((env.episodes.starts[n], *crew.x[n], *crew.y[n]) for n in which)
            begun(env, which)

        policy.reset = reset
        return policy

    return replace(offer, policies={**offer.policies, name: factory})


def test_every_policy_meets_the_same_fires_and_no_fire_twice(fires):
    seen = {name: [] for name in fires.policies}
    for name, met in seen.items():
        offer = spied(fires, name, met)
        baselines.play_baseline(offer, name, episodes=12, seed=0, ended=silent)
    first = seen["nothing"]
    assert len({start.cells for start, *_ in first}) == 12
    assert all(met == first for met in seen.values())


def test_an_agent_that_does_nothing_has_the_episodes_of_the_baseline_that_does_nothing(fires):
    agent = Standing()
    alone = baselines.play_agent(fires, agent, EpisodePlan(12), silent)
    beside = baselines.play_baseline(fires, "nothing", episodes=12, seed=0, ended=silent)
    assert alone == beside
    assert agent.widths == {baselines.SLOTS}


def test_an_episode_does_not_depend_on_how_many_are_played(fires):
    few, many = (
        baselines.play_baseline(fires, "encircle", episodes=count, seed=0, ended=silent) for count in (3, 12)
    )
    assert few == many[:3]


def test_by_steps_the_last_episode_is_finished(fires):
    rows = baselines.play_agent(fires, Standing(), EpisodePlan(steps=100), silent)
    assert sum(row.length for row in rows) >= 100 > sum(row.length for row in rows[:-1])


def test_baselines_stand_in_for_a_team_in_a_vector_of_their_own(fires):
    made = []

    def make_vector(num_envs, **config):
        made.append(WildfireVectorEnv(num_envs, **config))
        return made[-1]

    team = replace(fires, native=False, _make_vector=make_vector)
    rows = baselines.play_baseline(team, "nothing", episodes=2, seed=0, ended=silent)
    assert made[0].num_envs == 2
    assert made[0].options.max_steps == 40
    assert "return" not in baselines.columns(rows)
    assert "saved_share" in baselines.columns(rows)


def test_a_team_without_such_a_vector_is_one_sentence():
    team = ("environment.env=rayfish.worlds.wildfire.env.agents:WildfireParallel", *FIRES[1:])
    offer = replace(baselines.required(Experiment.compose(None, team)), _make_vector=None)
    with pytest.raises(RayfishError, match="several agents"):
        baselines.play_baseline(offer, "nothing", episodes=2, seed=0, ended=silent)


def test_a_difference_is_paired_and_significant_when_zero_is_outside():
    agent = {"return": [10.0, 20.0, 31.0, 40.0] * 4}
    less = {"return": [9.0, 19.0, 30.0, 38.0] * 4}
    apart = baselines.differences(agent, less)["return"]
    assert apart["mean"] == pytest.approx(1.25)
    assert 1.0 <= apart["ci_low"] < apart["ci_high"] <= 1.5
    assert baselines.significant(apart)
    assert not baselines.significant({"mean": 0.1, "ci_low": -0.1, "ci_high": 0.3})


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(fires):
    with pytest.raises(RayfishError, match="no baseline 'encircl'") as caught:
        fires.choose(["random", "encircl"])
    assert "encircle" in caught.value.hint
    assert fires.choose([baselines.ALL]) == ["nothing", "random", "line_ahead", "encircle"]


def test_an_environment_without_baselines_says_so():
    assert baselines.offer_of(Experiment.compose("cartpole")) is None
    with pytest.raises(RayfishError, match="CartPole-v1 brings no baselines"):
        evaluate("baseline:random", "cartpole")


def test_a_baseline_alone_needs_no_run(workdir):
    found = evaluate("baseline:encircle,nothing", *FIRES, episodes=4, out="found.json")
    assert found.checkpoint == "baseline:encircle"
    assert list(found.baselines) == ["nothing"]
    assert found.figures["lines"] != [0.0] * 4
    assert json.loads((workdir / "found.json").read_text())["figures"] == found.figures


def test_baselines_of_an_environment_of_ones_own_are_played_beside_the_agent(workdir, ray_session):
    with rayfish.Trainer(None, *SMALL, env=Number) as trainer:
        checkpoint = trainer.save(workdir / "checkpoint")
    found = evaluate(checkpoint, env=Number, episodes=5, seed=3, baselines=["all"])
    assert found.shown == ["ones"]
    assert found.compared_by == "ones"
    assert found.figures["number"] == [3, 4, 5, 6, 7]
    one = found.baselines["one"]
    assert one.episodes["number"] == [3, 4, 5, 6, 7]
    assert one.episodes["return"] == [6, 8, 10, 12, 14]
    assert one.differences["return"]["mean"] == pytest.approx(found.return_mean - 10)
    assert found.baselines["zero"].statistics["return"]["mean"] == 0
    written = json.loads(Path(found.file).read_text())
    assert written["baselines"]["one"]["significant"]["ones"] == one.significant["ones"]
