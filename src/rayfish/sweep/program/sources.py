"""A program's metrics: files are found, separated from those of other trials, read as they grow."""

from __future__ import annotations

import contextlib
import glob
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rayfish.sweep.program.settings import MetricSettings
from rayfish.sweep.program.tables import NOTHING, CsvRows, Earlier, JsonLines, stamp
from rayfish.sweep.program.tensorboard import MARK, EventFile, Steps

LOG, RECORD = "log.txt", "program.json"
OUTPUT, EVENTS = "its output", "event files"
DECIDED_AFTER = 5
"""After so many reports without the metric, in any source, they are passed on as they are."""

_LOOK_EVERY_S = 0.3
_MOST_FILES = 20_000


@dataclass(frozen=True)
class Places:
    """Where files of one trial are looked for.

    :param start: the folder the program was started in
    :param pattern: of files or folders, filled in; None for everything in the trial's folder
    :param names_trial: whether the pattern can mean this trial only, wherever it is looked for
    """

    trial: Path
    start: Path
    pattern: str | None
    names_trial: bool

    def own(self) -> list[Path]:
        """What surely belongs to this trial."""
        if self.pattern is None:
            return list(_files_below(self.trial))
        if Path(self.pattern).is_absolute():
            return self._matches(None) if self.names_trial else []
        found = self._matches(self.trial)
        return found or (self._matches(self.start) if self.names_trial else [])

    def shared(self) -> list[Path]:
        """What matches, but where other trials may write as well."""
        if self.pattern is None or self.names_trial:
            return []
        absolute = Path(self.pattern).is_absolute()
        if absolute or self.start.resolve() != self.trial.resolve():
            return self._matches(None if absolute else self.start)
        return []

    def _matches(self, root: Path | None) -> list[Path]:
        names = glob.glob(self.pattern or "", root_dir=root, recursive=True)  # noqa: PTH207 (Path's ** has no files)
        return sorted((root or Path("/")) / name for name in names)


class Metrics:
    """All that a trial reports.

    :param output: its log, and from which byte on it is this attempt's
    :param metric: the name that matters; where it is known, the source that has it is the one that counts
    :param count: reports of earlier attempts, for programs that do not say how far they are
    :param owned: gives those of some files that are sure to be the program's own
    """

    def __init__(
        self,
        settings: MetricSettings,
        places: Places,
        output: tuple[Path, int],
        *,
        metric: str = "",
        count: int = 0,
        owned: Callable[[Iterable[Path]], set[Path]] = set,
    ) -> None:
        self._settings, self.places, self._metric, self._count = settings, places, metric, count
        self._owned = owned
        self._step = settings.step or "step"
        own = self._files(places.own())
        self._before = {path: Earlier.of(path) for path in [*own, *self._files(places.shared())]}
        self._sources: dict[str, JsonLines | CsvRows | _Events] = {}
        self._held: dict[str, list[dict[str, float]]] = {}
        self._chosen, self._settled = "", False
        self._known: set[Path] = set()
        self._looked, self._look_every_s = 0.0, _LOOK_EVERY_S
        self._events = _Events(next((k for k, v in settings.rename.items() if v == metric), metric))
        self._output = JsonLines(output[0], self._step, Earlier(output[1]), count)
        if settings.source in ("auto", "json") and (settings.source == "auto" or settings.path is None):
            self._sources[OUTPUT] = self._output
        for path in own:  # now, before the program writes there
            self._take(path)

    def read(self, final: bool = False) -> list[dict[str, float]]:
        """The new reports, each with its `step`, in their order."""
        self._look(final)
        sources = {self._chosen: self._sources[self._chosen]} if self._settled else self._sources
        for name, source in sources.items():
            reports = [self._renamed(report) for report in source.read(final)]
            if reports:
                self._held.setdefault(name, []).extend(reports)
        if not self._settled:
            self._choose(final)
        return self._held.pop(self._chosen, [])

    def described(self) -> str:
        """What was looked for and what was found, for the error of a program that reported nothing."""
        wanted = {
            "json": "JSON lines" + (" on its output" if self._settings.path is None else ""),
            "tensorboard": "TensorBoard event files",
            "csv": "CSV files",
            "auto": "JSON lines on its output, TensorBoard event files, CSV files",
        }[self._settings.source]
        where = str(self.places.trial)
        if self.places.pattern is not None:
            where = f"{self.places.pattern} in {where} and {self.places.start}"
        there = [p.relative_to(self.places.trial).as_posix() for p in _files_below(self.places.trial)]
        shown = ", ".join(there[:6]) + (f" and {len(there) - 6} more" if len(there) > 6 else "")
        text = f"looked for {wanted}, files under {where}; there is {shown or 'no file'}"
        if OUTPUT in self._sources:
            text += f"; none of {self._output.lines_seen} lines of output is a JSON object with numbers"
        shared = [path for path in self._files(self.places.shared()) if path not in self._known]
        if shared:
            text += (
                f"; {len(shared)} files in {self.places.start} match too ({shared[0].name}), "
                "but the trial did not have them open"
            )
        return text

    def _look(self, final: bool) -> None:
        """Adds new files, now and then."""
        now = time.monotonic()
        one_file = self._settled and self._chosen != EVENTS
        if one_file or (not final and now - self._looked < self._look_every_s):
            return
        for path in self._files(self.places.own()):
            self._take(path)
        doubtful = [path for path in self._files(self.places.shared()) if path not in self._known]
        doubtful = [path for path in doubtful if self._is_written(path)]
        for path in sorted(self._owned(doubtful)) if doubtful else ():
            self._take(path)
        self._looked = time.monotonic()
        # A folder of many thousand files takes a while: looking must not become the work.
        self._look_every_s = max(_LOOK_EVERY_S, 50 * (self._looked - now))

    def _take(self, path: Path) -> None:
        if path in self._known:
            return
        self._known.add(path)
        earlier = self._before.get(path, NOTHING)
        if MARK in path.name:
            self._events.files.append(EventFile(path, earlier.size))
            self._sources[EVENTS] = self._events
        elif path.suffix == ".csv":
            self._sources[str(path)] = CsvRows(path, self._step, earlier, self._count)
        else:
            self._sources[str(path)] = JsonLines(path, self._step, earlier, self._count)

    def _is_written(self, path: Path) -> bool:
        """Whether it is another than before the program was started."""
        try:
            return path not in self._before or stamp(path.stat()) != self._before[path].stamp
        except OSError:
            return False

    def _files(self, found: list[Path]) -> list[Path]:
        """Those of the files, and of the files in the folders, that the settings are about."""
        kept: list[Path] = []
        for path in found:
            inside = _files_below(path) if path.is_dir() else [path]
            kept += [file for file in inside if self._fits(file) and file not in kept]
        return kept

    def _fits(self, path: Path) -> bool:
        source = self._settings.source
        if path.name in (LOG, RECORD):
            return False
        if MARK in path.name:
            return source in ("auto", "tensorboard")
        if path.suffix == ".csv":
            return source in ("auto", "csv")
        json_file = path.suffix in (".jsonl", ".ndjson", ".json")
        return json_file and (source == "json" or (source == "auto" and self._settings.path is not None))

    def _choose(self, final: bool) -> None:
        """Settles on the source that has the metric; where no metric is known, on the first with a report.

        Until one has it, the source with most reports is read: the metric's name may be wrong.
        """
        for name in sorted(self._held, key=lambda name: name != self._chosen):
            if not self._metric or any(self._metric in report for report in self._held[name]):
                self._chosen, self._settled = name, True
                self._held = {name: self._held[name]}
                return
        longest = max(self._held.items(), key=lambda item: len(item[1]), default=("", []))
        enough = final or len(longest[1]) >= DECIDED_AFTER or self._settings.source != "auto"
        if not self._chosen and enough:
            self._chosen = longest[0]

    def _renamed(self, report: dict[str, float]) -> dict[str, float]:
        rename = self._settings.rename
        return {rename.get(key, key): value for key, value in report.items()} if rename else report


class _Events(Steps):
    """All event files of a trial together, one report per step."""

    def __init__(self, metric: str) -> None:
        super().__init__(metric)
        self.files: list[EventFile] = []
        self._owner: dict[str, Path] = {}

    def read(self, final: bool) -> list[dict[str, float]]:
        for file in self.files:
            for step, tag, value in file.read():
                self.add(step, self._name(tag, file.path.parent), value)
        return self.take(final)

    def _name(self, tag: str, folder: Path) -> str:
        """The tag; where another folder writes it as well, with what differs of the folder in front."""
        owner = self._owner.setdefault(tag, folder)
        return tag if owner == folder else f"{os.path.relpath(folder, owner.parent)}/{tag}"


def newest(
    places: Places, writing: Callable[[], set[Path]] = set, *, since: Mapping[str, int] | None = None
) -> str:
    """The newest file or folder of the trial that matches, as an absolute path; "" for none.

    :param writing: gives the files that are being written, which are left out
    :param since: what `matches` gave earlier; what has not changed since is left out
    """
    old = since or {}
    found = [path for path, changed in matches(places).items() if old.get(path) != changed]
    open_now = writing() if found else set()
    for path in found:
        real = Path(path).resolve()
        if real not in open_now and not any(real in file.parents for file in open_now):
            return path
    return ""


def matches(places: Places) -> dict[str, int]:
    """When each file or folder of the trial that matches last changed (ns), by absolute path, newest first.

    Hidden ones are left out, and those that Rayfish itself keeps in the trial's folder.
    """
    ours = [places.trial / name for name in (LOG, RECORD)]
    found = [path for path in places.own() if not path.name.startswith(".") and path not in ours]
    changed = {path: _changed(path, ours) for path in found}
    found.sort(key=lambda path: (changed[path], len(path.parts)), reverse=True)  # a file before its folder
    return {str(path.absolute()): changed[path] for path in found}


def _files_below(folder: Path) -> Iterator[Path]:
    """Files in a folder and its folders, hidden ones left out."""
    count = 0
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                count += 1
                yield Path(here, name)
        if count > _MOST_FILES:
            return


def _changed(path: Path, apart_from: Iterable[Path]) -> int:
    """When a file, or a file in a folder, last changed, in ns."""
    times = [0]
    for part in [file for file in _files_below(path) if file not in apart_from] or [path]:
        with contextlib.suppress(OSError):
            times.append(part.stat().st_mtime_ns)
    return max(times)
