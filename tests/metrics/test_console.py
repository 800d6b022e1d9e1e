"""The display: plain lines where there is no terminal, a panel that fits where there is one."""

from __future__ import annotations

import io
import sys
import threading
import time

import pytest
from rich.console import Console as RichConsole

from rayfish.metrics import names
from rayfish.metrics.console import LiveConsole, PlainConsole, open_console
from rayfish.metrics.panel import RunView, draw, env_figures
from rayfish.metrics.stop import StopConditions

GOAL = StopConditions({names.RETURN_MEAN: 475, names.ENV_STEPS: 1_000_000})


def line(iteration=1, **extra):
    return {
        names.ITERATION: iteration,
        names.ENV_STEPS: 4096 * iteration,
        names.EPISODES: 12 * iteration,
        names.TIME_TOTAL: 2.0 * iteration,
        names.STEPS_PER_S: 10_412.0,
        names.RETURN_MEAN: 10.0 * iteration,
        names.RETURN_MIN: 9.0,
        names.RETURN_MAX: 88.0,
        names.ENV_SHARE: 0.1,
        names.LEARN_SHARE: 0.6,
        names.INFERENCE_SHARE: 0.25,
    } | extra


EVALUATED = {
    names.EVAL_RETURN_MEAN: 231.0,
    names.EVAL_CI_LOW: 198.4,
    names.EVAL_CI_HIGH: 260.1,
    names.EVAL_EPISODES: 10,
}


@pytest.fixture
def plain(tmp_path, monkeypatch):
    """A plain console and what it has printed."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    return open_console("cartpole · PPO on CartPole-v1", GOAL, tmp_path), out


REPORTED = {f"env/figure_{number}": 0.5 * number for number in range(1, 7)}


def test_figures_of_the_environment_are_shown_and_more_are_announced(plain):
    console, out = plain
    console.update(line(**{"env/saved": 0.5625}))
    assert "env/saved 0.5625" in out.getvalue()
    console.close()
    assert "env/figure_3 1.50   (+3 in metrics.jsonl)" in printed(100, 30, line(**REPORTED))
    assert "env/figure_1 0.5   (+5 in metrics.jsonl)" in printed(64, 30, line(**REPORTED)), "whole words"


def test_a_figure_that_ends_the_run_is_shown_first():
    view = RunView("x", StopConditions({"env/figure_6": 9}), None)
    view.update(line(**REPORTED))
    assert env_figures(view, 2) == ["env/figure_6 3", "env/figure_1 0.5", "(+4 in metrics.jsonl)"]


def printed(width, height, *lines, **changes):
    """The panel's text after these metric lines."""
    view = RunView("cartpole · PPO on CartPole-v1", GOAL, None)
    for entry in lines:
        view.update(entry)
    for name, value in changes.items():
        setattr(view, name, value)
    out = RichConsole(file=io.StringIO(), width=width, height=height, force_terminal=False)
    out.print(draw(view, width, height))
    return out.file.getvalue()


def test_plain_lines_are_chosen_where_there_is_no_terminal(plain):
    assert isinstance(plain[0], PlainConsole)


def test_plain_lines_come_at_most_once_a_second_and_always_first_and_last(plain):
    console, out = plain
    for iteration in range(1, 50):
        console.update(line(iteration))
    console.finish("done", "rollout/return_mean 476 >= 475")
    text = out.getvalue()
    assert "iteration 1  steps 4,096  episodes 12  return 10  10.4k steps/s" in text
    assert "iteration 49" in text
    assert text.count("iteration ") == 2
    assert "done: rollout/return_mean 476 >= 475" in text


def test_an_evaluation_is_never_skipped_in_plain_lines(plain):
    console, out = plain
    console.update(line(1))
    console.update(line(2, **EVALUATED))
    assert "evaluation 231 [198.4, 260.1]" in out.getvalue()


def test_the_end_says_where_the_run_lies_and_what_to_do(plain, tmp_path):
    console, out = plain
    (tmp_path / "run.json").touch()
    (tmp_path / "checkpoints" / "last").mkdir(parents=True)
    console.update(line(1))
    console.finish("done", "goal reached")
    assert f"run folder: {tmp_path}" in out.getvalue()
    assert f"rayfish evaluate {tmp_path}" in out.getvalue()
    assert "--resume" not in out.getvalue()


@pytest.mark.parametrize("saved", [False, True])
def test_a_stopped_run_says_how_to_go_on_only_with_a_checkpoint(plain, tmp_path, saved):
    console, out = plain
    (tmp_path / "run.json").touch()
    if saved:
        (tmp_path / "checkpoints" / "last").mkdir(parents=True)
    console.update(line(1))
    console.finish("stopped", "SIGINT")
    assert ("rayfish evaluate" in out.getvalue()) == saved
    assert (f"rayfish train --resume {tmp_path}" in out.getvalue()) == saved


def test_a_run_that_another_process_trains_is_not_to_be_resumed(plain, tmp_path):
    console, out = plain
    (tmp_path / "run.json").touch()
    (tmp_path / "checkpoints" / "last").mkdir(parents=True)
    console.update(line(1))
    console.finish("taken over", "see below")
    assert "rayfish runs show" in out.getvalue() and "--resume" not in out.getvalue()


def test_of_a_folder_that_is_being_removed_nothing_is_suggested(plain, tmp_path):
    console, out = plain
    (tmp_path / "checkpoints" / "last").mkdir(parents=True)
    console.update(line(1))
    console.finish("failed", "see below")
    assert "rayfish runs show" not in out.getvalue() and "--resume" not in out.getvalue()


def test_messages_carry_who_said_them_and_their_level(plain):
    console, out = plain
    console.log("INFO", "runner 2", "wind changed [to] 12")
    console.log("WARNING", "runner 1", "two\nlines")
    console.note("resumed")
    assert out.getvalue().splitlines()[1:] == [
        "runner 2 wind changed [to] 12",
        "runner 1 warning two",
        "lines",
        "resumed",
    ]


def test_the_panel_shows_what_the_run_is_doing():
    text = printed(100, 40, *(line(i) for i in range(1, 21)), saved="000020")
    for part in (
        "81,920",
        "240",
        "200",
        "475",
        "10.4k steps/s",
        "bottleneck learner",
        "000020",
        "learner 60 %",
    ):
        assert part in text
    assert "█" in text


def test_the_panel_tells_the_time_left_to_the_nearest_goal():
    text = printed(100, 40, *(line(i) for i in range(1, 21)))
    assert "0:40" in text  # 20 iterations of 2 s
    assert "0:55 left to rollout/return_mean 475" in text


def test_the_panel_shows_evaluation_lost_workers_and_the_end():
    faults = {names.WORKERS_LOST: 1, names.WORKER_RESTARTS: 2}
    text = printed(100, 40, line(1, **EVALUATED), line(2, **faults), ended="done", reason="goal reached")
    assert "231" in text
    assert "198.4 to 260.1" in text
    assert "1 worker lost now, 2 worker restarts" in text
    assert "done: goal reached" in text


@pytest.mark.parametrize(("width", "height"), [(60, 16), (80, 24), (140, 50)])
def test_the_panel_fits_the_terminal(width, height):
    faults = {names.WORKERS_LOST: 1, names.CPU: 99.0, names.RAM: 30.0}
    entries = [line(i, **EVALUATED, **faults) for i in range(1, 200)]
    lines = printed(width, height, *entries, saved="000190").splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= height


def test_the_panel_says_so_before_the_first_episode_ends():
    entry = {key: value for key, value in line(1).items() if not key.startswith("rollout/return")}
    assert "no episode has ended yet" in printed(80, 24, entry)
    assert "starting Ray" in printed(80, 24, status="starting Ray")


def test_messages_stand_above_the_live_panel():
    out = RichConsole(
        file=io.StringIO(), width=80, height=30, force_terminal=True, _environ={"TERM": "xterm"}
    )
    console = LiveConsole(RunView("cartpole", GOAL, None), out)
    console.update(line(1))
    console.log("INFO", "runner 1", "hello from the env")
    console.close()
    console.close()
    text = out.file.getvalue()
    assert text.index("hello from the env") < text.rindex("progress")


def test_a_resumed_run_shows_its_whole_curve(plain):
    console, out = plain
    console.recall([line(1), line(2)])
    console.update(line(3))
    assert console._view.returns.values() == [10.0, 20.0, 30.0]
    assert "iteration 1" not in out.getvalue()


def test_drawing_is_cheap():
    view = RunView("cartpole", GOAL, None)
    for iteration in range(1, 2000):
        view.update(line(iteration))
    out = RichConsole(file=io.StringIO(), width=120, height=40, force_terminal=True)
    out.print(draw(view, 120, 40))
    begun = time.process_time()
    for _ in range(10):
        out.print(draw(view, 120, 40))
    assert (time.process_time() - begun) / 10 < 0.05


def test_a_run_that_two_threads_end_at_once_is_reported_once(plain):
    console, out = plain
    threads = [threading.Thread(target=console.finish, args=("failed", "see below")) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert out.getvalue().count("failed: see below") == 1
