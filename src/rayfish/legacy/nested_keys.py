"""Old keys that hold keys of their own: `model`, `multiagent`, `exploration_config`, replay buffers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rayfish.errors import did_you_mean
from rayfish.experiment.sections import PER_POLICY
from rayfish.legacy.env_names import needs_ale
from rayfish.legacy.key_tables import (
    MODEL_IGNORED,
    MODEL_OFF_ONLY,
    REPLAY_IGNORED,
    TRAINING,
)
from rayfish.legacy.outcome import Context, Outcome, became, ignored, refused, unless_off
from rayfish.models.options import MODEL_RENAMED, ONLY_FOR

_SAME_IN_MODEL = (
    "fcnet_hiddens",
    "fcnet_activation",
    "fcnet_bias_initializer",
    "conv_filters",
    "conv_activation",
    "conv_kernel_initializer",
    "conv_bias_initializer",
    "free_log_std",
    "log_std_clip_param",
    "vf_share_layers",
    "use_lstm",
    "lstm_cell_size",
    "lstm_bias_initializer",
    "max_seq_len",
    "head_fcnet_hiddens",
    "head_fcnet_activation",
    "fcnet_kernel_initializer",
    "fcnet_use_layernorm",
    "custom_model_config",
)
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


def model(value: Any, context: Context) -> list[Outcome]:
    """`model: {...}`, key by key."""
    if not isinstance(value, Mapping):
        return [ignored("empty")] if not value else [refused("write keys and values: model: {...}")]
    found = [outcome for key, inner in value.items() for outcome in _model_key(key, inner, value, context)]
    images = {key: value[key] for key in _IMAGES if key in value}
    found += [_images(images, context)] if images else []
    return found or [ignored("empty")]


def _model_key(key: str, value: Any, section: Mapping[str, Any], context: Context) -> list[Outcome]:
    home = "training.model"
    if key in _IMAGES:
        return []
    if key in _LAST:
        if value is not True:
            return [ignored("off", key)]
        why = "an environment wrapper puts them into the observation"
        return [Outcome("translated", dict.fromkeys(_LAST[key], True), why, inner=key)]
    if key == "use_attention" or key.startswith("attention_"):
        return [_attention(key, value, section, context)]
    if key == "custom_model":
        return [_custom_model(value)]
    if key in MODEL_IGNORED:
        return [ignored(MODEL_IGNORED[key], key)]
    if key in MODEL_OFF_ONLY:
        return [unless_off(key, value, MODEL_OFF_ONLY[key], key)]
    if key.endswith("activation") and value is None:
        value = "linear"  # what null meant then; today it would be the default
    today = MODEL_RENAMED.get(key, key)
    if context.algo == "DreamerV3" or context.algo not in ONLY_FOR.get(today, ((context.algo,), ""))[0]:
        return [ignored(f"{context.algo} has no such setting", key)]
    if key in MODEL_RENAMED:
        return [became(f"{home}.{MODEL_RENAMED[key]}", value, inner=key)]
    if key in _SAME_IN_MODEL:
        return [became(f"{home}.{key}", value, inner=key)]
    close = did_you_mean(key, [*_SAME_IN_MODEL, *MODEL_RENAMED])
    meant = f"did you mean {close[0]}?" if close else "remove it, or put it into custom_model_config"
    return [refused(f"no Ray from 1.9 to 2.9 has a model key {key!r}: {meant}", key)]


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


def _custom_model(value: Any) -> Outcome:
    if not value:
        return ignored("none given", "custom_model")
    if ".tf." in f".{value}." or "tensorflow" in str(value).lower():
        return refused(_TF_MODEL, "custom_model")
    return became("training.model.custom_model", value, inner="custom_model")


def _images(keys: dict[str, Any], context: Context) -> Outcome:
    """Old RLlib preprocessed Atari's images by these; other environments' were left alone."""
    names = ", ".join(keys)
    preference = context.config.get("preprocessor_pref", "deepmind")
    if not is_atari(context.env) or not preference:
        return ignored("only Atari's images were preprocessed by these", names)
    if preference != "deepmind":
        return ignored("see preprocessor_pref", names)
    found = _atari(keys)
    if not found:
        return ignored("DeepMind's preprocessing is grey and unscaled, whatever these say", names)
    return Outcome("translated", {f"environment.atari.{k}": v for k, v in found.items()}, inner=names)


def _atari(keys: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if keys.get("dim") is not None:
        found["dim"] = keys["dim"]
    stack = keys.get("num_framestacks", keys.get("framestack"))
    if stack is not None and stack != "auto":
        found["framestack"] = {True: 4, False: 1}.get(stack, stack) if isinstance(stack, bool) else stack
    return found


def is_atari(env: str) -> bool:
    """Whether an environment's name is that of an Atari game with images."""
    return needs_ale(env) and "-ram" not in env


def two_models(value: Any, context: Context) -> list[Outcome]:
    """SAC's `Q_model` and `policy_model`: one section serves both today; where they differ, the actor's."""
    outcomes = model(value, context)
    other = context.config.get("policy_model", context.config.get("policy_model_config"))
    mine = value or {}
    if isinstance(other, Mapping) and other and isinstance(mine, Mapping) and dict(other) != dict(mine):
        return [_yield_to(outcome, other) for outcome in outcomes]
    return outcomes


def _yield_to(outcome: Outcome, actor: Mapping[str, Any]) -> Outcome:
    if outcome.fate != "translated" or actor.get(outcome.inner) is None:
        return outcome
    why = "actor and critics have one model section today, which takes policy_model's value"
    return Outcome("translated", {}, why, changed=True, inner=outcome.inner)


def replay_buffer(value: Any, context: Context) -> list[Outcome]:
    """`replay_buffer_config: {...}`."""
    if not isinstance(value, Mapping):
        return [
            refused(f"replay_buffer_config is {value!r}: it holds keys and values")
            if value
            else ignored("empty")
        ]
    if "replay_buffer_config" not in _settings(context.algo):
        return [ignored(f"{context.algo} has no replay buffer")]
    found = []
    for key, inner in value.items():
        if key == "type":
            found.append(buffer_type(inner))
        elif key == "capacity":
            found.append(became("training.replay_buffer_config.capacity", inner, inner=key))
        elif key in ("prioritized_replay_alpha", "alpha", "prioritized_replay_beta", "beta"):
            found.append(_prioritised(key, inner, value, context))
        elif key in ("learning_starts", "min_size_for_sampling"):
            found.append(_learning_starts(key, inner, context))
        elif key == "prioritized_replay" and isinstance(inner, bool):
            found.append(prioritised_replay(inner, key))
        elif key in ("batch_size_B", "batch_length_T") and context.algo == "DreamerV3":
            found.append(became(f"training.{key}", inner, inner=key))
        elif key in REPLAY_IGNORED:
            found.append(ignored("today's buffers keep whole episodes and have no such setting", key))
        else:
            found.append(unknown(key, "replay_buffer_config", ("type", "capacity", *REPLAY_IGNORED)))
    return found or [ignored("empty")]


def unknown(key: str, section: str, known: Iterable[str]) -> Outcome:
    """A key inside another that no Ray had: most likely a typo."""
    close = did_you_mean(str(key), known)
    meant = f"did you mean {close[0]}?" if close else "remove it"
    return refused(f"{section} has no key {key!r}: {meant}", str(key))


def buffer_type(value: Any) -> Outcome:
    """A buffer by the name of its class; today's keep episodes."""
    key, name = "training.replay_buffer_config.type", str(value).rpartition(".")[2]
    if isinstance(value, str) and name in _EPISODE_BUFFERS:
        return became(key, name, inner="type")
    if not isinstance(value, str) or name not in _OLD_BUFFERS:
        return refused(f"{value!r} is no buffer of RLlib: remove type, or write one of today's", "type")
    kind, odd = _EPISODE_BUFFERS["Prioritized" in name], name.startswith(("Reservoir", "Fifo"))
    why = "today's buffers keep whole episodes, the newest" if odd else "today's buffers keep whole episodes"
    return became(key, kind, why, changed=odd, inner="type")


_EPISODE_BUFFERS = ("EpisodeReplayBuffer", "PrioritizedEpisodeReplayBuffer")
_OLD_BUFFERS = (
    "ReplayBuffer",
    "PrioritizedReplayBuffer",
    "ReservoirReplayBuffer",
    "FifoReplayBuffer",
    "SimpleReplayBuffer",
    "LocalReplayBuffer",
    "MultiAgentReplayBuffer",
    "MultiAgentPrioritizedReplayBuffer",
    "MultiAgentMixInReplayBuffer",
    "ReplayActor",
)


def prioritised_replay(value: Any, inner: str = "") -> Outcome:
    """`prioritized_replay: true|false`."""
    return became("training.replay_buffer_config.type", _EPISODE_BUFFERS[bool(value)], inner=inner)


def _prioritised(key: str, value: Any, section: Mapping[str, Any], context: Context) -> Outcome:
    """alpha and beta belong to the prioritised buffer; the uniform one takes neither."""
    kind = str(section.get("type", "Prioritized" if context.algo == "DQN" else ""))
    if section.get("prioritized_replay") is False or "Prioritized" not in kind:
        return ignored("it belongs to a prioritised buffer", key)
    return became(
        f"training.replay_buffer_config.{key.removeprefix('prioritized_replay_')}", value, inner=key
    )


def _learning_starts(key: str, value: Any, context: Context) -> Outcome:
    today = "num_steps_sampled_before_learning_starts"
    if today not in _settings(context.algo) or value is None:
        return ignored(f"{context.algo} learns at once" if value is not None else "none given", key)
    return became(f"training.{today}", value, inner=key)


def _settings(algo: str) -> set[str]:
    return {key for key, owners in TRAINING.items() if algo in owners}


def optimization(value: Any, context: Context) -> list[Outcome]:
    """SAC's learning rates, one per network."""
    found = []
    for key, rate in (value or {}).items():
        today = {"actor": "actor_lr", "critic": "critic_lr", "entropy": "alpha_lr"}.get(key.partition("_")[0])
        if today is None:
            found.append(refused(f"optimization has no {key!r}: remove it", key))
        elif today in _settings(context.algo):
            found.append(became(f"training.{today}", rate, inner=key))
        else:
            found.append(ignored(f"{context.algo} has no such learning rate", key))
    return found or [ignored("empty")]


def exploration(value: Any, context: Context) -> list[Outcome]:
    """`exploration_config: {type, ...}`."""
    section = dict(value or {})
    kind = str(section.get("type") or "").rpartition(".")[2]
    if not section:
        return [ignored("empty")]
    strange = [key for key in section if key not in _EXPLORATION_KEYS]
    if strange:
        return [unknown(strange[0], "exploration_config", _EXPLORATION_KEYS)]
    if kind in ("", "EpsilonGreedy", "PerWorkerEpsilonGreedy") and context.algo == "DQN":
        return [_epsilon(section, kind)]
    if context.algo == "DQN" and kind in ("SoftQ", "StochasticSampling"):
        values = {"type": "SoftQ", "temperature": section.get("temperature", 1.0)}
        return [Outcome("translated", {f"exploration.exploration_config.{k}": v for k, v in values.items()})]
    if kind in ("StochasticSampling", "EpsilonGreedy") or (not kind and "type" not in section):
        return [_sampling(section, context)]
    sub = section.get("sub_exploration")
    if context.closest:
        if isinstance(sub, Mapping):
            return exploration(sub, context)
        return [ignored(f"--closest: {context.algo} explores in its own way", "type")]
    return [refused(f"{kind} exploration is gone from RLlib: {_INSTEAD.get(kind, _REMOVE)}", "type")]


_EXPLORATION_KEYS = (
    *(
        "type",
        "initial_epsilon",
        "final_epsilon",
        "warmup_timesteps",
        "epsilon_timesteps",
        "epsilon_schedule",
    ),
    *("random_timesteps", "temperature", "stddev", "initial_scale", "final_scale", "scale_timesteps"),
    *("scale_schedule", "ou_theta", "ou_sigma", "ou_base_scale", "initial_stddev", "sub_exploration"),
    *("feature_dim", "feature_net_config", "inverse_net_hiddens", "inverse_net_activation"),
    *("forward_net_hiddens", "forward_net_activation", "beta", "eta", "lr", "embeds_dim"),
    *("encoder_net_config", "beta_schedule", "rho", "k_nn", "framework", "num_workers", "worker_index"),
)
"""Keys of all kinds of exploration that old RLlib had."""

_REMOVE = "remove exploration_config, and the algorithm explores in its own way"
_INSTEAD = {
    "Random": "an agent that acts at random needs no training: `rayfish env check` plays one",
    "ParameterNoise": "for DQN write {type: EpsilonGreedy, epsilon_timesteps: 10000}",
    "Curiosity": "write a callback or connector that adds the intrinsic reward, or use DreamerV3",
    "RE3": "write a callback or connector that adds the intrinsic reward, or use DreamerV3",
    "GaussianNoise": "SAC explores by its own entropy; remove exploration_config",
    "OrnsteinUhlenbeckNoise": "SAC explores by its own entropy; remove exploration_config",
}


def _epsilon(section: Mapping[str, Any], kind: str) -> Outcome:
    """DQN's schedule; what the file leaves out is what DQN took by default then."""
    if section.get("epsilon_schedule"):
        return refused("a schedule object cannot be written in YAML: use initial_epsilon and so on")
    points = epsilon_schedule(section)
    if kind == "PerWorkerEpsilonGreedy":
        why = "every runner follows one schedule today; they had one each"
        return became("training.epsilon", points, why, changed=True)
    return became("training.epsilon", points)


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
        elif key == "policy_mapping_fn":
            found.append(_mapping(inner))
        elif key in ("policies_to_train", "count_steps_by"):
            today = became(f"multi_agent.{key}", inner, inner=key)
            found.append(ignored("all of them", key) if inner is None else today)
        elif key == "replay_mode" and inner == "lockstep":
            found.append(refused("agents' steps are replayed one by one today: remove replay_mode", key))
        elif key == "observation_fn" and inner:
            why = "observations are changed by connectors: name one in rollouts.env_to_module_connector"
            found.append(refused(why, key))
        elif key == "algorithm_config_overrides_per_module":
            found += _policies({name: {"config": config} for name, config in (inner or {}).items()}, context)
        elif key in _MULTIAGENT_IGNORED:
            found.append(ignored("without meaning on today's stack", key))
        else:
            found.append(unknown(key, "multiagent", ("policies", "policy_mapping_fn", "policies_to_train")))
    return found or [ignored("empty")]


_MULTIAGENT_IGNORED = (
    "observation_fn",
    "replay_mode",
    "policy_map_capacity",
    "policy_map_cache",
    "policy_states_are_swappable",
)


def _mapping(value: Any) -> Outcome:
    key = "policy_mapping_fn"
    path = value.get("type") if isinstance(value, Mapping) else value
    if not path:
        return ignored("none given", key)
    if not isinstance(path, str) or "lambda" in path or " " in path.strip():
        return refused("code in YAML is not run: name a function (my_file.py:mapping), or use mapping", key)
    return became("multi_agent.policy_mapping_fn", path.strip(), inner=key)


def _policies(value: Any, context: Context) -> list[Outcome]:
    if not value:
        return [ignored("one policy for all", "policies")]
    if isinstance(value, list | tuple | set):
        return [became("multi_agent.policies", [str(name) for name in value], inner="policies")]
    policies: dict[str, Any] = {}
    found: list[Outcome] = []
    for name, spec in value.items():
        settings, outcomes = _policy(str(name), spec, context)
        policies[str(name)] = settings
        found += outcomes
    plain = not any(policies.values())
    return [became("multi_agent.policies", list(policies) if plain else policies, inner="policies"), *found]


def _policy(name: str, spec: Any, context: Context) -> tuple[dict[str, Any], list[Outcome]]:
    """One policy: null, [class, observations, actions, config] or a dict of these."""
    inner = f"policies.{name}"
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
    for outcome in model(config.pop("model", {}) or {}, context) if config.get("model") else ():
        for dotted, val in outcome.values.items():
            settings.setdefault("model", {})[dotted.removeprefix("training.model.")] = val
        if outcome.fate != "translated":
            found.append(Outcome(outcome.fate, {}, outcome.why, inner=f"{inner}.{outcome.inner}"))
    config.pop("model", None)
    for key, val in config.items():
        today = "lambda_" if key == "lambda" else key
        if today in PER_POLICY and (today == "lr" or today in _settings(context.algo)):
            settings[today] = val
        elif key == "agent_id":
            found.append(ignored("the mapping tells who uses a policy", f"{inner}.{key}"))
        elif val in (None, {}, []) or val == context.config.get(key):
            found.append(ignored("the same for all policies", f"{inner}.{key}"))
        elif today in TRAINING and today not in _settings(context.algo):
            found.append(ignored(f"{context.algo} has no such setting", f"{inner}.{key}"))
        else:
            why = f"all policies share {key} today: set it once, in config"
            found.append(refused(why, f"{inner}.{key}"))
    return settings, found
