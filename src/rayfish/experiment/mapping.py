"""Which policies there are and which agent uses which (`multi_agent`): the one place that decides it."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfish.experiment.imports import load_object

if TYPE_CHECKING:
    from rayfish.experiment.experiment import Experiment

SHARED_POLICY = "shared"
"""The one policy of several agents. RLlib takes a run whose only policy is its default for one agent's."""

_RLLIBS_DEFAULT = "default_policy"


def policies_of(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Policy names with their own settings (`model`), from `multi_agent`; one shared by default."""
    named = experiment.multi_agent.policies or []
    if not isinstance(named, dict):
        names = list(named) or sorted(set((experiment.multi_agent.mapping or {}).values()))
        named = {name: {} for name in names or [SHARED_POLICY]}
    if list(named) == [_RLLIBS_DEFAULT]:
        named = {SHARED_POLICY: named[_RLLIBS_DEFAULT]}
    return {name: settings or {} for name, settings in named.items()}


class PolicyMapping:
    """From an agent to its policy: the only one there is, the user's function, or patterns.

    Of the patterns an agent's own id counts first, then the first glob that fits it. Where none fits, the
    agent uses the policy of its own name, else the first policy.

    :param policies: the names of all policies
    :param globs: glob of agent ids -> policy (`multi_agent.mapping`)
    :param function: import path of the user's function (`multi_agent.policy_mapping_fn`), loaded when needed
    :param paths: where the function's module is looked for
    """

    def __init__(
        self,
        policies: Sequence[str],
        globs: Mapping[str, str] | None = None,
        function: str | None = None,
        paths: Sequence[str | Path] = (),
    ) -> None:
        self._policies = list(policies)
        self._globs = dict(globs or {})
        self._named, self._paths = function, tuple(paths)
        self._function: Callable[..., str] | None = None

    @classmethod
    def of(cls, experiment: Experiment) -> PolicyMapping:
        """The mapping of an experiment."""
        globs, function = (experiment.get(f"multi_agent.{key}") for key in ("mapping", "policy_mapping_fn"))
        return cls(list(policies_of(experiment)), globs, function, experiment.paths)

    def __call__(self, agent_id: Any, episode: Any = None, **more: Any) -> str:
        """The policy of an agent; RLlib asks at an agent's first step."""
        if len(self._policies) == 1:
            return self._policies[0]
        if self._named:
            if self._function is None:
                self._function = load_mapping(self._named, self._paths)
            return self._function(agent_id, episode, **more)
        if str(agent_id) in self._globs:  # an id may hold signs that a pattern reads otherwise
            return self._globs[str(agent_id)]
        for glob, policy in self._globs.items():
            if fnmatch.fnmatchcase(str(agent_id), glob):
                return policy
        return str(agent_id) if str(agent_id) in self._policies else self._policies[0]

    def __getstate__(self) -> dict[str, Any]:
        """Without the user's function, which every process imports for itself."""
        return {**self.__dict__, "_function": None}


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
