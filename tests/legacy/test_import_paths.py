"""Old import paths in user code: found where the names are today, and only where nothing real is hidden."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys

import gymnasium
import pytest

from rayfish.legacy import import_paths


@pytest.fixture
def finder(monkeypatch):
    """The finder installed, the old modules forgotten before and after."""
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    monkeypatch.setattr(import_paths, "_used", {})
    forget()
    import_paths.install()
    yield
    forget()


def forget():
    old = ("ray.rllib.examples.env.", "ray.rllib.env.apis", "ray.rllib.env.task_settable_env", "gym.")
    for name in list(sys.modules):
        if name == "gym" or name == "ray.rllib.examples.env" or name.startswith(old):
            del sys.modules[name]


@pytest.fixture
def without_gym(finder, monkeypatch):
    """As on a machine where the gym package is not installed."""

    class Without:
        def __init__(self, inner):
            self.inner = inner

        def find_spec(self, name, path=None, target=None):
            return None if name.split(".")[0] == "gym" else self.inner.find_spec(name, path, target)

    kept = [
        f if isinstance(f, import_paths.OldModules) else Without(f)
        for f in sys.meta_path
        if hasattr(f, "find_spec")
    ]
    monkeypatch.setattr(sys, "meta_path", kept)


@pytest.mark.parametrize(
    "module",
    ["ray.rllib.env.apis.task_settable_env", "ray.rllib.env.task_settable_env"],
)
def test_task_settable_env_is_a_real_base_class(finder, module):
    found = importlib.import_module(module)
    assert issubclass(found.TaskSettableEnv, gymnasium.Env)
    assert hasattr(found, "TaskType")
    with pytest.raises(NotImplementedError, match="set_task"):
        found.TaskSettableEnv().set_task(1)


def test_example_modules_hold_todays_classes_and_leave_their_home_alone(finder):
    old = importlib.import_module("ray.rllib.examples.env.stateless_cartpole")
    new = importlib.import_module("ray.rllib.examples.envs.classes.stateless_cartpole")
    assert old.StatelessCartPole is new.StatelessCartPole
    assert new.__spec__.name == new.__name__ == "ray.rllib.examples.envs.classes.stateless_cartpole"
    assert pickle.loads(pickle.dumps(old.StatelessCartPole)) is new.StatelessCartPole


def test_every_old_import_is_reported_once(finder):
    for _ in range(2):
        importlib.import_module("ray.rllib.examples.env.stateless_cartpole")
        importlib.import_module("ray.rllib.env.apis.task_settable_env")
    said = import_paths.notices()
    assert len(said) == 2
    assert "ray.rllib.examples.env.stateless_cartpole" in said[0]
    assert "rayfish.envs.tasks" in said[1]


@pytest.mark.parametrize("name", ["ray.rllib.examples.env.no_such_env", "ray.rllib.no_such", "gymm"])
def test_names_that_are_not_listed_stay_unknown(finder, name):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


def test_an_installed_gym_is_never_hidden(finder):
    gym = importlib.import_module("gym")
    assert "site-packages" in gym.__file__
    assert gym.Env is not gymnasium.Env
    assert import_paths.notices() == []


def test_gymnasium_answers_to_the_name_of_a_gym_that_is_not_installed(without_gym):
    gym = importlib.import_module("gym")
    spaces = importlib.import_module("gym.spaces")
    seeding = importlib.import_module("gym.utils.seeding")
    from gym.utils import seeding as same

    assert issubclass(gym.Env, gymnasium.Env)
    assert spaces.Box is gym.spaces.Box is gymnasium.spaces.Box
    assert same.np_random is seeding.np_random
    assert importlib.import_module("gym.envs.registration").register is gymnasium.register
    assert len(import_paths.notices()) == 1
    assert "gymnasium answers to its name" in import_paths.notices()[0]


def test_its_environments_are_made_and_wrapped_in_the_old_form(without_gym):
    gym = importlib.import_module("gym")

    class Doubled(gym.ObservationWrapper):
        def observation(self, observation):
            return observation * 2

    env = Doubled(gym.wrappers.TimeLimit(gym.make("CartPole-v0"), 3))
    plain = gym.make("CartPole-v0")
    env.seed(5)
    plain.seed(5)
    assert (env.reset() == plain.reset() * 2).all()
    steps = [env.step(0) for _ in range(3)]
    assert [len(step) for step in steps] == [4, 4, 4]
    assert [step[2] for step in steps] == [False, False, True]
    assert steps[-1][3]["TimeLimit.truncated"] is True
    assert gym.make("Pendulum-v0").reset().shape == (3,)


def test_its_generators_have_numpys_older_methods_and_survive_a_pickle(without_gym):
    generator, seed = importlib.import_module("gym.utils.seeding").np_random(7)
    assert seed == 7
    copy = pickle.loads(pickle.dumps(generator))
    assert copy.randint(100) == generator.randint(100)
    assert copy.rand(2).tolist() == generator.rand(2).tolist()
    assert 0 <= generator.randint(3, 5) < 5


def test_loading_user_code_installs_the_finder_and_importing_rayfish_does_not(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from ray.rllib.env.apis.task_settable_env import TaskSettableEnv\nX = 1\n"
    )
    code = (
        "import sys, rayfish\n"
        "names = lambda: [type(f).__name__ for f in sys.meta_path]\n"
        "assert 'OldModules' not in names()\n"
        "from rayfish.experiment.imports import load_object\n"
        f"print(load_object('mine:X', [{str(tmp_path)!r}]), names().count('OldModules'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]
