"""Search methods: what they propose, what they learn, and what they remember after a break."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rayfish.errors import ConfigError, MissingExtra
from rayfish.sweep.searchers import Known, Searcher, library_search, method_of, open_searcher, optuna_search
from rayfish.sweep.searchers.base import axes
from rayfish.sweep.settings import Search
from rayfish.sweep.space import Space, parameters_in

PLANE = parameters_in({"a": {"x": "uniform(-2,2)"}, "y": "loguniform(1e-4,1)"})
RICH = parameters_in(
    {
        "a.x": "uniform(0,1)",
        "b": "loguniform(1e-5,1e-1)",
        "c": "quniform(0,1,0.25)",
        "d": "randint(1,20)",
        "e": "lograndint(1,1000)",
        "f": "qrandint(8,64,8)",
        "g": "normal(0,2)",
        "h": {"type": "choice", "values": [[64, 64], [32], {"deep": True}, None, True, 1]},
        "i": "grid(relu,tanh)",
        "j": {"type": "uniform", "values": [0, 1], "when": {"i": "tanh"}},
        "k": {"type": "qloguniform", "values": [0.1, 10, 0.1], "when": {"j": [2]}},
    }
)
SLOW = pytest.mark.slow
METHODS = ["optuna", "hyperopt", "nevergrad", "bayesopt", "bohb", pytest.param("ax", marks=SLOW)]
LISTS = ["random", "optuna", "hyperopt", "nevergrad", "bohb", pytest.param("ax", marks=SLOW)]


def bowl(point: Mapping[str, Any]) -> float:
    """Its least value is 0, at x=0.5 and y=0.01."""
    return (point["a.x"] - 0.5) ** 2 + (math.log10(point["y"]) + 2) ** 2


def opened(
    method: str,
    space: Space = PLANE,
    *,
    seed: int = 1,
    start: Sequence[Mapping[str, Any]] = (),
    config: dict[str, Any] | None = None,
    samples: int | None = 40,
    mode: str = "min",
) -> Searcher:
    search = Search(method=method, mode=mode, method_config=config or {}, num_samples=samples)
    return open_searcher(search, space, start=start, seed=seed)


def go_on(searcher: Searcher, first: int, last: int) -> list[tuple[dict[str, Any], float]]:
    """Asks, evaluates and tells the points from `first` to `last`."""
    done = []
    for number in range(first, last + 1):
        point = searcher.ask(number)
        assert point is not None
        value = bowl(point) if "y" in point else point["a.x"]
        searcher.report(number, 1, value)
        searcher.tell(number, value)
        done.append((point, value))
    return done


def known(done: Sequence[tuple[dict[str, Any], float]]) -> list[Known]:
    """What was done, as it comes back from a file."""
    points = json.loads(json.dumps([point for point, _ in done]))
    return [
        Known(i, p, "done", v, [(1, v)]) for i, (p, (_, v)) in enumerate(zip(points, done, strict=True), 1)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_a_method_learns_where_the_minimum_is(method: str) -> None:
    budget = {"ax": 22, "bayesopt": 24}.get(method, 45)
    values = [value for _, value in go_on(opened(method, samples=budget), 1, budget)]
    assert min(values) < 0.1
    late = sorted(values[-10:])[5]
    assert late < sorted(values[:10])[5] * 0.7, "its later points are no better than its first ones"


@pytest.mark.parametrize("method", ["random", *METHODS])
def test_the_same_seed_gives_the_same_points_and_another_seed_others(method: str) -> None:
    count = 7 if method == "ax" else 14
    first, second = (go_on(opened(method), 1, count) for _ in range(2))
    assert first == second
    assert go_on(opened(method, seed=2), 1, 3) != first[:3]


@pytest.mark.parametrize("method", ["random", *METHODS])
def test_after_a_break_a_method_goes_on_with_new_points_that_are_as_good(method: str) -> None:
    count = {"ax": 12, "bayesopt": 14}.get(method, 25)
    before = go_on(opened(method), 1, count)
    searcher = opened(method)
    searcher.recall(known(before))
    after = go_on(searcher, count + 1, count + 8)
    seen = [point for point, _ in before]
    assert all(point not in seen for point, _ in after)
    if method != "random":
        assert sorted(v for _, v in after)[4] < sorted(v for _, v in before[:8])[4]


@pytest.mark.parametrize("space", [PLANE, RICH], ids=["plane", "rich"])
@pytest.mark.parametrize("sampler", ["tpe", "random", "qmc", "cmaes"])
@pytest.mark.parametrize("config", [{}, {"multivariate": True, "group": True}], ids=["", "multivariate"])
def test_optuna_goes_on_exactly_as_it_would_have(space: Space, sampler: str, config: dict[str, Any]) -> None:
    config = {"sampler": sampler} | (config if sampler == "tpe" else {})
    start = [{"a.x": 0.25}, {"a.x": 0.75}]
    whole = go_on(opened("optuna", space, config=config, start=start), 1, 30)
    searcher = opened("optuna", space, config=config, start=start)
    searcher.recall(known(whole[:18]))
    assert go_on(searcher, 19, 30) == whole[18:]


def test_optuna_remembers_points_that_failed_ended_early_or_are_still_open() -> None:
    def played(searcher: Searcher) -> None:
        for number in range(1, 19):
            point = searcher.ask(number)
            assert point is not None
            record.append(point)
            for step in (1, 2, 3)[: 1 + number % 3]:
                searcher.report(number, step, bowl(point) / step)
            if number % 5 == 0:
                searcher.tell(number, None)
            elif number % 3 != 2:
                searcher.tell(number, bowl(point), pruned=True)
            elif number < 15:
                searcher.tell(number, bowl(point))

    record: list[dict[str, Any]] = []
    whole = opened("optuna")
    played(whole)
    points = []
    for number, point in enumerate(record, 1):
        state = "failed" if number % 5 == 0 else "stopped" if number % 3 != 2 else "done"
        state = "open" if state == "done" and number >= 15 else state
        curve = [(step, bowl(point) / step) for step in (1, 2, 3)[: 1 + number % 3]]
        points.append(Known(number, point, state, None if state == "failed" else bowl(point), curve))
    resumed = opened("optuna")
    resumed.recall(points)
    assert {p.state for p in points} == {"failed", "stopped", "done", "open"}
    for searcher in (whole, resumed):
        searcher.tell(17, bowl(record[16]))
    assert go_on(resumed, 19, 26) == go_on(whole, 19, 26)


@SLOW
def test_optunas_gaussian_process_goes_on_exactly_as_it_would_have() -> None:
    whole = go_on(opened("optuna", config={"sampler": "gp"}), 1, 15)
    searcher = opened("optuna", config={"sampler": "gp"})
    searcher.recall(known(whole[:12]))
    assert go_on(searcher, 13, 15) == whole[12:]


@pytest.mark.parametrize("method", LISTS)
def test_every_kind_of_parameter_comes_back_as_it_was_written(method: str) -> None:
    space = RICH
    seen: set[str] = set()
    for point, _ in go_on(opened(method, space, config={}), 1, 7 if method == "ax" else 24):
        assert ("j" in point) == (point["i"] == "tanh") and "k" not in point
        assert point["h"] in RICH["h"].values and point["c"] in (0.0, 0.25, 0.5, 0.75, 1.0)
        assert 0 <= point["a.x"] <= 1 and 1e-5 <= point["b"] <= 1e-1
        for key, low, high in (("d", 1, 19), ("e", 1, 999), ("f", 8, 64)):
            assert type(point[key]) is int and low <= point[key] <= high
        assert point["f"] % 8 == 0 and abs(point["g"]) < 10 and type(point["g"]) is float
        seen.add(repr(point["h"]))
    assert len(seen) > 2
    json.dumps(point)


def test_bayesopt_searches_numbers_and_names_the_parameters_that_are_none() -> None:
    numbers = parameters_in(
        {"a.x": "uniform(0,1)", "n": "randint(1,9)", "w": "choice(64,16,32)", "g": "normal(0,1)"}
    )
    for point, _ in go_on(opened("bayesopt", numbers), 1, 14):
        assert type(point["n"]) is int and 1 <= point["n"] <= 8 and point["w"] in (16, 32, 64)
    with pytest.raises(ConfigError) as error:
        opened("bayesopt", RICH)
    assert "h: bayesopt knows numbers only" in str(error.value) and "i: bayesopt" in str(error.value)
    assert "optuna, hyperopt, nevergrad, ax or bohb" in str(error.value)


@pytest.mark.parametrize("method", ["random", *METHODS])
def test_a_parameter_with_one_value_has_that_value_in_every_point(method: str) -> None:
    tree = {"a.x": "uniform(0,1)", "n": "randint(1,2)", "q": "quniform(0.5,0.6,0.25)", "w": "choice(7)"}
    done = go_on(opened(method, parameters_in(tree), start=[{"a.x": 0.5, "n": 1}]), 1, 6)
    assert all((p["n"], p["q"], p["w"]) == (1, 0.5, 7) for p, _ in done)
    assert len({p["a.x"] for p, _ in done}) == 6
    resumed = opened(method, parameters_in(tree))
    resumed.recall(known(done))
    point = resumed.ask(7)
    assert point is not None and point["n"] == 1
    alone = opened(method, parameters_in({"n": "randint(1,2)"}))
    assert [alone.ask(1), alone.ask(2)] == [{"n": 1}, {"n": 1}]


def test_a_method_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    space = parameters_in({"a.x": "choice(1,2)"})
    done = go_on(opened("bayesopt", space), 1, 14)
    opened("bayesopt", space).recall(known(done))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("method", ["random", *METHODS])
def test_starting_points_come_first_and_what_they_leave_out_is_chosen(method: str) -> None:
    start = [{"a.x": 0.123, "y": 0.5}, {"y": 0.25}]
    searcher = opened(method, start=start)
    points = [point for point, _ in go_on(searcher, 1, 4)]
    assert points[0] == {"a.x": 0.123, "y": 0.5}
    assert points[1]["y"] == 0.25 and -2 <= points[1]["a.x"] <= 2
    assert len({point["y"] for point in points}) == 4


@pytest.mark.parametrize("method", METHODS)
def test_many_points_are_asked_before_any_result(method: str) -> None:
    searcher = opened(method)
    points = [searcher.ask(number) for number in range(1, 9 if method == "ax" else 16)]
    assert len({repr(point) for point in points}) == len(points)
    for number, point in enumerate(points, 1):
        assert point is not None
        searcher.tell(number, None if number % 4 == 0 else bowl(point))
    searcher.tell(1, 3.0)  # told twice: once counts
    assert searcher.ask(len(points) + 1) not in points


def test_a_grid_goes_through_every_combination_once() -> None:
    space = parameters_in({"a": [1, 2, 3], "b": {"grid": [True, False]}})
    searcher = opened("auto", space, samples=None)
    points = [searcher.ask(number) for number in range(1, 8)]
    assert searcher.total == 6 and points[6] is None
    assert points[:2] == [{"a": 1, "b": True}, {"a": 1, "b": False}]
    assert len({repr(point) for point in points[:6]}) == 6


def test_a_grid_is_repeated_and_the_other_parameters_drawn_each_time() -> None:
    space = parameters_in({"a": [1, 2], "lr": "loguniform(1e-4,1)"})
    searcher = opened("grid", space, samples=3, start=[{"a": 2, "lr": 0.5}])
    points = [searcher.ask(number) for number in range(1, 9)]
    assert searcher.total == 7 and points[7] is None
    assert points[0] == {"a": 2, "lr": 0.5}
    assert [point["a"] for point in points[1:7] if point] == [1, 2, 1, 2, 1, 2]
    assert len({point["lr"] for point in points[:7] if point}) == 7
    assert points[3] == opened("grid", space, samples=3, start=[{"a": 2, "lr": 0.5}]).ask(4)


def test_a_grid_without_a_grid_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"nothing is a grid: a\.x \(uniform\)"):
        opened("grid")


def test_a_starting_point_of_a_grid_is_not_tried_twice() -> None:
    searcher = opened("auto", parameters_in({"a": [1, 2, 3]}), samples=None, start=[{"a": 3}])
    assert [searcher.ask(number) for number in range(1, 5)] == [{"a": 3}, {"a": 1}, {"a": 2}, None]


@pytest.mark.parametrize("method", ["grid", "random", "optuna", "hyperopt"])
def test_what_follows_from_other_parameters_is_computed(method: str) -> None:
    from ray import tune

    tree = {"a": [1, 2], "twice": tune.sample_from(lambda params: params["a"] * 2)}
    for number in range(1, 3):
        point = opened(method, parameters_in(tree), samples=2).ask(number)
        assert point is not None and point["twice"] == 2 * point["a"]


@pytest.mark.parametrize("method", ["random", "optuna", "nevergrad"])
def test_a_condition_on_a_key_that_is_not_searched_holds(method: str) -> None:
    space = parameters_in({"x": {"type": "uniform", "values": [0, 1], "when": {"algorithm": "PPO"}}})
    assert opened(method, space).ask(1)


@pytest.mark.parametrize("method", ["random", "optuna", "hyperopt", "bohb"])
def test_an_empty_space_has_one_point_again_and_again(method: str) -> None:
    searcher = opened(method, Space())
    assert [searcher.ask(1), searcher.ask(2)] == [{}, {}]
    searcher.tell(1, 1.0)


def test_more_is_better_where_the_search_says_so() -> None:
    space = parameters_in({"a.x": "uniform(0,1)"})
    for mode, better in (("max", max), ("min", min)):
        late = [v for _, v in go_on(opened("optuna", space, mode=mode), 1, 40)][-5:]
        assert sum(better(v, 0.5) == v for v in late) >= 4


def test_values_and_codes_stand_for_each_other() -> None:
    for axis in axes(RICH):
        low, high = int(axis.low), int(axis.high)
        codes = [low, high, (low + high) // 2] if axis.form != "real" else [axis.low, axis.high, 0.033]
        for code in codes:
            value = json.loads(json.dumps(axis.decode(code)))
            assert axis.encode(value) == code, axis


def test_auto_is_a_grid_for_a_grid_random_for_a_population_and_optuna_else() -> None:
    grid = parameters_in({"a": [1, 2]})
    assert method_of(Search(), grid) == "grid" and method_of(Search(), PLANE) == "optuna"
    assert method_of(Search(scheduler="pbt"), PLANE) == "random"


@pytest.mark.parametrize(
    ("method", "config", "said"),
    [
        ("optuna", {"n_startup_trial": 3}, "did you mean n_startup_trials?"),
        ("optuna", {"sampler": "tpee"}, "did you mean tpe?"),
        ("optuna", {"pruner": "hyperbandd"}, "did you mean hyperband?"),
        ("optuna", {"pruner_config": {"n_warmup": 1}}, "did you mean n_warmup_steps?"),
        (
            "optuna",
            {"sampler": "random", "n_ei_candidates": 3},
            "Optuna's sampler random has no such setting",
        ),
        ("hyperopt", {"gama": 1}, "did you mean gamma?"),
        ("nevergrad", {"optimizer": "OnePlusOn"}, "did you mean OnePlusOne"),
        ("random", {"x": 1}, "the method random has no such setting"),
        ("hebo", {}, "HEBO does not run here"),
    ],
)
def test_settings_that_a_method_does_not_take_are_named(
    method: str, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        opened(method, config=config)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ({"a.z": 1}, "a.z is not in the search space"),
        ({"a.x": 7}, "a.x=7 is outside -2 to 2"),
        ({"a.x": "wide"}, "a.x='wide' is not a number"),
    ],
)
def test_a_starting_point_outside_the_space_is_refused(start: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        opened("optuna", start=[start])
    assert said in str(error.value)


def test_a_method_whose_package_is_missing_names_the_extra() -> None:
    with pytest.raises(MissingExtra, match=r"search.method=bohb needs the package 'hpbandster'") as error:
        library_search.require("no_such_module_here", "hpbandster", "tune-bohb", "search.method=bohb")
    assert "rayfish[tune-bohb]" in str(error.value)


@pytest.mark.parametrize("pruner", sorted(optuna_search.PRUNERS))
def test_every_pruner_can_be_named(pruner: str) -> None:
    limits = {"pruner_config": {"lower": 0.0}} if pruner == "threshold" else {}
    searcher = opened("optuna", config={"pruner": pruner, "n_startup_trials": 3, **limits})
    assert type(searcher.study.pruner).__name__ == optuna_search.PRUNERS[pruner]
    assert len(go_on(searcher, 1, 5)) == 5


OPENS_OPTUNA = """
import sys
from rayfish.sweep.searchers import open_searcher
from rayfish.sweep.settings import Search
from rayfish.sweep.space import parameters_in
open_searcher(Search(method="optuna"), parameters_in({"x": "uniform(0,1)"}), seed=1).ask(1)
import optuna
assert optuna.logging.get_verbosity() == optuna.logging.INFO
"""


def test_optuna_prints_nothing_and_logs_as_before_for_its_other_users():
    run = subprocess.run([sys.executable, "-c", OPENS_OPTUNA], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
