"""The weights of a built algorithm: saved, loaded, and checked for NaN; and its normaliser."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rayfish.algorithm.normalise import NormalizeObservations, normaliser_of
from rayfish.compat import rllib_internals as rllib
from rayfish.errors import CheckpointError
from rayfish.experiment.mapping import PolicyMapping

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm

    from rayfish.envs.build import EnvInfo
    from rayfish.experiment import Experiment

_MAY_BE_INFINITE = ("mean_kl_loss",)  # two policies that exclude each other's actions


def policy_parts(algorithm: Algorithm, experiment: Experiment, info: EnvInfo) -> dict[str, Any]:
    """What `run.policy.save_policy` writes, taken from the newest weights."""
    function, normaliser = experiment.get("multi_agent.policy_mapping_fn"), normaliser_of(algorithm)
    mapping = {}
    if info.kind == "multi" and not function:
        policy_of = PolicyMapping.of(experiment)
        mapping = {str(agent): policy_of(agent) for agent in info.agents}
        mapping |= experiment.multi_agent.mapping or {}
    return {
        "modules": modules(algorithm),
        "algo": experiment.algo.name,
        "normaliser": normaliser.statistics() if normaliser is not None else {},
        "normalize_actions": bool(algorithm.config.normalize_actions),
        "clip_actions": bool(algorithm.config.clip_actions),
        "mapping": mapping,
        "mapping_function": function,
        "paths": experiment.paths,
    }


def modules(algorithm: Algorithm) -> dict[str, Any]:
    """Policy name -> RLModule with the learner's weights, wherever the learner lives."""
    learner = local_learner(algorithm)
    if learner is not None:
        return {str(name): learner.module[name] for name in learner.module.keys()}  # noqa: SIM118
    if algorithm.env_runner_group is None:  # recorded data and remote learners: no copy in the driver
        config = algorithm.config
        spaces = {"default_policy": (config.observation_space, config.action_space)}
        module = config.get_multi_rl_module_spec(spaces=spaces).build()
        module.set_state(algorithm.learner_group.get_weights())
    else:
        sync_runners(algorithm)
        module = algorithm.env_runner.module
    return dict(module.items()) if hasattr(module, "items") else {"default_policy": module}


def local_learner(algorithm: Algorithm) -> Any:
    """The learner in this process; None where learners are remote or there is none."""
    group = getattr(algorithm, "learner_group", None)
    if group is None or group.is_remote:
        return None
    return next(group.foreach_learner(lambda learner: learner).ignore_errors()).get()


def sync_runners(algorithm: Algorithm) -> None:
    """The learner's weights to every env runner, where there are any."""
    if algorithm.env_runner_group is not None:
        algorithm.env_runner_group.sync_weights(
            from_worker_or_learner_group=algorithm.learner_group, inference_only=True
        )


def restore(algorithm: Algorithm, tree: Path) -> None:
    """Everything a checkpoint's RLlib tree holds, into a freshly built algorithm."""
    from ray.rllib.utils.checkpoints import Checkpointable

    path = str(tree.resolve())
    if algorithm.env_runner_group is None:
        # RLlib's own method syncs env runners afterwards, which learners from recorded data lack.
        Checkpointable.restore_from_path(algorithm, path)
    else:
        algorithm.restore_from_path(path)
    algorithm.learner_group.foreach_learner(rllib.apply_fixed_rates)
    for group in (algorithm.env_runner_group, algorithm.eval_env_runner_group):
        if group is not None:
            # RLlib leaves remote runners with the weights they were built with: any others are newer.
            group.foreach_env_runner(partial(rllib.set_weights_version, version=-1))
            group.sync_weights(
                from_worker_or_learner_group=algorithm.learner_group,
                inference_only=True,
                timeout_seconds=None,
            )


def load_normaliser(algorithm: Algorithm, tree: Path) -> None:
    """The normaliser of another checkpoint, if both it and this algorithm have one."""
    piece = normaliser_of(algorithm)
    folder = tree / "env_runner" / "env_to_module_connector" / NormalizeObservations.__name__
    if piece is None or not folder.is_dir():
        return
    piece.restore_from_path(str(folder.resolve()))
    state = {"env_to_module_connector": {NormalizeObservations.__name__: piece.get_state()}}
    # Waits for all of them: RLlib's own broadcast drops a state while another is on its way.
    algorithm.env_runner_group.foreach_env_runner(
        "set_state", kwargs={"state": state}, local_env_runner=False
    )


def load_weights(algorithm: Algorithm, tree: Path) -> None:
    """Puts the weights of another checkpoint's RLlib tree into the learner, if they fit."""
    from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule

    saved = MultiRLModule.from_checkpoint(str((tree / "learner_group/learner/rl_module").resolve()))
    weights = saved.get_state()
    current = algorithm.learner_group.get_weights()
    problems = [text for name in current for text in _differences(name, weights.get(name, {}), current[name])]
    if problems:
        raise CheckpointError(
            f"the weights in {tree.parent} do not fit this model: {'; '.join(problems[:3])}",
            "give training.model and the environment of that checkpoint, or leave out algo.checkpoint_path",
        )
    algorithm.learner_group.set_weights({name: weights[name] for name in current})


def _differences(policy: str, saved: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    if not saved:
        return [f"it has no policy {policy!r}"]
    missing = [key for key in current if key not in saved]
    if missing:
        return [f"it has no layer {missing[0]}"]
    return [
        f"{key} is {tuple(saved[key].shape)} there, {tuple(value.shape)} here"
        for key, value in current.items()
        if tuple(saved[key].shape) != tuple(value.shape)
    ]


def broken_losses(result: Mapping[str, Any]) -> list[str]:
    """The losses of a training result that are NaN or infinite: `policy/loss is nan`."""
    found = []
    for policy, values in (result.get("learners") or {}).items():
        steps = values.get("num_module_steps_trained") if isinstance(values, Mapping) else 0
        if not steps or _is_broken(steps):  # without an update RLlib reports losses of NaN
            continue
        for key, value in values.items():
            if "loss" in key and key not in _MAY_BE_INFINITE and _is_broken(value):
                found.append(f"{policy}/{key} is {float(value)}")
    return found


def broken_weights(algorithm: Algorithm) -> list[str]:
    """The layers with weights that are NaN or infinite: `policy/layer`."""
    results = algorithm.learner_group.foreach_learner(_broken_parameters)
    return next((result.get() for result in results.ignore_errors()), [])


def _broken_parameters(learner: Any) -> list[str]:
    return [
        f"{policy}/{layer}"
        for policy, module in learner.module.items()
        if isinstance(module, torch.nn.Module)
        for layer, weights in module.named_parameters()
        if not bool(torch.isfinite(weights).all())
    ]


def _is_broken(value: Any) -> bool:
    try:
        return not math.isfinite(float(value))
    except (TypeError, ValueError):
        return False
