"""A curriculum (`environment.env_task_fn`): after each iteration every environment may get another task.

The function is called where the environments are, once for each of them on every training runner:
`fn(train_results, env, env_ctx) -> task`. The task is set when it is not the one the environment has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.env.env_context import EnvContext

from rayfish.algorithm.callbacks import REPORT
from rayfish.algorithm.workers import call
from rayfish.compat.rllib_internals import callbacks_of
from rayfish.envs.tasks import task_settable
from rayfish.errors import CodeError
from rayfish.experiment.imports import load_object
from rayfish.experiment.result_names import old_results

WINDOW = 100
"""Finished episodes that `episode_reward_mean` and its companions are taken over."""


class TaskSetter(RLlibCallback):
    """Calls the curriculum function after each iteration, and keeps the tasks that it returned.

    There is one in the driver, which has the results, and one on each runner, which has the
    tasks of that runner's environments: those that are remade get them again.

    :param function: the one at `path`, where workers cannot import it (it is the main script's)
    """

    def __init__(
        self, path: str, paths: Sequence[str] = (), function: Callable[..., Any] | None = None
    ) -> None:
        super().__init__()
        self.path = path
        self.paths = tuple(paths)
        self.function = function
        self.steps = 0
        self.episodes = 0
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.lengths: deque[float] = deque(maxlen=WINDOW)
        self.results: dict[str, Any] | None = None
        self.tasks: dict[int, Any] = {}

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """In the driver: calls the function with the results so far on every training runner."""
        if algorithm.env_runner_group is None:
            return
        self._count(result.get("env_runners") or {})
        self.results = {**_numbers(result), **self._old_names(result)}
        choose = partial(call, function=partial(_choose, results=self.results))
        results = algorithm.env_runner_group.foreach_env_runner(choose)
        failed = next((error for error, _ in results if error), "")
        if failed:
            raise CodeError(f"environment.env_task_fn failed: {failed}", f"fix {self.path}")

    def on_env_runners_recreated(
        self,
        *,
        env_runner_group: Any,
        env_runner_indices: Sequence[int],
        is_evaluation: bool = False,
        **kwargs: Any,
    ) -> None:
        """In the driver: a restarted runner gets the current task."""
        if self.results is not None and not is_evaluation:
            env_runner_group.foreach_env_runner(
                partial(call, function=partial(_choose, results=self.results)),
                remote_worker_ids=list(env_runner_indices),
                local_env_runner=False,
            )

    def on_environment_created(self, *, env_runner: Any, **kwargs: Any) -> None:
        """On a runner: environments that are remade keep the tasks of those before."""
        for index, env in _environments(env_runner):
            if index in self.tasks:
                _set(env, self.tasks[index])

    def _count(self, runners: Mapping[str, Any]) -> None:
        sampled = runners.get("num_env_steps_sampled") or 0
        self.steps += 0 if np.isnan(sampled) else int(sampled)  # NaN: every runner was away
        report = runners.get(REPORT) or {}
        finished = report.get("returns") or []
        self.episodes += len(finished)
        self.returns.extend(map(float, finished))
        self.lengths.extend(map(float, report.get("lengths") or []))

    def _old_names(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """The results as curriculum functions of the time read them; means are NaN before an episode ends."""
        returns = list(self.returns) or [float("nan")]
        found = old_results(
            {
                "run/iteration": int(result.get("training_iteration") or 0),
                "run/env_steps": self.steps,
                "run/episodes": self.episodes,
                "time/total_s": float(result.get("time_total_s") or 0.0),
                "rollout/return_mean": float(np.mean(returns)),
                "rollout/return_min": min(returns),
                "rollout/return_max": max(returns),
                "rollout/length_mean": float(np.mean(list(self.lengths) or [float("nan")])),
            }
        )
        return {**found, "env_runners": {**_numbers(result.get("env_runners") or {}), **found["env_runners"]}}


def reapply(algorithm: Any) -> None:
    """After a restore: environments without their task get it again, before any step."""
    if algorithm.env_runner_group is not None and _setter(algorithm.callbacks) is not None:
        algorithm.env_runner_group.foreach_env_runner(_restore)


def _choose(runner: Any, results: dict[str, Any]) -> None:
    """On a runner: ask the function for the task of each environment."""
    setter = _setter(callbacks_of(runner))
    if setter is None:
        return
    function = setter.function or load_object(setter.path, setter.paths)
    for index, env in _environments(runner):
        context = EnvContext(
            runner.config.env_config,
            worker_index=runner.worker_index or 0,
            vector_index=index,
            num_workers=runner.config.num_env_runners,
        )
        task = function(results, env, context)
        _set(env, task)
        setter.tasks[index] = task


def _restore(runner: Any) -> None:
    setter = _setter(callbacks_of(runner))
    if setter is not None:
        setter.on_environment_created(env_runner=runner)


def _set(env: Any, task: Any) -> None:
    if not _same(env.get_task(), task):
        env.set_task(task)


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(np.array_equal(one, other))
    except (TypeError, ValueError):
        return bool(one == other)


def _environments(runner: Any) -> Iterator[tuple[int, Any]]:
    """The environments of a runner whose task can be set, as the user wrote them."""
    vector = getattr(runner, "env", None)
    for index, env in enumerate(getattr(vector.unwrapped, "envs", ()) if vector is not None else ()):
        found = task_settable(env)
        if found is not None:
            yield index, found


def _setter(callbacks: Any) -> TaskSetter | None:
    listed = callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    return next((callback for callback in listed if isinstance(callback, TaskSetter)), None)


def _numbers(result: Mapping[str, Any]) -> dict[str, Any]:
    """What of a result is worth sending to every runner: numbers, by name."""
    found: dict[str, Any] = {}
    for key, value in result.items():
        if isinstance(value, Mapping) and key != "config":
            inner = _numbers(value)
            if inner:
                found[key] = inner
        elif isinstance(value, bool | int | float | np.integer | np.floating):
            found[key] = value
    return found
