"""`rollouts.autotune`: what is tried, what is chosen, and where the choice is kept."""

from __future__ import annotations

import random
import secrets
from functools import partial

import numpy as np
import pytest
import torch

import rayfish
from rayfish.algorithm.batched.eligibility import NATIVE, PROCESSES, STACKED
from rayfish.algorithm.batched.stepping_benchmark import Measurement
from rayfish.experiment import Experiment
from rayfish.run import autotune, preflight
from rayfish.run.autotune import ENVS, KEY, MODE, RUNNERS, SteppingSearch, best_of, counts
from rayfish.run.engine import RayOptions
from tests.helpers import comparable, info_of, metrics_of

SLOW = """
import time
import gymnasium as gym
import numpy as np

class Slow(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        time.sleep(0.005)
        self.t += 1
        return np.full(2, 0.1 * self.t, np.float32), float(action), self.t >= 10, False, {}
"""
SMALL = (
    "algo.name=PPO", "training.train_batch_size_per_learner=128", "training.minibatch_size=64",
    "training.num_epochs=1", "training.model.fcnet_hiddens=[8]", f"{KEY}=true",
)  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """Measurements of other tests are forgotten."""
    monkeypatch.setattr(autotune, "_MEASURED", {})


@pytest.fixture
def slow(workdir):
    """The words of an experiment whose environment takes 5 ms for a step."""
    file = workdir / f"slow_{secrets.token_hex(4)}.py"  # a module of that name is imported once
    file.write_text(SLOW)
    return (f"environment.env={file.name}:Slow", *SMALL)


def tuned(*words, name=None, options=None):
    experiment = Experiment.compose(name, words)
    return autotune.tuned(experiment, preflight.require(experiment), options)


def seed(number):
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def draw(number=None):
    """A number from each global generator; from a seed, when one is given."""
    if number is not None:
        seed(number)
    return random.random(), np.random.random(), torch.rand(1).item()


class Table:
    """In place of measuring: steps per second by way and number of environments."""

    def __init__(self, rates, ready_s=0.0, env_share=0.9):
        self.rates, self.ready_s, self.env_share = rates, ready_s, env_share
        self.tried = []

    def trial(self, way, envs, seconds):
        rate = self.rates[way](envs)
        if rate is None:
            raise RuntimeError("cannot be pickled")
        self.tried.append((way, envs))
        return Measurement(way, envs, rate, self.env_share, self.ready_s)


def searched(ways, numbers, **rates):
    search = SteppingSearch(ways, numbers, Table({STACKED: lambda n: 1000.0, **rates}))
    search.run()
    return search


def test_more_environments_are_tried_as_long_as_they_gain():
    rates = {4: 100.0, 8: 180.0, 16: 185.0, 32: 1000.0}
    search = searched([STACKED], [4, 8, 16, 32], stacked=lambda n: rates.get(n, 50.0))
    assert [trial.envs for trial in search.trials] == [4, 8, 16]


def test_processes_are_not_tried_where_a_message_takes_longer_than_a_step():
    fast = searched([STACKED, PROCESSES], [8], stacked=lambda n: 1e5, processes=lambda n: 1e9)
    assert {trial.way for trial in fast.trials} == {STACKED}
    slow = searched([STACKED, PROCESSES], [8], stacked=lambda n: 200.0, processes=lambda n: 1000.0)
    assert best_of(slow.trials).way == PROCESSES


def test_a_way_that_fails_is_reported_and_the_others_are_measured():
    search = searched([STACKED, PROCESSES], [8], stacked=lambda n: 200.0, processes=lambda n: None)
    assert [trial.way for trial in search.trials] == [STACKED]
    assert "cannot be pickled" in search.remarks[0]


def test_what_takes_longer_than_the_budget_is_not_tried():
    bench = Table({STACKED: lambda n: 0.5, PROCESSES: lambda n: 0.5 * n}, ready_s=3.0)
    search = SteppingSearch([STACKED, PROCESSES], [64], bench)
    search.run()
    assert search.trials == []
    assert "takes too long to measure" in search.remarks[0]


def test_the_fewest_environments_near_the_fastest_are_chosen():
    trials = [Measurement(NATIVE, 8, 50.0), Measurement(NATIVE, 16, 95.0), Measurement(NATIVE, 32, 100.0)]
    assert best_of(trials).envs == 16
    assert best_of([*trials, Measurement(PROCESSES, 4, 120.0)]).way == NATIVE
    assert best_of([*trials, Measurement(PROCESSES, 4, 200.0)]).way == PROCESSES


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["algo.name=PPO", "training.train_batch_size_per_learner=512"], [8, 16, 32]),
        (["algo.name=PPO", "training.train_batch_size_per_learner=512", f"{RUNNERS}=2"], [8, 16]),
        (["algo.name=PPO", f"{ENVS}=3"], [3]),
        (["algo.name=IMPALA"], [8]),
        (["algo.name=DQN"], [1]),
        (["algo.name=DQN", "training.training_intensity=8"], [1, 2, 4, 8]),
    ],
)
def test_numbers_of_environments_keep_what_the_algorithm_learns_from(words, expected):
    assert counts(Experiment.compose(None, ["environment.env=CartPole-v1", *words])) == expected


def test_a_preset_keeps_its_number_unless_it_is_asked_to_be_auto():
    preset = Experiment.compose("cartpole")
    assert counts(preset) == [preset.get(ENVS)]
    assert counts(Experiment.compose("cartpole", [f"{ENVS}=auto"]))[:2] == [8, 16]


def test_a_slow_environment_is_stepped_in_processes_and_a_written_number_is_kept(slow):
    drawn = draw(7)
    seed(7)
    experiment, lines = tuned(*slow, f"{ENVS}=4")
    assert (experiment.get(MODE), experiment.get(ENVS), experiment.get(KEY)) == ("async", 4, False)
    assert (experiment.origin(MODE), experiment.origin(ENVS)) == (KEY, "command line")
    rates = {line.split()[0]: float(line.split()[2]) for line in lines[2:4]}
    assert rates["processes"] > 2 * rates["stacked"]
    assert rates["stacked"] < 200
    assert draw() == drawn


def test_a_fast_environment_stays_in_this_process_and_seeds_share_the_choice(monkeypatch):
    words = ("environment.env=CartPole-v1", *SMALL, "training.train_batch_size_per_learner=512")
    first, lines = tuned(*words, "debugging.seed=1")
    assert first.get(MODE) in ("vector_entry_point", "sync")
    assert first.get(ENVS) in (8, 16, 32)
    assert sum("<- chosen" in line for line in lines) == 1
    monkeypatch.setattr(autotune, "_measured", None)  # a second measuring would fail
    second, _ = tuned(*words, "debugging.seed=2")
    assert second.section("rollouts") == first.section("rollouts")


def test_runners_are_an_estimate_for_a_slow_environment_that_processes_do_not_help(slow, monkeypatch):
    rates = {STACKED: lambda n: 200.0, PROCESSES: lambda n: None}
    monkeypatch.setattr("rayfish.algorithm.batched.stepping_benchmark.Bench", lambda *_: Table(rates))
    monkeypatch.setattr(autotune, "offered", lambda _: (4.0, 0.0))
    words = [*slow, "training.train_batch_size_per_learner=4000"]
    experiment, lines = tuned(*words, options=RayOptions(num_cpus=4))
    assert (experiment.get(RUNNERS), experiment.get(MODE)) == (3, "sync")
    assert any("3 runners" in line and "estimate" in line for line in lines)
    kept, _ = tuned(*words, f"{RUNNERS}=0")
    assert kept.get(RUNNERS) == 0


def test_where_rllib_samples_there_is_nothing_to_choose():
    experiment, lines = tuned("environment.env=CartPole-v1", *SMALL, "rollouts.runner=rllib")
    assert experiment.get(KEY) is False
    assert experiment.get(MODE) is None
    assert "RLlib's env runner samples" in lines[0]


def test_a_measuring_that_fails_leaves_all_as_it_is(slow, monkeypatch):
    monkeypatch.setattr("rayfish.algorithm.batched.stepping_benchmark.Bench.trial", lambda *_: 1 / 0)
    experiment, lines = tuned(*slow)
    assert (experiment.get(MODE), experiment.get(ENVS), experiment.get(KEY)) == (None, 8, False)
    assert "could not measure" in lines[0] and "ZeroDivisionError" in lines[0]


@pytest.mark.usefixtures("ray_session")
def test_a_run_writes_its_choice_down_and_a_resume_keeps_it(slow, capfd, monkeypatch):
    train = partial(rayfish.train, plain=True)
    words = (*slow, f"{ENVS}=4", "checkpoint.checkpoint_frequency=1")
    run = train(*words, "stop_conditions.training_iteration=1")
    assert "<- chosen" in capfd.readouterr().out
    assert "<- chosen" in (run / "log.txt").read_text()
    saved = Experiment.load(run / "config.yaml")
    assert (saved.get(MODE), saved.get(KEY), saved.origin(MODE)) == ("async", False, KEY)
    runner = info_of(run)["runner"]
    assert runner["used"] == "batched"
    assert "processes of their own" in runner["why"] and f"{KEY} measured" in runner["why"]
    monkeypatch.setattr(autotune, "_measured", None)  # a second measuring would fail
    train(None, "stop_conditions.training_iteration=2", resume=run)
    again = Experiment.load(run / "config.yaml")
    assert again.section("rollouts") == saved.section("rollouts")
    assert f"{KEY} measured" in info_of(run)["runner"]["why"]
    whole = train(f"{MODE}=async", *words, f"{KEY}=false", "stop_conditions.training_iteration=2")
    assert [comparable(line) for line in metrics_of(run)] == [comparable(line) for line in metrics_of(whole)]


@pytest.mark.usefixtures("ray_session", "workdir")
def test_a_trainer_in_a_notebook_tunes_too(capsys):
    with rayfish.Trainer("environment.env=CartPole-v1", *SMALL) as trainer:
        assert trainer.experiment.get(KEY) is False
        assert trainer.config.num_envs_per_env_runner == trainer.experiment.get(ENVS) == 8
        assert trainer.step()["run/iteration"] == 1
    assert "<- chosen" in capsys.readouterr().out
