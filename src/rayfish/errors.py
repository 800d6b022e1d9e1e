"""What a user may do wrong, as exceptions: what happened, the values, the next step.

The command line prints these without a traceback (`--debug` shows it); from Python they are
ordinary exceptions. Raise the most specific class; put the values into `what` and the next step
into `hint`.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_SHOWN = 20
"""Problems that a message names one by one."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an experiment, found before any compute.

    :param key: the dotted key it is about (`training.lr`), or a short topic (`resources`)
    :param what: what is wrong, with the values
    :param hint: the next step
    :param where: the file and line, or the override, that wrote the value ("" when unknown)
    """

    key: str
    what: str
    hint: str = ""
    where: str = ""

    def __str__(self) -> str:
        """One block of text: the key, what is wrong, where it was written, what to do."""
        lines = [f"{self.key}: {self.what}"]
        if self.where:
            lines.append(f"  written in: {self.where}")
        if self.hint:
            lines.append(f"  next step: {self.hint}")
        return "\n".join(lines)


class RayfishError(Exception):
    """A mistake a person can fix: `what` happened with its values, and the next step in `hint`."""

    exit_code = 1

    def __init__(self, what: str, hint: str = "") -> None:
        self.what = what
        self.hint = hint
        super().__init__(what)

    def __str__(self) -> str:
        """The message with its next step on a line of its own."""
        return f"{self.what}\n  next step: {self.hint}" if self.hint else self.what


class ConfigError(RayfishError):
    """The experiment cannot run as written; carries every problem found, not only the first."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        count = len(self.problems)
        head = "1 problem in the experiment:" if count == 1 else f"{count:,} problems in the experiment:"
        shown = [textwrap.indent(str(problem), "  ") for problem in self.problems[:MOST_SHOWN]]
        more = [f"  and {count - MOST_SHOWN:,} more"] if count > MOST_SHOWN else []
        super().__init__("\n".join([head, *shown, *more]))


class CodeError(RayfishError):
    """The user's module, file or class named by an import path cannot be loaded."""


class EnvironmentFault(RayfishError):
    """The environment cannot be made, or breaks the contract of a Gymnasium or multi-agent env."""


class ModelError(RayfishError):
    """The model section does not fit the spaces or the algorithm, or a custom model is broken."""


class CheckpointError(RayfishError):
    """A checkpoint is missing, incomplete, or made by something this installation cannot read."""


class RunNotFound(RayfishError):
    """No run or checkpoint answers to the name, id or path given."""


class NotTrusted(RayfishError):
    """Opening it would run another user's code, which the user has not agreed to."""


class RunFailed(RayfishError):
    """Training began and could not go on; what was finished is kept."""


class MissingExtra(RayfishError):
    """An optional dependency is not installed; names the extra that brings it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed",
            f"pip install 'rayfish[{extra}]'",
        )


def did_you_mean(word: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """The names in `known` that `word` was most likely meant to be, best first."""
    return difflib.get_close_matches(word, sorted(set(known)), n=most, cutoff=0.6)


def suggest(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """The hint for an unknown name: the known ones it is closest to, else `otherwise`, else all names."""
    names = list(known)
    close = did_you_mean(word, names)
    return f"did you mean {' or '.join(close)}?" if close else otherwise or f"there are {', '.join(names)}"
