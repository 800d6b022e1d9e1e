"""Curves in characters."""

from __future__ import annotations

from rayfish import text
from rayfish.metrics import spark


def test_a_rising_series_rises():
    (row,) = spark.area([0, 1, 2, 3, 4, 5, 6, 7], 8)
    assert row == "▁▂▃▄▅▆▇█"


def test_rows_stack_to_one_curve():
    top, bottom = spark.area([0.0, 1.0], 2, 2)
    assert (top, bottom) == (" █", "▁█")


def test_the_top_can_be_a_goal_that_is_not_reached():
    (row,) = spark.area([0.0, 50.0], 2, high=100.0)
    assert row[1] in "▄▅"


def test_a_flat_series_and_an_empty_one_are_drawn():
    assert set(spark.area([3.0, 3.0, 3.0], 3)[0]) == {"▄"}
    assert spark.area([], 10, 2) == ["", ""]


def test_resampling_fills_the_width_and_keeps_the_ends():
    assert spark.resample([0.0, 10.0], 5) == [0.0, 2.5, 5.0, 7.5, 10.0]
    long = spark.resample([float(i) for i in range(1000)], 10)
    assert len(long) == 10
    assert long[0] == 49.5
    assert spark.resample([4.0], 3) == [4.0, 4.0, 4.0]


def test_a_long_series_stays_within_its_bound_and_keeps_its_shape():
    series = spark.Series(most=64)
    for value in range(10_000):
        series.append(float(value))
    values = series.values()
    assert len(values) <= 64
    assert values == sorted(values)
    assert values[0] < 300
    assert values[-1] > 9_700


def test_numbers_read_well():
    assert [text.number(x) for x in (312.44, 0.012345, 1204000.0, 5.0, 99.999, -3.14159)] == [
        "312.4",
        "0.01235",
        "1,204,000",
        "5",
        "100.00",
        "-3.14",
    ]
    assert [text.rate(x) for x in (950.2, 10412.0, 2_030_000.0)] == ["950", "10.4k", "2.03M"]
    assert [text.duration(x) for x in (12.4, 245, 3723, 275_000)] == ["0:12", "4:05", "1:02:03", "3 d 4 h"]
    assert [text.age(x) for x in (5, 130, 7300, 200_000)] == ["5 s", "2 min", "2 h", "2 d"]
