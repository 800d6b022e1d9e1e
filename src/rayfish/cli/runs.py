"""`rayfish runs`: what has been trained here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from rayfish.run.directory import RunDirectory

app = typer.Typer(help="Look at what has been trained: list runs, show one.", no_args_is_help=True)

_STATUS = {
    "running": ("●", "bold cyan"),
    "done": ("✔", "green"),
    "stopped": ("■", "yellow"),
    "failed": ("✖", "bold red"),
    "lost": ("?", "red"),
}
_HIGHLIGHTS = (
    "training.lr",
    "training.gamma",
    "training.train_batch_size_per_learner",
    "training.minibatch_size",
    "training.num_epochs",
    "training.model.fcnet_hiddens",
    "training.model.custom_model",
    "rollouts.num_env_runners",
    "rollouts.num_envs_per_env_runner",
    "debugging.seed",
)
_FILES = (
    ("config.yaml", "the resolved experiment"),
    ("metrics.jsonl", "one line of metrics per iteration"),
    ("progress.csv", "the same as a table"),
    ("events", "the same for TensorBoard"),
    ("log.txt", "everything logged or printed"),
    ("evaluations", "evaluation results"),
)
Root = Annotated[str, typer.Option("--local-dir", metavar="DIR", help="The folder of all runs.")]


@app.command("list")
def list_(
    name: Annotated[str, typer.Argument(help="Only runs whose name, algorithm or env contains this.")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", help="Show the newest N; 0 shows all.")] = 20,
    root: Root = "runs",
) -> None:
    """List the runs, newest first."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from rayfish.run.directory import list_runs

    console = Console(highlight=False)
    runs = list_runs(root)
    wanted = [run for run in runs if name.lower() in run.title.lower()]
    swept = _print_sweeps(console, root, name)
    if not wanted and swept:
        return
    if not wanted:
        what = f"no run under {root}/ has {name!r} in its name" if runs else f"no runs under {root}/ yet"
        console.print(f"{what}. Train one: [bold]rayfish train cartpole[/]")
        return
    shown = wanted[:limit] if limit > 0 else wanted
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("id", "name", "algo", "env", "status"):
        # On a narrow terminal the two long columns give way, not the figures.
        table.add_column(title, no_wrap=title not in ("name", "env"))
    for title in ("steps", "best", "took", "age"):
        table.add_column(title, justify="right", no_wrap=True)
    for run in shown:
        data = run.data
        table.add_row(
            Text(str(data.get("id")), style="bold"),
            Text(str(data.get("name")), no_wrap=True, overflow="ellipsis"),
            str(data.get("algo")),
            Text(str(data.get("env")), no_wrap=True, overflow="ellipsis"),
            _status(run),
            _steps(run),
            _best(run),
            _took(run),
            _age(run),
        )
    console.print(table)
    if len(shown) < len(wanted):
        console.print(f"[dim]and {len(wanted) - len(shown)} older: --limit 0 shows all[/]")


def _print_sweeps(console: Console, root: str, name: str) -> bool:
    """The sweeps, if there are any, above the single runs."""
    from rich.table import Table
    from rich.text import Text

    from rayfish.metrics.text import number
    from rayfish.sweep.directory import list_sweeps
    from rayfish.sweep.records import fold, read_events

    sweeps = [
        s for s in list_sweeps(root) if name.lower() in f"{s.data.get('name')} {s.data.get('title')}".lower()
    ]
    if not sweeps:
        return False
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("sweep", "name", "what", "status"):
        table.add_column(title, no_wrap=title != "what")
    for title in ("trials", "best"):
        table.add_column(title, justify="right", no_wrap=True)
    for sweep in sweeps:
        data = sweep.data
        sign = -1.0 if (data.get("search") or {}).get("mode") == "min" else 1.0
        trials = fold(read_events(sweep.table_file), sign=sign).values()
        values = [sign * t.value for t in trials if t.value is not None and t.state != "failed"]
        sign_of, colour = _STATUS.get(str(data.get("status")), ("?", "red"))
        status = Text(f"{sign_of} {data.get('status')}", style=colour)
        best = number(sign * max(values)) if values else "-"
        done = f"{sum(t.finished for t in trials)} of {len(trials)}"
        table.add_row(str(data.get("id")), str(data.get("name")), str(data.get("title")), status, done, best)
    console.print(table)
    console.print()
    return True


@app.command()
def show(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A path, a name, an id or its beginning, or last.")
    ],
    root: Root = "runs",
) -> None:
    """Show one run: how it went, what it was, what lies in its folder."""
    from rich.console import Console

    from rayfish.metrics.sinks import read_jsonl
    from rayfish.run.directory import RunDirectory, find_run

    console = Console(highlight=False)
    found = RunDirectory.open(find_run(run, root))
    lines = read_jsonl(found.metrics_file)
    console.print()
    console.print(_heading(found), soft_wrap=True)
    console.print()
    _curve(console, lines)
    console.print(_facts(found, lines))
    console.print()
    console.print(_config(found))
    console.print()
    console.print(_folder(found))
    console.print()
    for words, what in _next_steps(found):
        console.print(f"  [bold]{words}[/]  [dim]{what}[/]", soft_wrap=True)


def _heading(run: RunDirectory) -> Text:
    from rich.text import Text

    line = Text.assemble((run.title, "bold"), "   ", _status(run))
    reason = run.data.get("reason")
    if reason:
        line.append(f"  {reason}", style="dim")
    return line


def _curve(console: Any, lines: list[dict[str, float]]) -> None:
    from rich.text import Text

    from rayfish.metrics import names, spark, text
    from rayfish.metrics.panel import CURVE

    values = [line[names.RETURN_MEAN] for line in lines if names.RETURN_MEAN in line]
    if not values:
        console.print("[dim]no episode has ended yet[/]\n")
        return
    width = min(console.width, 100) - 14
    rows = spark.area(values, width, len(CURVE))
    labels = [text.number(max(values)), *[""] * (len(CURVE) - 2), text.number(min(values))]
    for label, row, colour in zip(labels, rows, CURVE, strict=True):
        console.print(Text.assemble((f"{label:>10}  ", "dim"), (row, colour)), no_wrap=True)
    steps = text.count(lines[-1].get(names.ENV_STEPS, 0))
    console.print(Text(f"{'':>12}0{f'{steps} steps':>{width - 1}}\n", style="dim"), no_wrap=True)


def _facts(run: RunDirectory, lines: list[dict[str, float]]) -> Any:
    from rayfish.metrics import names, text
    from rayfish.metrics.timing import bottleneck

    last = lines[-1] if lines else {}
    data = run.data
    table = _table()
    best = data.get("best")
    if best:
        table.add_row(
            "best",
            f"{_number(best.get('value'))}  in checkpoint {best.get('checkpoint')}  ({best.get('metric')})",
        )
    if names.RETURN_MEAN in last:
        window = [_number(last[name]) for name in (names.RETURN_MIN, names.RETURN_MAX) if name in last]
        table.add_row(
            "return", f"{_number(last[names.RETURN_MEAN])}  last 100 episodes, {' to '.join(window)}"
        )
    evaluated = [line for line in lines if names.EVAL_RETURN_MEAN in line]
    if evaluated:
        e = evaluated[-1]
        low, high = _number(e[names.EVAL_CI_LOW]), _number(e[names.EVAL_CI_HIGH])
        when = f"iteration {text.count(e[names.ITERATION])}"
        table.add_row("evaluation", f"{_number(e[names.EVAL_RETURN_MEAN])}  95 % in {low} to {high}, {when}")
    if last:
        steps, episodes = (text.count(last.get(name, 0)) for name in (names.ENV_STEPS, names.EPISODES))
        iterations = text.count(last.get(names.ITERATION, 0))
        table.add_row("progress", f"{steps} steps, {episodes} episodes, {iterations} iterations")
        speed = f"{text.rate(last[names.STEPS_PER_S])} steps/s" if names.STEPS_PER_S in last else ""
        most = f", bottleneck {bottleneck(last)}" if bottleneck(last) else ""
        table.add_row("time", f"{text.duration(last.get(names.TIME_TOTAL, 0.0))}   {speed}{most}")
    counters = data.get("counters") or {}
    lost = [text.counted(counters[name], what) for name, what in names.RESTARTS.items() if counters.get(name)]
    if lost:
        table.add_row("faults", ", ".join(lost))
    runner = data.get("runner")
    if runner:
        table.add_row("runner", f"{runner.get('used')}  ({runner.get('why')})")
    table.add_row("begun", f"{_local(data.get('times', {}).get('created'))}  ({_age(run)} ago)")
    return table


def _config(run: RunDirectory) -> Any:
    from rich.text import Text

    from rayfish.experiment import Experiment

    experiment = Experiment.load(run.config_file)
    table = _table()
    if run.overrides:
        table.add_row("overrides", Text("  ".join(run.overrides), style="bold"))
    for key in _HIGHLIGHTS:
        value = experiment.get(key)
        if value is not None:
            table.add_row(key.rpartition(".")[2], str(value))
    return table


def _folder(run: RunDirectory) -> Any:
    from rich.text import Text

    table = _table()
    table.add_row("folder", Text(str(run.path), style="bold"))
    for name, what in _FILES:
        if (run.path / name).exists():
            table.add_row("", Text.assemble(f"{name:<15}", (what, "dim")))
    kept = [checkpoint.name for checkpoint in run.list_checkpoints()]
    more = f"{len(kept) - 5} older, " if len(kept) > 5 else ""
    table.add_row(
        "", Text.assemble(f"{'checkpoints':<15}", (more + (", ".join(kept[-5:]) or "none yet"), "dim"))
    )
    return table


def _next_steps(run: RunDirectory) -> list[tuple[str, str]]:
    short = str(run.path)
    steps = []
    if run.list_checkpoints():
        steps.append((f"rayfish evaluate {short}", "score its best checkpoint"))
        steps.append((f"rayfish.load({short!r})", "in Python: the policy, ready to act"))
    if run.status != "running":
        again = "go on where it was lost" if run.status == "lost" else "train on"
        steps.append((f"rayfish train --resume {short}", again))
    steps.append((f"tensorboard --logdir {Path(short) / 'events'}", "curves in the browser"))
    return steps


def _table() -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=12)
    table.add_column(overflow="fold")
    return table


def _status(run: RunDirectory) -> Text:
    from rich.text import Text

    mark, style = _STATUS.get(run.status, ("?", ""))
    return Text(f"{mark} {run.status}", style=style)


def _steps(run: RunDirectory) -> str:
    from rayfish.metrics import names, text

    return text.count((run.data.get("counters") or {}).get(names.ENV_STEPS, 0))


def _took(run: RunDirectory) -> str:
    from rayfish.metrics import names, text

    return text.duration((run.data.get("counters") or {}).get(names.TIME_TOTAL, 0.0))


def _best(run: RunDirectory) -> str:
    return _number((run.data.get("best") or {}).get("value"))


def _number(value: float | None) -> str:
    from rayfish.metrics import text

    return "-" if value is None else text.number(value)


def _local(stamp: str | None) -> str:
    from datetime import datetime

    return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M:%S") if stamp else "-"


def _age(run: RunDirectory) -> str:
    from datetime import UTC, datetime

    from rayfish.metrics import text

    stamp = (run.data.get("times") or {}).get("created")
    if not stamp:
        return "-"
    return text.age((datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds())
