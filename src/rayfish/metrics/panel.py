"""The live display as a picture: what is known about the run, drawn for a width and a height."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rayfish import text
from rayfish.metrics import names, spark
from rayfish.metrics.stop import Limit, StopConditions
from rayfish.metrics.timing import bottleneck

# Fixed colours, legible on dark and on light ground: a theme's sixteen are anyone's guess.
ACCENT, LABEL, BORDER = "#4fb8d8", "grey58", "grey42"
CURVE = ("#45d6aa", "#36b892", "#299a7b", "#1f7f68")
"""The curve's colour from its top row down."""

SHARES = (
    (names.ENV_SHARE, "env", "#6abf5e"),
    (names.INFERENCE_SHARE, "inference", "#5a96f0"),
    (names.LEARN_SHARE, "learner", "#c07ae0"),
    (names.SYNC_SHARE, "sync", "#e0b050"),
    (names.EVAL_SHARE, "eval", "#4fb8d8"),
)
_MACHINE = ((names.CPU, "cpu"), (names.RAM, "memory"), (names.GPU, "gpu"), (names.GPU_MEMORY, "gpu memory"))
_STATUS_STYLE = {"done": "bold green", "stopped": "bold yellow", "failed": "bold red"}
_LABELS, _FIGURES = 13, 12
_SHOWN_FIGURES = 5
WIDEST = 120


class RunView:
    """Everything the display shows; `update` takes in a metric line."""

    def __init__(self, title: str, stop: StopConditions, folder: Path | None) -> None:
        self.title = title
        self.stop = stop
        self.folder = folder
        self.metrics: dict[str, float] = {}
        self.history: deque[Mapping[str, float]] = deque(maxlen=40)
        self.returns = spark.Series()
        self.evaluation: dict[str, float] = {}
        self.saved = ""
        self.status = ""
        self.ended = ""
        self.reason = ""
        self.closed = False
        self.spinner = Spinner("dots", style=ACCENT)
        self._updated = time.monotonic()

    def update(self, metrics: Mapping[str, float]) -> None:
        """Take in one line."""
        self.metrics = dict(metrics)
        self.history.append(self.metrics)
        self._updated = time.monotonic()
        if names.RETURN_MEAN in metrics:
            self.returns.append(metrics[names.RETURN_MEAN])
        if names.EVAL_RETURN_MEAN in metrics:
            self.evaluation = self.metrics

    def since_update(self) -> float:
        """Seconds since the last line, so that clocks advance during a long iteration."""
        return 0.0 if self.ended or self.closed else time.monotonic() - self._updated

    def time_left(self) -> tuple[float, str, Limit] | None:
        """Seconds to the nearest stop condition, with its metric."""
        return None if self.ended else self.stop.time_left(list(self.history))


def draw(view: RunView, width: int, height: int) -> RenderableType:
    """The panel for a terminal of this size."""
    width = min(width, WIDEST)
    inner = max(30, width - 6)
    roomy = height >= 24
    rows: list[RenderableType] = []
    if not view.metrics:
        view.spinner.update(text=Text(f" {view.status or 'starting'}", style=LABEL))
        rows.append(view.spinner)
    else:
        tall = 4 if roomy else 2 if height >= 18 else 1
        rows += [_return(view, inner, tall), *([Text()] if roomy else []), _facts(view, inner, height)]
        rows += [*([Text()] if roomy else []), *_shares(view, inner)]
    return Panel(
        Group(*rows),
        title=Text.assemble(("rayfish", f"bold {ACCENT}"), (" · ", LABEL), (view.title, "bold default")),
        title_align="left",
        subtitle=_subtitle(view),
        subtitle_align="right",
        border_style=BORDER,
        padding=(1 if roomy else 0, 2),
        width=width,
    )


def _return(view: RunView, width: int, tall: int) -> RenderableType:
    """The last-100 mean in figures, and next to it its curve from the first iteration on."""
    if names.RETURN_MEAN not in view.metrics:
        return Text.assemble((f"{'return':<{_LABELS}}", LABEL), ("no episode has ended yet", LABEL))
    mean = view.metrics[names.RETURN_MEAN]
    goal = view.stop.limits.get(names.RETURN_MEAN, view.stop.lower_limits.get(names.RETURN_MEAN))
    figures = [("return", mean, f"bold {CURVE[0]}"), ("goal", goal, "bold")]
    figures += [
        ("highest", view.metrics.get(names.RETURN_MAX), ""),
        ("lowest", view.metrics.get(names.RETURN_MIN), ""),
    ]
    known = [(label, value, style) for label, value, style in figures if value is not None]
    values = view.returns.values()
    # With a goal in sight the curve climbs towards the top edge, so its height means something.
    top = max(*values, goal) if goal is not None and goal > min(values) else None
    chart = spark.area(values, width - _LABELS - _FIGURES, tall, high=top)
    table = Table.grid()
    table.add_column(width=_LABELS)
    table.add_column(width=_FIGURES)
    table.add_column()
    for index in range(tall):
        label, value, style = known[index] if index < len(known) else ("", None, "")
        figure = "" if value is None else text.number(value)
        table.add_row(
            Text(label, style=LABEL),
            Text(figure, style=style),
            Text(chart[index], CURVE[index], no_wrap=True),
        )
    return table


def _facts(view: RunView, width: int, height: int) -> RenderableType:
    """One line per fact, labels in a column of their own."""
    m = view.metrics
    table = Table.grid()
    table.add_column(width=_LABELS, style=LABEL)
    table.add_column(overflow="fold")
    table.add_row(
        "progress",
        Text.assemble(
            (text.count(m.get(names.ENV_STEPS, 0)), "bold"),
            (" steps   ", LABEL),
            (text.count(m.get(names.EPISODES, 0)), "bold"),
            (" episodes   iteration ", LABEL),
            (text.count(m.get(names.ITERATION, 0)), "bold"),
        ),
    )
    table.add_row("time", _time(view))
    if names.STEPS_PER_S in m:
        table.add_row("speed", _speed(m))
    machine = [f"{label} {m[name]:.0f} %" for name, label in _MACHINE if name in m]
    if machine and height >= 16:
        table.add_row("machine", Text("   ".join(machine), style=LABEL))
    lines = ["   ".join(env_figures(view, most)) for most in range(_SHOWN_FIGURES, 0, -1)]
    figures = next((line for line in lines if len(line) <= width - _LABELS), lines[-1])
    if figures:
        table.add_row("environment", Text(figures))
    if view.evaluation:
        table.add_row("evaluation", _evaluation(view.evaluation))
    lost = int(m.get(names.WORKERS_LOST, 0))
    losses = [text.counted(lost, "worker") + " lost now"] if lost else []
    losses += [text.counted(m[name], what) for name, what in names.RESTARTS.items() if m.get(name)]
    if losses:
        table.add_row("faults", Text(", ".join(losses), style="bold red" if lost else "yellow"))
    if view.saved and height >= 16:
        table.add_row("checkpoint", Text(view.saved))
    if view.folder is not None:
        table.add_row("folder", Text(str(view.folder)))
    return table


def env_figures(view: RunView, most: int) -> list[str]:
    """The first figures that the environment reports, those of stop conditions before; and how many more."""
    known = [name for name in view.metrics if name.startswith(names.env(""))]
    chosen = sorted(known, key=lambda name: name not in view.stop.limits)[:most]
    shown = [f"{name} {text.number(view.metrics[name])}" for name in chosen]
    return shown + ([f"(+{len(known) - most} in metrics.jsonl)"] if len(known) > most else [])


def _time(view: RunView) -> Text:
    spent = view.metrics.get(names.TIME_TOTAL, 0.0) + view.since_update()
    line = Text(text.duration(spent), style="bold")
    left = view.time_left()
    if left is not None:
        seconds, name, limit = left
        shown = text.duration(limit.value) if name == names.TIME_TOTAL else text.number(limit.value)
        shown = f"<= {shown}" if limit.is_below else shown
        line.append("   about ", style=f"not bold {LABEL}")
        line.append(text.duration(seconds - view.since_update()))
        line.append(f" left to {name} {shown}", style=f"not bold {LABEL}")
    return line


def _speed(metrics: Mapping[str, float]) -> Text:
    line = Text.assemble((text.rate(metrics[names.STEPS_PER_S]), "bold"), (" steps/s", LABEL))
    most = bottleneck(metrics)
    if most:
        line.append("   bottleneck ", style=LABEL)
        line.append(most, style="bold")
    return line


def _shares(view: RunView, width: int) -> list[RenderableType]:
    """A bar of where the time goes, and its legend."""
    known = [(label, style, view.metrics[name]) for name, label, style in SHARES if name in view.metrics]
    if not any(share for _, _, share in known):
        return []
    # Asynchronous algorithms overlap their parts, which then add up to more than the whole.
    total = max(1.0, sum(share for _, _, share in known))
    bar, used = Text(no_wrap=True), 0
    for _, style, share in known:
        cells = min(round(width * share / total), width - used)
        bar.append("━" * cells, style=style)
        used += cells
    bar.append("━" * (width - used), style=LABEL)
    legend = Text()
    for label, style, share in known:
        if share >= 0.005:
            legend.append("● ", style=style)
            legend.append(f"{label} {text.percent(share)}  ", style=LABEL)
    return [bar, legend]


def _evaluation(e: Mapping[str, float]) -> Text:
    interval = f"{text.number(e[names.EVAL_CI_LOW])} to {text.number(e[names.EVAL_CI_HIGH])}"
    when = f"{text.count(e[names.EVAL_EPISODES])} episodes, iteration {text.count(e[names.ITERATION])}"
    return Text.assemble(
        (text.number(e[names.EVAL_RETURN_MEAN]), "bold"), (f"   95 % in {interval}   {when}", LABEL)
    )


def _subtitle(view: RunView) -> Text | None:
    if view.ended:
        return Text(f"{view.ended}: {view.reason}", style=_STATUS_STYLE.get(view.ended, "bold"))
    if view.closed:
        return None
    return Text("Ctrl-C: save and stop", style=LABEL)
