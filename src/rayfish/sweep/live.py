"""The display of a running sweep: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from rich.live import Live
from rich.text import Text

from rayfish import text
from rayfish.metrics.panel import LABEL
from rayfish.streams import steady
from rayfish.sweep.importance import LEAST_POINTS, quick_importances
from rayfish.sweep.live_table import LOOK, draw
from rayfish.sweep.records import DONE, FAILED, RUNNING, STOPPED, Trial
from rayfish.sweep.view import STATES, SweepView, about, figure, short_names, written
from rayfish.terminal import Console as RichConsole

REDRAW_S, PLAIN_SUMMARY_S, SHARES_S = 0.25, 30.0, 5.0


class LiveTable:
    """The base of both displays; messages (`note`, `trial_failed`) are printed above the table."""

    def __init__(self, view: SweepView, out: RichConsole) -> None:
        self._view = view
        self._out = out
        self._looked = 0.0

    def __enter__(self) -> LiveTable:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def update(self) -> None:
        """Show the current state; costs nothing while the last picture is fresh."""
        now = time.monotonic()
        if now - self._looked >= REDRAW_S:
            self._looked = now
            self._show()

    def recalled(self) -> None:
        """The trials of an earlier session are known now."""

    def note(self, message: str) -> None:
        """Show a message of Rayfish itself."""
        self._out.print(Text(message), soft_wrap=not self._out.is_terminal)

    def log(self, level: str, who: str, message: str) -> None:
        """Show an error that a worker prints; the rest is in the log files."""
        if level in ("ERROR", "CRITICAL"):
            self.note(f"{who}: {message}")

    def trial_failed(self, trial: Trial) -> None:
        """Say which trial failed, at which point, and why."""
        line = Text.assemble((f"{LOOK[FAILED][0]} trial {trial.number} failed", f"bold {LOOK[FAILED][1]}"))
        if trial.state != FAILED:
            line.append(" and is tried again", style=LABEL)
        line.append(f" ({_params(self._view, trial)})", style=LABEL)
        line.append(f": {trial.error or 'it gave no reason'}")
        self._out.print(line, soft_wrap=True)

    def close(self) -> None:
        """Leave the last picture on the screen and stop drawing."""

    def _show(self) -> None:
        """Draw, or print what is new."""


class Screen(LiveTable):
    """A table that is redrawn in place, by `update` only: the loop's own thread changes the trials."""

    def __init__(self, view: SweepView, out: RichConsole) -> None:
        super().__init__(view, out)
        self._shares = _Shares(view)
        self._ended = False
        self._live = Live(
            console=out,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
            get_renderable=self._draw,
        )
        self._live.start(refresh=True)

    def close(self) -> None:
        """Draw once more and leave the picture."""
        if not self._ended:
            self._ended = True
            self._show()
            self._live.stop()

    def _show(self) -> None:
        self._live.refresh()

    def _draw(self) -> Any:
        # Room for the `^C` that a terminal echoes: in the last column it would push the picture down.
        width, height = self._out.width - 3, self._out.height
        return draw(self._view, self._shares.known(), width, height, ended=self._ended)


class _Shares:
    """The importance of the parameters, computed in a thread, and only when trials have ended since."""

    def __init__(self, view: SweepView) -> None:
        self._view = view
        self._known: dict[str, float] = {}
        self._finished = 0
        self._asked = 0.0
        self._thread: threading.Thread | None = None

    def known(self) -> dict[str, float]:
        """The newest shares; starts to compute newer ones if that is due."""
        busy = self._thread is not None and self._thread.is_alive()
        if not busy and time.monotonic() - self._asked >= SHARES_S:
            finished = self._view.finished()
            if finished != self._finished and finished >= LEAST_POINTS:
                self._finished, self._asked = finished, time.monotonic()
                self._thread = threading.Thread(target=self._work, name="rayfish-importance", daemon=True)
                self._thread.start()
        return self._known

    def _work(self) -> None:
        self._known = quick_importances(self._view) or self._known


class PlainLines(LiveTable):
    """A line for each trial that ends, and one about all of them twice a minute."""

    def __init__(self, view: SweepView, out: RichConsole) -> None:
        super().__init__(view, out)
        self._printed: set[int] = set()
        self._best: float | None = None
        self._summed_up = time.monotonic()
        self._print(f"rayfish tune: {view.title}")
        self.recalled()

    def recalled(self) -> None:
        """Trials that ended in an earlier session get no line."""
        for number, trial in self._view.trials.items():
            if trial.finished:
                self._printed.add(number)
                self._best = trial.value if self._view.search.better(trial.value, self._best) else self._best

    def trial_failed(self, trial: Trial) -> None:
        """Say which trial failed, at which point, and why."""
        if trial.state == FAILED:
            self._printed.add(trial.number)
        super().trial_failed(trial)

    def close(self) -> None:
        """Print the lines that are left."""
        self._show()
        self._print(summary_line(self._view))

    def _show(self) -> None:
        ended = sorted(self._view.trials.items(), key=lambda item: item[1].ended or 0.0)
        for number, trial in ended:
            if trial.finished and number not in self._printed:
                self._printed.add(number)
                self._summed_up = max(self._summed_up, time.monotonic() - PLAIN_SUMMARY_S / 2)
                if trial.state == FAILED:
                    self.trial_failed(trial)
                else:
                    best = self._view.search.better(trial.value, self._best)
                    self._best = trial.value if best else self._best
                    self._print(trial_line(self._view, trial, best=best))
        if time.monotonic() - self._summed_up >= PLAIN_SUMMARY_S:
            self._summed_up = time.monotonic()
            self._print(summary_line(self._view))

    def _print(self, line: str) -> None:
        self._out.print(Text(line), soft_wrap=True)


def trial_line(view: SweepView, trial: Trial, *, best: bool = False) -> str:
    """A trial that has ended, in one line of text."""
    score = f"{view.metric} {figure(trial.value)}" if trial.value is not None else "no score"
    parts = [f"[{text.duration(view.seconds)}]", f"trial {trial.number} {STATES[trial.state]}", score]
    parts += [_params(view, trial), f"in {text.duration(trial.seconds)}"]
    if best and view.search.repeat == 1:
        parts.append("(best so far)")
    return "  ".join(part for part in parts if part)


def summary_line(view: SweepView) -> str:
    """The whole sweep, in one line of text."""
    counts = view.counts()
    of = f" of {text.count(view.total)}" if view.total else ""
    ways = (RUNNING, DONE, STOPPED, FAILED)
    states = ", ".join(f"{counts[state]} {STATES[state]}" for state in ways if counts[state])
    trials = f"{view.finished()}{of} trials finished"
    parts = [f"[{text.duration(view.seconds)}]", trials + (f" ({states})" if states else "")]
    point = view.best_point()
    if point is not None:
        which = f"point {point.number}" if view.search.repeat > 1 else f"trial {point.trials[-1].number}"
        parts.append(f"best {figure(point.value)} by {which}")
    left = view.time_left()
    if left is not None and view.finished() != view.total:
        parts.append(f"about {about(left)} left")
    return "  ".join(parts)


def _params(view: SweepView, trial: Trial) -> str:
    point = written(short_names(view.space.keys), trial.earned_with, 40)
    return " ".join(f"{name}={value}" for name, value in point.items())


def open_live(view: SweepView, plain: bool | None = None) -> LiveTable:
    """The display of a sweep.

    :param plain: lines instead of the live table; None decides by whether stdout is a terminal
    """
    # The real stream, also while `supervise.logs.capture` replaces it.
    stream = steady(getattr(sys.stdout, "wrapped", sys.stdout))
    out = RichConsole(file=stream, force_jupyter=False, highlight=False, emoji=False, markup=False)
    if plain is None:
        plain = not out.is_terminal or out.is_dumb_terminal
    return PlainLines(view, out) if plain else Screen(view, out)
