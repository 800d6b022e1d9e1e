"""Schedulers, driven through whole sweeps by a small loop without Ray."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from rayfish.errors import ConfigError
from rayfish.sweep.schedulers import CONTINUE, PAUSE, STOP, Scheduler, open_scheduler
from rayfish.sweep.searchers import Known, open_searcher
from rayfish.sweep.settings import Search
from rayfish.sweep.space import Space, parameters_in

SPACE = parameters_in({"lr": "loguniform(1e-4,1)", "width": "choice(16,32,64)", "gamma": "uniform(0.9,1)"})
NUMBERS = parameters_in({"lr": "loguniform(1e-4,1)", "gamma": "uniform(0.9,1)", "batch": "randint(8,64)"})


@dataclass
class Sweep:
    """A loop as small as it can be: `slots` trials at a time, one report of each in turn."""

    scheduler: Scheduler
    length: int = 30
    slots: int = 4
    total: int = 12
    score: Callable[[int, int, dict[str, Any]], float] = lambda number, step, params: number * step
    params: Callable[[int], dict[str, Any]] = lambda number: {}
    events: list[dict[str, Any]] = field(default_factory=list)
    answers: list[tuple[int, int, str]] = field(default_factory=list)
    state: dict[int, str] = field(default_factory=dict)
    step: dict[int, int] = field(default_factory=dict)
    point: dict[int, dict[str, Any]] = field(default_factory=dict)
    moves: list[Any] = field(default_factory=list)
    compared: list[tuple[int, int]] = field(default_factory=list)
    """The steps of both trials of each move."""
    whys: dict[int, str] = field(default_factory=dict)
    stop_after: int | None = None
    ends: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Trials that end by themselves: the last step of each, and the state it ends in."""

    def __post_init__(self) -> None:
        self.eager = self.scheduler.eager

    def note(self, event: str, trial: int, **fields: Any) -> None:
        self.events.append({"event": event, "trial": trial, "time": 0.0, **fields})

    def run(self) -> Sweep:
        for _ in range(10_000):
            self.fill()
            running = [n for n, state in self.state.items() if state == "running"]
            if not running:
                break
            for number in running:
                if self.state[number] == "running":
                    self.advance(number)
                if self.stop_after is not None and len(self.answers) >= self.stop_after:
                    return self
        return self

    def fill(self) -> None:
        while sum(state == "running" for state in self.state.values()) < self.slots:
            waiting = [n for n, state in self.state.items() if state in ("pending", "paused")]
            more = len(self.state) < self.total
            chosen = self.scheduler.next(waiting, more=more)
            self.obey()
            if chosen is not None:
                self.state[chosen] = "running"
                self.note("start", chosen)
                self.scheduler.started(chosen)
            elif more:
                number = len(self.state) + 1
                self.state[number], self.step[number] = "pending", 0
                self.point[number] = self.params(number)
                self.note("new", number, params=self.point[number], point=number, name=str(number))
                self.scheduler.add(number, self.point[number])
            elif not any(self.state[n] in ("pending", "paused") for n in waiting):
                return
            else:
                assert any(state == "running" for state in self.state.values()), "everything waits for ever"
                return

    def advance(self, number: int) -> None:
        last, state = self.ends.get(number, (self.length, ""))
        if self.step[number] >= last and state:
            self.end(number, state)
            self.obey()
            return
        self.step[number] += 1
        step = self.step[number]
        value = self.score(number, step, self.point[number])
        self.note("report", number, step=step, value=value)
        answer = self.scheduler.report(number, {"step": step, "score": value, "other": 1})
        self.answers.append((number, step, answer))
        if answer == STOP:
            self.whys[number] = self.scheduler.why
            self.end(number, "stopped")
        elif answer == PAUSE:
            self.state[number] = "paused"
            self.note("pause", number)
            self.scheduler.paused(number)
        elif step >= self.length:
            self.end(number, "done")
        self.obey()

    def end(self, number: int, state: str) -> None:
        self.state[number] = state
        self.note("end", number, state=state)
        if state == "failed":
            self.scheduler.fail(number)
        else:
            self.scheduler.complete(number)

    def obey(self) -> None:
        orders = self.scheduler.orders()
        for number in orders.stop:
            assert self.state[number] == "paused"
            self.end(number, "stopped")
        for move in orders.moves:
            self.moves.append(move)
            assert self.state[move.number] in ("paused", "pending")
            self.note(
                "move", move.number, step=self.step[move.number], source=move.source, params=move.params
            )
            self.compared.append((self.step[move.number], self.step[move.source]))
            self.point[move.number], self.step[move.number] = move.params, self.step[move.source]

    @property
    def ended(self) -> bool:
        return len(self.state) == self.total and all(s in ("done", "stopped") for s in self.state.values())

    @property
    def steps(self) -> int:
        return sum(self.step.values())


def made(kind: str, space: Space = SPACE, seed: int = 3, mode: str = "max", **config: Any) -> Scheduler:
    method = "bohb" if kind == "bohb" else "auto"
    scheduler = "none" if kind == "bohb" else kind
    search = Search(method=method, scheduler=scheduler, mode=mode, scheduler_config=config)
    return open_scheduler(search, space, time="step", metric="score", seed=seed)


def shuffled(number: int, step: int, params: dict[str, Any]) -> float:
    """Trial 5 is the best of twelve, 10 the next."""
    return ((number * 5) % 13) * step / 10


def test_without_a_scheduler_every_trial_runs_to_its_end_in_order() -> None:
    sweep = Sweep(made("none"), length=5).run()
    assert sweep.ended and sweep.steps == 12 * 5
    assert [e["trial"] for e in sweep.events if e["event"] == "start"] == list(range(1, 13))


def test_asha_ends_most_trials_early_and_lets_the_best_run() -> None:
    sweep = Sweep(made("asha", max_t=27, grace_period=1), score=shuffled, total=24).run()
    assert sweep.ended
    longest = [n for n, step in sweep.step.items() if step == 27]
    best = max(sweep.step, key=lambda n: shuffled(n, 1, {}))
    assert best in longest and len(longest) < 8
    assert sum(step == 1 for step in sweep.step.values()) >= 10
    assert sweep.steps < 24 * 27 / 2
    assert any("not in the best 33% at 1 (step)" in why for why in sweep.whys.values())
    assert sweep.whys[best] == "ASHA: ran as far as max_t, to 27 (step)"


def test_asha_minimises_where_less_is_better() -> None:
    sweep = Sweep(made("asha", mode="min", max_t=9, grace_period=1), score=shuffled).run()
    assert min(sweep.step, key=lambda n: shuffled(n, 1, {})) in [n for n, s in sweep.step.items() if s == 9]


def test_the_median_rule_ends_what_is_below_the_median_and_never_pauses() -> None:
    sweep = Sweep(made("median", grace_period=3), score=shuffled, slots=2).run()
    assert sweep.ended and PAUSE not in {answer for _, _, answer in sweep.answers}
    stopped = [n for n, state in sweep.state.items() if state == "stopped"]
    assert stopped and min(sweep.step[n] for n in stopped) >= 3
    assert max(sweep.step, key=lambda n: shuffled(n, 1, {})) not in stopped


@pytest.mark.parametrize("kind", ["hyperband", "bohb"])
@pytest.mark.parametrize("slots", [1, 3, 50])
def test_hyperband_pauses_goes_on_and_ends_every_trial(kind: str, slots: int) -> None:
    sweep = Sweep(made(kind, max_t=27), score=shuffled, total=24, slots=slots).run()
    assert sweep.ended, sweep.state
    assert any(answer == PAUSE for _, _, answer in sweep.answers)
    again = [e["trial"] for e in sweep.events if e["event"] == "start"]
    assert len(again) > len(set(again)), "nobody was started twice"
    assert 27 in sweep.step.values() and min(sweep.step.values()) < 27
    assert sweep.steps < 24 * 27 * 0.7


def test_hyperband_keeps_the_best_third_of_a_bracket_that_never_filled() -> None:
    sweep = Sweep(made("bohb", max_t=27), score=shuffled, total=6, slots=2, length=50).run()
    assert sweep.ended
    assert sorted(sweep.step.values()) == [1, 1, 1, 1, 3, 27]  # 6 come, 2 go on, 1 of them to the end


def test_hyperband_goes_on_when_trials_fail_or_end_by_themselves() -> None:
    sweep = Sweep(made("hyperband", max_t=27), score=shuffled, total=20, slots=3, length=11)
    advance = sweep.advance

    def failing(number: int) -> None:
        if number % 4 == 0 and sweep.step[number] == 2:
            sweep.end(number, "failed")
            sweep.obey()
        else:
            advance(number)

    sweep.advance = failing  # type: ignore[method-assign]
    sweep.run()
    assert len(sweep.state) == 20 and set(sweep.state.values()) <= {"done", "stopped", "failed"}


def test_hyperband_with_reports_further_apart_than_its_milestones_ends() -> None:
    sweep = Sweep(made("bohb", max_t=27), total=15, slots=2, score=shuffled, length=100)
    advance = sweep.advance

    def striding(number: int) -> None:
        sweep.step[number] += 4
        advance(number)

    sweep.advance = striding  # type: ignore[method-assign]
    assert sweep.run().ended


def test_bohb_learns_the_scores_at_hyperbands_milestones() -> None:
    search = Search(method="bohb", scheduler_config={"max_t": 9}, mode="max")
    searcher = open_searcher(search, SPACE, seed=1)
    scheduler = open_scheduler(search, SPACE, time="step", metric="score", seed=1, searcher=searcher)
    sweep = Sweep(scheduler, total=12, score=shuffled, params=lambda n: searcher.ask(n) or {})
    sweep.run()
    assert sweep.ended
    searcher.ask(13)
    seen = searcher._model.configs  # type: ignore[attr-defined]
    assert set(seen) == {1.0, 3.0, 9.0}

    resumed = open_searcher(search, SPACE, seed=1)
    resumed.recall([Known(n, p, "stopped", 1.0, [(sweep.step[n], 1.0)]) for n, p in sweep.point.items()])
    again = open_scheduler(search, SPACE, time="step", metric="score", seed=1, searcher=resumed)
    again.replay(sweep.events)
    resumed.ask(13)
    known = resumed._model.configs  # type: ignore[attr-defined]
    assert {budget: len(found) for budget, found in known.items()} == {b: len(f) for b, f in seen.items()}


def points(space: Space, seed: int = 0) -> Callable[[int], dict[str, Any]]:
    searcher = open_searcher(Search(method="random"), space, seed=seed)
    return lambda number: searcher.ask(number) or {}


def near(number: int, step: int, params: dict[str, Any]) -> float:
    return step * (1 - abs(np.log10(params["lr"]) + 2) / 4)


def good(number: int, step: int, params: dict[str, Any]) -> float:
    return near(number, 1, params)


POPULATIONS = [
    ("pbt", 2, False),
    ("pbt", 2, True),
    ("pbt", 8, False),
    ("pbt", 8, True),
    pytest.param("pb2", 8, False, marks=pytest.mark.slow),
    pytest.param("pb2", 2, False, marks=pytest.mark.slow),
    pytest.param("pb2", 2, True, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kind", "slots", "synch"), POPULATIONS)
def test_a_population_copies_good_trials_to_bad_ones(kind: str, slots: int, synch: bool) -> None:
    space = NUMBERS if kind == "pb2" else SPACE
    scheduler = made(kind, space, perturbation_interval=5, synch=synch)
    score = good if slots == 2 else near
    sweep = Sweep(scheduler, total=8, slots=slots, length=25, score=score, params=points(space)).run()
    assert sweep.ended and len(sweep.moves) >= 3
    for move in sweep.moves:
        assert move.number != move.source
        for parameter in space:
            value = move.params[parameter.key]
            if parameter.is_list:
                assert value in parameter.values
            else:
                low, high = parameter.bounds
                assert low <= value <= high
                assert isinstance(value, int) == parameter.is_integer
    first = np.mean([near(n, 1, points(space)(n)) for n in range(1, 9)])
    last = np.mean([near(n, 1, sweep.point[n]) for n in range(1, 9)])
    assert last > first + 0.05


def test_a_population_takes_turns_where_fewer_can_run() -> None:
    scheduler = made("pbt", perturbation_interval=5, quantile_fraction=0)
    sweep = Sweep(scheduler, total=6, slots=2, length=20, score=near, params=points(SPACE)).run()
    assert sweep.ended
    halfway = [e for e in sweep.events if e["event"] == "report"][:60]
    assert {e["trial"] for e in halfway} == set(range(1, 7))
    assert max(e["step"] for e in halfway) <= 10


@pytest.mark.parametrize("kind", ["pbt", pytest.param("pb2", marks=pytest.mark.slow)])
def test_a_synchronous_population_does_not_depend_on_who_reports_last(kind: str) -> None:
    def moves(order: int) -> set[tuple[int, int, str]]:
        scheduler = made(kind, NUMBERS, perturbation_interval=5, synch=True)
        sweep = Sweep(scheduler, total=8, slots=8, length=12, score=near, params=points(NUMBERS))
        sweep.fill()
        for _ in range(5):
            for number in sorted(sweep.state, key=lambda n: n * order):
                sweep.advance(number)
        return {(move.number, move.source, str(move.params)) for move in sweep.moves}

    assert moves(1) == moves(-1) != set()


ENDS = [
    {6: (4, "failed")},
    {6: (4, "done")},
    {5: (3, "failed"), 6: (4, "done")},
    {1: (7, "failed"), 2: (8, "done")},
]


@pytest.mark.parametrize("ends", ENDS)
def test_a_synchronous_round_is_compared_without_the_trials_that_ended(ends: dict[int, Any]) -> None:
    def sweep(**rest: Any) -> Sweep:
        scheduler = made("pbt", perturbation_interval=3, quantile_fraction=0.5, synch=True)
        return Sweep(
            scheduler, total=6, slots=2, length=14, score=near, params=points(SPACE), ends=ends, **rest
        )

    whole = sweep().run()
    assert set(whole.compared) == {(step, step) for step in (3, 6, 9, 12)}
    for after in range(1, len(whole.answers)):
        cut = sweep(stop_after=after).run()
        cut.scheduler, cut.stop_after = (
            made("pbt", perturbation_interval=3, quantile_fraction=0.5, synch=True),
            None,
        )
        cut.scheduler.replay(json.loads(json.dumps(cut.events)))
        cut.state = {n: "pending" if state == "running" else state for n, state in cut.state.items()}
        cut.run()
        assert set(cut.compared) == set(whole.compared), after


def test_a_synchronous_population_with_reports_far_apart_is_compared_at_the_same_steps() -> None:
    def every_seventh(number: int, step: int, params: dict[str, Any]) -> float:
        return near(number, step, params) if step % 7 == 0 else float("nan")

    scheduler = made("pbt", perturbation_interval=3, quantile_fraction=0.5, synch=True)
    sweep = Sweep(scheduler, total=4, slots=2, length=30, score=every_seventh, params=points(SPACE)).run()
    assert set(sweep.compared) == {(step, step) for step in (7, 14, 21, 28)}


def test_a_population_changes_only_what_it_may() -> None:
    scheduler = made("pb2", SPACE, perturbation_interval=5, mutate=["lr"])
    sweep = Sweep(scheduler, total=8, slots=8, length=20, score=good, params=points(SPACE)).run()
    assert sweep.moves
    widths = {n: points(SPACE)(n)["width"] for n in range(1, 9)}
    for move in sweep.moves:
        assert move.params["width"] == widths[move.source]
        widths[move.number] = move.params["width"]


def test_the_pruner_ends_what_is_below_the_median() -> None:
    sweep = Sweep(made("pruner", n_startup_trials=3), score=shuffled, slots=2).run()
    stopped = [n for n, state in sweep.state.items() if state == "stopped"]
    assert sweep.ended and len(stopped) >= 3
    assert max(sweep.step, key=lambda n: shuffled(n, 1, {})) not in stopped
    assert "Optuna's MedianPruner" in sweep.whys[stopped[0]]


KINDS = {
    "asha": {"max_t": 27, "grace_period": 1, "brackets": 2},
    "median": {"grace_period": 2},
    "hyperband": {"max_t": 27},
    "bohb": {"max_t": 27},
    "pruner": {"n_startup_trials": 2},
    "pbt": {"perturbation_interval": 4},
    "pbt, synchronous": {"perturbation_interval": 4, "synch": True},
    "pb2": {"perturbation_interval": 4},
}


SLOW = pytest.mark.slow
CUTS = [
    pytest.param(kind, after, marks=SLOW if kind == "pb2" else ()) for kind in KINDS for after in (7, 60, 110)
]


@pytest.mark.parametrize(("kind", "after"), CUTS)
def test_after_an_interruption_it_decides_as_it_would_have(kind: str, after: int) -> None:
    config, kind = KINDS[kind], kind.partition(",")[0]
    space = NUMBERS if kind == "pb2" else SPACE

    def sweep(scheduler: Scheduler, **rest: Any) -> Sweep:
        total, slots = (6, 6) if kind == "pb2" else (14, 3)
        score = good if kind == "pbt" else near
        return Sweep(
            scheduler, total=total, slots=slots, score=score, params=points(space), length=24, **rest
        )

    whole = sweep(made(kind, space, **config)).run()
    first = sweep(made(kind, space, **config), stop_after=after).run()
    resumed = made(kind, space, **config)
    resumed.replay(json.loads(json.dumps(first.events)))
    assert not resumed.orders()
    first.scheduler, first.stop_after = resumed, None
    # the round that was interrupted is finished first, as it would have been
    done = {n for n, _, _ in first.answers[_round_start(first) :]}
    for number in [n for n, state in first.state.items() if state == "running" and n not in done]:
        if first.state[number] == "running":
            first.advance(number)
    first.run()
    assert first.answers == whole.answers
    assert first.moves == whole.moves and bool(whole.moves) == (kind in ("pbt", "pb2"))
    assert first.ended


def _round_start(sweep: Sweep) -> int:
    """Where the last round began: before the first report whose trial reported since."""
    seen: set[int] = set()
    for index in range(len(sweep.answers) - 1, -1, -1):
        if sweep.answers[index][0] in seen or (seen and sweep.answers[index][0] > min(seen)):
            return index + 1
        seen.add(sweep.answers[index][0])
    return 0


def test_hyperband_goes_on_with_trials_that_an_interruption_paused_on_their_way() -> None:
    sweep = Sweep(made("hyperband", max_t=27), score=shuffled, total=13, slots=3, stop_after=150).run()
    for number in [n for n, state in sweep.state.items() if state == "running"]:
        sweep.state[number] = "paused"
        sweep.note("pause", number)
    resumed = made("hyperband", max_t=27)
    resumed.replay(sweep.events)
    sweep.scheduler, sweep.stop_after = resumed, None
    assert sweep.run().ended
    reports = [(n, step) for n, step, _ in sweep.answers]
    milestones = {step for _, step, answer in sweep.answers if answer == PAUSE}
    assert milestones <= {1, 3, 9}, "a trial crept beyond its milestone"
    assert len(reports) == len(set(reports))


def test_an_end_that_was_decided_but_not_carried_out_is_ordered_again() -> None:
    sweep = Sweep(made("bohb", max_t=9), score=shuffled, total=9, slots=1).run()
    ends = [i for i, e in enumerate(sweep.events) if e["event"] == "end"]
    cut = sweep.events[: ends[0]]  # the bracket was halved, and nothing of it written
    resumed = made("bohb", max_t=9)
    resumed.replay(cut)
    waiting = list(range(1, 10))
    resumed.next(waiting)
    ordered = resumed.orders().stop
    assert sweep.events[ends[0]]["trial"] in ordered and len(ordered) >= 6


@pytest.mark.parametrize("kind", ["asha", "hyperband", "median", "pbt", "pruner", "bohb"])
@pytest.mark.parametrize("metrics", [{}, {"step": 3}, {"score": 1.0}, {"step": 30, "score": float("nan")}])
def test_a_report_without_a_score_is_passed_over(kind: str, metrics: dict[str, Any]) -> None:
    scheduler = made(kind)
    scheduler.add(1, {"lr": 0.1, "width": 16, "gamma": 0.99})
    scheduler.started(1)
    assert scheduler.report(1, metrics) == CONTINUE
    scheduler.complete(1)


@pytest.mark.parametrize("kind", ["asha", "pbt", "pb2"])
def test_random_numbers_of_the_program_are_left_as_they_were(kind: str) -> None:
    random.seed(1)
    np.random.seed(1)
    expected = [random.random(), np.random.random()]
    random.seed(1)
    np.random.seed(1)
    Sweep(made(kind, NUMBERS), total=6, length=24, score=near, params=points(NUMBERS)).run()
    assert [random.random(), np.random.random()] == expected


@pytest.mark.parametrize(
    ("kind", "config", "said"),
    [
        ("asha", {"max_tt": 5}, "did you mean max_t?"),
        ("asha", {"max_t": 5, "grace_period": 9}, "grace_period must be <= max_t"),
        ("asha", {"metric": "x"}, "ASHA has no such setting"),
        ("median", {"hard_stop": False}, "the median rule has no such setting"),
        ("hyperband", {"grace_period": 2}, "HyperBand has no such setting"),
        ("pbt", {"quantile_fraction": 0.9}, "quantile_fraction"),
        ("pbt", {"mutate": ["lrr"]}, "did you mean lr?"),
        ("pb2", {}, "width: pb2 changes numbers only, and this is a choice"),
        ("pruner", {"pruner": "medain"}, "did you mean median?"),
        ("pruner", {"n_startup": 3}, "did you mean n_startup_trials?"),
        ("none", {"max_t": 3}, "a sweep without a scheduler has no such setting"),
    ],
)
def test_settings_that_a_scheduler_does_not_take_are_named(
    kind: str, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        made(kind, **config)
    assert said in str(error.value)
