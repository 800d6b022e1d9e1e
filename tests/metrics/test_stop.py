"""Stop conditions fire when they should, by any name people know, and tell how long is left."""

from __future__ import annotations

import pytest

from rayfish import Experiment
from rayfish.algorithm.signatures import problems
from rayfish.experiment.overrides import split_words
from rayfish.metrics import names
from rayfish.metrics.stop import Limit, StopConditions


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
    seconds, name, _ = stop.time_left(history(10, run__env_steps=lambda i: 100 * i))
    assert name == names.ENV_STEPS
    assert seconds == pytest.approx(10.0)


def test_time_left_is_that_of_the_nearest_condition():
    stop = StopConditions({names.ENV_STEPS: 2000, names.TIME_TOTAL: 13})
    assert stop.time_left(history(10, run__env_steps=lambda i: 100 * i)) == (
        3.0,
        names.TIME_TOTAL,
        Limit(13.0),
    )


def test_a_steady_return_is_prolonged_and_a_wavering_one_is_not():
    stop = StopConditions({names.RETURN_MEAN: 100})
    seconds, _, _ = stop.time_left(history(20, rollout__return_mean=lambda i: 2.0 * i))
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


@pytest.mark.parametrize("limit", ["<= 0.01", "<=0.01", "< 1e-2", {"below": 0.01}])
def test_a_condition_fires_when_its_metric_falls_to_the_limit(limit):
    stop = StopConditions({"env/final": limit})
    assert stop.problems == []
    assert stop.reached({"env/final": 0.02}) is None
    assert stop.reached({"env/final": 0.005}) == "env/final 0.005 <= 0.01"


@pytest.mark.parametrize("limit", [5, ">= 5", ">5", {"above": 5}])
def test_at_least_is_written_as_a_number_or_a_comparison(limit):
    assert StopConditions({"env/final": limit}).limits == {"env/final": 5.0}


def test_both_sides_may_end_a_run():
    stop = StopConditions({"env/final": {"above": 10, "below": -10}})
    assert stop.reached({"env/final": 0.0}) is None
    assert stop.reached({"env/final": 11.0}) == "env/final 11 >= 10"
    assert stop.reached({"env/final": -10.0}) == "env/final -10 <= -10"


@pytest.mark.parametrize(
    "limit", ["<= low", "=< 3", "<= 1 2", {"beneath": 1}, {"below": "low"}, {}, "0.1 <= x"]
)
def test_a_comparison_that_is_none_is_one_problem_with_the_forms(limit):
    (problem,) = StopConditions({"env/final": limit}).problems
    assert "not a number with a comparison" in problem.what
    assert "'<= 0.5' (at most)" in problem.hint and "{below: 0.5}" in problem.hint


@pytest.mark.parametrize("key", [names.ENV_STEPS, "training_iteration", names.TIME_TOTAL])
def test_a_counter_below_a_limit_is_reached_at_once_and_refused(key):
    (problem,) = StopConditions({key: "<= 100"}).problems
    assert "<= 100, which is reached before the run begins" in problem.what


def test_time_left_follows_a_metric_that_falls():
    stop = StopConditions({names.RETURN_MEAN: "<= -100"})
    seconds, _, limit = stop.time_left(history(20, rollout__return_mean=lambda i: -2.0 * i))
    assert seconds == pytest.approx(31, abs=1) and limit == Limit(-100.0, True)
    assert stop.time_left(history(20, rollout__return_mean=lambda i: 2.0 * i)) is None


@pytest.mark.parametrize(
    "word",
    [
        "stop_conditions.env/final=<= 0.01",
        "stop_conditions.env/final='<= 0.01'",
        "stop_conditions.env/final=<0.01",
        "stop_conditions.env/final={below: 0.01}",
        "+stop.env/final=<=0.01",
        "stop_conditions.env/final<=0.01",
        "stop_conditions.env/final<0.01",
        "stop_conditions.env/final <= 0.01",
        "+stop.env/final<=0.01",
    ],
)
def test_a_comparison_is_read_from_the_command_line(word):
    experiment = Experiment.compose("cartpole", [word])
    assert problems(experiment) == []
    stop = StopConditions(experiment.section("stop_conditions"))
    assert stop.lower_limits == {"env/final": 0.01}


def test_a_comparison_without_an_equals_sign_is_no_bare_word():
    name, words = split_words(["cartpole", "stop_conditions.run/episodes>5", "stop_conditions.env/final>=2"])
    stop = StopConditions(Experiment.compose(name, words).section("stop_conditions"))
    assert stop.limits["run/episodes"] == 5.0 and stop.limits["env/final"] == 2.0


@pytest.mark.parametrize(
    "override",
    [
        "stop_conditions.env/final={above: 0.9}",
        "stop.env/final={above: 0.9}",
        {"stop_conditions": {"env/final": {"above": 0.9}}},
        {"stop_conditions.env/final": {"above": 0.9}},
    ],
)
def test_a_condition_replaces_the_one_of_the_file(tmp_path, override):
    file = tmp_path / "e.yaml"
    file.write_text("environment: {env: CartPole-v1}\nstop_conditions: {env/final: {below: 0.3}, env/x: 1}\n")
    made = Experiment.compose(str(file), [override])
    assert made.get("stop_conditions.env/final") == {"above": 0.9}
    assert made.get("stop_conditions.env/x") == 1
    assert {where for key, where in made.origins.items() if "env/final" in key} == {"command line"}
    assert made.with_overrides("stop_conditions.env/final={below: 1}").get("stop_conditions.env/final") == {
        "below": 1
    }


def test_a_condition_of_a_preset_file_replaces_the_one_of_its_defaults(tmp_path):
    (tmp_path / "base.yaml").write_text("# @package _global_\nstop_conditions: {env/final: {below: 0.3}}\n")
    file = tmp_path / "mine.yaml"
    rest = "environment: {env: CartPole-v1}\nstop_conditions: {env/final: {above: 2}}\n"
    file.write_text(f"defaults: [base, _self_]\n{rest}")
    made = Experiment.compose(None, config_name="mine", config_dir=tmp_path)
    assert made.get("stop_conditions.env/final") == {"above": 2}
    assert made.origin("stop_conditions.env/final.above").endswith("mine.yaml:3")


@pytest.mark.parametrize("goal", ["<= -50", "{below: -50}", "-50"])
def test_a_comparison_takes_the_place_of_a_presets_goal(goal):
    experiment = Experiment.compose("cartpole", [f"stop_conditions.episode_reward_mean={goal}"])
    stop = StopConditions(experiment.section("stop_conditions"))
    limits = stop.limits if goal == "-50" else stop.lower_limits
    assert limits[names.RETURN_MEAN] == -50.0
    assert (names.RETURN_MEAN in stop.limits) != (names.RETURN_MEAN in stop.lower_limits)


def test_the_old_commands_stop_takes_a_comparison(tmp_path):
    file = tmp_path / "old.yaml"
    stop = "{training_iteration: 3, env_runners/episode_return_mean: '<= -50', env/final: {below: 0.01}}"
    file.write_text(f"x: {{run: PPO, env: CartPole-v1, stop: {stop}}}\n")
    stop = StopConditions(Experiment.compose(str(file)).section("stop_conditions"))
    assert stop.problems == []
    assert stop.lower_limits == {names.RETURN_MEAN: -50.0, "env/final": 0.01}


def test_a_metric_that_is_not_reported_is_named_with_what_is():
    report = {names.EPISODES: 3, "env/final": 1.0, "env/burnt": 2.0}
    wanted = {"stop_conditions.env/finl": "env/finl", "stop_conditions.run/env_steps": names.ENV_STEPS}
    assert names.unreported(wanted, report) == [
        "stop_conditions.env/finl: no report has 'env/finl' so far; did you mean env/final? "
        "(reported: env/burnt, env/final)"
    ]
    (line,) = names.unreported({"checkpoint.checkpoint_score_attribute": "env/score"}, {names.EPISODES: 3})
    assert line.endswith("no report has 'env/score' so far (no env/ metric is reported)")
