"""Any function as a sweep's target: it takes a configuration, and reports, yields or returns its score.

    def train(config):
        for step in range(10):
            ...
            rayfish.sweep.report(score=score)

`ray.tune.report(score=...)` and `ray.tune.report({"score": ...})` in functions written for Ray Tune
do the same.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.abc
import importlib.util
import inspect
import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any, TextIO

from rayfish.errors import RayfishError
from rayfish.files import atomic_link, atomic_write, link_or_copy, remove
from rayfish.metrics.sinks.jsonl import roll_back
from rayfish.streams import StreamProxy
from rayfish.sweep.task import Resources, Target, Task, Work, unrecorded

COUNT = "training_iteration"
"""The number of a report, by Ray Tune's name; a function may have a `step` of its own."""

SCORE = "score"
"""The name of a score that a function returns as a bare number."""

_GIVE_UP_S = 5.0


class TrialEnded(BaseException):
    """Raised inside `report` to end the trial; no Exception, so that `except Exception` does not catch it."""


def report(metrics: Mapping[str, Any] | None = None, *, checkpoint: Any = None, **more: Any) -> None:
    """Reports metrics of a trial; called in a function that `rayfish.tune` runs.

    :param metrics: numbers by name; keywords do as well: `report(score=0.7, loss=1.2)`
    :param checkpoint: a folder to continue from if the trial is paused or interrupted; it is copied
    """
    work = _current.get("work")
    if work is None:
        raise RayfishError(
            "rayfish.sweep.report() was called outside a trial",
            "call it in a function that rayfish.tune(function, space) runs",
        )
    work.reported({**(metrics or {}), **more}, checkpoint)


def checkpoint() -> Path | None:
    """The last checkpoint that the trial has reported, to continue from; None at the beginning."""
    work = _current.get("work")
    return work.checkpoint if work is not None else None


_current: dict[str, FunctionWork] = {}


@dataclass
class FunctionTarget(Target):
    """A function of one configuration.

    :param function: takes a dictionary, or the parameters by name
    :param metric: the name of a score that is returned as a bare number
    """

    function: Callable[..., Any]
    config: dict[str, Any] = field(default_factory=dict)
    held: Resources = field(default_factory=Resources)
    metric: str = SCORE

    step_name = COUNT

    def step_of(self, saved: str) -> float:
        """Checkpoints are named by their report, which need not be the last one."""
        return float(Path(saved).name)

    def begin(self, task: Task) -> Work:
        """Starts a call, in a thread of its own."""
        return FunctionWork(self, task)

    def resources(self, params: Mapping[str, Any]) -> Resources:
        """The same for every point."""
        return self.held


class FunctionWork(Work):
    """A call in a thread, which runs until its next report and waits there."""

    def __init__(self, target: FunctionTarget, task: Task) -> None:
        self.target = target
        self.folder = task.folder
        if not task.resume and task.folder.exists():
            shutil.rmtree(task.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if task.donor:
            self._copy_donor(Path(task.donor))
        self.count = self._back_to_checkpoint() if task.resume else 0
        self._over = False
        self.config = configuration(target.config, task.params, task.seed)
        atomic_write(self.folder / "params.json", json.dumps(self.config, indent=2, default=str) + "\n")
        self._reports: SimpleQueue[Any] = SimpleQueue()
        self._go_on: SimpleQueue[bool] = SimpleQueue()
        self._metrics = (self.folder / "metrics.jsonl").open("a", encoding="utf-8")
        self._log = (self.folder / "log.txt").open("a", encoding="utf-8", buffering=1)
        self._thread: threading.Thread | None = None

    @property
    def finished(self) -> bool:
        """Whether the call has returned."""
        return self._over

    @property
    def gone(self) -> bool:
        """Whether the call has ended: one that catches everything still runs in its thread."""
        return self._thread is None or not self._thread.is_alive()

    @property
    def checkpoint(self) -> Path | None:
        """The folder that the call may continue from."""
        link = self.folder / "checkpoint"
        return link.resolve() if link.exists() else None

    def step(self) -> Mapping[str, Any] | None:
        """Until the next report."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._call, daemon=True, name="trial")
            self._thread.start()
        else:
            self._go_on.put(True)
        kind, value = self._reports.get()
        if kind == "failed":
            self._over = True
            raise value
        self._over = kind != "report"
        return value

    def missed(self, known_until: tuple[str, float]) -> list[Mapping[str, Any]]:
        """Its reports before it was interrupted, up to its checkpoint."""
        return unrecorded(self.folder / "metrics.jsonl", known_until, COUNT, self.count)

    def save(self) -> str:
        """The last checkpoint that was reported."""
        saved = self.checkpoint
        return str(saved) if saved else ""

    def end(self, how: str, why: str) -> None:
        """Ends the call where it waits: in its last report."""
        if self._thread is not None and not self._over:
            self._go_on.put(False)
            self._thread.join(_GIVE_UP_S)
        self._metrics.close()
        self._log.close()
        atomic_write(self.folder / "result.json", json.dumps({"status": how, "reason": why}) + "\n")

    def reported(self, metrics: Mapping[str, Any], folder: Any) -> None:
        """Called from the function's thread; returns when the trial may continue."""
        line = self._numbered(metrics)
        if folder is not None:
            self._keep(Path(getattr(folder, "path", folder)), self.count)
        self._reports.put(("report", line))
        if not self._go_on.get():
            raise TrialEnded

    def _numbered(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        self.count += 1
        written = json.dumps({**flat(metrics), COUNT: self.count}, default=str)
        self._metrics.write(f"{written}\n")
        self._metrics.flush()
        return dict(json.loads(written))  # without objects that cannot be pickled

    def _call(self) -> None:
        _current["work"] = self
        ended: tuple[str, Any]
        try:
            with _printing_to(self._log):
                result = _called(self.target.function, self.config)
                if inspect.isgenerator(result):
                    result = self._through(result)
            ended = ("over", self._last(result))
        except TrialEnded:
            return
        except BaseException as error:
            ended = ("failed", error)
        self._reports.put(ended)

    def _through(self, generator: Iterator[Any]) -> Any:
        while True:
            try:
                self.reported(_as_metrics(next(generator), self.target.metric) or {}, None)
            except StopIteration as over:
                return over.value

    def _last(self, result: Any) -> dict[str, Any] | None:
        metrics = _as_metrics(result, self.target.metric)
        return self._numbered(metrics) if metrics else None

    def _keep(self, folder: Path, step: int) -> None:
        """Copies the user's folder; the last four stay, so that a crash while copying loses nothing."""
        kept = self.folder / "checkpoints"
        target = kept / f"{step:06d}"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)
        atomic_link(self.folder / "checkpoint", f"checkpoints/{target.name}")
        for old in sorted(kept.glob("[0-9]*"))[:-4]:
            shutil.rmtree(old, ignore_errors=True)

    def _copy_donor(self, donor: Path) -> None:
        own = self.folder / "checkpoints" / donor.name
        draft = own.with_name(f".{donor.name}")
        link_or_copy(donor, draft)
        remove(own)
        draft.rename(own)
        atomic_link(self.folder / "checkpoint", f"checkpoints/{donor.name}")

    def _back_to_checkpoint(self) -> int:
        """The step of the checkpoint; drops the reports after it, which will be repeated."""
        step = int(self.checkpoint.name) if self.checkpoint is not None else 0
        file = self.folder / "metrics.jsonl"
        for note in roll_back(file, COUNT, step) if file.is_file() else ():
            with (self.folder / "log.txt").open("a", encoding="utf-8") as log:
                log.write(f"{note}\n")
        return step


def configuration(
    fixed: Mapping[str, Any], params: Mapping[str, Any], seed: int | None = None
) -> dict[str, Any]:
    """The argument of a function: the fixed values and the trial's point, dotted keys nested."""
    config: dict[str, Any] = {}
    seeds = {} if seed is None else {"seed": seed}
    # A copy: a worker's next trial must find the fixed values as they were.
    for key, value in [*copy.deepcopy(dict(fixed)).items(), *params.items(), *seeds.items()]:
        *above, last = str(key).split(".")
        place = config
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    return config


def flat(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested metrics with their keys joined by "/"; numbers of NumPy and torch as Python's own."""
    found: dict[str, Any] = {}
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}/")
        else:
            found[name] = value
            if hasattr(value, "item"):
                with contextlib.suppress(Exception):  # it holds many numbers
                    found[name] = value.item()
    return found


def _as_metrics(result: Any, metric: str) -> dict[str, Any] | None:
    if result is None:
        return None
    if isinstance(result, Mapping):
        return dict(result)
    if isinstance(result, bool) or not hasattr(result, "__float__"):
        raise RayfishError(
            f"the function gave {result!r}, which is no score",
            "return a number or a dictionary of numbers, or call rayfish.sweep.report(score=...)",
        )
    return {metric: float(result)}


def _called(function: Callable[..., Any], config: Mapping[str, Any]) -> Any:
    """`function(config)`; one that names its parameters gets them by name."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return function(dict(config))
    if not parameters:
        return function()
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    first = parameters[0]
    alone = len(parameters) == 1 and len(config) > 1 and first.kind is not first.VAR_KEYWORD
    free = first.name not in config and first.default is first.empty
    whole = first.name == "config" or free or alone
    if whole and first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD, first.VAR_POSITIONAL):
        return function(dict(config))
    rest = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return function(**{k: v for k, v in config.items() if rest or k in {p.name for p in named}})


class _Stream(StreamProxy):
    """Replaces stdout or stderr for good, since handlers of `logging` may keep it."""

    def __init__(self, wrapped: TextIO) -> None:
        super().__init__(wrapped)
        self.log: TextIO | None = None

    def write(self, text: str) -> int:
        """To the trial's log.txt, while one runs."""
        with contextlib.suppress(ValueError):  # the trial has just ended
            return (self.log or self.wrapped).write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes the current file."""
        with contextlib.suppress(ValueError):
            (self.log or self.wrapped).flush()


@contextlib.contextmanager
def _printing_to(log: TextIO) -> Iterator[None]:
    """Sends the output of a function to the trial's log.txt."""
    if not isinstance(sys.stdout, _Stream):
        sys.stdout, sys.stderr = _Stream(sys.stdout), _Stream(sys.stderr)
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, _Stream)]
    for stream in streams:
        stream.log = log
    try:
        yield
    finally:
        for stream in streams:
            if stream.log is log:
                stream.log = None


_TUNES = ("ray.tune", "ray.train")


def tune_reports_here() -> None:
    """In a worker: replaces Ray Tune's `report` and `get_checkpoint`, for functions written for Ray Tune.

    Ray Tune itself is not imported: the replacement happens when a function imports it.
    """
    for name in _TUNES:
        if name in sys.modules:
            _replace(sys.modules[name])
    if not any(isinstance(finder, _TuneFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TuneFinder())


class _TuneFinder(importlib.abc.MetaPathFinder):
    """Replaces the functions of Ray Tune once it is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The real module, with a step after it is loaded."""
        if name not in _TUNES:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                _replace(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _replace(module: ModuleType) -> None:
    """Also in the module that defines them, which a pickled function names."""
    for name, stand_in in (("report", report), ("get_checkpoint", _tune_checkpoint)):
        original = getattr(module, name, None)
        home = sys.modules.get(getattr(original, "__module__", ""))
        for place in (module, home):
            if place is not None and original is not None and hasattr(place, name):
                setattr(place, name, stand_in)


def _tune_checkpoint() -> Any:
    from ray.tune import Checkpoint

    folder = checkpoint()
    return Checkpoint.from_directory(str(folder)) if folder else None
