"""Options that several verbs take, each defined once: single ones as types, groups as dataclasses.

A verb's own options are in its file. `grouped` makes the fields of a group options of a verb.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from rayfish.cli.complete import complete_runs, complete_words
from rayfish.errors import RayfishError

if TYPE_CHECKING:
    from rayfish.legacy.evaluate_flags import OldFlags
    from rayfish.legacy.file_format import OldExperiment
    from rayfish.run.engine import RayOptions

OLD = "As in old RLlib scripts"
_ray = partial(typer.Option, rich_help_panel="Ray's local server")
_hydra = partial(typer.Option, rich_help_panel="As in Hydra programs")
old = partial(typer.Option, rich_help_panel=OLD)
"""An option that only old scripts give."""

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
LocalDir = Annotated[str | None, old(help="Where runs are written (runtime.local_dir).")]
Fit = Annotated[
    bool,
    typer.Option("--fit", help="Shrink runners and GPUs to what this machine has (on for old RLlib files)."),
]
Plain = Annotated[bool, typer.Option("--plain", help="Plain lines in place of the live display.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Go on with what another user made, which runs the code in it.")
]
RayCpus = Annotated[int | None, _ray(min=1, help="CPUs Ray may use.")]
RayGpus = Annotated[int | None, _ray(min=0, help="GPUs Ray may use.")]
Target = Annotated[
    str,
    typer.Argument(
        metavar="RUN|CHECKPOINT",
        help="A run or sweep (path, name, id, [bold]last[/bold]) or a checkpoint.",
        autocompletion=complete_runs,
    ),
]
Explore = Annotated[bool, typer.Option("--explore", help="Sample actions as in training.")]
Env = Annotated[str | None, typer.Option("--env", help="Another environment than the trained one.")]
TrustCode = Annotated[
    bool,
    typer.Option("--trust", help="Run the code that another user's run names; your own need no flag."),
]
Closest = Annotated[
    bool, old("--closest", help="An algorithm that RLlib has dropped becomes the closest one it has.")
]


@dataclass(frozen=True)
class Composition:
    """Where an experiment is composed from, besides its name."""

    config_name: ConfigName = "config"
    config_dir: ConfigDir = None

    def where(self, *, closest: bool) -> dict[str, Any]:
        """The same for `Experiment.compose`."""
        return {"config_name": self.config_name, "config_dir": self.config_dir, "closest": closest}


@dataclass(frozen=True)
class RayFlags:
    """How Ray is started or found."""

    address: Annotated[str | None, typer.Option("--on", help="Address of a running Ray cluster.")] = None
    ray_num_cpus: RayCpus = None
    ray_num_gpus: RayGpus = None
    ray_object_store_memory: Annotated[int | None, _ray(help="Bytes of shared memory for Ray's objects.")] = (
        None
    )
    temp_dir: Annotated[str | None, _ray(help="Folder for Ray's session files.")] = None
    dashboard: Annotated[bool, _ray("--dashboard", help="Ray's dashboard in the browser, too.")] = False

    def options(self) -> RayOptions:
        """The same for `rayfish.train` and `rayfish.tune`."""
        from rayfish.run.engine import RayOptions

        return RayOptions(*(getattr(self, field.name) for field in fields(self)))


@dataclass(frozen=True)
class Cfg:
    """Hydra's `--cfg` and what goes with it."""

    cfg: Annotated[
        str | None,
        _hydra(
            "-c",
            "--cfg",
            metavar="job|hydra|all",
            help="Print the composed experiment as YAML, and do nothing else.",
        ),
    ] = None
    package: Annotated[
        str | None, _hydra("-p", "--package", help="With --cfg: only that part, training.model say.")
    ] = None
    resolve: Annotated[bool, _hydra("--resolve", help="With --cfg: interpolations resolved.")] = False

    def wanted(self) -> bool:
        """Whether there is something to print; a wrong combination is an error."""
        beside = "--package" if self.package else "--resolve" if self.resolve else ""
        if self.cfg is None and beside:
            raise RayfishError(f"{beside} is given without --cfg", f"rayfish train --cfg job {beside} ...")
        if self.cfg not in (None, "job", "hydra", "all"):
            raise RayfishError(f"--cfg is {self.cfg!r}", "--cfg job, --cfg hydra or --cfg all")
        return self.cfg is not None

    def print(self, name: str | OldExperiment | None, overrides: list[str], **where: Any) -> None:
        """Print values and keys as the files have them (`config show` has today's).

        :param where: what `Experiment.compose` takes besides: config_name, config_dir, closest
        """
        from rayfish.experiment import tree
        from rayfish.experiment.compose import as_written, resolved
        from rayfish.experiment.experiment import dump

        written, with_hydra = as_written(name, overrides, **where)
        hydra = {"hydra": with_hydra["hydra"]}
        values: Any = {"job": written, "hydra": hydra, "all": {**hydra, **written}}[str(self.cfg)]
        part = self.package if self.package and self.package != "_global_" else ""
        if part and tree.get(values, part, tree.MISSING) is tree.MISSING:
            raise RayfishError(f"--package {part}: there is no such part", f"leave it out: --cfg {self.cfg}")
        if self.resolve and part:
            values = resolved(with_hydra, {}, part)
        elif self.resolve:
            values = {key: resolved(with_hydra, {}, key) for key in values}
        elif part:
            values = tree.get(values, part)
        typer.echo((f"# @package {part}\n" if part else "") + dump(values).removesuffix("...\n"), nl=False)


@dataclass(frozen=True)
class Play:
    """How much a policy plays, and in which environment."""

    episodes: Annotated[int | None, typer.Option(help="Episodes to play (20 when --steps is not given).")] = (
        None
    )
    steps: Annotated[int | None, typer.Option(help="Play at least this many steps.")] = None
    seed: Annotated[int, typer.Option(min=0, help="Episode i is reset with seed + i.")] = 0
    explore: Explore = False
    env: Env = None
    trust: TrustCode = False

    def checkpoint(self, target: str, algo: str | None) -> Path:
        """The checkpoint to play; `algo` (old `--run`) must be its algorithm."""
        from rayfish.legacy.evaluate_flags import require_algorithm
        from rayfish.run.directory import find_checkpoint

        if self.episodes is not None and self.steps is not None:
            both = f"--episodes {self.episodes} and --steps {self.steps}"
            raise RayfishError(f"both {both} are given", "choose one")
        checkpoint = find_checkpoint(target)
        require_algorithm(algo, checkpoint)
        return checkpoint


@dataclass(frozen=True)
class OldPlay:
    """Flags of `rllib rollout` and `rllib evaluate`."""

    run: Annotated[str | None, old("--run", "--algo", help="The algorithm; checked, not needed.")] = None
    config: Annotated[
        str | None, old(metavar="JSON|YAML", help="""Settings, such as '{"env_config": {...}}'.""")
    ] = None
    num_workers: Annotated[int, old(min=0, help="The policy plays in this process; 0 says so.")] = 0
    num_gpus: Annotated[float, old(min=0, help="The policy plays on the CPU; 0 says so.")] = 0.0
    local_mode: Annotated[bool, old("--local-mode", help="One process, as always.")] = False
    render: Annotated[bool, old("--render/--no-render", help="No window is opened in this version.")] = False
    monitor: Annotated[bool, old("--monitor", help="No video is made in this version.")] = False
    video_dir: Annotated[str | None, old(metavar="DIR", help="No video is made in this version.")] = None
    use_shelve: Annotated[bool, old("--use-shelve", help="Episodes are written as they end.")] = False
    track_progress: Annotated[bool, old("--track-progress", help="Progress is shown anyway.")] = False

    def read(self) -> OldFlags:
        """The flags as overrides and notes."""
        from rayfish.legacy.evaluate_flags import OldFlags

        return OldFlags.read(
            config=self.config,
            num_workers=self.num_workers,
            num_gpus=self.num_gpus,
            render=self.render,
            monitor=self.monitor,
            video_dir=self.video_dir,
        )


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb for Typer: a parameter that is a dataclass becomes one option per field."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters = []
    for name, parameter in inspect.signature(verb).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY))
            continue
        types = get_type_hints(groups[name], include_extras=True)
        parameters += [
            inspect.Parameter(f.name, parameter.KEYWORD_ONLY, default=f.default, annotation=types[f.name])
            for f in fields(groups[name])
        ]

    @functools.wraps(verb)
    def command(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        verb(**given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def changed_settings(verb: str) -> Any:
    """The settings after a checkpoint.

    :param verb: what they are changed for, "the evaluation"
    """
    return typer.Argument(metavar="[KEY=VALUE]...", help=f"Settings changed for {verb}, env_config say.")


def echo_notes(notes: Iterable[str]) -> None:
    """Notes on the terminal, beside the results."""
    for note in notes:
        typer.echo(f"note: {note}", err=True)
