"""A run's folder: making it, keeping `run.json` true, and finding runs and checkpoints again.

    runs/<name>/<YYYYmmdd-HHMMSS>-<short id>/
      run.json  config.yaml  overrides.yaml  command.txt  provenance.json
      metrics.jsonl  progress.csv  events/  log.txt
      checkpoints/000020/  checkpoints/last -> ...  checkpoints/best -> ...
      evaluations/  videos/  rollouts/  report.html

`run.json` carries the layout version, so that a later Rayfish can say what it cannot read.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import secrets
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rayfish.errors import CheckpointError, RayfishError, RunNotFound
from rayfish.files import atomic_link, atomic_write
from rayfish.metrics import names
from rayfish.run.named import answering, few
from rayfish.run.old_checkpoint import refuse

__all__ = [
    "RunDirectory",
    "atomic_link",
    "atomic_write",
    "find_checkpoint",
    "find_run",
    "list_runs",
]

if TYPE_CHECKING:
    from rayfish.experiment import Experiment

LAYOUT = 1
RUNNING, DONE, STOPPED, FAILED = "running", "done", "stopped", "failed"
LOST = "lost"
"""Shown for a run that says it is running while its process is gone; never written."""

DEFAULT_ROOT = "runs"

PROGRESS_EVERY_S = 5.0
"""How old `run.json` may be while training goes on."""


class RunDirectory:
    """One run's folder. `data` is the content of `run.json`; `update` changes it on disk as well."""

    def __init__(self, path: Path, data: dict[str, Any]) -> None:
        self.path = path
        self.data = data
        self._written = 0.0
        self._held: IO[str] | None = None

    @classmethod
    def create(
        cls,
        experiment: Experiment,
        root: str | Path | None = None,
        name: str | None = None,
        command: Sequence[str] | str = "",
        at: Path | None = None,
    ) -> RunDirectory:
        """Make the folder of a new run and write down what it is made from.

        :param root: the folder of all runs; `runtime.local_dir` when not given
        :param name: the run's name, `runtime.name` when not given, else algorithm and environment;
            runs of one name lie side by side
        :param command: the command line that started it
        :param at: the folder itself, where somebody else has named it: a sweep its trials'
        """
        from rayfish.run import provenance

        root = root or experiment.get("runtime.local_dir") or DEFAULT_ROOT
        name = name or experiment.get("runtime.name") or _default_name(experiment)
        run_id = secrets.token_hex(3)
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        path = _new_folder(at or Path(root) / _safe(name) / f"{stamp}-{run_id}")
        text = command if isinstance(command, str) else shlex.join(command)
        words = "".join(f"- {json.dumps(word)}\n" for word in experiment.overrides) or "[]\n"
        run = cls(path, {})
        with _whole_or_not_at_all(path):
            (path / "checkpoints").mkdir()
            experiment.save(path / "config.yaml")
            atomic_write(path / "overrides.yaml", words)
            atomic_write(path / "command.txt", text + "\n")
            atomic_write(path / "provenance.json", _json(provenance.collect()))
            run._first_entry(experiment, run_id, name)
        return run

    def _first_entry(self, experiment: Experiment, run_id: str, name: str) -> None:
        """Lock the folder for this process and write `run.json` for the first time."""
        self._lock()
        self.update(
            layout=LAYOUT,
            id=run_id,
            name=name,
            status=RUNNING,
            algo=experiment.get("algo.name"),
            env=_env_name(experiment),
            seed=experiment.get("debugging.seed"),
            counters={},
            best=None,
            times={"created": _now(), "begun": None, "ended": None},
            runner=None,
            process=_this_process(),
        )

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """The run that lies at `path`."""
        path = Path(path)
        try:
            data = json.loads((path / "run.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunNotFound(f"{path} is not a run: it has no run.json", "rayfish runs list") from None
        except ValueError as error:
            line = f" at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise _damaged(path, f"is cut short or damaged{line}") from None
        except OSError as error:
            raise _damaged(path, f"cannot be read: {error.strerror}") from None
        if not isinstance(data, dict):
            raise _damaged(path, f"is damaged: it holds a {type(data).__name__}, not keys and values")
        if data.get("layout", 0) > LAYOUT:
            raise RayfishError(
                f"the run {path} has layout {data['layout']}, this Rayfish reads layouts up to {LAYOUT}",
                "pip install --upgrade rayfish",
            )
        return cls(path, data)

    @property
    def title(self) -> str:
        """What the run is, in one line."""
        return f"{self.data.get('name')} · {self.data.get('algo')} on {self.data.get('env')}"

    @property
    def metrics_file(self) -> Path:
        """`metrics.jsonl`, one flat line per iteration."""
        return self.path / "metrics.jsonl"

    @property
    def log_file(self) -> Path:
        """`log.txt`, everything that was logged or printed anywhere."""
        return self.path / "log.txt"

    @property
    def config_file(self) -> Path:
        """`config.yaml`, the resolved experiment."""
        return self.path / "config.yaml"

    @property
    def overrides(self) -> list[str]:
        """The `key=value` words the run was started with."""
        import yaml

        file = self.path / "overrides.yaml"
        return list(yaml.safe_load(file.read_text(encoding="utf-8")) or []) if file.exists() else []

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def evaluations(self) -> Path:
        """The folder of evaluation results, made on first use."""
        return self._folder("evaluations")

    @property
    def status(self) -> str:
        """The status as it is: a run whose process is gone is `lost`, whatever `run.json` says."""
        status = self.data.get("status", FAILED)
        return LOST if status == RUNNING and not _alive(self.data.get("process") or {}) else status

    def update(self, **fields: Any) -> None:
        """Set fields of `run.json`; a dict is merged into the dict that is there."""
        for key, value in fields.items():
            old = self.data.get(key)
            self.data[key] = old | value if isinstance(old, dict) and isinstance(value, dict) else value
        atomic_write(self.path / "run.json", _json(self.data))
        self._written = time.monotonic()

    def begin(self, runner: str, why: str) -> None:
        """Say that this process trains the run, from the start or resumed.

        :param runner: how the environments are stepped (`rllib` or `batched`)
        :param why: the reason for that choice
        """
        self.update(
            status=RUNNING,
            reason=None,
            process=_this_process(),
            times={"begun": _now(), "ended": None},
            runner={"used": runner, "why": why},
        )

    def progress(self, metrics: Mapping[str, float], best: Mapping[str, Any] | None = None) -> None:
        """Keep counters, last return and best checkpoint; written every few seconds and on a new best."""
        counters = {name: metrics[name] for name in names.COUNTERS if name in metrics}
        new_best = best is not None and dict(best) != self.data.get("best")
        self.data["counters"] = (self.data.get("counters") or {}) | counters
        if names.RETURN_MEAN in metrics:
            self.data["return_mean"] = metrics[names.RETURN_MEAN]
        if new_best:
            self.data["best"] = dict(best or {})
        # Syncing to disk takes milliseconds: not with every iteration.
        if new_best or time.monotonic() - self._written > PROGRESS_EVERY_S:
            self.update()

    def finish(self, status: str, reason: str) -> None:
        """Write the end of the run: `done`, `stopped` or `failed`, and why."""
        self.update(status=status, reason=reason, times={"ended": _now()})
        if self._held is not None:
            self._held.close()
            self._held = None

    def continued(self, experiment: Experiment) -> None:
        """Notes what a resume changed: the experiment as it is now, and the words that were added."""
        experiment.save(self.config_file)
        if experiment.overrides:
            words = shlex.join(["rayfish", "train", "--resume", str(self.path), *experiment.overrides])
            old = (self.path / "command.txt").read_text(encoding="utf-8")
            atomic_write(self.path / "command.txt", f"{old}{words}\n")

    def require_idle(self, *, elsewhere: bool = True) -> None:
        """Refuses a run that another process is training; from now on others are refused this one.

        :param elsewhere: whether that may be a process of another machine, which cannot be seen from here,
            while run.json is young; False for one who knows who trains it
        """
        age = time.time() - (self.path / "run.json").stat().st_mtime
        here = (self.data.get("process") or {}).get("host") == platform.node()
        if self.status == RUNNING and (here or (elsewhere and age < 12 * PROGRESS_EVERY_S)):
            process = self.data.get("process") or {}
            raise RayfishError(
                f"the run {self.path} is in training: process {process.get('pid')} on {process.get('host')}",
                "wait for it, or stop it with Ctrl-C (SIGINT) there; then resume",
            )
        self._lock()

    def _lock(self) -> None:
        """Hold the folder for this process: run.json alone cannot tell two that begin at once.

        The lock goes with the process, however that ends.
        """
        try:
            held = (self.path / ".lock").open("w", encoding="utf-8")
        except OSError as error:
            raise RayfishError(
                f"the run folder {self.path} cannot be written: {error.strerror}",
                "copy it to a place you may write, and resume it there",
            ) from None
        try:
            fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            held.close()
            raise RayfishError(
                f"another process is about to train the run {self.path}", "wait for it, then resume"
            ) from None
        except OSError:  # a file system without locks
            pass
        self._held = held

    def checkpoint_path(self, iteration: int) -> Path:
        """Where the checkpoint of an iteration lies."""
        return self.checkpoints / f"{iteration:06d}"

    def list_checkpoints(self) -> list[Path]:
        """The complete checkpoints, oldest first (an unfinished one has another name)."""
        if not self.checkpoints.is_dir():
            return []
        return sorted(p for p in self.checkpoints.iterdir() if p.name.isdigit() and p.is_dir())

    def link(self, name: str, checkpoint: Path) -> None:
        """Point `checkpoints/last` or `checkpoints/best` at a checkpoint."""
        atomic_link(self.checkpoints / name, checkpoint.name)

    def _folder(self, name: str) -> Path:
        folder = self.path / name
        folder.mkdir(exist_ok=True)
        return folder


def list_runs(root: str | Path = DEFAULT_ROOT) -> list[RunDirectory]:
    """Every run under `root`, newest first; folders that cannot be read are left out."""
    return _runs_at(Path(root), "*/*/run.json")


def find_run(text: str | Path, root: str | Path = DEFAULT_ROOT) -> Path:
    """The run that `text` means: a path, a name (its newest run), an id or its beginning, or `last`."""
    path = Path(text)
    refuse(path)
    if path.exists():
        if (path / "sweep.json").is_file() and (path / "best" / "run.json").is_file():
            return (path / "best").resolve()  # a sweep means its best trial
        for folder in (path, *path.absolute().parents):
            if (folder / "run.json").is_file():
                return folder
        inside = _runs_at(path, "*/run.json")
        if inside:
            return inside[0].path
        for file in path.glob("*/run.json"):  # each of them is damaged
            return file.parent
        if path.is_dir() and ("/" in str(text) or not list_runs(root)):
            raise RunNotFound(
                f"{text} is neither a run nor a checkpoint: it has no run.json and no rayfish.json",
                "rayfish runs list shows the runs here; name one, or a folder under its checkpoints/",
            )
    none_yet = "train one first (rayfish train cartpole), or give the path of a run"
    return answering(str(text), list_runs(root), root, "run", none_yet)


def find_checkpoint(
    text: str | Path, root: str | Path = DEFAULT_ROOT, order: Sequence[str] = ("best", "last")
) -> Path:
    """The checkpoint that `text` means: its own path, or a run's (as in `find_run`): its best, else its last.

    :param order: which of a run's checkpoints is meant, the first that there is

    `RUN/checkpoints/last`, `RUN/checkpoints/000020` and the same with a run's name in front work too.
    """
    path = Path(text)
    if (path / "rayfish.json").is_file():
        return path.resolve()
    refuse(path)
    word, slash, tail = str(text).partition("/checkpoints/")
    run = RunDirectory.open(find_run(word if slash else text, root))
    wanted = [tail.strip("/")] if tail.strip("/") else list(order)
    for name in wanted:
        if (run.checkpoints / name / "rayfish.json").is_file():
            return (run.checkpoints / name).resolve()
    known = [checkpoint.name for checkpoint in run.list_checkpoints()]
    if not known:
        raise CheckpointError(
            f"the run {run.path} has no checkpoint (its status is {run.status})",
            "train longer, or set checkpoint.checkpoint_frequency lower than the iterations it ran",
        )
    if tail:
        raise CheckpointError(
            f"{run.path} has no checkpoint {tail!r}; it has {few(known)}", "name one of these"
        )
    return run.checkpoints / known[-1]


def _runs_at(root: Path, pattern: str) -> list[RunDirectory]:
    found = []
    for file in root.glob(pattern):
        try:
            found.append(RunDirectory.open(file.parent))
        except RayfishError:
            continue
    return sorted(found, key=_age, reverse=True)


def _age(run: RunDirectory) -> tuple[str, str]:
    return str((run.data.get("times") or {}).get("created") or ""), run.path.name


def _damaged(path: Path, why: str) -> RunNotFound:
    file = path / "run.json"
    kept = [entry.name for entry in sorted((path / "checkpoints").glob("[0-9]*"))]
    hint = "rayfish runs list shows the others"
    if kept:
        hint = f"its checkpoints are kept: rayfish evaluate {path}/checkpoints/{kept[-1]}"
    return RunNotFound(f"{file} {why}", hint)


@contextmanager
def _whole_or_not_at_all(path: Path) -> Iterator[None]:
    """Leaves no half-made run folder behind, and tells a full disk in plain words."""
    try:
        yield
    except BaseException as error:
        shutil.rmtree(path, ignore_errors=True)
        for parent in (path.parent, path.parent.parent):  # made for this run alone, when empty
            with suppress(OSError):
                parent.rmdir()
        if isinstance(error, OSError):
            raise RayfishError(
                f"the run folder {path} cannot be written: {error.strerror or error}",
                "free space there, or set runtime.local_dir to a folder on another disk",
            ) from error
        raise


def _new_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise RayfishError(
            f"the run folder {path} cannot be made: {error.strerror}",
            "set runtime.local_dir to a folder you may write",
        ) from None
    return path


def _safe(name: str) -> str:
    """A name as one folder: no separators, nothing that a shell or a file system stumbles over."""
    cleaned = "".join(c if c.isalnum() or c in "-_.+=" else "-" for c in name).strip(".-")
    return cleaned or "run"


def _env_name(experiment: Experiment) -> str:
    given = experiment.env
    if given is not None:
        return getattr(given, "__name__", type(given).__name__)
    return str(experiment.get("environment.env"))


def _default_name(experiment: Experiment) -> str:
    env = _env_name(experiment).replace(":", "/").rstrip("/").rpartition("/")[2]
    return f"{experiment.get('algo.name')}-{env}"


def _process_start(pid: int) -> float | None:
    """When the process began; tells it from a later one with the same number."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def _this_process() -> dict[str, Any]:
    return {"host": platform.node(), "pid": os.getpid(), "start": _process_start(os.getpid())}


def _alive(process: dict[str, Any]) -> bool:
    if process.get("host") != platform.node():
        return True  # Another machine's process cannot be seen from here: believe the file.
    start = _process_start(int(process.get("pid") or 0))
    return start is not None and (process.get("start") is None or abs(start - process["start"]) < 2.0)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
