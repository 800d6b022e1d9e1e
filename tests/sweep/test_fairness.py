"""Scores stand beside the point that earned them, and nothing is cut or compared where it should not be."""

from __future__ import annotations

import json
import pathlib
import tempfile
import time
import uuid

import pytest

from rayfish import sweep
from rayfish.errors import RayfishError
from rayfish.metrics.stats import mean_ci
from rayfish.sweep.records import DONE, FAILED, STOPPED, Trial, comparable, fold, read_events

COUNTS_IN_THOUSANDS = """
import json, sys, time
for i in range(1, 9):
    time.sleep(0.02)
    print(json.dumps({"step": 2048 * i, "loss": float(sys.argv[1]) / i}), flush=True)
"""
ONE_REPORT_THEN_SLEEP = """
import json, sys, time
x = float(sys.argv[1])
print(json.dumps({"step": 1, "score": x}), flush=True)
time.sleep(1 if x > 0.5 else 60)
"""


def counting(config):
    """Goes on from its checkpoint; the score says with which x each step was made."""
    kept = sweep.checkpoint()
    step = int((kept / "step").read_text()) if kept else 0
    attempt = uuid.uuid4().hex
    while step < config["steps"]:
        step += 1
        wait_for_the_others(attempt, step, config)
        folder = None
        if step % config["every"] == 0:
            folder = pathlib.Path(tempfile.mkdtemp())
            (folder / "step").write_text(str(step))
        sweep.report(score=config["x"] * 100 + step, checkpoint=folder)


def wait_for_the_others(attempt, step, config):
    """Trials run in step: how early a machine starts one of them decides nothing."""
    place = pathlib.Path(config["meeting"])
    (place / f"{attempt}-{step:03d}").touch()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        arrived = [file.name.split("-") for file in place.iterdir()]
        if len({other for other, at in arrived if int(at) >= step - 1}) >= config["trials"]:
            return
        time.sleep(0.02)
    raise TimeoutError(f"only these came to step {step - 1}: {sorted(arrived)}")


@pytest.fixture
def together(tmp_path):
    """What `counting` needs besides `x` and `steps`, for so many trials."""
    (tmp_path / "meeting").mkdir()
    return lambda trials: {"meeting": str(tmp_path / "meeting"), "trials": trials}


@pytest.mark.parametrize(("steps", "every", "synch"), [(9, 1, True), (18, 1, False), (18, 5, False)])
def test_in_a_population_each_score_was_earned_with_the_parameters_beside_it(
    tune, together, steps, every, synch
):
    result = tune(
        counting,
        {"x": "grid(0.1,0.2,0.8,0.9)", "steps": steps, "every": every, **together(4)},
        scheduler="pbt",
        seed=3,
        resources={"cpu": 0.5},
        scheduler_config={"perturbation_interval": 4, "quantile_fraction": 0.5, "synch": synch},
    )
    events = list(read_events(result.folder / "trials.jsonl"))
    assert any(event["event"] == "move" for event in events)
    for trial in result.trials:
        assert trial.state == DONE
        assert trial.value == pytest.approx(trial.params["x"] * 100 + trial.step, abs=1e-6)
        after = [e["event"] for e in events if e.get("trial") == trial.number]
        assert after[-1] == "end"
    for event in events:
        if event["event"] == "save":
            assert int(pathlib.Path(event["saved"]).name) == event["step"]


def test_a_population_that_never_came_to_an_interval_says_so(tune, together, capsys):
    tune(counting, {"x": "grid(0.1,0.9)", "steps": 2, "every": 1, **together(2)}, scheduler="pbt")
    assert "pbt: no trial went on from another one; it decides every 10" in capsys.readouterr().out


def test_a_population_without_checkpoints_gets_the_advice_to_save_them(tune, together, capsys):
    # At step 8 both have a score and neither has ended, whichever comes first; at the last step one may have.
    space = {"x": "grid(0.1,0.9)", "steps": 13, "every": 100, **together(2)}
    settings = {"perturbation_interval": 4, "quantile_fraction": 0.5}
    tune(counting, space, scheduler="pbt", scheduler_config=settings)
    told = capsys.readouterr().out
    assert "pbt: no trial went on from another one: they save no checkpoint; save one with" in told
    assert "train longer" not in told


@pytest.mark.parametrize(("steps", "synch"), [(4, True), (8, True), (8, False)])
def test_only_moves_that_take_effect_are_announced(tune, together, capsys, steps, synch):
    result = tune(
        counting,
        {"x": "grid(0.1,0.2,0.8,0.9)", "steps": steps, "every": 1, **together(4)},
        scheduler="pbt",
        resources={"cpu": 0.5},
        scheduler_config={"perturbation_interval": 4, "quantile_fraction": 0.5, "synch": synch},
    )
    told = capsys.readouterr().out
    moves = sum(len(trial.moves) for trial in result.trials)
    assert told.count("goes on from trial") == moves
    assert ("no trial went on from another one" in told) == (moves == 0)
    assert all(trial.step == steps for trial in result.trials)


def test_a_trial_that_moved_and_said_no_more_has_the_point_of_its_score():
    events = [
        {"event": "new", "trial": 1, "name": "a", "params": {"x": 1}, "point": 1},
        {"event": "start", "trial": 1, "time": 0.0},
        {"event": "report", "trial": 1, "step": 4, "value": 10.0},
        {"event": "move", "trial": 1, "step": 3, "source": 2, "params": {"x": 9}},
        {"event": "end", "trial": 1, "time": 1.0, "state": DONE},
    ]
    trial = fold(events)[1]
    assert (trial.params, trial.value, trial.step, trial.moves) == ({"x": 1}, 10.0, 4, [])
    earlier = [{**events[3], "params": {"x": 7}}, {"event": "report", "trial": 1, "step": 4, "value": 11.0}]
    twice = fold([*events[:3], *earlier, *events[3:]])[1]
    assert (twice.params, twice.earned_with, len(twice.moves)) == ({"x": 7}, {"x": 7}, 1)


def test_asha_lets_programs_run_whatever_they_count(tune, tmp_path):
    (tmp_path / "big.py").write_text(COUNTS_IN_THOUSANDS)
    program = {"command": f"python {tmp_path}/big.py {{lr}}"}
    result = tune(program, {"lr": "grid(0.1,0.2)"}, metric="loss", mode="min", scheduler="asha")
    assert result.trials[0].state == DONE
    assert all(trial.step >= 5 for trial in result.trials)  # reports, not the program's own steps
    assert result.best_value == pytest.approx(0.1 / 8)


def test_a_trial_that_came_as_far_as_any_may_is_done_not_stopped_early(tune):
    def train(config):
        for step in range(1, 21):
            yield config["x"] * step

    result = tune(
        train,
        {"x": "grid(4,3,2,1)"},
        scheduler="asha",
        max_concurrent=1,
        scheduler_config={"max_t": 9, "grace_period": 3},
    )
    assert [(trial.state, trial.step) for trial in result.trials] == [
        (DONE, 9), (STOPPED, 3), (STOPPED, 3), (STOPPED, 3)
    ]  # fmt: skip
    longer = tune(train, {"x": "grid(4)"}, scheduler="asha")
    assert [(trial.state, trial.step) for trial in longer.trials] == [(DONE, 20)]


def test_a_goal_ends_programs_at_once(tune, tmp_path):
    (tmp_path / "p.py").write_text(ONE_REPORT_THEN_SLEEP)
    began = time.monotonic()
    program = {"command": f"python {tmp_path}/p.py {{x}}"}
    tune(program, {"x": "grid(0.1,0.9)"}, metric="score", goal=0.5, resources={"cpu": 0.5})
    assert time.monotonic() - began < 40


def test_a_goal_that_repetitions_reached_holds_after_a_resume(tune):
    words = {"num_samples": 12, "repeat": 2, "method": "random", "max_concurrent": 2}
    first = tune(lambda config: config["x"], {"x": "uniform(0,1)"}, goal=0.2, **words)
    again = tune(lambda config: config["x"], resume=first.folder)
    assert len(again.trials) == len(first.trials)


def repetition(state: str, curve: list[tuple[float, float]]) -> Trial:
    return Trial(1, "a", {}, 1, state=state, value=curve[-1][1], curve=curve, step=curve[-1][0])


def test_repetitions_are_compared_at_a_step_that_all_have_reached():
    early, late = repetition(STOPPED, [(1, 1.0), (3, 2.0)]), repetition(DONE, [(1, 1.5), (3, 3.0), (9, 9.0)])
    assert comparable([early, late], 1.0, "last") == [2.0, 3.0]
    assert comparable([late, late], 1.0, "last") == [9.0, 9.0]
    assert comparable([early, repetition(FAILED, [(1, 5.0)])], 1.0, "last") == [2.0]
    falling = repetition(DONE, [(1, 5.0), (3, 4.0), (9, 8.0)])
    assert comparable([early, falling], 1.0, "best") == [2.0, 5.0]


def test_a_point_of_which_one_repetition_was_stopped_is_shown_as_stopped(tune):
    def train(config):
        for step in range(1, 10):
            yield step * config["x"] * (1 + config["seed"])

    result = tune(
        train,
        {"x": "grid(2,1)"},
        repeat=2,
        scheduler="asha",
        max_concurrent=1,
        scheduler_config={"max_t": 9, "grace_period": 3},
    )
    points = {point.number: point for point in result.view.points()}
    states = {number: {trial.state for trial in point.trials} for number, point in points.items()}
    assert STOPPED in states[2]
    assert points[2].state == STOPPED
    assert points[2].value == pytest.approx(sum(3 * (1 + t.seed) for t in points[2].trials) / 2)


def test_the_interval_of_a_few_seeds_is_students():
    mean, low, high = mean_ci([29.22, 30.23])
    assert (mean, high - mean) == (pytest.approx(29.725), pytest.approx(6.4163, abs=1e-3))
    assert low == pytest.approx(2 * mean - high)
    assert mean_ci([3.0]) == (3.0, 3.0, 3.0)


def test_sample_from_may_stand_before_what_it_asks_for(tune):
    result = tune(
        lambda config: config["b"], {"b": {"type": "sample_from", "values": [double]}, "a": "grid(1,2)"}
    )
    assert [trial.params["b"] for trial in result.trials] == [2, 4]
    with pytest.raises(RayfishError, match="sample_from\\(broken\\) failed with KeyError"):
        tune(lambda config: 1, {"a": "grid(1,2)", "b": {"type": "sample_from", "values": [broken]}})


def double(config):
    return 2 * config["a"]


def broken(config):
    return config["nothing"]


def test_odd_texts_and_odd_metrics_are_one_trials_matter(tune):
    import threading

    def train(config):
        if config["x"] == 1:
            raise ValueError("bad \udcff name")
        sweep.report(score=config["x"], lock=threading.Lock())

    result = tune(train, {"x": "grid(1,2)"})
    assert [trial.state for trial in result.trials] == [FAILED, DONE]
    assert "bad" in result.trials[0].error


def test_the_best_configuration_is_what_the_function_was_given(tune):
    def train(config):
        return {"score": config["a"]["b"], "other": -config["a"]["b"]}

    result = tune(train, {"a": {"b": "grid(1,2)"}, "c": 4})
    assert result.best_config == {"a": {"b": 2}, "c": 4}
    assert result.get_best_config("other", "max") == {"a": {"b": 1}, "c": 4}


def test_a_killed_trial_repeats_no_report_it_had_taken_over(tmp_path):
    from rayfish.sweep.function import COUNT, FunctionTarget
    from rayfish.sweep.task import Resources, Task

    lines = [*range(1, 4), *range(11, 18)]
    folder = tmp_path / "trial"
    (folder / "checkpoints" / "000015").mkdir(parents=True)
    (folder / "checkpoint").symlink_to("checkpoints/000015")
    (folder / "metrics.jsonl").write_text("".join(json.dumps({COUNT: n}) + "\n" for n in lines) + '{"tor')
    task = Task(1, "trial", {}, folder, resume=True, known_until=(COUNT, 13))
    work = FunctionTarget(lambda config: 1.0, {}, Resources(), "score").begin(task)
    assert [line[COUNT] for line in work.missed(task.known_until)] == [14, 15]
    kept = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)[COUNT] for line in kept] == lines[:8]
    work.end(STOPPED, "")
