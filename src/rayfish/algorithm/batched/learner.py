"""PPO's learner: RLlib keeps the weights, optimizers and schedules; the update is `ppo.PPO`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.utils.metrics import (
    ALL_MODULES,
    NUM_ENV_STEPS_TRAINED,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
)

from rayfish.algorithm.batched.ppo import PPO, PPOSettings
from rayfish.algorithm.batched.rollout import Rollout
from rayfish.supervise import watchdog

Settings = TypeVar("Settings")

COMPILED = "torch_compile"
"""Key of `learner_config_dict` under which `framework.torch_compile_learner` arrives."""


class BatchedPPOLearner(PPOTorchLearner):
    """Learns from `Rollout`s; everything it saves has the form of RLlib's own learner."""

    _loops: dict[str, PPO]

    def build(self) -> None:
        """As RLlib does."""
        super().build()
        self._loops = {}

    def update(  # type: ignore[override]
        self,
        *,
        training_data: TrainingData,
        timesteps: dict[str, Any] | None = None,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle_batch_per_epoch: bool = True,
        largest_share: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """All epochs over the rollouts in `training_data.batch`."""
        self._check_is_built()
        self.before_gradient_based_update(timesteps=timesteps or {})
        self._weights_seq_no += 1
        rollouts: Sequence[Rollout] = [rollout.to(self._device) for rollout in training_data.batch]
        [policy] = list(self.module.keys())
        settings = self._settings(
            policy,
            num_epochs=num_epochs,
            minibatch_size=minibatch_size,
            largest_share=largest_share,
            shuffle=shuffle_batch_per_epoch,
        )
        with warnings.catch_warnings():
            # cuDNN would rather have an LSTM's weights in a piece of their own than in the optimizer's.
            warnings.filterwarnings("ignore", message="RNN module weights are not part")
            losses = self._loop(policy).update(rollouts, settings, on_step=watchdog.report_progress)
        values = torch.stack(list(losses.values())).tolist()
        self.metrics.log_dict(dict(zip(losses, values, strict=True)), key=policy, window=1)
        steps = sum(len(rollout) for rollout in rollouts)
        count_trained(self.metrics, policy, steps * num_epochs, steps)
        self.after_gradient_based_update(timesteps=timesteps or {})
        return self.metrics.reduce()

    def _loop(self, policy: str) -> PPO:
        if policy not in self._loops:
            module = self.module[policy].unwrapped()
            [(_, optimizer)] = self.get_optimizers_for_module(policy)
            self._loops[policy] = PPO(
                module.net,
                module.action_space,
                optimizer,
                average=_average if self.config.num_learners > 1 else None,
                compiler=self._compiler(),
            )
        return self._loops[policy]

    def _compiler(self) -> Any:
        if not self.config.learner_config_dict.get(COMPILED):
            return None
        config = self.config
        backend = config.torch_compile_learner_dynamo_backend or "inductor"
        return partial(torch.compile, backend=backend, mode=config.torch_compile_learner_dynamo_mode)

    def _settings(self, policy: str, **more: Any) -> PPOSettings:
        config = self.config.get_config_for_module(policy)
        return settings_from(
            config,
            PPOSettings,
            entropy_coeff=float(self.entropy_coeff_schedulers_per_module[policy].get_current_value()),
            kl_coeff=float(self.curr_kl_coeffs_per_module[policy]) if config.use_kl_loss else None,
            max_seq_len=int(self.module[policy].unwrapped().model_config.get("max_seq_len") or 20),
            **more,
        )


def settings_from(config: Any, settings: type[Settings], **more: Any) -> Settings:
    """A learner's settings: `more`, and all others as RLlib's config has them under the same names."""
    names = {field.name for field in fields(settings)} - more.keys()  # type: ignore[arg-type]
    return settings(**{name: getattr(config, name) for name in names}, **more)


def _average(gradient: torch.Tensor) -> None:
    """Over all learners."""
    dist.all_reduce(gradient)
    gradient.div_(dist.get_world_size())


def count_trained(metrics: Any, policy: str, rows: int, env_steps: int) -> None:
    """Log how much a policy was trained on: rows over all epochs, and the environment steps behind them."""
    for where, now, ever, value in (
        (policy, NUM_MODULE_STEPS_TRAINED, NUM_MODULE_STEPS_TRAINED_LIFETIME, rows),
        (ALL_MODULES, NUM_MODULE_STEPS_TRAINED, NUM_MODULE_STEPS_TRAINED_LIFETIME, rows),
        (ALL_MODULES, NUM_ENV_STEPS_TRAINED, NUM_ENV_STEPS_TRAINED_LIFETIME, env_steps),
    ):
        metrics.log_value((where, now), value, reduce="sum")
        metrics.log_value((where, ever), value, reduce="lifetime_sum")
