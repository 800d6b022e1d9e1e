"""Checkpoints: written whole or not at all, self-contained, with versions.

    checkpoints/000020/
      rayfish.json    layout, versions, counters, what the metrics need to go on
      config.yaml     the experiment that made it
      algorithm/      RLlib's own tree: weights, optimizers, connectors, counters
      policy/         the policy alone, readable without Ray (see run/policy.py)

A checkpoint is built in a hidden folder beside its place, synced to disk, then renamed.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rayfish
from rayfish.errors import CheckpointError, RayfishError
from rayfish.run.directory import atomic_link

if TYPE_CHECKING:
    from rayfish.run.trainer import Trainer

LAYOUT = 1
_PACKAGES = ("ray", "torch", "gymnasium", "numpy")


def write(folder: Path, trainer: Trainer) -> Path:
    """Writes the trainer's state as the checkpoint `folder`; an older one there is replaced."""
    from safetensors import SafetensorError

    from rayfish.run.policy import save_policy

    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.parent / f".writing-{folder.name}-{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir()
        trainer.algorithm.save_to_path(str((draft / "algorithm").resolve()))
        save_policy(draft / "policy", **trainer.policy_parts())
        trainer.experiment.save(draft / "config.yaml")
        (draft / "rayfish.json").write_text(json.dumps(_header(trainer), indent=2) + "\n", encoding="utf-8")
        _sync(draft)
        _replace(folder, draft)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"the checkpoint {folder} could not be written: {error}; earlier checkpoints are untouched",
            "free space or choose another place with runtime.local_dir, then rayfish train --resume last",
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _replace(folder: Path, draft: Path) -> None:
    """Puts `draft` in place; an older checkpoint of that name is good until the moment it is replaced."""
    old = folder.parent / f".old-{folder.name}-{os.getpid()}"
    if folder.exists():
        folder.rename(old)
    draft.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def read_header(folder: Path) -> dict[str, Any]:
    """A checkpoint's `rayfish.json`, checked to be readable by this installation."""
    path = folder / "rayfish.json"
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder} is not a Rayfish checkpoint: it has no rayfish.json",
            "rayfish runs list shows the runs here; name a run or a folder under its checkpoints/",
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}", "use an earlier checkpoint of the run"
        ) from error
    if header.get("layout", 0) > LAYOUT:
        raise CheckpointError(
            f"{folder} was made with Rayfish {header['versions']['rayfish']} (layout {header['layout']}); "
            f"you have {rayfish.__version__} (layout {LAYOUT})",
            f"pip install 'rayfish>={header['versions']['rayfish']}'",
        )
    return header


def require_same_ray(folder: Path, header: dict[str, Any]) -> None:
    """Training can only go on with the Ray line that wrote the algorithm's state."""
    made, here = header["versions"].get("ray", "?"), version("ray")
    if made.split(".")[:2] != here.split(".")[:2]:
        raise CheckpointError(
            f"{folder} was made with Ray {made}; you have Ray {here}",
            f"pip install 'ray=={made}' to continue it, or start from its weights with algo.checkpoint_path",
        )


def _header(trainer: Trainer) -> dict[str, Any]:
    versions = {"rayfish": rayfish.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "layout": LAYOUT,
        "versions": versions,
        "algo": trainer.experiment.get("algo.name"),
        "env": trainer.experiment.get("environment.env"),
        "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "iteration": trainer.iteration,
        "metrics": trainer.metrics,
        "collector": trainer.collector.state(),
    }


def _sync(folder: Path) -> None:
    """Everything below `folder` on disk before its name becomes valid."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Checkpoints:
    """The `checkpoints/` folder of a run: when to write, which is best, which to keep.

    :param folder: the run's `checkpoints/`
    :param settings: the experiment's `checkpoint` section
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.every = int(settings.get("checkpoint_frequency") or 0)
        self.keep = settings.get("num_to_keep")
        self.at_end = bool(settings.get("checkpoint_at_end", True))
        self.metric = settings.get("checkpoint_score_attribute") or ""
        self.sign = -1.0 if settings.get("checkpoint_score_order") == "min" else 1.0
        self.best: dict[str, Any] | None = None
        self.last: Path | None = None

    def due(self, iteration: int) -> bool:
        """Whether this iteration is one of every N."""
        return self.every > 0 and iteration % self.every == 0

    def save(self, trainer: Trainer) -> Path:
        """Writes a checkpoint of this iteration, moves the links, drops what is not kept."""
        path = write(self.folder / f"{trainer.iteration:06d}", trainer)
        self.last = path
        atomic_link(self.folder / "last", path.name)
        score = trainer.metrics.get(self.metric)
        if score is not None and (self.best is None or self.sign * score >= self.sign * self.best["value"]):
            self.best = {"metric": self.metric, "value": score, "checkpoint": path.name}
            atomic_link(self.folder / "best", path.name)
        self._prune()
        return path

    def saved(self, iteration: int) -> bool:
        """Whether this iteration has its checkpoint already."""
        return self.last is not None and self.last.name == f"{iteration:06d}"

    def newest(self) -> Path | None:
        """The last complete checkpoint, whatever became of the link to it."""
        complete = [path for path in self._numbered() if (path / "rayfish.json").is_file()]
        return complete[-1] if complete else None

    def recall(self, last: Path, best: dict[str, Any] | None) -> None:
        """Takes up the state of an earlier session; a best by another metric means nothing here."""
        self.last = last
        self.best = best if best and best.get("metric") == self.metric else None

    def drop_after(self, iteration: int) -> None:
        """Removes checkpoints of iterations that a resumed run is about to do again."""
        for path in self._numbered():
            if int(path.name) > iteration:
                shutil.rmtree(path, ignore_errors=True)

    def _numbered(self) -> list[Path]:
        return sorted(p for p in self.folder.glob("[0-9]*") if p.is_dir() and p.name.isdigit())

    def _prune(self) -> None:
        if not self.keep:
            return
        if int(self.keep) < 1:
            raise RayfishError(f"checkpoint.num_to_keep is {self.keep}", "use 1 or more, or null to keep all")
        protected = {self.best["checkpoint"]} if self.best else set()
        for path in self._numbered()[: -int(self.keep)]:
            if path.name not in protected:
                shutil.rmtree(path, ignore_errors=True)
