"""The section `hydra` of a Hydra program's files, where Hydra only composes and Rayfish runs.

`${hydra:run.dir}`, `${hydra:job.name}` and `${now:%Y-%m-%d}` resolve as in Hydra; `hydra.run.dir` says where
the run's folder goes; what else is set there is about Hydra's own logs and launchers, and one line says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rayfish.experiment import tree
from rayfish.experiment.files import SHIPPED
from rayfish.experiment.overrides import COMMAND_LINE

_VALUE = re.compile(r"\$\{hydra:([\w./-]+)\}")
_NOW = re.compile(r"\$\{now:([^}]*)\}")

_USED = ("run", "job", "runtime", "overrides")
"""Parts of the section that values are taken from; the others have no effect here."""


def insert(raw: dict[str, Any], config_name: str, words: Sequence[str], choices: Mapping[str, Any]) -> None:
    """Write the section into `raw` as plain keys, so that interpolations reach it; `take` removes it."""
    words = [word for word in words if not word.startswith("hydra")]
    section: dict[str, Any] = {
        "run": {"dir": "outputs/${now:%Y-%m-%d}/${now:%H-%M-%S}"},
        "sweep": {"dir": "multirun/${now:%Y-%m-%d}/${now:%H-%M-%S}", "subdir": "0"},
        "job": {
            "name": "rayfish",
            "num": 0,
            "id": "0",
            "config_name": config_name,
            "override_dirname": ",".join(sorted(words)),
            "chdir": False,
        },
        "runtime": {"cwd": str(Path.cwd()), "output_dir": "${hydra:run.dir}", "choices": dict(choices)},
        "overrides": {"task": words, "hydra": []},
        "output_subdir": ".hydra",
        "mode": "RUN",
        "verbose": False,
    }
    raw["hydra"] = tree.merge(section, raw.get("hydra") or {})
    now = datetime.now()
    for key in list(raw):
        raw[key] = _rewritten(raw[key], now)


def take(config: dict[str, Any], origins: dict[str, str], notes: list[str]) -> None:
    """Remove the section, put `hydra.run.dir` into effect, and note what has none."""
    section = config.pop("hydra", None) or {}
    found = [key for key in origins if key.startswith("hydra.")]
    written = {key: where for key in found if not (where := origins.pop(key)).startswith(SHIPPED)}
    if "hydra.run.dir" in written:
        _use_run_dir(config, origins, notes, str(tree.get(section, "run.dir")), written["hydra.run.dir"])
    unused = [key for key in written if key.split(".")[1] not in _USED]
    if tree.get(section, "job.chdir") and "hydra.job.chdir" in written:
        unused.append("hydra.job.chdir")
    if unused:
        names = dict.fromkeys(".".join(key.split(".")[:2]) if "chdir" not in key else key for key in unused)
        files = dict.fromkeys(written[key].rpartition(":")[0] or written[key] for key in unused)
        why = "Rayfish has logs, folders and sweeps of its own"
        notes.append(f"{', '.join(names)}: ignored, {why} ({', '.join(files)})")


def _use_run_dir(
    config: dict[str, Any], origins: dict[str, str], notes: list[str], folder: str, where: str
) -> None:
    current, origin = tree.get(config, "runtime.local_dir"), origins.get("runtime.local_dir", SHIPPED)
    if str(current) == folder or str(current).startswith(f"{folder}/"):
        return
    if origin.startswith(SHIPPED) or (where == COMMAND_LINE and origin != COMMAND_LINE):
        tree.put(config, "runtime.local_dir", folder)
        origins["runtime.local_dir"] = where
        notes.append(f"hydra.run.dir is today's runtime.local_dir: run folders go to {folder} ({where})")
    else:
        notes.append(f"hydra.run.dir={folder} is ignored: runtime.local_dir={current} is set ({origin})")


def _rewritten(value: Any, now: datetime) -> Any:
    """With Hydra's resolvers replaced: its values by plain keys, the time by itself."""
    if isinstance(value, dict):
        return {key: _rewritten(inner, now) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rewritten(inner, now) for inner in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    value = _NOW.sub(lambda found: now.strftime(found[1]), value)
    return _VALUE.sub(lambda found: f"${{hydra.{found[1]}}}", value)
