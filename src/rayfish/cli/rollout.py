"""`rayfish rollout`: episodes of a trained policy, kept step by step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rayfish.cli import options
from rayfish.cli.evaluate import playing_bar

if TYPE_CHECKING:
    from rayfish.run.rollout import RecordedRollout
    from rayfish.terminal import Console

_OLD_FILES = (".pkl", ".pickle", ".p", ".db", ".shelve", ".json", ".parquet", ".csv", ".out")

Words = Annotated[list[str] | None, options.changed_settings("the rollout")]
SaveInfo = Annotated[
    bool, typer.Option("--save-info", help="Also keep the environment's info, as JSON text.")
]
Out = Annotated[
    str | None, typer.Option(metavar="DIR", help="Folder to write, in place of the run's rollouts/.")
]

_WIDE = 80  # columns of a terminal for the whole table


@options.grouped
def rollout(
    target: options.Target,
    *,
    words: Words = None,
    game: options.Play,
    save_info: SaveInfo = False,
    out: Out = None,
    flags: options.OldPlay,
) -> None:
    """Record episodes of a trained policy: every step to Parquet, with statistics of each episode.

    [bold]rayfish rollout last --episodes 20[/bold]

    Writes trajectories.parquet, episodes.parquet, episodes.csv and summary.json. Ctrl-C keeps the
    episodes that were finished.
    """
    from rayfish.run.player import agree
    from rayfish.run.rollout import rollout as record
    from rayfish.supervise.signals import exit_code

    checkpoint = game.checkpoint(target, flags.run)
    old = flags.read()
    if flags.use_shelve:
        old.notes.append("--use-shelve: episodes go to Parquet as they end, no shelve file is made")
    overrides = old.with_words(words, game.env)
    folder = _folder(out, old.notes)
    options.echo_notes(old.notes)
    agree(checkpoint, overrides, verb="rollout", trust=game.trust)
    try:
        with playing_bar("recording", game) as progress:
            found = record(
                checkpoint,
                *overrides,
                episodes=game.episodes,
                steps=game.steps,
                seed=game.seed,
                explore=game.explore or bool(old.explore),
                save_info=save_info,
                out=folder,
                progress=progress,
                trust=game.trust,
            )
    except KeyboardInterrupt:
        typer.echo("stopped before the first episode was over: nothing was written", err=True)
        raise typer.Exit(exit_code()) from None
    _show(found)
    raise typer.Exit(exit_code() if found.stopped else 0)


def _folder(out: str | None, notes: list[str]) -> str | None:
    """`--out rollouts.pkl` of old scripts names the one file they wrote; now it is a folder."""
    if out is None or Path(out).suffix.lower() not in _OLD_FILES:
        return out
    folder = str(Path(out).with_suffix(""))
    notes.append(f"--out {out}: the files are written into the folder {folder}/, as Parquet, CSV and JSON")
    return folder


def _show(found: RecordedRollout) -> None:
    from rayfish.terminal import Console
    from rayfish.text import counted

    out = Console(highlight=False)
    if found.stopped:
        out.print(f"[yellow]stopped[/yellow]: {counted(found.episodes, 'finished episode')} kept")
    out.print(
        f"{counted(found.episodes, 'episode')}, {counted(found.steps, 'step')}, {found.seconds:.1f} s, "
        f"{found.env}, seed {found.seed}" + (", exploring" if found.explore else ""),
        markup=False,
        soft_wrap=True,
    )
    out.print(_table(found.statistics, wide=out.width >= _WIDE))
    _show_files(out, found)


def _table(statistics: dict[str, dict[str, float]], *, wide: bool) -> Any:
    from rich.table import Table
    from rich.text import Text

    from rayfish.text import number

    table = Table(box=None, pad_edge=False)
    spread = ("std", "min", "max") if wide else ()
    table.add_column("", no_wrap=True)
    for title in ("mean", "95 % interval", *spread):
        table.add_column(title, justify="right", no_wrap=True)
    for name, of in statistics.items():
        interval = f"{number(of['ci_low'])} to {number(of['ci_high'])}"
        others = (number(of[key]) for key in spread)
        table.add_row(Text(name), f"[bold]{number(of['mean'])}[/bold]", interval, *others)
    return table


def _show_files(out: Console, found: RecordedRollout) -> None:
    from rich.markup import escape

    from rayfish.text import count, size

    file = found.trajectories
    rows = f"{count(found.rows)} rows, {size(file.stat().st_size)}"
    lines = (
        f"[dim]checkpoint[/dim] {escape(str(found.checkpoint))}",
        f"[dim]written to[/dim] {escape(str(found.folder))}/",
        f"  trajectories.parquet ({rows}), episodes.parquet, episodes.csv, summary.json",
        f'[dim]read it[/dim]    pandas.read_parquet("{escape(str(file))}")',
    )
    for line in lines:
        out.print(line, soft_wrap=True)
