"""`rayfish runs`: what has been trained here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rayfish.cli.complete import complete_runs
from rayfish.errors import ConfigError

if TYPE_CHECKING:
    from rich.text import Text

    from rayfish.run.directory import RunDirectory

app = typer.Typer(
    help="Look at what has been trained: list runs and sweeps, show, trust or remove one.",
    no_args_is_help=True,
)

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
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Show the first N; 0 shows all.")] = 20,
    sort: Annotated[
        str, typer.Option("--sort", metavar="ORDER", help="age, name, status, best, steps or took.")
    ] = "age",
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Only runs with this tag (runtime.tags); repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document, for scripts.")] = False,
    root: Root = "runs",
) -> None:
    """List runs and sweeps, newest first."""
    from rayfish.cli import run_entries

    found = run_entries.entries(root, name, tuple(tag or ()), sort)
    shown = found[:limit] if limit else found
    if as_json:
        typer.echo(run_entries.as_json(shown))
        return
    from rich.markup import escape

    from rayfish.terminal import Console

    console = Console(highlight=False)
    if not found:
        wanted = [f"{name!r} in its name"] * bool(name) + [f"the tag {word!r}" for word in tag or ()]
        what = f"no run under {root}/ has {' and '.join(wanted)}" if wanted else f"no runs under {root}/ yet"
        if not wanted or not run_entries.entries(root):
            what = f"no runs under {root}/ yet"
        console.print(f"{escape(what)}. Train one: [bold]rayfish train cartpole[/]")
        return
    run_entries.show(console, shown)
    if len(shown) < len(found):
        more = "older" if sort == "age" else "more"
        console.print(f"[dim]and {len(found) - len(shown)} {more}: --limit 0 shows all[/]")


@app.command()
def rm(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Paths, names, ids; sweeps as well.", autocompletion=complete_runs
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without a question.")] = False,
    root: Root = "runs",
) -> None:
    """Remove runs or sweeps from the disk, after a question."""
    from rayfish.cli import run_entries

    removed = run_entries.remove(runs, root, sure=yes)
    typer.echo("\n".join(removed) or "nothing was removed")


@app.command()
def show(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run or sweep: its path, name, id or its beginning, or last.",
            autocompletion=complete_runs,
        ),
    ],
    root: Root = "runs",
) -> None:
    """Show one run: how it went, what it was, what lies in its folder; a sweep, and its best trial."""
    from rayfish.metrics.sinks import sample_jsonl
    from rayfish.run.directory import RunDirectory, find_folder
    from rayfish.terminal import Console, print_step

    console = Console(highlight=False, markup=False)  # a run's name may look like markup
    folder = find_folder(run, root)
    if not (folder / "run.json").exists():
        from rayfish.cli.run_entries import show_sweep

        best = show_sweep(console, folder)
        if best is None:
            return
        folder = best
    found = RunDirectory.open(folder)
    lines = sample_jsonl(found.metrics_file)
    console.print()
    console.print(_heading(found), soft_wrap=not console.is_terminal)
    console.print()
    _curve(console, lines)
    console.print(_facts(found, lines))
    console.print()
    console.print(_config(found))
    console.print()
    console.print(_folder(found))
    console.print()
    for words, what in _next_steps(found):
        print_step(console, words, what)


@app.command()
def trust(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run, a checkpoint or a sweep: its path, name or id.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    root: Root = "runs",
) -> None:
    """Sign a run with your key: it may run the code in it from now on, as your own runs do."""
    from rayfish.errors import NotTrusted, RunNotFound
    from rayfish.run import trust as permission
    from rayfish.run.directory import find_run
    from rayfish.sweep.directory import find_sweep

    folder = Path(run)
    if not any((folder / name).is_file() for name in ("rayfish.json", "run.json", "sweep.json")):
        try:
            folder = find_run(run, root)
        except RunNotFound as missing:
            try:
                folder = find_sweep(run, root)
            except RunNotFound:
                raise missing from None
    typer.echo(f"{folder}\nOnce trusted, it may run these whenever it is opened:")
    for line in permission.contents(folder):
        typer.echo(f"  {line}")
    if not yes and not permission.answered("Do you trust whoever made it? [y/N] "):
        raise NotTrusted(f"{folder} was not signed", f"rayfish runs trust {folder} --yes signs it unasked")
    for left_out in permission.sign(folder):
        typer.echo(f"left out: {left_out}", err=True)
    typer.echo("signed")


def _heading(run: RunDirectory) -> Text:
    from rich.text import Text

    from rayfish.cli.run_entries import status_text

    line = Text.assemble((run.title, "bold"), "   ", status_text(run.status))
    reason = run.data.get("reason")
    if reason:
        line.append(f"  {reason}", style="dim")
    return line


def _curve(console: Any, lines: list[dict[str, float]]) -> None:
    from rich.text import Text

    from rayfish import text
    from rayfish.metrics import names, spark
    from rayfish.metrics.panel import CURVE

    values = [line[names.RETURN_MEAN] for line in lines if names.RETURN_MEAN in line]
    if not values:
        console.print(Text("no episode has ended yet\n", style="dim"))
        return
    width = min(console.width, 100) - 14
    rows = spark.area(values, width, len(CURVE))
    labels = [text.number(max(values)), *[""] * (len(CURVE) - 2), text.number(min(values))]
    for label, row, colour in zip(labels, rows, CURVE, strict=True):
        console.print(Text.assemble((f"{label:>10}  ", "dim"), (row, colour)), no_wrap=True)
    steps = text.count(lines[-1].get(names.ENV_STEPS, 0))
    console.print(Text(f"{'':>12}0{f'{steps} steps':>{width - 1}}\n", style="dim"), no_wrap=True)


def _facts(run: RunDirectory, lines: list[dict[str, float]]) -> Any:
    from rayfish import text
    from rayfish.cli.run_entries import age_of
    from rayfish.metrics import names
    from rayfish.metrics.sinks import last_with
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
    e = last_with(run.metrics_file, names.EVAL_RETURN_MEAN)
    if e:
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
    created = (data.get("times") or {}).get("created")
    table.add_row("begun", f"{_local(created)}  ({age_of(created)} ago)")
    return table


def _config(run: RunDirectory) -> Any:
    from rich.text import Text

    from rayfish import text
    from rayfish.experiment import Experiment

    table = _table()
    if run.data.get("tags"):
        table.add_row("tags", "  ".join(map(str, run.data["tags"])))
    if run.overrides:
        table.add_row("overrides", Text("  ".join(run.overrides), style="bold"))
    for resume in run.data.get("resumes") or []:
        changes = [f"{key}: {old} → {new}" for key, (old, new) in resume["changed"].items()]
        if changes:
            table.add_row(f"after iteration {text.count(resume['iteration'])}", Text("\n".join(changes)))
    try:
        experiment = Experiment.load(run.config_file, resolve=False)
    except ConfigError as error:
        table.add_row("config", Text(f"{error.problems[0].key}: {error.problems[0].what}", style="red"))
        return table
    for key in _HIGHLIGHTS:
        value = experiment.get(key)
        if value is not None:
            table.add_row(key.rpartition(".")[2], Text(str(value)))
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


def _number(value: float | None) -> str:
    from rayfish import text

    return "-" if value is None else text.number(value)


def _local(stamp: str | None) -> str:
    from datetime import datetime

    return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M:%S") if stamp else "-"
