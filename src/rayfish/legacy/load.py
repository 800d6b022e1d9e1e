"""From an old file to a translation that can be composed: which experiment of it, and what to tell of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rayfish.errors import ConfigError, Problem, did_you_mean
from rayfish.experiment.files import show
from rayfish.legacy.file_format import OldExperiment, read_old
from rayfish.legacy.translate import Translation, translate

_FEW = 6


def split_member(name: str) -> tuple[str, str]:
    """`old.yaml:cartpole-ppo` as file and experiment; the experiment is "" where none is named."""
    found = re.fullmatch(r"(?P<file>.+\.ya?ml):(?P<member>.+)", name)
    return (found["file"], found["member"]) if found else (name, "")


def members(file: Path) -> list[str]:
    """The names of an old file's experiments; none for a file of today."""
    return [old.name for old in read_old(file) or ()]


def translated(file: Path, member: str, *, closest: bool) -> Translation | None:
    """The one experiment of an old file, translated; None for a file of today.

    :raises ConfigError: it holds several and none is named, or what it asks for is refused
    """
    experiments = read_old(file)
    if experiments is None:
        return None
    return require(translate(_chosen(experiments, member, file), closest=closest))


def require(translation: Translation) -> Translation:
    """The translation, when nothing in it is refused.

    :raises ConfigError: with everything that a person must decide
    """
    if translation.problems:
        raise ConfigError(translation.problems)
    return translation


def _chosen(experiments: list[OldExperiment], member: str, file: Path) -> OldExperiment:
    names = [old.name for old in experiments]
    if member:
        if member not in names:
            close = did_you_mean(member, names)
            hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}"
            raise ConfigError([Problem(show(file), f"there is no experiment {member!r} in it", hint)])
        return experiments[names.index(member)]
    if len(experiments) > 1:
        what = f"holds {len(experiments)} experiments: {', '.join(names)}"
        raise ConfigError([Problem(show(file), what, f"name one: {show(file)}:{names[0]}")])
    return experiments[0]


def notes(translation: Translation) -> list[str]:
    """What a user must know of a translated file, shortest first."""
    done, gone = len(translation.of("translated")), translation.of("ignored")
    file = translation.experiment.file
    from_file = file.endswith((".yaml", ".yml"))
    left = f", {len(gone)} ignored ({_names(gone)})" if gone else ""
    where = f"; `rayfish config migrate {file}` shows each" if from_file else ""
    told = [f"{file} speaks RLlib's old language: {done} settings translated{left}{where}"]
    told += [
        f"{entry.old}: {entry.today + ': ' if entry.today else ''}{entry.outcome.why}"
        for entry in translation.of("translated")
        if entry.outcome.changed
    ]
    searched = translation.tunables
    if searched:
        told.append(
            f"{', '.join(searched)} {'has' if len(searched) == 1 else 'have'} a search space: this run takes "
            "the first value of each; `rayfish tune` with this file runs them all"
        )
    return told


def _names(entries: list[Any]) -> str:
    names = list(dict.fromkeys(entry.old.removeprefix("config.") for entry in entries))
    return ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")
