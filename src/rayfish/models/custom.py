"""The user's own model: found by name, built, tried once, and given the family's convention."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from rayfish.errors import ModelError, did_you_mean
from rayfish.experiment.imports import load_object
from rayfish.models.actions import mask_logits, mask_of
from rayfish.models.check import locate
from rayfish.models.encoder import Encoder, State
from rayfish.models.layers import head
from rayfish.models.spaces import action_outputs, leaves, map_space, split_mask, without_mask
from rayfish.nested import map_nested


def find_class(name: str, paths: Sequence[str]) -> type:
    """The class `custom_model` names: an import path, or a bare `<name>.py` in model/ or models/."""
    name = locate(name, paths)
    found = load_object(name, list(paths))
    if not isinstance(found, type):
        raise ModelError(
            f"custom_model {name!r} is a {type(found).__name__}, not a class",
            "name a class that inherits from torch.nn.Module",
        )
    if not issubclass(found, nn.Module):
        bases = ", ".join(base.__name__ for base in found.__mro__[1:-1]) or "object"
        raise ModelError(
            f"custom_model {name!r} ({found.__name__}, which inherits from {bases}) is not a torch.nn.Module",
            "inherit from torch.nn.Module and give it forward(obs) -> (logits, value); "
            "TensorFlow models and RLlib's old ModelV2 classes have to be ported",
        )
    return found


class CustomNetwork(nn.Module):
    """A user's `torch.nn.Module` behind the convention of `rayfish.models.networks`.

    The model sees the observation without its mask: Box leaves as float32 (images not scaled),
    Discrete leaves as int64, all with leading batch axes. `forward(obs)` gives `(logits, value)`
    or `logits`. With a method `initial_state()`, it is recurrent: `forward(obs, state)` gives
    `(logits, value, state)`, observations have a time axis after the batch axis, and each part of
    the state (a tensor, a tuple or a dict) has the batch axis first.
    """

    def __init__(
        self,
        space: gym.Space,
        action_space: gym.Space,
        model: Mapping[str, Any],
        *,
        outputs: int | None = None,
        critic: bool = False,
    ) -> None:
        super().__init__()
        self.space = space
        self.seen, mask = split_mask(space)
        self.masked = mask is not None
        self.size = action_outputs(action_space) if outputs is None else outputs
        cls = find_class(model["custom_model"], model.get("paths", ()))
        self.model = _construct(cls, self.seen, action_space, self.size, model)
        self.recurrent = hasattr(self.model, "initial_state")
        self.gives_value = self._try()
        self.critic_encoder: Encoder | None = None
        self.vf: nn.Module | None = None
        if critic and not self.gives_value:
            # The added critic has no memory, so that its state need not travel with the samples.
            self.critic_encoder = Encoder(space, {**model, "use_lstm": False})
            self.vf = head(self.critic_encoder.size, 1, model)

    def initial_state(self) -> State:
        """The model's own start of an episode, as a dict; {} without memory."""
        return _as_dict(self.model.initial_state()) if self.recurrent else {}  # type: ignore[operator]

    def outputs(self, observation: Any, state: State | None) -> tuple[Tensor, Tensor | None, State]:
        """(logits, value or None, next state) as the model gives them, unmasked."""
        seen = map_space(_typed, self.seen, without_mask(observation, self.space))
        if not self.recurrent:
            result = self.model(seen)
            if isinstance(result, tuple | list):
                return result[0], result[1].reshape(result[0].shape[:-1]), {}
            return result, None, {}
        like = self.model.initial_state()  # type: ignore[operator]
        logits, *value, after = self.model(seen, _as_given(state or {}, like))
        first = value[0].reshape(logits.shape[:-1]) if value else None
        return logits, first, _as_dict(after)

    def policy(self, observation: Any, state: State | None = None) -> tuple[Tensor, State, Tensor | None]:
        """(action distribution inputs, next state, the values for `value` to reuse)."""
        logits, value, after = self.outputs(observation, state)
        return mask_logits(logits, mask_of(observation, self.masked)), after, value

    def value(self, observation: Any, state: State | None = None, reuse: Tensor | None = None) -> Tensor:
        """State values: the model's own, or those of the critic that was added to it."""
        if self.critic_encoder is not None and self.vf is not None:
            features, _ = self.critic_encoder.encode(observation)
            return self.vf(features).squeeze(-1)
        if reuse is not None:
            return reuse
        _, value, _ = self.outputs(observation, state)
        assert value is not None
        return value

    def encode(self, observation: Any, state: State | None = None) -> tuple[Tensor, State]:
        """(unmasked outputs, next state): the model as an encoder whose head is the identity."""
        logits, _, after = self.outputs(observation, state)
        return logits, after

    def forward(self, observation: Any, state: State | None = None) -> tuple[Tensor, State]:
        """(action distribution inputs, next state)."""
        logits, after, _ = self.policy(observation, state)
        return logits, after

    @torch.no_grad()
    def _try(self) -> bool:
        """One pass over two blank observations: does it run, are the shapes right, is there a value?"""
        name = type(self.model).__name__
        lead = (2, 1) if self.recurrent else (2,)
        leaves(self.seen)  # raises for a space that no model reads
        blank = map_space(lambda leaf: torch.zeros((*lead, *leaf.shape)), self.space)
        state = map_nested(lambda part: part.unsqueeze(0).expand(2, *part.shape), self.initial_state())
        training = self.model.training
        self.model.eval()
        try:
            logits, value, _ = self.outputs(blank, state)
        except Exception as error:
            raise ModelError(
                f"custom_model {name} failed on a batch of two observations of {self.seen}: "
                f"{type(error).__name__}: {error}",
                "forward(obs) must give (logits, value) or logits for any batch size",
            ) from error
        finally:
            self.model.train(training)
        if not isinstance(logits, Tensor) or tuple(logits.shape) != (*lead, self.size):
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ModelError(
                f"custom_model {name} gives logits of shape {got} for {lead[0]} observations; "
                f"this action space needs {(*lead, self.size)}",
                f"end the policy in nn.Linear(..., {self.size}); the number is handed to the constructor "
                "as num_outputs",
            )
        return value is not None


def _construct(
    cls: type, seen: gym.Space, action_space: gym.Space, outputs: int, model: Mapping[str, Any]
) -> nn.Module:
    """The user's class with what its constructor accepts, under RLlib's old names and Gymnasium's."""
    extra = dict(model["custom_model_config"] or {})
    offered = {
        "obs_space": seen,
        "observation_space": seen,
        "action_space": action_space,
        "num_outputs": outputs,
        "model_config": {key: value for key, value in model.items() if key != "paths"},
        "name": cls.__name__,
    }
    parameters = inspect.signature(cls).parameters
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    unknown = [] if open_ended else [key for key in extra if key not in parameters]
    if unknown:
        meant = did_you_mean(unknown[0], parameters)
        raise ModelError(
            f"custom_model_config has {unknown[0]!r}, which {cls.__name__}'s constructor does not take",
            f"did you mean {meant[0]!r}?" if meant else f"it takes {', '.join(parameters) or 'nothing'}",
        )
    given = {key: value for key, value in offered.items() if key in parameters} | extra
    try:
        return cls(**given)
    except Exception as error:
        raise ModelError(
            f"custom_model {cls.__name__} could not be built with {', '.join(sorted(given)) or 'nothing'}: "
            f"{type(error).__name__}: {error}",
            "its constructor may take obs_space, action_space, num_outputs, model_config, name, and the "
            "keys of custom_model_config",
        ) from error


def _typed(space: gym.Space, leaf: Tensor) -> Tensor:
    """A Box leaf as float32, category numbers as int64."""
    return leaf.long() if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete) else leaf.float()


def _as_dict(state: Any) -> State:
    if isinstance(state, Mapping):
        return dict(state)
    parts = state if isinstance(state, tuple | list) else (state,)
    return {str(index): part for index, part in enumerate(parts)}


def _as_given(state: State, like: Any) -> Any:
    """A state dict in the form the user's `initial_state()` has."""
    if isinstance(like, Mapping):
        return state
    parts = [state[str(index)] for index in range(len(state))]
    return type(like)(parts) if isinstance(like, tuple | list) else parts[0]
