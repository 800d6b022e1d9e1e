"""What the user sees during a run: a live panel in a terminal, plain lines elsewhere.

Both take the same calls: `update` with each metric line, `log` and `note` for messages (shown above the
panel), `status` before the first iteration, `saved`, `finish`, `close`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.live import Live
from rich.text import Text

from rayfish import text
from rayfish.metrics import names
from rayfish.metrics.panel import ACCENT, LABEL, RunView, draw, env_figures
from rayfish.metrics.stop import StopConditions
from rayfish.metrics.timing import bottleneck
from rayfish.streams import steady
from rayfish.terminal import Console as RichConsole
from rayfish.terminal import print_step
from rayfish.text import printable

_LEVEL_STYLES = {"DEBUG": LABEL, "WARNING": "yellow", "ERROR": "bold red", "CRITICAL": "bold red"}
_REDRAW_S = 0.4
_TICK_S = 1.0
_PLAIN_EVERY_S = 1.0
_SHOWN_FIGURES = 3


class RunConsole:
    """Shows one run; the base of both displays, and the context manager around them."""

    def __init__(self, view: RunView, out: RichConsole) -> None:
        self._view = view
        self._out = out
        self._ending = threading.RLock()

    def __enter__(self) -> RunConsole:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def update(self, metrics: Mapping[str, float]) -> None:
        """Show the metrics of an iteration."""
        self._view.update(metrics)

    def recall(
        self, lines: Iterable[Mapping[str, float]], evaluated: Mapping[str, float] | None = None
    ) -> None:
        """Take in earlier sessions' lines and last evaluation, for the curve of a resumed run."""
        for line in lines:
            self._view.update(line)
        self._view.evaluation = dict(evaluated or self._view.evaluation)

    def log(self, level: str, who: str, message: str) -> None:
        """Show a message of a worker or of the driver."""
        message = printable(message)  # before Rich takes out some control characters, and not all
        line = Text()
        if who:
            line.append(f"{who} ", style=_LEVEL_STYLES.get(level, ACCENT))
        if level in ("WARNING", "ERROR", "CRITICAL"):
            line.append(f"{level.lower()} ", style=_LEVEL_STYLES[level])
        line.append(message, style=_LEVEL_STYLES.get(level, "") if level != "WARNING" else "")
        self._out.print(line, soft_wrap=True)

    def note(self, message: str, level: str = "INFO") -> None:
        """Show a message of Rayfish itself."""
        self.log(level, "", message)

    def status(self, message: str) -> None:
        """Say what is going on before the first iteration."""
        self._view.status = message

    def saved(self, checkpoint: str) -> None:
        """Say that a checkpoint was written, and how large it is."""
        self._view.saved = checkpoint

    def finish(self, status: str, reason: str) -> None:
        """Show the end of the run (`done`, `stopped`, `failed` or `taken over`) and what can be done now.

        Once, although the watchdog may end a run that is failing by itself at that moment.
        """
        with self._ending:
            if self._view.ended != status:
                self._view.ended, self._view.reason = status, reason
                self.close()
                self._print_end()

    def _print_end(self) -> None:
        """Print what is below the last picture or line."""

    def close(self) -> None:
        """Leave the last picture on the screen and stop drawing."""

    def _next_steps(self) -> None:
        folder = self._view.folder
        if folder is None or not (folder / "run.json").is_file() or not self._view.metrics:
            return
        steps = [
            (f"rayfish runs show {folder}", "look at the run again"),
            (f"tensorboard --logdir {folder / 'events'}", "curves in the browser"),
        ]
        if (folder / "checkpoints" / "last").exists():
            steps.insert(0, (f"rayfish evaluate {folder}", "score the best checkpoint"))
            if self._view.ended not in ("done", "taken over"):
                steps.insert(0, (f"rayfish train --resume {folder}", "go on from the last checkpoint"))
        for words, what in steps:
            print_step(self._out, words, what)


class LiveConsole(RunConsole):
    """A panel that redraws itself in place."""

    def __init__(self, view: RunView, out: RichConsole) -> None:
        super().__init__(view, out)
        self._live = Live(
            console=out,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._draw,
        )
        self._drawn = 0.0
        self._closed = threading.Event()
        self._live.start(refresh=True)
        # A slow iteration must not look like a hang, so the picture also moves by itself.
        threading.Thread(target=self._tick, name="rayfish-console", daemon=True).start()

    def update(self, metrics: Mapping[str, float]) -> None:
        """Show the metrics of an iteration; redraws a few times per second at most."""
        super().update(metrics)
        if time.monotonic() - self._drawn >= _REDRAW_S:
            self._refresh()

    def status(self, message: str) -> None:
        """Say what is going on before the first iteration."""
        super().status(message)
        self._refresh()

    def _print_end(self) -> None:
        self._next_steps()

    def close(self) -> None:
        """Draw once more and leave the picture."""
        if not self._closed.is_set():
            self._closed.set()
            self._view.closed = True
            self._refresh()
            self._live.stop()

    def _draw(self) -> Any:
        # Room for the `^C` that a terminal echoes: in the last column it would push the picture down.
        return draw(self._view, self._out.width - 3, self._out.height)

    def _refresh(self) -> None:
        self._drawn = time.monotonic()
        self._live.refresh()

    def _tick(self) -> None:
        while not self._closed.wait(_TICK_S if self._view.metrics else 0.1):
            if time.monotonic() - self._drawn >= 0.1:
                self._refresh()


class PlainConsole(RunConsole):
    """One compact line per iteration, at most one per second, always the first and the last."""

    def __init__(self, view: RunView, out: RichConsole) -> None:
        super().__init__(view, out)
        self._printed = 0.0
        self._waiting = False
        self._print(f"rayfish: {view.title}")

    def update(self, metrics: Mapping[str, float]) -> None:
        """Print the iteration's line, unless the last one is less than a second old."""
        super().update(metrics)
        self._waiting = True
        if time.monotonic() - self._printed >= _PLAIN_EVERY_S or names.EVAL_RETURN_MEAN in metrics:
            self._line()

    def status(self, message: str) -> None:
        """Say what is going on before the first iteration."""
        super().status(message)
        self._print(message)

    def saved(self, checkpoint: str) -> None:
        """Print that a checkpoint was written."""
        super().saved(checkpoint)
        self.close()
        self._print(f"checkpoint {checkpoint}")

    def _print_end(self) -> None:
        self._print(f"{self._view.ended}: {self._view.reason}")
        if self._view.folder is not None:
            self._print(f"run folder: {self._view.folder}")
        self._next_steps()

    def close(self) -> None:
        """Print the last iteration if it has not been."""
        if self._waiting:
            self._line()

    def _line(self) -> None:
        self._printed = time.monotonic()
        self._waiting = False
        self._print(plain_line(self._view))

    def _print(self, line: str) -> None:
        self._out.print(Text(line), soft_wrap=True)


def plain_line(view: RunView) -> str:
    """An iteration in one line of text."""
    m = view.metrics
    parts = [
        f"[{text.duration(m.get(names.TIME_TOTAL, 0.0))}]",
        f"iteration {text.count(m.get(names.ITERATION, 0))}",
        f"steps {text.count(m.get(names.ENV_STEPS, 0))}",
        f"episodes {text.count(m.get(names.EPISODES, 0))}",
    ]
    if names.RETURN_MEAN in m:
        parts.append(f"return {text.number(m[names.RETURN_MEAN])}")
    parts += env_figures(view, _SHOWN_FIGURES)
    if names.STEPS_PER_S in m:
        parts.append(f"{text.rate(m[names.STEPS_PER_S])} steps/s")
    left = view.time_left()
    if left is not None:
        parts.append(f"{text.duration(left[0])} left to {left[1]}")
    if bottleneck(m):
        parts.append(f"mostly {bottleneck(m)}")
    if names.EVAL_RETURN_MEAN in m:
        low, high = text.number(m[names.EVAL_CI_LOW]), text.number(m[names.EVAL_CI_HIGH])
        parts.append(f"evaluation {text.number(m[names.EVAL_RETURN_MEAN])} [{low}, {high}]")
    if m.get(names.WORKERS_LOST):
        parts.append(text.counted(m[names.WORKERS_LOST], "worker") + " lost")
    parts += [text.counted(m[name], what) for name, what in names.RESTARTS.items() if m.get(name)]
    return "  ".join(parts)


def open_console(
    title: str, stop: StopConditions, folder: Path | None = None, *, plain: bool | None = None
) -> RunConsole:
    """The display of a run: plain lines or the live panel, by default the panel in a terminal."""
    # The real stream, also when `run.logs.capture` stands in for it.
    stream = steady(getattr(sys.stdout, "wrapped", sys.stdout))
    out = RichConsole(file=stream, force_jupyter=False, highlight=False, emoji=False, markup=False)
    view = RunView(title, stop, folder)
    if plain is None:
        plain = not out.is_terminal or out.is_dumb_terminal
    return PlainConsole(view, out) if plain else LiveConsole(view, out)
