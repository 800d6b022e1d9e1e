"""The processes of an algorithm: who is there, who died and how often, and ending them without asking.

RLlib keeps a count of restarts only; Ray's own table of actors also knows who, and what is left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from rayfish import threads
from rayfish.compat.ray_internals import actor_table
from rayfish.supervise import watchdog

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm

    from rayfish.envs.build import EnvInfo


@dataclass(frozen=True)
class WorkerStatus:
    """One env runner as Ray sees it.

    :param name: as logs call it: "runner 2", "evaluation runner 1"
    :param pid: of its newest process
    :param deaths: how often its process ended
    :param limit: how often it may be restarted
    :param alive: it is ready for work, as far as Ray knows
    :param gone: it will not be restarted again
    :param trains: its steps are for training, not for evaluation
    :param cause: what Ray says of its end, "" while it lives
    """

    name: str
    pid: int
    deaths: int
    limit: int
    alive: bool
    gone: bool
    trains: bool
    cause: str = ""


def census(algorithm: Algorithm) -> list[WorkerStatus]:
    """Every remote env runner."""
    from ray.core.generated import gcs_pb2

    found: list[WorkerStatus] = []
    managers = [entry for entry in _managers(algorithm) if entry[2].num_actors()]
    table: Any = actor_table() if managers else None
    for role, trains, manager in managers:
        for number, actor in manager._actors.items():
            data = table.get_actor_info(actor._actor_id)
            if data is None:
                continue
            row = gcs_pb2.ActorTableData.FromString(data)
            state_now = gcs_pb2.ActorTableData.ActorState.Name(row.state)
            gone = state_now == "DEAD"
            worker = WorkerStatus(
                name=f"{role} {number}",
                pid=row.pid,
                deaths=row.num_restarts + gone,
                limit=row.max_restarts,
                alive=state_now == "ALIVE",
                gone=gone,
                trains=trains,
                cause=row.death_cause.actor_died_error_context.error_message if gone else "",
            )
            found.append(worker)
    return found


def troubled(algorithm: Algorithm, restarts: dict[str, int]) -> bool:
    """Whether RLlib has missed a runner since the last call; `restarts` is what it remembers."""
    changed = False
    for role, _, manager in _managers(algorithm):
        changed |= manager.num_healthy_actors() < manager.num_actors()
        changed |= manager.total_num_restarts() != restarts.get(role, 0)
        restarts[role] = manager.total_num_restarts()
    return changed


def none_is_left(algorithm: Algorithm) -> bool:
    """Whether there are runners to train with, and RLlib misses every one of them."""
    group = getattr(algorithm, "env_runner_group", None)
    return (
        group is not None
        and group.num_remote_env_runners() > 0
        and group.num_healthy_remote_env_runners() == 0
    )


def learner_is_lost(algorithm: Algorithm) -> bool:
    """Whether a remote learner has died."""
    manager = _learner_manager(algorithm)
    return manager is not None and manager.num_healthy_actors() < manager.num_actors()


def follow_learners(
    algorithm: Algorithm, setup: Callable[[str], None] | None, patience: watchdog.Patience
) -> None:
    """Every update of a network counts as progress, and what remote learners log is heard."""
    _count_updates()
    if _learner_manager(algorithm) is not None:
        algorithm.learner_group.foreach_learner(partial(_follow, setup=setup, patience=patience))


def thread_counts(algorithm: Algorithm, info: EnvInfo) -> dict[str, int]:
    """How many torch threads acting and learning get in this process; remote workers have those of Ray."""
    config, learner = algorithm.config, _local_learner(algorithm)
    actor = getattr(getattr(algorithm, "env_runner", None), "module", None)

    def fitting(module: Any, rows: float) -> int:
        networks = [module] if isinstance(module, nn.Module) else module.values() if module else ()
        spaces = info.observation_spaces.values()
        each = [max(threads.multiplications(network, space) for space in spaces) for network in networks]
        return threads.fitting(rows * sum(each))

    if hasattr(config, "batch_length_T"):  # DreamerV3: sequences, and no train batch
        batch = config.batch_size_B * config.batch_length_T
    else:
        batch = getattr(config, "minibatch_size", None) or config.train_batch_size_per_learner
    return {
        "acting": fitting(actor, config.num_envs_per_env_runner * len(info.agents)),
        "learning": fitting(getattr(learner, "module", None), threads.BACKWARD * batch),
    }


def share_threads(algorithm: Algorithm, counts: dict[str, int]) -> None:
    """Gives updates in this process their own number of threads; `counts` may change later."""
    threads.use(counts["acting"])
    learner = _local_learner(algorithm)
    if learner is not None:
        update = learner.update

        def update_with_threads(*args: Any, **kwargs: Any) -> Any:
            with threads.limited_to(counts["learning"]):
                return update(*args, **kwargs)

        learner.update = update_with_threads


def _local_learner(algorithm: Algorithm) -> Any:
    return getattr(getattr(algorithm, "learner_group", None), "_learner", None)


def end_all(algorithm: Algorithm) -> None:
    """Ends the algorithm's processes without asking them: one that hangs would never answer."""
    _kill_workers(algorithm)
    with suppress(Exception):
        algorithm.stop()


def stop(algorithm: Algorithm, within_s: float) -> None:
    """Stops the algorithm; workers that have not closed their environments by then are killed."""
    late = threading.Timer(within_s, _kill_workers, (algorithm,))
    late.daemon = True
    late.start()
    try:
        algorithm.stop()
    except Exception:
        if not late.finished.is_set():  # else it is the end of a worker that was killed
            raise
    finally:
        late.cancel()


def _kill_workers(algorithm: Algorithm) -> None:
    import ray

    managers = [manager for _, _, manager in _managers(algorithm)]
    learners = _learner_manager(algorithm)
    for manager in [*managers, *([learners] if learners is not None else [])]:
        for actor in manager._actors.values():
            with suppress(Exception):
                ray.kill(actor)


def _managers(algorithm: Algorithm) -> Iterator[tuple[str, bool, Any]]:
    groups = (
        ("runner", True, getattr(algorithm, "env_runner_group", None)),
        ("evaluation runner", False, getattr(algorithm, "eval_env_runner_group", None)),
    )
    for role, trains, group in groups:
        if group is not None:
            yield role, trains, group._worker_manager


def _learner_manager(algorithm: Algorithm) -> Any:
    group = getattr(algorithm, "learner_group", None)
    return group._worker_manager if group is not None and group.is_remote else None


def _follow(learner: Any, setup: Callable[[str], None] | None, patience: watchdog.Patience) -> None:
    if setup is not None:
        setup(f"learner {learner._learner_index or 0}")
    _count_updates()
    watchdog.watch_process(patience)


_counting: list[Any] = []


def _count_updates() -> None:
    """Once per process: a hook that every torch optimizer calls after a step."""
    if not _counting:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        _counting.append(register_optimizer_step_post_hook(watchdog.report_progress))
