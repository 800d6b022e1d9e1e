"""Tab completion: presets, keys, values and runs for the words after a verb. Imports neither Ray nor Hydra.

Bash splits words at `=`, so the word that is being completed may be only what follows it; the line is
then read from the variables that the shell hands over.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rayfish.files import parse_json
from rayfish.text import printable

Suggestion = tuple[str, str]
"""A word to offer, and a few words of help beside it."""

_HELP = 70
_MOST_RUNS = 50


def complete_words(incomplete: str) -> list[Suggestion]:
    """Presets, `section.`, `section.key=` and values, whichever the unfinished word may become."""
    try:
        key = _key_before_equals()
        if key is not None:
            return [
                (value, help_) for value, help_ in _values(key) if value.startswith(incomplete.lstrip("="))
            ]
        if "=" in incomplete:
            key = incomplete.partition("=")[0].lstrip("+~")
            return [(f"{key}={value}", help_) for value, help_ in _values(key)]
        return [*_presets(incomplete), *_keys(incomplete)]
    except OSError:  # an unreadable folder is no reason to disturb the prompt
        return []


def complete_sections(incomplete: str) -> list[Suggestion]:
    """The sections of an experiment."""
    from rayfish.experiment.sections import SECTIONS

    found = [(name, section.doc[:_HELP]) for name, section in SECTIONS.items()]
    found.append(("training.model", "The network."))
    return [(name, doc) for name, doc in found if name.startswith(incomplete)]


def complete_runs(incomplete: str) -> list[Suggestion]:
    """`last`, names of runs and sweeps, and ids once a character is typed; the shell completes paths."""
    return _named(incomplete, ("run.json", "sweep.json"))


def complete_sweeps(incomplete: str) -> list[Suggestion]:
    """The same for sweeps alone."""
    return _named(incomplete, ("sweep.json",))


def _named(incomplete: str, kinds: tuple[str, ...]) -> list[Suggestion]:
    if "/" in incomplete:
        return []
    root = Path(_after("--local-dir") or "runs")
    try:
        files = [file for kind in kinds for file in root.glob(f"*/*/{kind}")]
    except OSError:
        return []
    files.sort(key=lambda file: file.parent.name, reverse=True)  # names begin with the time
    found: dict[str, Path] = {}
    for file in files:
        found.setdefault(file.parent.parent.name, file)
    if incomplete:
        found |= {file.parent.name.rpartition("-")[2]: file for file in files}
    wanted = [(word, file) for word, file in found.items() if word.startswith(incomplete)]
    last = [("last", "the newest")] if files and "last".startswith(incomplete) else []
    return [*last, *((word, _about(file)) for word, file in wanted[:_MOST_RUNS])]


def _about(file: Path) -> str:
    """A run or a sweep in a few words."""
    try:
        data = parse_json(file.read_bytes())
        what = data.get("title") or f"{data['algo']} on {data['env']}"
        return printable(f"{what}, {data['status']}")[:_HELP]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return "damaged"


def _key_before_equals() -> str | None:
    """In bash: the key, when the cursor stands after `key=`, which bash hands over as words of their own."""
    line = os.environ.get("COMP_WORDS")
    if line is None:
        return None
    words = line.split("\n")
    at = int(os.environ.get("COMP_CWORD", len(words) - 1))
    if at < len(words) and words[at] == "=" and at > 0:
        return words[at - 1]
    return words[at - 2] if 1 < at <= len(words) and words[at - 1] == "=" else None


def _folders() -> list[Path]:
    """The shipped groups, and the folder that the line names with --config-dir."""
    from rayfish.experiment.files import CONF

    named = [Path(folder).expanduser() for folder in (_after("--config-dir", "-cd"),) if folder]
    return [*(folder for folder in named if folder.is_dir()), CONF]


def _after(*options: str) -> str:
    """The word after an option on the line that is being completed."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    words = line.replace("=", " ").split()
    return next((words[i + 1] for i, word in enumerate(words[:-1]) if word in options), "")


def _presets(incomplete: str) -> list[Suggestion]:
    from rayfish.experiment.files import describe

    found: dict[str, str] = {}
    for folder in _folders():
        for path in sorted((folder / "experiment").glob("*.yaml")):
            if path.stem.startswith(incomplete):
                found.setdefault(path.stem, describe(path)[:_HELP])
    return list(found.items())


def _keys(incomplete: str) -> list[Suggestion]:
    """Sections until there is a dot, then the keys of that section."""
    from rayfish.experiment.sections import SECTIONS

    sign = incomplete[: len(incomplete) - len(incomplete.lstrip("+~"))]
    bare = incomplete[len(sign) :]
    if "." not in bare:
        names = [name for name in SECTIONS if name.startswith(bare)] if bare or sign else []
        if len(names) != 1:
            return [(f"{sign}{name}.", SECTIONS[name].doc[:_HELP]) for name in names]
        bare = f"{names[0]}."
    found = {dotted: about for dotted, about in _documented(bare).items() if dotted.startswith(bare)}
    words = [(f"{sign}{dotted}", doc[:_HELP]) for dotted, (_, doc) in found.items()]
    if len(found) == 1:
        # A second word that shares `key=` keeps the shell from adding a space after the equals sign.
        [(dotted, (default, doc))] = found.items()
        words.append((f"{sign}{dotted}{default}", doc[:_HELP]))
    return words


def _documented(prefix: str) -> dict[str, tuple[str, str]]:
    """`section.key=` -> default and doc, for the section that `prefix` begins with."""
    from rayfish.algorithm import reference

    section = reference.MODEL if prefix.startswith(f"{reference.MODEL}.") else prefix.partition(".")[0]
    if section not in reference.section_names():
        return {}
    found = {
        f"{section}.{row.key}=": (_default(section, row), row.doc) for row in reference.all_rows(section)
    }
    if section == "training":
        found["training.model."] = ("fcnet_hiddens=", "The network.")
        del found["training.model="]
    return found


def _default(section: str, row: Any) -> str:
    """The default as it is typed; where algorithms differ, PPO's as an example."""
    from rayfish.algorithm import reference

    if row.default != reference.BY_ALGORITHM:
        return row.default
    return next(r.default for r in reference.rows(section, "PPO") if r.key == row.key)


def _values(key: str) -> list[Suggestion]:
    """What a key may be set to: its choices, true and false, a group's options, or its default."""
    from rayfish.algorithm import reference

    options = sorted({path.stem for folder in _folders() for path in (folder / key).glob("*.yaml")})
    if options:
        return [(option, "") for option in options]
    section, _, name = key.rpartition(".")
    if section not in reference.section_names():
        return []
    for row in reference.all_rows(section):
        if row.key == name:
            if row.choices:
                return [(choice, "") for choice in row.choices]
            if row.type.startswith("bool"):
                return [("true", ""), ("false", "")]
            return [(_default(section, row), "the default")]
    return []
