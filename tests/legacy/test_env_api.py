"""Environments with the reset and step of old gym and old RLlib, trained on as they are."""

from __future__ import annotations

import sys
from itertools import islice

import gym as old_gym
import gymnasium as gym
import numpy as np
import pytest

from rayfish.envs.build import EnvSpec, describe, info_of, make, problems
from rayfish.envs.check import check
from rayfish.envs.guard import guarded
from rayfish.envs.play import Player, random_actions
from rayfish.envs.state import GET_STATE, PICKLE, find_way
from rayfish.experiment.experiment import Experiment
from rayfish.legacy import env_api

BODY = """
    def __init__(self, config=None):
        self.observation_space = {spaces}.Box(-10, 10, (2,), dtype=np.float32)
        self.action_space = {spaces}.Discrete(2)
        self.limit = (config or {{}}).get("limit", 12)
        self.random = np.random.RandomState(0)

    def seed(self, seed=None):
        self.random = np.random.RandomState(seed)
        return [seed]

    def reset(self):
        self.t = 0
        return [self.random.rand(), 0.0]

    def step(self, action):
        self.t += 1
        seen = np.array([self.random.rand(), self.t / 10])
        over = self.t >= self.limit
        info = {{"TimeLimit.truncated": True}} if over and self.limit == 5 else {{}}
        return seen, float(action), over, info
"""
OLD_GYM = "import gym\nimport numpy as np\n\nclass Old(gym.Env):" + BODY.format(spaces="gym.spaces")
GYMNASIUM = "import gymnasium as gym\nimport numpy as np\n\nclass Old(gym.Env):" + BODY.format(
    spaces="gym.spaces"
)
DUCK = "import gymnasium\nimport numpy as np\n\nclass Old:" + BODY.format(spaces="gymnasium.spaces")
KINDS = {"gym": OLD_GYM, "gymnasium": GYMNASIUM, "duck": DUCK}

AGENTS = '''
import gymnasium as gym
import numpy as np
from ray.rllib.env.multi_agent_env import MultiAgentEnv


class Old(MultiAgentEnv):
    """Ray 1.x: agents are those that reset observes, dones holds __all__."""

    def __init__(self, config=None):
        super().__init__()
        self.observation_space = gym.spaces.Box(0, 10, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self):
        self.t = 0
        return {agent: np.zeros(1, np.float32) for agent in ("a", "b")}

    def step(self, actions):
        self.t += 1
        seen = {agent: np.full(1, self.t, np.float32) for agent in actions}
        dones = {agent: False for agent in actions}
        if self.t == 2:
            dones["b"] = True
        if self.t == 4:
            dones["a"] = True
        dones["__all__"] = self.t == 4
        return seen, {agent: 1.0 for agent in actions}, dones, {agent: {} for agent in actions}
'''


@pytest.fixture(params=KINDS)
def spec(request, folder):
    folder.write("old_env.py", KINDS[request.param])
    return EnvSpec("old_env:Old", folder.paths)


def test_it_steps_in_todays_form(spec):
    env = make(spec)
    observation, info = env.reset(seed=1)
    assert observation in env.observation_space and info == {}
    *_, last = [env.step(1) for _ in range(12)]
    assert last[0] in env.observation_space
    assert last[1:4] == (1.0, True, False)


def test_its_time_limit_is_a_truncation(spec):
    env = make(spec, {"limit": 5})
    env.reset(seed=1)
    *_, last = [env.step(0) for _ in range(5)]
    assert last[2:4] == (False, True)


def test_the_same_seed_gives_the_same_episode(spec):
    env = make(spec)
    seen = [play_through(env, seed) for seed in (4, 4, 5)]
    assert seen[0] == seen[1] != seen[2]


def play_through(env, seed):
    act = random_actions({"default_agent": env.action_space}, seed)
    steps = islice(Player(env).episode(act, seed), 51)
    return [now.observations["default_agent"].tolist() for _, now in steps]


def test_env_check_passes_with_a_note(spec):
    findings = check(make(spec))
    assert not [found for found in findings if found.level in ("error", "warning")]
    (note,) = [found for found in findings if found.level == "note" and "old gym" in found.what]
    assert "Old has the reset() and step() of old gym" in note.what


def test_preflight_passes_with_one_notice_and_the_users_class_name(spec):
    experiment = Experiment({"environment": {"env": spec.name}}, paths=spec.paths)
    found, info = problems(experiment)
    assert found == []
    assert info.old_api
    assert info.class_name == "Old"
    assert [line for line in info.notices if "old gym" in line] == list(info.notices[-1:])


def test_it_is_saved_by_pickling_in_the_middle_of_an_episode(spec):
    env = make(spec)
    assert find_way(env, {"default_agent": env.action_space}) == (PICKLE, "")


def test_a_state_of_its_own_is_used_through_the_adapter(folder):
    state = """
    def get_state(self):
        return self.t, self.random.get_state()

    def set_state(self, state):
        self.t = state[0]
        self.random.set_state(state[1])
"""
    folder.write("old_env.py", GYMNASIUM + state)
    env = make(EnvSpec("old_env:Old", folder.paths))
    assert find_way(env, {"default_agent": env.action_space}) == (GET_STATE, "")


def test_a_horizon_and_the_guard_go_around_it(spec):
    env = guarded(make(EnvSpec(spec.name, spec.paths, horizon=3)), spec.name)
    env.reset(seed=1)
    *_, last = [env.step(0) for _ in range(3)]
    assert last[2:4] == (False, True)
    assert guarded(make(spec), spec.name).limit == 12  # what callbacks read of it is the user's


def test_one_registered_with_gymnasium_is_adapted_behind_its_time_limit(folder):
    folder.write("old_env.py", GYMNASIUM + "\ngym.register('Aged-v0', 'old_env:Old', max_episode_steps=4)\n")
    env = make(EnvSpec("old_env:Aged-v0", folder.paths))
    env.reset(seed=1)
    *_, last = [env.step(0) for _ in range(4)]
    assert last[2:4] == (False, True)
    assert info_of(env, "Aged-v0").max_episode_steps == 4


def test_one_registered_with_old_gym_is_found_and_limited(folder):
    folder.write("new_form.py", NEW_FORM)
    env = make(EnvSpec("Newer-v0", folder.paths, ("new_form",)))
    try:
        env.reset(seed=1)
        *_, last = [env.step(0) for _ in range(4)]
        assert last[2:4] == (False, True)
    finally:
        del old_gym.envs.registration.registry["Newer-v0"]


NEW_FORM = '''
import gym
import numpy as np


class New(gym.Env):
    """gym 0.26: five values, but not Gymnasium's classes."""

    observation_space = gym.spaces.Dict(x=gym.spaces.Box(-1, 1, (2,)), y=gym.spaces.Discrete(3))
    action_space = gym.spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"x": self.np_random.uniform(-1, 1, 2).astype(np.float32), "y": 0}, {}

    def step(self, action):
        return {"x": np.zeros(2, np.float32), "y": 2}, 1.0, False, False, {}


gym.register("Newer-v0", "new_form:New", max_episode_steps=4)
'''


def test_gym_026_passes_its_five_values_through(folder):
    folder.write("new_form.py", NEW_FORM)
    env = make(EnvSpec("new_form:New", folder.paths))
    del old_gym.envs.registration.registry["Newer-v0"]
    assert isinstance(env.observation_space, gym.spaces.Dict)
    assert env.action_space == gym.spaces.MultiDiscrete([2, 3])
    assert env.reset(seed=3)[0]["x"].tolist() == env.reset(seed=3)[0]["x"].tolist()
    assert env.step(env.action_space.sample())[1:4] == (1.0, False, False)


def test_todays_environments_are_left_alone():
    env = gym.make("CartPole-v1", disable_env_checker=True)
    assert env_api.modernised(env) is env
    assert env_api.adapter(make(EnvSpec("CartPole-v1"))) is None


def test_a_new_environment_is_tried_once_for_each_class(folder):
    code = GYMNASIUM.replace("def step", "calls = []\n\n    def step").replace(
        "self.t += 1", "self.t += 1\n        self.calls.append(self.t)"
    )
    folder.write("old_env.py", code)
    spec = EnvSpec("old_env:Old", folder.paths)
    made = [make(spec) for _ in range(3)]
    assert len(made[0].env.calls) == 1
    assert make(EnvSpec("old_env:Old", folder.paths, old_api=False)).calls == [1]


def test_old_multi_agent_environments_end_agent_by_agent(folder):
    folder.write("old_agents.py", AGENTS)
    spec = EnvSpec("old_agents:Old", folder.paths)
    info = describe(spec)
    assert (info.kind, set(info.agents), info.old_api) == ("multi", {"a", "b"}, True)
    env = make(spec)
    observations, infos = env.reset(seed=0)
    assert set(observations) == {"a", "b"} and infos == {}
    env.step({"a": 0, "b": 0})
    _, _, terminated, truncated, _ = env.step({"a": 0, "b": 0})
    assert terminated == {"a": False, "b": True, "__all__": False}
    env.step({"a": 0})
    *_, terminated, truncated, _ = env.step({"a": 0})
    assert terminated["__all__"] is True and truncated["__all__"] is False
    assert not [found for found in check(make(spec)) if found.level == "error"]
    assert make(EnvSpec(spec.name, spec.paths, horizon=3)).reset(seed=0)


def test_agents_that_are_all_cut_off_truncate_the_episode(folder):
    cut = AGENTS.replace(
        "self.t == 4\n        return", "self.t == 4\n        cut = self.t == 4\n        return"
    )
    cut = cut.replace("{agent: {} for", "{agent: {'TimeLimit.truncated': cut} for")
    folder.write("old_agents.py", cut)
    env = make(EnvSpec("old_agents:Old", folder.paths))
    env.reset()
    *_, last = [env.step({"a": 0}) for _ in range(4)]
    assert last[2]["__all__"] is False and last[3]["__all__"] is True


SPACES = [
    (old_gym.spaces.Box(-1, 2, (3,), np.float32), gym.spaces.Box(-1, 2, (3,), np.float32)),
    (old_gym.spaces.Discrete(4), gym.spaces.Discrete(4)),
    (old_gym.spaces.Discrete(4, start=2), gym.spaces.Discrete(4, start=2)),
    (old_gym.spaces.MultiDiscrete([2, 5]), gym.spaces.MultiDiscrete([2, 5])),
    (old_gym.spaces.MultiBinary(6), gym.spaces.MultiBinary(6)),
    (old_gym.spaces.MultiBinary([2, 3]), gym.spaces.MultiBinary([2, 3])),
    (
        old_gym.spaces.Tuple([old_gym.spaces.Discrete(2), old_gym.spaces.Dict(a=old_gym.spaces.Discrete(3))]),
        gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Dict(a=gym.spaces.Discrete(3))]),
    ),
]


@pytest.mark.parametrize(("old", "new"), SPACES, ids=lambda space: type(space).__name__)
def test_spaces_of_gym_become_gymnasiums(old, new):
    assert env_api.modern_space(old) == new
    assert env_api.modern_space(new) is new


def test_a_pair_as_observation_is_not_taken_for_observation_and_info(folder):
    code = GYMNASIUM.replace(
        "gym.spaces.Box(-10, 10, (2,), dtype=np.float32)",
        "gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Dict(a=gym.spaces.Discrete(2))])",
    )
    code = code.replace("[self.random.rand(), 0.0]", "(2, {'a': 1})").replace(
        "np.array([self.random.rand(), self.t / 10])", "(0, {'a': 0})"
    )
    folder.write("old_env.py", code)
    env = make(EnvSpec("old_env:Old", folder.paths))
    assert env.reset(seed=0) == ((2, {"a": 1}), {})


def test_an_environment_written_for_gym_runs_where_gym_is_not_installed(folder, monkeypatch):
    from rayfish.legacy import import_paths

    class Without:
        def __init__(self, inner):
            self.inner = inner

        def find_spec(self, name, path=None, target=None):
            return None if name.split(".")[0] == "gym" else self.inner.find_spec(name, path, target)

    for name in [name for name in sys.modules if name.split(".")[0] == "gym"]:
        monkeypatch.delitem(sys.modules, name)
    import_paths.install()
    finders = [f if isinstance(f, import_paths.OldModules) else Without(f) for f in sys.meta_path]
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.setattr(import_paths, "_used", {})
    folder.write("shimmed.py", SHIMMED)
    env = make(EnvSpec("shimmed:Inside", folder.paths))
    for name in [name for name in sys.modules if name.split(".")[0] == "gym"]:
        monkeypatch.delitem(sys.modules, name)
    assert not [found for found in check(env) if found.level == "error"]
    assert find_way(env, {"default_agent": env.action_space}) == (PICKLE, "")
    assert any("gymnasium answers" in line for line in info_of(env, "shimmed:Inside").notices)


SHIMMED = '''
import gym
from gym import spaces
from gym.utils import seeding


class Inside(gym.Env):
    """Makes another environment inside, as many examples for RLlib did."""

    def __init__(self, config):
        self.env = gym.make("CartPole-v0")
        self.observation_space = self.env.observation_space
        self.action_space = self.env.action_space
        self.seed()

    def seed(self, seed=None):
        self.np_random, seed = seeding.np_random(seed)
        self.env.seed(seed)
        return [seed]

    def reset(self):
        return self.env.reset()

    def step(self, action):
        obs, reward, done, info = self.env.step(action if self.np_random.randint(10) else 0)
        return obs, reward, done, info
'''
