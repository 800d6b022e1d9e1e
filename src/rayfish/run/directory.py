"""A run's folder: making it, keeping `run.json` true, and finding runs and checkpoints again.

    runs/<name>/<YYYYmmdd-HHMMSS>-<short id>/
      run.json  config.yaml  overrides.yaml  command.txt  provenance.json
      metrics.jsonl  progress.csv  events/  log.txt
      checkpoints/000020/  checkpoints/last -> ...  checkpoints/best -> ...
      evaluations/  videos/  rollouts/  report.html

`run.json` carries the layout version, so that a later Rayfish can say what it cannot read.
"""

from __future__ import annotations

import json
import logging
import secrets
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfish.errors import CheckpointError, RayfishError, RunNotFound
from rayfish.experiment.legacy_door import refuse_old_checkpoint
from rayfish.experiment.result_names import todays_metric
from rayfish.experiment.tree import leaves
from rayfish.files import Unreadable, atomic_write, last_write, read_keys, set_aside, why_unwritable
from rayfish.metrics import names
from rayfish.run import lease, manifest, provenance, signing
from rayfish.run.lookup import SweepFolder, answering, few, newest_first, sweeps_at, wrong_types
from rayfish.run.trust import CONFIG

if TYPE_CHECKING:
    from rayfish.experiment import Experiment

LAYOUT = 1
RUNNING, DONE, STOPPED, FAILED = "running", "done", "stopped", "failed"
DAMAGED = "damaged"
"""Shown for a run whose run.json cannot be read; never written."""

DEFAULT_ROOT = "runs"
_log = logging.getLogger(__name__)

PROGRESS_EVERY_S = 5.0
"""How old `run.json` may be while training goes on."""


class RunDirectory(lease.HeldFolder):
    """One run's folder and the files in it; `data` is `run.json`, which `update` changes on disk as well."""

    RECORD = "run.json"

    def __init__(self, path: Path, data: dict[str, Any]) -> None:
        super().__init__(path, data)
        self.config_file = path / "config.yaml"
        self.metrics_file = path / "metrics.jsonl"
        self.log_file = path / "log.txt"
        self.checkpoints = path / "checkpoints"
        self._written = 0.0

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
        :param at: the folder itself, in place of a new one under `root`
        """
        root = root or experiment.runtime.local_dir or DEFAULT_ROOT
        env = env_name(experiment)
        default = f"{experiment.get('algo.name')}-{env.replace(':', '/').rstrip('/').rpartition('/')[2]}"
        name = name or experiment.runtime.name or default
        run_id = secrets.token_hex(3)
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        path = at or Path(root) / safe_name(name, "run") / f"{stamp}-{run_id}"
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise RayfishError(
                f"the run folder {path} cannot be made: {error.strerror}",
                "set runtime.local_dir to a folder you may write",
            ) from None
        text = command if isinstance(command, str) else shlex.join(command)
        words = "".join(f"- {json.dumps(word)}\n" for word in experiment.overrides) or "[]\n"
        run = cls(path, {})
        with _whole_or_not_at_all(path):
            run.checkpoints.mkdir()
            run.save_config(experiment)
            atomic_write(path / "overrides.yaml", words)
            atomic_write(path / "command.txt", text + "\n")
            atomic_write(path / "provenance.json", _json(provenance.collect()))
            run._lock()
            run.update(
                layout=LAYOUT,
                id=run_id,
                name=name,
                status=RUNNING,
                algo=experiment.algo.name,
                env=env,
                seed=experiment.debugging.seed,
                tags=tags_of(experiment),
                counters={},
                best=None,
                times={"created": _now(), "begun": None, "ended": None},
                runner=None,
                process=lease.this_process(),
            )
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """The run that lies at `path`."""
        path = Path(path)
        try:
            data = read_keys(path / cls.RECORD)
        except FileNotFoundError:
            raise RunNotFound(f"{path} is not a run: it has no run.json", "rayfish runs list") from None
        except Unreadable as error:
            raise _damaged(path, str(error)) from None
        wrong = wrong_types(data)
        if wrong:
            raise _damaged(path, f"is damaged: {wrong}")
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
    def overrides(self) -> list[str]:
        """The `key=value` words the run was started with; none where they cannot be read."""
        import yaml

        from rayfish.experiment.yaml_reader import safe_load

        try:
            words = safe_load((self.path / "overrides.yaml").read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            return []
        return [str(word) for word in words] if isinstance(words, list) else []

    def update(self, **fields: Any) -> None:
        """Set fields of `run.json`; a dict is merged into the dict that is there.

        :raises lease.Taken: the run is another process's by now
        """
        self.require_held()
        for key, value in fields.items():
            old = self.data.get(key)
            self.data[key] = old | value if isinstance(old, dict) and isinstance(value, dict) else value
        atomic_write(self.path / self.RECORD, _json(self.data))
        self._written = time.monotonic()

    def begin(self, runner: str, why: str) -> None:
        """Say that this process trains the run, from the start or resumed.

        :param runner: how the environments are stepped (`rllib` or `batched`)
        """
        self.update(
            status=RUNNING,
            reason=None,
            process=lease.this_process(),
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
        """Write the end of the run: `done`, `stopped` or `failed`, and why; also on a disk that is full."""
        self.require_held()
        times = (self.data.get("times") or {}) | {"ended": _now()}
        self.data |= {"status": status, "reason": reason, "times": times}
        try:
            last_write(self.path / self.RECORD, _json(self.data))
        finally:
            self.release()

    def save_config(self, experiment: Experiment) -> None:
        """Writes `config.yaml`, signed, so that a resume knows it again."""
        atomic_write(self.config_file, signing.sealed_text(CONFIG, experiment.to_yaml()))

    def continued(self, experiment: Experiment, iteration: int) -> None:
        """Notes what a resume changed: the experiment as it is now, and the words that were added.

        `resumes` in run.json has, per resume, the iteration after which the new settings hold, and of each
        changed key the value in force before and after.
        """
        from rayfish.experiment import Experiment as Loaded

        before = dict(leaves(Loaded.load(self.config_file).config))
        after = dict(leaves(experiment.config))
        kept = [entry for entry in self.data.get("resumes") or [] if entry["iteration"] <= iteration]
        for entry in reversed((self.data.get("resumes") or [])[len(kept) :]):  # their iterations are dropped
            before |= {key: old for key, (old, _) in entry["changed"].items()}
        entry = {"iteration": iteration, "time": _now(), "changed": _changes(before, after)}
        self.update(resumes=[*kept, entry])
        self.save_config(experiment)
        if experiment.overrides:
            words = shlex.join(["rayfish", "train", "--resume", str(self.path), *experiment.overrides])
            # Appended as bytes: the file need not hold text.
            with (self.path / "command.txt").open("ab") as file:
                file.write(f"{words}\n".encode(errors="backslashreplace"))

    def require_idle(self, *, elsewhere: bool = True) -> None:
        """Refuses a run that another process is training; from now on others are refused this one.

        :param elsewhere: whether that may be a process of another machine, which cannot be seen from here,
            while its lease lasts; False for one who knows who trains it
        """
        running = self.data.get("status") == RUNNING
        try:
            self._lock(self.data.get("process") if running else None, elsewhere=elsewhere)
        except OSError as error:
            reason, remedy = why_unwritable(error, self.path)
            raise RayfishError(
                f"the run folder {self.path} cannot be written: {reason}",
                f"{remedy}, or copy the run to a place you may write, and resume it there",
            ) from None

    def _lock(self, process: Mapping[str, Any] | None = None, *, elsewhere: bool = True) -> None:
        """Hold the folder for this process, with some space on the disk to write down its end.

        :param process: who trained the run last, when that is not known to have ended
        """
        what = f"the run {self.path} is in training"
        self._lease = lease.take(self.path, self.RECORD, what, process, elsewhere=elsewhere)
        set_aside(self.path)

    def list_checkpoints(self) -> list[Path]:
        """The complete checkpoints, oldest first."""
        return manifest.numbered(self.checkpoints)


def all_runs(root: str | Path = DEFAULT_ROOT) -> list[RunDirectory]:
    """Every run under `root`, newest first, then the damaged ones, with the reason in their data."""
    return _runs_at(Path(root), "*/*/run.json")


def list_runs(root: str | Path = DEFAULT_ROOT) -> list[RunDirectory]:
    """Every run under `root`, newest first; folders that cannot be read are left out."""
    return [run for run in all_runs(root) if run.status != DAMAGED]


def find_folder(text: str | Path, root: str | Path = DEFAULT_ROOT) -> Path:
    """The run or sweep that `text` means: a path, a name (its newest), an id or its beginning, or `last`."""
    path = Path(text)
    refuse_old_checkpoint(path)
    if path.exists():
        for folder in (path, *path.absolute().parents):
            if (folder / "run.json").exists() or (folder / "sweep.json").exists():
                return folder
        inside = newest_first([*_runs_at(path, "*/run.json"), *sweeps_at(path, "*/sweep.json")])
        if inside:
            return inside[0].path
        if path.is_dir() and ("/" in str(text) or not list_runs(root)):
            raise RunNotFound(
                f"{text} is neither a run nor a checkpoint: it has no run.json and no rayfish.json",
                "rayfish runs list shows the runs here; name one, or a folder under its checkpoints/",
            )
    none_yet = "train one first (rayfish train cartpole), or give the path of a run"
    found = newest_first([*all_runs(root), *sweeps_at(Path(root), "*/*/sweep.json")])
    return answering(str(text), found, root, "run", none_yet)


def find_run(text: str | Path, root: str | Path = DEFAULT_ROOT) -> Path:
    """The run that `text` means, as in `find_folder`; a sweep means its best trial."""
    folder = find_folder(text, root)
    return folder if (folder / "run.json").exists() else _best_trial(folder)


def find_resumable(text: str | Path) -> Path:
    """The run that `rayfish train --resume` means by `text`: as in `find_folder`, without sweeps.

    :raises RunNotFound: also for a sweep, which another command goes on with
    """
    runs = list_runs() if _is_last(str(text)) else []
    folder = runs[0].path if runs else find_folder(text)
    if (folder / "run.json").exists():
        return folder
    raise RunNotFound(
        f"{folder} is a sweep, not a run",
        f"rayfish tune --resume {folder} goes on with it; "
        f"rayfish train -f {folder}/best.yaml trains its best point",
    )


def find_checkpoint(
    text: str | Path, root: str | Path = DEFAULT_ROOT, order: Sequence[str] = ("best", "last")
) -> Path:
    """The checkpoint that `text` means: its own path, or a run's (as in `find_run`): its best, else its last.

    :param order: which of a run's checkpoints is meant, the first that there is

    `last` is the last run, or sweep, that has a checkpoint; where a later one has none, a line says so.
    `RUN/checkpoints/last`, `RUN/checkpoints/000020` and the same with a run's name in front work too.
    """
    path = Path(text)
    if (path / "rayfish.json").is_file():
        return path.resolve()
    refuse_old_checkpoint(path)
    word, _, tail = str(text).partition("/checkpoints/")
    run = RunDirectory.open(_last_with_checkpoint(root) if _is_last(word) else find_run(word, root))
    wanted = [tail.strip("/")] if tail.strip("/") else order
    for name in wanted:
        if (run.checkpoints / name / "rayfish.json").is_file():
            return (run.checkpoints / name).resolve()
    known = [checkpoint.name for checkpoint in run.list_checkpoints()]
    if wanted[0] in known:
        manifest.require_files(run.checkpoints / wanted[0], manifest.HEADER)
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


def _is_last(word: str) -> bool:
    return word == "last" and not Path(word).exists()


def _last_with_checkpoint(root: str | Path) -> Path:
    """What `last` means where a checkpoint is needed."""
    found = newest_first([*list_runs(root), *sweeps_at(Path(root), "*/*/sweep.json")])
    for later, folder in enumerate(found):
        run = folder.path
        if isinstance(folder, SweepFolder):
            try:
                run = _best_trial(run)
            except RayfishError:
                continue
        if RunDirectory.open(run).list_checkpoints():
            if later:
                newest = found[0]
                what = f"{newest.path} after it has no checkpoint (its status is {newest.status})"
                note_once(f"last is {folder.path}, the last with a checkpoint; {what}")
            return run
    return find_run("last", root)  # which says what is missing


@cache
def note_once(text: str) -> None:
    """A note on stderr; a checkpoint may be looked up several times in one command."""
    _log.warning("note: %s", text)


def _best_trial(sweep: Path) -> Path:
    if (sweep / "best" / "run.json").is_file():
        return (sweep / "best").resolve()
    from rayfish.sweep.outcome import best_run  # a sweep ranks its trials

    return best_run(sweep)


def _runs_at(root: Path, pattern: str) -> list[RunDirectory]:
    """The runs there, newest first, then those that cannot be read."""
    found = []
    for file in root.glob(pattern):
        try:
            found.append(RunDirectory.open(file.parent))
        except RayfishError as error:
            name, run_id = file.parent.parent.name, file.parent.name.rpartition("-")[2]
            data = {"name": name, "id": run_id, "status": DAMAGED, "reason": error.what}
            found.append(RunDirectory(file.parent, data))
    return newest_first(found)


def _damaged(path: Path, why: str) -> RunNotFound:
    file = path / "run.json"
    kept = [entry.name for entry in sorted((path / "checkpoints").glob("[0-9]*"))]
    hint = "rayfish runs list shows the others"
    if kept:
        hint = f"its checkpoints are kept: rayfish evaluate {path}/checkpoints/{kept[-1]}"
    return RunNotFound(f"{file} {why}", hint)


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Of each dotted key that changed, the value before and after; RLlib's default where there is none."""
    from rayfish.algorithm.signatures import default_of

    def metric(key: str) -> str:
        section, _, name = key.partition(".")
        return (todays_metric(name) or name) if section == "stop_conditions" else key

    def in_force(values: Mapping[str, Any], key: str) -> Any:
        section, _, name = key.partition(".")
        value = values.get(key)
        return default_of(section, name, str(after.get("algo.name"))) if value is None else value

    # A stop condition may be spelled in another way now: timesteps_total and run/env_steps are the same.
    spelled = {metric(key): key for key, value in after.items() if value is not None}
    before = {
        key if after.get(key) is not None else spelled.get(metric(key), key): value
        for key, value in before.items()
        if value is not None
    }
    pairs = {key: [in_force(before, key), in_force(after, key)] for key in {**before, **after}}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


@contextmanager
def _whole_or_not_at_all(path: Path) -> Iterator[None]:
    """Leaves no half-made run folder behind, and reports a full disk in plain words."""
    try:
        yield
    except BaseException as error:
        shutil.rmtree(path, ignore_errors=True)
        for parent in (path.parent, path.parent.parent):  # made for this run alone, when empty
            with suppress(OSError):
                parent.rmdir()
        if isinstance(error, OSError):
            reason, remedy = why_unwritable(error, path)
            raise RayfishError(
                f"the run folder {path} cannot be written: {reason}",
                f"{remedy}, or set runtime.local_dir to a folder on another disk",
            ) from error
        raise


def safe_name(name: str, otherwise: str) -> str:
    """A name as one folder: no separators, nothing that a shell or a file system stumbles over."""
    return "".join(c if c.isalnum() or c in "-_.+=" else "-" for c in name).strip(".-") or otherwise


def env_name(experiment: Experiment) -> str:
    """The environment as the experiment names it, or the class given from Python."""
    given = experiment.env
    if given is not None:
        return getattr(given, "__name__", type(given).__name__)
    return str(experiment.environment.env)


def tags_of(experiment: Experiment) -> list[str]:
    """`runtime.tags`, one or a list of them."""
    tags = experiment.runtime.tags or []
    return [str(tag) for tag in (tags if isinstance(tags, list | tuple) else [tags])]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"
