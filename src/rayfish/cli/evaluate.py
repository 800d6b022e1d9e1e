"""`rayfish evaluate`: how good a run or checkpoint is, with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rayfish.cli import old_flags
from rayfish.errors import RayfishError

if TYPE_CHECKING:
    from rayfish.run.evaluate import Evaluation

Target = Annotated[
    str,
    typer.Argument(
        metavar="RUN|CHECKPOINT", help="A run (path, name, id, [bold]last[/bold]) or a checkpoint."
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings changed for the evaluation, env_config say."),
]
Episodes = Annotated[int | None, typer.Option(help="Episodes to play (20 when --steps is not given).")]
Steps = Annotated[int | None, typer.Option(help="Play at least this many steps.")]
Seed = Annotated[int, typer.Option(help="Episode i is reset with seed + i.")]
Explore = Annotated[bool, typer.Option("--explore", help="Sample actions as in training.")]
Env = Annotated[str | None, typer.Option("--env", help="Another environment than the trained one.")]
Out = Annotated[
    str | None, typer.Option(metavar="FILE.json", help="File to write, in place of the run's evaluations/.")
]
SaveInfo = Annotated[
    bool,
    typer.Option(
        "--save-info", help="rayfish rollout keeps episodes and infos.", rich_help_panel=old_flags.PANEL
    ),
]


def evaluate(
    target: Target,
    words: Words = None,
    episodes: Episodes = None,
    steps: Steps = None,
    seed: Seed = 0,
    explore: Explore = False,
    env: Env = None,
    out: Out = None,
    run: old_flags.Algo = None,
    config: old_flags.Config = None,
    num_workers: old_flags.Workers = 0,
    num_gpus: old_flags.Gpus = 0.0,
    local_mode: old_flags.LocalMode = False,
    render: old_flags.Render = False,
    monitor: old_flags.Monitor = False,
    video_dir: old_flags.VideoDir = None,
    save_info: SaveInfo = False,
    use_shelve: old_flags.Shelve = False,
    track_progress: old_flags.Track = False,
) -> None:
    """Play episodes with a trained policy: mean return with a 95 % bootstrap interval.

    [bold]rayfish evaluate last --episodes 20[/bold]
    """
    from rayfish.run.evaluate import evaluate as play

    checkpoint = checkpoint_to_play(target, run, episodes, steps)
    old = old_flags.OldFlags.read(
        config=config,
        num_workers=num_workers,
        num_gpus=num_gpus,
        render=render,
        monitor=monitor,
        video_dir=video_dir,
    )
    file = _file(out, save_info, use_shelve, old.notes)
    old_flags.tell(old.notes)
    with playing_bar("evaluating", episodes, steps) as progress:
        found = play(
            checkpoint,
            *old.with_words(words, env),
            episodes=episodes,
            steps=steps,
            seed=seed,
            explore=explore or bool(old.explore),
            out=file,
            progress=progress,
        )
    _show(found)


def checkpoint_to_play(target: str, run: str | None, episodes: int | None, steps: int | None) -> Path:
    """The checkpoint that is meant; what was asked for must make sense, and `--run` be its algorithm."""
    from rayfish.run.directory import find_checkpoint

    if episodes is not None and steps is not None:
        raise RayfishError(f"both --episodes {episodes} and --steps {steps} are given", "choose one")
    checkpoint = find_checkpoint(target)
    old_flags.require_algorithm(run, checkpoint)
    return checkpoint


@contextmanager
def playing_bar(
    doing: str, episodes: int | None, steps: int | None
) -> Iterator[Callable[[int, float], None]]:
    """A progress bar on a terminal; gives what to call after each episode."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (
        TextColumn(doing),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("return {task.fields[last]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=episodes or (None if steps else 20), last="")
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
    from rich.console import Console

    from rayfish.metrics.text import counted

    console = Console(highlight=False)
    console.print(
        f"[bold]{found.return_mean:.2f}[/bold] mean return, "
        f"95 % interval {found.ci_low:.2f} to {found.ci_high:.2f}\n"
        f"{counted(found.episodes, 'episode')}, {counted(found.steps, 'step')}, "
        f"mean length {found.length_mean:.1f}, "
        f"{found.seconds:.1f} s, {found.env}, seed {found.seed}"
    )
    for policy, value in found.policy_returns.items():
        console.print(f"  {policy}: {value:.2f} mean return")
    console.print(
        f"[dim]checkpoint[/dim] {found.checkpoint}\n[dim]written to[/dim] {found.file}", soft_wrap=True
    )
