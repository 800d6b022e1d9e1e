"""RLlib's settings as a table: which keys each section takes, their types, defaults and meaning.

The table for the pinned Ray is shipped as signatures.json, so that checking an experiment imports no
RLlib. With another Ray it is made again, once, into the user's cache folder.

    python -m rayfish.algorithm.signatures        # regenerate the shipped file from the installed Ray
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfish.errors import Problem, RayfishError
from rayfish.experiment import tree

if TYPE_CHECKING:
    from rayfish.experiment import Experiment

SHIPPED_TABLE = Path(__file__).with_name("signatures.json")
"""The table made from the Ray this release is pinned to."""

LAYOUT = 1
"""Version of the table's form; one of another version in the cache is made again."""

Entry = dict[str, Any]
"""One key: {"type": "int | null", "default": ..., "doc": "..."}."""


@functools.cache
def table() -> dict[str, Any]:
    """The table for the installed Ray.

    {"ray": version, "sections": {section: {key: Entry}}, "algorithms": {name: {"training": {key: Entry},
    "defaults": {"rollouts.num_env_runners": 2, ...}}}}
    """
    shipped = json.loads(SHIPPED_TABLE.read_text(encoding="utf-8"))
    installed = _ray_version()
    if installed in (shipped["ray"], ""):
        return shipped
    cached = _cache_folder() / f"signatures-{LAYOUT}-ray-{installed}.json"
    if not cached.is_file():
        _make(cached)
    return json.loads(cached.read_text(encoding="utf-8"))


def entries(section: str, algo: str | None = None) -> dict[str, Entry]:
    """RLlib's keys of a section; for `training` those of the algorithm (all algorithms' when None)."""
    known = table()
    if section != "training":
        return known["sections"].get(section, {})
    if algo is None:
        merged: dict[str, Entry] = {}
        for one in known["algorithms"].values():
            merged.update(one["training"])
        return merged
    return known["algorithms"].get(algo, {}).get("training", {})


def default_of(section: str, key: str, algo: str) -> Any:
    """RLlib's default of a key for an algorithm."""
    special = table()["algorithms"].get(algo, {}).get("defaults", {})
    dotted = f"{section}.{key}"
    return special[dotted] if dotted in special else entries(section, algo).get(key, {}).get("default")


def default_at(dotted: str, algo: str) -> Any:
    """RLlib's default of a dotted key, also of one within a group such as replay_buffer_config."""
    section, key, *rest = dotted.split(".")
    default = default_of(section, key, algo)
    return tree.get(default, ".".join(rest)) if rest and isinstance(default, dict) else default


def problems(experiment: Experiment) -> list[Problem]:
    """Everything wrong with an experiment's keys and values that shows without running it."""
    from rayfish.algorithm.keys import all_problems

    return all_problems(experiment)


def _ray_version() -> str:
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return ""


def _cache_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("rayfish"))


def _make(target: Path) -> None:
    """Make the table in a process of its own: the caller stays free of RLlib."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}.part")
    command = [sys.executable, "-P", "-m", "rayfish.algorithm.signatures", str(partial)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not partial.is_file():
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise RayfishError(
            f"the settings of the installed Ray {_ray_version()} cannot be listed: {last}",
            "install the Ray this release is made for (see constraints.txt)",
        )
    partial.replace(target)


def main() -> None:
    """Write the table of the installed Ray to the path given, or over the shipped one."""
    from rayfish.algorithm.inspect_rllib import build_table

    target = Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED_TABLE
    text = json.dumps(build_table(), indent=1, sort_keys=True, ensure_ascii=False)
    target.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
