"""RLlib's PPO, DQN and SAC with a training step of their own, over arrays.

PPO: rollouts in, one update, weights out once. DQN and SAC: rounds of sampling and learning. A round is
RLlib's: every runner steps its environments for one fragment, then as many updates follow as
`training_intensity` asks for. All rounds of an iteration run in one call, which logs metrics at its end.

Remote runners collect the next rounds while the learner learns from the last ones, because a call through
Ray takes longer than many a round. They act with the weights from before those updates. No call is in
flight at the end of an iteration, so that runs repeat and resume exactly.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import ray
import torch
from ray.rllib.algorithms.dqn.dqn import DQN
from ray.rllib.algorithms.ppo.ppo import PPO
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
from torch import Tensor

from rayfish.algorithm.batched.eligibility import stored_bytes
from rayfish.algorithm.batched.replay.buffer import PrioritizedReplayBuffer, ReplayBuffer
from rayfish.algorithm.batched.rollout import Rollout
from rayfish.compat import torch_internals

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm

_STEPS_AHEAD = 16  # environment steps, at least, that remote runners collect with the same weights
_INLINE_BYTES = 50_000  # of weights sent within a call; larger ones go through the object store once
_TAG = "rayfish_fragments"  # of calls in flight
_GPU_SHARE = 0.25  # of a GPU's free memory that a replay buffer may take; a larger one stays in main memory
_WAITING = "_rayfish_waiting"  # of an algorithm: rollouts of runners that died since


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


class _Timers(defaultdict[str, float]):
    """Seconds by name, summed over many short intervals."""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Times what happens inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self[name] += time.perf_counter() - start


class _Rounds:
    """The training step that DQN and SAC share."""

    def setup(self: Any, config: Any) -> None:
        """As RLlib does, with an array buffer in place of its own."""
        super().setup(config)  # type: ignore[misc]
        self.local_replay_buffer = self._new_replay()
        self._replay_figures = MetricsLogger(root=False)
        self._shared: tuple[Any, tuple[list[Tensor], list[Tensor]]] | None = None
        self._rounds_asked = 1

    def _create_local_replay_buffer_if_necessary(self, config: Any) -> None:
        """Later: its place depends on the observations."""

    def training_step(self: Any) -> None:
        """The rounds of one iteration, and its figures."""
        timers, learner, replay = _Timers(float), self.learner_group._learner, self.local_replay_buffer
        lifetime = (ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME)
        before = int(self.metrics.peek(lifetime, default=0))
        counted = replay.counts()
        wanted = self.config.min_sample_timesteps_per_iteration or 1
        stores, updates = _shares_of_a_round(self.config)
        learner.begin()
        taken = 0
        remote = self.env_runner_group.num_remote_env_runners()
        for rollouts in (self._remote_rounds if remote else self._local_rounds)(wanted, stores, timers):
            new = sum(rollout.env_steps for rollout in rollouts)
            with timers(REPLAY_BUFFER_ADD_DATA_TIMER):
                for rollout in rollouts:
                    replay.add(rollout)
            taken += new
            # Where environments only reset there is nothing to learn more from.
            if new and before + taken >= self.config.num_steps_sampled_before_learning_starts:
                self._learn(updates, before + taken, timers)
        self._log(timers, counted, before + taken)

    def _local_rounds(self: Any, wanted: int, stores: int, timers: _Timers) -> Iterator[list[Rollout]]:
        """Rounds of the runner in this process, each with the newest weights."""
        taken = 0
        while taken < wanted:
            with timers(ENV_RUNNER_SAMPLING_TIMER):
                rollouts = _fragments(self.env_runner_group.local_env_runner, stores)
            taken += sum(rollout.env_steps for rollout in rollouts)
            yield rollouts
            self._hand_out_weights(timers)

    def _remote_rounds(self: Any, wanted: int, stores: int, timers: _Timers) -> Iterator[list[Rollout]]:
        """Rounds of remote runners, which collect the next ones while these are learnt from."""
        taken, patience = 0, self.config.sample_timeout_s  # for a round; None: without end
        self._request(wanted, stores, timers)
        while taken < wanted:
            with timers(ENV_RUNNER_SAMPLING_TIMER):
                found = self.env_runner_group.fetch_ready_async_reqs(
                    tags=_TAG, timeout_seconds=patience and patience * self._rounds_asked
                )
            if not found:
                break  # every runner is away; RLlib restarts them before the next iteration
            of_runners = [rollouts for _, rollouts in sorted(found, key=lambda pair: pair[0])]
            taken += sum(rollout.env_steps for rollouts in of_runners for rollout in rollouts)
            if taken < wanted:
                self._request(wanted - taken, stores, timers)
            for first in range(0, max(map(len, of_runners)), stores):
                turns = zip_longest(*(rollouts[first : first + stores] for rollouts in of_runners))
                yield [rollout for turn in turns for rollout in turn if rollout is not None]
        self._hand_out_weights(timers)

    def _request(self: Any, wanted: int, stores: int, timers: _Timers) -> None:
        """Sends the weights to remote runners and has them collect whole rounds, at most `wanted` steps."""
        config, group = self.config, self.env_runner_group
        steps = stores * config.get_rollout_fragment_length(1) * config.num_envs_per_env_runner
        steps *= group.num_healthy_remote_env_runners() or 1
        self._rounds_asked = -(-min(_STEPS_AHEAD, wanted) // steps)
        with timers(SYNCH_WORKER_WEIGHTS_TIMER):
            weights: Any = [source.cpu().numpy() for source in self._weights()[1]]
            if sum(array.nbytes for array in weights) > _INLINE_BYTES:
                weights = ray.put(weights)
            seq_no = self.learner_group._learner._weights_seq_no
            request = {"count": stores * self._rounds_asked, "weights": weights, "weights_seq_no": seq_no}
            group.foreach_env_runner_async(_fragments, tag=_TAG, kwargs=request)

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

    def _hand_out_weights(self: Any, timers: _Timers) -> None:
        """The learner's weights to every env runner, once it has learned."""
        if self.learner_group._learner._updates:
            with timers(SYNCH_WORKER_WEIGHTS_TIMER):
                hand_out_weights(self, self._weights())

    def _weights(self: Any) -> tuple[list[Tensor], list[Tensor]]:
        """`local_weights`, looked up again where the acting policy is another."""
        policy = self.env_runner_group.local_env_runner.policy
        if self._shared is None or self._shared[0] is not policy:
            self._shared = policy, local_weights(self)
        return self._shared[1]

    def _log(self: Any, timers: _Timers, counted: dict[str, int], timestep: int) -> None:
        for name, seconds in timers.items():
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
        row = sum(stored_bytes(space) for space in (module.observation_space, module.action_space)) + 32
        free, _ = torch.cuda.mem_get_info(device)
        return device if row * capacity * 1.1 < free * _GPU_SHARE else torch.device("cpu")


class BatchedDQN(_Rounds, DQN):
    """DQN over arrays; RLlib's in everything but its training step and replay buffer."""


class BatchedSAC(_Rounds, SAC):
    """SAC over arrays; RLlib's in everything but its training step and replay buffer."""


def _shares_of_a_round(config: Any) -> tuple[int, int]:
    """How many fragments and how many updates: `training_intensity` steps trained for each one sampled.

    RLlib also counts a local runner next to remote ones, which takes no steps there: with one
    remote runner it trains twice as often as it was set to.
    """
    if not config.training_intensity:
        return 1, 1
    runners = max(config.num_env_runners, 1)
    sampled = config.get_rollout_fragment_length() * config.num_envs_per_env_runner * runners
    updates = config.training_intensity * sampled / config.total_train_batch_size
    return (round(1 / updates), 1) if updates < 1 else (1, round(updates))


def _fragments(
    runner: Any, count: int, weights: list[np.ndarray] | None = None, weights_seq_no: int = 0
) -> list[Rollout]:
    """On a runner: so many fragments, with new weights where some are given."""
    begin = time.perf_counter()
    if weights is not None:
        runner.load_weights(weights, weights_seq_no)
    rollouts = []
    for _ in range(count):
        rollout = runner.sample_rollout()
        rollouts.append(rollout.copy() if count > 1 else rollout)  # the next one is written into its memory
    runner.fragments_s = getattr(runner, "fragments_s", 0.0) + time.perf_counter() - begin
    return rollouts


def _figures(runner: Any) -> Any:
    """On a runner: what happened since the last call."""
    runner.metrics.log_value(SAMPLE_TIMER, getattr(runner, "fragments_s", 0.0), reduce="ema")
    runner.fragments_s = 0.0
    return runner.get_metrics()
