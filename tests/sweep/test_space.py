"""The search space: every form it may be written in, and what is told about wrong ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rayfish.errors import ConfigError
from rayfish.sweep.space import from_words, parameters_in

RNG = np.random.default_rng(0)


def one(value, key="training.lr"):
    (parameter,) = parameters_in({key: value})
    return parameter


@pytest.mark.parametrize(
    "form",
    [
        {"type": "loguniform", "values": [1e-5, 1e-2]},
        {"type": "loguniform", "values": ["1e-5", "1e-2"]},  # as plain YAML reads such numbers
        {"loguniform": [1e-5, 1e-2]},
        "loguniform(1e-5,1e-2)",
        "loguniform(1e-5, 1e-2)",
    ],
)
def test_one_parameter_in_all_its_forms(form):
    parameter = one(form)
    assert (parameter.key, parameter.kind, parameter.values) == ("training.lr", "loguniform", (1e-5, 1e-2))


def test_tunes_own_objects_are_read():
    from ray import tune

    space = {
        "a": tune.grid_search([1, 2]),
        "b": tune.uniform(0, 1),
        "c": tune.loguniform(1e-4, 1e-1),
        "d": tune.quniform(0, 1, 0.1),
        "e": tune.randint(1, 10),
        "f": tune.choice(["x", "y"]),
        "g": tune.randn(2, 0.5),
        "h": tune.lograndint(1, 1000),
        "i": tune.qrandint(2, 8, 2),
    }
    found = {p.key: (p.kind, p.values) for p in parameters_in(space)}
    assert found["a"] == ("grid", (1, 2))
    assert found["b"] == ("uniform", (0.0, 1.0))
    assert found["c"] == ("loguniform", (1e-4, 1e-1))
    assert found["d"] == ("quniform", (0.0, 1.0, 0.1))
    assert found["e"] == ("randint", (1, 10))
    assert found["f"] == ("choice", ("x", "y"))
    assert found["g"] == ("normal", (2.0, 0.5))
    assert found["h"] == ("lograndint", (1, 1000))
    assert found["i"][0] == "qrandint"
    assert {one(tune.qrandint(2, 8, 2)).sample(RNG, {}) for _ in range(60)} <= {2, 4, 6, 8}


def test_nested_sections_become_dotted_keys():
    tree = {
        "training": {
            "lr": "uniform(0,1)",
            "model": {"fcnet_hiddens": {"type": "choice", "values": [[64], [64, 64]]}},
        },
        "environment.env_config.size": "randint(4,9)",
    }
    assert parameters_in(tree).keys == [
        "training.lr",
        "training.model.fcnet_hiddens",
        "environment.env_config.size",
    ]


def test_words_of_the_command_line_are_distinguished():
    rest, space = from_words(
        [
            "training.lr=loguniform(1e-5,1e-2)",
            "training.gamma=0.9,0.99",
            "stop_conditions.training_iteration=5",
            "training.model.fcnet_hiddens=choice([64],[32,32])",
            "environment.env_config.name=grid(a,b c)",
            "+training.x=range(1,4)",
        ]
    )
    assert rest == ["stop_conditions.training_iteration=5"]
    found = {p.key: (p.kind, p.values) for p in space}
    assert found["training.lr"] == ("loguniform", (1e-5, 1e-2))
    assert found["training.gamma"] == ("grid", (0.9, 0.99))
    assert found["training.model.fcnet_hiddens"] == ("choice", ([64], [32, 32]))
    assert found["environment.env_config.name"] == ("grid", ("a", "b c"))
    assert found["training.x"] == ("grid", (1, 2, 3))


@pytest.mark.parametrize(
    ("form", "low", "high"),
    [
        ("uniform(-1,1)", -1, 1),
        ("loguniform(1e-5,1e-2)", 1e-5, 1e-2),
        ("randint(1,4)", 1, 3),
        ("lograndint(1,1000)", 1, 999),
        ("quniform(0,1,0.25)", 0, 1),
        ("qloguniform(0.1,10,0.1)", 0.1, 10),
        ("qrandint(2,8,2)", 2, 8),
    ],
)
def test_samples_stay_within_their_bounds_and_reach_them(form, low, high):
    parameter = one(form)
    values = [parameter.sample(RNG, {}) for _ in range(3000)]
    assert low <= min(values) and max(values) <= high
    if parameter.is_integer:
        assert all(isinstance(v, int) for v in values)
        assert min(values) == low
    if parameter.kind == "randint":
        assert set(values) == {1, 2, 3}
    if parameter.kind == "quniform":
        assert set(values) == {0.0, 0.25, 0.5, 0.75, 1.0}


def test_loguniform_is_even_over_magnitudes():
    values = [math.log10(one("loguniform(1e-6,1e-2)").sample(RNG, {})) for _ in range(4000)]
    counts = np.histogram(values, bins=4, range=(-6, -2))[0]
    assert counts.min() > 850


def test_conditions_leave_out_what_does_not_matter():
    _, space = from_words(
        [
            "training.model.lstm_cell_size=choice(32,64) if training.model.use_lstm=true",
            "training.model.use_lstm=choice(true,false)",
        ]
    )
    assert space.keys == ["training.model.use_lstm", "training.model.lstm_cell_size"]
    points = [space.completed({}, RNG) for _ in range(40)]
    assert all(("training.model.lstm_cell_size" in p) == p["training.model.use_lstm"] for p in points)
    assert len({len(p) for p in points}) == 2


def test_a_conditional_grid_has_each_point_once():
    _, space = from_words(["a=grid(1,2)", "b=grid(x,y) if a=2"])
    assert space.grid == [{"a": 1}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]


def test_sample_from_calls_the_users_function(tmp_path, monkeypatch):
    (tmp_path / "mine_sample.py").write_text("def double(config):\n    return 2 * config['a']\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    space = parameters_in(
        {"a": "choice(3,4)", "b": {"type": "sample_from", "values": ["mine_sample:double"]}}
    )
    point = space.completed({}, RNG)
    assert point["b"] == 2 * point["a"]
    assert parameters_in({"c": {"sample_from": "mine_sample:double"}})["c"].kind == "sample_from"


def test_the_space_survives_being_written_down():
    _, space = from_words(["a=loguniform(1e-5,1e-2)", "b=choice([1],[2,3]) if c=1", "c=grid(1,2)"])
    assert parameters_in(space.to_dict()) == space


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"type": "logunifrom", "values": [1, 2]}, "did you mean loguniform"),
        ({"type": "uniform", "values": [1]}, "1 values, not 2"),
        ("uniform(2,1)", "2 is not below 1"),
        ("loguniform(0,1)", "begins above 0"),
        ("uniform(a,b)", "no numbers"),
        ("quniform(0,1,0)", "step above 0"),
        ("randint(0.5,3)", "not whole"),
        ("choice()", "has no values"),
        ("normal(0,0)", "deviation above 0"),
        ("sample_from(3)", "names no function"),
        (0.001, "is no search space"),
        ({"type": "uniform", "values": [0, float("inf")]}, "not finite"),
    ],
)
def test_wrong_parameters_are_reported_with_the_next_step(form, said):
    with pytest.raises(ConfigError) as error:
        one(form)
    assert said in str(error.value)
    assert "training.lr" in str(error.value)


def test_all_wrong_parameters_are_reported_at_once():
    with pytest.raises(ConfigError) as error:
        parameters_in({"a": "uniform(1,0)", "b": "loguniform(-1,1)", "c": 3})
    assert [problem.key for problem in error.value.problems] == ["a", "b", "c"]


def test_conditions_in_a_circle_are_refused():
    with pytest.raises(ConfigError, match="circle"):
        from_words(["a=choice(1,2) if b=1", "b=choice(1,2) if a=1"])


def test_a_grid_too_large_to_run_is_refused():
    many = {f"k{i}": list(range(20)) for i in range(5)}
    with pytest.raises(ConfigError, match="3,200,000 points"):
        parameters_in(many)


def test_numpys_numbers_become_pythons_and_arrays_stay_arrays():
    array = np.array([1, 2])
    space = parameters_in(
        {
            "lr": {"type": "grid", "values": list(np.linspace(0.1, 0.3, 2))},
            "n": {"choice": [np.int64(8), np.bool_(True), np.str_("a"), [np.int64(4)], (np.float32(0.5),)]},
            "same": {"type": "grid", "values": np.array([1, 2])},
            "data": {"grid_search": [array, array]},
            "b": {"type": "uniform", "values": [np.float64(0), np.int64(1)], "when": {"same": np.int64(1)}},
        }
    )
    assert [repr(value) for value in space["lr"].values] == ["0.1", "0.3"]
    assert repr(space["n"].values) == "(8, True, 'a', [4], (0.5,))"
    assert repr(space["same"].values) == "(1, 2)"
    assert space["data"].values[0] is array
    assert repr(space["b"].values) == "(0.0, 1.0)" and repr(space["b"].when) == "(('same', (1,)),)"
