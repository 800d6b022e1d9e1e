"""Old settings of algorithms whose fate depends on their value: batches, rates, optimisers, replay, GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rayfish.algorithm.unused_keys import is_dead
from rayfish.experiment.sections import OFFLINE, SEVERAL_NETWORKS
from rayfish.legacy import nested_keys
from rayfish.legacy.key_tables import TRAINING, WHOLE
from rayfish.legacy.outcome import Context, Outcome, Rule, became, ignored, no_setting, refused
from rayfish.models.options import ONLY_FOR


def placed(today: str, value: Any, context: Context) -> Outcome:
    """Under its name today, unless the algorithm has no such setting."""
    section, _, key = today.partition(".")
    missing = section == "training" and context.algo not in TRAINING.get(key, (context.algo,))
    if missing or is_dead(today, context.algo):
        return no_setting(context)
    return became(today, whole(value, key))


def whole(value: Any, key: str) -> Any:
    """4000.0 and 1e6 as whole numbers where today's RLlib wants one."""
    countable = key.rpartition(".")[2] in WHOLE
    return int(value) if countable and isinstance(value, float) and value.is_integer() else value


def learners_of(config: Mapping[str, Any]) -> int:
    """How many learners an old file asks for: as many as GPUs, or by their own key."""
    for key in ("num_learners", "num_learner_workers", "num_trainer_workers"):
        if config.get(key):
            return int(config[key])
    return max(1, int(config.get("num_gpus") or 0))


def _batch(value: Any, context: Context) -> Outcome:
    if value is None:
        return ignored()
    learners = learners_of(context.config)
    why = f"{value} shared by {learners} learners" if learners > 1 else ""
    key, share = "training.train_batch_size_per_learner", max(1, int(value) // learners)
    return no_setting(context) if is_dead(key, context.algo) else became(key, share, why)


def _fragment(value: Any, context: Context) -> Outcome:
    key = "rollouts.rollout_fragment_length"
    if context.algo == "PPO" and value != "auto":
        return became(key, "auto", "PPO's runners share a batch evenly today", changed=True)
    if context.algo in OFFLINE:
        return ignored(f"{context.algo} learns from recorded data")
    return became(key, whole(value, key) if value is not None else "auto")


def _minibatch(value: Any, context: Context) -> Outcome:
    if value in (None, "auto"):
        return ignored()
    key, value = "training.minibatch_size", whole(value, "minibatch_size")
    batch = context.config.get("train_batch_size")
    share = int(batch) // learners_of(context.config) if isinstance(batch, int | float) else None
    if share is not None and value > share and not is_dead(key, context.algo):
        why = f"a minibatch is no larger than the batch ({share} per learner)"
        return became(key, share, why, changed=True)
    return placed(key, value, context)


def _rate(value: Any, context: Context) -> Outcome:
    if context.config.get("lr_schedule"):
        return ignored("lr_schedule holds")
    if context.algo in SEVERAL_NETWORKS:
        return ignored(f"{context.algo} has one rate per network (optimization), as it had then")
    return became("training.lr", value) if value is not None else ignored()


def _schedule_of(today: str) -> Rule:
    def rule(value: Any, context: Context) -> Outcome:
        if not value:
            return ignored()
        if today == "lr" and context.algo in SEVERAL_NETWORKS:
            return refused(f"{context.algo} has one rate per network: give actor_lr a schedule by hand")
        points, why = [[int(step), rate] for step, rate in value], ""
        if points[0][0] != 0:
            points, why = [[0, points[0][1]], *points], "a schedule begins at step 0, with its first value"
        points = points if len(points) > 1 else [*points, [points[0][0] + 1, points[0][1]]]
        if context.algo not in TRAINING.get(today, (context.algo,)):
            return no_setting(context)
        return became(f"training.{today}", points, why, changed=bool(why))

    return rule


def _entropy(value: Any, context: Context) -> Outcome:
    if context.config.get("entropy_coeff_schedule"):
        return ignored("entropy_coeff_schedule holds")
    return placed("training.entropy_coeff", value, context)


def _always(value: Any, context: Context) -> Outcome:
    """GAE and V-trace, which cannot be switched off today."""
    method = {"PPO": "GAE", "APPO": "V-trace", "IMPALA": "V-trace"}.get(context.algo)
    if method is None:
        return no_setting(context)
    if value is False:
        return refused(f"{context.algo} always uses {method} today: remove it")
    return Outcome("translated", {}, "on, as always today")


def _gpus(value: Any, context: Context) -> Outcome:
    if context.config.get("_fake_gpus"):
        count = int(value or 0)
        why = "_fake_gpus: learners on the CPU in place of GPUs"
        return became("learners.num_learners", count if count > 1 else 0, why)
    if value and (context.config.get("num_learner_workers") or context.config.get("num_learners")):
        return ignored("the learners' own GPUs are named beside it")
    return became("resources.num_gpus", value or 0)


def _optimizer(value: Any, context: Context) -> list[Outcome]:
    if not value or not isinstance(value, Mapping):
        return [ignored()]
    renamed = {"adam_epsilon": "epsilon", "eps": "epsilon", "alpha": "decay"}
    settings = {renamed.get(key, str(key)): inner for key, inner in value.items()}
    others = [key for key in settings if key not in ("type", "epsilon", "decay", "momentum", "weight_decay")]
    known = {key: inner for key, inner in settings.items() if key not in others}
    if known.get("type"):
        known["type"] = str(known["type"]).lower()
    why = "a setting of the optimiser classes that left with Ray 1.0"
    left = [ignored("the learning rate is lr" if key == "lr" else why, key) for key in others]
    return [_optimiser(known, context), *left] if known else left


def _optimiser(settings: dict[str, Any], context: Context) -> Outcome:
    if context.algo in SEVERAL_NETWORKS:
        return ignored(f"{context.algo} has an optimiser per network, of RLlib's own choice")
    return Outcome("translated", {f"training.optimizer.{key}": val for key, val in settings.items()})


def _opt_type(value: Any, context: Context) -> Outcome:
    if value in (None, "adam"):
        return ignored("Adam, as always")
    if value != "rmsprop":
        return refused(f"{value!r} is no optimiser: adam or rmsprop")
    then = {"decay": 0.99, "momentum": 0.0, "epsilon": 0.1}
    given = {key: context.config.get(key, default) for key, default in then.items()}
    return _optimiser({"type": "rmsprop", **given}, context)


def _of_rmsprop(value: Any, context: Context) -> Outcome:
    if context.algo == "DQN" and isinstance(value, list):
        return became("training.epsilon", value)
    if context.config.get("opt_type") == "rmsprop":
        return ignored("see opt_type")
    return ignored("only opt_type: rmsprop reads it")


def _value_rate(value: Any, context: Context) -> Outcome:
    if not context.config.get("_separate_vf_optimizer") or value == context.config.get("lr", 0.0005):
        return ignored("the same rate for both networks")
    return Outcome("translated", {}, "both networks learn at the rate of lr today", changed=True)


def _buffer_key(inner: str) -> Rule:
    """One key of `replay_buffer_config` that stood beside it."""

    def rule(value: Any, context: Context) -> list[Outcome]:
        if value is None:
            return [ignored()]
        found = nested_keys.replay_buffer({inner: whole(value, "capacity")}, context)
        return [replace(outcome, inner="") for outcome in found]

    return rule


def _prioritised_key(inner: str) -> Rule:
    def rule(value: Any, context: Context) -> list[Outcome]:
        if context.config.get("prioritized_replay") is False:
            return [ignored("it belongs to prioritized_replay: true")]
        found = nested_keys.replay_buffer({"type": "PrioritizedReplayBuffer", inner: value}, context)
        return [replace(outcome, inner="") for outcome in found if outcome.inner in (inner, "")]

    return rule


def _prioritised_replay(value: Any, context: Context) -> Outcome:
    if value is None:
        return ignored()
    if not nested_keys.has(context, "replay_buffer_config"):
        return ignored(f"{context.algo} has no replay buffer")
    return nested_keys.prioritised_replay(value)


def _store_buffer(value: Any, _: Context) -> Outcome:
    why = "the replay buffer is part of a checkpoint: without it a resume is not exact"
    return became("checkpoint.replay_buffer", True, why) if value else ignored(why)


def _hiddens(value: Any, context: Context) -> Outcome:
    if context.algo != "DQN":
        return no_setting(context)
    return became("training.model.head_fcnet_hiddens", list(value or []))


def _share_layers(value: Any, context: Context) -> Outcome:
    if context.algo not in ONLY_FOR["vf_share_layers"][0]:
        return no_setting(context)
    return ignored() if value is None else became("training.model.vf_share_layers", value)


def _target_updates(value: Any, context: Context) -> Outcome:
    if not nested_keys.has(context, "target_network_update_freq"):
        return no_setting(context)
    changed = context.algo == "APPO"
    why = "counted in train batches today, in updates then" if changed else ""
    return became("training.target_network_update_freq", value, why, changed=changed)


_ONE_ADAM = "Adam learns each weight by itself: one optimiser for both networks does the same"
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
    "_fake_gpus": lambda value, _: ignored("see num_gpus" if value else "off"),
    "optimizer": _optimizer,
    "adam_epsilon": lambda value, context: (
        _optimiser({"epsilon": value}, context) if value is not None else ignored()
    ),
    "opt_type": _opt_type,
    "decay": _of_rmsprop,
    "momentum": _of_rmsprop,
    "epsilon": _of_rmsprop,
    "_separate_vf_optimizer": lambda value, _: ignored(_ONE_ADAM if value else "off"),
    "_lr_vf": _value_rate,
    "hiddens": _hiddens,
    # DDPG's network, under the algorithm that takes its place.
    "actor_hiddens": lambda value, _: became("training.model.fcnet_hiddens", list(value or []), changed=True),
    "actor_hidden_activation": lambda value, _: became(
        "training.model.fcnet_activation", value, changed=True
    ),
    "critic_hiddens": lambda _, __: ignored("actor and critics have one model section (actor_hiddens)"),
    "critic_hidden_activation": lambda _, __: ignored("actor and critics have one model section"),
    "vf_share_layers": _share_layers,
    "target_network_update_freq": _target_updates,
    "target_update_frequency": _target_updates,
}
"""Key -> the function that decides its fate."""
