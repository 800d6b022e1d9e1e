"""`rayfish runs list` and `runs rm`: runs and sweeps as rows, as one JSON document, and off the disk."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfish import text
from rayfish.errors import RayfishError, did_you_mean
from rayfish.metrics import names

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from rayfish.run.directory import RunDirectory
    from rayfish.sweep.directory import SweepDirectory
    from rayfish.sweep.view import SweepView
    from rayfish.terminal import Console

STATUS = {
    "running": ("●", "bold cyan"),
    "done": ("✔", "green"),
    "stopped": ("■", "yellow"),
    "failed": ("✖", "bold red"),
    "lost": ("?", "red"),
    "damaged": ("!", "bold red"),
}
_MOST_POINTS = 10
_SWEEP_FILES = (
    ("report.html", "all of it, with pictures"),
    ("trials.csv", "one row per trial"),
    ("best.yaml", "the best point"),
    ("best", "the best trial"),
)
Entry = dict[str, Any]
"""A run or a sweep as `runs list --json` has it."""


def _descending(key: str) -> Callable[[Entry], Any]:
    def rank(entry: Entry) -> tuple[bool, float]:
        value = (entry.get("best") or {}).get("value") if key == "best" else entry.get(key)
        sign = 1 if key == "best" and entry.get("mode") == "min" else -1
        return value is None, sign * float(value or 0)

    return rank


SORTS: dict[str, Callable[[Entry], Any]] = {
    "age": lambda entry: 0,  # as they come: newest first
    "name": lambda entry: str(entry["name"]),
    "status": lambda entry: str(entry["status"]),
    "best": _descending("best"),
    "steps": _descending("steps"),
    "took": _descending("seconds"),
}


def entries(root: str, word: str = "", tags: tuple[str, ...] = (), sort: str = "age") -> list[Entry]:
    """The runs and sweeps under `root`, newest first.

    :param word: part of the name, algorithm or environment
    :param tags: all of which they have
    :param sort: one of `SORTS`
    """
    if sort not in SORTS:
        close = did_you_mean(sort, SORTS)
        hint = f"did you mean --sort {close[0]}?" if close else f"one of {', '.join(SORTS)}"
        raise RayfishError(f"--sort {sort}: there is no such order", hint)
    from rayfish.run.directory import all_runs

    found = [_run(run) for run in all_runs(root)]
    found += [_sweep_or_damaged(file.parent) for file in Path(root).glob("*/*/sweep.json")]
    found.sort(key=lambda entry: str(entry["created"] or ""), reverse=True)
    wanted = [entry for entry in found if word.lower() in _words(entry) and set(tags) <= set(entry["tags"])]
    return sorted(wanted, key=SORTS[sort])


def _words(entry: Entry) -> str:
    """What a run is found by, besides its tags."""
    return " ".join(str(entry.get(key)) for key in ("name", "algo", "env", "title")).lower()


def as_json(found: list[Entry]) -> str:
    """The entries as one document; a number that JSON lacks (NaN) is null."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [plain(inner) for inner in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(found), indent=2, default=str)


def show(console: Console, found: list[Entry]) -> None:
    """Sweeps, if there are any, above the single runs."""
    from rich.text import Text

    sweeps = [entry for entry in found if entry["kind"] == "sweep"]
    runs = [entry for entry in found if entry["kind"] == "run"]
    if sweeps:
        table = _columns(("sweep", "name", "what", "status"), ("trials", "best", "took", "age"), ("what",))
        for entry in sweeps:
            done = f"{entry['finished']} of {entry['trials']}"
            what = Text(str(entry["title"] or "-"), no_wrap=True, overflow="ellipsis")
            _add(table, entry, Text(str(entry["name"])), what, status_text(entry["status"]), done)
        console.print(table)
        for entry in sweeps:
            if entry["reason"] and entry["status"] != "damaged":
                console.print(Text(f"warning: {entry['path']}: {entry['reason']}", style="yellow"))
    if sweeps and runs:
        console.print()
    if runs:
        columns = ("id", "name", "algo", "env", "status")
        table = _columns(columns, ("steps", "best", "took", "age"), ("name", "env"))
        for entry in runs:
            name, env = (
                Text(str(entry[key] or "-"), no_wrap=True, overflow="ellipsis") for key in ("name", "env")
            )
            status = status_text(entry["status"])
            steps = text.count(entry["steps"] or 0)
            _add(table, entry, name, Text(str(entry["algo"] or "-")), env, status, steps)
        console.print(table)


def show_sweep(console: Console, folder: Path) -> Path | None:
    """Prints a sweep: how it went, its best points, its files; gives the run of its best trial."""
    from rich.text import Text

    from rayfish.sweep.directory import SweepDirectory
    from rayfish.sweep.outcome import best_run
    from rayfish.sweep.view import STATES, stored_view
    from rayfish.terminal import print_step

    sweep = SweepDirectory.open(folder)
    view, data = stored_view(sweep), sweep.data
    title = (str(data.get("title")), "bold")
    console.print()
    console.print(Text.assemble("sweep ", title, "   ", status_text(sweep.status)))
    counts = ", ".join(f"{count} {STATES[state]}" for state, count in view.counts().items() if count)
    took = text.duration(view.seconds)
    console.print(Text(f"{counts or 'no trials yet'}; {took}; {view.metric}, {view.search.mode} is best"))
    if view.damage:
        console.print(Text(f"warning: {view.damage}", style="yellow"))
    console.print()
    console.print(_points(view))
    console.print()
    steps = [(str(folder / name), what) for name, what in _SWEEP_FILES if (folder / name).exists()]
    if data.get("kind", "experiment") == "experiment" and (folder / "best.yaml").exists():
        steps.append((f"rayfish train -f {folder / 'best.yaml'}", "train the best point"))
    if sweep.status not in ("done", "running"):
        steps.append((f"rayfish tune --resume {folder}", "go on with it"))
    for words, what in steps:
        print_step(console, words, what)
    if (folder / "best" / "run.json").is_file():
        return folder / "best"
    try:
        return best_run(folder)
    except RayfishError:
        return None


def _points(view: SweepView) -> Table:
    """The best points with their means, as the sweep itself ranks them."""
    from rich.text import Text

    from rayfish.sweep.view import STATES, figure, short_names, shown

    labels = short_names(view.space.keys)
    table = _columns(("point",), ("score", "trials"), ())
    for title in ("state", *labels.values()):
        table.add_column(Text(title), overflow="fold")
    for point in view.points()[:_MOST_POINTS]:
        apart = point.low is not None and point.low != point.high
        score = figure(point.value) + (f" [{figure(point.low)}, {figure(point.high)}]" if apart else "")
        values = [shown(point.params[key], 24) if key in point.params else "" for key in labels]
        cells = (str(point.number), score or "-", str(len(point.trials)), STATES[point.state], *values)
        table.add_row(*(Text(cell) for cell in cells))
    return table


def status_text(status: str) -> Text:
    """A status with its mark and colour."""
    from rich.text import Text

    mark, style = STATUS.get(status, ("?", ""))
    return Text(f"{mark} {status}", style=style)


def age_of(created: str | None) -> str:
    """How long ago a run was made."""
    if not created:
        return "-"
    return text.age((datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds())


def remove(words: list[str], root: str, *, sure: bool) -> list[str]:
    """Removes runs and sweeps, after a question; what was removed.

    :param words: paths, names, ids
    :param sure: without the question
    """
    from rayfish.run.directory import find_folder

    folders = list(dict.fromkeys(_removable(word, find_folder(word, root)) for word in words))
    lines = [_described(folder) for folder in folders]
    if not sure:
        if not sys.stdin.isatty():
            raise RayfishError(
                f"runs rm asks before it removes {', '.join(map(str, folders))}, and there is no terminal",
                "add --yes to remove without a question",
            )
        import typer

        print(*(f"  {line}" for line in lines), sep="\n")
        what = "this folder" if len(folders) == 1 else f"these {len(folders)} folders"
        if not typer.confirm(f"Remove {what}?"):
            return []
    for folder in folders:
        shutil.rmtree(folder)
        with suppress(OSError):
            folder.parent.rmdir()  # the name's folder, when it was the last one of it
    return [f"removed {line}" for line in lines]


def _removable(word: str, folder: Path) -> Path:
    """The folder, if it is whole a run or a sweep and no process works in it."""
    from rayfish.run.directory import RUNNING, RunDirectory
    from rayfish.sweep.directory import SweepDirectory

    inside = next((parent for parent in folder.absolute().parents if (parent / "sweep.json").is_file()), None)
    if inside is not None:
        raise RayfishError(f"{folder} is a trial of the sweep {inside}", f"rayfish runs rm {inside}")
    if Path(word).exists() and folder.resolve() in Path(word).resolve().parents:
        hint = f"rayfish runs rm {folder} removes all of it; or remove that part by hand"
        raise RayfishError(f"{word} is a part of {folder}", hint)
    if (folder / "sweep.json").is_file():
        sweep = SweepDirectory(folder, {})
        sweep.lock()  # refused while it runs
        sweep.release()
        return folder
    try:
        run = RunDirectory.open(folder)
    except RayfishError:  # a damaged one
        return folder
    if run.status == RUNNING:
        process = run.data.get("process") or {}
        where = f"process {process.get('pid')} on {process.get('host')}"
        raise RayfishError(f"{folder} is in training: {where}", "stop it there (Ctrl-C), then remove it")
    return folder


def _described(folder: Path) -> str:
    """A folder in one line: what, status, size, age."""
    size = sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir())
    kind = "run.json" if (folder / "run.json").exists() else "sweep.json"
    age = text.age(datetime.now().timestamp() - (folder / kind).stat().st_mtime)
    return f"{folder}  ({kind.removesuffix('.json')}, {text.size(size)}, last written {age} ago)"


def _run(run: RunDirectory) -> Entry:
    data = run.data
    counters, times = data.get("counters") or {}, data.get("times") or {}
    return {
        "kind": "run",
        "id": data.get("id"),
        "name": data.get("name"),
        "path": str(run.path.absolute()),
        "status": run.status,
        "reason": data.get("reason"),
        "tags": data.get("tags") or [],
        "algo": data.get("algo"),
        "env": data.get("env"),
        "seed": data.get("seed"),
        "steps": counters.get(names.ENV_STEPS),
        "iterations": counters.get(names.ITERATION),
        "episodes": counters.get(names.EPISODES),
        "seconds": counters.get(names.TIME_TOTAL),
        "return_mean": data.get("return_mean"),
        "best": data.get("best"),
        "checkpoints": [path.name for path in run.list_checkpoints()],
        "created": times.get("created") or _stamp(run.path),
        "ended": times.get("ended"),
    }


def _sweep_or_damaged(path: Path) -> Entry:
    from rayfish.sweep.directory import SweepDirectory

    try:
        return _sweep(SweepDirectory.open(path))
    except RayfishError as error:
        own = {"kind": "sweep", "id": path.name.rpartition("-")[2], "name": path.parent.name}
        none: Entry = dict.fromkeys(("title", "metric", "mode", "seconds", "best"))
        counts = {"trials": 0, "finished": 0, "tags": []}
        return {
            **own,
            "path": str(path.absolute()),
            "status": "damaged",
            "reason": error.what,
            **counts,
            **none,
            "created": _stamp(path),
        }


def _stamp(path: Path) -> str | None:
    """When a run or sweep was made, by the name of its folder; None where that does not tell."""
    try:
        return datetime.strptime(path.name[:15], "%Y%m%d-%H%M%S").astimezone(UTC).isoformat()
    except ValueError:
        return None


def _sweep(sweep: SweepDirectory) -> Entry:
    from rayfish.sweep.view import stored_view

    data, view = sweep.data, stored_view(sweep)
    point = view.best_point()
    best = None
    if point is not None:
        best = {
            "metric": view.metric,
            "value": point.value,
            "low": point.low,
            "high": point.high,
            "trials": len(point.trials),
            "params": point.params,
        }
    return {
        "kind": "sweep",
        "id": data.get("id"),
        "name": data.get("name"),
        "path": str(sweep.path),
        "status": sweep.status,
        "reason": view.damage or None,
        "tags": data.get("tags") or [],
        "title": data.get("title"),
        "metric": view.metric,
        "mode": view.search.mode,
        "trials": max(len(view.trials), view.total or 0),
        "finished": view.finished(),
        "seconds": view.seconds,
        "best": best,
        "created": data.get("created"),
    }


def _columns(left: tuple[str, ...], right: tuple[str, ...], yielding: tuple[str, ...]) -> Table:
    """A table whose long columns give way on a narrow terminal, not the figures."""
    from rich.table import Table

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for title in left:
        table.add_column(title, no_wrap=title not in yielding)
    for title in right:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _add(table: Table, entry: Entry, *cells: Any) -> None:
    """A row: the id, its own cells, then what runs and sweeps share."""
    from rich.text import Text

    value = (entry["best"] or {}).get("value")
    best = "-" if value is None else text.number(value)
    took = text.duration(entry["seconds"] or 0.0)
    table.add_row(Text(str(entry["id"]), style="bold"), *cells, best, took, age_of(entry["created"]))
