"""YAML as OmegaConf reads it (1e-3 is a number), within limits: every file and flag goes through here.

A few lines can stand for billions of values (aliases of aliases), for themselves, or for brackets deeper than
Python's stack. Such a text is refused from its events, before anything is built. So are tags for pairs, sets
and bytes, which look like a list or a text to one reader and like a section to another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import yaml

MOST_BYTES = 4_000_000
MOST_VALUES = 100_000
"""Values of a file, those behind aliases counted each time."""

DEEPEST = 40
_EXACT_BYTES = 200_000
"""Up to this size the errors of PyYAML's own parser, which are better, are worth its time."""


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
    from omegaconf._utils import get_yaml_loader

    theirs: Any = get_yaml_loader()

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
