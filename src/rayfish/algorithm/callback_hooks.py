"""Callbacks written for RLlib before its new API stack: which are adapted, and which have no meaning today.

Read from a class's text alone, for `config check` and `config migrate`; `old_callbacks` adapts them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from rayfish.errors import CodeError
from rayfish.experiment.source import require_class

CALLBACK = "ray.rllib.callbacks.callbacks.RLlibCallback"

EPISODE_HOOKS = ("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end")
HOOKS = (
    *EPISODE_HOOKS,
    "on_algorithm_init",
    "on_checkpoint_loaded",
    "on_env_runners_recreated",
    "on_environment_created",
    "on_evaluate_end",
    "on_evaluate_offline_end",
    "on_evaluate_offline_start",
    "on_evaluate_start",
    "on_offline_eval_runners_recreated",
    "on_sample_end",
    "on_train_result",
)
"""The methods of a callback that RLlib calls."""

OLD_ARGUMENTS = ("worker", "base_env", "policies", "trainer")
"""Arguments of hooks that RLlib no longer passes."""

_NEVER_CALLED = {
    "on_postprocess_trajectory": "a connector sees what is learnt from: learners.learner_connector",
    "on_learn_on_batch": "a connector sees what is learnt from: learners.learner_connector",
    "on_create_policy": "write on_algorithm_init(self, *, algorithm, **kwargs)",
    "on_sub_environment_created": "write on_environment_created(self, *, env_runner, env, env_context, "
    "**kwargs)",
    "on_workers_recreated": "write on_env_runners_recreated(self, *, algorithm, env_runner_group, "
    "env_runner_indices, is_evaluation, **kwargs)",
    "on_trainer_init": "write on_algorithm_init(self, *, algorithm, **kwargs)",
}
_SAMPLES = "samples are episodes: write on_sample_end(self, *, env_runner, metrics_logger, samples, **kwargs)"


class OldHook(CodeError):
    """A hook that has no meaning in today's RLlib."""


def require_adaptable(path: str, paths: Sequence[str | Path]) -> ast.ClassDef | None:
    """Refuses a path that names no callback, or one with a hook that has no meaning today (`OldHook`)."""
    written = require_class(path, paths, CALLBACK)
    for part in written.body if written is not None else ():
        if not isinstance(part, ast.FunctionDef):
            continue
        arguments = {argument.arg for argument in (*part.args.args, *part.args.kwonlyargs)}
        if part.name in _NEVER_CALLED:
            raise OldHook(
                f"{path!r} has {part.name} (line {part.lineno}), which today's RLlib never calls",
                _NEVER_CALLED[part.name],
            )
        if part.name == "on_sample_end" and {"worker", "samples"} <= arguments:
            raise OldHook(f"{path!r} has {part.name} (line {part.lineno}) of an older RLlib", _SAMPLES)
    return written
