"""An env runner as old RLlib's `foreach_worker` passed it: `worker.get_policy().get_weights()`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rayfish.errors import CodeError, RayfishError
from rayfish.experiment.imports import user_frame
from rayfish.models.summary import Model


def call(runner: Any, function: Callable[[Any], Any]) -> tuple[str, Any]:
    """On a runner: ("", what the function returns), or (what it raised, None).

    RLlib takes an exception for a fault of the runner: it would restart it and silently drop the result.
    """
    try:
        return "", function(runner)
    except RayfishError as error:
        return str(error), None
    except Exception as error:
        frame = user_frame(error)
        where = f" at {frame.filename}:{frame.lineno}" if frame else ""
        return f"{type(error).__name__}{where}: {error}", None


def answers(given: list[tuple[str, Any]]) -> list[Any]:
    """What `call` returned on every runner; CodeError where the function failed on one of them."""
    failed = next((text for text, _ in given if text), "")
    if failed:
        raise CodeError(f"the function failed on an env runner: {failed}", "fix that line")
    return [value for _, value in given]


def as_worker(runner: Any, function: Callable[[Any], Any]) -> Any:
    """Calls a function of old code with the runner under its old names."""
    return function(RolloutWorker(runner))


class RolloutWorker:
    """An env runner under the names of old RLlib's workers; every other attribute is the runner's own."""

    def __init__(self, runner: Any) -> None:
        self.runner = runner

    @property
    def policy_map(self) -> dict[str, WorkerPolicy]:
        """The runner's policies by name."""
        module = self.runner.module
        members = module.items() if hasattr(module, "items") else [("default_policy", module)]
        return {str(name): WorkerPolicy(str(name), member) for name, member in members}

    def get_policy(self, policy_id: str | None = None) -> WorkerPolicy:
        """One policy; without a name the only one, or the first."""
        known = self.policy_map
        name = policy_id or next(iter(known))
        if name not in known:
            raise RayfishError(f"there is no policy {name!r}; there are {', '.join(known)}", "name one")
        return known[name]

    def foreach_policy(self, function: Callable[[Any, str], Any]) -> list[Any]:
        """`function(policy, name)` of every policy."""
        return [function(policy, name) for name, policy in self.policy_map.items()]

    def get_weights(self) -> dict[str, dict[str, Any]]:
        """Policy -> name -> array."""
        return {name: policy.get_weights() for name, policy in self.policy_map.items()}

    def set_weights(self, weights: Mapping[str, Mapping[str, Any]]) -> None:
        """Until the next iteration: the learner's weights replace them then."""
        for name, values in weights.items():
            self.get_policy(name).set_weights(values)

    def foreach_env(self, function: Callable[[Any], Any]) -> list[Any]:
        """`function(env)` of every environment here, as the user's class made it."""
        return [function(env) for env in self._environments()]

    @property
    def env(self) -> Any:
        """The first environment here; None where there is none."""
        return next(iter(self._environments()), None)

    def __getattr__(self, name: str) -> Any:
        if name == "runner":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.runner, name)

    def _environments(self) -> list[Any]:
        vector = getattr(self.runner, "env", None)
        if vector is None:
            return []
        envs = getattr(vector.unwrapped, "envs", None)
        if envs is None:
            raise RayfishError(
                f"{type(vector.unwrapped).__name__} has no single environments in this process to call",
                "add rollouts.runner=rllib rollouts.gym_env_vectorize_mode=sync",
            )
        return [_innermost(env) for env in envs]


class WorkerPolicy:
    """A runner's copy of one policy; every other attribute is the module's own."""

    def __init__(self, name: str, module: Any) -> None:
        self.name = name
        self._module = module

    @property
    def model(self) -> Model:
        """The network, with `model.base_model.summary()`."""
        title = f"{self.name}: {self._module.observation_space} -> {self._module.action_space}"
        return Model(self._module, title)

    def get_weights(self) -> dict[str, Any]:
        """Weights by name, as arrays."""
        return {name: value.copy() for name, value in self._module.get_state(inference_only=True).items()}

    def set_weights(self, weights: Mapping[str, Any]) -> None:
        """Takes over weights, until the next iteration brings the learner's."""
        self._module.set_state(dict(weights))

    def __getattr__(self, name: str) -> Any:
        if name == "_module":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._module, name)


def _innermost(env: Any) -> Any:
    """The user's own object, behind guards and wrappers."""
    while (inner := getattr(env, "__dict__", {}).get("env")) is not None:
        env = inner
    return env
