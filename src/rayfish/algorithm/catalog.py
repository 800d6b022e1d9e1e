"""Our networks as the catalog of RLlib's DQN, SAC, TQC, CQL and IQL modules.

RLlib's default modules take their parts from a `catalog_class` and call an encoder with the whole
batch. `NetworkCatalog` hands out Rayfish's encoders and heads under that convention, so those
modules and their losses run as they are over any observation Rayfish can encode.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import (
    TorchCategorical,
    TorchDeterministic,
    TorchDiagGaussian,
    TorchDistribution,
    TorchMultiCategorical,
    TorchSquashedGaussian,
)
from ray.rllib.core.models.base import ENCODER_OUT
from torch import Tensor, nn

from rayfish.errors import ModelError
from rayfish.models.custom import CustomNetwork
from rayfish.models.encoder import ActionEncoder, Encoder, State
from rayfish.models.layers import head
from rayfish.models.networks import action_head


class SquashedGaussian(TorchSquashedGaussian):
    """RLlib's tanh-squashed Gaussian, whose greedy action is squashed as its samples are.

    RLlib's `to_deterministic` returns the mean before the tanh, so that evaluation acts differently
    from training whenever a mean leaves [-1, 1].
    """

    def to_deterministic(self) -> TorchDeterministic:
        """The squashed mean, always."""
        return TorchDeterministic(loc=self._squash(self.loc))


def action_distribution(space: gym.Space, *, squashed: bool) -> type[TorchDistribution]:
    """RLlib's distribution class for actions of `space`."""
    if isinstance(space, gym.spaces.Discrete):
        return TorchCategorical
    if isinstance(space, gym.spaces.MultiDiscrete):
        sizes = [int(n) for n in np.asarray(space.nvec).reshape(-1)]
        return TorchMultiCategorical.get_partial_dist_cls(input_lens=sizes)
    if isinstance(space, gym.spaces.Box):
        return SquashedGaussian if squashed else TorchDiagGaussian
    raise ModelError(
        f"action space {space} has no action distribution",
        "actions may be Discrete, MultiDiscrete or Box; wrap the environment",
    )


class _BatchCall:
    """RLlib's calling convention for encoders: a batch in, a dict with ENCODER_OUT out."""

    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Features of the batch's observations, and the next state if there is one."""
        features, state = self.encode(batch[Columns.OBS], batch.get(Columns.STATE_IN))  # type: ignore[attr-defined]
        return {ENCODER_OUT: features, Columns.STATE_OUT: state} if state else {ENCODER_OUT: features}

    def get_initial_state(self) -> State:
        """RLlib's name for `initial_state`."""
        return self.initial_state()  # type: ignore[attr-defined]


class BatchEncoder(_BatchCall, Encoder):  # type: ignore[misc]
    """An `Encoder` that RLlib can call."""


class BatchCustom(_BatchCall, CustomNetwork):  # type: ignore[misc]
    """A user's model that RLlib can call as an encoder; its head is the identity."""


class BatchActionEncoder(ActionEncoder):
    """An `ActionEncoder` that RLlib can call."""

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:  # type: ignore[override]
        """Features of the batch's observations and actions."""
        return {ENCODER_OUT: self.encode(batch[Columns.OBS], batch[Columns.ACTIONS])}


class NetworkCatalog:
    """Parts for RLlib's value-based modules, with the constructor and names RLlib expects."""

    def __init__(
        self, observation_space: gym.Space, action_space: gym.Space, model_config_dict: dict[str, Any]
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.model = model_config_dict
        # IQL reads these to build the head of its value function.
        self.pi_and_qf_head_hiddens = self.model["head_fcnet_hiddens"]
        self.pi_and_qf_head_activation = self.model["head_fcnet_activation"]
        self.discrete = isinstance(action_space, gym.spaces.Discrete)
        self.atoms = int(self.model.get("num_atoms") or 1)  # DQN's
        self._encoder_size = 0
        self._q_encoder_size = 0
        self._custom_is_out = False

    @property
    def latent_dims(self) -> tuple[int]:
        """Output size of the encoder that was built last."""
        return (self._encoder_size,)

    def build_encoder(self, framework: str) -> nn.Module:
        """The encoder of the policy (of the Q function for DQN); a custom model takes its place.

        IQL builds a second one, for its value function: that is always ours.
        """
        if self.model["custom_model"] and not self._custom_is_out:
            self._custom_is_out = True
            outputs = int(self.action_space.n) * self.atoms if self.discrete else None
            custom = BatchCustom(self.observation_space, self.action_space, self.model, outputs=outputs)
            self._encoder_size = custom.size
            return custom
        encoder = BatchEncoder(self.observation_space, self.model)
        self._encoder_size = encoder.size
        return encoder

    def build_qf_encoder(self, framework: str) -> nn.Module:
        """The encoder of a critic: of observation and action for Box, of the observation otherwise."""
        encoder: BatchEncoder | BatchActionEncoder
        if self.discrete:
            encoder = BatchEncoder(self.observation_space, self.model)
        else:
            size = int(np.prod(self.action_space.shape))
            encoder = BatchActionEncoder(self.observation_space, size, self.model)
        self._q_encoder_size = encoder.size
        return encoder

    def build_af_head(self, framework: str) -> nn.Module:
        """DQN's advantage stream, or Q itself."""
        if self.model["custom_model"]:
            return nn.Identity()
        return head(self._encoder_size, int(self.action_space.n) * self.atoms, self.model)

    def build_vf_head(self, framework: str) -> nn.Module:
        """DQN's value stream."""
        return head(self._encoder_size, self.atoms, self.model)

    def build_pi_head(self, framework: str) -> nn.Module:
        """The head of the policy."""
        if self.model["custom_model"]:
            return nn.Identity()
        return action_head(self._encoder_size, self.action_space, self.model)

    def build_qf_head(self, framework: str) -> nn.Module:
        """The head of a critic: one value per action, or one value, or TQC's quantiles."""
        outputs = int(self.action_space.n) if self.discrete else int(self.model.get("n_quantiles") or 1)
        return head(self._q_encoder_size, outputs, self.model)

    def get_action_dist_cls(self, framework: str) -> type[TorchDistribution]:
        """The action distribution."""
        return action_distribution(self.action_space, squashed=True)
