"""One job inside a worker process of Ray: its process, and its output on the way."""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rayfish.errors import RayfishError
from rayfish.jobs.job_list import Job
from rayfish.run import signing
from rayfish.sweep.program.process import Process, ended, environment, hint_for
from rayfish.sweep.program.tables import Earlier, Lines

LOG = "log.txt"
_LOOK_EVERY_S, _TELL_EVERY_S = 0.1, 1.0
_MOST_LINES = 2_000


@dataclass(frozen=True)
class JobUpdate:
    """What happened to a job since the last call.

    :param over: it has ended, or could not be started
    :param code: its exit code, None where it could not be started
    :param log_there: the output is already in the job's folder, this being the same machine
    """

    lines: tuple[str, ...] = ()
    over: bool = False
    code: int | None = None
    error: str = ""
    hint: str = ""
    last_lines: tuple[str, ...] = ()
    seconds: float = 0.0
    host: str = ""
    log_there: bool = True


class JobWorker:
    """The actor's class; never raises for a fault of the job.

    :param folder: of the job's results, on the driver's machine
    :param node: Ray's id of the driver's machine; on another one the output only travels there
    """

    def __init__(
        self, job: Job, folder: Path, start: Path, env: Mapping[str, str], node: str, *, key: str
    ) -> None:
        import ray

        signing.use(key)
        self._here = ray.get_runtime_context().get_node_id() == node
        self._folder = folder if self._here else Path(tempfile.mkdtemp(prefix=f"rayfish-{job.name}-"))
        self._job, self._start, self._env = job, start, dict(env)
        self._process: Process | None = None

    def begin(self) -> JobUpdate:
        """Starts the job."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not self._start.is_dir():
                raise RayfishError(
                    f"the folder {self._start} does not exist on {platform.node()}",
                    "start from a folder that all machines have",
                )
            log = self._folder / LOG
            earlier = Earlier(log.stat().st_size if log.exists() else 0)
            own = {"RAYFISH_JOB": self._job.name, "RAYFISH_JOB_DIR": str(self._folder.absolute())}
            env = environment(self._job.cpus, own | self._env)
            self._process = Process(self._job.command, self._start, log, env)
        except (RayfishError, OSError) as error:
            what, hint = (error.what, error.hint) if isinstance(error, RayfishError) else (str(error), "")
            return JobUpdate(over=True, error=what, hint=hint, host=platform.node())
        self._lines = Lines(log, earlier)
        return JobUpdate(host=platform.node(), log_there=self._here)

    def more(self) -> JobUpdate:
        """Waits for a while for output or the end."""
        assert self._process is not None
        until = time.monotonic() + _TELL_EVERY_S
        while True:
            code = self._process.wait(_LOOK_EVERY_S)
            lines = tuple(line.rstrip().rpartition("\r")[2] for line in self._lines.read(code is not None))
            if code is not None:
                error = "" if code == 0 else f"it {ended(code)}"
                last = tuple(self._process.last_lines())
                seconds, host = self._process.seconds, platform.node()
                return JobUpdate(lines[-_MOST_LINES:], True, code, error, hint_for(code), last, seconds, host)
            if lines or time.monotonic() > until:
                return JobUpdate(lines[-_MOST_LINES:], host=platform.node())

    def stop(self) -> None:
        """Starts to end it; `more` reports when it has ended."""
        if self._process is not None:
            self._process.request_stop()
