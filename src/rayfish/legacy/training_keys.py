"""Old settings of algorithms whose fate depends on their value: batches, rates, optimisers, replay, GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rayfish.algorithm.unused_keys import is_dead
from rayfish.experiment.sections import OFFLINE, SEVERAL_NETWORKS
from rayfish.legacy import nested_keys
from rayfish.legacy.key_tables import TRAINING, WHOLE
from rayfish.legacy.outcome import Context, Outcome, Rule, became, ignored, refused
from rayfish.models.options import ONLY_FOR


def placed(today: str, value: Any, context: Context) -> Outcome:
    """Under its name today, unless the algorithm has no such setting."""
    section, _, key = today.partition(".")
    missing = section == "training" and context.algo not in TRAINING.get(key, (context.algo,))
    if missing or is_dead(today, context.algo):
        return ignored(f"{context.algo} has no such setting")
    return became(today, whole(value, key))


def whole(value: Any, key: str) -> Any:
    """4000.0 and 1e6 as whole numbers where today's RLlib wants one."""
    countable = key.rpartition(".")[2] in WHOLE
    return int(value) if countable and isinstance(value, float) and value.is_integer() else value


def _training(key: str, value: Any, context: Context) -> Outcome:
    return placed(f"training.{key}", value, context)


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
    key, share = "training.train_batch_size_per_learner", max(1, int(value) // learners)
    return [placed(key, share, context) if is_dead(key, context.algo) else became(key, share, why)]


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
    if share is not None and value > share and not is_dead("training.minibatch_size", context.algo):
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


def _always(value: Any, context: Context) -> list[Outcome]:
    """GAE and V-trace, which cannot be switched off today."""
    if value is False and context.algo in _ADVANTAGES:
        return [refused(f"{context.algo} always uses {_ADVANTAGES[context.algo]} today: remove it")]
    if context.algo in _ADVANTAGES:
        return [Outcome("translated", {}, "on, as always today")]
    return [ignored(f"{context.algo} has no such setting")]


_ADVANTAGES = {"PPO": "GAE", "APPO": "V-trace", "IMPALA": "V-trace"}


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


def _buffer_key(inner: str) -> Rule:
    def rule(value: Any, context: Context) -> list[Outcome]:
        if value is None:
            return [ignored("none given")]
        found = nested_keys.replay_buffer({inner: whole(value, "capacity")}, context)
        return [replace(outcome, inner="") for outcome in found]

    return rule


def _prioritised_key(inner: str) -> Rule:
    def rule(value: Any, context: Context) -> list[Outcome]:
        if context.config.get("prioritized_replay") is False:
            return [ignored("it belongs to prioritized_replay: true")]
        kind = "PrioritizedReplayBuffer"
        config = nested_keys.replay_buffer({"type": kind, inner: value}, context)
        return [replace(outcome, inner="") for outcome in config if outcome.inner in (inner, "")]

    return rule


def _prioritised_replay(value: Any, context: Context) -> list[Outcome]:
    if value is None or context.algo not in TRAINING["replay_buffer_config"]:
        return [ignored("none given" if value is None else f"{context.algo} has no replay buffer")]
    return [nested_keys.prioritised_replay(value)]


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


def _share_layers(value: Any, context: Context) -> list[Outcome]:
    if context.algo not in ONLY_FOR["vf_share_layers"][0]:
        return [ignored(f"{context.algo} has no such setting")]
    return [ignored("none given") if value is None else became("training.model.vf_share_layers", value)]


def _target_updates(value: Any, context: Context) -> list[Outcome]:
    changed = context.algo == "APPO"
    why = "counted in train batches today, in updates then" if changed else ""
    if context.algo not in TRAINING["target_network_update_freq"]:
        return [ignored(f"{context.algo} has no such setting")]
    return [became("training.target_network_update_freq", value, why, changed=changed)]


RULES: dict[str, Rule] = {
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
    "use_gae": _always,
    "vtrace": _always,
    "num_gpus": _gpus,
    "_fake_gpus": lambda value, _: [ignored("see num_gpus" if value else "off")],
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
