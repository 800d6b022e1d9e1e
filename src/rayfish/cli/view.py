"""`rayfish view`: a moving picture of what a trained policy does."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rayfish.cli import options
from rayfish.errors import RayfishError

if TYPE_CHECKING:
    from rayfish.run.view import View

Words = Annotated[list[str] | None, options.changed_settings("the view")]
Episodes = Annotated[int, typer.Option(min=1, help="Episodes to show, one after the other.")]
Seed = Annotated[int, typer.Option(min=0, help="Another episode: number i is reset with seed + i.")]
Out = Annotated[
    str | None,
    typer.Option(metavar="FILE.gif", help="File to write, in place of view.gif in the run's folder."),
]
Fps = Annotated[
    float | None,
    typer.Option(help="Steps per second, up to 50; else the environment's render_fps, or 12."),
]


def view(
    target: options.Target,
    words: Words = None,
    episodes: Episodes = 1,
    seed: Seed = 0,
    out: Out = None,
    fps: Fps = None,
    explore: options.Explore = False,
    env: options.Env = None,
    trust: options.TrustCode = False,
) -> None:
    """Draw an episode of a trained policy: writes a GIF, view.gif in the run's folder.

    [bold]rayfish view last[/bold]

    It is the same evaluation episode every time, the first that [bold]rayfish evaluate[/bold] plays, unless
    --seed asks for another. No window is opened; any environment that renders rgb_array can be drawn.
    """
    from rayfish.run.player import agree
    from rayfish.run.view import view as draw
    from rayfish.terminal import Console

    overrides = [*(words or []), *([f"environment.env={env}"] if env else [])]
    agree(target, overrides, verb="view", trust=trust)
    console = Console(stderr=True)
    with console.status("drawing") if console.is_terminal else nullcontext():
        found = draw(
            target, *overrides, out=out, fps=fps, trust=trust, episodes=episodes, seed=seed, explore=explore
        )
    _show(found)


@options.grouped
def view_mode(
    *,
    words: options.Words = None,
    config_name: options.ConfigName = "config",
    config_dir: options.ConfigDir = None,
    episodes: Episodes = 1,
    seed: Seed = 0,
    out: Out = None,
    fps: Fps = None,
    explore: options.Explore = False,
    trust: options.TrustCode = False,
    cfg: options.Cfg,
) -> None:
    """Draw an episode of the run or checkpoint in algo.checkpoint_path: `rayfish cli.mode=view ...`."""
    from rayfish.experiment import Experiment
    from rayfish.experiment.overrides import split_words

    name, overrides = split_words(words or [], config_dir)
    where: dict[str, Any] = {"config_name": config_name, "config_dir": config_dir}
    if cfg.wanted():
        cfg.print(name, overrides, **where)
        return
    target = Experiment.compose(name, overrides, **where).algo.checkpoint_path
    if not target:
        raise RayfishError(
            "cli.mode=view shows a trained policy, and algo.checkpoint_path names none",
            "rayfish cli.mode=view algo.checkpoint_path=RUN_OR_CHECKPOINT, or rayfish view last",
        )
    changes = [word for word in overrides if word.lstrip("+").startswith(("environment.", "evaluation."))]
    view(str(target), changes, episodes=episodes, seed=seed, out=out, fps=fps, explore=explore, trust=trust)


def _show(found: View) -> None:
    from rich.markup import escape

    from rayfish.terminal import Console
    from rayfish.text import counted, number, size

    out = Console(highlight=False)
    lines = zip(found.returns, found.lengths, found.figures, strict=True)
    for index, (total, length, figures) in enumerate(lines):
        out.print(
            f"[bold]{number(total)}[/bold] return, {counted(length, 'step')}, {escape(str(found.env))}, "
            f"seed {found.seed + index}"
        )
        if figures:
            width = max(map(len, figures))
            for name, value in figures.items():
                out.print(f"  [dim]{escape(f'{name:<{width}}')}[/dim]  {number(value)}")
    kept = max(found.every)
    every = "" if kept == 1 else f", one at every {kept} steps"
    lasting = f"{found.seconds:.0f} s at {found.fps:g} steps per second"
    shown = f"{counted(found.frames, 'picture')}{every}, {lasting}, "
    out.print(
        f"[dim]checkpoint[/dim] {escape(str(found.checkpoint))}\n"
        f"[dim]written to[/dim] {escape(str(found.file))} ({shown}{size(Path(found.file).stat().st_size)})",
        soft_wrap=True,
    )
