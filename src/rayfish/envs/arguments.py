"""How `env_config` reaches a constructor: as keyword arguments, or whole, as its signature says.

- A first parameter called `config`, `env_config` or the like, or annotated as a mapping, takes the
  whole dictionary (RLlib's habit: `def __init__(self, config)`).
- A creator function whose only required parameter is not a key of `env_config` takes it whole too
  (`lambda _: MyEnv()`).
- Everything else takes the keys as keyword arguments.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from rayfish.envs.spec import EnvConfig
from rayfish.errors import EnvironmentFault, suggest

_WHOLE = re.compile("_*(env_)?(cfg|conf|config|configuration|context|ctx)")
_MAPPINGS = re.compile("[Dd]ict|(Mutable)?Mapping|EnvContext|EnvConfig|EnvConfigDict|DictConfig")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class EnvConfigFault(EnvironmentFault):
    """The constructor does not take what `env_config` holds."""


def call(target: Callable[..., Any], config: Mapping[str, Any], *, render_mode: str | None = None) -> Any:
    """Call a class or creator function with `config` in the way its signature asks for."""
    whole: Any = config if hasattr(config, "worker_index") else EnvConfig(config)
    parameters = _parameters(target)
    if parameters is None:  # a builtin without a signature: the plain Gymnasium way
        return target(**dict(config))
    named = {name: entry for name, entry in parameters.items() if entry.kind in _NAMED}
    first = next(iter(parameters.values()), None)
    if first is not None and _takes_whole(target, first, parameters, config):
        if render_mode is None:
            return target(whole)
        if "render_mode" in named:
            return target(whole, render_mode=render_mode)
        return target(whole.copy_with_overrides({**whole, "render_mode": render_mode}))
    keywords = dict(config)
    if first is not None and _WHOLE.fullmatch(first.name) and isinstance(keywords.get(first.name), Mapping):
        # `env_config: {config: {...}}`: what is in it, with the worker's number and the like as ever.
        keywords[first.name] = whole.copy_with_overrides(dict(keywords[first.name]))
    if render_mode is not None:
        if not takes(target, "render_mode"):
            raise EnvironmentFault(
                f"{label(target)} cannot draw itself: its constructor takes no render_mode",
                "add render_mode=None to its parameters, keep it as self.render_mode, and write render()",
            )
        keywords["render_mode"] = render_mode
    check_keys(target, keywords)
    return target(**keywords)


def check_keys(target: Callable[..., Any], keywords: Mapping[str, Any]) -> None:
    """Raise `EnvConfigFault` when `target` cannot be called with these keyword arguments."""
    parameters = _parameters(target)
    if parameters is None:
        return
    named = [name for name, entry in parameters.items() if entry.kind in _NAMED]
    unknown = [key for key in keywords if not takes(target, key)]
    if unknown:
        offered = f"it takes {', '.join(named)}" if named else "it takes no parameters"
        raise EnvConfigFault(
            f"{label(target)} takes no {', '.join(map(repr, unknown))}; {offered}",
            suggest(unknown[0], named, f"remove environment.env_config.{unknown[0]}"),
        )
    required = [name for name in named if parameters[name].default is inspect.Parameter.empty]
    missing = [name for name in required if name not in keywords]
    if missing:
        raise EnvConfigFault(
            f"{label(target)} needs {', '.join(map(repr, missing))}, which env_config does not give",
            f"set environment.env_config.{missing[0]}=...",
        )


def takes(target: Callable[..., Any], name: str) -> bool:
    """Whether a function takes a keyword argument of that name, as far as its signature is known."""
    parameters = _parameters(target)
    if parameters is None or any(entry.kind is entry.VAR_KEYWORD for entry in parameters.values()):
        return True
    return name in parameters and parameters[name].kind in _NAMED


def label(target: Any) -> str:
    """What to call a class or function in a message."""
    name = getattr(target, "__qualname__", None) or type(target).__name__
    module = getattr(target, "__module__", "")
    return name if module in ("", "__main__", "builtins") else f"{module}.{name}"


def _takes_whole(
    target: Callable[..., Any],
    first: inspect.Parameter,
    parameters: Mapping[str, inspect.Parameter],
    config: Mapping[str, Any],
) -> bool:
    if first.kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
        return False
    if first.kind is inspect.Parameter.POSITIONAL_ONLY:
        return True
    if first.name in config and all(key in parameters for key in config):
        return False
    if _WHOLE.fullmatch(first.name) or _is_mapping(first.annotation):
        return True
    required = [
        entry
        for entry in parameters.values()
        if entry.default is inspect.Parameter.empty
        and entry.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]
    plain = first.annotation is inspect.Parameter.empty
    return not inspect.isclass(target) and required == [first] and plain


def _is_mapping(annotation: Any) -> bool:
    if annotation is inspect.Parameter.empty:
        return False
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    head = text.replace("typing.", "").split("|")[0].strip().removeprefix("Optional[")
    return bool(_MAPPINGS.fullmatch(head.split("[")[0].rsplit(".", 1)[-1].strip("'\" ]")))


def _parameters(target: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    try:
        return dict(inspect.signature(target).parameters)
    except (TypeError, ValueError):
        return None
