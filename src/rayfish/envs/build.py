"""The entry of this stage: a spec and an `env_config` become a ready environment.

`make` gives a `gymnasium.Env`, a PettingZoo parallel environment or an RLlib `MultiAgentEnv`;
`describe` makes one, notes its spaces and closes it; `problems` says what is wrong with the
environment of an experiment before any compute.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from rayfish.envs import arguments, catalog, contract, guard, old_environments
from rayfish.envs.agents import HOOK, AgentSlots
from rayfish.envs.atari import AtariFault, preprocessed
from rayfish.envs.env_kind import (
    EnvInfo,
    agents_and_spaces,
    is_multi_agent,
    is_parallel,
    is_turn_based,
    max_steps,
)
from rayfish.envs.resolve import notice as on_name
from rayfish.envs.resolve import resolve
from rayfish.envs.rewards import ClipFault
from rayfish.envs.spec import EVALUATION, EnvSpec, ImportsFault, env_config_of, from_experiment
from rayfish.envs.state import find_way, why_not_pickled
from rayfish.envs.tasks import TaskFault, require_tasks
from rayfish.envs.wrappers import LastFault, limit_steps, observing_last
from rayfish.errors import EnvironmentFault, Problem, RayfishError
from rayfish.experiment.imports import user_frame
from rayfish.supervise.error_messages import first_line

if TYPE_CHECKING:
    from rayfish.experiment.experiment import Experiment

__all__ = [
    "EnvInfo",
    "EnvSpec",
    "describe",
    "env_config_of",
    "from_experiment",
    "make",
    "make_agents_vector",
    "make_vector",
    "problems",
]


_OLDER = ".*is out of date"
"""Gymnasium's warning about an older version, which is asked for by name."""


def make(spec: EnvSpec, config: Mapping[str, Any] | None = None, *, render_mode: str | None = None) -> Any:
    """A ready environment, cut off at the spec's horizon.

    :param config: the `env_config`: keyword arguments of the constructor, or its one dictionary
        (see `rayfish.envs.arguments`)
    """
    config = {} if config is None else config
    source = resolve(spec)
    try:
        if source.gym_id is not None:
            env = _make_gym(source.gym_id, {**source.env_config, **config}, render_mode)
        else:
            env = arguments.call(source.target, config, render_mode=render_mode)
    except RayfishError:
        raise
    except Exception as error:
        given = f" with env_config {dict(config)!r}" if config else ""
        raise _failed(f"making {spec.name!r}{given}", error, spec.paths) from error
    env = _accepted(old_environments.modernised(env, known=spec.old_api), spec.name)
    env = limit_steps(preprocessed(env, spec.atari, spec.name), spec.horizon)
    return observing_last(env, action=spec.last_action, reward=spec.last_reward)


def _with_vector(info: EnvInfo, spec: EnvSpec, config: Mapping[str, Any]) -> EnvInfo:
    """What is known of the environment's own vector, tried with two copies."""
    if info.kind == "multi":
        return _with_agents_vector(info, spec, config)
    source = resolve(spec)
    registered = gym.registry.get(source.gym_id) if source.gym_id else None
    if registered is None or registered.vector_entry_point is None:
        return info
    if spec.atari or spec.last_action or spec.last_reward or info.old_api:
        return replace(info, not_native="its observations are changed on the way")
    try:
        vector = make_vector(spec, config, 2)
        try:
            spaces = (vector.single_observation_space, vector.single_action_space)
            if spaces != (info.observation_space, info.action_space):
                return replace(info, not_native="its spaces differ from those of a single one")
            same_step = (vector.metadata or {}).get("autoreset_mode") == gym.vector.AutoresetMode.SAME_STEP
            saved = why_not_pickled(vector)
            return replace(info, native=True, native_saved=saved, native_same_step=same_step)
        finally:
            guard.close(vector)
    except Exception as error:
        return replace(info, not_native=first_line(error))


def _with_agents_vector(info: EnvInfo, spec: EnvSpec, config: Mapping[str, Any]) -> EnvInfo:
    """The same of several agents; what a class offers on purpose has to be right."""
    vector = make_agents_vector(spec, config, 2)
    if vector is None:
        return info
    try:
        agents = AgentSlots(vector, "").agents
        same = (agents, vector.single_observation_space, vector.single_action_space)
        expected = (info.agents, info.observation_space, info.action_space)
        if same != expected or vector.num_envs != 2 * len(agents):
            raise EnvironmentFault(
                f"{HOOK} of {spec.name} has other agents or spaces than a single environment: "
                f"{vector.num_envs} slots for 2 environments of {list(agents)}",
                "give both the same possible_agents and spaces, and every agent of every environment a slot",
            )
        return replace(info, native=True, native_saved=why_not_pickled(vector))
    finally:
        guard.close(vector)


def make_agents_vector(
    spec: EnvSpec, config: Mapping[str, Any] | None, num_envs: int
) -> gym.vector.VectorEnv | None:
    """Many environments of several agents as one, a slot for each agent; None where the class offers none."""
    target = resolve(spec).target
    offered = getattr(target, HOOK, None)
    if not callable(offered) or callable(getattr(target, "set_task", None)):
        return None
    limit = {} if spec.horizon is None else {"max_episode_steps": spec.horizon}
    if not all(arguments.takes(offered, name) for name in limit):
        return None
    try:
        return offered(num_envs, **limit, **(config or {}))
    except RayfishError:
        raise
    except Exception as error:
        raise _failed(f"{HOOK} of {spec.name!r}", error) from error


def make_vector(spec: EnvSpec, config: Mapping[str, Any] | None, num_envs: int) -> gym.vector.VectorEnv:
    """Many copies as one `VectorEnv`: the environment's own one where it has it, else a synchronous one."""
    source = resolve(spec)
    registered = gym.registry.get(source.gym_id) if source.gym_id else None
    if registered is not None and registered.vector_entry_point is not None:
        limits = [steps for steps in (spec.horizon, registered.max_episode_steps) if steps is not None]
        keywords = {**({"max_episode_steps": min(limits)} if limits else {}), **(config or {})}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_OLDER)
            return gym.make_vec(source.gym_id, num_envs, "vector_entry_point", **keywords)
    return gym.vector.SyncVectorEnv([lambda: make(spec, config) for _ in range(num_envs)])


def describe(spec: EnvSpec, config: Mapping[str, Any] | None = None) -> EnvInfo:
    """The kind, agents, spaces and limits of an environment (made and closed for it)."""
    env = make(spec, config)
    try:
        return info_of(env, spec.name)
    finally:
        guard.close(env)


def info_of(env: Any, name: str) -> EnvInfo:
    """What `describe` says, of an environment that is already made."""
    agents, observations, actions = agents_and_spaces(env)
    metadata = dict(getattr(env, "metadata", None) or {})
    adapter = old_environments.adapter(env)
    innermost = adapter.env if adapter is not None else getattr(env, "unwrapped", env)
    notices = [
        on_name(name),
        *old_environments.notices(type(innermost)),
        old_environments.notice(env),
    ]
    return EnvInfo(
        name=name,
        kind="multi" if is_multi_agent(env) else "single",
        agents=agents,
        observation_spaces=observations,
        action_spaces=actions,
        max_episode_steps=max_steps(env),
        render_modes=tuple(str(mode) for mode in metadata.get("render_modes") or ()),
        class_name=type(innermost).__name__,
        metadata=metadata,
        old_api=adapter is not None,
        notices=tuple(filter(None, notices)),
    )


def problems(experiment: Experiment) -> tuple[list[Problem], EnvInfo | None]:
    """What is wrong with an experiment's environments, and a description when it can be made.

    The evaluation environment is tried too where the experiment gives it an `env_config` of its own.
    """
    found: list[Problem] = []
    info = _described(experiment, found, evaluation=False)
    override = experiment.get(EVALUATION) or {}
    if info is None or not isinstance(override, dict):  # which the check of the keys reports
        return found, info
    if not override.get("env_config") and not override.get("env"):
        return found, info
    other = _described(experiment, found, evaluation=True)
    if other is not None:
        for what in ("observation_spaces", "action_spaces"):
            trained, evaluated = getattr(info, what), getattr(other, what)
            if dict(trained) != dict(evaluated):
                key, kind = f"{EVALUATION}.env_config", what.replace("_", " ")
                text = f"evaluation has other {kind} than training: {evaluated} and {trained}"
                hint, where = "remove the key that changes the spaces", experiment.origins.get(key, "")
                found.append(Problem(key, text, hint, where))
    return found, info


def _described(experiment: Experiment, found: list[Problem], *, evaluation: bool) -> EnvInfo | None:
    prefix = EVALUATION if evaluation else "environment"
    try:
        spec = from_experiment(experiment, evaluation=evaluation)
        env = make(spec, env_config_of(experiment, evaluation=evaluation))
        try:
            agents_and_spaces(env)  # raises where they are not declared
            _probe(env, spec.name)
            info = info_of(env, spec.name)  # after the probe: an adapter now knows what it does
            if not evaluation:
                require_tasks(experiment, env)
            saved_by, why = find_way(env, dict(info.action_spaces))
            info = replace(info, saved_by=saved_by, not_saved=why, parallel=is_parallel(env))
            return _with_vector(info, spec, env_config_of(experiment, evaluation=evaluation))
        finally:
            guard.close(env)
    except RayfishError as error:
        key = _KEYS.get(type(error)) or (
            f"{prefix}.env_config" if isinstance(error, arguments.EnvConfigFault) else f"{prefix}.env"
        )
        origins = (origin for name, origin in experiment.origins.items() if f"{name}.".startswith(f"{key}."))
        found.append(Problem(key, error.what, error.hint, next(origins, "")))
        return None


_KEYS: dict[type[RayfishError], str] = {
    ClipFault: "environment.clip_rewards",
    AtariFault: "environment.atari",
    LastFault: "environment.observe_last_action",
    TaskFault: "environment.env_task_fn",
    ImportsFault: "environment.imports",
}
"""Faults of a setting -> its key; the others are of the environment itself."""


def _probe(env: Any, name: str) -> None:
    """One reset and one step: an environment that breaks the contract is reported now, not by a worker."""
    for method, probe in (("reset", contract.reset), ("step", contract.step)):
        try:
            probe(env)
        except contract.ContractBroken as fault:
            raise EnvironmentFault(
                fault.what, f"{fault.hint}; `rayfish env check {name}` tells more"
            ) from fault
        except Exception as error:
            raise _failed(f"{name}: {method}()", error) from error


def _make_gym(env_id: str, config: Mapping[str, Any], render_mode: str | None) -> Any:
    keywords = dict(config)
    if render_mode is not None:
        keywords["render_mode"] = render_mode
    target: Any = gym.registry[env_id].entry_point
    try:
        # The passive checker costs time on every step; `rayfish env check` and preflight look closer.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_OLDER)
            return gym.make(env_id, disable_env_checker=True, **keywords)
    except TypeError:
        if isinstance(target, str):
            target = gym.envs.registration.load_env_creator(target)
        arguments.check_keys(target, {**gym.registry[env_id].kwargs, **keywords})
        raise
    except gym.error.DependencyNotInstalled as error:
        hint = catalog.missing_extra(env_id)
        raise EnvironmentFault(
            f"{env_id} cannot be made: {error}", f"pip install {hint}" if hint else ""
        ) from error
    except ImportError as error:
        newer, extra = catalog.newest_version(env_id), catalog.missing_extra(env_id)
        hint = f"write environment.env={newer}" if newer else f"pip install {extra or error.name or '...'}"
        raise EnvironmentFault(f"{env_id} cannot be made: {error}", hint) from error


def _accepted(env: Any, name: str) -> Any:
    """`env` when it is of a kind we train on; a turn-based PettingZoo game is made parallel."""
    if isinstance(env, gym.Env) or is_multi_agent(env):
        return env
    if is_turn_based(env):
        if not (getattr(env, "metadata", None) or {}).get("is_parallelizable"):
            raise EnvironmentFault(
                f"{name!r} is a turn-based PettingZoo game, in which agents do not act at the same time",
                "offer a parallel_env(), or set metadata['is_parallelizable'] = True if every round lets all "
                "act",
            )
        from pettingzoo.utils.conversions import aec_to_parallel

        return aec_to_parallel(env)
    kind = f"{type(env).__module__}.{type(env).__name__}"
    if env is None:
        what, hint = "returned nothing", "end the creator function with `return env`"
    elif isinstance(env, gym.vector.VectorEnv):
        what = f"made a vector of environments ({kind})"
        hint = "return a single environment; rollouts.num_envs_per_env_runner makes many of it"
    elif any(base.__module__.split(".")[0] == "gym" for base in type(env).__mro__):
        what = f"made an environment of the old gym package ({kind}) without spaces"
        hint = "set self.observation_space and self.action_space in its constructor"
    else:
        what = f"made a {kind}, which is no environment"
        hint = "inherit from gymnasium.Env, pettingzoo.ParallelEnv or ray.rllib.env.multi_agent_env."
        hint += "MultiAgentEnv"
    raise EnvironmentFault(f"{name!r} {what}", hint)


def _failed(doing: str, error: Exception, paths: Sequence[str] = ()) -> EnvironmentFault:
    last = user_frame(error) or traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    hint = "fix that line, or the env_config it was given; --debug shows the whole traceback"
    missing = error.filename if isinstance(error, FileNotFoundError) else None
    if missing and not Path(str(missing)).is_absolute():
        places = ", ".join(dict.fromkeys([str(Path.cwd()), *paths]))
        hint = f"there is no {missing} in {places}: give its place in environment.env_config"
    return EnvironmentFault(f"{doing} failed at {last.filename}:{last.lineno}: {text}", hint)
