"""A sweep's folder: making it, keeping `sweep.json` true, finding it again."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rayfish.errors import RayfishError, RunNotFound
from rayfish.files import atomic_write, last_write, parse_json, set_aside, why_unwritable
from rayfish.run import lease
from rayfish.run.directory import DEFAULT_ROOT
from rayfish.run.lookup import answering, newest_first, sweeps_at
from rayfish.run.signing import sealed_json
from rayfish.sweep.records import EventTable

LAYOUT = 1
RUNNING, DONE, STOPPED, FAILED = "running", "done", "stopped", "failed"
_RECORD = "sweep.json"
_LITTLE = 64 * 2**20


class SweepDirectory:
    """One sweep's folder; `data` is the content of `sweep.json`."""

    def __init__(self, path: Path, data: dict[str, Any]) -> None:
        self.path = path
        self.data = data
        self._lease: lease.Lease | None = None

    @classmethod
    def create(cls, root: str | Path, name: str, about: Mapping[str, Any]) -> SweepDirectory:
        """A new sweep.

        :param about: what it is made from; all that a resume needs
        """
        from rayfish.run import provenance

        sweep_id = secrets.token_hex(3)
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        safe = "".join(c if c.isalnum() or c in "-_.+=" else "-" for c in name).strip(".-") or "sweep"
        path = (Path(root) / safe / f"{stamp}-{sweep_id}").absolute()
        try:
            (path / "trials").mkdir(parents=True)
            sweep = cls(path, {})
            sweep.table_file.touch()  # so that a missing one is known to be damage
            sweep.lock()
            sweep.update(
                layout=LAYOUT,
                id=sweep_id,
                name=name,
                status=RUNNING,
                process=lease.this_process(),
                created=datetime.now(UTC).isoformat(timespec="milliseconds"),
                seconds=0.0,
                provenance=provenance.collect(),
                **about,
            )
        except OSError as error:
            reason, remedy = why_unwritable(error, path)
            raise RayfishError(
                f"the sweep folder {path} cannot be made: {reason}",
                f"{remedy}, or set runtime.local_dir to a folder on another disk",
            ) from None
        return sweep

    @classmethod
    def open(cls, path: str | Path) -> SweepDirectory:
        """The sweep that lies at `path`."""
        path = Path(path).absolute()
        try:
            data = parse_json((path / "sweep.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunNotFound(
                f"{path} is not a sweep: it has no sweep.json", "rayfish tune begins one"
            ) from None
        except (OSError, ValueError) as error:
            raise RunNotFound(
                f"{path}/sweep.json cannot be read: {error}",
                "begin a new sweep; the folders of its trials are kept, and search.start_from takes runs",
            ) from None
        if not isinstance(data, dict):
            raise RunNotFound(
                f"{path}/sweep.json is damaged: it holds a {type(data).__name__}, not keys and values",
                f"its trials are kept: {path / 'trials'}",
            )
        if data.get("layout", 0) > LAYOUT:
            raise RayfishError(
                f"the sweep {path} has layout {data['layout']}, this Rayfish reads layouts up to {LAYOUT}",
                "pip install --upgrade rayfish",
            )
        return cls(path, data)

    @property
    def table_file(self) -> Path:
        """`trials.jsonl`."""
        return self.path / "trials.jsonl"

    @property
    def trials(self) -> Path:
        """The folder of the trials' folders."""
        return self.path / "trials"

    @property
    def log_file(self) -> Path:
        """`log.txt`."""
        return self.path / "log.txt"

    def require_table(self) -> None:
        """Refuses a sweep that has lost its table.

        :raises RunNotFound: it is not there
        """
        if not self.table_file.is_file():
            raise RunNotFound(
                f"the sweep {self.path} is damaged: {self.table_file.name} is missing",
                f"restore it, or begin a new sweep; its trials are kept: {self.trials}",
            )

    def open_table(self) -> EventTable:
        """The table, to write to."""
        return EventTable(self.table_file)

    @property
    def status(self) -> str:
        """The status as it is: a sweep whose process is gone is `lost`, whatever `sweep.json` says."""
        return lease.status(self.data, self.path, _RECORD)

    def update(self, **fields: Any) -> None:
        """Sets fields of `sweep.json`, on disk as well.

        :raises lease.Taken: the sweep is another process's by now
        """
        self.require_held()
        self.data |= fields
        atomic_write(self.path / _RECORD, sealed_json(_RECORD, self.data))

    def finish(self, status: str, **fields: Any) -> None:
        """Writes the end of the sweep, also on a disk that is full."""
        self.require_held()
        self.data |= {"status": status, **fields}
        last_write(self.path / _RECORD, sealed_json(_RECORD, self.data))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A full disk, and whatever else keeps the sweep from being written, in one message."""
        try:
            yield
        except (ConnectionError, TimeoutError):
            raise
        except OSError as error:
            reason, remedy = why_unwritable(error, self.path)
            raise RayfishError(
                f"{self.path} cannot be written: {reason}",
                f"{remedy}, then rayfish tune --resume {self.path}",
            ) from error

    def is_full(self) -> bool:
        """Whether hardly anything more can be written here; tried, because quotas show in no other way."""
        try:
            (self.path / ".space").write_bytes(bytes(_LITTLE))
        except OSError:
            return True
        finally:
            (self.path / ".space").unlink(missing_ok=True)
        return False

    def lock(self) -> None:
        """One process at a time; the lock goes with the process, however that ends."""
        process = self.data.get("process") if self.data.get("status") == RUNNING else None
        with self.writing():
            self._lease = lease.take(self.path, _RECORD, f"the sweep {self.path} is running", process)
            set_aside(self.path)

    def require_held(self) -> None:
        """Refuses to go on with a sweep that another process has taken over.

        :raises lease.Taken: this process was suspended for longer than its lease, say
        """
        if self._lease is not None:
            self._lease.require()

    def release(self) -> None:
        """Lets others resume it."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None


def list_sweeps(root: str | Path = DEFAULT_ROOT) -> list[SweepDirectory]:
    """Every sweep under `root`, newest first."""
    found = []
    for file in Path(root).glob("*/*/sweep.json"):
        try:
            found.append(SweepDirectory.open(file.parent))
        except RayfishError:
            continue
    return sorted(found, key=lambda s: (str(s.data.get("created")), s.path.name), reverse=True)


def find_sweep(text: str | Path, root: str | Path = DEFAULT_ROOT) -> Path:
    """The sweep that `text` means: a path, a name (its newest), an id or its beginning, or `last`."""
    path = Path(text)
    if path.exists():
        for folder in (path.absolute(), *path.absolute().parents):
            if (folder / "sweep.json").is_file():
                return folder
        inside = sorted(path.glob("*/sweep.json"))
        if inside:
            return inside[-1].parent
    none_yet = "rayfish tune begins one; or give the path of a sweep"
    found = newest_first(sweeps_at(Path(root), "*/*/sweep.json"))
    return answering(str(text), found, root, "sweep", none_yet).absolute()
