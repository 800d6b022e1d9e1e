"""The page of a sweep: one file, everything drawn in a real browser, whatever the trials were."""

from __future__ import annotations

import json
import math
import re

import pytest

from rayfish.report.sweep_data import bulk, ticks
from rayfish.report.sweep_page import write_page
from rayfish.sweep.records import FAILED, STOPPED
from tests.sweep.browser import CHROMIUM, ask
from tests.sweep.fake_sweep import sweep

browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

MARKS = """return {
  history: count("#history .history_marks > path"), lines: count("#parallel .parallel_marks > path"),
  curves: count("#curves .curves_marks > path"), moves: count("#curves .moves_marks > path"),
  bars: count("#importance .importance_marks > path"), rows: count("#trials tbody tr"),
  intervals: count("#repeats .intervals_marks > line"), means: count("#repeats .means_marks > path"),
  slices: [...document.querySelectorAll(".slices .chart")].map((chart) =>
    chart.querySelectorAll(`.${chart.id}_marks > path`).length),
};"""


def data_of(page):
    """The page's data, as its script reads it."""
    found = re.search(
        r'<script id="data" type="application/json">(.*?)</script>', page.read_text(), re.DOTALL
    )
    return json.loads(found[1])


def scored(view):
    return [t for t in view.trials.values() if t.value is not None and math.isfinite(t.value)]


@browser
def test_every_trial_with_a_score_is_drawn_once_in_every_picture(tmp_path):
    view = sweep(tmp_path, running=2)
    drawn = ask(write_page(view, tmp_path / "report.html"), MARKS)
    with_score = len(scored(view))
    assert with_score == 57
    assert drawn["history"] == drawn["lines"] == with_score
    assert drawn["curves"] == sum(bool(t.curve) for t in view.trials.values())
    assert drawn["rows"] == 60
    assert drawn["bars"] == len(view.space)
    by_key = {axis: sum(axis in t.params for t in scored(view)) for axis in view.space.keys}
    assert sorted(drawn["slices"]) == sorted(by_key.values())
    assert min(by_key.values()) < with_score  # the conditional parameter is not everywhere


@browser
def test_pointing_at_a_trial_lights_it_up_everywhere_and_the_table_sorts(tmp_path):
    page = write_page(sweep(tmp_path), tmp_path / "report.html")
    told = ask(
        page,
        """
        const mark = document.querySelector("#history .history_marks > path");
        const box = mark.getBoundingClientRect();
        const at = { bubbles: true, clientX: box.x + 3, clientY: box.y + 3 };
        mark.dispatchEvent(new MouseEvent("mousemove", at));
        await wait(600);
        const lit = [...document.querySelectorAll("#trials tr.lit")].map((row) => Number(row.dataset.trial));
        const rings = count("#history .layer_2_marks > path");
        const threads = count("#parallel .layer_2_marks > path");
        const curves = count("#curves .layer_1_marks > path");
        const tip = document.getElementById("tip").textContent;
        document.querySelector("#history svg").dispatchEvent(new MouseEvent("mouseout", { bubbles: true }));
        await wait(300);
        const after = count("#trials tr.lit");
        document.querySelector("#trials th").click();
        const rows = [...document.querySelectorAll("#trials tbody tr")];
        const sorted = rows.map((row) => Number(row.dataset.trial));
        const filter = document.getElementById("filter");
        filter.value = "failed";
        filter.dispatchEvent(new Event("input"));
        const kept = rows.filter((row) => !row.hidden).length;
        return { lit, rings, threads, curves, tip, after, sorted, kept };
        """,
    )
    assert len(told["lit"]) == 1
    assert (told["rings"], told["threads"], told["curves"]) == (1, 1, 1)
    assert f"trial {told['lit'][0]}" in told["tip"]
    assert "gamma" in told["tip"]
    assert told["after"] == 0
    assert told["sorted"] == list(range(1, 61))
    assert told["kept"] == 3


@browser
def test_repetitions_show_means_with_intervals_and_moves_are_marked_on_the_curves(tmp_path):
    view = sweep(tmp_path, repeat=3, count=24, failed=0, mode="min")
    for number in (2, 5):
        view.trials[number].moves.append((view.trials[number].curve[2][0], 1, {"training.lr": 1e-3}))
    drawn = ask(write_page(view, tmp_path / "report.html"), MARKS)
    assert drawn["means"] == drawn["intervals"] == 8
    assert drawn["history"] == 24
    assert drawn["moves"] == 2


def test_the_axis_of_repetitions_covers_their_intervals(tmp_path):
    view = sweep(tmp_path, repeat=2, count=8, failed=0)
    chart = data_of(write_page(view, tmp_path / "report.html"))["charts"]["repeats"]
    low, high = chart["layer"][0]["encoding"]["x"]["scale"]["domain"]
    points = view.points()
    assert low <= min(p.low for p in points) and high >= max(p.high for p in points)


@browser
def test_odd_values_are_drawn_and_text_is_never_taken_for_html(tmp_path):
    values = ["a long value, " * 20, "</script><b>x</b>", {"a": [1, 2]}, None, True, 3]
    space = {f"g{i}.p{i}": {"type": "choice", "values": values} for i in range(3)}
    space["<img src=x onerror=fail()>.lr"] = "loguniform(1e-5,1)"
    view = sweep(tmp_path, count=30, space=space)
    view.title = "<script>fail()</script> {{body}}"
    view.notes = ["</main><script>fail()</script>"]
    for number, value in enumerate((1e30, -1e300, math.nan, math.inf), 1):
        view.trials[number].value = value
    view.trials[5].curve.append((41.0, math.nan))
    view.trials[6].curve.append((41.0, 1e308))
    view.trials[29].details = "Traceback\n</pre></script><script>fail()</script>"
    drawn = ask(
        write_page(view, tmp_path / "report.html"),
        MARKS.replace(
            "return {", "return { title: document.querySelector('h1').textContent, images: count('img'),"
        ),
    )
    assert drawn["title"] == view.title
    assert drawn["images"] == 0
    assert drawn["history"] == drawn["lines"] == len(scored(view)) == 25
    assert drawn["slices"] == [25] * 4
    assert drawn["curves"] == 27


@pytest.mark.slow
@browser
@pytest.mark.parametrize("count, failed, marks", [(2, 2, 0), (1, 0, 1)])
def test_sweeps_with_hardly_a_trial_have_a_page(tmp_path, count, failed, marks):
    view = sweep(tmp_path, count=count, failed=failed, total=10)
    drawn = ask(write_page(view, tmp_path / "report.html"), MARKS)
    assert drawn["history"] == drawn["lines"] == marks
    assert drawn["rows"] == count


@pytest.mark.parametrize("count, failed, score", [(0, 0, False), (2, 2, False), (1, 0, True)])
def test_hardly_a_trial_still_gives_a_page(tmp_path, count, failed, score):
    page = write_page(sweep(tmp_path, count=count, failed=failed, total=10), tmp_path / "report.html")
    assert ("No trial has a score" not in page.read_text()) == score
    assert ("history" in data_of(page)["charts"]) == score
    assert len(data_of(page)["trials"]) == count


def test_the_page_says_what_is_best_and_how_to_train_it(tmp_path):
    view = sweep(tmp_path / "it's here")
    (tmp_path / "it's here").mkdir()
    view.best_command = f"rayfish train -f {view.folder}/best.yaml"
    text = write_page(view, view.folder / "report.html").read_text()
    best = view.best()
    assert f"trial {best.number}" in text
    assert f"rayfish train -f {tmp_path}/it&#x27;s here/best.yaml" in text
    assert f'href="trials/{best.name}/"' in text
    view.best_command = ""
    assert "rayfish train" not in write_page(view, view.folder / "report.html").read_text()


def test_two_hundred_trials_take_less_than_two_megabytes_beside_the_libraries(tmp_path):
    view = sweep(tmp_path, count=200)
    for trial in view.trials.values():
        trial.curve = [(float(i), math.sin(i) * 1e3) for i in range(2000)]
    page = write_page(view, tmp_path / "report.html")
    empty = write_page(sweep(tmp_path, count=0), tmp_path / "empty.html")
    assert page.stat().st_size - empty.stat().st_size < 2_000_000


def test_the_best_so_far_never_counts_a_failed_trial_and_follows_the_order_of_ends(tmp_path):
    view = sweep(tmp_path, count=12, failed=0)
    view.trials[3].value, view.trials[3].state = 1e6, FAILED
    view.trials[12].ended = 1.0
    data = data_of(write_page(view, tmp_path / "report.html"))
    best = [row["best"] for row in data["best"]]
    assert max(best) < 1e6
    assert best == sorted(best)
    assert next(row for row in data["trials"] if row["trial"] == 12)["order"] == 1


def test_a_parameter_that_left_its_range_still_lies_on_its_axis(tmp_path):
    view = sweep(tmp_path, count=10, failed=0)
    view.trials[1].params = {**view.trials[1].params, "training.lr": 0.5, "algo.name": "SAC"}
    view.trials[2].state = STOPPED
    rows = data_of(write_page(view, tmp_path / "report.html"))["trials"]
    assert all(-0.2 < y <= 1.0 for row in rows for y in row["ys"])


def test_ticks_of_scores_keep_their_decimals(tmp_path):
    view = sweep(count=12, failed=0)
    for number, trial in view.trials.items():
        trial.value = -2.0 - 0.5 * number
        trial.curve = [(step, trial.value) for step, _ in trial.curve]
    text = write_page(view, tmp_path / "report.html").read_text()
    assert "Only a hint: 12 points are too few to tell" in text
    history = data_of(tmp_path / "report.html")["charts"]["history"]
    axes = [layer["encoding"]["y"]["axis"] for layer in history["layer"] if "axis" in layer["encoding"]["y"]]
    assert axes and all(-7.5 not in axis["values"] or "'-7.5'" in axis["labelExpr"] for axis in axes)
    assert all("labelExpr" in axis for axis in axes)


@pytest.mark.parametrize(
    "low, high, log, written",
    [
        (1e-5, 1e-2, True, ["1e-5", "0.0001", "0.001", "0.01"]),
        (16, 256, True, ["20", "50", "100", "200"]),
        (0.9, 0.999, False, ["0.9", "0.92", "0.94", "0.96", "0.98"]),
        (-100, 500, False, ["-100", "0", "100", "200", "300", "400", "500"]),
        (3, 3, False, ["3"]),
    ],
)
def test_axes_are_marked_with_round_numbers(low, high, log, written):
    assert [name for _, name in ticks(low, high, log=log)] == written


def test_an_axis_leaves_out_what_would_flatten_everything_else():
    values = [float(v) for v in range(100)]
    assert bulk([*values, 1e30], 0.1, 5)[1] < 110
    assert bulk(values, 0.1, 5) == pytest.approx((-3.96, 102.96))
    assert bulk([-1.7e308, 1.7e308], 0.1, 5) == (-1.7e308, 1.7e308)
