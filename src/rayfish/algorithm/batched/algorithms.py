"""RLlib's PPO with a training step of its own: rollouts in, one update, weights out once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from ray.rllib.algorithms.ppo.ppo import PPO
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)
from torch import Tensor

from rayfish.algorithm.batched.rollout import Rollout
from rayfish.compat import torch_internals

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm


class BatchedPPO(PPO):
    """PPO over rollouts; RLlib's in everything but its training step."""

    def training_step(self) -> None:
        """Sample, learn, hand out the weights."""
        with self.metrics.log_time((TIMERS, ENV_RUNNER_SAMPLING_TIMER)):
            rollouts, results = sample(self, int(self.config.total_train_batch_size))
            if not rollouts:
                return
            self.metrics.aggregate(results, key=ENV_RUNNER_RESULTS)
        with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
            learnt = self.learner_group.update(
                **for_learners(self, rollouts),
                timesteps={
                    NUM_ENV_STEPS_SAMPLED_LIFETIME: self.metrics.peek(
                        (ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME)
                    )
                },
                num_epochs=self.config.num_epochs,
                minibatch_size=self.config.minibatch_size,
                shuffle_batch_per_epoch=self.config.shuffle_batch_per_epoch,
            )
            self.metrics.aggregate(learnt, key=LEARNER_RESULTS)
        with self.metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)):
            hand_out_weights(self)


def sample(algorithm: Algorithm, wanted: int) -> tuple[list[Rollout], list[Any]]:
    """Rollouts of at least so many environment steps in all, and what each runner counted.

    What a runner that died did not collect is collected by the others. When all are away, what there is
    waits in the algorithm for the next call, after RLlib has restarted them; the rollouts are empty then.
    """
    group = algorithm.env_runner_group
    rollouts, results = algorithm.__dict__.pop(_WAITING, ([], []))
    taken = sum(rollout.env_steps for rollout in rollouts)
    while taken < wanted:
        if rollouts and group.num_remote_env_runners() == 0:
            rollouts[-1] = rollouts[-1].copy()  # the next one is written into its memory
        runners = group.num_healthy_remote_env_runners() or 1
        fragment = partial(_sampled, most=-(-(wanted - taken) // runners))
        found = (
            group.foreach_env_runner(
                fragment, local_env_runner=False, timeout_seconds=algorithm.config.sample_timeout_s
            )
            if group.num_remote_env_runners()
            else [fragment(group.local_env_runner)]
        )
        if not found:
            vars(algorithm)[_WAITING] = rollouts, results
            return [], []
        for rollout, result in found:
            rollouts.append(rollout)
            results.append(result)
            taken += rollout.env_steps
    return rollouts, results


_WAITING = "_rayfish_waiting"


def _sampled(runner: Any, most: int) -> tuple[Rollout, Any]:
    """On a runner: one fragment, of no more steps than are needed, and its figures."""
    fragment = runner.config.get_rollout_fragment_length(runner.worker_index)
    steps = min(fragment, -(-most // runner.num_envs))
    with runner.metrics.log_time("sample"):
        rollout = runner.sample_rollout(steps, least=steps * runner.num_envs)
    runner.sampled([rollout])
    return rollout, runner.get_metrics()


def for_learners(algorithm: Algorithm, rollouts: list[Rollout]) -> dict[str, Any]:
    """The rollouts as `LearnerGroup.update` takes them: whole, or a share of the slots for each learner."""
    learners = algorithm.config.num_learners
    if not learners:
        return {"batch": rollouts}
    shares: list[list[Rollout]] = [[] for _ in range(learners)]
    before, bounds = 0, _bounds(rollouts, learners)
    for rollout in rollouts:
        slots = rollout.shape[1]
        for share, start, stop in zip(shares, bounds, bounds[1:], strict=False):
            first, last = max(start - before, 0), min(stop - before, slots)
            if first < last:
                share.append(rollout.columns(first, last))
        before += slots
    # Learners step together: all of them take as many minibatches as the largest share needs.
    largest = max(sum(len(rollout) for rollout in share) for share in shares)
    return {"batches": shares, "largest_share": largest}


def _bounds(rollouts: list[Rollout], learners: int) -> list[int]:
    """Where the slots of each learner begin, so that all have about as many steps, and each has a slot."""
    ends = np.cumsum([rollout.shape[0] for rollout in rollouts for _ in range(rollout.shape[1])])
    bounds = [int(np.searchsorted(ends, ends[-1] * index // learners, "right")) for index in range(learners)]
    inner = [min(max(bound, index), len(ends) - learners + index) for index, bound in enumerate(bounds)]
    return [0, *inner[1:], len(ends)]


@torch.no_grad()
def hand_out_weights(algorithm: Algorithm, weights: tuple[list[Tensor], list[Tensor]] | None = None) -> None:
    """The learner's weights to every env runner: copied in this process, sent once through Ray elsewhere.

    :param weights: what `local_weights` returned before
    """
    group, learners = algorithm.env_runner_group, algorithm.learner_group
    if group.num_remote_env_runners() or not learners.is_local:
        group.sync_weights(from_worker_or_learner_group=learners, inference_only=True)
        return
    torch_internals.copy_all(*(weights or local_weights(algorithm)))
    group.local_env_runner._weights_seq_no = learners._learner._weights_seq_no


def local_weights(algorithm: Algorithm) -> tuple[list[Tensor], list[Tensor]]:
    """Of the policy that acts in this process, and of the learner, in the same order."""
    runner = algorithm.env_runner_group.local_env_runner
    source = algorithm.learner_group._learner.module[runner.policy_id].unwrapped().state_dict()
    state = runner.policy.state_dict()
    return list(state.values()), [source[name] for name in state]
