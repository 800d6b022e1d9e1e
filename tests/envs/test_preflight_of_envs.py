"""What preflight learns of an experiment's environments before anything is computed."""

from __future__ import annotations

import subprocess
import sys

from rayfish.envs.build import env_config_of, from_experiment, problems
from rayfish.experiment.experiment import Experiment
from rayfish.run import preflight
from tests.envs.user_code import GOOD, PARALLEL


def experiment(folder, environment, evaluation=None, rollouts=None):
    config = {"environment": environment, "evaluation": evaluation or {}, "rollouts": rollouts or {}}
    origins = {"environment.env": "conf/mine.yaml:3", "environment.env_config.sise": "command line"}
    return Experiment(config, origins, paths=folder.paths)


def test_a_sound_environment_has_no_problems_and_is_described(folder):
    folder.write("grid.py", GOOD)
    asked = experiment(folder, {"env": "grid:GridEnv", "env_config": {"size": 4}}, rollouts={"horizon": 6})
    found, info = problems(asked)
    assert found == []
    assert (info.observation_space.shape, info.max_episode_steps) == ((4,), 6)


def test_a_missing_environment_is_a_problem_at_its_key_with_its_origin(folder):
    found, info = problems(experiment(folder, {"env": "grit:GridEnv"}))
    assert info is None
    assert (found[0].key, found[0].where) == ("environment.env", "conf/mine.yaml:3")


def test_a_wrong_config_key_is_a_problem_of_env_config(folder):
    folder.write("grid.py", GOOD)
    found, _ = problems(experiment(folder, {"env": "grid:GridEnv", "env_config": {"sise": 4}}))
    assert (found[0].key, found[0].where) == ("environment.env_config", "command line")
    assert found[0].hint == "did you mean size?"


def test_no_environment_at_all_says_what_to_add(folder):
    found, _ = problems(experiment(folder, {"env": None}))
    assert "environment.env=CartPole-v1" in found[0].hint


def test_an_impossible_horizon_is_a_problem(folder):
    found, _ = problems(experiment(folder, {"env": "CartPole-v1"}, rollouts={"horizon": 0}))
    assert "rollouts.horizon is 0" in found[0].what


def test_a_broken_step_is_reported_before_training(folder):
    folder.write("grid.py", GOOD)
    step = "    def step(self, action): return self._look(), 0.0, {}\n"
    folder.write("bad_step.py", "from grid import GridEnv\nclass Bad(GridEnv):\n" + step)
    folder.write(
        "bug.py", "from grid import GridEnv\nclass Bug(GridEnv):\n    def step(self, a):\n        1 / 0\n"
    )
    (found,), _ = problems(experiment(folder, {"env": "bad_step:Bad"}))
    assert "3 values instead of five" in found.what
    assert "rayfish env check bad_step:Bad" in found.hint
    (found,), _ = problems(experiment(folder, {"env": "bug:Bug"}))
    assert "bug.py:4: ZeroDivisionError" in found.what


def test_evaluation_config_is_merged_over_the_training_one(folder):
    environment = {"env": "grid:GridEnv", "env_config": {"size": 4, "map": {"a": 1, "b": 2}}}
    asked = experiment(folder, environment, {"evaluation_config": {"env_config": {"map": {"b": 3}}}})
    assert env_config_of(asked, evaluation=True) == {"size": 4, "map": {"a": 1, "b": 3}}
    assert env_config_of(asked) == {"size": 4, "map": {"a": 1, "b": 2}}
    assert from_experiment(asked, evaluation=True).name == "grid:GridEnv"


def test_an_evaluation_environment_with_other_spaces_is_a_problem(folder):
    folder.write("grid.py", GOOD)
    environment = {"env": "grid:GridEnv", "env_config": {"size": 4}}
    (found,), info = problems(
        experiment(folder, environment, {"evaluation_config": {"env_config": {"size": 5}}})
    )
    assert info is not None
    assert "other observation spaces than training" in found.what


def test_looking_at_an_environment_imports_neither_ray_nor_torch():
    code = (
        "import sys; from rayfish.envs.build import EnvSpec, describe; describe(EnvSpec('CartPole-v1'));"
        "print([name for name in ('ray', 'torch', 'hydra') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_check_maps_agents_to_policies_as_training_does(folder):
    """`first` has a policy of its own although `*` comes before it; the others' spaces are alike."""
    folder.write("relay.py", PARALLEL)
    config = Experiment.compose(None, ["environment.env=relay:Relay", "algo.name=PPO"]).config
    config["multi_agent"]["mapping"] = {"*": "a", "first": "b"}
    found, _ = preflight.inspect(Experiment(config, paths=folder.paths))
    assert found == []
