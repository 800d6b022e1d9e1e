"""RLlib's DQN and SAC with a training step of their own: rounds of sampling and learning over arrays.

A round is RLlib's: every runner steps its environments for one fragment, then so many updates follow as
its `training_intensity` asks for. All rounds of an iteration happen in one call, with its figures logged
once at its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.dqn.dqn import DQN, calculate_rr_weights
from ray.rllib.algorithms.sac.sac import SAC
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_STORED,
    NUM_EPISODES_STORED,
    REPLAY_BUFFER_ADD_DATA_TIMER,
    REPLAY_BUFFER_RESULTS,
    REPLAY_BUFFER_SAMPLE_TIMER,
    REPLAY_BUFFER_UPDATE_PRIOS_TIMER,
    SAMPLE_TIMER,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from rayfish.algorithm.batched.replay import PrioritizedReplayBuffer, ReplayBuffer
from rayfish.algorithm.batched.rollout import Rollout

_GPU_SHARE = 0.25  # of a GPU's free memory that a replay buffer may take; a larger one stays in main memory


class _Timers:
    """Seconds by name, over many short spells."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Counts what happens inside."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin


class _Rounds:
    """The training step that DQN and SAC share."""

    def setup(self: Any, config: Any) -> None:
        """As RLlib does, with an array buffer in place of its own."""
        super().setup(config)  # type: ignore[misc]
        self.local_replay_buffer = self._new_replay()
        self._replay_figures = MetricsLogger(root=False)
        self._shared: tuple[Any, list[torch.Tensor], list[torch.Tensor]] | None = None

    def _create_local_replay_buffer_if_necessary(self, config: Any) -> None:
        """Later: its place depends on the observations."""

    def training_step(self: Any) -> None:
        """The rounds of one iteration, and its figures."""
        timers, learner, replay = _Timers(), self.learner_group._learner, self.local_replay_buffer
        lifetime = (ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME)
        before = int(self.metrics.peek(lifetime, default=0))
        counted = replay.counts()
        wanted = self.config.min_sample_timesteps_per_iteration or 1
        stores, updates = calculate_rr_weights(self.config)
        learner.begin()
        taken = 0
        while taken < wanted:
            new = self._gather(stores, timers)
            if new is None:
                break  # every runner is away; RLlib brings them back before the next step
            taken += new
            # Where environments only began anew there is nothing to learn more from.
            if new and before + taken >= self.config.num_steps_sampled_before_learning_starts:
                self._learn(updates, before + taken, timers)
                with timers(SYNCH_WORKER_WEIGHTS_TIMER):
                    self._hand_out_weights()
        self._log(timers, counted, before + taken)

    def _gather(self: Any, times: int, timers: _Timers) -> int | None:
        """Fragments of every runner into the replay buffer; how many steps those were, None without any."""
        taken = 0
        for _ in range(times):
            with timers(ENV_RUNNER_SAMPLING_TIMER):
                rollouts = self._rollouts()
            if not rollouts:
                return None
            with timers(REPLAY_BUFFER_ADD_DATA_TIMER):
                for rollout in rollouts:
                    self.local_replay_buffer.add(rollout)
                    taken += rollout.env_steps
        return taken

    def _rollouts(self: Any) -> list[Rollout]:
        group = self.env_runner_group
        if not group.num_remote_env_runners():
            return [_fragment(group.local_env_runner)]
        timeout = self.config.sample_timeout_s
        return group.foreach_env_runner(_fragment, local_env_runner=False, timeout_seconds=timeout)

    def _learn(self: Any, times: int, timestep: int, timers: _Timers) -> None:
        config, replay, learner = self.config, self.local_replay_buffer, self.learner_group._learner
        beta = float(config.replay_buffer_config.get("beta") or 0.0)
        for _ in range(times):
            with timers(REPLAY_BUFFER_SAMPLE_TIMER):
                batch = replay.sample(
                    config.total_train_batch_size, n_step=config.n_step, gamma=config.gamma, beta=beta
                )
            with timers(LEARNER_UPDATE_TIMER):
                errors = learner.learn(batch, timestep)
            with timers(REPLAY_BUFFER_UPDATE_PRIOS_TIMER):
                replay.update_priorities(batch["indices"], errors.to(replay.device))

    @torch.no_grad()
    def _hand_out_weights(self: Any) -> None:
        """The learner's weights to every env runner: a plain copy in this process, through Ray elsewhere."""
        group = self.env_runner_group
        if group.num_remote_env_runners():
            group.sync_weights(from_worker_or_learner_group=self.learner_group, inference_only=True)
            return
        runner, learner = group.local_env_runner, self.learner_group._learner
        policy = runner.policy
        if self._shared is None or self._shared[0] is not policy:
            source = learner.module[runner.policy_id].unwrapped().state_dict()
            names = list(policy.state_dict())
            targets = [policy.state_dict()[name] for name in names]
            self._shared = policy, targets, [source[name] for name in names]
        torch._foreach_copy_(self._shared[1], self._shared[2])
        runner._weights_seq_no = learner._weights_seq_no

    def _log(self: Any, timers: _Timers, counted: dict[str, int], timestep: int) -> None:
        for name, seconds in timers.seconds.items():
            self.metrics.log_value((TIMERS, name), seconds, reduce="ema")
        group = self.env_runner_group
        remote = group.num_remote_env_runners()
        results = (
            group.foreach_env_runner(_figures, local_env_runner=False)
            if remote
            else [_figures(group.local_env_runner)]
        )
        self.metrics.aggregate(results, key=ENV_RUNNER_RESULTS)
        self.metrics.aggregate([self._replay_results(counted)], key=REPLAY_BUFFER_RESULTS)
        learner = self.learner_group._learner
        if learner._updates:
            self.metrics.aggregate([learner.finish(timestep)], key=LEARNER_RESULTS)

    def _replay_results(self: Any, counted: dict[str, int]) -> Any:
        """What went through the replay buffer since `counted` was taken, by RLlib's names."""
        replay, figures = self.local_replay_buffer, self._replay_figures
        figures.log_value(NUM_ENV_STEPS_STORED, len(replay), reduce="mean", window=1)
        figures.log_value(NUM_EPISODES_STORED, replay.episodes, reduce="mean", window=1)
        for name, count in replay.counts().items():
            figures.log_value(name, count - counted[name], reduce="sum")
            figures.log_value(f"{name}_lifetime", count - counted[name], reduce="lifetime_sum")
        return figures.reduce()

    def _new_replay(self: Any) -> ReplayBuffer:
        settings = self.config.replay_buffer_config
        capacity = int(settings.get("capacity") or 10_000)
        options = {"seed": self.config.seed, "device": self._place_for(capacity)}
        if "Prioritized" in str(settings.get("type")):
            return PrioritizedReplayBuffer(capacity, alpha=float(settings.get("alpha", 1.0)), **options)
        return ReplayBuffer(capacity, **options)

    def _place_for(self: Any, capacity: int) -> torch.device:
        """The learner's device, unless the buffer would fill up too much of a GPU."""
        device = torch.device(self.learner_group._learner._device)
        if device.type != "cuda":
            return device
        module = next(iter(self.learner_group._learner.module.values()))
        row = sum(_bytes(space) for space in (module.observation_space, module.action_space)) + 32
        free, _ = torch.cuda.mem_get_info(device)
        return device if row * capacity * 1.1 < free * _GPU_SHARE else torch.device("cpu")


class BatchedDQN(_Rounds, DQN):
    """DQN over arrays; RLlib's in everything but its training step and replay buffer."""


class BatchedSAC(_Rounds, SAC):
    """SAC over arrays; RLlib's in everything but its training step and replay buffer."""


def _fragment(runner: Any) -> Rollout:
    """On a runner: one fragment."""
    begin = time.perf_counter()
    rollout = runner.sample_rollout()
    runner.fragments_s = getattr(runner, "fragments_s", 0.0) + time.perf_counter() - begin
    return rollout


def _figures(runner: Any) -> Any:
    """On a runner: what happened since the last call."""
    runner.metrics.log_value(SAMPLE_TIMER, getattr(runner, "fragments_s", 0.0), reduce="ema")
    runner.fragments_s = 0.0
    return runner.get_metrics()


def _bytes(space: gym.Space) -> int:
    """Of one observation or action as it is stored."""
    parts = getattr(space, "spaces", None)
    if parts is not None:
        return sum(_bytes(part) for part in (parts.values() if isinstance(parts, dict) else parts))
    size = int(np.prod(space.shape or ()))
    return size * (4 if space.dtype is None else min(8, space.dtype.itemsize))
