"""What `rayfish config migrate` shows: the fate of every key of an old file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rayfish.legacy.translate import Entry, Translation
    from rayfish.terminal import Console

_LONGEST = 40


def report(console: Console, translation: Translation, path: Path) -> None:
    """The four groups of keys, then where the new file is and what to do with it."""
    from rich.markup import escape

    from rayfish.experiment.files import show

    translated = translation.of("translated")
    groups: tuple[tuple[str, str, Sequence[Entry]], ...] = (
        ("Translated", "green", [entry for entry in translated if not entry.outcome.changed]),
        ("Changed in meaning", "yellow", [entry for entry in translated if entry.outcome.changed]),
        ("Dropped: no meaning any more", "dim", translation.of("ignored")),
        ("To decide", "bold red", translation.of("refused")),
    )
    name, file = escape(str(translation.experiment.name)), escape(str(translation.experiment.file))
    console.print(f"[bold]{name}[/] [dim]({file})[/]")
    for title, style, entries in groups:
        if entries:
            console.print(_table(title, style, entries))
    console.print(f"written to {escape(show(path))}", soft_wrap=True, highlight=False)
    if translation.fate == "refused":
        console.print("[red]settle what is to decide in the old or the new file, then[/] ", end="")
    console.print(f"[cyan]rayfish train -f {escape(show(path))}[/]\n", soft_wrap=True, highlight=False)


def _table(title: str, style: str, entries: Sequence[Entry]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"[{style}]{title}[/]", title_justify="left", box=None, padding=(0, 2, 0, 0))
    is_new = any(entry.outcome.values for entry in entries)
    said = any(entry.outcome.why for entry in entries)
    table.add_column("old", overflow="fold")
    if is_new:
        table.add_column("today", style="cyan", overflow="fold")
    if said:
        table.add_column("remark" if is_new else "why", overflow="fold")
    for entry in entries:
        written = not entry.old.startswith("(")
        old = f"{entry.old.removeprefix('config.')}: {_short(entry.value)}" if written else entry.old
        new = [escape(_today(entry))] if is_new else []
        table.add_row(escape(old), *new, *([escape(entry.outcome.why)] if said else []))
    return table


def _today(entry: Entry) -> str:
    return "\n".join(f"{key}: {_short(value)}" for key, value in entry.outcome.values.items())


def _short(value: Any) -> str:
    text = {True: "true", False: "false", None: "null"}.get(value) if isinstance(value, bool | None) else None
    text = text or str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
