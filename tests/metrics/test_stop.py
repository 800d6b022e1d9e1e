"""Stop conditions fire when they should, by any name people know, and tell how long is left."""

from __future__ import annotations

import pytest

from rayfish.metrics import names
from rayfish.metrics.stop import StopConditions


def test_a_condition_fires_when_its_metric_reaches_the_limit():
    stop = StopConditions({names.RETURN_MEAN: 475, names.ENV_STEPS: None})
    assert stop.reached({names.RETURN_MEAN: 474.9, names.ENV_STEPS: 10**9}) is None
    assert stop.reached({names.RETURN_MEAN: 476.25}) == "rollout/return_mean 476.2 >= 475"


def test_a_metric_that_is_not_there_does_not_fire():
    assert StopConditions({names.RETURN_MEAN: -100.0}).reached({names.ENV_STEPS: 5}) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("episode_reward_mean", names.RETURN_MEAN),
        ("timesteps_total", names.ENV_STEPS),
        ("training_iteration", names.ITERATION),
        ("time_total_s", names.TIME_TOTAL),
        ("episodes_total", names.EPISODES),
        ("env_runners/episode_return_mean", names.RETURN_MEAN),
    ],
)
def test_old_names_mean_todays_metrics(old, new):
    stop = StopConditions({old: 7})
    assert stop.problems == []
    assert stop.limits == {new: 7.0}


def test_two_spellings_of_one_metric_keep_the_nearer_limit():
    assert StopConditions({"timesteps_total": 500, names.ENV_STEPS: 100}).limits == {names.ENV_STEPS: 100.0}


def test_an_unknown_metric_is_a_problem_with_the_likely_name():
    (problem,) = StopConditions({"episode_reward_maen": 5}).problems
    assert problem.key == "stop_conditions.episode_reward_maen"
    assert "never stop" in problem.what
    assert "episode_reward_mean" in problem.hint


@pytest.mark.parametrize("limit", ["many", True, float("nan"), [1]])
def test_a_limit_that_is_no_number_is_a_problem(limit):
    stop = StopConditions({names.ENV_STEPS: limit})
    assert "not a number" in stop.problems[0].what
    assert stop.limits == {}


@pytest.mark.parametrize(
    "key", ["learn/default_policy/policy_loss", "env/burnt_area", "rollout/red/return_mean"]
)
def test_metrics_with_a_variable_part_are_known(key):
    assert StopConditions({key: 1.0}).problems == []


def history(count, **series):
    return [
        {names.TIME_TOTAL: float(i), **{key.replace("__", "/"): f(i) for key, f in series.items()}}
        for i in range(1, count + 1)
    ]


def test_time_left_follows_the_rate_of_a_counter():
    stop = StopConditions({names.ENV_STEPS: 2000})
    seconds, name = stop.time_left(history(10, run__env_steps=lambda i: 100 * i))
    assert name == names.ENV_STEPS
    assert seconds == pytest.approx(10.0)


def test_time_left_is_that_of_the_nearest_condition():
    stop = StopConditions({names.ENV_STEPS: 2000, names.TIME_TOTAL: 13})
    assert stop.time_left(history(10, run__env_steps=lambda i: 100 * i)) == (3.0, names.TIME_TOTAL)


def test_a_steady_return_is_prolonged_and_a_wavering_one_is_not():
    stop = StopConditions({names.RETURN_MEAN: 100})
    seconds, _ = stop.time_left(history(20, rollout__return_mean=lambda i: 2.0 * i))
    assert seconds == pytest.approx(30.0)
    assert stop.time_left(history(20, rollout__return_mean=lambda i: 10.0 * (i % 2))) is None
    assert stop.time_left(history(20, rollout__return_mean=lambda i: -2.0 * i)) is None


def test_nothing_is_foreseen_from_nothing():
    assert StopConditions({names.ENV_STEPS: 10}).time_left([]) is None
    assert StopConditions({}).time_left(history(10)) is None


@pytest.mark.parametrize(
    "key",
    [
        *("num_env_steps_trained", "num_steps_trained", "info/num_steps_trained", "num_agent_steps_trained"),
        *("num_env_steps_trained_lifetime", "learners/__all_modules__/num_env_steps_trained_lifetime"),
    ],
)
def test_trained_steps_are_not_sampled_ones(key):
    assert StopConditions({key: 100}).limits == {names.TRAINED_STEPS: 100}
