"""What a run loses (workers, learners, environments): counts, reports, and the end where it is too much."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rayfish import text
from rayfish.compat.ray_node import memory_of_killed
from rayfish.errors import RunFailed
from rayfish.metrics import names
from rayfish.supervise.error_messages import LESS_MEMORY, Reason, explain_exit
from rayfish.supervise.worker_messages import worker_messages

if TYPE_CHECKING:
    from rayfish.algorithm.workers import WorkerStatus
    from rayfish.experiment import Experiment
    from rayfish.run.trainer import Trainer

DEATHS_IN_A_ROW = 3
"""Deaths of each runner, without one rollout between them, before the run ends."""

_WAIT_FOR_REASON_S = 1.5
_WAIT_FOR_TABLE_S = 5.0  # RLlib may miss a runner before Ray has written down its end


class LearnerLost(RunFailed):
    """A remote learner died; the run may go back to its last checkpoint."""


class Losses:
    """Counts of one run, over all its sessions."""

    def __init__(self, experiment: Experiment, tell: Callable[[str], None] = print) -> None:
        self.tell = tell
        self.worker_restarts = self.learner_restarts = self.env_restarts = 0
        self._env = str(experiment.environment.env)
        self._most_learners = int(experiment.fault_tolerance.max_learner_restarts or 0)
        self._timeout = experiment.rollouts.sample_timeout_s
        self._remote_learners = bool(experiment.get("learners.num_learners"))
        self._newest: tuple[str, Reason] | None = None
        self._steps = 0.0
        self._in_a_row = 0
        self._restarts: dict[str, int] = {}
        self._deaths: dict[str, int] = {}
        self._processes: dict[str, int] = {}
        self._dropped = self._remade = 0
        worker_messages.begin(self._env)

    def rebuilt(self, algorithm: Any) -> None:
        """The algorithm was built (again): its workers begin their own counts at zero."""
        from rayfish.algorithm.workers import census

        self._restarts, self._deaths, self._dropped, self._remade = {}, {}, 0, 0
        self._processes = {row.name: row.pid for row in census(algorithm)}

    def restored(self, algorithm: Any) -> None:
        """A checkpoint was loaded: RLlib's own sum over the run's whole life came back with it."""
        failures = ("env_runners", "num_env_step_failures")
        self._remade = int(algorithm.metrics.peek(failures, default=0))

    def load_state(self, counters: Mapping[str, Any] | None) -> None:
        """Go on from the counters of earlier sessions, as `run.json` has them."""
        counters = counters or {}
        self.worker_restarts = int(counters.get(names.WORKER_RESTARTS, 0))
        self.learner_restarts = int(counters.get(names.LEARNER_RESTARTS, 0))
        self.env_restarts = int(counters.get(names.ENV_RESTARTS, 0))

    def after(self, trainer: Trainer) -> None:
        """Look at who is missing after an iteration; adds to its metrics.

        :raises RunFailed: runners do nothing but die, or none is left
        """
        from rayfish.algorithm import workers

        metrics = trainer.metrics
        steps = metrics.get(names.ENV_STEPS, 0)
        if steps != self._steps:
            self._steps, self._in_a_row = steps, 0
            trainer.watch.progress()
        if workers.troubled(trainer.algorithm, self._restarts):
            self._count(trainer)
        if names.WORKERS_LOST in metrics:
            metrics[names.WORKER_RESTARTS] = self.worker_restarts
        if self._remote_learners:
            metrics[names.LEARNER_RESTARTS] = self.learner_restarts
        self._report_dropped(trainer.result)
        self._report_remade(trainer.result)
        if self.env_restarts:
            metrics[names.ENV_RESTARTS] = self.env_restarts

    def cost_the_iteration(self, trainer: Trainer) -> bool:
        """Whether runners died and no step was made: no iteration, but one to be done again.

        :raises RunFailed: runners do nothing but die, or none is left
        """
        from rayfish.algorithm import workers

        sampled = (trainer.result.get("env_runners") or {}).get("num_env_steps_sampled")
        if sampled is not None and sampled > 0:  # it is NaN when every runner was away
            return False
        if not workers.troubled(trainer.algorithm, self._restarts):
            return False
        return self._count(trainer) or workers.none_is_left(trainer.algorithm)

    def require_steps(self, metrics: Mapping[str, float], over: str) -> None:
        """A run that is over without a single step because its runners died has not done its work.

        :param over: why the run is over, "" while it is not
        """
        if over and self._newest is not None and not metrics.get(names.ENV_STEPS):
            raise self._failed("no environment step was made")

    @contextmanager
    def of_learners(self, trainer: Trainer) -> Iterator[None]:
        """Turns what a dead remote learner makes of the block into `LearnerLost`."""
        from rayfish.algorithm.workers import learner_is_lost

        try:
            yield
        except Exception as error:
            # By RLlib's own book of learners: without restarts a runner's death raises the same exception.
            if trainer.watch.reason is not None or not learner_is_lost(trainer.algorithm):
                raise
            reason = _awaited("learner 0", 0) or explain_exit(str(error))
            raise LearnerLost(f"the learner died: {reason.what}", reason.hint) from error

    def learner_died(self, lost: LearnerLost, back_to: str) -> None:
        """Count a learner's death and tell it.

        :raises RunFailed: it was one too many
        """
        if self.learner_restarts >= self._most_learners:
            often = f"{self.learner_restarts + 1} times" if self.learner_restarts else "once"
            raise RunFailed(
                f"{lost.what} ({often}; fault_tolerance.max_learner_restarts={self._most_learners})",
                lost.hint,
            ) from lost
        self.learner_restarts += 1
        self.tell(f"{lost.what}; going back to {back_to} ({self.learner_restarts} of {self._most_learners})")

    def _count(self, trainer: Trainer) -> bool:
        """Report deaths; whether there were any. Where no runner is left, wait for the first to be back."""
        from rayfish.algorithm import workers

        died: set[str] = set()
        until = time.monotonic() + _WAIT_FOR_TABLE_S
        while True:
            rows = workers.census(trainer.algorithm)
            for row in rows:
                new = self._note(row)
                if new and row.trains:
                    died.add(row.name)
                    self._in_a_row += new
            trained = [row for row in rows if row.trains]
            self._require_hope(trained)
            back = any(row.alive and row.name in died for row in trained)
            if back or not workers.none_is_left(trainer.algorithm):
                return bool(died)
            if not died and time.monotonic() > until:
                return False
            time.sleep(0.2)

    def _note(self, row: WorkerStatus) -> int:
        """Report the deaths of a worker that are new; returns how many they are."""
        new = row.deaths - self._deaths.get(row.name, 0)
        if new <= 0:
            return 0
        self._deaths[row.name] = row.deaths
        self.worker_restarts += new - row.gone
        # By now the table may show the process that took its place.
        reason = _why(row.name, self._processes.get(row.name, row.pid), row.cause)
        self._processes[row.name] = row.pid
        self._newest = (row.name, reason)
        after = f"restarted ({row.deaths} of {row.limit})"
        if row.gone:
            after = f"not restarted again (fault_tolerance.max_num_env_runner_restarts={row.limit})"
        self.tell(f"{row.name} died: {reason.what}; {after}")
        return new

    def _require_hope(self, rows: list[WorkerStatus]) -> None:
        if not rows:
            return
        if all(row.gone for row in rows):
            limit = f"fault_tolerance.max_num_env_runner_restarts={rows[0].limit}"
            raise self._failed(f"no runner is left, and none may be restarted again ({limit})")
        if self._in_a_row >= DEATHS_IN_A_ROW * len(rows):
            raise self._failed(f"runners died {self._in_a_row} times in a row without one complete rollout")

    def _failed(self, what: str) -> RunFailed:
        name, reason = self._newest or ("a runner", Reason("of an unknown cause"))
        hint = reason.hint or f"rayfish env check {self._env} tries the environment by itself"
        return RunFailed(f"{what}; {name} died last: {reason.what}", hint)

    def _report_dropped(self, result: Mapping[str, Any]) -> None:
        dropped = int((result.get("fault_tolerance") or {}).get("num_env_runners_dropped_lifetime") or 0)
        if dropped > self._dropped:
            count = dropped - self._dropped
            self.tell(
                f"left out what {text.counted(count, 'slow runner')} collected: it took longer than "
                f"rollouts.sample_timeout_s={self._timeout} (null: wait)"
            )
        self._dropped = dropped

    def _report_remade(self, result: Mapping[str, Any]) -> None:
        """Environments that failed and were remade (`restart_failed_sub_environments`)."""
        count = int((result.get("env_runners") or {}).get("num_env_step_failures") or 0)
        if count > self._remade:
            self.env_restarts += count - self._remade
            times = text.counted(count - self._remade, "environment")
            reasons = list(worker_messages.by_name.values())
            worker_messages.by_name.clear()
            why = f": {reasons[-1].what}" if reasons else ""
            self.tell(f"{times} failed{why}; remade with new seeds ({self.env_restarts} so far)")
        self._remade = count


def require_finite(trainer: Trainer) -> None:
    """Ends a run whose losses or weights have become NaN or infinite, before they are saved.

    :raises RunFailed: with what to change
    """
    from rayfish.algorithm.weights import broken_losses, broken_weights

    found = broken_losses(trainer.result)
    layers = broken_weights(trainer.algorithm)
    if layers:
        more = f" and {len(layers) - 1} more" if len(layers) > 1 else ""
        found.append(f"the weights {layers[0]}{more} are not finite")
    if not found:
        return
    training = trainer.experiment.section("training")
    raise RunFailed(
        f"learning broke down in iteration {trainer.iteration}: {', '.join(found[:3])}",
        f"lower training.lr (now {training.get('lr', 'the default')}) or set training.grad_clip "
        f"(now {training.get('grad_clip', 'none')}), then --resume: the last checkpoint is from before",
    )


def _why(worker: str, pid: int, cause: str) -> Reason:
    memory = memory_of_killed(pid)
    if memory:
        return Reason(f"the machine ran low on memory, and Ray ended it (it used {memory})", LESS_MEMORY)
    return _awaited(worker, pid) or explain_exit(cause)


def _awaited(worker: str, pid: int) -> Reason | None:
    """Why a worker died; its last message may still be on its way."""
    until = time.monotonic() + _WAIT_FOR_REASON_S
    while True:
        reason = worker_messages.why(worker, pid)
        if reason is not None or time.monotonic() > until or not worker_messages.connected:
            return reason
        time.sleep(0.05)
