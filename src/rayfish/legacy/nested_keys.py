"""Old keys that hold keys of their own: `model`, `multiagent`, `exploration_config`, replay buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayfish.errors import did_you_mean
from rayfish.experiment.sections import PER_POLICY
from rayfish.legacy.env_names import needs_ale
from rayfish.legacy.key_tables import (
    EPISODE_BUFFERS,
    EXPLORATION,
    EXPLORATION_GONE,
    MODEL_IGNORED,
    MODEL_OFF_ONLY,
    MODEL_SAME,
    OLD_BUFFERS,
    OPTIMIZATION,
    REPLAY_IGNORED,
    TRAINING,
)
from rayfish.legacy.outcome import (
    Context,
    Outcome,
    became,
    ignored,
    no_setting,
    refused,
    unknown,
    unless_off,
)
from rayfish.models.options import MODEL_RENAMED, ONLY_FOR

_IMAGES = ("framestack", "num_framestacks", "dim", "grayscale", "zero_mean")
_LAST = {
    "lstm_use_prev_action": ("environment.observe_last_action",),
    "lstm_use_prev_reward": ("environment.observe_last_reward",),
    "lstm_use_prev_action_reward": ("environment.observe_last_action", "environment.observe_last_reward"),
}
_ATTENTION = "attention networks are gone from RLlib: write use_lstm: true in its place, or a custom_model"
_TF_MODEL = (
    "TensorFlow models do not run on RLlib's new stack: rewrite the class as a torch.nn.Module whose "
    "forward(obs) gives (logits, value); file and config stay"
)
_BUFFER = "training.replay_buffer_config"
_MULTIAGENT_IGNORED = (
    *("observation_fn", "replay_mode", "policy_map_capacity", "policy_map_cache"),
    "policy_states_are_swappable",
)


def has(context: Context, key: str) -> bool:
    """Whether today's algorithm reads this setting of `training`."""
    return context.algo in TRAINING.get(key, ())


def model(value: Any, context: Context) -> list[Outcome]:
    """`model: {...}`, key by key."""
    if not isinstance(value, Mapping):
        return [refused("write keys and values: model: {...}") if value else ignored("empty")]
    found = [_model_key(key, inner, value, context) for key, inner in value.items() if key not in _IMAGES]
    images = {key: value[key] for key in _IMAGES if key in value}
    found += [_images(images, context)] if images else []
    return found or [ignored("empty")]


def _model_key(key: str, value: Any, section: Mapping[str, Any], context: Context) -> Outcome:
    if key in _LAST:
        why = "an environment wrapper puts them into the observation"
        values = dict.fromkeys(_LAST[key], True)
        return Outcome("translated", values, why, inner=key) if value is True else ignored("off", key)
    if key == "use_attention" or key.startswith("attention_"):
        return _attention(key, value, section, context)
    if key == "custom_model":
        if ".tf." in f".{value}." or "tensorflow" in str(value).lower():
            return refused(_TF_MODEL, key)
        return became("training.model.custom_model", value, inner=key) if value else ignored(inner=key)
    if key in MODEL_IGNORED:
        return ignored(MODEL_IGNORED[key], key)
    if key in MODEL_OFF_ONLY:
        return unless_off(key, value, MODEL_OFF_ONLY[key], key)
    if key.endswith("activation") and value is None:
        value = "linear"  # what null meant then; today it would be the default
    today = MODEL_RENAMED.get(key, key)
    if context.algo == "DreamerV3" or context.algo not in ONLY_FOR.get(today, ((context.algo,), ""))[0]:
        return no_setting(context, key)
    if key in MODEL_RENAMED or key in MODEL_SAME:
        return became(f"training.model.{today}", value, inner=key)
    close = did_you_mean(key, [*MODEL_SAME, *MODEL_RENAMED])
    meant = f"did you mean {close[0]}?" if close else "remove it, or put it into custom_model_config"
    return refused(f"no Ray from 1.9 to 2.9 has a model key {key!r}: {meant}", key)


def _attention(key: str, value: Any, section: Mapping[str, Any], context: Context) -> Outcome:
    if not section.get("use_attention"):
        return ignored("off (use_attention is not true)", key)
    if not context.closest:
        return refused(_ATTENTION, key) if key == "use_attention" else ignored("see use_attention", key)
    if key == "use_attention":
        return became("training.model.use_lstm", True, "--closest: an LSTM remembers too", inner=key)
    if key == "attention_dim":
        return became("training.model.lstm_cell_size", value, "--closest", inner=key)
    return ignored("--closest: an LSTM has no such setting", key)


def _images(keys: dict[str, Any], context: Context) -> Outcome:
    """Old RLlib preprocessed Atari's images by these; other environments' were left alone."""
    names = ", ".join(keys)
    preference = context.config.get("preprocessor_pref", "deepmind")
    if not is_atari(context.env) or not preference:
        return ignored("only Atari's images were preprocessed by these", names)
    if preference != "deepmind":
        return ignored("see preprocessor_pref", names)
    stack = keys.get("num_framestacks", keys.get("framestack"))
    if isinstance(stack, bool):
        stack = 4 if stack else 1
    found = {"dim": keys.get("dim"), "framestack": None if stack == "auto" else stack}
    values = {f"environment.atari.{key}": value for key, value in found.items() if value is not None}
    if not values:
        return ignored("DeepMind's preprocessing is grey and unscaled, whatever these say", names)
    return Outcome("translated", values, inner=names)


def is_atari(env: str) -> bool:
    """Whether an environment's name is that of an Atari game with images."""
    return needs_ale(env) and "-ram" not in env


def two_models(value: Any, context: Context) -> list[Outcome]:
    """SAC's `Q_model` and `policy_model`: one section serves both today; where they differ, the actor's."""
    outcomes = model(value, context)
    actor = context.config.get("policy_model", context.config.get("policy_model_config"))
    if not isinstance(actor, Mapping) or not isinstance(value or {}, Mapping) or actor == (value or {}):
        return outcomes
    why = "actor and critics have one model section today, which takes policy_model's value"
    return [
        Outcome("translated", {}, why, changed=True, inner=outcome.inner)
        if outcome.fate == "translated" and actor.get(outcome.inner) is not None
        else outcome
        for outcome in outcomes
    ]


def replay_buffer(value: Any, context: Context) -> list[Outcome]:
    """`replay_buffer_config: {...}`."""
    if not isinstance(value, Mapping):
        what = f"replay_buffer_config is {value!r}: it holds keys and values"
        return [refused(what) if value else ignored("empty")]
    if not has(context, "replay_buffer_config"):
        return [ignored(f"{context.algo} has no replay buffer")]
    found = [_buffer_key(key, inner, value, context) for key, inner in value.items()]
    return found or [ignored("empty")]


def _buffer_key(key: str, value: Any, section: Mapping[str, Any], context: Context) -> Outcome:
    if key == "type":
        return _buffer_type(value)
    if key == "capacity":
        return became(f"{_BUFFER}.capacity", value, inner=key)
    if key in ("prioritized_replay_alpha", "alpha", "prioritized_replay_beta", "beta"):
        # They belong to the prioritised buffer; the uniform one takes neither.
        kind = str(section.get("type", "Prioritized" if context.algo == "DQN" else ""))
        if section.get("prioritized_replay") is False or "Prioritized" not in kind:
            return ignored("it belongs to a prioritised buffer", key)
        return became(f"{_BUFFER}.{key.removeprefix('prioritized_replay_')}", value, inner=key)
    if key in ("learning_starts", "min_size_for_sampling"):
        today = "num_steps_sampled_before_learning_starts"
        if value is None:
            return ignored(inner=key)
        if not has(context, today):
            return ignored(f"{context.algo} learns at once", key)
        return became(f"training.{today}", value, inner=key)
    if key == "prioritized_replay" and isinstance(value, bool):
        return prioritised_replay(value, key)
    if key in ("batch_size_B", "batch_length_T") and context.algo == "DreamerV3":
        return became(f"training.{key}", value, inner=key)
    if key in REPLAY_IGNORED:
        return ignored("today's buffers keep whole episodes and have no such setting", key)
    return unknown(key, "replay_buffer_config", ("type", "capacity", *REPLAY_IGNORED))


def _buffer_type(value: Any) -> Outcome:
    """A buffer by the name of its class; today's keep episodes."""
    name = str(value).rpartition(".")[2]
    if isinstance(value, str) and name in EPISODE_BUFFERS:
        return became(f"{_BUFFER}.type", name, inner="type")
    if not isinstance(value, str) or name not in OLD_BUFFERS:
        return refused(f"{value!r} is no buffer of RLlib: remove type, or write one of today's", "type")
    kind, odd = EPISODE_BUFFERS["Prioritized" in name], name.startswith(("Reservoir", "Fifo"))
    why = "today's buffers keep whole episodes, the newest" if odd else "today's buffers keep whole episodes"
    return became(f"{_BUFFER}.type", kind, why, changed=odd, inner="type")


def prioritised_replay(value: Any, inner: str = "") -> Outcome:
    """`prioritized_replay: true|false`."""
    return became(f"{_BUFFER}.type", EPISODE_BUFFERS[bool(value)], inner=inner)


def optimization(value: Any, context: Context) -> list[Outcome]:
    """SAC's learning rates, one per network."""
    found = []
    for key, rate in (value or {}).items():
        today = OPTIMIZATION.get(key.partition("_")[0])
        if today is None:
            found.append(refused(f"optimization has no {key!r}: remove it", key))
        elif has(context, today):
            found.append(became(f"training.{today}", rate, inner=key))
        else:
            found.append(ignored(f"{context.algo} has no such learning rate", key))
    return found or [ignored("empty")]


def exploration(value: Any, context: Context) -> Outcome:
    """`exploration_config: {type, ...}`."""
    section = dict(value or {})
    kind = str(section.get("type") or "").rpartition(".")[2]
    if not section:
        return ignored("empty")
    for key in section:
        if key not in EXPLORATION:
            return unknown(key, "exploration_config", EXPLORATION)
    if kind in ("", "EpsilonGreedy", "PerWorkerEpsilonGreedy") and context.algo == "DQN":
        return _epsilon(section, kind)
    if context.algo == "DQN" and kind in ("SoftQ", "StochasticSampling"):
        values = {"type": "SoftQ", "temperature": section.get("temperature", 1.0)}
        return Outcome("translated", {f"exploration.exploration_config.{k}": v for k, v in values.items()})
    if kind in ("StochasticSampling", "EpsilonGreedy") or "type" not in section:
        return _sampling(section, context)
    if context.closest and isinstance(section.get("sub_exploration"), Mapping):
        return exploration(section["sub_exploration"], context)
    if context.closest:
        return ignored(f"--closest: {context.algo} explores in its own way", "type")
    hint = EXPLORATION_GONE.get(kind, "remove exploration_config, and the algorithm explores in its own way")
    return refused(f"{kind} exploration is gone from RLlib: {hint}", "type")


def _epsilon(section: Mapping[str, Any], kind: str) -> Outcome:
    """DQN's schedule; what the file leaves out is what DQN took by default then."""
    if section.get("epsilon_schedule"):
        return refused("a schedule object cannot be written in YAML: use initial_epsilon and so on")
    several = kind == "PerWorkerEpsilonGreedy"
    why = "every runner follows one schedule today; they had one each" if several else ""
    return became("training.epsilon", epsilon_schedule(section), why, changed=several)


def epsilon_schedule(section: Mapping[str, Any]) -> list[list[Any]]:
    """EpsilonGreedy's `exploration_config` as [step, epsilon] points."""
    first, last = section.get("initial_epsilon", 1.0), section.get("final_epsilon", 0.02)
    warmup, steps = int(section.get("warmup_timesteps") or 0), int(section.get("epsilon_timesteps", 10_000))
    return [[0, first], *([[warmup, first]] if warmup else []), [warmup + max(1, steps), last]]


def _sampling(section: Mapping[str, Any], context: Context) -> Outcome:
    if section.get("type") == "EpsilonGreedy" and context.closest:
        return ignored(f"--closest: {context.algo} samples from its policy", "type")
    if section.get("type") == "EpsilonGreedy":
        return refused(f"EpsilonGreedy is DQN's; {context.algo} samples from its policy: remove it", "type")
    if section.get("random_timesteps"):
        why = f"{context.algo} samples from its policy from the first step; random_timesteps is gone"
        return Outcome("translated", {}, why, changed=True)
    return ignored("what the algorithm does by itself")


def multiagent(value: Any, context: Context) -> list[Outcome]:
    """`multiagent: {policies, policy_mapping_fn, ...}`."""
    found: list[Outcome] = []
    for key, inner in (value or {}).items():
        if key == "policies":
            found += _policies(inner, context)
        elif key == "algorithm_config_overrides_per_module":
            found += _policies({name: {"config": config} for name, config in (inner or {}).items()}, context)
        else:
            found.append(_multiagent_key(key, inner))
    return found or [ignored("empty")]


def _multiagent_key(key: str, value: Any) -> Outcome:
    if key == "policy_mapping_fn":
        return _mapping(value)
    if key in ("policies_to_train", "count_steps_by"):
        same = became(f"multi_agent.{key}", value, inner=key)
        return ignored("all of them", key) if value is None else same
    if key == "replay_mode" and value == "lockstep":
        return refused("agents' steps are replayed one by one today: remove replay_mode", key)
    if key == "observation_fn" and value:
        why = "observations are changed by connectors: name one in rollouts.env_to_module_connector"
        return refused(why, key)
    if key in _MULTIAGENT_IGNORED:
        return ignored("without meaning on today's stack", key)
    return unknown(key, "multiagent", ("policies", "policy_mapping_fn", "policies_to_train"))


def _mapping(value: Any) -> Outcome:
    key = "policy_mapping_fn"
    path = value.get("type") if isinstance(value, Mapping) else value
    if not path:
        return ignored(inner=key)
    if not isinstance(path, str) or "lambda" in path or " " in path.strip():
        return refused("code in YAML is not run: name a function (my_file.py:mapping), or use mapping", key)
    return became("multi_agent.policy_mapping_fn", path.strip(), inner=key)


def _policies(value: Any, context: Context) -> list[Outcome]:
    if not value:
        return [ignored("one policy for all", "policies")]
    if isinstance(value, list | tuple | set):
        return [became("multi_agent.policies", [str(name) for name in value], inner="policies")]
    decided = {str(name): _policy(f"policies.{name}", spec, context) for name, spec in value.items()}
    policies = {name: settings for name, (settings, _) in decided.items()}
    today = policies if any(policies.values()) else list(policies)
    found = [outcome for _, outcomes in decided.values() for outcome in outcomes]
    return [became("multi_agent.policies", today, inner="policies"), *found]


def _policy(inner: str, spec: Any, context: Context) -> tuple[dict[str, Any], list[Outcome]]:
    """One policy: null, [class, observations, actions, config] or a dict of these."""
    if isinstance(spec, list | tuple):
        names = ("policy_class", "observation_space", "action_space", "config")
        spec = dict(zip(names, spec, strict=False))
    if not isinstance(spec, Mapping):
        return {}, []
    if spec.get("policy_class"):
        return {}, [refused("a policy class of the old stack: name a module in model.custom_model", inner)]
    config = dict(spec.get("config") or {k: v for k, v in spec.items() if k in ("model", "gamma", "lr")})
    settings: dict[str, Any] = {}
    found: list[Outcome] = []
    own_model = config.pop("model", None)
    for outcome in model(own_model, context) if own_model else ():
        for dotted, val in outcome.values.items():
            settings.setdefault("model", {})[dotted.removeprefix("training.model.")] = val
        if outcome.fate != "translated":
            found.append(Outcome(outcome.fate, {}, outcome.why, inner=f"{inner}.{outcome.inner}"))
    for key, val in config.items():
        today = "lambda_" if key == "lambda" else key
        place = f"{inner}.{key}"
        if today in PER_POLICY and (today == "lr" or has(context, today)):
            settings[today] = val
        elif key == "agent_id":
            found.append(ignored("the mapping tells who uses a policy", place))
        elif val in (None, {}, []) or val == context.config.get(key):
            found.append(ignored("the same for all policies", place))
        elif today in TRAINING and not has(context, today):
            found.append(no_setting(context, place))
        else:
            found.append(refused(f"all policies share {key} today: set it once, in config", place))
    return settings, found
