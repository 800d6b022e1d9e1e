"""Every key of `training.model`: type, default, meaning; and what became of the old ones.

Names and defaults are RLlib's (`DefaultModelConfig`), so that what a user knows of RLlib holds
here. Nothing in this file imports torch: checking an experiment reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODEL_RENAMED: dict[str, str] = {
    "post_fcnet_hiddens": "head_fcnet_hiddens",
    "post_fcnet_activation": "head_fcnet_activation",
    "post_fcnet_weights_initializer": "head_fcnet_kernel_initializer",
    "post_fcnet_weights_initializer_config": "head_fcnet_kernel_initializer_kwargs",
    "post_fcnet_bias_initializer": "head_fcnet_bias_initializer",
    "post_fcnet_bias_initializer_config": "head_fcnet_bias_initializer_kwargs",
    "fcnet_weights_initializer": "fcnet_kernel_initializer",
    "fcnet_weights_initializer_config": "fcnet_kernel_initializer_kwargs",
    "fcnet_bias_initializer_config": "fcnet_bias_initializer_kwargs",
    "conv_kernel_initializer_config": "conv_kernel_initializer_kwargs",
    "conv_bias_initializer_config": "conv_bias_initializer_kwargs",
    "lstm_weights_initializer": "lstm_kernel_initializer",
    "lstm_weights_initializer_config": "lstm_kernel_initializer_kwargs",
    "lstm_bias_initializer_config": "lstm_bias_initializer_kwargs",
    "hidden_layer_sizes": "fcnet_hiddens",
    "hidden_activation": "fcnet_activation",
    "custom_options": "custom_model_config",
}
"""Keys of `model` -> what they are called today; the value stays."""

ACTIVATIONS = ("tanh", "relu", "silu", "swish", "elu", "gelu", "leaky_relu", "sigmoid", "selu", "linear")
INITIALIZERS = (
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "orthogonal_",
    "normal_",
    "uniform_",
    "trunc_normal_",
    "constant_",
    "zeros_",
    "ones_",
)


@dataclass(frozen=True)
class Option:
    """One key of `training.model`.

    :param type: what may be written: int, float, bool, str, "list[int]", "dict", "filters"
    :param doc: one or two sentences for the reference page and `--help`
    """

    type: str
    default: Any
    doc: str
    choices: tuple[str, ...] = ()
    nullable: bool = False


def _initializers(stack: str, layers: str) -> dict[str, Option]:
    """The four initializer keys that RLlib offers for each stack of layers."""
    names = "a function of torch.nn.init by name, with or without its trailing underscore"
    found = {}
    for part, tensors, example in (("kernel", "weights", ", such as {gain: 1.4}"), ("bias", "biases", "")):
        key = f"{stack}_{part}_initializer"
        doc = f"Initialiser of the {tensors} of {layers}: {names}; null: torch's own."
        found[key] = Option("str", None, doc, INITIALIZERS, True)
        found[f"{key}_kwargs"] = Option("dict", None, f"Arguments for {key}{example}.", (), True)
    return found


_LAYERS = ("activation", "use_layernorm", "kernel_initializer", "bias_initializer")

OPTIONS: dict[str, Option] = {
    "fcnet_hiddens": Option(
        "list[int]", [256, 256], "Sizes of the fully connected layers that follow the observation."
    ),
    "fcnet_activation": Option("str", "tanh", "Activation after each layer of fcnet_hiddens.", ACTIVATIONS),
    "fcnet_use_layernorm": Option("bool", False, "LayerNorm after each layer of fcnet_hiddens."),
    **_initializers("fcnet", "fcnet_hiddens"),
    "conv_filters": Option(
        "filters",
        None,
        "Convolutions for image observations: a list of [channels, kernel, stride], kernel and stride a "
        "number or [height, width]; null: chosen for the image's size.",
        (),
        True,
    ),
    "conv_activation": Option("str", "relu", "Activation after each convolution.", ACTIVATIONS),
    **_initializers("conv", "conv_filters"),
    "head_fcnet_hiddens": Option(
        "list[int]", [], "Sizes of further layers of each head (policy, value, Q); [] is one linear layer."
    ),
    "head_fcnet_activation": Option(
        "str", "relu", "Activation after each layer of head_fcnet_hiddens.", ACTIVATIONS
    ),
    "head_fcnet_use_layernorm": Option("bool", False, "LayerNorm after each layer of head_fcnet_hiddens."),
    **_initializers("head_fcnet", "the heads"),
    "vf_share_layers": Option(
        "bool",
        False,
        "Policy and value function share the layers before the heads (PPO, APPO, IMPALA, MARWIL).",
    ),
    "free_log_std": Option(
        "bool",
        False,
        "Box actions: the standard deviation is a parameter, not a function of the observation.",
    ),
    "log_std_clip_param": Option(
        "float", 20.0, "Box actions: log standard deviations are kept within plus/minus this."
    ),
    "use_lstm": Option("bool", False, "An LSTM after fcnet_hiddens; the policy remembers within an episode."),
    "lstm_cell_size": Option("int", 256, "Size of the LSTM's state."),
    "max_seq_len": Option("int", 20, "Steps: length of the sequences a recurrent model is trained on."),
    **_initializers("lstm", "the LSTM"),
    "fusionnet_hiddens": Option(
        "list[int]",
        None,
        "Q(observation, action) networks (SAC, TQC, CQL, IQL): with a list, the observation passes "
        "fcnet_hiddens first, then meets the action and passes these layers; null: they meet at once.",
        (),
        True,
    ),
    "fusionnet_activation": Option(
        "str", "relu", "Activation after each layer of fusionnet_hiddens.", ACTIVATIONS
    ),
    "custom_model": Option(
        "str",
        None,
        "Your own model: pkg.mod:Class, pkg.mod.Class, file.py:Class, or a bare name (<name>.py with a class "
        "CustomModel in model/ or models/). A torch.nn.Module whose forward(obs) gives (logits, value) or "
        "logits, or an RLModule subclass.",
        (),
        True,
    ),
    "custom_model_config": Option("dict", {}, "Arguments for the constructor of custom_model."),
}

GONE: dict[str, str] = {
    "use_attention": "the attention network left RLlib; set use_lstm: true, or write a custom_model",
    "lstm_use_prev_action": "use environment.observe_last_action",
    "lstm_use_prev_reward": "use environment.observe_last_reward",
    "lstm_use_prev_action_reward": "use environment.observe_last_action and observe_last_reward",
    "_time_major": "gone; sequences are always batch first",
    "custom_action_dist": "gone; write an RLModule subclass and name it in custom_model",
    "custom_preprocessor": "gone; wrap the environment, or encode the observation in a custom_model",
    "no_final_linear": "gone; every head ends in one linear layer",
    "dim": "use environment.atari.dim, or gymnasium.wrappers.ResizeObservation",
    "grayscale": "use environment.atari.grayscale, or gymnasium.wrappers.GrayscaleObservation",
    "zero_mean": "use environment.atari.zero_mean; images are scaled to 0..1",
    "framestack": "use environment.atari.framestack, or gymnasium.wrappers.FrameStackObservation",
    "fusionnet_kernel_initializer": "not used: the fusion layers take fcnet_kernel_initializer",
    "fusionnet_bias_initializer": "not used: the fusion layers take fcnet_bias_initializer",
    "encoder_latent_dim": "gone; the last number of fcnet_hiddens is the latent size",
    "inter_op_parallelism_threads": "a TensorFlow key; Rayfish is torch only",
}
"""Keys that once meant something -> why they are refused and what to do instead."""

_SHARING = ("PPO", "APPO", "IMPALA", "MARWIL")
_Q_OF_ACTION = ("SAC", "TQC", "CQL", "IQL")

ONLY_FOR: dict[str, tuple[tuple[str, ...], str]] = {
    "vf_share_layers": (_SHARING, "its networks share no layers"),
    "fusionnet_hiddens": (_Q_OF_ACTION, "no network of it takes the action as an input"),
    "fusionnet_activation": (_Q_OF_ACTION, "no network of it takes the action as an input"),
    "free_log_std": ((*_SHARING, "BC", *_Q_OF_ACTION), "it has no standard deviation"),
    "log_std_clip_param": ((*_SHARING, "BC", *_Q_OF_ACTION), "it has no standard deviation"),
}
"""Keys that only some algorithms' networks read -> those algorithms, and why the others do not."""

NEEDS: dict[str, str] = {
    **{f"fcnet_{end}": "fcnet_hiddens" for end in _LAYERS},
    **{f"head_fcnet_{end}": "head_fcnet_hiddens" for end in ("activation", "use_layernorm")},
    **{
        f"{stack}_{part}_initializer_kwargs": f"{stack}_{part}_initializer"
        for stack in ("fcnet", "conv", "head_fcnet", "lstm")
        for part in ("kernel", "bias")
    },
    "lstm_cell_size": "use_lstm",
    "lstm_kernel_initializer": "use_lstm",
    "lstm_bias_initializer": "use_lstm",
    "max_seq_len": "use_lstm",
    "fusionnet_activation": "fusionnet_hiddens",
    "custom_model_config": "custom_model",
}
"""Keys without effect until another one is set -> that one."""

FOR_IMAGES = tuple(key for key in OPTIONS if key.startswith("conv_"))
"""Keys without effect where no observation is an image."""

FOR_BOX_ACTIONS = ("free_log_std", "log_std_clip_param", "fusionnet_hiddens", "fusionnet_activation")
"""Keys without effect where no action is a Box."""

ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(
        ("hidden_layers", "hidden_sizes", "hidden_size", "hiddens", "layers", "net_arch", "num_hiddens"),
        "training.model.fcnet_hiddens",
    ),
    **dict.fromkeys(("activation", "activation_fn"), "training.model.fcnet_activation"),
    **dict.fromkeys(("learning_rate", "lr"), "training.lr"),
    "lstm_hidden_size": "training.model.lstm_cell_size",
    "enable_critic_lstm": "training.model.use_lstm",
    "policy_kwargs": "training.model.custom_model_config",
    "shared_lstm": "training.model.vf_share_layers",
    "cnn": "training.model.conv_filters",
}
"""What other libraries call a model key -> its key here."""


def unused(section: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Keys that are set but have no effect, each with the key that would give it one."""
    model = resolve(section)
    return [
        (key, needed)
        for key, needed in NEEDS.items()
        if model[key] != OPTIONS[key].default
        and not model[needed]
        and not (key == "max_seq_len" and model["custom_model"])
    ]


def resolve(section: Mapping[str, Any] | None) -> dict[str, Any]:
    """The whole model section: old names mapped, defaults filled in, plain values only.

    Unknown keys are left out; `models.check.problems` is where they are reported.
    """
    given: dict[str, Any] = {}
    for key, value in (section or {}).items():
        name = MODEL_RENAMED.get(key, key)
        if name in OPTIONS and (name == key or name not in (section or {})):
            given[name] = value
    full = {key: given.get(key, option.default) for key, option in OPTIONS.items()}
    for key, option in OPTIONS.items():
        if full[key] is None and not option.nullable:
            full[key] = option.default
        if isinstance(full[key], list | tuple):
            full[key] = [list(item) if isinstance(item, list | tuple) else item for item in full[key]]
    full["custom_model_config"] = dict(full["custom_model_config"] or {})
    return full
