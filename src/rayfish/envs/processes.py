"""Environments in processes of their own, stepped as one `VectorEnv`; for environments that are slow.

Gymnasium's `AsyncVectorEnv` with what a training needs besides. Its processes come from a clean fork
server: forked from this one they would inherit locks that Ray's and torch's threads hold, and its
display. What an environment prints or logs there reaches this process. A fault keeps its type and its
place; a process that dies or hangs is reported as such. Ctrl-C and SIGTERM are the run's business, which
may still want an iteration to end. With the process that made them they end, however that ends.
"""

from __future__ import annotations

import atexit
import io
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing import spawn
from multiprocessing.connection import Connection
from typing import Any, TextIO

import cloudpickle
import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState

from rayfish.compat.library_internals import async_worker
from rayfish.envs.build import make
from rayfish.envs.guard import guarded
from rayfish.envs.resolve import resolve
from rayfish.envs.restarts import restarting
from rayfish.envs.rewards import clipped
from rayfish.envs.spec import EnvConfig, EnvSpec
from rayfish.errors import EnvironmentFault, RayfishError
from rayfish.supervise import signals, watchdog
from rayfish.supervise import worker_messages as messages
from rayfish.supervise.error_messages import describe_exit
from rayfish.supervise.logs import MessageHandler, send_record

CLOSE_S = 5.0
"""How long a process has to close its environment before it is ended by force."""

_START = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
_ORPHAN_S, _FAULT_S, _LONGEST = 2.0, 1.0, 2**16
_MAIN = ("init_main_from_name", "init_main_from_path")


def in_processes(
    spec: EnvSpec,
    config: Any,
    num_envs: int,
    patience: watchdog.Patience,
    failed: str = "",
    **options: Any,
) -> ProcessVector:
    """So many environments of a spec, each in a process of its own.

    :param config: the `env_config`; what it says of its worker (`worker_index`) goes with it
    :param patience: how long a call into an environment may take
    :param failed: what a step becomes in which an environment fails and is remade (`envs.restarts`)
    :param options: of Gymnasium's `AsyncVectorEnv`, in place of those of the batched path
    """
    source = resolve(spec)
    registered = gym.registry.get(source.gym_id) if source.gym_id is not None else None
    if source.registered:  # the other processes have no registry of Ray to look into
        spec = replace(spec, object=source.target)
    maker = partial(_make, spec, _plain_config(config), registered, failed)
    return ProcessVector([maker] * num_envs, patience, spec.name, **options)


def _plain_config(config: Any) -> EnvConfig:
    """A copy of an `env_config`, with what it says of its worker, that needs no Ray."""
    made = EnvConfig(config)
    vars(made).update(getattr(config, "__dict__", {}))
    return made


def _make(spec: EnvSpec, config: EnvConfig, registered: Any, failed: str) -> gym.Env:
    """One environment with its guard, in a process that knows nothing of Ray.

    :param registered: the environment's entry in Gymnasium's registry, which may have been made in a notebook
    """

    def make_one() -> gym.Env:
        if registered is not None:
            gym.registry.setdefault(registered.id, registered)
        return clipped(guarded(make(spec, _plain_config(config)), spec.name), spec.clip_rewards)

    return restarting(make_one, spec.name, failed) if failed else make_one()


class ProcessVector(AsyncVectorEnv):
    """One process per environment.

    :param patience: how long a call into an environment may take
    :param options: of Gymnasium's `AsyncVectorEnv`; by default a finished episode resets in the same step,
        and the next step overwrites the observations
    """

    def __init__(
        self,
        makers: Sequence[Callable[[], Any]],
        patience: watchdog.Patience,
        name: str = "",
        **options: Any,
    ) -> None:
        self._name = name
        self._reported: BaseException | None = None
        if _START == "forkserver":  # what every process needs is imported once, by the server
            multiprocessing.get_context(_START).set_forkserver_preload([__name__])
        output, output_end = multiprocessing.Pipe(duplex=False)
        self._faults, faults = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # messages stay whole
        self._faults.settimeout(_FAULT_S)
        level = logging.getLogger().getEffectiveLevel()
        worker = partial(
            _live, output=output_end, faults=_FaultSender(faults), patience=patience, level=level
        )
        try:
            with _without_main(), self._report_deaths():
                usual = {"shared_memory": True, "copy": False, "autoreset_mode": AutoresetMode.SAME_STEP}
                super().__init__(makers, context=_START, worker=worker, **{**usual, **options})
        except BaseException:
            self._end(0.0)
            raise
        finally:  # the processes hold them now: the output ends with the last process
            output_end.close()
            faults.close()
        # Unused; its semaphores would be removed after Ray has ended the process that tracks them.
        self.error_queue.close()
        del self.error_queue
        lines = os.fdopen(os.dup(output.fileno()), encoding="utf-8", errors="replace")
        threading.Thread(target=_repeat_output, args=(lines,), name="rayfish-env-output", daemon=True).start()
        _LIVE.add(self)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin all episodes."""
        with self._report_deaths():
            return super().reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of each."""
        with self._report_deaths():
            result = super().step(actions)
        watchdog.report_progress()  # guards count in their own processes
        return result

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Ask every process to close its environment; those that take too long are ended."""
        self._end(0.0 if terminate else CLOSE_S if timeout is None else timeout)

    def _end(self, patience_s: float) -> None:
        pipes, processes = getattr(self, "parent_pipes", []), getattr(self, "processes", [])
        for pipe in pipes:
            if pipe is not None and not pipe.closed:
                with suppress(OSError):
                    pipe.send(("close", None))
        until = time.monotonic() + patience_s
        for process in processes:
            if process.pid is None:
                continue
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join(CLOSE_S)
        for pipe in pipes:
            if pipe is not None:
                pipe.close()
        self.closed = True

    @contextmanager
    def _report_deaths(self) -> Iterator[None]:
        """A broken pipe is a process that is gone: say which, and why."""
        try:
            yield
        except (EOFError, OSError) as error:
            if error is self._reported:  # an environment's own
                raise
            self._reported = self._death()
            raise self._reported from None  # that a pipe has ended says nothing more

    def _raise_if_errors(self, successes: Any) -> None:
        """In place of Gymnasium's, which prints tracebacks and loses an exception's place and notes."""
        if not all(successes):
            self._state = AsyncState.DEFAULT
            self._reported = self._fault() or self._death()
            raise self._reported

    def _fault(self) -> BaseException | None:
        """The fault that a process reported; None when it reported none."""
        try:
            index, pickled, text = pickle.loads(self._faults.recv(2 * _LONGEST))
        except OSError:
            return None
        self.parent_pipes[index].close()
        try:
            error = cloudpickle.loads(pickled)
        except Exception:  # a class that cannot be made from its own arguments
            error = RuntimeError(text.rstrip().rpartition("\n")[2])
        if not isinstance(error, RayfishError):
            error.__cause__ = ElsewhereError(text)
        return error

    def _death(self) -> BaseException:
        reported = self._fault()
        if reported is not None:
            return reported
        for index, process in enumerate(self.processes):
            process.join(0.2)
            if process.exitcode is not None:
                return EnvironmentFault(
                    f"the process of environment {index} ({process.pid}) {describe_exit(process.exitcode)}",
                    "if memory is short, lower rollouts.num_envs_per_env_runner; "
                    f"rayfish env check {self._name} tries the environment by itself",
                )
        return EnvironmentFault("the process of an environment does not answer any more")


class ElsewhereError(Exception):
    """The traceback of another process, as text."""

    def __str__(self) -> str:
        """On lines of its own, with an empty one after it."""
        return f"\n{self.args[0]}\n"


_LIVE: weakref.WeakSet[ProcessVector] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Before `multiprocessing` asks processes to end with SIGTERM, which they ignore."""
    for vector in list(_LIVE):
        if not vector.closed:
            vector._end(0.0)


def _repeat_output(lines: TextIO) -> None:
    """Repeat the processes' output in this one: as log messages or as printed lines."""
    with lines, suppress(ValueError, OSError):
        for line in lines:
            record = messages.decode(line)
            if record is not None:
                level, _, name, text = record
                if name == messages.HEARTBEAT:
                    watchdog.report_progress()
                else:
                    number = logging.getLevelNamesMapping().get(level, logging.INFO)
                    logging.getLogger(name).log(number, "%s", text)
            elif line.strip():
                print(line.rstrip("\n"))


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes begun in the block do not import the program that runs here.

    Theirs is a creator with all it needs; a script without `if __name__ == "__main__"` would train
    again in each of them, and a Ray worker's program would import Ray.
    """
    original = spawn.get_preparation_data

    def without(name: str) -> dict[str, Any]:
        return {key: value for key, value in original(name).items() if key not in _MAIN}

    spawn.get_preparation_data = without
    try:
        yield
    finally:
        spawn.get_preparation_data = original


def _live(  # noqa: PLR0917
    index: int,
    maker: Callable[[], Any],
    pipe: Connection,
    parent_pipe: Connection,
    memory: Any,
    unused: Any,
    autoreset: AutoresetMode,
    *,
    output: Connection,
    faults: _FaultSender,
    patience: watchdog.Patience,
    level: int,
) -> None:
    """The life of one process: an environment is made, then Gymnasium's own loop."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signals.ignore)
    threading.Thread(target=_end_with_parent, name="rayfish-parent", daemon=True).start()
    _redirect_output(output, level)
    watchdog.activity().give_up = partial(_give_up, index, faults)
    watchdog.watch_process(patience)
    try:
        env = maker()
    except Exception as error:
        faults.put((index, type(error), error, ""))
        pipe.send((None, False))
        return
    with suppress(EOFError, OSError):  # the parent is gone
        async_worker()(index, lambda: env, pipe, parent_pipe, memory, faults, autoreset)


class _FaultSender:
    """In place of Gymnasium's queue of errors: in a form that another process can read, and sent at once."""

    def __init__(self, to: socket.socket) -> None:
        self._to = to

    def put(self, fault: tuple[int, Any, Any, str]) -> None:
        """As Gymnasium's loop calls it: index, type, exception, traceback."""
        index, _, error, _ = fault
        notes = getattr(error, "__notes__", None)
        if notes:
            del error.__notes__  # the text ends with the message itself
        text = "".join(traceback.format_exception(error))[-_LONGEST // 2 :]
        if notes:
            error.__notes__ = notes
        try:
            self._to.send(pickle.dumps((index, cloudpickle.dumps(error), text)))
        except Exception:  # it cannot be pickled, or is too large
            self._to.send(pickle.dumps((index, b"", text)))


def _give_up(index: int, faults: _FaultSender, what: str, hint: str) -> None:
    """A call into the environment hangs: this process ends, and says why."""
    faults.put((index, EnvironmentFault, EnvironmentFault(what, hint), ""))
    os._exit(1)


def _end_with_parent() -> None:
    """The loop sees its end by a closed pipe, but not in the midst of a call into the environment."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        time.sleep(_ORPHAN_S)
        os._exit(1)


def _redirect_output(output: Connection, level: int) -> None:
    """Let what is printed and logged here reach the process that made this one."""
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # whole lines: the other processes write there, too
            stream.reconfigure(line_buffering=True, write_through=False)
    root = logging.getLogger()
    root.addHandler(MessageHandler(partial(send_record, 1, "")))
    root.setLevel(level)
