"""`rayfish train`: one run, or one per value of a sweep and per seed."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rayfish.cli import options
from rayfish.cli.complete import complete_runs
from rayfish.cli.config import chosen
from rayfish.errors import ConfigError, RayfishError

if TYPE_CHECKING:
    from rayfish.experiment import Experiment
    from rayfish.legacy.file_format import OldExperiment
    from rayfish.legacy.train_flags import OldLine
    from rayfish.run.engine import RayOptions

Resume = Annotated[
    str | None,
    typer.Option(
        help="Continue a run: its path, name, id, or [bold]last[/bold].", autocompletion=complete_runs
    ),
]
Multirun = Annotated[bool, typer.Option("-m", "--multirun", help="One run per comma-separated value.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Repeat every run with this many seeds.")]
Restore = Annotated[
    str | None,
    options.old(
        metavar="RUN|CHECKPOINT",
        autocompletion=complete_runs,
        help="A new run that goes on from a checkpoint's whole state (--resume goes on in its own run).",
    ),
]


@dataclass(frozen=True)
class OldTrainFlags:
    """Flags of old scripts that are settings today."""

    local_dir: options.LocalDir = None
    checkpoint_freq: Annotated[int | None, options.old(help="Iterations between checkpoints.")] = None
    checkpoint_at_end: Annotated[
        bool, options.old("--checkpoint-at-end", help="Save at the end (the default).")
    ] = False
    local_mode: Annotated[bool, options.old("--local-mode", help="No remote runners: one process.")] = False
    closest: options.Closest = False

    def settings(self) -> list[str]:
        """The flags as `key=value`."""
        values = {
            "runtime.local_dir": self.local_dir,
            "checkpoint.checkpoint_frequency": self.checkpoint_freq,
            "checkpoint.checkpoint_at_end": "true" if self.checkpoint_at_end else None,
            "rollouts.num_env_runners": 0 if self.local_mode else None,
            "learners.num_learners": 0 if self.local_mode else None,
        }
        return [f"{key}={value}" for key, value in values.items() if value is not None]


@options.grouped
def train(
    context: typer.Context,
    *,
    words: options.Words = None,
    file: options.File = None,
    resume: Resume = None,
    trust: options.Trust = False,
    composition: options.Composition,
    multirun: Multirun = False,
    seeds: Seeds = None,
    fit: options.Fit = False,
    plain: options.Plain = False,
    ray_flags: options.RayFlags,
    old_flags: OldTrainFlags,
    restore: Restore = None,
    cfg: options.Cfg,
) -> None:
    """Train an experiment until it reaches its goal.

    [bold]rayfish train cartpole training.lr=3e-4[/bold], or [bold]rayfish train PPO my_env.py:MyEnv[/bold]

    Settings are documented by [bold]rayfish config keys[/bold]; what an experiment resolves to,
    and where each value comes from, by [bold]rayfish config show[/bold].

    Old RLlib files run as they are: [bold]rayfish train -f cartpole-ppo.yaml[/bold]; so do the flags
    of [bold]rllib train[/bold] (--run, --env, --stop, --config and so on).
    """
    from rayfish.experiment.compose import experiments_in
    from rayfish.experiment.overrides import split_words

    name, overrides = split_words(words or [], composition.config_dir)
    name = chosen(file, name)
    overrides = old_flags.settings() + overrides
    if context.obj:
        overrides = (context.obj.overrides(name) if name else context.obj.settings()) + overrides
    _require_one_beginning(resume, restore, seeds, context.obj)
    old = _old_line(context.obj, name, resume)
    ray = ray_flags.options()
    common: dict[str, Any] = {"fit": fit, "plain": plain or None, "command": _command(), "trust": trust}
    if resume is not None:
        beside = {"--multirun": multirun, "--seeds": seeds, "--cfg": cfg.cfg}
        _require_alone(resume, [name or "", *(flag for flag, given in beside.items() if given)])
        run_one(None, *overrides, resume=resume, ray_options=ray, **common)
        return
    where = composition.where(closest=old_flags.closest)
    if cfg.wanted():
        cfg.print(old or name, overrides, **where)
        return
    sources: list[str | OldExperiment | None] = (
        [old] if old else [*experiments_in(name, composition.config_dir)] or [None]
    )
    if restore is not None and sources == [None] and not multirun:
        run_one(None, *overrides, restore=restore, ray_options=ray, **common)
        return
    runs, refused = _experiments(sources, overrides, where, multirun=multirun, seeds=seeds)
    common |= {} if restore is None else {"restore": restore}
    if len(runs) == 1 and not refused:
        run_one(runs[0][1], ray_options=ray, **common)
    else:
        _run_several(runs, ray, common, refused)


def _command() -> str:
    return shlex.join(["rayfish", *sys.argv[1:]])


def _require_one_beginning(
    resume: str | None, restore: str | None, seeds: int | None, line: OldLine | None
) -> None:
    """A run begins in one way; what would be ignored beside it is refused."""
    if resume is not None and restore is not None:
        raise RayfishError(
            f"--resume {resume} and --restore {restore} are both given",
            "--resume goes on in that run's folder, --restore in a new one: give one of them",
        )
    if restore is not None and seeds is not None:
        raise RayfishError(
            f"--restore {restore} brings its random numbers with it, so --seeds {seeds} would repeat one run",
            "leave out --seeds, or start from the weights alone: algo.checkpoint_path=RUN",
        )
    if resume is not None and line is not None and line.values:
        raise RayfishError(
            f"--resume {resume} continues one run with its own experiment, but {line.flags} is given too",
            "leave that out; key=value settings are fine",
        )


def _require_alone(resume: str, given: list[str]) -> None:
    """A run is continued with its own experiment; nothing beside it names another."""
    if any(given):
        raise RayfishError(
            f"--resume {resume} continues one run with its own experiment, "
            f"but {' and '.join(filter(None, given))} is given too",
            "leave that out; key=value settings are fine",
        )


def _experiments(
    sources: list[str | OldExperiment | None],
    overrides: list[str],
    where: dict[str, Any],
    *,
    multirun: bool,
    seeds: int | None,
) -> tuple[list[tuple[tuple[str, ...], Experiment]], dict[str, ConfigError]]:
    """What is to be run, one by one, each with the words that tell it apart; and what is refused.

    Of several experiments in an old file, those that can be trained are; a single one that cannot is refused.
    """
    from rayfish.experiment import Experiment, expand

    runs: list[tuple[tuple[str, ...], Experiment]] = []
    refused: dict[str, ConfigError] = {}
    for source in sources:
        member = (str(source).rpartition(":")[2],) if len(sources) > 1 else ()
        try:
            seed = Experiment.compose(source, **where).debugging.seed if seeds else None
            runs += [
                ((*member, *words), Experiment.compose(source, words, **where))
                for words in expand(overrides, multirun=multirun, seeds=seeds, base_seed=seed or 0)
            ]
        except ConfigError as error:
            if len(sources) == 1:
                raise
            refused[str(source)] = error
    if refused and not runs:
        raise ConfigError([problem for error in refused.values() for problem in error.problems])
    return runs, refused


def _old_line(line: OldLine | None, name: str | None, resume: str | None) -> OldExperiment | None:
    """The experiment that flags of `rllib train` describe, where no file or run is named."""
    options.echo_notes(line.notes if line else ())
    return line.experiment() if line and name is None and resume is None else None


def run_one(*arguments: Any, **options: Any) -> None:
    """One run; the exit code says where it was stopped."""
    from rayfish.run.directory import STOPPED, RunDirectory
    from rayfish.run.train import train as run
    from rayfish.supervise.signals import exit_code

    folder = run(*arguments, **options)
    if RunDirectory.open(folder).status == STOPPED:
        raise typer.Exit(exit_code())


def _run_several(
    runs: list[tuple[tuple[str, ...], Experiment]],
    ray: RayOptions,
    common: dict[str, Any],
    refused: dict[str, ConfigError],
) -> None:
    from rayfish.run.train import several
    from rayfish.supervise.signals import exit_code, was_asked_to_end

    missing = several(runs, ray, common, refused)
    if was_asked_to_end():
        raise typer.Exit(exit_code())
    if missing or refused:
        raise typer.Exit(1)
