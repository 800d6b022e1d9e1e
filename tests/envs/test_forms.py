"""The eight forms of `environment.env`, how `env_config` reaches them, and what is said when they fail."""

from __future__ import annotations

import importlib.metadata
import pickle
import subprocess
import sys

import cloudpickle
import gymnasium as gym
import pytest

from rayfish.envs import build, catalog
from rayfish.envs.build import EnvSpec, describe, make
from rayfish.errors import EnvironmentFault, RayfishError
from rayfish.experiment.experiment import Experiment
from tests.envs.user_code import GOOD, OLD_RLLIB, PARALLEL


def failing(name, config=None, *, paths=(), **more):
    with pytest.raises(RayfishError) as caught:
        make(EnvSpec(name, tuple(paths), **more), config or {})
    return str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["grid.py:GridEnv", "grid:GridEnv", "grid.GridEnv", "grid:creator", "grid.creator", "grid:Dictated"],
)
def test_own_code_is_found_by_every_import_path_and_gets_its_config(folder, name):
    folder.write("grid.py", GOOD)
    env = make(EnvSpec(name, folder.paths), {"size": 5})
    assert env.reset(seed=1)[0].shape == (5,)


def test_a_gymnasium_id_gets_its_config_as_keyword_arguments():
    env = make(EnvSpec("FrozenLake-v1"), {"map_name": "8x8"})
    assert env.observation_space.n == 64


def test_an_id_without_version_means_the_newest():
    assert describe(EnvSpec("CartPole")).max_episode_steps == 500


@pytest.mark.parametrize("name", ["registers:Mine-v0", "registers.py:Mine-v0"])
def test_a_module_that_registers_an_id_is_imported_first(folder, name):
    folder.write("grid.py", GOOD)
    folder.write("registers.py", "import gymnasium as gym\ngym.register('Mine-v0', 'grid:GridEnv')\n")
    assert make(EnvSpec(name, folder.paths), {"size": 2}).observation_space.shape == (2,)


def test_modules_in_imports_are_loaded_first(folder):
    folder.write("grid.py", GOOD)
    folder.write("registers.py", "import gymnasium as gym\ngym.register('Listed-v0', 'grid:GridEnv')\n")
    assert describe(EnvSpec("Listed-v0", folder.paths, ("registers",))).class_name == "GridEnv"


def test_a_name_registered_with_ray_by_an_imported_module(folder):
    folder.write("grid.py", GOOD)
    code = "from ray.tune import register_env\nimport grid\n"
    folder.write("to_ray.py", code + "register_env('my-grid', lambda size: grid.GridEnv(size['size']))\n")
    env = make(EnvSpec("my-grid", folder.paths, ("to_ray",)), {"size": 6})
    assert env.observation_space.shape == (6,)


def test_an_entry_point_of_an_installed_package(folder, monkeypatch):
    folder.write("grid.py", GOOD)
    point = importlib.metadata.EntryPoint("offered-grid", "grid:GridEnv", catalog.ENTRY_POINT_GROUP)
    monkeypatch.setattr(catalog, "offered", lambda: {"offered-grid": point})
    assert make(EnvSpec("offered-grid", folder.paths), {"size": 4}).observation_space.shape == (4,)


def test_a_pettingzoo_style_module_is_made_by_its_parallel_env(folder):
    folder.write("games/__init__.py", "")
    folder.write("games/relay_v0.py", PARALLEL + "\nparallel_env = Relay\n")
    assert describe(EnvSpec("games.relay_v0", folder.paths)).agents == ("first", "second", "third")


def test_a_class_or_function_from_python_needs_no_name():
    def notebook(env_config):
        return gym.make("CartPole-v1", max_episode_steps=env_config["steps"])

    experiment = Experiment({"environment": {"env_config": {"steps": 7}}}, env=notebook)
    spec = build.from_experiment(experiment)
    again = pickle.loads(cloudpickle.dumps(spec))
    assert describe(again, build.env_config_of(experiment)).max_episode_steps == 7


def test_a_spec_with_an_object_unpickles_where_its_module_is_not_importable_yet(folder):
    folder.write("grid.py", GOOD)
    spec = build.EnvSpec(
        "x", folder.paths, object=build.resolve(EnvSpec("grid:GridEnv", folder.paths)).target
    )
    load = f"pickle.loads({cloudpickle.dumps(spec)!r})"
    code = f"import pickle; from rayfish.envs.build import make; print(make({load}).action_space)"
    done = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True)
    assert "Discrete(2)" in done.stdout


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("MountainCar-v7", ["no 'MountainCar-v7'", "environment.env=MountainCar-v0"]),
        ("CartPol-v1", ["there is no environment 'CartPol-v1'", "did you mean CartPole-v1"]),
        ("cartpole-v1", ["there is no environment 'cartpole-v1'", "did you mean CartPole-v1?"]),
        ("nonsense", ["there is no environment 'nonsense'", "rayfish env list"]),
    ],
)
def test_a_name_that_is_not_there_gets_the_one_that_is(name, parts):
    said = failing(name)
    for part in parts:
        assert part in said


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("ALE/Breakout-v5", "ale_py", "rayfish[atari]"),
        ("BreakoutNoFrameskip-v4", "ale_py", "rayfish[atari]"),
        ("LunarLander-v2", "Box2D", "rayfish[box2d]"),
        ("Ant-v2", "mujoco", "rayfish[mujoco]"),
    ],
)
def test_a_missing_package_is_named_with_what_to_install(name, module, package):
    """In a process of its own, where that package cannot be found."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(module=module, name=name)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip install" in done.stdout
    assert package in done.stdout


WITHOUT = """
import importlib.machinery, sys

class Without(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] == "{module}" else super().find_spec(name, path, target)

sys.meta_path = [Without if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
from rayfish.envs.build import EnvSpec, make
from rayfish.errors import RayfishError
try:
    make(EnvSpec("{name}")).reset()
except RayfishError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("name", "config", "parts"),
    [
        ("grid:GridEnv", {"sise": 3}, ["takes no 'sise'", "did you mean size?"]),
        ("CartPole-v1", {"gravity": 3}, ["takes no 'gravity'", "sutton_barto_reward"]),
        ("grid:GridEnv", {"size": "wide"}, ["making 'grid:GridEnv' with env_config", "grid.py:11"]),
        ("needy:Needy", {}, ["needs 'width'", "environment.env_config.width=..."]),
        ("needy:nothing", {}, ["returned nothing", "return env"]),
        ("needy:number", {}, ["made a builtins.int, which is no environment"]),
        ("needy:vector", {}, ["vector of environments", "num_envs_per_env_runner"]),
        ("needy:VALUE", {}, ["is a int object"]),
        ("grid", {}, ["'grid' is a module", "write grid:GridEnv"]),
    ],
)
def test_a_wrong_config_or_creator_is_reported_in_its_own_terms(folder, name, config, parts):
    folder.write("grid.py", GOOD)
    folder.write(
        "needy.py",
        "import gymnasium as gym\nVALUE = 3\n"
        "class Needy(gym.Env):\n    def __init__(self, width): pass\n"
        "def nothing(config): pass\n"
        "def number(config): return 3\n"
        "def vector(config): return gym.make_vec('CartPole-v1', 2)\n",
    )
    said = failing(name, config, paths=folder.paths)
    for part in parts:
        assert part in said


def test_an_environment_of_the_old_gym_package_must_declare_its_spaces(folder):
    folder.write("ancient.py", "import gym\nclass Ancient(gym.Env):\n    def __init__(self): pass\n")
    said = failing("ancient:Ancient", paths=folder.paths)
    assert "old gym package" in said
    assert "set self.observation_space" in said


def test_a_turn_based_game_is_refused_unless_all_can_act_at_once(folder):
    folder.write(
        "turns.py", "class Game:\n    metadata = {}\n    def agent_iter(self): ...\n    def last(self): ...\n"
    )
    assert "turn-based" in failing("turns:Game", paths=folder.paths)


def test_a_turn_based_game_in_which_all_act_each_round_is_made_parallel(folder):
    convert = "\nfrom pettingzoo.utils.conversions import parallel_to_aec\n"
    folder.write(
        "rounds.py", PARALLEL + convert + "def env(env_config):\n    return parallel_to_aec(Relay(3))\n"
    )
    made = make(EnvSpec("rounds:env", folder.paths))
    observations, _ = made.reset(seed=0)
    assert set(observations) == {"first", "second", "third"}
    for _ in range(3):
        _, _, ended, cut, _ = made.step(dict.fromkeys(made.agents, 0))
    assert (ended["second"], cut["third"], made.agents) == (True, True, [])


def test_environments_written_for_rllib_find_worker_attributes_without_ray(folder):
    folder.write("grid.py", GOOD)
    assert make(EnvSpec("grid:Dictated", folder.paths), {}).worker == 0


def test_render_mode_reaches_the_constructor_or_is_refused(folder):
    folder.write("grid.py", GOOD)
    assert make(EnvSpec("grid:GridEnv", folder.paths), {}, render_mode="rgb_array").render_mode == "rgb_array"
    folder.write("blind.py", "import gymnasium as gym\nclass Blind(gym.Env):\n    def __init__(self): pass\n")
    with pytest.raises(EnvironmentFault, match="cannot draw itself"):
        make(EnvSpec("blind:Blind", folder.paths), {}, render_mode="rgb_array")


def test_horizon_cuts_episodes_and_never_lengthens_them(folder):
    folder.write("grid.py", GOOD)
    env = make(EnvSpec("grid:GridEnv", folder.paths, horizon=4))
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(4)]
    assert ends == [(False, False)] * 3 + [(False, True)]
    assert describe(EnvSpec("CartPole-v1", horizon=9000)).max_episode_steps == 500


def test_horizon_truncates_all_agents_of_a_parallel_environment(folder):
    folder.write("relay.py", PARALLEL)
    env = make(EnvSpec("relay:Relay", folder.paths, horizon=3), {"length": 50})
    env.reset(seed=0)
    for _ in range(3):
        _, _, ended, cut, _ = env.step(dict.fromkeys(env.agents, 0))
    assert (cut, ended, env.agents) == (
        {"second": True, "third": True},
        {"second": False, "third": False},
        [],
    )
    env.reset(seed=1)
    assert env.agents == ["first", "second", "third"]


def test_several_agents_are_described_one_by_one(folder):
    folder.write("relay.py", PARALLEL)
    info = describe(EnvSpec("relay:Relay", folder.paths))
    assert (info.kind, info.multi_agent) == ("multi", True)
    assert [space.shape for space in info.observation_spaces.values()] == [(2,), (4,), (4,)]


def test_agents_of_an_older_rllib_environment_are_found(folder):
    folder.write("pair.py", OLD_RLLIB)
    info = describe(EnvSpec("pair:Pair", folder.paths, horizon=5))
    assert (info.kind, info.agents, info.max_episode_steps) == ("multi", ("left", "right"), 5)
    assert info.observation_spaces["right"].shape == (3,)


@pytest.mark.filterwarnings("error:.*out of date")
def test_an_older_version_that_is_asked_for_is_made_without_a_warning():
    build.make(build.EnvSpec("CartPole-v0")).close()
    build.make_vector(build.EnvSpec("CartPole-v0"), {}, 2).close()
