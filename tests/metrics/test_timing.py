"""Where the time went, although RLlib's timers remember the first iterations for very long."""

from __future__ import annotations

import pytest

from rayfish.metrics import names
from rayfish.metrics.timing import EMA_COEFFICIENT, TimeShares, Unsmoothed, bottleneck
from tests.metrics.recorded import lines, results


def smooth(values):
    average = values[0]
    for value in values[1:]:
        average = EMA_COEFFICIENT * value + (1 - EMA_COEFFICIENT) * average
    return average


def test_the_smoothing_is_taken_apart_again():
    timers = Unsmoothed()
    seen = [30.0]
    assert timers.recent("t", smooth(seen), 1) == 30.0
    for value in (2.0, 1.0, 4.0):
        seen.append(value)
        assert timers.recent("t", smooth(seen), 1) == pytest.approx(value)


def test_the_mean_of_many_values_since_the_last_look_is_found():
    timers = Unsmoothed()
    seen = [9.0]
    timers.recent("t", smooth(seen), 1)
    seen += [0.5] * 200
    assert timers.recent("t", smooth(seen), 200) == pytest.approx(0.5)


def test_a_timer_that_is_missing_or_runs_backwards_counts_as_nothing():
    timers = Unsmoothed()
    assert timers.recent("t", None, 1) == 0.0
    timers.recent("t", 5.0, 1)
    assert timers.recent("t", 0.1, 1) == 0.0


def test_a_slow_first_iteration_does_not_blur_the_second():
    first, second = lines("ppo_local")[:2]
    timers = results("ppo_local")[1]["timers"]
    raw = timers["learner_update_timer"] / timers["training_iteration"]
    assert raw > 0.8  # what RLlib still says: the first update took four seconds
    assert first[names.LEARN_SHARE] > 0.8
    assert second[names.LEARN_SHARE] == pytest.approx(0.31, abs=0.03)
    assert bottleneck(second) == "inference"


@pytest.mark.parametrize("name", ["ppo_local", "ppo_two_runners", "dqn", "sac", "ppo_multi_agent"])
def test_shares_of_a_synchronous_run_account_for_the_iteration(name):
    for line in lines(name)[1:]:
        shares = [
            value for name, value in line.items() if name.startswith("time/") and name.endswith("_share")
        ]
        assert all(0.0 <= share <= 1.0 for share in shares)
        assert sum(shares) <= 1.0 + 1e-9
    assert sum(shares) > 0.3


def test_evaluation_has_its_share_only_when_it_ran():
    first, second, third = lines("ppo_local")
    assert names.EVAL_SHARE not in first
    assert names.EVAL_SHARE not in third
    assert second[names.EVAL_SHARE] == pytest.approx(0.109, abs=0.005)


def test_speed_leaves_evaluation_out():
    second = lines("ppo_local")[1]
    whole = 1003 / second[names.TIME_ITERATION]
    assert second[names.STEPS_PER_S] == pytest.approx(whole / (1 - second[names.EVAL_SHARE]))


def test_waiting_for_remote_runners_counts_as_sync():
    result = {
        "timers": {"env_runner_sampling_timer": 1.0, "learner_update_timer": 0.5},
        "env_runners": {"sample": 0.4, "env_step_timer": 0.003, "rlmodule_inference_timer": 0.001},
    }
    shares = TimeShares().update(result, 2.0)
    assert shares[names.SYNC_SHARE] == pytest.approx(0.3)
    assert shares[names.ENV_SHARE] == pytest.approx(0.15)
    assert shares[names.INFERENCE_SHARE] == pytest.approx(0.05)
    assert shares[names.LEARN_SHARE] == pytest.approx(0.25)


def test_connectors_count_as_inference():
    runners = {
        "sample": 1.0,
        "env_step_timer": 1.0,
        "env_to_module_connector": {"connector_pipeline_timer": 3.0},
    }
    shares = TimeShares().update({"timers": {}, "env_runners": runners}, 1.0)
    assert shares[names.INFERENCE_SHARE] == pytest.approx(0.75)


def test_an_asynchronous_run_reports_each_part_on_its_own_clock():
    line = lines("impala")[-1]
    busy = line[names.ENV_SHARE] + line[names.INFERENCE_SHARE]
    assert busy + line[names.SYNC_SHARE] == pytest.approx(1.0)
    assert line[names.LEARN_SHARE] == pytest.approx(0.06, abs=0.01)


def test_the_bottleneck_is_the_largest_share_in_words():
    assert bottleneck({names.ENV_SHARE: 0.6, names.LEARN_SHARE: 0.3}) == "environment"
    assert bottleneck({names.ENV_SHARE: 0.2, names.SYNC_SHARE: 0.3}) == "sync"
    assert bottleneck({}) == ""
