"""The processes of an algorithm: calls into them, how often each died, and how to kill those that hang.

RLlib only counts restarts; Ray's own table of actors also has which worker died, and how often it may again.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from rayfish import threads
from rayfish.algorithm.weights import local_learner
from rayfish.compat.ray_internals import actor_row
from rayfish.compat.rllib_internals import actors_of, has_lost_actors, learner_index
from rayfish.errors import CodeError, RayfishError
from rayfish.experiment.imports import user_frame
from rayfish.supervise import watchdog

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm import Algorithm

    from rayfish.envs.build import EnvInfo


@dataclass(frozen=True)
class WorkerStatus:
    """One env runner as Ray sees it.

    :param deaths: how often its process ended; at most `limit` times it is restarted
    :param gone: not to be restarted again
    :param trains: its steps are for training, not for evaluation
    :param cause: Ray's text on its end, "" while it lives
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
    found: list[WorkerStatus] = []
    for role, trains, group in _groups(algorithm):
        for number, actor in actors_of(group).items():
            row = actor_row(actor)
            if row is None:
                continue
            state = row.ActorState.Name(row.state)
            gone = state == "DEAD"
            worker = WorkerStatus(
                name=f"{role} {number}",
                pid=row.pid,
                deaths=row.num_restarts + gone,
                limit=row.max_restarts,
                alive=state == "ALIVE",
                gone=gone,
                trains=trains,
                cause=row.death_cause.actor_died_error_context.error_message if gone else "",
            )
            found.append(worker)
    return found


def troubled(algorithm: Algorithm, restarts: dict[str, int]) -> bool:
    """Whether RLlib has missed a runner since the last call, which left its counts in `restarts`."""
    changed = False
    for role, _, group in _groups(algorithm):
        changed |= group.num_healthy_remote_env_runners() < group.num_remote_env_runners()
        changed |= group.num_remote_worker_restarts() != restarts.get(role, 0)
        restarts[role] = group.num_remote_worker_restarts()
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
    group = getattr(algorithm, "learner_group", None)
    return group is not None and group.is_remote and has_lost_actors(group)


def follow_learners(
    algorithm: Algorithm, setup: Callable[[str], None] | None, patience: watchdog.Patience
) -> None:
    """Every update of a network counts as progress, and what remote learners log is captured."""
    _count_updates()
    if algorithm.learner_group.is_remote:
        algorithm.learner_group.foreach_learner(partial(_follow, setup=setup, patience=patience))


def thread_counts(algorithm: Algorithm, info: EnvInfo) -> dict[str, int]:
    """How many torch threads acting and learning get in this process; remote workers have those of Ray."""
    config, learner = algorithm.config, local_learner(algorithm)
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
    learner = local_learner(algorithm)
    if learner is not None:
        update = learner.update

        def update_with_threads(*args: Any, **kwargs: Any) -> Any:
            with threads.limited_to(counts["learning"]):
                return update(*args, **kwargs)

        learner.update = update_with_threads


def call(runner: Any, function: Callable[[Any], Any]) -> tuple[str, Any]:
    """On a runner: ("", what the function returns), or (what it raised, None).

    RLlib takes an exception for a fault of the runner: it would restart it and silently drop the result.
    """
    try:
        return "", function(runner)
    except RayfishError as error:
        return str(error), None
    except Exception as error:
        frame = user_frame(error)
        where = f" at {frame.filename}:{frame.lineno}" if frame else ""
        return f"{type(error).__name__}{where}: {error}", None


def answers(given: list[tuple[str, Any]]) -> list[Any]:
    """What `call` returned on every runner; CodeError where the function failed on one of them."""
    failed = next((text for text, _ in given if text), "")
    if failed:
        raise CodeError(f"the function failed on an env runner: {failed}", "fix that line")
    return [value for _, value in given]


def end_all(algorithm: Algorithm) -> None:
    """Kills the algorithm's processes: one that hangs would never answer."""
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

    groups = [group for _, _, group in _groups(algorithm)]
    learners = getattr(algorithm, "learner_group", None)
    if learners is not None and learners.is_remote:
        groups.append(learners)
    for actor in (actor for group in groups for actor in actors_of(group).values()):
        with suppress(Exception):
            ray.kill(actor)


def _groups(algorithm: Algorithm) -> Iterator[tuple[str, bool, Any]]:
    """The groups of env runners: (what logs call a runner of it, whether it trains, group)."""
    for role, trains, name in (
        ("runner", True, "env_runner_group"),
        ("evaluation runner", False, "eval_env_runner_group"),
    ):
        group = getattr(algorithm, name, None)
        if group is not None:
            yield role, trains, group


def _follow(learner: Any, setup: Callable[[str], None] | None, patience: watchdog.Patience) -> None:
    if setup is not None:
        setup(f"learner {learner_index(learner)}")
    _count_updates()
    watchdog.watch_process(patience)


@functools.cache
def _count_updates() -> None:
    """Once per process: a hook that every torch optimizer calls after a step."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(watchdog.report_progress)
