"""`rayfish tune`: many runs of an experiment, a function or a program; or a list of jobs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from rayfish.cli import options
from rayfish.cli.complete import complete_sweeps
from rayfish.cli.config import chosen
from rayfish.cli.train import run_one
from rayfish.errors import RayfishError

if TYPE_CHECKING:
    from rayfish.run.engine import RayOptions

_other = partial(typer.Option, rich_help_panel="In place of an experiment")
_jobs = partial(typer.Option, rich_help_panel="A list of jobs, each with its resources")
_SUB_JOBS = ("--sub-jobs", "--sub_jobs")

Resume = Annotated[
    str | None,
    typer.Option(
        help="Go on with a sweep: its path, name, id, or [bold]last[/bold].", autocompletion=complete_sweeps
    ),
]
Function = Annotated[str | None, _other(help="Tune a function: module:function or file.py:function.")]
Program = Annotated[str | None, _other(help="Tune a program: its command, with {parameters} in it.")]
NumSamples = Annotated[
    int | None, typer.Option("--num-samples", help="Points to try: search.num_samples.", min=1)
]


@dataclass(frozen=True)
class JobFlags:
    """A list of commands in place of a sweep."""

    sub_jobs: Annotated[
        bool,
        _jobs(
            *_SUB_JOBS,
            help="Commands, with + between them. All that follows belongs to them; only after a command "
            "that is one quoted text, options are Rayfish's again.",
        ),
    ] = False
    num_workers: Annotated[int | None, _jobs("--num-workers", "--num_workers", help="Jobs at a time.")] = None
    cpu_per_worker: Annotated[
        float | None, _jobs("--cpu-per-worker", "--cpu_per_worker", help="CPUs of each job.")
    ] = None
    gpu_per_worker: Annotated[
        float | None, _jobs("--gpu-per-worker", "--gpu_per_worker", help="GPUs of each job.")
    ] = None
    ram_gb_per_worker: Annotated[
        float | None, _jobs("--ram-gb-per-worker", "--ram_gb_per_worker", help="Memory of each job, in GB.")
    ] = None

    def run(self, words: list[str], ray: RayOptions, root: str) -> int:
        """Run the commands in `words`; the exit code."""
        from rayfish import jobs

        each = (self.cpu_per_worker, self.gpu_per_worker, self.ram_gb_per_worker)
        return jobs.run_and_tell(jobs.from_words(words, self.num_workers, *each), "sub-jobs", ray, root)


class TuneCommand(TyperCommand):
    """`rayfish tune`, whose --sub-jobs takes the rest of the line, as Isaac Lab's wrap_resources does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words of jobs are kept from being read as options of ours."""
        return super().parse_args(ctx, with_jobs_last(args))


def with_jobs_last(words: Sequence[str]) -> list[str]:
    """The same line with the jobs' words at its end, after `--`."""
    at = next((number for number, word in enumerate(words) if word in _SUB_JOBS), None)
    if at is None:
        return list(words)
    from rayfish.jobs.job_list import commands_in

    ours, theirs = list(words[: at + 1]), list[str]()
    for command in commands_in(words[at + 1 :]):
        quoted = len(command) > 1 and len(command[0].split()) > 1 and command[1].startswith("-")
        theirs += ["+", *(command[:1] if quoted else command)]
        ours += command[1:] if quoted else []
    return [*ours, "--", *theirs[1:]]


@options.grouped
def tune(
    *,
    words: options.Words = None,
    file: options.File = None,
    resume: Resume = None,
    trust: options.Trust = False,
    composition: options.Composition,
    function: Function = None,
    program: Program = None,
    num_samples: NumSamples = None,
    plain: options.Plain = False,
    ray_flags: options.RayFlags,
    local_dir: options.LocalDir = None,
    closest: options.Closest = False,
    job_flags: JobFlags,
    cfg: options.Cfg,
) -> None:
    """Search for good settings: many runs, the best of them as a ready experiment file.

    [bold]rayfish tune cartpole 'training.lr=loguniform(1e-5,1e-2)' search.scheduler=asha[/bold]

    What varies: uniform, loguniform, quniform, randint, choice, grid, normal, on any key; or the
    [bold]tunables[/bold] section of a file. How: [bold]rayfish config keys search[/bold].

    A function: [bold]rayfish tune --function train.py:objective 'x=grid(-1,0,1)'[/bold]

    A program: [bold]rayfish tune --program 'python a.py {lr}' 'lr=uniform(0,1)' search.metric=loss[/bold]

    Jobs: [bold]rayfish tune --num-workers 2 --sub-jobs python a.py --task A + python a.py --task B[/bold]
    """
    from rayfish.experiment.overrides import split_words
    from rayfish.experiment.words import word
    from rayfish.sweep.space import from_words

    ray = ray_flags.options()
    given = list(words or [])
    ways = {"-f": file, "--resume": resume, "--function": function, "--program": program}
    chosen_ways = [way for way, value in (ways | {"--sub-jobs": job_flags.sub_jobs}).items() if value]
    if len(chosen_ways) > 1:
        hint = "give one of them; a file names its function or program itself: `program: python train.py`"
        raise RayfishError(f"{' and '.join(chosen_ways)} exclude each other", hint)
    if job_flags.sub_jobs:
        _leave(job_flags.run(given, ray, local_dir or "runs"))
        return
    if local_dir:
        given.append(word("runtime.local_dir", local_dir))
    if num_samples is not None:
        given.append(word("search.num_samples", num_samples))
    common: dict[str, Any] = {"ray_options": ray, "plain": plain or None}
    if resume is not None:
        _resume(resume, given, trust, common)
    elif function or program:
        _sweep({"function": function} if function else {"program": program}, joined(given), common)
    else:
        name, overrides = split_words(joined(given), composition.config_dir)
        where = composition.where(closest=closest)
        if cfg.wanted():
            cfg.print(chosen(file, name), from_words(overrides)[0], **where)
            return
        _tune_or_train(chosen(file, name), overrides, where, common)


def joined(words: Sequence[str]) -> list[str]:
    """A condition's words belong to the parameter before them: `a=choice(1,2) if b=true` may be unquoted."""
    joined: list[str] = []
    for word in words:
        if joined and (word in ("if", "and") or joined[-1].split()[-1] in ("if", "and")):
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


def _tune_or_train(
    name: str | None, overrides: list[str], where: dict[str, Any], common: dict[str, Any]
) -> None:
    """A sweep or jobs; where nothing varies, `cli.mode=tune` trains one sample, as SimHarness does."""
    from rayfish.experiment import Experiment
    from rayfish.experiment.overrides import parse
    from rayfish.sweep.plan import NothingToSearch
    from rayfish.sweep.tune import sections_of

    if "tasks" in sections_of(name):
        placed = [word for word in overrides if word.startswith("runtime.local_dir=")]
        root = str(parse(placed)[-1].value()) if placed else "runs"
        _run_jobs(str(name), [word for word in overrides if word not in placed], common["ray_options"], root)
        return
    try:
        _sweep(name, overrides, common | where)
    except NothingToSearch:
        if not any(word.startswith("cli.mode=") for word in overrides):
            raise
        experiment = Experiment.compose(name, overrides, **where)
        samples = experiment.search.num_samples or 1
        more = f" (search.num_samples={samples}: rayfish train --seeds {samples})" if samples > 1 else ""
        typer.echo(f"note: cli.mode=tune without tunables trains one sample, as rayfish train does{more}")
        command = shlex.join(["rayfish", *sys.argv[1:]])
        run_one(experiment, command=command, **common)


def _resume(sweep: str, words: Sequence[str], trust: bool, common: dict[str, Any]) -> None:
    """A sweep or a list of jobs goes on."""
    from rayfish.run.trust import require_sweep
    from rayfish.sweep.directory import SweepDirectory, find_sweep

    folder = SweepDirectory.open(find_sweep(sweep))
    if folder.data.get("kind") == "jobs":
        require_sweep(folder.path, folder.data, trust=trust)
        _run_jobs(str(folder.path), words, common["ray_options"])
    else:
        _sweep(None, words, {**common, "resume": folder.path, "trust": trust})


def _run_jobs(file: str, words: Sequence[str], ray: Any, root: str = "runs") -> None:
    from rayfish import jobs

    if words:
        what = f"{file} is a list of jobs, which {words[0]!r} says nothing about"
        raise RayfishError(what, "leave it out")
    _leave(jobs.run_and_tell(jobs.read_jobs(file), Path(file).stem, ray, root))


def _sweep(target: Any, words: Sequence[str], arguments: dict[str, Any]) -> None:
    """Exits with 0 when there is a best point, `exit_code()` after a signal, 1 when no trial has a score."""
    from rayfish.supervise.signals import exit_code
    from rayfish.sweep.tune import tune as run_sweep

    result = run_sweep(target, None, *words, **arguments)
    _leave(exit_code() if result.status == "stopped" else int(result.best is None))


def _leave(code: int) -> None:
    if code:
        raise typer.Exit(code)
