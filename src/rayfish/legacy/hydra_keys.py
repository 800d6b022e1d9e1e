"""Yesterday's names: RLlib's and SimHarness2's old keys, algorithms and result names, and today's.

One table serves Hydra keys, old YAML files and stop conditions alike. A plain rename is copied before
interpolations are resolved (`${rollouts.num_workers}` keeps working); what must be computed from a value
comes after. Each translation of something a user wrote leaves a note; nothing is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rayfish.experiment import tree
from rayfish.experiment.files import SHIPPED
from rayfish.experiment.overrides import COMMAND_LINE
from rayfish.experiment.result_names import todays_metric
from rayfish.experiment.sections import METHODS
from rayfish.legacy import key_tables
from rayfish.legacy.key_tables import each
from rayfish.models.options import MODEL_RENAMED

_BUFFER_TYPE = "training.replay_buffer_config.type"
_SCORE = "checkpoint.checkpoint_score_attribute"

SECTION_ALIASES = {
    "env_runners": "rollouts",
    "multiagent": "multi_agent",
    "stop": "stop_conditions",
    "run": "runtime",
}
"""Other names of a section -> its name."""

_RLLIB_SECTIONS = (*METHODS, "exploration")
"""The sections in which old RLlib keys are looked for; people put them in any of these."""

OLD_KEYS: dict[str, str] = each({
    "num_workers num_rollout_workers": "rollouts.num_env_runners",
    "num_envs_per_worker": "rollouts.num_envs_per_env_runner",
    "num_cpus_per_worker": "rollouts.num_cpus_per_env_runner",
    "num_gpus_per_worker": "rollouts.num_gpus_per_env_runner",
    "custom_resources_per_worker": "rollouts.custom_resources_per_env_runner",
    "create_env_on_driver": "rollouts.create_env_on_local_worker",
    "validate_workers_after_construction": "rollouts.validate_env_runners_after_construction",
    "max_requests_in_flight_per_sampler_worker "
    "max_sample_requests_in_flight_per_worker": "rollouts.max_requests_in_flight_per_env_runner",
    "horizon": "rollouts.horizon",
    "observation_filter": "rollouts.observation_filter",
    "rollout_fragment_length": "rollouts.rollout_fragment_length",
    "batch_mode": "rollouts.batch_mode",
    "explore": "exploration.explore",
    "epsilon": "training.epsilon",
    "sgd_minibatch_size": "training.minibatch_size",
    "num_sgd_iter": "training.num_epochs",
    "shuffle_sequences": "training.shuffle_batch_per_epoch",
    "lambda": "training.lambda_",
    "learning_starts": "training.num_steps_sampled_before_learning_starts",
    "target_update_frequency": "training.target_network_update_freq",
    "vf_share_layers": "training.model.vf_share_layers",
    "hiddens": "training.model.head_fcnet_hiddens",
    "buffer_size": "training.replay_buffer_config.capacity",
    "prioritized_replay_alpha": "training.replay_buffer_config.alpha",
    "prioritized_replay_beta": "training.replay_buffer_config.beta",
    "num_cpus_for_driver num_cpus_for_local_worker": "resources.num_cpus_for_main_process",
    "num_learner_workers num_trainer_workers num_learners": "learners.num_learners",
    "num_gpus_per_learner num_gpus_per_learner_worker": "learners.num_gpus_per_learner",
    "num_cpus_per_learner num_cpus_per_learner_worker": "learners.num_cpus_per_learner",
    "local_gpu_idx": "learners.local_gpu_idx",
    "num_aggregation_workers": "learners.num_aggregator_actors_per_learner",
    "evaluation_num_workers": "evaluation.evaluation_num_env_runners",
    "evaluation_num_episodes": "evaluation.evaluation_duration",
    "custom_eval_function": "evaluation.custom_evaluation_function",
    "ignore_worker_failures": "fault_tolerance.ignore_env_runner_failures",
    "recreate_failed_workers recreate_failed_env_runners": "fault_tolerance.restart_failed_env_runners",
    "restart_failed_sub_environments": "fault_tolerance.restart_failed_sub_environments",
    "max_num_worker_restarts": "fault_tolerance.max_num_env_runner_restarts",
    "delay_between_worker_restarts_s": "fault_tolerance.delay_between_env_runner_restarts_s",
    "num_consecutive_worker_failures_tolerance": (
        "fault_tolerance.num_consecutive_env_runner_failures_tolerance"
    ),
    "worker_health_probe_timeout_s": "fault_tolerance.env_runner_health_probe_timeout_s",
    "worker_restore_timeout_s": "fault_tolerance.env_runner_restore_timeout_s",
    "input": "offline_data.input_",
    "timesteps_per_iteration "
    "min_sample_timesteps_per_reporting": "reporting.min_sample_timesteps_per_iteration",
    "min_train_timesteps_per_reporting": "reporting.min_train_timesteps_per_iteration",
    "min_iter_time_s min_time_s_per_reporting": "reporting.min_time_s_per_iteration",
    "metrics_smoothing_episodes": "reporting.metrics_num_episodes_for_smoothing",
})  # fmt: skip
"""Old bare key -> today's dotted key, where the value stays as it is."""

_RENAMED: dict[str, str] = {
    **{f"training.model.{old}": f"training.model.{new}" for old, new in MODEL_RENAMED.items()},
    **{
        f"training.replay_buffer_config.prioritized_replay_{name}": f"training.replay_buffer_config.{name}"
        for name in ("alpha", "beta")
    },
    **{
        f"training.{section}.{old}_learning_rate": f"training.{new}"
        for section in ("optimization", "optimization_config")
        for old, new in key_tables.OPTIMIZATION.items()
    },
    **{f"checkpoint.{old}": f"checkpoint.{new}" for old, new in key_tables.CHECKPOINT.items() if old != new},
    "runtime.storage_path": "runtime.local_dir",
    "algo.run": "algo.name",
}

GONE_KEYS: dict[str, str] = {
    **{key: f"remove it: {why}" for key, why in key_tables.IGNORED.items()},
    **{key: instead for key, (_, instead) in key_tables.OFF_ONLY.items()},
    **key_tables.REFUSED,
    "replay_ratio": "use training.training_intensity; remove it",
}
"""Old keys that have no counterpart today -> what to do instead."""

IGNORED: dict[str, str] = {
    "aim": "this version has no Aim tracker; metrics are in metrics.jsonl, progress.csv and events/",
    "runtime.log_to_file": "a run always keeps its log, in log.txt",
    "debugging.logger_config": "metrics are in metrics.jsonl, progress.csv and TensorBoard's events/",
    "framework.eager_tracing": "it was TensorFlow's; RLlib's new stack runs on torch",
    "evaluation.enable_async_evaluation": (
        "fault_tolerance restarts evaluation runners that fail, "
        "evaluation.evaluation_parallel_to_training evaluates while training goes on"
    ),
}
"""Keys of SimHarness2's files that have no effect here -> why; a note names each."""


Adaptor = Callable[[Any, Mapping[str, Any]], dict[str, Any]]
"""From an old key's value and the whole config to today's keys with their values."""


def _schedule(today: str) -> Adaptor:
    """RLlib's old schedules may begin later than step 0; today's may not."""

    def adapted(value: Any, _: Mapping[str, Any]) -> dict[str, Any]:
        late = isinstance(value, list) and value and isinstance(value[0], list) and value[0][0] != 0
        points = [[0, value[0][1]], *value] if late else value
        return {today: points} if value is not None else {}

    return adapted


def _batch(value: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    learners = _learners(config)
    share = value // learners if isinstance(value, int) and isinstance(learners, int) else value
    return {"training.train_batch_size_per_learner": share}


def _learners(config: Mapping[str, Any]) -> Any:
    return tree.get(config, "learners.num_learners") or 1


def _prioritized(value: Any, _: Mapping[str, Any]) -> dict[str, Any]:
    return {_BUFFER_TYPE: key_tables.EPISODE_BUFFERS[bool(value)]}


def _remote_envs(value: Any, _: Mapping[str, Any]) -> dict[str, Any]:
    return {"rollouts.gym_env_vectorize_mode": "async"} if value else {}


def best_by(value: Any, _: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The metric by which a checkpoint is the best, with `min-` before one that should fall."""
    name = str(value).removeprefix("min-")
    order = {"checkpoint.checkpoint_score_order": "min"} if str(value).startswith("min-") else {}
    return {_SCORE: todays_metric(name) or name, **order}


def _model_of(value: Any, _: Mapping[str, Any]) -> dict[str, Any]:
    return {f"training.model.{key}": inner for key, inner in (value or {}).items()}


_MODELS = ("Q_model", "q_model_config", "policy_model", "policy_model_config")
_ADAPTORS: dict[str, Adaptor] = {
    "training.train_batch_size": _batch,
    "training.lr_schedule": _schedule("training.lr"),
    "training.entropy_coeff_schedule": _schedule("training.entropy_coeff"),
    "training.prioritized_replay": _prioritized,
    **{f"training.{name}": _model_of for name in _MODELS},
    "rollouts.remote_worker_envs": _remote_envs,
    "environment.remote_worker_envs": _remote_envs,
    "checkpoint.checkpoint_score_attr": best_by,
}


def _remark(adaptor: Adaptor, value: Any, config: Mapping[str, Any]) -> str:
    if adaptor is _model_of:
        return " (one model section serves actor and critic)"
    shared = adaptor is _batch and _learners(config) > 1
    return f" ({value} shared by {_learners(config)} learners)" if shared else ""


def is_old(dotted: str) -> bool:
    """Whether a key is one that is translated: it is understood, but not the name to write today."""
    home = OLD_KEYS.get(dotted.rpartition(".")[2])
    return dotted in _ADAPTORS or dotted in _RENAMED or (home is not None and home != dotted)


def copy_renamed(config: dict[str, Any], origins: dict[str, str], notes: list[str]) -> set[str]:
    """Write every plainly renamed key under its new name too; returns the old keys, to be removed later."""
    for alias, name in SECTION_ALIASES.items():
        if isinstance(config.get(alias), dict):
            for key in list(config[alias]):
                _move(config, origins, notes, f"{alias}.{key}", f"{name}.{key}")
        elif config.get(alias) is not None and "${" not in str(config[alias]):
            config[name] = config[alias]  # no section, which the check reports
            origins[name] = origins.get(alias, "")
    old_keys = set()
    for old, new in _written_renames(config):
        _move(config, origins, notes, old, new)
        old_keys.add(old)
    for key, why in IGNORED.items():
        if tree.get(config, key, tree.MISSING) is not tree.MISSING:
            _note(notes, _origin(origins, key), f"{key}: ignored, {why}")
            old_keys.add(key)
    return old_keys | {alias for alias in SECTION_ALIASES if alias in config}


def remove(config: dict[str, Any], origins: dict[str, str], old_keys: set[str]) -> None:
    """Take the old names away once interpolations are resolved."""
    for old in old_keys:
        tree.drop(config, old)
        tree.forget(origins, old)
    for emptied in ("training.optimization", "training.optimization_config"):
        if tree.get(config, emptied) == {}:
            tree.drop(config, emptied)


def adapt_values(config: dict[str, Any], origins: dict[str, str], notes: list[str]) -> None:
    """Translate old keys whose value changes too, and old metric names; values are resolved by now."""
    for old, adaptor in _ADAPTORS.items():
        value = tree.get(config, old, tree.MISSING)
        if value is tree.MISSING:
            continue
        adapted, remark = adaptor(value, config), _remark(adaptor, value, config)
        origin = _origin(origins, old)
        remove(config, origins, {old})
        for new, new_value in adapted.items():
            if _outranks(origin, origins.get(new)):
                tree.put(config, new, new_value)
                origins[new] = origin
        targets = ", ".join(f"{key}={val}" for key, val in adapted.items()) or "nothing"
        _note(notes, origin, f"{old} became {targets}{remark}")
    kind = tree.get(config, _BUFFER_TYPE)
    if isinstance(kind, str) and "Episode" not in kind and kind.rpartition(".")[2].startswith("MultiAgent"):
        today = _prioritized("Prioritized" in kind, config)[_BUFFER_TYPE]
        tree.put(config, _BUFFER_TYPE, today)
        _note(notes, _origin(origins, _BUFFER_TYPE), f"{_BUFFER_TYPE}: {kind} became {today}")
    score = tree.get(config, _SCORE)
    metric = todays_metric(score) if isinstance(score, str) else None
    if metric is not None:
        tree.put(config, _SCORE, metric)
    _evaluation_config(config, notes, origins)


def _evaluation_config(config: dict[str, Any], notes: list[str], origins: dict[str, str]) -> None:
    """RLlib accepts any key in evaluation_config in silence, so its old names are translated too."""
    inner = tree.get(config, "evaluation.evaluation_config")
    for old in list(inner) if isinstance(inner, dict) else ():
        new = OLD_KEYS.get(old, "").rpartition(".")[2]
        if new and new != old:
            key = f"evaluation.evaluation_config.{old}"
            origin = _origin(origins, key)
            inner.setdefault(new, inner.pop(old))
            origins[f"evaluation.evaluation_config.{new}"] = origins.pop(key, origin)
            _note(notes, origin, f"{key} is today's {new}")


def _written_renames(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    absent = tree.MISSING
    found = [(old, new) for old, new in _RENAMED.items() if tree.get(config, old, absent) is not absent]
    for section in _RLLIB_SECTIONS:
        for key in config.get(section) or {} if isinstance(config.get(section), dict) else ():
            new = OLD_KEYS.get(str(key))
            if new and new != f"{section}.{key}":
                found.append((f"{section}.{key}", new))
    return found


def _move(config: dict[str, Any], origins: dict[str, str], notes: list[str], old: str, new: str) -> None:
    """Copy the value at `old` to `new` unless something that outranks it is already there."""
    value, origin = tree.get(config, old), _origin(origins, old)
    current = tree.get(config, new, tree.MISSING)
    is_condition = new.startswith("stop_conditions.")  # which replaces another, whatever its form
    if isinstance(value, dict) and isinstance(current, dict) and not is_condition:
        for key in value:
            _move(config, origins, notes, f"{old}.{key}", f"{new}.{key}")
        return
    if current is not tree.MISSING and not _outranks(origin, _origin(origins, new)):
        _note(notes, origin, f"{old} is left aside: {new} is written as well, and wins")
        return
    tree.put(config, new, value)
    tree.forget(origins, new)
    origins[new] = origin
    _note(notes, origin, f"{old} is today's {new}")


def _origin(origins: Mapping[str, str], key: str) -> str:
    """Where a key was written; for a dictionary, the strongest origin among its leaves."""
    if key in origins:
        return origins[key]
    below = [where for name, where in origins.items() if name.startswith(f"{key}.")]
    return max(below, key=_rank, default="")


def settle_stop_conditions(config: dict[str, Any], origins: Mapping[str, str], notes: list[str]) -> None:
    """Two spellings of one stop condition: the one written nearer to the user holds, the other is dropped."""
    section = config.get("stop_conditions")
    if not isinstance(section, dict):
        return
    rank = {key: _rank(_origin(origins, f"stop_conditions.{key}")) for key in section}
    chosen: dict[str, str] = {}
    for key in [key for key, value in section.items() if value is not None]:
        other = chosen.setdefault(todays_metric(key) or key, key)
        if rank[key] != rank[other]:
            winner, loser = (key, other) if rank[key] > rank[other] else (other, key)
            notes.append(f"stop_conditions.{winner}={section[winner]} replaces {loser}={section[loser]}")
            section[loser] = None
            chosen[todays_metric(key) or key] = winner


def _rank(origin: str | None) -> int:
    if not origin:
        return 0
    return 3 if origin.startswith(COMMAND_LINE) else 1 if origin.startswith(SHIPPED) else 2


def _outranks(old: str, new: str | None) -> bool:
    """Whether the value under an old name replaces one under today's name; at a draw today's name wins."""
    return _rank(old) > _rank(new)


def _note(notes: list[str], origin: str, text: str) -> None:
    if not origin.startswith(SHIPPED):
        notes.append(f"{text} ({origin})" if origin else text)
