"""Old keys whose fate depends on their value, or on other keys beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rayfish.errors import did_you_mean
from rayfish.experiment.legacy import OLD_KEYS
from rayfish.experiment.old import nested
from rayfish.experiment.old.env_names import closest_env, todays_env
from rayfish.experiment.old.outcome import Context, Outcome, became, ignored, refused, unless_off
from rayfish.experiment.old.tables import IGNORED, OFF_ONLY, REFUSED, SAME, TRAINING, WHOLE
from rayfish.experiment.sections import OFFLINE, SEVERAL_NETWORKS

Rule = Callable[[Any, Context], list[Outcome]]

_UNSET = -1  # how Ray 1.x and 2.x wrote DEPRECATED_VALUE


def outcomes(key: str, value: Any, context: Context) -> list[Outcome]:
    """What becomes of one key of an old `config`."""
    if type(value) is int and value == _UNSET and key not in _MAY_BE_MINUS_ONE:
        return [ignored("Ray's own mark for a setting that is not in use")]
    try:
        return _outcomes(key, value, context)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        return [refused(f"{key} cannot be {value!r}: write it as RLlib's manual of that time has it")]


_MAY_BE_MINUS_ONE = ("v_min", "v_max", "target_entropy", "clip_rewards", "horizon_H")


def _outcomes(key: str, value: Any, context: Context) -> list[Outcome]:
    rule = RULES.get(key)
    if rule is not None:
        return rule(value, context)
    if key in IGNORED:
        return [ignored(IGNORED[key])]
    if key in OFF_ONLY:
        outcome = unless_off(key, value, OFF_ONLY[key])
        if outcome.fate == "refused" and context.closest:
            return [Outcome("translated", {}, f"--closest: left out, {context.algo} has no such thing", True)]
        return [outcome]
    if key in REFUSED:
        return [refused(REFUSED[key]) if value is not None else ignored("none given")]
    today = _renamed(key)
    if today is not None:
        return [_placed(today, value, context)]
    if key.startswith("_"):
        return [ignored("a private switch of the old stacks")]
    if key in TRAINING or value is None:
        return [_placed(f"training.{key}", value, context) if key in TRAINING else ignored("none given")]
    close = did_you_mean(key, known_keys())
    meant = f"did you mean {' or '.join(close)}?" if close else "remove it, or move it into env_config"
    return [refused(f"no Ray from 1.9 to 2.9 has a key {key!r}: {meant}")]


def known_keys() -> list[str]:
    """Every key of an old `config` that has a rule."""
    same = [key for keys in SAME.values() for key in keys]
    return [*RULES, *IGNORED, *OFF_ONLY, *REFUSED, *OLD_KEYS, *TRAINING, *same]


def _renamed(key: str) -> str | None:
    """Today's dotted key of one that only moved or was renamed."""
    if key in TRAINING:
        return f"training.{key}"
    for section, keys in SAME.items():
        if key in keys:
            return f"{section}.{key}"
    return OLD_KEYS.get(key)


def _placed(today: str, value: Any, context: Context) -> Outcome:
    """Under its name today, unless the algorithm has no such setting."""
    section, _, key = today.partition(".")
    if section == "training" and "." not in key and context.algo not in TRAINING.get(key, (context.algo,)):
        return ignored(f"{context.algo} has no such setting")
    return became(today, whole(value, key))


def whole(value: Any, key: str) -> Any:
    """4000.0 and 1e6 as whole numbers where today's RLlib wants one."""
    countable = key.rpartition(".")[2] in WHOLE
    return int(value) if countable and isinstance(value, float) and value.is_integer() else value


def _training(key: str, value: Any, context: Context) -> Outcome:
    return _placed(f"training.{key}", value, context)


def learners_of(config: Mapping[str, Any]) -> int:
    """How many learners an old file asks for: as many as GPUs, or by their own key."""
    for key in ("num_learners", "num_learner_workers", "num_trainer_workers"):
        if config.get(key):
            return int(config[key])
    return max(1, int(config.get("num_gpus") or 0))


def _batch(value: Any, context: Context) -> list[Outcome]:
    if value is None:
        return [ignored("none given")]
    learners = learners_of(context.config)
    why = f"{value} shared by {learners} learners" if learners > 1 else ""
    return [became("training.train_batch_size_per_learner", max(1, int(value) // learners), why)]


def _fragment(value: Any, context: Context) -> list[Outcome]:
    key = "rollouts.rollout_fragment_length"
    if context.algo == "PPO" and value != "auto":
        why = "PPO's runners share a batch evenly today"
        return [became(key, "auto", why, changed=True)]
    if context.algo in OFFLINE:
        return [ignored(f"{context.algo} learns from recorded data")]
    return [became(key, whole(value, key) if value is not None else "auto")]


def _minibatch(value: Any, context: Context) -> list[Outcome]:
    if value in (None, "auto"):
        return [ignored("none given")]
    value = whole(value, "minibatch_size")
    batch = context.config.get("train_batch_size")
    share = int(batch) // learners_of(context.config) if isinstance(batch, int | float) else None
    if share is not None and value > share:
        why = f"a minibatch is no larger than the batch ({share} per learner)"
        return [became("training.minibatch_size", share, why, changed=True)]
    return [_training("minibatch_size", value, context)]


def _rate(value: Any, context: Context) -> list[Outcome]:
    if context.config.get("lr_schedule"):
        return [ignored("lr_schedule holds")]
    if context.algo in SEVERAL_NETWORKS:
        return [ignored(f"{context.algo} has one rate per network (optimization), as it had then")]
    return [became("training.lr", value) if value is not None else ignored("none given")]


def _schedule_of(today: str) -> Rule:
    def rule(value: Any, context: Context) -> list[Outcome]:
        if not value:
            return [ignored("none given")]
        if today == "lr" and context.algo in SEVERAL_NETWORKS:
            return [refused(f"{context.algo} has one rate per network: give actor_lr a schedule by hand")]
        points, why = [[int(step), rate] for step, rate in value], ""
        if points[0][0] != 0:
            points, why = [[0, points[0][1]], *points], "a schedule begins at step 0, with its first value"
        points = points if len(points) > 1 else [*points, [points[0][0] + 1, points[0][1]]]
        if context.algo not in TRAINING.get(today, (context.algo,)):
            return [ignored(f"{context.algo} has no such setting")]
        return [became(f"training.{today}", points, why, changed=bool(why))]

    return rule


def _entropy(value: Any, context: Context) -> list[Outcome]:
    if context.config.get("entropy_coeff_schedule"):
        return [ignored("entropy_coeff_schedule holds")]
    return [_training("entropy_coeff", value, context)]


def _gpus(value: Any, context: Context) -> list[Outcome]:
    if context.config.get("_fake_gpus"):
        count = int(value or 0)
        why = "_fake_gpus: learners on the CPU in place of GPUs"
        return [became("learners.num_learners", count if count > 1 else 0, why)]
    if not value:
        return [became("resources.num_gpus", 0)]
    if context.config.get("num_learner_workers") or context.config.get("num_learners"):
        return [ignored("the learners' own GPUs are named beside it")]
    return [became("resources.num_gpus", value)]


def _filter(value: Any, _: Context) -> list[Outcome]:
    if value in (None, "NoFilter"):
        return [became("rollouts.observation_filter", "NoFilter")]
    if str(value).endswith("MeanStdFilter"):
        return [became("rollouts.observation_filter", "MeanStdFilter")]
    return [refused(f"{value!r} is no filter: MeanStdFilter or NoFilter")]


def _rewards(value: Any, context: Context) -> list[Outcome]:
    if value is None and nested.is_atari(context.env):
        return [
            became("environment.clip_rewards", True, "Atari's rewards were clipped unless told otherwise")
        ]
    if value in (None, False):
        return [became("environment.clip_rewards", value)]
    return [
        became("environment.clip_rewards", value, "an environment wrapper; returns are reported unclipped")
    ]


def _horizon(value: Any, _: Context) -> list[Outcome]:
    if value is None or (isinstance(value, float) and value == float("inf")):
        return [ignored("the environment decides")]
    return [became("rollouts.horizon", whole(value, "horizon"))]


def _remote_envs(value: Any, _: Context) -> list[Outcome]:
    if not value:
        return [ignored("off")]
    return [became("rollouts.gym_env_vectorize_mode", "async", "each environment in a process of its own")]


def _framework(value: Any, _: Context) -> list[Outcome]:
    if value in (None, "torch"):
        return [became("framework.framework", "torch")]
    why = f"{value} ran on TensorFlow; RLlib's new stack runs on torch"
    return [became("framework.framework", "torch", why, changed=True)]


def _callbacks(value: Any, _: Context) -> list[Outcome]:
    if not value:
        return [ignored("none given")]
    if isinstance(value, str) and "DefaultCallbacks" in value:
        return [ignored("RLlib's own callbacks do nothing")]
    if isinstance(value, str | list):
        return [became("callbacks.callbacks_class", value)]
    return [
        refused("callbacks are a class today: name one that inherits from RLlibCallback (my_file.py:Name)")
    ]


def _log_level(value: Any, _: Context) -> list[Outcome]:
    level = str(value).upper()
    known = level in ("DEBUG", "INFO", "WARN", "WARNING", "ERROR")
    return [became("debugging.log_level", level) if known else ignored("not a level")]


def _preprocessor(value: Any, context: Context) -> list[Outcome]:
    if not nested.is_atari(context.env):
        return [ignored("only Atari's images were preprocessed")]
    if value == "deepmind":
        return [became("environment.atari", True)]
    if value != "rllib":
        return [became("environment.atari", None, "images as the game gives them")]
    model = context.config.get("model") or {}
    plain = {"dim": model.get("dim", 84), "framestack": 1, "noop_max": 0, "frame_skip": 1}
    colours = {"grayscale": model.get("grayscale", False), "zero_mean": model.get("zero_mean", True)}
    return [Outcome("translated", {f"environment.atari.{k}": v for k, v in {**plain, **colours}.items()})]


def _env(value: Any, context: Context) -> list[Outcome]:
    if not value:
        return [ignored("none given")]
    today = todays_env(str(value))
    found = [became("environment.env", str(value))]
    other = closest_env(str(value))
    if other is not None and not context.closest:
        return [refused(f"{other.remark}: write env: {other.env}, or add --closest")]
    today = other or today
    if today is not None:
        config = {f"environment.env_config.{key}": val for key, val in (today.env_config or {}).items()}
        found = [Outcome("translated", {"environment.env": today.env, **config}, today.remark, changed=True)]
    if nested.is_atari(str(value)):
        found += _atari(context)
    return found


def _atari(context: Context) -> list[Outcome]:
    """What old RLlib did with Atari games by itself."""
    if context.algo == "DreamerV3":
        small: dict[str, Any] = {"dim": 64, "framestack": 1, "grayscale": False, "zero_mean": True}
        values = {f"environment.atari.{key}": value for key, value in small.items()}
    else:
        defaults = {"preprocessor_pref": "environment.atari", "clip_rewards": "environment.clip_rewards"}
        values = {new: True for old, new in defaults.items() if context.config.get(old) is None}
    why = "as old RLlib did with Atari games by itself; an episode is a whole game, not one life"
    return [Outcome("translated", values, why, changed=True)] if values else []


def _is_atari(value: Any, context: Context) -> list[Outcome]:
    if value is None or bool(value) == nested.is_atari(context.env):
        return [ignored("told from the environment's name")]
    return [became("environment.atari", True if value else None)]


def _learner_class(value: Any, _: Context) -> list[Outcome]:
    return [became("learners.learner_class", value) if value else ignored("none given")]


def _env_config(value: Any, _: Context) -> list[Outcome]:
    return [became("environment.env_config", dict(value)) if value else ignored("empty")]


def _task_fn(value: Any, _: Context) -> list[Outcome]:
    return [became("environment.env_task_fn", value) if value else ignored("none given")]


def _input(value: Any, context: Context) -> list[Outcome]:
    if value in (None, "sampler"):
        return [ignored("the environment is sampled, as always without recorded data")]
    if isinstance(value, Mapping):
        return [refused("a mix of sources cannot be read today: name one path or a list of them")]
    paths = value
    if value == "dataset":
        given = context.config.get("input_config") or {}
        paths = given.get("paths") or given.get("path")
        if not paths:
            return [refused("input: dataset needs input_config: {paths: ...}")]
    if isinstance(paths, str) and paths.startswith("d4rl"):
        return [refused(f"{paths} needs the d4rl package, which is no longer kept: convert it to Parquet")]
    if isinstance(paths, str) and not any(sign in paths for sign in "/.*~"):
        return [refused(f"{paths!r} is an input reader of the old stack: name the recorded files")]
    return [became("offline_data.input_", paths)]


def _input_config(value: Any, context: Context) -> list[Outcome]:
    return [
        ignored("its paths are offline_data.input_" if context.config.get("input") else "no input is set")
    ]


def _output(value: Any, _: Context) -> list[Outcome]:
    if not value:
        return [ignored("none given")]
    if value == "logdir":
        return [refused("write the folder's name: recorded episodes are kept apart from the run")]
    return [became("offline_data.output", value)]


def _evaluation_config(value: Any, context: Context) -> list[Outcome]:
    """Its keys are those of `config`, and their names changed alike."""
    found = []
    for key, inner in (value or {}).items():
        if key in (
            "input",
            "exploration_config",
            "num_workers",
            "num_rollout_workers",
            "evaluation_interval",
        ):
            found.append(ignored("an evaluation plays in the environment, by the policy's best actions", key))
            continue
        for outcome in outcomes(key, inner, context):
            values = {f"evaluation.evaluation_config.{_bare(k)}": v for k, v in outcome.values.items()}
            inner_key = f"{key}.{outcome.inner}" if outcome.inner else key
            found.append(Outcome(outcome.fate, values, outcome.why, outcome.changed, inner_key))
    return found or [ignored("empty")]


def _bare(dotted: str) -> str:
    """`environment.env_config.wind` as it is called inside evaluation_config."""
    section, _, rest = dotted.partition(".")
    return rest if section != "training" or not rest.startswith("model.") else f"model_config.{rest[6:]}"


def _evaluation_interval(value: Any, _: Context) -> list[Outcome]:
    return [became("evaluation.evaluation_interval", value or None)]


def _evaluation_parallel(value: Any, context: Context) -> list[Outcome]:
    runners = context.config.get("evaluation_num_workers") or context.config.get("evaluation_num_env_runners")
    if value and not runners:
        return [ignored("without evaluation workers there is nothing to run beside the training")]
    return [became("evaluation.evaluation_parallel_to_training", bool(value))]


def _evaluation_function(value: Any, _: Context) -> list[Outcome]:
    return [became("evaluation.custom_evaluation_function", value) if value else ignored("none given")]


def _optimizer(value: Any, context: Context) -> list[Outcome]:
    if not value or not isinstance(value, Mapping):
        return [ignored("none given")]
    renamed = {"adam_epsilon": "epsilon", "eps": "epsilon", "alpha": "decay"}
    settings = {renamed.get(key, str(key)): inner for key, inner in value.items()}
    others = [key for key in settings if key not in ("type", "epsilon", "decay", "momentum", "weight_decay")]
    known = {key: inner for key, inner in settings.items() if key not in others}
    if known.get("type"):
        known["type"] = str(known["type"]).lower()
    why = "a setting of the optimiser classes that left with Ray 1.0"
    left = [ignored("the learning rate is lr" if key == "lr" else why, key) for key in others]
    return (_optimiser(known, context) if known else []) + left


def _optimiser(settings: dict[str, Any], context: Context) -> list[Outcome]:
    if context.algo in SEVERAL_NETWORKS:
        return [ignored(f"{context.algo} has an optimiser per network, of RLlib's own choice")]
    return [Outcome("translated", {f"training.optimizer.{key}": val for key, val in settings.items()})]


def _adam_epsilon(value: Any, context: Context) -> list[Outcome]:
    return _optimiser({"epsilon": value}, context) if value is not None else [ignored("none given")]


def _opt_type(value: Any, context: Context) -> list[Outcome]:
    if value in (None, "adam"):
        return [ignored("Adam, as always")]
    if value != "rmsprop":
        return [refused(f"{value!r} is no optimiser: adam or rmsprop")]
    given = context.config
    settings = {
        "type": "rmsprop",
        "decay": given.get("decay", 0.99),
        "momentum": given.get("momentum", 0.0),
        "epsilon": given.get("epsilon", 0.1),
    }
    return _optimiser(settings, context)


def _of_rmsprop(value: Any, context: Context) -> list[Outcome]:
    if context.algo == "DQN" and value is not None and isinstance(value, list):
        return [became("training.epsilon", value)]
    if context.config.get("opt_type") == "rmsprop":
        return [ignored("see opt_type")]
    return [ignored("only opt_type: rmsprop reads it")]


def _separate_optimizer(value: Any, __: Context) -> list[Outcome]:
    same = "Adam learns each weight by itself: one optimiser for both networks does the same"
    return [ignored(same if value else "off")]


def _value_rate(value: Any, context: Context) -> list[Outcome]:
    if not context.config.get("_separate_vf_optimizer") or value == context.config.get("lr", 0.0005):
        return [ignored("the same rate for both networks")]
    return [Outcome("translated", {}, "both networks learn at the rate of lr today", changed=True)]


def _flat_multiagent(key: str) -> Rule:
    def rule(value: Any, context: Context) -> list[Outcome]:
        found = nested.multiagent({key: value}, context)
        return [replace(outcome, inner=outcome.inner.removeprefix(key).lstrip(".")) for outcome in found]

    return rule


def _buffer_key(inner: str) -> Rule:
    def rule(value: Any, context: Context) -> list[Outcome]:
        if value in (None, _UNSET):
            return [ignored("none given")]
        found = nested.replay_buffer({inner: whole(value, "capacity")}, context)
        return [replace(outcome, inner="") for outcome in found]

    return rule


def _prioritised_key(inner: str) -> Rule:
    def rule(value: Any, context: Context) -> list[Outcome]:
        if context.config.get("prioritized_replay") is False or value == _UNSET:
            return [ignored("it belongs to prioritized_replay: true")]
        kind = "PrioritizedReplayBuffer"
        config = nested.replay_buffer({"type": kind, inner: value}, context)
        return [replace(outcome, inner="") for outcome in config if outcome.inner in (inner, "")]

    return rule


def _prioritised_replay(value: Any, context: Context) -> list[Outcome]:
    if value in (None, _UNSET) or context.algo not in TRAINING["replay_buffer_config"]:
        return [ignored("none given" if value in (None, _UNSET) else f"{context.algo} has no replay buffer")]
    return [nested.prioritised_replay(value)]


def _store_buffer(value: Any, _: Context) -> list[Outcome]:
    why = "the replay buffer is part of a checkpoint: without it a resume is not exact"
    return [became("checkpoint.replay_buffer", True, why) if value else ignored(why)]


def _hiddens(value: Any, context: Context) -> list[Outcome]:
    if context.algo != "DQN":
        return [ignored(f"{context.algo} has no such setting")]
    return [became("training.model.head_fcnet_hiddens", list(value or []))]


def _network(value: Any, context: Context) -> list[Outcome]:
    """DDPG's `actor_hiddens`, under the algorithm that takes its place."""
    return [became("training.model.fcnet_hiddens", list(value or []), changed=True)]


def _activation(value: Any, _: Context) -> list[Outcome]:
    return [became("training.model.fcnet_activation", value, changed=True)]


def _share_layers(value: Any, _: Context) -> list[Outcome]:
    unset = value in (None, _UNSET)
    return [ignored("none given") if unset else became("training.model.vf_share_layers", value)]


def _target_updates(value: Any, context: Context) -> list[Outcome]:
    changed = context.algo == "APPO"
    why = "counted in train batches today, in updates then" if changed else ""
    if context.algo not in TRAINING["target_network_update_freq"]:
        return [ignored(f"{context.algo} has no such setting")]
    return [became("training.target_network_update_freq", value, why, changed=changed)]


RULES: dict[str, Rule] = {
    "env": _env,
    "env_config": _env_config,
    "is_atari": _is_atari,
    "learner_class": _learner_class,
    "_learner_class": _learner_class,
    "env_task_fn": _task_fn,
    "model": nested.model,
    "model_config": nested.model,
    "Q_model": nested.two_models,
    "q_model_config": nested.two_models,
    "policy_model": nested.model,
    "policy_model_config": nested.model,
    "optimization": nested.optimization,
    "optimization_config": nested.optimization,
    "multiagent": nested.multiagent,
    "multi_agent": nested.multiagent,
    **{key: _flat_multiagent(key) for key in ("policies", "policy_mapping_fn", "policies_to_train")},
    "count_steps_by": _flat_multiagent("count_steps_by"),
    "replay_mode": _flat_multiagent("replay_mode"),
    "algorithm_config_overrides_per_module": _flat_multiagent("algorithm_config_overrides_per_module"),
    "exploration_config": nested.exploration,
    "replay_buffer_config": nested.replay_buffer,
    "buffer_size": _buffer_key("capacity"),
    "learning_starts": _buffer_key("learning_starts"),
    "prioritized_replay": _prioritised_replay,
    "prioritized_replay_alpha": _prioritised_key("prioritized_replay_alpha"),
    "prioritized_replay_beta": _prioritised_key("prioritized_replay_beta"),
    "store_buffer_in_checkpoints": _store_buffer,
    "train_batch_size": _batch,
    "rollout_fragment_length": _fragment,
    "sample_batch_size": _fragment,
    "sgd_minibatch_size": _minibatch,
    "minibatch_size": _minibatch,
    "_minibatch_size": _minibatch,
    "mini_batch_size_per_learner": _minibatch,
    "lr": _rate,
    "lr_schedule": _schedule_of("lr"),
    "entropy_coeff": _entropy,
    "entropy_coeff_schedule": _schedule_of("entropy_coeff"),
    "num_gpus": _gpus,
    "_fake_gpus": lambda value, _: [ignored("see num_gpus" if value else "off")],
    "observation_filter": _filter,
    "clip_rewards": _rewards,
    "horizon": _horizon,
    "remote_worker_envs": _remote_envs,
    "gym_env_vectorize_mode": lambda value, _: [
        became("rollouts.gym_env_vectorize_mode", str(value).lower()) if value else ignored("none given")
    ],
    "framework": _framework,
    "framework_str": _framework,
    "callbacks": _callbacks,
    "callbacks_class": _callbacks,
    "log_level": _log_level,
    "preprocessor_pref": _preprocessor,
    "input": _input,
    "input_": _input,
    "input_config": _input_config,
    "output": _output,
    "evaluation_config": _evaluation_config,
    "evaluation_interval": _evaluation_interval,
    "evaluation_parallel_to_training": _evaluation_parallel,
    "custom_eval_function": _evaluation_function,
    "custom_evaluation_function": _evaluation_function,
    "optimizer": _optimizer,
    "adam_epsilon": _adam_epsilon,
    "opt_type": _opt_type,
    "decay": _of_rmsprop,
    "momentum": _of_rmsprop,
    "epsilon": _of_rmsprop,
    "_separate_vf_optimizer": _separate_optimizer,
    "_lr_vf": _value_rate,
    "hiddens": _hiddens,
    "actor_hiddens": _network,
    "actor_hidden_activation": _activation,
    "critic_hiddens": lambda _, __: [ignored("actor and critics have one model section (actor_hiddens)")],
    "critic_hidden_activation": lambda _, __: [ignored("actor and critics have one model section")],
    "vf_share_layers": _share_layers,
    "target_network_update_freq": _target_updates,
    "target_update_frequency": _target_updates,
}
"""Key -> the function that decides its fate."""
