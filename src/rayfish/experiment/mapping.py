"""The user's function from agents to policies (`multi_agent.policy_mapping_fn`), in any form it ever had."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rayfish.experiment.imports import load_object


def load_mapping(path: str, paths: Sequence[str | Path]) -> Callable[..., str]:
    """The function behind an import path, to be called as `mapping(agent_id, episode, **more)`.

    It may take the agent alone, the agent and its episode, or, as in Ray 1.x and 2.x, the worker too; a class
    stands for its objects.
    """
    found = load_object(path, list(paths))
    function = found() if isinstance(found, type) else found
    parameters = inspect.signature(function).parameters.values()
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters)
    takes_all = any(p.kind is p.VAR_POSITIONAL for p in parameters)

    def mapping(agent_id: Any, episode: Any = None, **more: Any) -> str:
        given = (agent_id, episode, None)[: 2 if takes_all else max(1, len(places))]
        return function(*given, **(more if takes_more else {}))

    return mapping
