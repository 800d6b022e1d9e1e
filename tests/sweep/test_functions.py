"""Tuning a function: how it may report, what becomes of its faults, and what is left on disk."""

from __future__ import annotations

import csv
import functools
import json
import math
import time

import pytest

import rayfish
from rayfish import sweep
from rayfish.errors import RayfishError
from rayfish.sweep.records import DONE, FAILED, STOPPED


def distance(config):
    return math.sqrt((config["x"] ** 2 + config["y"] ** 2) / 2)


GRID = {"x": "grid(-1,-0.5,0,0.5,1)", "y": "grid(-1,-0.5,0,0.5,1)"}


def test_a_grid_tries_every_point_once_and_finds_the_best(tune):
    result = tune(distance, GRID, mode="min", resources={"cpu": 0.5})
    assert result.best_config == {"x": 0, "y": 0}
    assert result.best_value == 0.0
    points = {(t.params["x"], t.params["y"]) for t in result.trials}
    assert len(result.trials) == len(points) == 25
    assert all(t.state == DONE for t in result.trials)


def test_what_is_left_on_disk_says_it_all(tune):
    def train(config):
        print("learning rate", config["optimizer"]["lr"])
        return {"score": config["optimizer"]["lr"], "depth": config["depth"]}

    result = tune(train, {"optimizer.lr": "grid(0.1,0.2)", "depth": 3})
    events = [json.loads(line) for line in (result.folder / "trials.jsonl").read_text().splitlines()]
    assert [e["event"] for e in events if e.get("trial") == 1] == ["new", "start", "report", "end"]
    folder = result.folder / "trials" / result.trials[1].name
    assert "learning rate 0.2" in (folder / "log.txt").read_text()
    assert json.loads((folder / "params.json").read_text()) == {"optimizer": {"lr": 0.2}, "depth": 3}
    assert json.loads((folder / "metrics.jsonl").read_text()) == {
        "score": 0.2,
        "depth": 3,
        "training_iteration": 1,
    }
    assert (result.folder / "best").resolve() == folder
    assert "lr: 0.2" in (result.folder / "best.yaml").read_text()
    assert (result.folder / "report.html").stat().st_size > 10_000
    table = list(csv.DictReader((result.folder / "trials.csv").open()))
    assert [int(row["trial"]) for row in table] == [trial.number for trial in result.trials]
    read = rayfish.load_sweep(result.folder)
    assert (read.best_config, read.best_value) == (result.best_config, result.best_value)
    assert list(result.rows())[1]["optimizer.lr"] == 0.2


def by_return(config):
    return config["x"]


def by_dictionary(config):
    return {"loss": config["x"]}


def by_report(config):
    sweep.report(score=config["x"] - 1)
    sweep.report({"score": config["x"]})


def by_yield(config):
    yield {"score": 0.0}
    yield config["x"]


def by_name(x):
    return x


@pytest.mark.parametrize("function", [by_return, by_dictionary, by_report, by_yield, by_name])
def test_a_function_may_report_in_many_ways(tune, function):
    result = tune(function, {"x": "grid(1.5,2.5)"})
    assert [t.value for t in result.trials] == [1.5, 2.5]


def test_functions_written_for_ray_tune_run_as_they_are(tune):
    from ray import tune as ray_tune

    def old(config):
        ray_tune.report(score=config["x"])  # as of Ray 1.x

    def new(config):
        ray_tune.report({"score": config["x"]})

    for function in (old, new):
        result = tune(function, {"x": ray_tune.grid_search([1, 3, 2])}, metric="score")
        assert result.get_best_config(metric="score", mode="min") == {"x": 1}
        assert result.best_config == {"x": 3}


def test_a_failing_trial_is_one_failing_trial(tune, capsys):
    def train(config):
        if config["x"] == 2:
            raise ValueError("two is too many")
        return config["x"]

    result = tune(train, {"x": "grid(1,2,3)"})
    assert [t.state for t in result.trials] == [DONE, FAILED, DONE]
    assert "ValueError: two is too many" in result.trials[1].error
    assert "test_functions.py" in result.trials[1].error
    assert result.best_config == {"x": 3}
    shown = capsys.readouterr().out
    assert "trial 2 failed" in shown and "two is too many" in shown


def test_retries_are_counted_and_a_trial_may_come_through(tune, tmp_path):
    def train(config):
        tries = tmp_path / f"tries-{config['x']}"
        tries.write_text((tries.read_text() if tries.exists() else "") + "x")
        if len(tries.read_text()) < config["x"]:
            raise RuntimeError("not yet")
        return config["x"]

    result = tune(train, {"x": "grid(1,2,4)"}, max_failures=2)
    assert [(t.state, t.attempt) for t in result.trials] == [(DONE, 1), (DONE, 2), (FAILED, 3)]


def test_a_worker_that_dies_takes_one_trial_with_it(tune):
    def train(config):
        import os

        if config["x"] == 2:
            os._exit(7)
        return config["x"]

    result = tune(train, {"x": "grid(1,2,3)"}, max_concurrent=1)
    assert [t.state for t in result.trials] == [DONE, FAILED, DONE]
    assert "its process was killed or crashed" in result.trials[1].error


def test_a_trial_that_never_reports_the_metric_says_what_it_reported(tune):
    result = tune(lambda config: {"loss": 1.0, "accuracy": 0.5}, {"x": "grid(1,2)"}, metric="score")
    assert all(t.state == FAILED for t in result.trials)
    assert "without reporting 'score'" in result.trials[0].error
    assert result.trials[0].details == "it reported accuracy, loss, training_iteration"
    with pytest.raises(RayfishError, match="no trial of"):
        _ = result.best_config


def test_a_metric_that_is_not_reported_lists_once_what_is(tune, capsys):
    def train(config):
        for step in range(3):
            yield {"loss": step, "val/error": 1.0}

    tune(train, {"x": "grid(1,2)"}, metric="reward", max_concurrent=1)
    told = " ".join(capsys.readouterr().out.split())
    assert told.count("reports no 'reward' so far: it reports loss,") == 1
    assert told.count("val/error") == 1
    assert told.count("next step: name a metric that it reports") == 2  # at the trial, and in the summary


def test_a_mistyped_metric_is_reported_with_the_first_report_and_the_sweep_ends_with_the_first_trial(
    tune, capsys
):
    def train(config):
        for step in range(2):
            yield {"accuracy": step}

    result = tune(train, {"x": "grid(1,2,3)"}, metric="acuracy", max_concurrent=1)
    told = capsys.readouterr().out
    assert "trial 1 reports no 'acuracy' so far: did you mean search.metric=accuracy?" in told
    assert "did you mean search.metric=accuracy?" in result.trials[0].error
    assert len(result.trials) == 1 and "left" not in told


def test_repetitions_are_reported_as_one_point(tune):
    def train(config):
        return config["x"] + config["seed"]

    result = tune(train, {"x": "grid(0,10)"}, repeat=3)
    assert len(result.trials) == 6
    points = result.view.points()
    assert [(p.params["x"], p.value) for p in points] == [(10, 11.0), (0, 1.0)]
    assert points[0].low < points[0].value < points[0].high
    assert {t.seed for t in result.trials} == {0, 1, 2}


def test_a_goal_ends_the_sweep(tune):
    def train(config):
        for step in range(100):
            sweep.report(score=step * config["x"])

    result = tune(train, {"x": "uniform(1,2)"}, goal=20, num_samples=50, max_concurrent=1)
    assert len(result.trials) == 1
    assert result.trials[0].state == STOPPED
    assert 20 <= result.trials[0].value < 22
    assert "reached the goal" in result.trials[0].why


def test_a_time_budget_ends_the_sweep(tune):
    def train(config):
        for _ in range(1000):
            time.sleep(0.05)
            sweep.report(score=config["x"])

    started = time.monotonic()
    result = tune(train, {"x": "uniform(0,1)"}, time_budget_s=2, num_samples=50)
    assert time.monotonic() - started < 30
    assert {t.state for t in result.trials} == {STOPPED}
    assert "time budget" in result.trials[0].why


def test_a_stopped_function_does_not_run_on(tune, tmp_path):
    def train(config):
        try:
            for step in range(1000):
                sweep.report(score=step)
        except BaseException as error:
            (tmp_path / "ended").write_text(type(error).__name__)
            raise

    tune(train, {"x": "grid(1)"}, goal=5)
    assert (tmp_path / "ended").read_text() == "TrialEnded"


def test_a_function_by_its_import_path(tune, workdir):
    (workdir / "mine_path.py").write_text("def score(config):\n    return -(config['x'] - 2) ** 2\n")
    assert tune("mine_path.py:score", {"x": "grid(1,2,3)"}).best_config == {"x": 2}
    assert tune("mine_path:score", {"x": "grid(1,2,3)"}).best_config == {"x": 2}


def test_files_and_words_of_the_command_line_do_the_same_in_python(tune, workdir):
    (workdir / "mine_sum.py").write_text("def score(config):\n    return config['x'] + config['y']\n")
    (workdir / "sweep.yaml").write_text(
        "function: mine_sum.py:score\nconfig: {y: 10}\ntunables: {x: 'grid(1,2)'}\n"
    )
    first = tune("sweep.yaml", None, "y=20")
    assert first.folder.parent.name == "tune-sweep"
    assert [t.value for t in first.trials] == [21, 22]
    assert tune(None, None, "search.num_samples=2", resume=first.folder).trials[-1].number == 4
    with pytest.raises(RayfishError, match="a resumed sweep keeps its experiment: y cannot change"):
        tune(None, None, "y=30", resume=first.folder)


def test_more_than_the_machine_has_is_refused_with_the_arithmetic(tune):
    with pytest.raises(RayfishError) as error:
        tune(by_return, {"x": "grid(1,2)"}, resources={"cpu": 64})
    assert "each trial needs 64 CPUs; this machine has 4 CPUs" in str(error.value)


def test_nothing_to_search_is_reported(tune):
    with pytest.raises(RayfishError, match="nothing to search"):
        tune(by_return, {"x": 3})


def test_starting_points_are_tried_first(tune):
    first = tune(by_return, {"x": "uniform(0,1)"}, num_samples=4, method="random")
    second = tune(
        by_return, {"x": "uniform(0,1)"}, num_samples=3, start_from=[str(first.folder), {"x": 0.25}]
    )
    best = sorted((t.value for t in first.trials), reverse=True)
    assert [t.value for t in second.trials] == [0.25, *best[:2]]  # what was given itself comes first
    third = tune(by_return, {"x": "uniform(0,1)"}, num_samples=2, start_from=[{"x": 0.25}])
    assert third.trials[0].params == {"x": 0.25}


def with_default(config, data=None):
    return config["x"]


@pytest.mark.parametrize("function", [with_default, functools.partial(with_default, data=1)])
def test_a_first_parameter_that_is_not_in_the_space_gets_the_whole_configuration(tune, function):
    assert [t.value for t in tune(function, {"x": "grid(1,2)"}).trials] == [1, 2]


def test_numbers_of_torch_and_numpy_are_scores(tune):
    def train(config):
        import numpy
        import torch

        return {"score": torch.tensor(config["x"]) if config["x"] > 1 else numpy.float32(config["x"])}

    assert [t.value for t in tune(train, {"x": "grid(0.5,1.5)"}).trials] == [0.5, 1.5]


def test_trials_do_not_change_each_others_configuration(tune):
    def train(config):
        config["options"]["count"] += 1
        return config["options"]["count"] + 10 * ("drop" in config["options"])

    space = {"kind": "grid(a,b,a,b)", "options.drop": "choice(1,2) if kind=a"}
    result = tune(train, space, config={"options": {"count": 0}}, max_concurrent=1)
    assert [t.value for t in result.trials] == [11, 1, 11, 1]


def test_a_score_that_ends_as_no_number_is_no_score(tune):
    def train(config):
        sweep.report(score=0.9)
        sweep.report(score=config["x"])

    result = tune(train, {"x": {"grid_search": [0.1, float("nan")]}})
    assert [t.state for t in result.trials] == [DONE, FAILED]
    assert "ended as nan" in result.trials[1].error
    assert result.best_value == 0.1


def test_a_step_of_the_functions_own_does_not_hide_its_reports(tune):
    def train(config):
        for epoch in range(3):
            for step in range(2):
                sweep.report(score=10 * epoch + step, step=step)

    result = tune(train, {"x": "grid(1)"})
    assert result.trials[0].value == 21
    assert [step for step, _ in result.trials[0].curve] == [1, 2, 3, 4, 5, 6]


def test_logging_and_kept_streams_survive_from_trial_to_trial(tune):
    def train(config):
        import logging

        logging.basicConfig()
        logging.getLogger("mine").warning("trial %s", config["x"])
        return config["x"]

    result = tune(train, {"x": "grid(1,2,3)"}, max_concurrent=1)
    for trial in result.trials:
        log = (result.folder / "trials" / trial.name / "log.txt").read_text()
        assert f"trial {trial.params['x']}" in log
        assert "Logging error" not in log


def test_reports_through_names_of_ray_tune_anywhere_arrive(tune):
    def helper(value):
        from ray.tune import report

        report({"score": value})

    def train(config):
        helper(config["x"])

    assert tune(train, {"x": "grid(1,2)"}).best_value == 2


def test_a_function_that_swallows_its_end_does_not_write_into_the_next_trial(tune):
    def train(config):
        step = 0
        while step < 400:
            step += 1
            try:
                sweep.report(score=100 * config["x"] + step / 1000)
            except BaseException:
                import time as clock

                clock.sleep(0.05)

    result = tune(
        train,
        {"x": "grid(1,2)"},
        max_concurrent=1,
        scheduler="asha",
        scheduler_config={"max_t": 2, "grace_period": 1},
    )
    for trial in result.trials:
        lines = (result.folder / "trials" / trial.name / "metrics.jsonl").read_text().splitlines()
        assert {json.loads(line)["score"] // 100 for line in lines} == {trial.params["x"]}


def test_an_unpicklable_function_is_reported_before_a_folder_is_made(tune, workdir):
    import threading

    lock = threading.Lock()

    def train(config):
        with lock:
            return 1

    with pytest.raises(RayfishError, match="cannot be sent to worker processes"):
        tune(train, {"x": "grid(1,2)"})
    assert not list(workdir.glob("runs/*/*/sweep.json"))


def test_a_grid_beside_a_range_is_gone_through(tune):
    result = tune(by_return, {"x": "grid(1,2,3)", "y": "uniform(0,1)"}, num_samples=2)
    assert sorted(t.params["x"] for t in result.trials) == [1, 1, 2, 2, 3, 3]
    assert len({t.params["y"] for t in result.trials}) == 6
