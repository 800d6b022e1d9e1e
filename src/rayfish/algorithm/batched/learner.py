"""The learners of the batched path: RLlib's, with the updates of `ppo`, `dqn` and `sac`.

RLlib keeps the weights, target networks, optimizers and schedules, and saves them in its own form.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

import gymnasium as gym
import torch
import torch.distributed as dist
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.utils.metrics import (
    ALL_MODULES,
    LAST_TARGET_UPDATE_TS,
    MODULE_TRAIN_BATCH_SIZE_MEAN,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_TRAINED,
    NUM_ENV_STEPS_TRAINED_LIFETIME,
    NUM_MODULE_STEPS_TRAINED,
    NUM_MODULE_STEPS_TRAINED_LIFETIME,
    NUM_TARGET_UPDATES,
    WEIGHTS_SEQ_NO,
)
from torch import Tensor

from rayfish.algorithm.batched.dqn import DQN, DQNSettings
from rayfish.algorithm.batched.off_policy_networks import Critic, Policy, q_function, sac_networks
from rayfish.algorithm.batched.ppo import PPO, PPOSettings
from rayfish.algorithm.batched.replay.buffer import Batch
from rayfish.algorithm.batched.rollout import Rollout
from rayfish.algorithm.batched.sac import NAMES, SAC, SACSettings
from rayfish.nested import map_nested
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


class _OffPolicyLearner:
    """What DQN's and SAC's learners share: a series of updates of the one policy, logged together."""

    def build(self) -> None:
        """As RLlib does."""
        super().build()  # type: ignore[misc]
        self._loop: Any = None
        self._settings: Any = None

    def begin(self: Any) -> None:
        """Before a series of updates: take over what was loaded or changed since the last one."""
        [policy] = list(self.module.keys())
        self._policy = policy
        if self._loop is None:
            self._loop = self._new_loop(policy)
        config = self.config.get_config_for_module(policy)
        self._settings = settings_from(config, self.settings_class)
        self._target_every, self._tau = config.target_network_update_freq, config.tau
        self._moving = [
            (optimizer, schedule)
            for optimizer, schedule in self._optimizer_lr_schedules.items()
            if schedule is not None and schedule.use_schedule
        ]
        self._loop.attach()
        self._updates = self._rows = self._target_updates = 0

    def learn(self: Any, batch: Batch, timestep: int) -> Tensor:
        """One update; returns the absolute TD errors of the batch.

        :param timestep: environment steps so far, for schedules and target networks
        """
        if batch["rewards"].device != self._device:
            batch = map_nested(lambda leaf: leaf.to(self._device, non_blocking=True), batch)
        errors = self._loop.update(batch, self._settings)
        self._updates += 1
        self._rows += errors.shape[0]
        self._weights_seq_no += 1
        for optimizer, schedule in self._moving:
            self._set_optimizer_lr(optimizer, lr=schedule.update(timestep=timestep))
        if timestep - self.last_update_ts_by_mid[self._policy] >= self._target_every:
            self._loop.update_target(self._tau)
            self._target_updates += 1
            self.last_update_ts_by_mid[self._policy] = timestep
        watchdog.report_progress()
        return errors

    def finish(self: Any, timestep: int) -> Any:
        """After a series of updates: its figures, those of the losses from its last batch."""
        policy, metrics = self._policy, self.metrics
        losses = self._loop.metrics()
        values = torch.stack([value.detach().float().reshape(()) for value in losses.values()]).tolist()
        metrics.log_dict(dict(zip(losses, values, strict=True)), key=policy, window=1)
        metrics.log_value((policy, WEIGHTS_SEQ_NO), self._weights_seq_no, window=1)
        metrics.log_value((policy, MODULE_TRAIN_BATCH_SIZE_MEAN), self._rows / self._updates, reduce="mean")
        count_trained(metrics, policy, self._rows, self._rows)
        if self._target_updates:
            metrics.log_value((policy, NUM_TARGET_UPDATES), self._target_updates, reduce="lifetime_sum")
            last = self.last_update_ts_by_mid[policy]
            metrics.log_value((policy, LAST_TARGET_UPDATE_TS), last, reduce="max")
        # Learning rates alone: target networks have followed already.
        TorchLearner.after_gradient_based_update(self, timesteps={NUM_ENV_STEPS_SAMPLED_LIFETIME: timestep})
        return metrics.reduce()

    def _optimizers(self: Any, policy: str) -> dict[str, torch.optim.Optimizer]:
        found = self.get_optimizers_for_module(policy)
        return {name.removeprefix(f"{policy}_"): optimizer for name, optimizer in found}


class BatchedDQNLearner(_OffPolicyLearner, DQNTorchLearner):
    """Learns a Q network from batches of the array replay buffer."""

    settings_class = DQNSettings

    def _new_loop(self, policy: str) -> DQN:
        module = self.module[policy].unwrapped()
        dueling = module.uses_dueling
        [optimizer] = self._optimizers(policy).values()
        return DQN(
            q_function(module.encoder, module.af, module.vf if dueling else None),
            q_function(module._target_encoder, module._target_af, module._target_vf if dueling else None),
            optimizer,
            masked=module.masked,
        )


class BatchedSACLearner(_OffPolicyLearner, SACTorchLearner):
    """Learns a policy, its critics and a temperature from batches of the array replay buffer."""

    settings_class = SACSettings

    def _new_loop(self, policy: str) -> SAC:
        module = self.module[policy].unwrapped()
        return SAC(
            networks_of(module),
            log_alpha=self.curr_log_alpha[policy],
            target_entropy=self.target_entropy[policy],
            optimizers=self._optimizers(policy),
            discrete=isinstance(module.action_space, gym.spaces.Discrete),
            masked=module.masked,
        )


def networks_of(module: Any) -> tuple[Policy, list[Critic], list[Critic]]:
    """The policy, critics and target critics of a `SACModule`."""

    def critics(prefix: str) -> list[tuple[Any, Any]]:
        names = NAMES if module.twin_q else NAMES[:1]
        return [
            (getattr(module, f"{prefix}{name}_encoder"), getattr(module, f"{prefix}{name}")) for name in names
        ]

    return sac_networks((module.pi_encoder, module.pi), critics(""), critics("target_"))


def settings_from(config: Any, settings: type[Settings], **more: Any) -> Settings:
    """A learner's settings: `more`, and all others as RLlib's config has them under the same names."""
    names = {field.name for field in fields(settings)} - more.keys()  # type: ignore[arg-type]
    return settings(**{name: getattr(config, name) for name in names}, **more)


def _average(gradient: Tensor) -> None:
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
