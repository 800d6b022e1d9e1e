"""RLlib's nested results become flat lines whose numbers mean what their names say."""

from __future__ import annotations

import json
import math

import pytest

from rayfish.metrics import names
from rayfish.metrics.collect import WINDOW, Collector, evaluation_metrics
from tests.metrics.recorded import NAMES, lines, results


def sampled(returns, *, steps=10, lengths=None, **extra):
    """A result with these finished episodes."""
    report = {"returns": returns, "lengths": lengths or [5] * len(returns)}
    runners = {"num_env_steps_sampled": steps, "num_episodes": len(returns), "rayfish": report | extra}
    return {"env_runners": runners, "time_this_iter_s": 2.0}


@pytest.mark.parametrize("name", NAMES)
def test_lines_of_real_runs_are_flat_finite_and_known(name):
    for line in lines(name):
        assert json.loads(json.dumps(line)) == line
        for key, value in line.items():
            assert names.is_known(key), key
            assert math.isfinite(value), key


@pytest.mark.parametrize("name", NAMES)
def test_own_step_counter_equals_rllibs(name):
    for line, result in zip(lines(name), results(name), strict=True):
        assert line[names.ENV_STEPS] == result["num_env_steps_sampled_lifetime"]


def test_return_mean_is_the_mean_of_the_last_hundred_episodes():
    collector = Collector()
    collector.update(sampled([1.0] * 90), 0.0)
    line = collector.update(sampled([5.0] * 30), 1.0)
    assert WINDOW == 100
    assert line[names.RETURN_MEAN] == pytest.approx((70 * 1.0 + 30 * 5.0) / 100)
    assert (line[names.RETURN_MIN], line[names.RETURN_MAX]) == (1.0, 5.0)
    assert line[names.EPISODES] == 120


def test_return_is_absent_until_an_episode_has_ended():
    for line in lines("ppo_no_episode"):
        assert names.RETURN_MEAN not in line
        assert names.LENGTH_MEAN not in line
        assert line[names.EPISODES] == 0


def test_a_series_of_one_item_comes_as_the_bare_item():
    assert not isinstance(results("sac")[0]["env_runners"]["rayfish"]["returns"], list)
    assert [line[names.EPISODES] for line in lines("sac")] == [1, 2]


def test_a_repeated_series_is_not_counted_again():
    collector = Collector()
    collector.update(sampled([3.0, 4.0]), 0.0)
    stale = sampled([3.0, 4.0])
    stale["env_runners"]["num_episodes"] = 0
    line = collector.update(stale, 1.0)
    assert line[names.EPISODES] == 2
    assert line[names.RETURN_MEAN] == 3.5


def test_evaluation_appears_only_in_iterations_that_evaluated():
    first, second, third = lines("ppo_local")
    assert "evaluation" in results("ppo_local")[2]  # RLlib repeats the old one
    assert names.EVAL_RETURN_MEAN not in first
    assert names.EVAL_RETURN_MEAN not in third
    assert second[names.EVAL_RETURN_MEAN] == pytest.approx(27.4)
    assert second[names.EVAL_CI_LOW] < 27.4 < second[names.EVAL_CI_HIGH]
    assert second[names.EVAL_EPISODES] == 5


def test_what_environments_report_in_evaluation_is_kept_apart():
    assert lines("ppo_local")[1]["eval/env/height"] == 1.5


def test_evaluation_metrics_of_no_finished_episode_are_none():
    assert evaluation_metrics({"env_runners": {"num_episodes": 0}}) == {}


def test_learner_numbers_are_kept_and_bookkeeping_is_not():
    line = lines("ppo_local")[-1]
    assert line["learn/default_policy/policy_loss"] == pytest.approx(
        results("ppo_local")[-1]["learners"]["default_policy"]["policy_loss"]
    )
    learned = [key for key in line if key.startswith("learn/")]
    assert not [key for key in learned if "num_" in key or "throughput" in key or "__all_modules__" in key]


def test_each_policy_of_a_multi_agent_run_has_its_return():
    line = lines("ppo_multi_agent")[-1]
    assert line[names.policy_return("p0")] == line[names.policy_return("p1")] == 12.0
    assert not [key for key in lines("ppo_local")[-1] if key.startswith("rollout/default_policy")]


def test_what_callbacks_and_environments_report_is_under_env():
    line = lines("ppo_local")[-1]
    assert {key: value for key, value in line.items() if key.startswith("env/")} == {
        "env/users_own": 3.5,
        "env/height": 1.5,
    }


def test_rllibs_own_runner_numbers_are_not_taken_for_the_users():
    for name in ("dqn", "sac", "impala", "ppo_multi_agent"):
        found = {key for line in lines(name) for key in line if key.startswith("env/")}
        assert found <= {"env/users_own", "env/height"}


def test_nested_and_serial_user_values_are_flattened():
    result = sampled([1.0])
    result["env_runners"] |= {"fire": {"burnt": 3.0, "saved": [1.0, 2.0]}, "label": "x", "gone": math.nan}
    line = Collector().update(result, 0.0)
    assert line["env/fire/burnt"] == 3.0
    assert line["env/fire/saved"] == 1.5
    assert "env/label" not in line
    assert "env/gone" not in line


def test_counters_and_windows_survive_a_resume():
    whole, before = Collector(), Collector()
    for collector in (whole, before):
        collector.update(sampled([1.0] * 60, height=[2.0]), 10.0)
    after = Collector()
    after.load_state(json.loads(json.dumps(before.state())))
    expected = whole.update(sampled([2.0] * 70), 12.0)
    resumed = after.update(sampled([2.0] * 70), 999.0)  # another process, another clock
    assert resumed == expected
    assert after.state() == whole.state()


def test_total_time_counts_what_lies_between_iterations():
    collector = Collector()
    collector.update(sampled([]), 100.0)
    line = collector.update(sampled([]), 105.0)  # 2 s of training, 3 s of writing a checkpoint
    assert line[names.TIME_TOTAL] == pytest.approx(7.0)
    assert line[names.TIME_ITERATION] == 2.0
    assert line[names.STEPS_PER_S] == pytest.approx(5.0)


def test_lost_workers_are_counted_against_those_that_were_asked_for():
    collector = Collector(runners=3)
    faults = {"num_healthy_workers": 2, "num_remote_worker_restarts": 4}
    line = collector.update(sampled([]) | {"fault_tolerance": faults}, 0.0)
    assert line[names.WORKERS_LOST] == 1
    assert line[names.WORKER_RESTARTS] == 4


def test_workers_are_not_mentioned_where_there_are_none():
    assert names.WORKERS_LOST not in lines("ppo_local")[-1]
    assert lines("ppo_two_runners")[-1][names.WORKERS_LOST] == 0


def test_steps_in_train_batches_are_counted_by_rllibs_counter_where_it_is_right():
    replayed = Collector(trained="num_env_steps_trained")
    found = [replayed.update(result, 0.0)[names.TRAINED_STEPS] for result in results("dqn")]
    assert found == [32, 7264, 14496]
    assert [line[names.TRAINED_STEPS] for line in lines("ppo_multi_agent")] == [500, 1000]
