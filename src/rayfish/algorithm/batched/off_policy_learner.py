"""DQN's and SAC's learners of the batched path.

RLlib keeps the weights, target networks, optimizers and schedules, and saves them in its own form; the
update itself is `dqn.DQN` or `sac.SAC`, and figures are logged once for a series of updates.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.utils.metrics import (
    LAST_TARGET_UPDATE_TS,
    MODULE_TRAIN_BATCH_SIZE_MEAN,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_TARGET_UPDATES,
    WEIGHTS_SEQ_NO,
)
from torch import Tensor

from rayfish.algorithm.batched.dqn import DQN, DQNSettings
from rayfish.algorithm.batched.learner import count_trained, settings_from
from rayfish.algorithm.batched.off_policy_networks import Critic, Policy, q_function, sac_networks
from rayfish.algorithm.batched.replay.buffer import Batch
from rayfish.algorithm.batched.sac import NAMES, SAC, SACSettings
from rayfish.nested import map_nested
from rayfish.supervise import watchdog


class _Series:
    """Updates of the one policy of a learner, one after the other, and their figures together."""

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


class BatchedDQNLearner(_Series, DQNTorchLearner):
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


class BatchedSACLearner(_Series, SACTorchLearner):
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
