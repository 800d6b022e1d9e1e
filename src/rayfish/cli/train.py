"""`rayfish train`: one run, or one per value of a sweep and per seed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rayfish.cli.complete import complete_words
from rayfish.errors import RayfishError

if TYPE_CHECKING:
    from rayfish.run.engine import RayOptions

_RAY = "Ray's local server"
_OLD = "As in old RLlib scripts"


def train(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXPERIMENT] [KEY=VALUE]...",
            help="A preset (rayfish config list), a YAML file, or nothing; then settings.",
            autocompletion=complete_words,
        ),
    ] = None,
    file: Annotated[str | None, typer.Option("-f", "--file", help="An experiment file in place of a preset.")] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", help="Continue a run: its path, name, id, or [bold]last[/bold].")
    ] = None,
    config_name: Annotated[
        str, typer.Option("-cn", "--config-name", help="The main config to start from, without .yaml.")
    ] = "config",
    config_dir: Annotated[
        Path | None, typer.Option("-cd", "--config-dir", help="A folder with your own Hydra groups and presets.")
    ] = None,
    multirun: Annotated[
        bool, typer.Option("-m", "--multirun", help="One run per combination of comma-separated values.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Repeat every run with this many seeds.")] = None,
    fit: Annotated[bool, typer.Option("--fit", help="Shrink runners and GPUs to what this machine has.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Plain lines in place of the live display.")] = False,
    address: Annotated[str | None, typer.Option("--on", help="Address of a running Ray cluster.")] = None,
    ray_num_cpus: Annotated[int | None, typer.Option(help="CPUs Ray may use.", rich_help_panel=_RAY)] = None,
    ray_num_gpus: Annotated[int | None, typer.Option(help="GPUs Ray may use.", rich_help_panel=_RAY)] = None,
    ray_object_store_memory: Annotated[
        int | None, typer.Option(help="Bytes of shared memory for Ray's objects.", rich_help_panel=_RAY)
    ] = None,
    temp_dir: Annotated[
        str | None, typer.Option(help="Folder for Ray's session files.", rich_help_panel=_RAY)
    ] = None,
    local_dir: Annotated[
        str | None, typer.Option(help="Where runs are written (runtime.local_dir).", rich_help_panel=_OLD)
    ] = None,
    checkpoint_freq: Annotated[
        int | None, typer.Option(help="Iterations between checkpoints.", rich_help_panel=_OLD)
    ] = None,
    checkpoint_at_end: Annotated[
        bool, typer.Option("--checkpoint-at-end", help="Save at the end (the default).", rich_help_panel=_OLD)
    ] = False,
    local_mode: Annotated[
        bool, typer.Option("--local-mode", help="No remote runners: everything in one process.", rich_help_panel=_OLD)
    ] = False,
) -> None:
    """Train an experiment until it reaches its goal.

    [bold]rayfish train cartpole training.lr=3e-4[/bold]

    Settings are documented by [bold]rayfish config keys[/bold]; what an experiment resolves to,
    and where each value comes from, by [bold]rayfish config show[/bold].
    """
    from rayfish.experiment.overrides import split_words

    name, overrides = split_words(words or [])
    if file is not None:
        if name is not None:
            raise RayfishError(f"both -f {file} and the experiment {name} are given", "name one of them")
        name = file
    flags = {
        "runtime.local_dir": local_dir,
        "checkpoint.checkpoint_frequency": checkpoint_freq,
        "checkpoint.checkpoint_at_end": "true" if checkpoint_at_end else None,
        "rollouts.num_env_runners": 0 if local_mode else None,
        "learners.num_learners": 0 if local_mode else None,
    }
    overrides = [f"{key}={value}" for key, value in flags.items() if value is not None] + overrides

    from rayfish.experiment import expand
    from rayfish.run.engine import RayOptions

    options = RayOptions(address, ray_num_cpus, ray_num_gpus, ray_object_store_memory, temp_dir)
    common = {"fit": fit, "plain": plain or None, "command": shlex.join(["rayfish", *sys.argv[1:]])}
    if resume is not None:
        if name is not None or multirun or seeds:
            raise RayfishError(
                "--resume continues one run with its own experiment",
                "leave out the experiment, --multirun and --seeds; key=value settings are fine",
            )
        from rayfish.run.train import train as run

        run(None, *overrides, resume=resume, ray_options=options, **common)
        return
    experiments = [
        (words, _compose(name, words, config_name, config_dir))
        for words in expand(overrides, multirun=multirun, seeds=seeds)
    ]
    _run_all(experiments, options, common)


def _compose(name: str | None, overrides: tuple[str, ...], config_name: str, config_dir: Path | None) -> Any:
    from rayfish.experiment import Experiment

    return Experiment.compose(name, overrides, config_name=config_name, config_dir=config_dir)


def _run_all(experiments: list[tuple[tuple[str, ...], Any]], options: RayOptions, common: dict[str, Any]) -> None:
    """One run, or several in turn: one that fails is reported and does not stop the others."""
    from rayfish.run.train import train as run

    if len(experiments) == 1:
        run(experiments[0][1], ray_options=options, **common)
        return
    from rayfish.run.several import several

    failed = several(experiments, options, common)
    if failed:
        raise typer.Exit(1)
