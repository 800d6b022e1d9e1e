"""`rayfish evaluate`: how good a run or checkpoint is, with its interval."""

from __future__ import annotations

from typing import Annotated

import typer

from rayfish.errors import RayfishError

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
OldRun = Annotated[str | None, typer.Option("--run", help="Old habit: the algorithm; checked, not needed.")]
Env = Annotated[str | None, typer.Option("--env", help="Another environment than the trained one.")]


def evaluate(
    target: Target,
    words: Words = None,
    episodes: Episodes = None,
    steps: Steps = None,
    seed: Seed = 0,
    explore: Explore = False,
    run: OldRun = None,
    env: Env = None,
) -> None:
    """Play episodes with a trained policy: mean return with a 95 % bootstrap interval.

    [bold]rayfish evaluate last --episodes 20[/bold]
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from rayfish.run.checkpoint import read_header
    from rayfish.run.directory import find_checkpoint
    from rayfish.run.evaluate import evaluate as play

    if episodes is not None and steps is not None:
        raise RayfishError(f"both --episodes {episodes} and --steps {steps} are given", "choose one")
    checkpoint = find_checkpoint(target)
    trained = read_header(checkpoint)["algo"]
    if run is not None and run.upper() != str(trained).upper():
        raise RayfishError(
            f"{checkpoint} was trained with {trained}, not {run}", f"--run {trained}, or leave it out"
        )
    overrides = list(words or []) + ([f"environment.env={env}"] if env else [])
    console = Console(stderr=True)
    columns = (
        TextColumn("evaluating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("return {task.fields[last]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=episodes or (None if steps else 20), last="")
        found = play(
            checkpoint,
            *overrides,
            episodes=episodes,
            steps=steps,
            seed=seed,
            explore=explore,
            progress=lambda done, last: bar.update(task, completed=done, last=f"{last:.1f}"),
        )
    out = Console(highlight=False)
    out.print(
        f"[bold]{found.return_mean:.2f}[/bold] mean return, "
        f"95 % interval {found.ci_low:.2f} to {found.ci_high:.2f}\n"
        f"{found.episodes} episodes, {found.steps:,} steps, mean length {found.length_mean:.1f}, "
        f"{found.seconds:.1f} s, {found.env}, seed {found.seed}"
    )
    for policy, value in found.policy_returns.items():
        out.print(f"  {policy}: {value:.2f} mean return")
    out.print(f"[dim]checkpoint[/dim] {found.checkpoint}\n[dim]written to[/dim] {found.file}", soft_wrap=True)
