"""The three families of networks: actor-critic, Q over discrete actions, and the squashed policy.

They hold no RLlib class: `algorithm.module` wraps them for training, `run.policy` uses them as
they are. All share one calling convention: observation and state in, numbers and state out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from rayfish.models.actions import mask_logits, mask_of, mask_values
from rayfish.models.custom import CustomNetwork
from rayfish.models.encoder import Encoder, State
from rayfish.models.layers import head
from rayfish.models.spaces import action_outputs, split_mask

FAMILIES: dict[str, str] = {
    **dict.fromkeys(("PPO", "APPO", "IMPALA", "BC", "MARWIL"), "actor_critic"),
    "DQN": "q",
    **dict.fromkeys(("SAC", "TQC", "CQL", "IQL"), "policy"),
}
"""Algorithm -> the family of networks it trains (DreamerV3 keeps RLlib's own module)."""


class GaussianHead(nn.Module):
    """Means and log standard deviations of Box actions, the latter clipped."""

    def __init__(self, inputs: int, action_size: int, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.clip = float(model["log_std_clip_param"])
        self.free = bool(model["free_log_std"])
        self.net = head(inputs, action_size if self.free else 2 * action_size, model)
        if self.free:
            self.log_std = nn.Parameter(torch.zeros(action_size))

    def forward(self, features: Tensor) -> Tensor:
        """(..., inputs) to (..., 2 * action size)."""
        return self.bounded(self.net(features))

    def bounded(self, out: Tensor) -> Tensor:
        """The distribution inputs from what the last layer returns."""
        if self.free:
            mean, log_std = out, self.log_std.expand_as(out)
        else:
            mean, log_std = out.chunk(2, dim=-1)
        return torch.cat([mean, log_std.clamp(-self.clip, self.clip)], dim=-1)


def action_head(inputs: int, space: gym.Space, model: Mapping[str, Any]) -> nn.Module:
    """The head that parametrises the action distribution of `space`."""
    outputs = action_outputs(space)
    if isinstance(space, gym.spaces.Box):
        return GaussianHead(inputs, outputs // 2, model)
    return head(inputs, outputs, model)


class ActorCritic(nn.Module):
    """Policy and value function; the critic has its own encoder unless `vf_share_layers`."""

    def __init__(
        self, space: gym.Space, action_space: gym.Space, model: Mapping[str, Any], *, critic: bool = True
    ) -> None:
        super().__init__()
        self.masked = split_mask(space)[1] is not None
        self.shared = bool(model["vf_share_layers"])
        self.recurrent = bool(model["use_lstm"])
        self.encoder = Encoder(space, model)
        self.pi = action_head(self.encoder.size, action_space, model)
        self.critic_encoder: Encoder | None = None
        self.vf: nn.Module | None = None
        if critic:
            if not self.shared:
                self.critic_encoder = Encoder(space, model)
            self.vf = head(self.encoder.size, 1, model)

    def initial_state(self) -> State:
        """State at the start of an episode; two memories when the critic has its own."""
        if not self.recurrent:
            return {}
        if self.critic_encoder is None:
            return self.encoder.initial_state()
        return {"actor": self.encoder.initial_state(), "critic": self.critic_encoder.initial_state()}

    def policy(self, observation: Any, state: State | None = None) -> tuple[Tensor, State, Tensor | None]:
        """(action distribution inputs, the actor's next state, what `value` may reuse)."""
        if state and self.critic_encoder is not None:
            state = state["actor"]
        features, after = self.encoder.encode(observation, state)
        logits = mask_logits(self.pi(features), mask_of(observation, self.masked))
        return logits, after, features if self.shared else None

    def value(self, observation: Any, state: State | None = None, reuse: Tensor | None = None) -> Tensor:
        """State values, without a trailing axis of one."""
        assert self.vf is not None
        if reuse is None:
            encoder = self.encoder
            if self.critic_encoder is not None:
                encoder = self.critic_encoder
                state = state["critic"] if state else state
            reuse, _ = encoder.encode(observation, state)
        return self.vf(reuse).squeeze(-1)

    def forward(self, observation: Any, state: State | None = None) -> tuple[Tensor, State]:
        """(action distribution inputs, next state of all memories)."""
        logits, after, _ = self.policy(observation, state)
        if after and self.critic_encoder is not None:
            assert state is not None
            _, critic_after = self.critic_encoder.encode(observation, state["critic"])
            after = {"actor": after, "critic": critic_after}
        return logits, after


class QNetwork(nn.Module):
    """Q values of discrete actions, dueling and distributional if asked for.

    :param dueling: advantage and value streams
    :param atoms: how many values of the return have a probability; 1 learns the mean alone
    :param bounds: smallest and largest of those values
    """

    def __init__(
        self,
        space: gym.Space,
        action_space: gym.spaces.Discrete,
        model: Mapping[str, Any],
        *,
        dueling: bool = True,
        atoms: int = 1,
        bounds: tuple[float, float] = (-10.0, 10.0),
    ) -> None:
        super().__init__()
        self.masked = split_mask(space)[1] is not None
        self.atoms = atoms
        self.bounds = bounds
        outputs = int(action_space.n) * atoms
        if model["custom_model"]:  # its outputs are the Q values
            self.encoder: Encoder | CustomNetwork = CustomNetwork(space, action_space, model, outputs=outputs)
            self.af: nn.Module = nn.Identity()
            self.vf: nn.Module | None = None
        else:
            self.encoder = Encoder(space, model)
            self.af = head(self.encoder.size, outputs, model)
            self.vf = head(self.encoder.size, atoms, model) if dueling else None

    def initial_state(self) -> State:
        """State at the start of an episode."""
        return self.encoder.initial_state()

    def forward(self, observation: Any, state: State | None = None) -> tuple[Tensor, State]:
        """(Q values with forbidden actions at `MASKED`, next state)."""
        features, after = self.encoder.encode(observation, state)
        values = None if self.vf is None else self.vf(features)
        q, _, _ = q_values(self.af(features), values, self.atoms, self.bounds)
        return mask_values(q, mask_of(observation, self.masked)), after


def q_values(
    advantages: Tensor, values: Tensor | None, atoms: int, bounds: tuple[float, float]
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(Q values, logits per action and atom, their probabilities) from the heads' outputs.

    Dueling as in https://arxiv.org/abs/1511.06581, with atoms as in Rainbow
    (https://arxiv.org/abs/1710.02298): streams are combined per atom, centred over the actions.
    """
    if atoms == 1:
        if values is None:
            return advantages, None, None
        return advantages - advantages.mean(dim=-1, keepdim=True) + values, None, None
    logits = advantages.unflatten(-1, (-1, atoms))
    if values is not None:
        logits = logits - logits.mean(dim=-2, keepdim=True) + values.unsqueeze(-2)
    probabilities = logits.softmax(dim=-1)
    support = torch.linspace(*bounds, atoms, device=logits.device)
    return (probabilities * support).sum(dim=-1), logits, probabilities


class PolicyNetwork(nn.Module):
    """The policy alone, as SAC and its kin act with it."""

    def __init__(self, space: gym.Space, action_space: gym.Space, model: Mapping[str, Any]) -> None:
        super().__init__()
        self.masked = split_mask(space)[1] is not None
        if model["custom_model"]:
            self.encoder: Encoder | CustomNetwork = CustomNetwork(space, action_space, model)
            self.pi: nn.Module = nn.Identity()
        else:
            self.encoder = Encoder(space, model)
            self.pi = action_head(self.encoder.size, action_space, model)

    def initial_state(self) -> State:
        """These algorithms have no memory."""
        return {}

    def forward(self, observation: Any, state: State | None = None) -> tuple[Tensor, State]:
        """(action distribution inputs, {})."""
        features, _ = self.encoder.encode(observation)
        logits = mask_logits(self.pi(features), mask_of(observation, self.masked))
        return logits, {}
