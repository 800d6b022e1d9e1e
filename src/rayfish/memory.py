"""How much main memory there is, also inside a container."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_Limit = tuple[float, float]


def memory() -> tuple[float, float]:
    """(free, in all) bytes of main memory, of this machine or of the container that limits this process."""
    import psutil

    state = psutil.virtual_memory()
    free, total = float(state.available), float(state.total)
    for limit, used in _container_limits():
        free, total = min(free, max(0.0, limit - used)), min(total, limit)
    return free, total


def _container_limits(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> Iterator[_Limit]:
    """Of every control group that this process is in: version 2 has one tree, version 1 one for memory."""
    groups = Path(own)
    for line in groups.read_text(encoding="utf-8").splitlines() if groups.is_file() else ():
        _, kinds, inside = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        base = Path(root) / "memory" if kinds else Path(root)
        files = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if kinds
            else ("memory.max", "memory.current", "inactive_file")
        )
        place = base / inside.strip("/")
        for folder in (place, *place.parents):
            if not folder.is_relative_to(base):
                break
            found = _limit_in(folder, *files)
            if found is not None:
                yield found


def _limit_in(folder: Path, limit: str, used: str, cache: str) -> _Limit | None:
    """A group's (limit, used), where it has a limit; file caches, which make room, do not count as used."""
    try:
        most = (folder / limit).read_text().strip()
        if not most.isdigit():
            return None  # "max"
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return float(most), max(0.0, float((folder / used).read_text()) - float(stat.get(cache, 0)))
    except (OSError, ValueError):
        return None
