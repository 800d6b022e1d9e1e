"""`rayfish tune`: many runs of an experiment, a function or a program; or a list of jobs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rayfish.cli.config import ConfigDir, ConfigName, File, Words, chosen
from rayfish.cli.train import (
    Closest,
    Dashboard,
    LocalDir,
    On,
    Plain,
    RayCpus,
    RayGpus,
    RayMemory,
    TempDir,
)
from rayfish.errors import RayfishError

_OTHERS = "In place of an experiment"
_JOBS = "A list of jobs, each with its resources"

Resume = Annotated[
    str | None, typer.Option(help="Go on with a sweep: its path, name, id, or [bold]last[/bold].")
]
Function = Annotated[
    str | None,
    typer.Option(help="Tune a function: module:function or file.py:function.", rich_help_panel=_OTHERS),
]
Program = Annotated[
    str | None,
    typer.Option(help="Tune a program: its command, with {parameters} in it.", rich_help_panel=_OTHERS),
]
SubJobs = Annotated[
    bool,
    typer.Option("--sub-jobs", "--sub_jobs", help="Commands, with + between them.", rich_help_panel=_JOBS),
]
NumWorkers = Annotated[
    int | None, typer.Option("--num-workers", "--num_workers", help="Jobs at a time.", rich_help_panel=_JOBS)
]
CpuEach = Annotated[
    float | None,
    typer.Option("--cpu-per-worker", "--cpu_per_worker", help="CPUs of each job.", rich_help_panel=_JOBS),
]
GpuEach = Annotated[
    float | None,
    typer.Option("--gpu-per-worker", "--gpu_per_worker", help="GPUs of each job.", rich_help_panel=_JOBS),
]
RamEach = Annotated[
    float | None,
    typer.Option(
        "--ram-gb-per-worker", "--ram_gb_per_worker", help="Memory of each job, in GB.", rich_help_panel=_JOBS
    ),
]


def tune(
    words: Words = None,
    file: File = None,
    resume: Resume = None,
    config_name: ConfigName = "config",
    config_dir: ConfigDir = None,
    function: Function = None,
    program: Program = None,
    plain: Plain = False,
    address: On = None,
    ray_num_cpus: RayCpus = None,
    ray_num_gpus: RayGpus = None,
    ray_object_store_memory: RayMemory = None,
    temp_dir: TempDir = None,
    dashboard: Dashboard = False,
    local_dir: LocalDir = None,
    closest: Closest = False,
    sub_jobs: SubJobs = False,
    num_workers: NumWorkers = None,
    cpu_per_worker: CpuEach = None,
    gpu_per_worker: GpuEach = None,
    ram_gb_per_worker: RamEach = None,
) -> None:
    """Search for good settings: many runs, the best of them as a ready experiment file.

    [bold]rayfish tune cartpole 'training.lr=loguniform(1e-5,1e-2)' search.scheduler=asha[/bold]

    What varies: uniform, loguniform, quniform, randint, choice, grid, normal, on any key; or the
    [bold]tunables[/bold] section of a file. How: [bold]rayfish config keys search[/bold].

    A function: [bold]rayfish tune --function train.py:objective 'x=grid(-1,0,1)'[/bold]

    A program: [bold]rayfish tune --program 'python a.py {lr}' 'lr=uniform(0,1)' search.metric=loss[/bold]
    """
    from rayfish.experiment.overrides import split_words
    from rayfish.run.engine import RayOptions
    from rayfish.sweep import start
    from rayfish.sweep.experiment import word

    options = RayOptions(address, ray_num_cpus, ray_num_gpus, ray_object_store_memory, temp_dir, dashboard)
    given = list(words or [])
    if sub_jobs:
        each = {"cpu": cpu_per_worker, "gpu": gpu_per_worker, "ram_gb": ram_gb_per_worker}
        _leave(start.sub_jobs(given, num_workers, each, options))
        return
    if sum(map(bool, (resume, function, program))) > 1:
        raise RayfishError("--resume, --function and --program exclude each other", "give one of them")
    if local_dir:
        given.append(word("runtime.local_dir", local_dir))
    common: dict[str, Any] = {"options": options, "plain": plain or None}
    if resume is not None:
        _leave(start.resumed(resume, given, **common))
    elif function is not None or program is not None:
        _leave(start.other(given, function=function, program=program, **common))
    else:
        name, overrides = split_words(start.joined(given))
        where: dict[str, Any] = {"config_name": config_name, "config_dir": config_dir, "closest": closest}
        _leave(start.named(chosen(file, name), overrides, **where, **common))


def _leave(code: int) -> None:
    if code:
        raise typer.Exit(code)
