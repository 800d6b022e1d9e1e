"""The display of a sweep: a table that fits the terminal, plain lines where there is none."""

from __future__ import annotations

import io
import math
import sys
import time

import pytest
from rich.console import Console

from rayfish.sweep import live
from rayfish.sweep.importance import quick_importances
from rayfish.sweep.live import PlainLines, Screen, open_live
from rayfish.sweep.live_table import draw, final_table
from rayfish.sweep.records import DONE, FAILED, PENDING, RUNNING
from rayfish.sweep.view import about, figure, short_names, shown
from tests.sweep.fake_sweep import sweep

MANY = {f"group{i}.a_parameter_{i}": "uniform(0,1)" for i in range(20)}


def printed(view, width=80, height=24, shares=None):
    """The table's lines for a terminal of that size."""
    out = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    out.print(draw(view, quick_importances(view) if shares is None else shares, width - 3, height))
    return out.file.getvalue().rstrip("\n").split("\n")


def final(view, width=80):
    out = Console(file=io.StringIO(), width=width, force_terminal=False)
    out.print(final_table(view, out))
    return out.file.getvalue()


@pytest.mark.parametrize("width, height", [(80, 24), (160, 50), (60, 14), (200, 24)])
@pytest.mark.parametrize(
    "changes", [{"running": 4, "total": 90}, {"repeat": 3}, {"space": MANY, "running": 30}, {"count": 0}]
)
def test_the_table_fits_the_terminal(width, height, changes):
    lines = printed(sweep(**changes), width, height)
    assert max(map(len, lines)) <= width - 3
    assert len(lines) <= height - 1


def test_the_table_says_how_the_sweep_stands():
    text = "\n".join(printed(sweep(running=4, total=90), 160, 50))
    for words in ("56 of 90 trials", "4 running", "30 waiting", "23 done", "30 stopped early", "3 failed"):
        assert words in text
    assert "cartpole · PPO on CartPole-v1" in text
    assert "428.7   trial 8   lr 0.0004911" in text
    assert "10:14   about " in text
    matters = next(line for line in printed(sweep(), 160, 50) if "matters" in line)
    assert matters.index("lr ") < matters.index("gamma ")


def test_running_trials_come_first_with_their_curves_then_the_best():
    rows = [
        line.split() for line in printed(sweep(running=2), 160, 30) if "▶ running" in line or "✓ done" in line
    ]
    assert [row[2] for row in rows[:3]] == ["▶", "▶", "✓"]
    assert {"59", "60"} == {row[1] for row in rows[:2]}
    assert all(set(row[7]) <= set("▁▂▃▄▅▆▇█") for row in rows)
    scores = [float(row[4]) for row in rows[2:]]
    assert scores == sorted(scores, reverse=True)


def test_less_is_better_where_the_sweep_minimises():
    view = sweep(mode="min", scheduler="none")
    assert view.best().value == min(t.value for t in view.trials.values() if t.value is not None)
    assert view.points()[0].value == view.best().value


def test_columns_that_matter_least_give_way():
    view = sweep(space=MANY)
    shares = dict(zip(reversed(view.space.keys), range(20, 0, -1), strict=True))
    head = next(line for line in printed(view, 80, 24, shares) if "score" in line)
    assert "a_parameter_19" in head
    assert "a_parameter_0 " not in head


def test_repeated_points_show_mean_and_interval():
    view = sweep(repeat=3, count=30, failed=0)
    best = view.best_point()
    text = "\n".join(printed(view, 100, 24))
    assert f"{figure(best.value)} [{figure(best.low)}, {figure(best.high)}]" in text
    assert best.low < best.value < best.high
    assert len(view.points()) == 10
    assert "3/3" in text


def test_points_that_failed_or_still_run_come_last():
    view = sweep(repeat=2, count=12, failed=2, running=2)
    states = [point.state for point in view.points()]
    assert states[-1] == FAILED
    assert states[-2] == RUNNING
    assert view.points()[0] == view.best_point()


def test_a_failed_trial_is_never_the_best():
    view = sweep(count=10, failed=0)
    view.trials[4].value, view.trials[4].state = 1e9, FAILED
    view.trials[5].value = math.nan
    assert view.best().number not in (4, 5)
    assert view.best_point().number not in (4, 5)


def test_time_left_needs_a_trial_that_has_ended():
    view = sweep(count=4, failed=0, running=4, total=20)
    assert view.time_left() is None
    view.trials[1].state, view.trials[1].seconds = DONE, 100.0
    for number in (2, 3, 4):
        view.trials[number].seconds = 50.0
    assert view.time_left() == pytest.approx((19 * 100 - 150) / 4)
    view.search = sweep(time_budget_s=620.0).search
    assert view.time_left() == pytest.approx(6.0)


def test_a_thousand_trials_are_drawn_in_a_moment():
    view = sweep(count=1000, space=MANY, running=8)
    printed(view, 160, 50, {})
    begun = time.process_time()
    printed(view, 160, 50, {})
    assert time.process_time() - begun < 0.25


def test_updates_between_redraws_cost_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with open_live(sweep(count=1000), plain=False) as table:
        table.update()
        begun = time.process_time()
        for _ in range(10_000):
            table.update()
        assert time.process_time() - begun < 0.5


@pytest.mark.parametrize("terminal", [True, False])
def test_a_long_message_breaks_no_word(terminal):
    out = Console(file=io.StringIO(), width=40, force_terminal=terminal, color_system=None)
    message = "trial 1 reports no 'reward' so far: it reports accuracy, loss and more"
    live.LiveTable(sweep(), out).note(message)
    lines = out.file.getvalue().splitlines()
    assert (" ".join(line.strip() for line in lines), len(lines)) == (message, 2 if terminal else 1)


def test_the_screen_leaves_its_last_picture_and_messages_above_it(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    view = sweep(running=2)
    with Screen(view, Console(file=out, width=100, height=24, force_terminal=True)) as table:
        table.note("a [bold]note[/bold]")
        table.trial_failed(view.trials[58])
        table.update()
    text = out.getvalue()
    assert "a [bold]note[/bold]" in text
    assert "trial 58 failed" in text
    assert "invalid values" in text
    assert text.rindex("58 of 60 trials") > text.rindex("trial 58 failed")
    assert "Ctrl-C" not in text[text.rindex("╭") :]


def test_what_matters_is_worked_out_beside_the_loop():
    shares = live._Shares(sweep())
    assert shares.known() == {}
    shares._thread.join(30)
    assert next(iter(shares.known())) == "training.lr"


def test_plain_lines_tell_of_each_trial_once(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(live, "REDRAW_S", 0.0)
    view = sweep(count=12, failed=1)
    ended = {number: trial.state for number, trial in view.trials.items()}
    for trial in view.trials.values():
        trial.state = RUNNING
    view.trials[1].state = DONE  # in an earlier session
    with open_live(view) as table:
        assert isinstance(table, PlainLines)
        for number, state in ended.items():
            view.trials[number].state = state
            if state == FAILED:
                table.trial_failed(view.trials[number])
            table.update()
    lines = out.getvalue().splitlines()
    assert lines[0] == "rayfish tune: cartpole · PPO on CartPole-v1"
    assert not any("trial 1 " in line for line in lines[:-1])
    for number in range(2, 13):
        assert sum(f"trial {number} " in line for line in lines[:-1]) == 1
    told = next(line for line in lines if "trial 8 " in line)
    assert "rollout/return_mean 428.7" in told
    assert "lr=0.0004911" in told
    assert told.endswith("in 0:56  (best so far)")
    assert "ValueError" in next(line for line in lines if "trial 12 failed" in line)
    assert lines[-1].startswith("[10:14]  12 of 12 trials finished")
    assert "best 428.7 by trial 8" in lines[-1]


def test_plain_lines_sum_up_twice_a_minute(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(live, "REDRAW_S", 0.0)
    monkeypatch.setattr(live, "PLAIN_SUMMARY_S", 0.05)
    table = open_live(sweep(running=3, total=100), plain=True)
    table.update()
    time.sleep(0.06)
    table.update()
    table.update()
    assert out.getvalue().count("57 of 100 trials finished") == 1
    assert "left" in out.getvalue()


def test_a_trial_that_will_be_tried_again_says_so(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    view = sweep(count=3, failed=1)
    view.trials[3].state = PENDING
    open_live(view, plain=True).trial_failed(view.trials[3])
    told = out.getvalue()
    assert "trial 3 failed and is tried again (lr=" in told and "): ValueError" in told


def test_the_end_shows_the_best_with_all_parameters_and_each_error_once():
    for width in (80, 200):
        text = final(sweep(), width)
        assert "The best 10 of 60 trials by rollout/return_mean" in text
        assert all(name in text for name in short_names(sweep().space.keys).values())
        assert max(map(len, text.splitlines())) <= width
        assert "3 trials failed (58, 59, 60): ValueError" in text
    assert "no trial has a score" in final(sweep(count=0))
    assert "mean" not in final(sweep(count=2, failed=2))


def test_errors_that_differ_in_numbers_and_folders_only_are_one_kind():
    view = sweep(count=12, failed=3)
    for number, trial in list(view.trials.items())[-3:]:
        trial.error = f"loss is {number / 7:.3g} in trials/{trial.name}/log.txt"
    assert "3 trials failed (10, 11, 12): loss is 1.43 in trials" in final(view, 200)


def test_names_are_as_short_as_they_can_be():
    keys = ["training.lr", "a.b.lr", "algo.name", "model.lstm", "lr_schedule", "x"]
    assert list(short_names(keys).values()) == [
        "training.lr",
        "b.lr",
        "algo.name",
        "lstm",
        "lr_schedule",
        "x",
    ]


def test_values_and_spans_are_written_for_people():
    assert [shown(v) for v in (3.14159e-4, [64, 64], True, None, {"a": 1}, "x\ny")] == [
        "0.0003142",
        "[64,64]",
        "True",
        "None",
        "{a:1}",
        "x y",
    ]
    assert shown("a" * 30, 10) == "aaaaaaaaa…"
    assert [about(s) for s in (3, 42, 180, 7800, 400_000)] == ["3 s", "40 s", "3 min", "2 h 10 min", "5 d"]
    assert figure(1.2e30) == "1.2e+30"
