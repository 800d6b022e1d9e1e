"""Environments whose task can be changed while training goes on: what a curriculum needs of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium as gym

from rayfish.envs.env_kind import layers
from rayfish.errors import EnvironmentFault, RayfishError
from rayfish.experiment.imports import load_object

if TYPE_CHECKING:
    from rayfish.experiment.experiment import Experiment

TaskType: TypeAlias = Any
"""A task: a level, a set of parameters, whatever `set_task` takes."""


class TaskSettableEnv(gym.Env):
    """The base class of the same name that RLlib once had (`ray.rllib.env.apis.task_settable_env`).

    Not needed to be one: any environment with `get_task` and `set_task` can have a curriculum.
    """

    def sample_tasks(self, n_tasks: int) -> list[TaskType]:
        """Some tasks at random, for algorithms that learn over tasks."""
        raise NotImplementedError(f"{type(self).__name__} has no sample_tasks()")

    def set_task(self, task: TaskType) -> None:
        """Go on with this task."""
        raise NotImplementedError(f"{type(self).__name__} has no set_task()")

    def get_task(self) -> TaskType:
        """The task it has now."""
        raise NotImplementedError(f"{type(self).__name__} has no get_task()")


def task_settable(env: Any) -> Any | None:
    """The outermost layer of `env` that has `get_task` and `set_task` itself; None without one.

    Layers that hand everything through (guards, old-style adapters) are looked behind, so that a
    curriculum function sees the user's own object.
    """
    methods = ("get_task", "set_task")
    return next((one for one in layers(env) if all(callable(_own(one, name)) for name in methods)), None)


def _own(env: Any, method: str) -> Any:
    """A method of the class or an attribute of the object; `__getattr__` is not asked."""
    return getattr(env, "__dict__", {}).get(method) or getattr(type(env), method, None)


class TaskFault(EnvironmentFault):
    """`environment.env_task_fn` is no function, or the environment cannot follow it."""


def require_tasks(experiment: Experiment, env: Any) -> None:
    """A curriculum needs a function, and an environment whose task can be set from it."""
    path = experiment.environment.env_task_fn
    if path is None:
        return
    try:
        function = load_object(str(path), experiment.paths)
    except RayfishError as error:
        raise TaskFault(error.what, error.hint) from error
    if not callable(function):
        raise TaskFault(
            f"{path!r} is a {type(function).__name__}", "name a function of (train_results, env, env_ctx)"
        )
    if task_settable(env) is None:
        raise TaskFault(
            f"is set, but {type(layers(env)[-1]).__name__} has no get_task() and set_task(task)",
            "write both in the environment (rayfish.envs.tasks.TaskSettableEnv), or remove the key",
        )
    mode = str(experiment.get("rollouts.gym_env_vectorize_mode") or "sync").lower()
    if mode != "sync":
        raise TaskFault(
            f"cannot reach environments with rollouts.gym_env_vectorize_mode={mode}",
            "set rollouts.gym_env_vectorize_mode=sync",
        )
