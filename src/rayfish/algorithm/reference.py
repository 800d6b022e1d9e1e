"""Every key of an experiment, documented: the reference page and `rayfish config keys` are made here.

    python -m rayfish.algorithm.reference > docs/reference.md

The rows come from the section table, RLlib's signatures and the model options, so the page cannot drift.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rayfish.algorithm.keys import CHOICES
from rayfish.algorithm.signatures import default_of, entries, table
from rayfish.algorithm.unused_keys import DEAD_FOR, DEAD_KEYS, NEEDS, is_dead
from rayfish.experiment.legacy_door import OLD_KEYS, is_old
from rayfish.experiment.result_names import STOP_KEYS
from rayfish.experiment.sections import ALGORITHMS, CLOSEST, METHODS, SECTIONS
from rayfish.models.options import NEEDS as MODEL_NEEDS
from rayfish.models.options import OPTIONS

MODEL = "training.model"
"""The model section, documented like a section of its own."""

BY_ALGORITHM = "by algorithm"
"""Shown in place of a default that algorithms do not share."""


@dataclass(frozen=True)
class KeyRow:
    """One key as people read it.

    :param default: as it would be written
    :param is_own: Rayfish's own key rather than one of RLlib's
    """

    key: str
    type: str
    default: str
    doc: str
    choices: tuple[str, ...] = ()
    is_own: bool = False

    @property
    def takes(self) -> str:
        """What may be written: the type, its text spelt out where only some words are allowed."""
        words = ", ".join(self.choices)
        others = [kind for kind in self.type.split(" | ") if kind not in ("str", "null")]
        return " | ".join([*others, words]) if words else self.type


def section_names() -> list[str]:
    """Every section that has documented keys, in the order of the page."""
    names = list(SECTIONS)
    names.insert(names.index("training") + 1, MODEL)
    return names


def rows(section: str, algo: str | None = None) -> list[KeyRow]:
    """The living keys of a section; for `training` those of one algorithm, or those that all share."""
    if section == MODEL:
        return [_model_row(key) for key in OPTIONS]
    own = [
        KeyRow(key, f"{f.type} ({f.unit})" if f.unit else f.type, _shown(f.default), f.doc, f.choices, True)
        for key, f in SECTIONS[section].own.items()
    ]
    known = _shared_training() if section == "training" and algo is None else entries(section, algo)
    documented = {row.key for row in own}
    theirs = [
        _rllib_row(section, key, entry, algo)
        for key, entry in sorted(known.items())
        if key not in documented and not is_dead(f"{section}.{key}", algo) and not is_old(f"{section}.{key}")
    ]
    return own + theirs


def all_rows(section: str, algo: str | None = None) -> list[KeyRow]:
    """Like `rows`, but `training` without an algorithm has the keys of every algorithm."""
    found = {row.key: row for row in rows(section, algo)}
    if section == "training" and algo is None:
        for name in ALGORITHMS:
            for row in special_rows(name):
                found.setdefault(row.key, row)
    return list(found.values())


def special_rows(algo: str) -> list[KeyRow]:
    """The keys of `training` that this algorithm has and not all others."""
    shared = set(_shared_training())
    return [row for row in rows("training", algo) if not row.is_own and row.key not in shared]


def _model_row(key: str) -> KeyRow:
    option = OPTIONS[key]
    takes = option.type + (" | null" if option.nullable else "")
    return KeyRow(key, takes, _shown(option.default), option.doc, option.choices, True)


def _rllib_row(section: str, key: str, entry: dict[str, Any], algo: str | None) -> KeyRow:
    default = entry["default"] if algo is None else default_of(section, key, algo)
    # RLlib marks every parameter Optional; null is shown only where it is the default.
    takes = entry["type"] if default is None else entry["type"].removesuffix(" | null")
    return KeyRow(key, takes, _shown(default), entry["doc"], CHOICES.get(f"{section}.{key}", ()))


def _shared_training() -> dict[str, Any]:
    """The entries that every algorithm's training() has; defaults that differ are left open."""
    each = [
        {
            key: entry
            for key, entry in entries("training", name).items()
            if not is_dead(f"training.{key}", name)
        }
        for name in ALGORITHMS
    ]
    shared = set.intersection(*(set(one) for one in each))
    found = {}
    for key in sorted(shared):
        defaults = {json.dumps(one[key]["default"]) for one in each}
        default = each[0][key]["default"] if len(defaults) == 1 else BY_ALGORITHM
        found[key] = {**each[0][key], "default": default}
    return found


def _shown(value: Any) -> str:
    """A value as it is written in YAML."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value and (abs(value) < 1e-3 or abs(value) >= 1e6):
        return f"{value:g}"
    return json.dumps(value)


def page() -> str:
    """The whole reference page, as Markdown."""
    return (
        "\n".join([*_head(), *(line for name in section_names() for line in _section(name)), *_names()])
        + "\n"
    )


def _head() -> Iterator[str]:
    yield from ("# Reference: every key of an experiment", "")
    yield (
        f"Made from the section table and the signatures of Ray {table()['ray']} by "
        "`python -m rayfish.algorithm.reference`; do not edit. On the command line: `rayfish config keys`, "
        "`rayfish config keys training --algo PPO`."
    )
    yield ""
    yield (
        "Keys in **bold** are Rayfish's own; the others are RLlib's, under its names. "
        "A key is written `section.key=value` on the command line, and below its section in a file. "
        "A key left out keeps the default shown here, or RLlib's for the algorithm."
    )
    yield ""
    yield "Sections: " + ", ".join(f"[{name}](#{name.replace('.', '')})" for name in section_names())


def _section(name: str) -> Iterator[str]:
    yield from ("", f"## {name}", "")
    if name == MODEL:
        yield "The network. Names and defaults are RLlib's; it is Rayfish that builds it."
    else:
        yield SECTIONS[name].doc
    if name in METHODS:
        yield f"Feeds `AlgorithmConfig.{METHODS[name]}()`."
    found = rows(name)
    if found:
        yield from _key_table(found)
    if name == "training":
        for algo, doc in ALGORITHMS.items():
            yield from ("", f"### training, {algo}", "", f"{algo}: {doc}.")
            yield from _key_table(special_rows(algo))


def _key_table(found: list[KeyRow]) -> Iterator[str]:
    cells = [
        (f"**`{row.key}`**" if row.is_own else f"`{row.key}`", row.takes, f"`{row.default}`", row.doc)
        for row in found
    ]
    yield from _table("key | takes | default | what it does", cells)


def _table(header: str, found: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A Markdown table after an empty line."""
    yield from ("", f"| {header} |", "|" + "---|" * len(header.split(" | ")))
    for cells in found:
        plain = (cell.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;") for cell in cells)
        yield f"| {' | '.join(plain)} |"


def _names() -> Iterator[str]:
    yield from ("", "## Other names", "")
    yield "Old names are understood in any section and translated, with a note saying so."
    renamed = sorted((old, new) for old, new in OLD_KEYS.items() if not new.endswith(f".{old}"))
    yield from _table("old key | today", _code(renamed))
    yield from _table("result name of RLlib, as a stop condition | metric", _code(STOP_KEYS.items()))
    yield from _table("algorithm gone from RLlib | closest today", CLOSEST.items())
    yield from ("", "## Keys without effect", "")
    yield "RLlib accepts these, but nothing on its new stack reads them; `rayfish config check` reports them."
    yield from _table("key | instead", ((f"`{key}`", instead) for key, instead in DEAD_KEYS.items()))
    yield from ("", "These have an effect, but not for every algorithm.")
    partly = ((f"`{key}`", ", ".join(algos), instead) for key, (algos, instead) in DEAD_FOR.items())
    yield from _table("key | without effect for | instead", partly)
    yield from ("", "These have an effect once another key is set; until then a note says so.")
    needs = [
        *NEEDS.items(),
        *((f"{MODEL}.{key}", f"{MODEL}.{needed}") for key, needed in MODEL_NEEDS.items()),
    ]
    needing = ((f"`{key}`", " or ".join(f"`{one}`" for one in needed.split("|"))) for key, needed in needs)
    yield from _table("key | needs", needing)


def _code(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    """Both as Markdown code."""
    yield from ((f"`{one}`", f"`{other}`") for one, other in pairs)


if __name__ == "__main__":
    print(page(), end="")
