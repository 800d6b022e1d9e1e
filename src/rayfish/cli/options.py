"""Options that several verbs take, each defined once; a verb's own options stand in its file."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rayfish.cli.complete import complete_runs, complete_words

OLD = "As in old RLlib scripts"
_ray = partial(typer.Option, rich_help_panel="Ray's local server")
_hydra = partial(typer.Option, rich_help_panel="As in Hydra programs")
old = partial(typer.Option, rich_help_panel=OLD)
"""An option that only old scripts give."""

# What to train, tune or look at
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[EXPERIMENT] [ALGORITHM] [ENV] [KEY=VALUE]...",
        help="A preset (rayfish config list) or YAML file, an algorithm, an environment, or nothing; "
        "then settings.",
        autocompletion=complete_words,
    ),
]
File = Annotated[str | None, typer.Option("-f", "--file", help="An experiment file in place of a preset.")]
ConfigName = Annotated[str, typer.Option("-cn", "--config-name", help="The main config, without .yaml.")]
ConfigDir = Annotated[
    Path | None, typer.Option("-cd", "--config-dir", help="A folder with your own Hydra groups and presets.")
]
Cfg = Annotated[
    str | None,
    _hydra(
        "-c",
        "--cfg",
        metavar="job|hydra|all",
        help="Print the composed experiment as YAML, and do nothing else.",
    ),
]
Package = Annotated[
    str | None, _hydra("-p", "--package", help="With --cfg: only that part, training.model say.")
]
Resolve = Annotated[bool, _hydra("--resolve", help="With --cfg: interpolations resolved.")]
LocalDir = Annotated[str | None, old(help="Where runs are written (runtime.local_dir).")]
Closest = Annotated[
    bool, old("--closest", help="An algorithm that RLlib has dropped becomes the closest one it has.")
]

# How it runs
Fit = Annotated[
    bool,
    typer.Option("--fit", help="Shrink runners and GPUs to what this machine has (on for old RLlib files)."),
]
Plain = Annotated[bool, typer.Option("--plain", help="Plain lines in place of the live display.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Go on with what another user made, which runs the code in it.")
]
On = Annotated[str | None, typer.Option("--on", help="Address of a running Ray cluster.")]
RayCpus = Annotated[int | None, _ray(min=1, help="CPUs Ray may use.")]
RayGpus = Annotated[int | None, _ray(min=0, help="GPUs Ray may use.")]
RayMemory = Annotated[int | None, _ray(help="Bytes of shared memory for Ray's objects.")]
TempDir = Annotated[str | None, _ray(help="Folder for Ray's session files.")]
Dashboard = Annotated[bool, _ray("--dashboard", help="Ray's dashboard in the browser, too.")]

# Which policy plays, and how
Target = Annotated[
    str,
    typer.Argument(
        metavar="RUN|CHECKPOINT",
        help="A run or sweep (path, name, id, [bold]last[/bold]) or a checkpoint.",
        autocompletion=complete_runs,
    ),
]
Episodes = Annotated[int | None, typer.Option(help="Episodes to play (20 when --steps is not given).")]
Steps = Annotated[int | None, typer.Option(help="Play at least this many steps.")]
Seed = Annotated[int, typer.Option(min=0, help="Episode i is reset with seed + i.")]
Explore = Annotated[bool, typer.Option("--explore", help="Sample actions as in training.")]
Env = Annotated[str | None, typer.Option("--env", help="Another environment than the trained one.")]
TrustCode = Annotated[
    bool,
    typer.Option("--trust", help="Run the code that another user's run names; your own need no flag."),
]

# Flags of `rllib rollout` and `rllib evaluate`
Algo = Annotated[str | None, old("--run", "--algo", help="The algorithm; checked, not needed.")]
Workers = Annotated[int, old(min=0, help="The policy plays in this process; 0 says so.")]
Gpus = Annotated[float, old(min=0, help="The policy plays on the CPU; 0 says so.")]
LocalMode = Annotated[bool, old("--local-mode", help="One process, as always.")]
Config = Annotated[
    str | None, old(metavar="JSON|YAML", help="""Settings, such as '{"env_config": {...}}'.""")
]
Render = Annotated[bool, old("--render/--no-render", help="No window is opened in this version.")]
Monitor = Annotated[bool, old("--monitor", help="No video is made in this version.")]
VideoDir = Annotated[str | None, old(metavar="DIR", help="No video is made in this version.")]
Shelve = Annotated[bool, old("--use-shelve", help="Episodes are written as they end.")]
Track = Annotated[bool, old("--track-progress", help="Progress is shown anyway.")]


def changed_settings(verb: str) -> Any:
    """The settings after a checkpoint.

    :param verb: what they are changed for, "the evaluation"
    """
    return typer.Argument(metavar="[KEY=VALUE]...", help=f"Settings changed for {verb}, env_config say.")


def echo_notes(notes: Iterable[str]) -> None:
    """Notes on the terminal, beside the results."""
    for note in notes:
        typer.echo(f"note: {note}", err=True)
