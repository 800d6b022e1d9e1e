"""All that RLlib's own checkpoint leaves out, so that a resumed run continues bit for bit.

RLlib saves weights, optimizers, connector states and counters. A run also has random generators, environments
in mid-episode, those episodes (with recurrent states and the observations that wait for an action), adaptive
coefficients of the learner, the replay buffer, and a place in recorded data. There is one part per process:
the driver, each env runner, each evaluation runner, each learner.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import lz4.frame
import numpy as np
import torch
import tree
from ray.rllib.utils.lambda_defaultdict import LambdaDefaultDict
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
)
from ray.rllib.utils.schedules.scheduler import Scheduler

from rayfish.algorithm.normalise import NormalizeObservations
from rayfish.compat import rllib_internals as rllib
from rayfish.envs import restarts as env_restarts
from rayfish.envs import state as env_state
from rayfish.envs.state import FRESH
from rayfish.generators import generators, set_generators

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm

DRIVER = "driver"
_BUFFERS = ("local_replay_buffer", "replay_buffer")  # the latter is DreamerV3's
_LEARNING_STARTS = "num_steps_sampled_before_learning_starts"
_PIECE = 16 * 2**20


def take(algorithm: Algorithm, *, way: str, salt: int) -> dict[str, bytes]:
    """The state of every process of a run, by name; see `put`.

    :param way: how environments are saved (`envs.state`); with `fresh`, every runner begins new episodes,
        here as after a restore
    :param salt: makes the seed of these episodes differ from that of other snapshots; the iteration
    """
    parts = {DRIVER: _packed(_driver_state(algorithm))}
    for name, group in _groups(algorithm).items():
        parts |= _each_runner(group, name, partial(_runner_state, way=way, salt=salt))
    learners = algorithm.learner_group.foreach_learner(_learner_state)
    parts |= {f"learner-{found.actor_id or 0}": found.get() for found in learners if found.ok}
    return parts


def put(algorithm: Algorithm, parts: dict[str, bytes]) -> list[str]:
    """Puts what `take` returned into an algorithm that was restored from RLlib's own checkpoint.

    Returns the names of runners that it has no fitting state for (a run continued with more of them,
    or with more environments on each).
    """
    missing: list[str] = []
    for name, group in _groups(algorithm).items():
        given = {part: state for part, state in parts.items() if part.startswith(f"{name}-")}
        fitted = _each_runner(group, name, partial(_restore_runner, states=given, name=name))
        missing += sorted(runner for runner, fits in fitted.items() if not fits)
    for part, state in parts.items():
        kind, _, number = part.rpartition("-")
        if kind == "learner" and (number == "0" or algorithm.learner_group.is_remote):
            restore = partial(_restore_learner, saved=state)
            algorithm.learner_group.foreach_learner(restore, remote_actor_ids=[int(number)])
    _restore_driver(algorithm, _unpacked(parts[DRIVER]))  # last: nothing may draw after it
    return missing


def replay_buffer(algorithm: Algorithm) -> str | None:
    """The attribute that holds its replay buffer; None without one (RLlib's CQL has one it never uses)."""
    if getattr(algorithm, "offline_data", None) is not None:
        return None
    return next((name for name in _BUFFERS if getattr(algorithm, name, None) is not None), None)


def save_replay(algorithm: Algorithm, path: Path) -> None:
    """Writes the replay buffer, if there is one, compressed as it goes."""
    name = replay_buffer(algorithm)
    if name is not None:
        with lz4.frame.open(path, "wb") as file:
            cloudpickle.dump(getattr(algorithm, name), _InPieces(file), protocol=5)


class _InPieces:
    """A compressed file that is given large arrays in pieces: compressing takes as much memory again."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        """All of `data`."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _PIECE):
            self._file.write(view[start : start + _PIECE])
        return len(view)


def load_replay(algorithm: Algorithm, path: Path) -> None:
    """Puts a saved replay buffer in the place of the algorithm's empty one."""
    name = replay_buffer(algorithm)
    if name is not None:
        with lz4.frame.open(path, "rb") as file:
            loaded = pickle.load(file)
        if name == "local_replay_buffer":
            from rayfish.algorithm.batched.replay.exchange import fitting_replay

            loaded = fitting_replay(algorithm, loaded)  # the other path's buffer is of another kind
        setattr(algorithm, name, loaded)


def refill_replay(algorithm: Algorithm) -> int:
    """Before an empty replay buffer is learnt from, it gets as many new steps as in a new run; how many."""
    steps = int(getattr(algorithm.config, _LEARNING_STARTS, None) or 0)
    if steps:
        figure = NUM_ENV_STEPS_SAMPLED_LIFETIME
        if algorithm.config.count_steps_by == "agent_steps":
            figure = NUM_AGENT_STEPS_SAMPLED_LIFETIME
        sampled = algorithm.metrics.peek((ENV_RUNNER_RESULTS, figure), default=0)
        _learn_from(algorithm, steps + int(sum(sampled.values()) if isinstance(sampled, dict) else sampled))
    return steps


def _learn_from(algorithm: Any, step: int) -> None:
    """Both paths read it from the configuration; a checkpoint keeps it in `algorithm.learn_from`."""
    algorithm.learn_from = step
    algorithm.config = algorithm.config.copy(copy_frozen=False)
    setattr(algorithm.config, _LEARNING_STARTS, step)
    algorithm.config.freeze()


def _groups(algorithm: Algorithm) -> dict[str, Any]:
    groups = {"runner": algorithm.env_runner_group, "evaluator": algorithm.eval_env_runner_group}
    return {name: group for name, group in groups.items() if group is not None}


def _each_runner(group: Any, name: str, function: Callable[[Any], Any]) -> dict[str, Any]:
    """Calls `function` on the local and every live remote runner: `runner-2` -> what it returned."""
    found = {}
    if group.local_env_runner is not None:
        found[f"{name}-0"] = function(group.local_env_runner)
    for index in group.healthy_env_runner_ids():
        results = group.foreach_env_runner(function, local_env_runner=False, remote_worker_ids=[index])
        if results:
            found[f"{name}-{index}"] = results[0]
    return found


def _driver_state(algorithm: Algorithm) -> dict[str, Any]:
    offline: Any = getattr(algorithm, "offline_data", None)
    return {
        "generators": generators(),
        "callbacks": _callback_states(algorithm.callbacks),
        "connectors": _pipeline_state(getattr(algorithm, "env_to_module_connector", None)),
        "offline": offline.position() if hasattr(offline, "position") else None,
        "learn_from": getattr(algorithm, "learn_from", None),
    }


def _restore_driver(algorithm: Algorithm, state: dict[str, Any]) -> None:
    if state.get("learn_from") is not None and not hasattr(algorithm, "learn_from"):
        _learn_from(algorithm, state["learn_from"])  # the run was stopped while its buffer was refilled
    if state["offline"] is not None:
        algorithm.offline_data.go_to(state["offline"])
    pipeline = getattr(algorithm, "env_to_module_connector", None)
    if pipeline is not None:
        _restore_pipeline(pipeline, state["connectors"])
    _restore_callbacks(algorithm.callbacks, state["callbacks"])
    set_generators(state["generators"])


def _runner_state(runner: Any, way: str, salt: int) -> bytes:
    """What an env runner needs to take its next step as if nothing had happened.

    The batched path's runner has arrays in place of episodes, and keeps them in `running`.
    """
    batched = hasattr(runner, "running_state")
    state = {
        "generators": generators(),
        "way": way,
        "num_envs": runner.num_envs,
        "weights_seq_no": rllib.weights_version(runner),
        "connectors": [_pipeline_state(pipeline) for pipeline in rllib.connectors_of(runner)],
        "callbacks": _callback_states(rllib.callbacks_of(runner)),
    }

    def packed(envs: Any) -> bytes:
        sampler = rllib.sampler_state(runner, episodes=not batched)
        sampler = {name: _on("cpu", value) for name, value in sampler.items()}
        return _packed({**state, "running" if batched else "envs": envs, "sampler": sampler})

    if runner.env is None:
        return packed(None)
    with suppress(Exception):  # it could be saved when it was tried; now it, or an info, holds what cannot
        if not batched:
            envs = _vector_state(runner.env, way)
        else:
            envs = None if rllib.needs_reset(runner) else runner.running_state(way)
        if envs is not None:
            return packed(_packed(envs) if batched else envs)
    _reset_episodes(runner, salt)
    return packed(None)


def _restore_runner(runner: Any, states: dict[str, bytes], name: str) -> bool:
    """Whether there was a state that fits this runner; it is left alone otherwise."""
    saved = states.get(f"{name}-{runner.worker_index or 0}")
    if saved is None:
        return False
    state = _unpacked(saved)
    pipelines = rllib.connectors_of(runner)
    pieces = [len(pipeline.connectors) for pipeline in pipelines]
    if state["num_envs"] != runner.num_envs or [len(part) for part in state["connectors"]] != pieces:
        return runner.env is None  # the driver's, next to remote ones: it has no episodes to lose
    if ("running" in state) != hasattr(runner, "running_state"):
        return runner.env is None  # made by the other path: it begins new episodes
    if runner.env is not None:
        if state.get("running") is not None:
            runner.set_running_state(state["way"], _unpacked(state["running"]))
        elif state.get("envs") is not None:
            inner, saved_envs = runner.env.unwrapped, state["envs"]
            inner.envs = env_state.load(inner.envs, state["way"], saved_envs["envs"])
            env_restarts.set_counters(inner.envs, saved_envs.get("restarts"))
            rllib.put_back(inner, saved_envs["vector"])
    sampler, device = state["sampler"], rllib.device_of(runner)
    if torch.device(device).type != "cpu":
        sampler = {name: _on(device, value) for name, value in sampler.items()}
    rllib.put_back(runner, sampler)
    rllib.set_weights_version(runner, state["weights_seq_no"])
    for pipeline, pieces_state in zip(pipelines, state["connectors"], strict=True):
        _restore_pipeline(pipeline, pieces_state)
    _restore_callbacks(rllib.callbacks_of(runner), state["callbacks"])
    set_generators(state["generators"])
    return True


def _reset_episodes(runner: Any, salt: int) -> None:
    """New episodes at the next step, from a seed that a restored runner will have too."""
    rllib.reset_at_next_sample(runner)
    if rllib.seed_of(runner) is not None:
        entropy = [runner.config.seed, runner.worker_index or 0, int(runner.config.in_evaluation), salt]
        rllib.set_seed(runner, int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1))


def _vector_state(vector: Any, way: str) -> dict[str, Any] | None:
    """The environments of a runner; None where they cannot be saved."""
    if way == FRESH:
        return None
    inner = vector.unwrapped
    if not hasattr(inner, "envs"):  # other processes, or one environment that is a vector by itself
        return None
    return {
        "envs": env_state.dump(inner.envs, way),
        "vector": rllib.vector_state(inner),
        "restarts": env_restarts.counters(inner.envs),
    }


def _learner_state(learner: Any) -> bytes:
    """What adapts while learning and RLlib does not save: coefficients, scalers, times of target updates.

    They are the learner's dictionaries by policy; weights and optimizers are in RLlib's checkpoint.
    """
    variables = {
        name: {key: _variable(value) for key, value in values.items()}
        for name, values in vars(learner).items()
        if isinstance(values, dict) and all(isinstance(key, str) for key in values)
    }
    return _packed({"generators": generators(), "variables": variables})


def _restore_learner(learner: Any, saved: bytes) -> None:
    state = _unpacked(saved)
    for name, values in state["variables"].items():
        current = getattr(learner, name, None)
        if isinstance(current, dict):
            for key in (key for key, value in values.items() if value is not None):
                _set_variable(current, key, values[key])
    set_generators(state["generators"])


def _current(variable: Any) -> Any:
    return variable.get_current_value() if isinstance(variable, Scheduler) else variable


def _variable(value: Any) -> Any:
    """A variable as plain data; None for what is no variable."""
    value = _current(value)
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy().copy()
    if hasattr(value, "load_state_dict") and not isinstance(value, torch.optim.Optimizer):
        return value.state_dict()
    return value if isinstance(value, int | float) else None


def _set_variable(variables: dict[str, Any], key: str, value: Any) -> None:
    current = _current(variables[key] if isinstance(variables, LambdaDefaultDict) else variables.get(key))
    if isinstance(current, torch.Tensor):
        current.data.copy_(torch.as_tensor(value))  # in place: an optimizer may hold it
    elif current is not None and hasattr(current, "load_state_dict"):
        current.load_state_dict(value)
    elif isinstance(value, int | float) and not isinstance(variables, LambdaDefaultDict):
        variables[key] = value


def _pipeline_state(pipeline: Any) -> list[dict[str, Any]]:
    return [
        piece.whole_state() if isinstance(piece, NormalizeObservations) else piece.get_state()
        for piece in (pipeline.connectors if pipeline is not None else ())
    ]


def _restore_pipeline(pipeline: Any, states: list[dict[str, Any]]) -> None:
    for piece, state in zip(pipeline.connectors, states, strict=True):
        if isinstance(piece, NormalizeObservations):
            piece.set_whole_state(state)
        else:
            piece.set_state(state)


def _callback_states(callbacks: Any) -> list[dict[str, bytes]]:
    """What callbacks of the user's own remember, as far as it can be saved (an open file cannot)."""
    found: list[dict[str, bytes]] = []
    for callback in _as_list(callbacks):
        found.append({})
        for name, value in vars(callback).items():
            with suppress(Exception):
                found[-1][name] = cloudpickle.dumps(value)
    return found


def _restore_callbacks(callbacks: Any, states: list[dict[str, bytes]]) -> None:
    for callback, state in zip(_as_list(callbacks), states, strict=False):
        vars(callback).update({name: pickle.loads(value) for name, value in state.items()})


def _as_list(callbacks: Any) -> list[Any]:
    return list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks] if callbacks else []


def _on(device: Any, value: Any) -> Any:
    """A batch that waits for its action, with its tensors on a device: a resume may have no such GPU."""
    if not isinstance(value, dict) or not value:
        return value
    try:
        return tree.map_structure(
            lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, value
        )
    except (TypeError, ValueError):
        return value


def _packed(state: dict[str, Any]) -> bytes:
    return lz4.frame.compress(cloudpickle.dumps(state, protocol=5))


def _unpacked(saved: bytes) -> dict[str, Any]:
    return pickle.loads(lz4.frame.decompress(saved))
