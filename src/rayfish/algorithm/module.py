"""Rayfish's networks as RLlib modules, one per family of algorithms.

`module_spec` is the entry: the model section of an experiment becomes the `RLModuleSpec` that
`AlgorithmConfig.rl_module` takes. What travels to remote runners is a plain dict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from ray.rllib.algorithms.cql.torch.default_cql_torch_rl_module import DefaultCQLTorchRLModule
from ray.rllib.algorithms.dqn.default_dqn_rl_module import ATOMS, QF_LOGITS, QF_PREDS, QF_PROBS
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.algorithms.iql.torch.default_iql_torch_rl_module import DefaultIQLTorchRLModule
from ray.rllib.algorithms.sac.sac_learner import (
    ACTION_LOG_PROBS,
    ACTION_LOG_PROBS_NEXT,
    ACTION_PROBS,
    ACTION_PROBS_NEXT,
    QF_TARGET_NEXT,
    QF_TWIN_PREDS,
)
from ray.rllib.algorithms.sac.sac_learner import QF_PREDS as SAC_QF_PREDS
from ray.rllib.algorithms.sac.torch.default_sac_torch_rl_module import DefaultSACTorchRLModule
from ray.rllib.algorithms.tqc.torch.default_tqc_torch_rl_module import DefaultTQCTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.models.base import ENCODER_OUT
from ray.rllib.core.rl_module.apis import (
    TARGET_NETWORK_ACTION_DIST_INPUTS,
    InferenceOnlyAPI,
    TargetNetworkAPI,
    ValueFunctionAPI,
)
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor, nn

from rayfish.algorithm.catalog import NetworkCatalog, action_distribution
from rayfish.errors import ModelError
from rayfish.models.actions import (
    TEMPERATURE,
    best_or_random,
    mask_logits,
    mask_of,
    mask_values,
    masked_probabilities,
)
from rayfish.models.build import actor_critic
from rayfish.models.custom import find_class
from rayfish.models.networks import FAMILIES, q_values
from rayfish.models.options import resolve
from rayfish.models.spaces import split_mask

Batch = dict[str, Any]


def module_spec(
    algo_name: str,
    model_section: Mapping[str, Any] | None,
    paths: Sequence[str] = (),
    *,
    temperature: float | None = None,
) -> RLModuleSpec | None:
    """The RLModule of an algorithm for a model section; None for RLlib's own (DreamerV3).

    :param temperature: DQN explores by SoftQ with this temperature, in place of epsilon-greedy
    :raises ModelError: no such algorithm, or a custom model that cannot be found
    """
    if algo_name == "DreamerV3":
        return None
    if algo_name not in MODULES:
        raise ModelError(f"{algo_name} has no module", f"one of {', '.join(MODULES)}")
    model = resolve(model_section)
    if model["custom_model"]:
        found = find_class(model["custom_model"], paths)
        if issubclass(found, RLModule):
            return RLModuleSpec(module_class=found, model_config={**model, **model["custom_model_config"]})
    cls = MODULES[algo_name]
    catalog = NetworkCatalog if FAMILIES[algo_name] != "actor_critic" else None
    return RLModuleSpec(
        module_class=cls,
        catalog_class=catalog,
        model_config={
            **model,
            "paths": [str(path) for path in paths],
            **({TEMPERATURE: temperature} if temperature else {}),
        },
    )


class _Lean:
    """Acting without switching modes.

    RLlib's `forward_exploration` and `forward_inference` put every layer into evaluation mode and
    back on each call, which costs more than a small network's pass. Ours have no layer that
    differs by mode; a user's model may (dropout), and is switched.
    """

    def forward_exploration(self, batch: Batch, **kwargs: Any) -> Batch:
        """One step of acting with exploration."""
        if self.model_config["custom_model"]:  # type: ignore[attr-defined]
            return super().forward_exploration(batch, **kwargs)  # type: ignore[misc]
        return self._forward_exploration(batch, **kwargs)  # type: ignore[attr-defined]

    def forward_inference(self, batch: Batch, **kwargs: Any) -> Batch:
        """One step of acting without exploration."""
        if self.model_config["custom_model"]:  # type: ignore[attr-defined]
            return super().forward_inference(batch, **kwargs)  # type: ignore[misc]
        return self._forward_inference(batch, **kwargs)  # type: ignore[attr-defined]


class ActorCriticModule(_Lean, TorchRLModule, ValueFunctionAPI, InferenceOnlyAPI):
    """PPO, IMPALA, MARWIL: an `ActorCritic` (or a user's model in its place)."""

    with_critic = True

    def setup(self) -> None:
        """Build the network; an env runner's copy has no critic unless its memory is needed."""
        model = self.model_config
        if self._critic_remembers():
            self.inference_only = False
        critic = self.with_critic and not self.inference_only
        self.net = actor_critic(self.observation_space, self.action_space, model, critic=critic)
        self.action_dist_cls = action_distribution(self.action_space, squashed=False)

    def get_non_inference_attributes(self) -> list[str]:
        """What env runners do without."""
        return [] if self._critic_remembers() else ["net.critic_encoder", "net.vf"]

    def _critic_remembers(self) -> bool:
        """Whether the critic has a memory of its own, which then has to be sampled too."""
        model = self.model_config
        ours = self.with_critic and not model["custom_model"]
        return bool(ours and model["use_lstm"] and not model["vf_share_layers"])

    def get_initial_state(self) -> dict[str, Any]:
        """State at the start of an episode."""
        return self.net.initial_state()

    def network_state(self) -> dict[str, Tensor]:
        """The weights of `models.build_network` for this module, by its names."""
        return self.net.state_dict()

    def _forward(self, batch: Batch, **kwargs: Any) -> Batch:
        logits, state = self.net(batch[Columns.OBS], batch.get(Columns.STATE_IN))
        out = {Columns.ACTION_DIST_INPUTS: logits}
        if state:
            out[Columns.STATE_OUT] = state
        return out

    def _forward_train(self, batch: Batch, **kwargs: Any) -> Batch:
        logits, _, reuse = self.net.policy(batch[Columns.OBS], batch.get(Columns.STATE_IN))
        out = {Columns.ACTION_DIST_INPUTS: logits}
        if reuse is not None:
            out[Columns.EMBEDDINGS] = reuse
        return out

    def compute_values(self, batch: Batch, embeddings: Tensor | None = None) -> Tensor:
        """State values; `embeddings` is what the training pass left for reuse."""
        return self.net.value(batch[Columns.OBS], batch.get(Columns.STATE_IN), embeddings)


class ActorModule(ActorCriticModule):
    """BC: the same without a critic, whose weights would never see a gradient."""

    with_critic = False


class TargetActorCriticModule(ActorCriticModule, TargetNetworkAPI):
    """APPO: an older copy of the policy next to the current one."""

    def make_target_networks(self) -> None:
        """Copy the policy's part of the network."""
        self._old_net = make_target_network(self.net)

    def get_non_inference_attributes(self) -> list[str]:
        """What env runners do without: also the old copy."""
        return [*super().get_non_inference_attributes(), "_old_net"]

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """(current, old)."""
        return [(self.net, self._old_net)]

    def forward_target(self, batch: Batch) -> Batch:
        """Action distribution inputs of the old policy."""
        logits, _, _ = self._old_net.policy(batch[Columns.OBS], batch.get(Columns.STATE_IN))
        return {TARGET_NETWORK_ACTION_DIST_INPUTS: logits}


class DQNModule(_Lean, DefaultDQNTorchRLModule):
    """DQN over our encoders: masks, and exploration that draws every allowed action."""

    model_config: dict[str, Any]

    def setup(self) -> None:
        """As RLlib does; a custom model is the whole Q function and has no value stream."""
        if self.model_config["custom_model"]:
            self.model_config = {**self.model_config, "dueling": False}
        self.masked = split_mask(self.observation_space)[1] is not None
        super().setup()

    def network_state(self) -> dict[str, Tensor]:
        """The weights of `models.build_network` for this module, by its names."""
        parts = ("encoder", "af", "vf")
        return {key: value for key, value in self.state_dict().items() if key.split(".")[0] in parts}

    def _forward_inference(self, batch: Batch, **kwargs: Any) -> Batch:
        with torch.no_grad():
            out = self.compute_q_values(batch)
            return self._with_state({Columns.ACTIONS: out[QF_PREDS].argmax(dim=-1)}, out)

    def _forward_exploration(self, batch: Batch, t: int, **kwargs: Any) -> Batch:
        """Epsilon-greedy over the allowed actions, or SoftQ: the better an action, the likelier it is.

        RLlib draws its random actions from those whose Q value is not 0; here the mask decides.
        """
        with torch.no_grad():
            out = self.compute_q_values(batch)
            q = out[QF_PREDS]
            temperature = self.model_config.get(TEMPERATURE)
            if temperature:
                likely = (q / temperature).softmax(dim=-1)
                return self._with_state({Columns.ACTIONS: torch.multinomial(likely, 1).squeeze(-1)}, out)
            self.epsilon_schedule.update(t)
            mask = mask_of(batch[Columns.OBS], self.masked)
            actions = best_or_random(q, mask, self.epsilon_schedule.get_current_value())
            return self._with_state({Columns.ACTIONS: actions}, out)

    def _qf_forward_helper(self, batch: Batch, encoder: nn.Module, head: Any) -> Batch:
        encoded = encoder(batch)
        features = encoded[ENCODER_OUT]
        advantages = (head["af"] if self.uses_dueling else head)(features)
        values = head["vf"](features) if self.uses_dueling else None
        bounds = (self.v_min, self.v_max) if self.num_atoms > 1 else (0.0, 0.0)
        q, logits, probabilities = q_values(advantages, values, self.num_atoms, bounds)
        out = {QF_PREDS: mask_values(q, mask_of(batch[Columns.OBS], self.masked))}
        if self.num_atoms > 1:
            support = torch.linspace(*bounds, self.num_atoms, device=q.device)
            out.update({ATOMS: support, QF_LOGITS: logits, QF_PROBS: probabilities})
        return self._with_state(out, encoded)

    @staticmethod
    def _with_state(out: Batch, source: Batch) -> Batch:
        if Columns.STATE_OUT in source:
            out[Columns.STATE_OUT] = source[Columns.STATE_OUT]
        return out


class _PolicyActing(_Lean):
    """What SAC, TQC, CQL and IQL share: RLlib tracks gradients while acting, which nothing needs."""

    def network_state(self) -> dict[str, Tensor]:
        """The weights of `models.build_network` for this module, by its names."""
        parts = {"encoder": self.pi_encoder, "pi": self.pi}  # type: ignore[attr-defined]
        return {
            f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()
        }

    def _forward_inference(self, batch: Batch, **kwargs: Any) -> Batch:
        with torch.no_grad():
            return super()._forward_inference(batch)  # type: ignore[misc]


class SACModule(_PolicyActing, DefaultSACTorchRLModule):
    """SAC over our encoders; with discrete actions, masks reach policy, targets and entropy."""

    def setup(self) -> None:
        """As RLlib does."""
        self.masked = split_mask(self.observation_space)[1] is not None
        super().setup()

    def _forward_inference(self, batch: Batch, **kwargs: Any) -> Batch:
        out = super()._forward_inference(batch)
        mask = mask_of(batch[Columns.OBS], self.masked)
        out[Columns.ACTION_DIST_INPUTS] = mask_logits(out[Columns.ACTION_DIST_INPUTS], mask)
        return out

    def _forward_train_discrete(self, batch: Batch) -> Batch:
        """As RLlib does, with log-softmax: a probability of 0 has no logarithm."""
        now, then = batch[Columns.OBS], batch[Columns.NEXT_OBS]
        out: Batch = {}
        with torch.no_grad():
            out[ACTION_PROBS_NEXT], out[ACTION_LOG_PROBS_NEXT] = self._probabilities(then)
            out[QF_TARGET_NEXT] = self.forward_target({Columns.OBS: then}, squeeze=False)
        here = {Columns.OBS: now}
        out[SAC_QF_PREDS] = self._qf_forward_train_helper(here, self.qf_encoder, self.qf, squeeze=False)
        out[QF_TWIN_PREDS] = (
            self._qf_forward_train_helper(here, self.qf_twin_encoder, self.qf_twin, squeeze=False)
            if self.twin_q
            else out[SAC_QF_PREDS]
        )
        out[ACTION_PROBS], out[ACTION_LOG_PROBS] = self._probabilities(now)
        return out

    def _probabilities(self, observation: Any) -> tuple[Tensor, Tensor]:
        """(probabilities, log probabilities) of every discrete action."""
        logits = self.pi(self.pi_encoder({Columns.OBS: observation})[ENCODER_OUT])
        return masked_probabilities(logits, mask_of(observation, self.masked))


class TQCModule(_PolicyActing, DefaultTQCTorchRLModule):
    """TQC over our encoders."""


class CQLModule(_PolicyActing, DefaultCQLTorchRLModule):
    """CQL over our encoders."""


class IQLModule(_PolicyActing, DefaultIQLTorchRLModule):
    """IQL over our encoders."""


MODULES: dict[str, type[TorchRLModule]] = {
    "PPO": ActorCriticModule,
    "IMPALA": ActorCriticModule,
    "MARWIL": ActorCriticModule,
    "APPO": TargetActorCriticModule,
    "BC": ActorModule,
    "DQN": DQNModule,
    "SAC": SACModule,
    "TQC": TQCModule,
    "CQL": CQLModule,
    "IQL": IQLModule,
}
"""Algorithm -> its module class."""
