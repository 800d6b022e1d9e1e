"""Reads RLlib's config classes: parameter names, types, defaults and docs become plain JSON values.

Only `python -m rayfish.algorithm.signatures` and its test come here; it imports RLlib.
"""

from __future__ import annotations

import collections.abc
import enum
import inspect
import re
import types
import typing
from collections.abc import Mapping
from importlib import import_module, metadata
from typing import Any

from rayfish.algorithm.signatures import LAYOUT
from rayfish.compat.ray_internals import deprecated_value
from rayfish.experiment.sections import ALGORITHMS, METHODS

# What takes a schedule ([[0, 1e-3], [10000, 1e-4]]) although its annotation says float.
_SCHEDULES = {"lr", "entropy_coeff", "actor_lr", "critic_lr", "alpha_lr", "value_lr", "epsilon"}
_DOC_LIMIT = 400


def build_table() -> dict[str, Any]:
    """The whole table."""
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

    base = AlgorithmConfig()
    sections = {
        section: _method_entries([AlgorithmConfig], method, base)
        for section, method in METHODS.items()
        if section != "training"
    }
    algorithms = {name: _algorithm(name, sections, base) for name in sorted(ALGORITHMS)}
    return {"layout": LAYOUT, "ray": metadata.version("ray"), "sections": sections, "algorithms": algorithms}


def _algorithm(name: str, sections: Mapping[str, Mapping[str, Any]], base: Any) -> dict[str, Any]:
    module = import_module(f"ray.rllib.algorithms.{name.lower()}")
    config = getattr(module, f"{name}Config")()
    classes = [cls for cls in type(config).__mro__ if "training" in vars(cls)]
    differing = {
        f"{section}.{key}": default
        for section, keys in sections.items()
        for key in keys
        if (default := _plain(_default(config, key))) != _plain(_default(base, key))
    }
    training = _method_entries(classes, "training", config)
    # A few keys of learners() are taken by training() too; they have one home here.
    training = {key: entry for key, entry in training.items() if key not in sections["learners"]}
    return {"training": training, "defaults": differing}


def _method_entries(classes: list[type], method: str, config: Any) -> dict[str, Any]:
    """One entry per parameter over all `classes`, the most specific first."""
    found: dict[str, Any] = {}
    for cls in classes:
        function = vars(cls)[method]
        docs = _docs(function)
        for name, parameter in inspect.signature(function).parameters.items():
            skipped = name in found or name == "self" or parameter.kind is inspect.Parameter.VAR_KEYWORD
            if skipped or name.startswith("_") or parameter.default == deprecated_value():
                continue
            default = _default(config, name)
            found[name] = {
                "type": _type(name, parameter.annotation, default),
                "default": _plain(default),
                "doc": docs.get(name, ""),
            }
    return found


def _default(config: Any, name: str) -> Any:
    if name == "framework":
        return config.framework_str
    try:
        return getattr(config, name, None)
    except (AttributeError, ValueError, NotImplementedError):  # properties that only a subclass can answer
        return None


def _plain(value: Any) -> Any:
    """A default as JSON; a class, function or object becomes null: it has no form in a file."""
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        plain = {str(key): _plain(inner) for key, inner in value.items()}
        return plain if len(str(plain)) < 300 else {}
    return None


def _type(name: str, annotation: Any, default: Any) -> str:
    """The annotation in the words of a file: int, float, bool, str, list, dict, path, null."""
    names = _names(annotation)
    if name in _SCHEDULES:
        names |= {"float", "list"}
    # RLlib's annotations are not always right (DQN's `hiddens: int` is a list); its default is.
    if default is not None and not callable(default) and not isinstance(default, enum.Enum):
        names |= _names(type(default))
    if "any" in names:
        return "any"
    order = ["bool", "int", "float", "str", "path", "list", "dict", "null"]
    return " | ".join(kind for kind in order if kind in names)


def _names(annotation: Any) -> set[str]:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return set().union(*(_names(argument) for argument in typing.get_args(annotation)))
    target = origin or annotation
    if target is type(None):
        return {"null"}
    if target in (collections.abc.Callable, type) or isinstance(annotation, typing.ForwardRef):
        return {"path"}
    if not isinstance(target, type):
        return {"any"}
    for kind, python in (("bool", bool), ("int", int), ("float", float), ("str", str), ("dict", dict)):
        if issubclass(target, python):
            return {kind}
    if issubclass(target, list | tuple | set) or target is collections.abc.Collection:
        return {"list"}
    # Enums are written by their value, classes and spaces by import path.
    return {"str"} if issubclass(target, enum.Enum) else {"path"}


def _docs(function: Any) -> dict[str, str]:
    """Parameter -> its documentation, from Google style `Args:`."""
    text = inspect.getdoc(function) or ""
    body = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", text, re.S | re.M)
    if body is None:
        return {}
    pieces = re.split(r"^    (\w+): ", body.group(1), flags=re.M)
    return {name: _shorten(doc) for name, doc in zip(pieces[1::2], pieces[2::2], strict=True)}


def _shorten(doc: str) -> str:
    """The first sentences, on one line, in plain quotes."""
    text = re.sub(r"\s+", " ", doc).strip().replace("``", "`")
    if len(text) <= _DOC_LIMIT:
        return text
    cut = text.rfind(". ", 0, _DOC_LIMIT)
    return text[: cut + 1] if cut > 0 else text[:_DOC_LIMIT].rsplit(" ", 1)[0] + " ..."
