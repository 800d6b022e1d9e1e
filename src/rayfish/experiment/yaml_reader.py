"""YAML as OmegaConf reads it (1e-3 is a number), within limits: every file and flag goes through here.

A few lines can stand for billions of values (aliases of aliases), for themselves, or for brackets deeper than
Python's stack. Such a text is refused from its events, before anything is built. So are tags for pairs, sets
and bytes, which look like a list or a text to one reader and like a section to another.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from rayfish.compat.library_internals import omegaconf_loader

MOST_BYTES = 4_000_000
MOST_VALUES = 100_000
"""Values of a file, those behind aliases counted each time."""

DEEPEST = 40
_EXACT_BYTES = 200_000
"""Up to this size the errors of PyYAML's own parser, which are better, are worth its time."""


_GENERAL = "check the indentation, the colon after each key and the quotes around this line"
_TAGS = "tag:yaml.org,2002:"
_REFUSED = ("pairs", "omap", "set", "binary")


class Excess(yaml.MarkedYAMLError):
    """A text that is too large, too deep, contains itself, or has a tag that no experiment needs.

    :param hint: the next step
    """

    def __init__(self, problem: str, hint: str, mark: Any = None) -> None:
        super().__init__(problem=problem, problem_mark=mark)
        self.hint = hint


def load(text: str) -> Any:
    """The value of a YAML text, with OmegaConf's numbers.

    :raises yaml.YAMLError: it is not valid, or beyond the limits
    """
    loader, node = parsed(text)
    return loader.construct_document(node) if node is not None else None


def safe_load(text: str) -> Any:
    """As `yaml.safe_load`, within the limits."""
    node = _composed(text, lambda base: base)
    return yaml.SafeLoader("").construct_document(node) if node is not None else None


def parsed(text: str, *, twice: bool = False) -> tuple[Any, Any]:
    """A loader and the node of a YAML text, None for an empty one; `construct_document` makes the value.

    :param twice: of a key that is written twice the last one counts, as in PyYAML; else it is an error
    """
    # Making a value of `<<: *anchor` changes the node.
    node = _composed(text, _loader) if "<<" in text else _node(text)
    return _loader(yaml.SafeLoader, twice=twice)(""), node


def keys_in(node: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any, bool]]:
    """Every key below a node: dotted, its node, its value's node, and whether its section has it already."""
    seen = set()
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        dotted = f"{prefix}.{key.value}" if prefix else str(key.value)
        yield dotted, key, value, dotted in seen and key.value != "<<"
        seen.add(dotted)
        yield from keys_in(value, dotted)


@functools.lru_cache(maxsize=64)
def _node(text: str) -> Any:
    """A file is asked for its form, its defaults list and its values, and shipped ones again and again."""
    return _composed(text, _loader)


def _composed(text: str, loader_on: Callable[[Any], Any]) -> Any:
    try:
        _require_limits(text)
        return yaml.compose(text, Loader=loader_on(yaml.CSafeLoader))
    except Excess:
        raise
    except yaml.YAMLError:
        if len(text) > _EXACT_BYTES:
            raise
        return yaml.compose(text, Loader=loader_on(yaml.SafeLoader))


def _require_limits(text: str) -> None:
    """Refuses what would not end, from the parser's events alone; aliases count for what they stand for."""
    if len(text) > MOST_BYTES:
        what = f"it is {len(text) / 1e6:.0f} MB long; more than {MOST_BYTES // 10**6} MB are not read"
        raise Excess(what, "keep data in files of its own, and name their paths")
    sizes: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    count = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = count - before
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in opened):
                what = f"*{event.anchor} stands inside &{event.anchor}, so that it contains itself"
                raise Excess(what, "write the value in place of the alias", event.start_mark)
            count += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.NodeEvent):
            count += 1
            _require_plain(event)
            if isinstance(event, yaml.CollectionStartEvent):
                opened.append((event.anchor, count))
        if len(opened) > DEEPEST:
            raise Excess(f"values are nested more than {DEEPEST} deep", "write it flatter", event.start_mark)
        if count > MOST_VALUES:
            what = f"it holds more than {MOST_VALUES:,} values, each alias counted for what it stands for"
            raise Excess(what, "keep data in files of its own, and name their paths", event.start_mark)


def _require_plain(event: Any) -> None:
    tag = (event.tag or "").removeprefix(_TAGS)
    if tag in _REFUSED:
        raise Excess(
            f"the tag !!{tag} is not allowed", "write a plain list, section or text", event.start_mark
        )


@functools.cache
def _loader(base: Any, *, twice: bool = False) -> Any:
    """OmegaConf's loader upon PyYAML's parser in C or in Python."""
    theirs = omegaconf_loader()

    class Loader(base):  # type: ignore[misc]
        """Numbers as OmegaConf's loader has them, and its refusal of keys that are written twice."""

        yaml_implicit_resolvers = theirs.yaml_implicit_resolvers
        yaml_constructors = theirs.yaml_constructors

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """A dictionary, unless a key is there twice."""
            seen = set()
            for key, _ in () if twice else node.value:
                if key.tag == yaml.resolver.BaseResolver.DEFAULT_SCALAR_TAG and key.value in seen:
                    reason = f"found duplicate key {key.value}"
                    raise yaml.constructor.ConstructorError(
                        "while constructing a mapping", node.start_mark, reason, key.start_mark
                    )
                seen.add(key.value if isinstance(key.value, str) else None)
            return super().construct_mapping(node, deep=deep)

    return Loader


def explain(error: Any, text: str) -> tuple[int, str, str]:
    """(line from 1 or 0 when unknown, what is wrong, the next step) for an exception of PyYAML."""
    if isinstance(error, Excess):
        mark = error.problem_mark
        return mark.line + 1 if mark is not None else 0, str(error.problem), error.hint
    rows = text.splitlines()
    reason = str(getattr(error, "problem", None) or str(error).splitlines()[0])
    mark, context = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    line = mark.line if mark is not None else -1
    opened = context.line if context is not None else line
    if r"\t" in reason:
        return line + 1, "a tab stands where spaces belong", "indent with spaces, two for each level"
    if "duplicate key" in reason:
        key = reason.rpartition(" ")[2]
        first = _first(rows, key, line)
        also = f" (line {first + 1} has it too)" if first >= 0 else ""
        return line + 1, f"the key {key!r} is written twice{also}", "remove one of the two lines"
    if "another document" in reason:
        return line + 1, "a second document begins here", "remove the `---`; one file is one experiment"
    if "constructor for the tag" in reason:
        what = f"the tag in {_row(rows, line)} is not allowed: a file names values, it runs no code"
        return line + 1, what, "write the plain value; code is named by import path, as my_env.py:MyEnv"
    if "mapping values are not allowed" in reason:
        return _missing_colon(rows, line)
    if "flow sequence" in str(getattr(error, "context", "")) or "flow mapping" in str(
        getattr(error, "context", "")
    ):
        bracket = "[" if "sequence" in str(error.context) else "{"
        return opened + 1, f"the {bracket} in {_row(rows, opened)} is not closed", "close it on that line"
    if "quoted scalar" in str(getattr(error, "context", "")):
        return opened + 1, f"the quote in {_row(rows, opened)} is not closed", "close it on that line"
    if "could not find expected ':'" in reason:
        return opened + 1, f"{_row(rows, opened)} has no colon", "write `key: value`, a space after the colon"
    if line >= len(rows):
        line = opened
    return line + 1, f"{reason} in {_row(rows, line)}" if rows else reason, _GENERAL


def _missing_colon(rows: list[str], line: int) -> tuple[int, str, str]:
    """A second colon in one value: the line before lacks its own, or the value needs quotes."""
    before = next((n for n in range(line - 1, -1, -1) if rows[n].strip()), -1)
    if before >= 0 and not re.search(r":(\s|$)", rows[before]):
        return before + 1, f"{_row(rows, before)} has no colon", "write `key: value`, a space after the colon"
    hint = "put the value in quotes, or indent it as the lines around it"
    return line + 1, f"{_row(rows, line)} has a colon too many, or the wrong indentation", hint


def _first(rows: list[str], key: str, before: int) -> int:
    """The last line above `before` that writes the same key as deep as it, -1 when there is none."""
    indent = len(rows[before]) - len(rows[before].lstrip()) if 0 <= before < len(rows) else 0
    pattern = re.compile(rf"\s{{{indent}}}['\"]?{re.escape(key)}['\"]?\s*:")
    return next((n for n in range(before - 1, -1, -1) if pattern.match(rows[n])), -1)


def _row(rows: list[str], line: int) -> str:
    return f"`{rows[line].strip()}`" if 0 <= line < len(rows) else "the last line"
