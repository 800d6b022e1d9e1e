"""The workers of a sweep: one Ray actor per running trial, kept for the next trial where possible."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rayfish.errors import RayfishError
from rayfish.run import trust
from rayfish.supervise.error_messages import explain_exit
from rayfish.sweep.capacity import Capacity, of_ray
from rayfish.sweep.task import Resources, Target, Task
from rayfish.sweep.worker import Reply, Worker

_NODE_GONE = re.compile(
    r"node .{0,80}(?:died|dead|terminat|remov|drain|preempt)|(?:died|dead|lost).{0,60}\bnode\b",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Lost:
    """A worker that is gone.

    :param node: its machine is gone too, which is not the trial's fault
    """

    why: str
    node: bool


def why_lost(error: Exception) -> Lost:
    """Why a worker is gone, by the exception of a call to it."""
    from ray.exceptions import ActorUnavailableError

    if isinstance(error, ActorUnavailableError):
        # Ray sees a dead process at once, a dead machine only after a timeout.
        return Lost("its machine does not answer", node=True)
    text = str(error).partition("Some common causes")[0]
    if _NODE_GONE.search(text):
        return Lost("its machine has left the cluster", node=True)
    return Lost(explain_exit(text).what, node=False)


def ready(ray: Any, asked: Iterable[Any], timeout: float) -> list[Any]:
    """The futures that have an answer now; waits for the first one, at most so long."""
    found, rest = ray.wait(list(asked), num_returns=1, timeout=timeout)
    more = ray.wait(rest, num_returns=len(rest), timeout=0)[0] if found and rest else []
    return [*found, *more]


def _pickled(target: Target) -> bytes:
    import cloudpickle

    try:
        return cloudpickle.dumps(target)
    except Exception as error:
        raise RayfishError(
            f"what is tuned cannot be sent to worker processes: {error}",
            "do not refer to locks, open files or connections from outside the function; make them inside",
        ) from None


@dataclass
class _Hand:
    """One worker process; its placement group, if the trial has further processes."""

    actor: Any
    resources: Resources
    group: Any = None


class TrialWorkers:
    """Starts, asks and ends workers; only this class calls Ray.

    :param usual: what a trial holds, as far as it is known before the points are
    :param reuse: whether a worker serves one trial after another
    :param paths: folders where the user's modules are
    """

    def __init__(
        self,
        ray: Any,
        target: Target,
        capacity: Capacity,
        *,
        usual: Resources,
        reuse: bool,
        paths: Sequence[str] = (),
    ) -> None:
        self._ray = ray
        self._target = ray.put(_pickled(target))
        self._paths = tuple(paths)
        self.capacity = capacity
        self._seen = [capacity]
        self._usual = usual
        self._reuse = reuse
        self._busy: dict[int, _Hand] = {}
        self._idle: list[_Hand] = []
        self._asked: dict[Any, tuple[int, str]] = {}

    def look_again(self) -> int:
        """How many trials the cluster holds at once now: machines come and go."""
        self._require_ray()
        self.capacity = of_ray(self._ray, self.capacity.where)
        if self.capacity.nodes not in (seen.nodes for seen in self._seen):
            self._seen.append(self.capacity)
        self._make_room()
        return self.capacity.fitting(self._usual)

    def has_fitted(self, resources: Resources) -> bool:
        """Whether the cluster had room for such a trial at any time of this session."""
        return any(capacity.fitting(resources) for capacity in self._seen)

    @property
    def busy(self) -> list[int]:
        """The trials that have a worker."""
        return list(self._busy)

    def room(self, resources: Resources) -> bool:
        """Whether a trial with these resources can start now."""
        return self.capacity.fits_now(resources, [hand.resources for hand in self._busy.values()])

    def start(self, task: Task, resources: Resources) -> None:
        """Gives a trial to a worker: to an idle one of the same size, else to a new one."""
        hand = next((hand for hand in reversed(self._idle) if hand.resources == resources), None)
        if hand is None:
            hand = self._new(resources)
        else:
            self._idle.remove(hand)
        self._busy[task.number] = hand
        self._make_room()
        self._asked[hand.actor.begin.remote(task)] = (task.number, "begin")

    def ask(self, number: int, what: str, *arguments: Any) -> None:
        """Asks a trial's worker: `step`, `save` or `end`."""
        future = getattr(self._busy[number].actor, what).remote(*arguments)
        self._asked[future] = (number, what)

    def replies(self, timeout: float) -> Iterator[tuple[int, str, Reply | Lost]]:
        """Yields trial, request and answer of each worker that has answered, the first within `timeout`."""
        if not self._asked:
            return
        self._require_ray()
        for future in ready(self._ray, self._asked, timeout):
            asked = self._asked.pop(future, None)
            if asked is None:  # its trial was dropped because of another one's answer
                continue
            try:
                yield *asked, self._ray.get(future)
            except self._ray.exceptions.RayError as error:
                yield *asked, why_lost(error)

    def release(self, number: int) -> None:
        """The trial is over; its worker waits for another."""
        hand = self._busy.pop(number)
        if self._reuse:
            self._idle.append(hand)
            self._make_room()
        else:
            self._end(hand)

    def drop(self, number: int) -> None:
        """The trial's worker is gone, or must end."""
        hand = self._busy.pop(number, None)
        for future in [f for f, (asked, _) in self._asked.items() if asked == number]:
            del self._asked[future]
        if hand is not None:
            self._end(hand)

    def drop_idle(self) -> None:
        """Ends idle workers: a machine is gone, and it is unknown which of them were there."""
        while self._idle:
            self._end(self._idle.pop())

    def close(self) -> None:
        """All workers end."""
        for hand in (*self._busy.values(), *self._idle):
            self._end(hand)
        self._busy.clear()
        self._idle.clear()
        self._asked.clear()

    def _require_ray(self) -> None:
        if not self._ray.is_initialized():
            raise ConnectionError(f"{self.capacity.where} is gone")

    def _make_room(self) -> None:
        """Ends idle workers that hold what busy ones need, which may wait for a machine that is gone."""
        busy = [hand.resources for hand in self._busy.values()]
        while self._idle and not self.capacity.holds([*busy, *(hand.resources for hand in self._idle)]):
            self._end(self._idle.pop(0))

    def _new(self, resources: Resources) -> _Hand:
        main, *workers = resources.bundles
        group = strategy = None
        if workers:
            from ray.util.placement_group import placement_group
            from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

            group = placement_group(resources.bundles, strategy="PACK")
            strategy = PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
            )
        other = {name: value for name, value in main.items() if name not in ("CPU", "GPU", "memory")}
        actor = self._ray.remote(Worker).options(
            num_cpus=main.get("CPU", 0),
            num_gpus=main.get("GPU", 0),
            memory=main.get("memory") or None,
            resources=other or None,
            scheduling_strategy=strategy,
            max_restarts=0,
        )
        return _Hand(actor.remote(self._target, self._paths, trust.hand_over()), resources, group)

    def _end(self, hand: _Hand) -> None:
        if not self._ray.is_initialized():  # Ray would start one of its own
            return
        with suppress(Exception):
            self._ray.kill(hand.actor)
        if hand.group is not None:
            from ray.util.placement_group import remove_placement_group

            with suppress(Exception):
                remove_placement_group(hand.group)
