"""`rayfish evaluate`: how good a run, checkpoint or baseline is, with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rayfish.cli import options
from rayfish.cli.complete import complete_runs

if TYPE_CHECKING:
    from rayfish.run.evaluate import Evaluation

Words = Annotated[list[str] | None, options.changed_settings("the evaluation")]
Out = Annotated[
    str | None, typer.Option(metavar="FILE.json", help="File to write, in place of the run's evaluations/.")
]
Scored = Annotated[
    str,
    typer.Argument(
        metavar="RUN|CHECKPOINT",
        help="A run or sweep (path, name, id, [bold]last[/bold]), a checkpoint, or "
        "[bold]baseline:NAME[/bold] with an experiment after it.",
        autocompletion=complete_runs,
    ),
]
Baselines = Annotated[
    str | None,
    typer.Option(
        metavar="[NAMES]",
        help="Let baselines of the environment play the same episodes: all, or encircle,random.",
    ),
]
SaveInfo = Annotated[bool, options.old("--save-info", help="rayfish rollout keeps episodes and infos.")]

_WIDE = 80  # columns of a terminal for whole headings


@options.grouped
def evaluate(
    target: Scored,
    *,
    words: Words = None,
    game: options.Play,
    baselines: Baselines = None,
    out: Out = None,
    save_info: SaveInfo = False,
    flags: options.OldPlay,
) -> None:
    """Play episodes with a trained policy: mean return with a 95 % bootstrap interval.

    [bold]rayfish evaluate last --episodes 20[/bold]

    [bold]rayfish evaluate last --baselines[/bold] lets the baselines that come with the environment play the
    same episodes, and says whether the agent is better. [bold]rayfish evaluate baseline:random
    wildfire[/bold] plays one of them without any run.
    """
    from rayfish.run.baselines import PREFIX, split
    from rayfish.run.evaluate import evaluate as play
    from rayfish.run.player import agree

    alone = target.startswith(PREFIX)
    checkpoint = target if alone else game.checkpoint(target, flags.run)
    old = flags.read()
    file = _file(out, save_info, flags.use_shelve, old.notes)
    overrides = old.with_words(words, game.env)
    options.echo_notes(old.notes)
    if not alone:
        agree(checkpoint, overrides, verb="evaluate", trust=game.trust)
    with playing_bar("evaluating", game) as progress:
        found = play(
            checkpoint,
            *overrides,
            episodes=game.episodes,
            steps=game.steps,
            seed=game.seed,
            explore=game.explore or bool(old.explore),
            out=file,
            baselines=() if baselines is None else split(baselines),
            progress=progress,
            trust=game.trust,
        )
    _show(found)


def with_baselines(words: Sequence[str]) -> list[str]:
    """`--baselines` without names means all of them; options of the parser cannot go without a value."""
    found: list[str] = []
    for word, following in zip(words, [*words[1:], "-"], strict=True):
        bare = word == "--baselines" and (following.startswith("-") or "=" in following)
        found.append("--baselines=all" if bare else word)
    return found


@contextmanager
def playing_bar(doing: str, game: options.Play) -> Iterator[Callable[[int, float], None]]:
    """A progress bar on a terminal; gives what to call after each episode."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from rayfish.terminal import Console

    console = Console(stderr=True)
    columns = (
        TextColumn(doing),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("return {task.fields[last]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=game.episodes or (None if game.steps else 20), last="")
        yield lambda done, last: bar.update(task, completed=done, last=f"{last:.1f}")


def _file(out: str | None, save_info: bool, use_shelve: bool, notes: list[str]) -> str | None:
    """Where the result goes; the episodes themselves, which old scripts wrote here, are `rollout`'s."""
    recorded = [f"--out {out}"] if out and not out.endswith(".json") else []
    recorded += ["--save-info"] if save_info else []
    recorded += ["--use-shelve"] if use_shelve else []
    if recorded:
        words = " ".join(recorded)
        notes.append(f"{words}: only the scores are written here; rayfish rollout keeps the episodes")
    return out if out and out.endswith(".json") else None


def _show(found: Evaluation) -> None:
    from rich.markup import escape

    from rayfish.terminal import Console
    from rayfish.text import counted

    console = Console(highlight=False)
    console.print(
        f"[bold]{found.return_mean:.2f}[/bold] mean return, "
        f"95 % interval {found.ci_low:.2f} to {found.ci_high:.2f}\n"
        f"{counted(found.episodes, 'episode')}, {counted(found.steps, 'step')}, "
        f"mean length {found.length_mean:.1f}, "
        f"{found.seconds:.1f} s, {escape(str(found.env))}, seed {found.seed}",
        soft_wrap=True,
    )
    for policy, value in found.policy_returns.items():
        console.print(f"  {escape(str(policy))}: {value:.2f} mean return", soft_wrap=True)
    if found.figures:
        console.print()
        console.print(_table(found, wide=console.width >= _WIDE))
    if found.baselines:
        console.print(
            f"\n{found.compared_by} of {_player(found)} less that of each baseline, episode by episode"
        )
        console.print(_differences(found))
    if found.figures:
        console.print()
    console.print(f"[dim]checkpoint[/dim] {escape(found.checkpoint)}", soft_wrap=True)
    if found.file:
        console.print(f"[dim]written to[/dim] {escape(found.file)}", soft_wrap=True)


def _table(found: Evaluation, *, wide: bool) -> Any:
    """Every policy with its means, and the ends of their intervals below them: narrow enough for 80 signs."""
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    player = _player(found)
    policies = {player: found.statistics} | {name: one.statistics for name, one in found.baselines.items()}
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("")
    columns: list[list[str]] = []
    for name in ["return", *found.shown]:
        table.add_column(Text(name if wide else name.replace("_", "_\n")), justify="right", no_wrap=True)
        of = [statistics.get(name) for statistics in policies.values()]
        places = _places([one["mean"] for one in of if one is not None])
        columns.append([_cell(one, places) for one in of])
    for policy, *cells in zip(policies, *columns, strict=True):
        title = f"[bold]{policy}[/bold]" if policy == player else escape(policy)
        table.add_row(f"{title}\n[dim]  95 % from\n  to[/dim]", *cells)
    return table


def _cell(of: Mapping[str, float] | None, places: int) -> str:
    if of is None:
        return "-"
    mean, low, high = (_short(of[key], places) for key in ("mean", "ci_low", "ci_high"))
    return f"[bold]{mean}[/bold]\n[dim]{low}\n{high}[/dim]"


def _differences(found: Evaluation) -> Any:
    """The player less each baseline in what matters most, and whether that is more than chance."""
    from rich.table import Table

    name = found.compared_by
    compared = {key: one for key, one in found.baselines.items() if name in one.differences}
    places = _places([one.differences[name]["mean"] for one in compared.values()])
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("")
    table.add_column("difference", justify="right")
    table.add_column("95 % interval", justify="right")
    table.add_column("")
    for baseline, one in compared.items():
        apart = one.differences[name]
        mark, style = "no clear difference", "yellow"
        if one.significant[name]:
            mark, style = ("more", "green") if apart["mean"] > 0 else ("less", "red")
            mark = f"significantly {mark}"
        interval = f"{_short(apart['ci_low'], places)} to {_short(apart['ci_high'], places)}"
        mean = _short(apart["mean"], places)
        mean = mean if mean.startswith("-") else f"+{mean}"
        table.add_row(baseline, f"[bold]{mean}[/bold]", interval, f"[{style}]{mark}[/{style}]")
    return table


def _player(found: Evaluation) -> str:
    """What the evaluated policy is called in a table."""
    prefix, colon, name = found.checkpoint.partition(":")
    return name if colon and prefix == "baseline" else "agent"


def _places(values: Sequence[float]) -> int:
    """How many decimals the numbers of a column have."""
    return 3 if max((abs(value) for value in values), default=0.0) < 10 else 1


def _short(value: float, places: int) -> str:
    rounded = round(value, places) + 0.0  # no minus before a zero
    return f"{rounded:,.{places}f}"
