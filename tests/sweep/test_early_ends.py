"""Schedulers in real sweeps: bad trials end early, waiting ones wake, populations copy each other."""

from __future__ import annotations

import json
import time

import pytest

from rayfish import sweep
from rayfish.run.directory import RunDirectory
from rayfish.sweep.records import DONE, FAILED, STOPPED, read_events


def climb(config):
    """A score that rises by `slope` with each step; goes on where its checkpoint was left."""
    import pathlib
    import tempfile

    begun, total = 0, 0.0
    if sweep.checkpoint() is not None:
        begun, total = json.loads((sweep.checkpoint() / "state.json").read_text())
    for step in range(begun + 1, 28):
        total += config["slope"]
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "state.json").write_text(json.dumps([step, total]))
            sweep.report({"score": total}, checkpoint=folder)


SLOPES = {"slope": {"grid_search": [0.7, 0.9, 0.5, 0.1, 0.8, 0.2, 0.6, 0.3, 0.4]}}


@pytest.mark.parametrize(
    ("scheduler", "settings"),
    [
        ("asha", {"max_t": 27, "grace_period": 3}),
        ("median", {"grace_period": 3, "min_samples_required": 2}),
        ("hyperband", {"max_t": 27}),
    ],
)
def test_bad_trials_end_early_and_the_best_goes_to_the_end(tune, scheduler, settings):
    result = tune(climb, SLOPES, scheduler=scheduler, scheduler_config=settings, max_concurrent=3)
    assert result.best_config["slope"] == pytest.approx(0.9)
    assert result.best.step == 27
    assert {t.state for t in result.trials} <= {DONE, STOPPED}
    early = [t for t in result.trials if t.state == STOPPED and t.step < 27]
    assert len(early) >= 2
    assert all(t.why for t in early)
    assert min(t.params["slope"] for t in early) < 0.45
    steps = sum(t.step for t in result.trials)
    assert steps < 9 * 27 * 0.9, "nothing was saved"
    for trial in result.trials:  # paused or not, every score is the one of an undisturbed climb
        assert trial.value == pytest.approx(trial.params["slope"] * trial.step)


def test_optunas_pruner_ends_bad_trials(tune):
    result = tune(
        climb,
        {"slope": "uniform(0,1)"},
        num_samples=14,
        scheduler="pruner",
        method_config={"pruner": "median", "n_startup_trials": 4},
        max_concurrent=1,
    )
    assert any(t.state == STOPPED for t in result.trials)
    assert result.best.step == 27


def test_bohb_with_its_hyperband_runs_to_the_end(tune):
    settings = {"max_t": 9}
    result = tune(climb, {"slope": "uniform(0,1)"}, method="bohb", num_samples=8, scheduler_config=settings)
    assert {t.state for t in result.trials} <= {DONE, STOPPED}
    assert len(result.trials) == 8
    assert all(t.value is not None for t in result.trials)


@pytest.mark.parametrize("scheduler", ["pbt", "pb2"])
def test_a_population_copies_its_best(tune, scheduler):
    result = tune(
        climb,
        {"slope": "uniform(0,1)"},
        scheduler=scheduler,
        num_samples=4,
        scheduler_config={"perturbation_interval": 4, "quantile_fraction": 0.25, "synch": True},
        max_concurrent=4,
        resources={"cpu": 1},
    )
    assert [t.state for t in result.trials] == [DONE] * 4, [t.error for t in result.trials]
    moves = [e for e in read_events(result.folder / "trials.jsonl") if e["event"] == "move"]
    assert moves
    for move in moves:
        assert 0 <= move["params"]["slope"] <= 1
        assert move["source"] != move["trial"]
    for trial in result.trials:
        assert trial.curve[-1][0] == 27
    moved = next(t for t in result.trials if t.moves)
    slopes = {round(b - a, 6) for (_, a), (_, b) in zip(moved.curve, moved.curve[1:], strict=False)}
    assert len(slopes) >= 2, "its curve should show more than one slope"


@pytest.mark.slow
def test_a_population_of_runs_goes_on_from_each_others_weights(tune):
    result = tune(
        "cartpole",
        {"training.lr": {"grid_search": [1e-9, 5e-3]}},
        "stop_conditions.training_iteration=12",
        "stop_conditions.episode_reward_mean=null",
        "checkpoint.num_to_keep=1",
        scheduler="pbt",
        num_samples=1,
        scheduler_config={"perturbation_interval": 5, "quantile_fraction": 0.5, "synch": True},
        max_concurrent=2,
    )
    assert [t.state for t in result.trials] == [DONE] * 2, [t.error for t in result.trials]
    stuck = next(t for t in result.trials if t.moves and t.moves[0][2]["training.lr"] == 1e-9)
    run = RunDirectory.open(result.folder / "trials" / stuck.name)
    assert run.data["taken_over"]["from"]
    lines = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    assert [line["run/iteration"] for line in lines] == list(range(1, 13))
    assert lines[-1]["rollout/return_mean"] > 1.2 * lines[0]["rollout/return_mean"]  # the donor's learning
    from rayfish.experiment import Experiment

    assert Experiment.load(run.config_file).get("training.lr") == stuck.params["training.lr"]


def test_schedulers_that_pause_refuse_programs_that_cannot_resume(tune, workdir):
    from rayfish.errors import RayfishError

    (workdir / "p.py").write_text("print('{\"score\": 1}')")
    with pytest.raises(RayfishError, match=r"program\.resume"):
        tune({"command": "python p.py {x}"}, {"x": "uniform(0,1)"}, metric="score", scheduler="hyperband")


def test_a_failing_trial_does_not_hold_up_a_bracket(tune):
    def sometimes(config):
        for step in range(1, 10):
            if config["slope"] > 0.75 and step == 2:
                raise RuntimeError("steep")
            sweep.report(score=config["slope"] * step)

    result = tune(sometimes, SLOPES, scheduler="hyperband", scheduler_config={"max_t": 9}, max_concurrent=2)
    states = [t.state for t in result.trials]
    assert states.count(FAILED) == 2
    assert set(states) <= {DONE, STOPPED, FAILED}


@pytest.mark.parametrize("slots", [1, 2])
def test_a_population_larger_than_the_machine_takes_turns_and_copies(tune, slots):
    result = tune(
        climb,
        {"slope": {"grid_search": [0.1, 0.9, 0.2, 0.8]}},
        scheduler="pbt",
        scheduler_config={"perturbation_interval": 5, "quantile_fraction": 0.5},
        max_concurrent=slots,
    )
    assert [t.state for t in result.trials] == [DONE] * 4
    assert any(t.moves for t in result.trials)
    assert all(t.curve[-1][0] == 27 for t in result.trials)


def test_a_population_in_turns_is_compared_when_all_have_come_as_far(tune, capsys):
    settings = {"perturbation_interval": 5, "quantile_fraction": 0.25}
    eight = {"slope": {"grid_search": [0.1, 0.9, 0.2, 0.8, 0.3, 0.7, 0.4, 0.6]}}
    result = tune(climb, eight, scheduler="pbt", scheduler_config=settings, max_concurrent=2)
    assert "pbt: 8 trials take turns, 2 at a time" in capsys.readouterr().out
    events = list(read_events(result.folder / "trials.jsonl"))
    moves = [(e["step"], e["trial"]) for e in events if e["event"] == "move"]
    assert {step for step, _ in moves} == {5, 10, 15, 20, 25}  # two of eight at each interval
    assert len(moves) == 10
    assert {number for step, number in moves if step == 5} == {1, 3}  # the slopes 0.1 and 0.2
    about = json.loads((result.folder / "sweep.json").read_text())
    assert about["search"]["scheduler_config"]["synch"] is True  # so that a resumed sweep goes on alike


def test_a_trial_that_fails_in_a_population_in_turns_does_not_shift_the_comparison(tune):
    def fails(config):
        if config["slope"] == 0.7 and sweep.checkpoint() is None:
            sweep.report(score=1.0)
            time.sleep(2)  # so that it is the last of its round
            raise RuntimeError("a bad step")
        climb(config)

    six = {"slope": {"grid_search": [0.1, 0.9, 0.2, 0.8, 0.3, 0.7]}}
    settings = {"perturbation_interval": 9, "quantile_fraction": 0.5}
    result = tune(fails, six, scheduler="pbt", scheduler_config=settings, max_concurrent=2)
    assert [trial.state for trial in result.trials] == [DONE] * 5 + [FAILED]
    steps = {}
    for event in read_events(result.folder / "trials.jsonl"):
        if event["event"] == "report":
            steps[event["trial"]] = event["step"]
        elif event["event"] == "move":
            assert steps[event["trial"]] == steps[event["source"]] == event["step"]
    assert {step for trial in result.trials for step, *_ in trial.moves} == {9, 18}


def test_a_population_in_turns_that_may_not_wait_gets_the_advice_to_compare_in_rounds():
    from rayfish.sweep.messages import no_moves
    from rayfish.sweep.settings import Search

    alone = Search(scheduler="pbt", scheduler_config={"synch": False})
    assert "search.scheduler_config.synch=true" in no_moves(alone, "step", in_turns=True)
    assert "lower search.scheduler_config.perturbation_interval" in no_moves(alone, "step", in_turns=False)
    waits = Search(scheduler="pbt", scheduler_config={"synch": True})
    assert "lower search.scheduler_config.perturbation_interval" in no_moves(waits, "step", in_turns=True)


def test_a_move_is_remembered_until_the_trial_has_reported_since():
    from rayfish.sweep.records import taken_last

    move = {"event": "move", "trial": 1, "donor": "handed-over/2", "source": 2}
    start, report = {"event": "start", "trial": 1}, {"event": "report", "trial": 1}
    assert taken_last([report, move]) == {1: "handed-over/2"}
    assert taken_last([move, start]) == {1: "handed-over/2"}  # it may have died before it copied it
    assert taken_last([move, start, report]) == {}
