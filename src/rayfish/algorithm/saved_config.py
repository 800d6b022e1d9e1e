"""RLlib pickles its config into every part of a checkpoint; environment variables are kept out of it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle

_CONSTRUCTOR = "class_and_ctor_args.pkl"
_SHORTEST = 4  # shorter texts are no secrets, and stand in many places


def hide_variables(folder: Path, variables: Mapping[str, tuple[Any, Any]]) -> None:
    """Writes `${oc.env:TOKEN}` in place of the variable's value into RLlib's checkpoint in `folder`.

    Rayfish builds the algorithm from config.yaml and does not read what is changed; RLlib's own
    `Algorithm.from_checkpoint` finds the variable's name there.

    :param variables: dotted key -> (what was written, what it is)
    """
    texts: dict[str, str] = {}
    for written, value in variables.values():
        texts |= _pairs(written, value)
    for file in folder.rglob(_CONSTRUCTOR) if texts else ():
        if "rl_module" in file.parts:
            continue  # networks are made from these, so their settings are needed
        content = pickle.loads(file.read_bytes())
        _replace(content, texts, set())
        file.write_bytes(cloudpickle.dumps(content))


def _pairs(written: Any, value: Any) -> dict[str, str]:
    """Each text that came from a variable, with what was written for it."""
    if isinstance(value, str):
        return {value: str(written)} if len(value) >= _SHORTEST and value != written else {}
    if isinstance(value, Mapping):
        below = written if isinstance(written, Mapping) else {}
        parts = [_pairs(below.get(key, written), inner) for key, inner in value.items()]
    elif isinstance(value, list):
        same = isinstance(written, list) and len(written) == len(value)
        parts = [_pairs(written[at] if same else written, inner) for at, inner in enumerate(value)]
    else:
        parts = []
    return {text: name for part in parts for text, name in part.items()}


def _replace(node: Any, texts: Mapping[str, str], seen: set[int]) -> Any:
    """`node` with the texts replaced, in place as far as it can be changed."""
    if isinstance(node, str):
        return texts.get(node, node)
    if id(node) in seen or isinstance(node, type):
        return node
    seen.add(id(node))
    if isinstance(node, dict):
        for key in node:
            node[key] = _replace(node[key], texts, seen)
    elif isinstance(node, list):
        node[:] = [_replace(one, texts, seen) for one in node]
    elif type(node) is tuple:
        return tuple(_replace(one, texts, seen) for one in node)
    elif hasattr(node, "__dict__"):
        _replace(vars(node), texts, seen)
    return node
