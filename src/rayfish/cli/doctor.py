"""`rayfish doctor`: is this machine ready?"""

from __future__ import annotations

from typing import Annotated

import typer

_MARKS = {"ok": ("✔", "green"), "warn": ("▲", "yellow"), "fail": ("✖", "bold red")}


def doctor(
    ray: Annotated[bool, typer.Option(help="Also start a real Ray, which takes some seconds.")] = True,
) -> None:
    """Look at this machine: versions, cores, memory, GPU, display, threads, disk, Ray, tokens.

    Each finding comes with its fix. Exits with 1 if something has to be fixed before training.
    """
    from rich.table import Table
    from rich.text import Text

    from rayfish.run.doctor import FAIL, WARN, checks
    from rayfish.terminal import Console

    console = Console(highlight=False)
    levels = []
    with console.status("looking at this machine"):
        for check in checks(start_ray=ray):
            levels.append(check.level)
            mark, style = _MARKS[check.level]
            row = Table.grid(padding=(0, 1))
            row.add_column(width=1)
            row.add_column(width=13, style="dim")
            row.add_column(overflow="fold")
            what = Text(check.what)
            if check.fix:
                what.append("\n→ ", style="bold")
                what.append(check.fix, style=style)
            row.add_row(Text(mark, style=style), check.topic, what)
            console.print(row)
    failed, warned = levels.count(FAIL), levels.count(WARN)
    console.print()
    if failed:
        console.print(f"[bold red]{failed} to fix[/] before training, {warned} to know about.")
        raise typer.Exit(1)
    ending = f", {warned} to know about" if warned else ""
    console.print(f"[green]Ready[/]{ending}. Train something: [bold]rayfish train cartpole[/]")
