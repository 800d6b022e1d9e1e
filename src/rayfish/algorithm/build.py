"""Experiment, environment and model become one RLlib `AlgorithmConfig`, then an `Algorithm`.

Each section of the experiment goes to the `AlgorithmConfig` method of the section table; what Rayfish owns
(time limit, normalisation, mapping of agents) is turned into RLlib's terms here and nowhere else.
"""

from __future__ import annotations

import logging
import math
import secrets
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.optim import SGD, Adam, AdamW, RMSprop

from rayfish.algorithm.adapters import EnvCreator
from rayfish.algorithm.batched.eligibility import PROCESSES, Fit, fit
from rayfish.algorithm.callbacks import EpisodeReport
from rayfish.algorithm.contradictions import ASYNCHRONOUS, BUFFERS, OPTIMISERS
from rayfish.algorithm.curriculum import TaskSetter
from rayfish.algorithm.keys import CHOICES
from rayfish.algorithm.module import module_spec
from rayfish.algorithm.normalise import NormalizeObservations
from rayfish.algorithm.offline_data import RecordedData
from rayfish.algorithm.old_callbacks import adapted
from rayfish.algorithm.replay import name_figures
from rayfish.algorithm.signatures import entries
from rayfish.compat.ray_internals import results_in
from rayfish.compat.rllib_internals import env_to_module_factory
from rayfish.envs.build import EnvInfo, env_config_of, from_experiment
from rayfish.envs.resolve import OWN_NAMES
from rayfish.envs.restarts import SKIP, TRUNCATE
from rayfish.errors import ConfigError, Problem
from rayfish.experiment.imports import load_object, use_paths
from rayfish.experiment.legacy_door import epsilon_schedule, todays_recordings
from rayfish.experiment.mapping import SHARED_POLICY, PolicyMapping, policies_of
from rayfish.experiment.sections import METHODS, OFFLINE
from rayfish.experiment.words import in_main_script
from rayfish.supervise.error_messages import RESTART_OPTION
from rayfish.supervise.watchdog import Patience

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

    from rayfish.experiment import Experiment

STEPS_PER_ITERATION = 250
"""Of algorithms whose iterations RLlib measures in seconds: SAC and TQC."""

_EVALUATION = "-evaluation"
_AT_ONCE = 16
"""Episodes that an evaluation runner plays side by side at most."""

# RLlib's keys that this module translates, in place of handing them on.
_TRANSLATED = {
    "environment": {"env", "env_config", "clip_rewards"},
    "rollouts": {"observation_filter"},
    "evaluation": {"evaluation_config"},
    "training": {"model", "optimizer"},
    "multi_agent": {"policies", "policy_mapping_fn"},
    "callbacks": {"callbacks_class"},
    "debugging": {"log_sys_usage", "log_level"},
    "resources": {"num_gpus"},
    "offline_data": {"actions_in_input_normalized"},
    "fault_tolerance": {"restart_failed_sub_environments"},
    "framework": {"framework", "torch_compile_learner"},
}

_OPTIMIZERS = {cls.__name__.lower(): cls for cls in (Adam, AdamW, RMSprop, SGD)}


def config_class(name: str) -> type[AlgorithmConfig]:
    """RLlib's config class of an algorithm, by the name in `algo.name`."""
    # By its module, not by RLlib's registry, which lacks TQC though RLlib ships it.
    return getattr(import_module(f"ray.rllib.algorithms.{name.lower()}"), f"{name}Config")


def build_config(
    experiment: Experiment, info: EnvInfo, *, worker_setup: Callable[[str], None] | None = None
) -> AlgorithmConfig:
    """The experiment as a validated RLlib config; workers call `worker_setup` with their name."""
    use_paths(experiment.paths)
    name = experiment.algo.name
    config = config_class(name)()
    if name == "CQL":  # its default learning rate is one that its own validation refuses
        config.lr = None
    for section, method in METHODS.items():
        values = _values(experiment, section, name)
        if values:
            getattr(config, method)(**values)
    fitting = fit(experiment, info)
    _environment(config, experiment, info, worker_setup, fitting)
    _rollouts(config, experiment, fitting)
    _learners(config, experiment)
    if fitting.batched:
        _batched(config, name)
    if experiment.get("framework.torch_compile_learner"):
        _compiled(config, experiment, fitting)
    if experiment.training.optimizer:
        config.learners(learner_class=_learner(config.learner_class, experiment.training.optimizer))
    _evaluation(config, experiment, fitting)
    _exploration(config, experiment, name)
    _targets(config, info, name)
    _iterations(config, experiment, name)
    _replay(config, info)
    _callbacks(config, experiment)
    _modules(config, experiment, info, name)
    if name in OFFLINE:
        _offline_data(config, experiment, info)
    config.debugging(log_sys_usage=False, log_level=experiment.debugging.log_level)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            config.validate()
        except (ValueError, TypeError, NotImplementedError) as error:
            raise ConfigError(
                [Problem("algo", f"RLlib refuses this experiment for {name}: {error}")]
            ) from error
    return config


logging.getLogger("ray.rllib.algorithms.algorithm_config").setLevel(logging.ERROR)  # its API stack notice


def build_algorithm(config: AlgorithmConfig, logdir: str) -> Algorithm:
    """The algorithm of a config, with its env runners and learners on Ray and its folder in `logdir`."""
    with warnings.catch_warnings(), results_in(logdir):
        warnings.simplefilter("ignore")
        algorithm = config.build_algo()
    replay = getattr(algorithm, "local_replay_buffer", None)
    if replay is not None and hasattr(replay, "rng") and config.seed is not None:
        replay.rng = np.random.default_rng(config.seed)  # RLlib leaves it to chance
    name_figures(replay)
    return algorithm


def _values(experiment: Experiment, section: str, algo: str) -> dict[str, Any]:
    """The keys of a section that RLlib takes as they are, import paths loaded."""
    known, translated = entries(section, algo), _TRANSLATED.get(section, ())
    values: dict[str, Any] = {}
    for key, value in experiment.section(section).items():
        if key not in known or key in translated:
            continue
        kinds = set(known[key]["type"].split(" | "))  # a class or function is written by its import path
        takes_object = "path" in kinds and not kinds & {"str", "list", "dict"}
        takes_object = takes_object or key.startswith("on_") or key == "td_error_loss_fn"
        if takes_object and value not in CHOICES.get(f"{section}.{key}", ()):
            values[key] = _loaded(value, experiment)
        elif key == "n_step" and isinstance(value, list):
            values[key] = tuple(value)  # a range of steps; RLlib's buffers take a tuple only
        else:
            values[key] = value
    return values


def _loaded(value: Any, experiment: Experiment) -> Any:
    """Import paths, alone or in a list, as the objects they name."""
    if isinstance(value, list):
        return [_loaded(item, experiment) for item in value]
    return load_object(value, experiment.paths) if isinstance(value, str) else value


def _environment(
    config: AlgorithmConfig,
    experiment: Experiment,
    info: EnvInfo,
    worker_setup: Callable[[str], None] | None,
    fitting: Fit,
) -> None:
    from ray.tune.registry import register_env

    # A name of its own: two trainers in one process must not make each other's environments.
    name = f"{OWN_NAMES}{secrets.token_hex(4)}"
    common: dict[str, Any] = {
        "setup": worker_setup,
        "patience": Patience.of(experiment),
        "vector": fitting.vector,
        "policy": next(iter(policies_of(experiment))) if info.kind == "multi" else "",
        "failed": (SKIP if fitting.batched else TRUNCATE) if experiment.get(RESTART_OPTION) else "",
    }
    training = replace(from_experiment(experiment), old_api=info.old_api)  # no worker need try it again
    register_env(name, EnvCreator(training, **common))
    evaluation = from_experiment(experiment, evaluation=True)
    if evaluation.name == training.name:
        evaluation = replace(evaluation, old_api=info.old_api)
    register_env(f"{name}{_EVALUATION}", EnvCreator(evaluation, role="evaluation runner", **common))
    config.environment(env=name, env_config=env_config_of(experiment), disable_env_checking=True)


def _rollouts(config: AlgorithmConfig, experiment: Experiment, fitting: Fit) -> None:
    if fitting.vector == PROCESSES and not fitting.batched:
        # Not Gymnasium's "async", whose processes are forked from one in which Ray's threads run.
        config.env_runners(gym_env_vectorize_mode="vector_entry_point")
    if experiment.rollouts.observation_filter == "MeanStdFilter":
        config.env_runners(env_to_module_connector=NormalizeFirst(env_to_module_factory(config)))


class NormalizeFirst:
    """Connector factory: normalisation, then the experiment's own connectors."""

    def __init__(self, then: Callable | None) -> None:
        self._then = then

    def __call__(self, env: Any, spaces: Any = None, device: Any = None) -> list:
        """The connectors in order, as RLlib's `env_to_module_connector` wants them."""
        more = self._then(env, spaces, device) if self._then else []
        return [NormalizeObservations(), *(more if isinstance(more, list | tuple) else [more])]


def _learners(config: AlgorithmConfig, experiment: Experiment) -> None:
    """`resources.num_gpus` as in older RLlib: one learner per GPU."""
    gpus = experiment.resources.num_gpus or 0
    if gpus:
        config.learners(num_gpus_per_learner=min(1, gpus))
    if gpus > 1:
        config.learners(num_learners=int(gpus))


def _learner(base: type, settings: Mapping[str, Any]) -> type:
    """A learner with another optimizer than RLlib's Adam; the learning rate stays `training.lr`."""
    kind = settings.get("type") or "adam"
    names = OPTIMISERS[kind]
    arguments = {names[key]: value for key, value in settings.items() if key in names and value is not None}

    def configure_optimizers_for_module(self: Any, module_id: str, config: Any = None) -> None:
        """As RLlib does it, with another class and arguments."""
        parameters = self.get_parameters(self.module[module_id])
        optimizer = _OPTIMIZERS[kind](parameters, lr=1e-3, **arguments)  # type: ignore[operator]
        self.register_optimizer(
            module_id=module_id, optimizer=optimizer, params=parameters, lr_or_lr_schedule=config.lr
        )

    # Named and placed as its base, so that messages and checkpoints speak of the same learner.
    own = {
        "configure_optimizers_for_module": configure_optimizers_for_module,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
    }
    return type(base.__name__, (base,), own)


def _batched(config: AlgorithmConfig, name: str) -> None:
    """The batched path's runner, and where it has one its learner and training step."""
    from rayfish.algorithm.batched.runner import BatchedEnvRunner

    config.env_runners(env_runner_cls=BatchedEnvRunner)
    if name in ("PPO", "DQN", "SAC"):
        from rayfish.algorithm.batched import algorithms, learner

        config.learners(learner_class=getattr(learner, f"Batched{name}Learner"))
        config.algo_class = getattr(algorithms, f"Batched{name}")
    if name == "PPO":
        config.learners(add_default_connectors_to_learner_pipeline=False)


def _compiled(config: AlgorithmConfig, experiment: Experiment, fitting: Fit) -> None:
    """`torch.compile` for the batched learner of PPO; nothing else would compile anything."""
    key, name = "framework.torch_compile_learner", experiment.algo.name
    why = fitting.why if not fitting.batched else f"{name} compiles nothing" if name != "PPO" else ""
    backend = experiment.get("framework.torch_compile_learner_dynamo_backend") or "inductor"
    writes_cpp = backend == "inductor" and not config.num_gpus_per_learner
    if not why and writes_cpp and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        why = "on a CPU torch.compile needs a C++ compiler, and there is none"
    if why:
        raise ConfigError(
            [Problem(key, f"has no effect here: {why}", f"remove it (~{key})", experiment.origin(key))]
        )
    from rayfish.algorithm.batched.learner import COMPILED

    config.training(learner_config_dict={**config.learner_config_dict, COMPILED: True})


def _evaluation(config: AlgorithmConfig, experiment: Experiment, fitting: Fit) -> None:
    overrides = dict(experiment.evaluation.evaluation_config or {})
    overrides.pop("horizon", None)  # ours: the evaluation environment has its own time limit
    overrides["env"] = f"{config.env}{_EVALUATION}"
    overrides["env_config"] = env_config_of(experiment, evaluation=True)
    overrides.setdefault("explore", False)
    # With several copies at once RLlib keeps the first N finished episodes, which are the short
    # ones; one copy per runner gives an unbiased mean.
    # The batched runner fixes each copy's share of the episodes beforehand.
    copies, episodes = 1, experiment.get("evaluation.evaluation_duration")
    in_steps = experiment.get("evaluation.evaluation_duration_unit") == "timesteps"
    if fitting.batched and isinstance(episodes, int) and not in_steps:
        runners = experiment.get("evaluation.evaluation_num_env_runners") or 1
        copies = max(1, min(_AT_ONCE, math.ceil(episodes / runners)))
    overrides.setdefault("num_envs_per_env_runner", copies)
    config.evaluation(evaluation_config=overrides)


def _exploration(config: AlgorithmConfig, experiment: Experiment, name: str) -> None:
    if experiment.exploration.explore is not None:
        config.env_runners(explore=experiment.exploration.explore)
    old = experiment.exploration.exploration_config or {}
    if name == "DQN" and old.get("type", "EpsilonGreedy") == "EpsilonGreedy" and "epsilon_timesteps" in old:
        config.training(epsilon=epsilon_schedule(old))


def _offline_data(config: AlgorithmConfig, experiment: Experiment, info: EnvInfo) -> None:
    """Spaces that no env runner reports, and the reader of recorded data."""
    agent = next(iter(info.agents), None)
    config.environment(
        observation_space=info.observation_spaces[agent], action_space=info.action_spaces[agent]
    )
    if experiment.get("offline_data.offline_data_class") is None:
        config.offline_data(offline_data_class=RecordedData)
    named = experiment.offline_data.input_ or []
    as_they_are = experiment.offline_data.actions_in_input_normalized or not config.normalize_actions
    folder = todays_recordings(
        [named] if isinstance(named, str) else named, None if as_they_are else config.action_space
    )
    if folder:
        config.offline_data(input_=[folder], input_read_episodes=True, input_read_batch_size=1)


def _temperature(experiment: Experiment, name: str) -> float | None:
    """That of DQN's SoftQ exploration; None where it explores otherwise."""
    old = experiment.exploration.exploration_config or {}
    soft = name == "DQN" and str(old.get("type", "")).rpartition(".")[2] == "SoftQ"
    return float(old.get("temperature", 1.0)) if soft else None


def _targets(config: AlgorithmConfig, info: EnvInfo, name: str) -> None:
    """SAC's entropy target for discrete actions; RLlib's "auto" is that of continuous ones.

    0.98 of the largest entropy would never let go; 0.89 is what discrete SAC is commonly run with
    (https://arxiv.org/abs/1910.07207 and its later implementations).
    """
    sizes = [getattr(space, "n", None) for space in info.action_spaces.values()]
    if name == "SAC" and all(sizes) and config.target_entropy in (None, "auto"):
        config.training(target_entropy=0.89 * math.log(max(size for size in sizes if size)))


def _replay(config: AlgorithmConfig, info: EnvInfo) -> None:
    """Several agents' episodes need the buffers made for them; a buffer of the user's own stays."""
    settings = getattr(config, "replay_buffer_config", None)
    if info.kind == "multi" and isinstance(settings, dict) and settings.get("type") in BUFFERS:
        config.training(replay_buffer_config={**settings, "type": f"MultiAgent{settings['type']}"})


def _iterations(config: AlgorithmConfig, experiment: Experiment, name: str) -> None:
    """An iteration is a number of steps, not of seconds: only then can a run be repeated or resumed exactly.

    RLlib's SAC and TQC fill at least a second, so that the same seed trains differently on a busy machine.
    """
    if name in ASYNCHRONOUS or experiment.get("reporting.min_time_s_per_iteration") is not None:
        return
    timed = config.min_time_s_per_iteration is not None and name not in OFFLINE
    config.reporting(min_time_s_per_iteration=None)
    if timed and experiment.get("reporting.min_sample_timesteps_per_iteration") is None:
        config.reporting(min_sample_timesteps_per_iteration=STEPS_PER_ITERATION)


def _callbacks(config: AlgorithmConfig, experiment: Experiment) -> None:
    named = experiment.callbacks.callbacks_class or []
    paths = [named] if isinstance(named, str) else named
    classes = [adapted(load_object(path, experiment.paths)) for path in paths]
    curriculum = experiment.environment.env_task_fn
    own = load_object(curriculum, experiment.paths) if curriculum and in_main_script(curriculum) else None
    tasks = [partial(TaskSetter, curriculum, experiment.paths, own)] if curriculum else []
    config.callbacks(callbacks_class=[EpisodeReport, *tasks, *classes])


def _modules(config: AlgorithmConfig, experiment: Experiment, info: EnvInfo, name: str) -> None:
    from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec

    model = experiment.training.model or {}
    spec = partial(module_spec, name, paths=experiment.paths, temperature=_temperature(experiment, name))
    if info.kind == "single":
        single = spec(model_section=model)
        if single is not None:
            config.rl_module(rl_module_spec=single)
        return
    policies = policies_of(experiment)
    specs = {
        policy: spec(model_section={**model, **(settings.get("model") or {})})
        for policy, settings in policies.items()
    }
    # A list, not a set: networks are initialised in this order, and the order of a set is chance.
    config.multi_agent(policies=list(policies), policy_mapping_fn=PolicyMapping.of(experiment))
    if list(policies) == [SHARED_POLICY] and isinstance(config.policies_to_train, list):
        config.multi_agent(policies_to_train=[SHARED_POLICY])
    if all(spec is not None for spec in specs.values()):
        config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
    own = {
        policy: {key: value for key, value in settings.items() if key != "model"}
        for policy, settings in policies.items()
    }
    overrides = {policy: type(config).overrides(**values) for policy, values in own.items() if values}
    if overrides:
        config.rl_module(algorithm_config_overrides_per_module=overrides)
