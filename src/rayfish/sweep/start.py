"""From the words of a command line to a sweep: which of its kinds is meant, and its exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayfish.errors import ConfigError, Problem, RayfishError, did_you_mean
from rayfish.experiment import tree
from rayfish.experiment.overrides import parse
from rayfish.run.engine import RayOptions
from rayfish.run.trust import require_sweep
from rayfish.supervise.signals import exit_code
from rayfish.sweep import api, planning
from rayfish.sweep.directory import STOPPED, SweepDirectory, find_sweep
from rayfish.sweep.outcome import Result
from rayfish.sweep.records import FAILED
from rayfish.sweep.space import Parameter, from_words, ordered, parameters_in

_FILE_KEYS = ("function", "program", "config", "tunables", "search", "runtime")


def named(
    name: str | None,
    overrides: Sequence[str],
    *,
    options: RayOptions,
    plain: bool | None = None,
    **where: Any,
) -> int:
    """An experiment by name or file; or a file that describes a function's or program's sweep, or jobs."""
    text = _top_level(name)
    if "tasks" in text:
        placed = [word for word in overrides if word.startswith("runtime.local_dir=")]
        others = [word for word in overrides if word not in placed]
        root = _values(placed).get("runtime.local_dir") or "runs"
        return _jobs(str(name), others, options, str(root))
    if "function" in text or "program" in text:
        return _finished(api.run(_described(text, Path(str(name)), overrides), options, plain=plain))
    return _finished(api.run(planning.of_experiment(name, overrides, **where), options, plain=plain))


def other(
    words: Sequence[str],
    *,
    function: str | None,
    program: str | None,
    options: RayOptions,
    plain: bool | None = None,
) -> int:
    """A function or a program, by the words of the command line alone."""
    text: dict[str, Any] = {"function": function} if function else {"program": {"command": program}}
    settings = joined(words)
    loose = [word for word in settings if "=" not in word]
    if loose:
        raise RayfishError(f"{loose[0]!r} is no setting", "write key=value; quote commands with spaces")
    return _finished(api.run(_described(text, None, settings), options, plain=plain))


def resumed(
    sweep: str, words: Sequence[str], *, options: RayOptions, plain: bool | None = None, trust: bool = False
) -> int:
    """A sweep that goes on, with other settings of its search where words say so."""
    folder = SweepDirectory.open(find_sweep(sweep))
    require_sweep(folder.path, folder.data, trust=trust)
    if folder.data.get("kind") == "jobs":
        return _jobs(str(folder.path), words, options)
    values = _values(words)
    others = [key for key in values if not key.startswith("search.")]
    if others:
        raise RayfishError(
            f"a resumed sweep keeps its experiment: {others[0]} cannot change",
            "settings of the search may: search.num_samples=40; else begin a new sweep",
        )
    changes = {key.removeprefix("search."): value for key, value in values.items()}
    return _finished(api.tune(resume=folder.path, plain=plain, ray_options=options, **changes))


def sub_jobs(
    words: Sequence[str],
    num_workers: int | None,
    each: Mapping[str, float | None],
    options: RayOptions,
    root: str = "runs",
) -> int:
    """Commands with `+` between them, as Isaac Lab's wrap_resources takes them; results go below `root`."""
    from rayfish.jobs import from_words as jobs_from_words
    from rayfish.jobs import run_and_tell

    jobs = jobs_from_words(
        words,
        num_workers=num_workers,
        cpu_per_worker=each.get("cpu"),
        gpu_per_worker=each.get("gpu"),
        ram_gb_per_worker=each.get("ram_gb"),
    )
    return run_and_tell(jobs, "sub-jobs", options, root)


def _jobs(file: str, overrides: Sequence[str], options: RayOptions, root: str = "runs") -> int:
    from rayfish.jobs import read_jobs, run_and_tell

    if overrides:
        raise RayfishError(
            f"{file} is a list of jobs, which {overrides[0]!r} says nothing about", "leave it out"
        )
    return run_and_tell(read_jobs(file), Path(file).stem, options, root)


@dataclass
class _Described:
    """The parts of a sweep over a function or program."""

    search: dict[str, Any] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)
    program: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


def _described(text: Mapping[str, Any], file: Path | None, words: Sequence[str]) -> Any:
    """The plan that a file of this form and words upon it describe."""
    unknown = [key for key in text if key not in _FILE_KEYS]
    if unknown:
        close = did_you_mean(unknown[0], _FILE_KEYS)
        hint = f"did you mean {close[0]}?" if close else f"a file of this kind has {', '.join(_FILE_KEYS)}"
        raise ConfigError([Problem(unknown[0], "there is no such section here", hint, str(file or ""))])
    rest, from_command_line = from_words(words)
    program = text.get("program")
    parts = _Described(
        dict(text.get("search") or {}),
        dict(text.get("runtime") or {}),
        dict(program) if isinstance(program, Mapping) else {"command": program} if program else {},
        dict(text.get("config") or {}),
    )
    for key, value in _values(rest).items():
        section, _, inner = key.partition(".")
        if section in ("search", "runtime", "program") and inner:
            tree.put(getattr(parts, section), inner, value)
        else:
            parts.config[key] = value
    space = ordered([*parameters_in(text.get("tunables") or {}, str(file or "tunables")), *from_command_line])
    common: dict[str, Any] = {
        "search": parts.search,
        "name": parts.runtime.get("name") or (f"tune-{file.stem}" if file else None),
        "root": str(parts.runtime.get("local_dir") or "runs"),
        "where": str(file or ""),
    }
    if parts.program:
        fixed = [Parameter(key, "choice", (value,)) for key, value in parts.config.items()]
        return planning.of_program(parts.program, ordered([*space, *fixed]), **common)
    return planning.of_function(_function(str(text["function"]), file), space, config=parts.config, **common)


def _function(path: str, file: Path | None) -> str:
    """A function's file is looked up beside the file that names it, too."""
    head, colon, name = path.partition(":")
    beside = file.parent / head if file is not None else None
    if head.endswith(".py") and not Path(head).exists() and beside is not None and beside.exists():
        return f"{beside}{colon}{name}"
    return path


def _top_level(name: str | None) -> Mapping[str, Any]:
    """The sections of a YAML file; {} for a preset, and for what an experiment's own reader will explain."""
    if name is None or not Path(name).is_file() or not name.endswith((".yaml", ".yml")):
        return {}
    import yaml

    from rayfish.experiment.yaml_reader import load

    try:
        found = load(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def _values(words: Sequence[str]) -> dict[str, Any]:
    """`key=value` words as values by key."""
    return {override.key_or_group: override.value() for override in parse(list(words))}


def joined(words: Sequence[str]) -> list[str]:
    """A condition's words belong to the parameter before them: `a=choice(1,2) if b=true` may be unquoted."""
    joined: list[str] = []
    for word in words:
        if joined and (word in ("if", "and") or joined[-1].split()[-1] in ("if", "and")):
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


def _finished(result: Result) -> int:
    """0 when there is a best point, `exit_code()` after a signal, 1 when no trial came to a score."""
    if result.status == STOPPED:
        return exit_code()
    return int(all(trial.state == FAILED or trial.value is None for trial in result.trials))
