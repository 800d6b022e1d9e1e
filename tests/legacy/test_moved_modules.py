"""Modules of Rayfish by their former names: in users' code and in runs that were written then."""

from __future__ import annotations

import importlib

import pytest
from tests.helpers import rayfish as rayfish_command

import rayfish
from rayfish.experiment import Experiment
from rayfish.legacy.moved_modules import MOVED


@pytest.mark.parametrize("name", [name for name in MOVED if "cuda" not in name])
def test_a_former_name_gives_the_module_of_today(name):
    importlib.import_module("rayfish.envs")
    found = importlib.import_module(name)
    assert found is importlib.import_module(MOVED[name])
    assert found.__spec__.name == MOVED[name]


def test_the_simulator_is_imported_by_its_former_path():
    from rayfish.envs.wildfire import Simulator
    from rayfish.envs.wildfire.simulator import Simulator as same

    assert Simulator is same is importlib.import_module("rayfish.worlds.wildfire").Simulator


def test_a_run_that_names_its_environment_by_a_former_path_is_evaluated(workdir):
    former = "environment.env=rayfish.envs.wildfire.agents:WildfireParallel"
    words = ("wildfire_marl", former, "stop_conditions.training_iteration=1", "runtime.name=former")
    rayfish_command("train", *words, "training.train_batch_size_per_learner=2048", "--plain", cwd=workdir)
    saved = Experiment.load(next(workdir.glob("runs/former/*/config.yaml")))
    assert saved.get("environment.env") == former.partition("=")[2]
    assert rayfish.evaluate("former", episodes=1).episodes == 1
