"""Checkpoints: written whole or not at all, self-contained, with versions.

    checkpoints/000020/
      rayfish.json    layout, versions, counters, what the metrics need to go on, every file's SHA-256, and
                      the seal over all that (see run/manifest.py)
      config.yaml     the experiment that made it
      algorithm/      RLlib's own tree: weights, optimizers, connectors, counters
      processes/      what RLlib leaves out, one file per process (see algorithm/snapshot.py)
      replay.lz4      the replay buffer, of algorithms that have one
      policy/         the policy alone, readable without Ray (see run/policy.py)

A checkpoint is built in a hidden folder beside its place, synced to disk, then renamed; one that
goes is renamed first, then removed. So a folder with a number for a name is always whole.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfish import text
from rayfish.algorithm.contradictions import INEXACT
from rayfish.envs.env_kind import in_short
from rayfish.errors import CheckpointError
from rayfish.files import atomic_link, exchange, is_full, sync, why_unwritable
from rayfish.run import manifest, provenance, trust
from rayfish.run.manifest import REPLAY, read_header, require_whole

if TYPE_CHECKING:
    from rayfish.experiment import Experiment
    from rayfish.experiment.sections import CheckpointKeys
    from rayfish.run.trainer import Trainer

_DRAFTS = (".writing-", ".dropping-", ".aside-")


def write(
    folder: Path, trainer: Trainer, best: dict[str, Any] | None = None, *, to_play: bool = False
) -> Path:
    """Writes the trainer's state as the checkpoint `folder`; an older one there is replaced.

    :param best: the run's best checkpoint so far, to be known again after a resume
    :param to_play: the policy alone, which no training can go on from
    """
    from safetensors import SafetensorError

    from rayfish.generators import undisturbed

    draft = folder.parent / f".writing-{folder.name}-{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir()
        with undisturbed():  # saving must not change what is saved
            _fill(draft, trainer, best, to_play=to_play)
        for path in [*draft.rglob("*"), draft]:  # on disk before its name becomes valid
            sync(path)
        if folder.exists():
            exchange(draft, folder)
        else:
            draft.rename(folder)
        sync(folder.parent)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"the checkpoint {folder} could not be written: {_reason(error, folder)}; "
            "earlier checkpoints are untouched",
            "free space or choose another place with runtime.local_dir, then rayfish train --resume last",
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _reason(error: Exception, folder: Path) -> str:
    """Why a checkpoint cannot be written; a full disk, which each library reports otherwise, in our words."""
    if not (is_full(error) or "No space left" in str(error)):  # the latter is safetensors'
        return str(error)
    code = getattr(error, "errno", None) or errno.ENOSPC
    return why_unwritable(OSError(code, os.strerror(code)), folder)[0]


def _fill(draft: Path, trainer: Trainer, best: dict[str, Any] | None, *, to_play: bool) -> None:
    from rayfish.algorithm.saved_config import hide_variables
    from rayfish.run.policy_files import is_native, save_policy

    if not to_play:
        _fill_training(draft, trainer)
    parts = trainer.policy_parts()
    if to_play and not all(is_native(module) for module in parts["modules"].values()):
        trainer.algorithm.save_to_path(str((draft / "algorithm").resolve()))
    hide_variables(draft / "algorithm", trainer.experiment.variables)
    save_policy(draft / "policy", **parts)
    trainer.experiment.save(draft / "config.yaml")
    manifest.write_header(draft, _header(trainer) | {"best": best})


def _fill_training(draft: Path, trainer: Trainer) -> None:
    """What training goes on from."""
    from rayfish.algorithm import snapshot

    # First of all: where environments cannot be saved it makes the runners begin new episodes.
    parts = snapshot.take(trainer.algorithm, way=trainer.info.saved_by, salt=trainer.iteration)
    (draft / "processes").mkdir()
    for name, state in parts.items():
        (draft / "processes" / f"{name}.lz4").write_bytes(state)
    trainer.algorithm.save_to_path(str((draft / "algorithm").resolve()))
    if trainer.experiment.checkpoint.replay_buffer:
        snapshot.save_replay(trainer.algorithm, draft / REPLAY)


def require_same_ray(folder: Path, header: dict[str, Any]) -> None:
    """Training can only go on with the Ray line that wrote the algorithm's state."""
    made, here = header["versions"].get("ray", "?"), version("ray")
    if made.split(".")[:2] != here.split(".")[:2]:
        raise CheckpointError(
            f"{folder} was made with Ray {made}; you have Ray {here}",
            f"pip install 'ray=={made}' to continue it, or start from its weights with algo.checkpoint_path",
        )


def require_fitting(folder: Path, header: dict[str, Any], trainer: Trainer) -> None:
    """A checkpoint continues the algorithm and the environment that it was made with.

    :raises CheckpointError: it was made with others, or with another Ray
    """
    require_same_task(folder, header, trainer.experiment)
    for agent, made in header.get("spaces", {}).items():
        here = _spaces(trainer).get(agent)
        pairs = zip(("observations", "actions"), made, here or made, strict=True)
        differing = [f"{what} {then} then, {now} now" for what, then, now in pairs if then != now]
        if here is None:
            differing = ["it had other agents"]
        if differing:
            raise CheckpointError(
                f"{folder} was made with other spaces of {header['env']}: {differing[0]}",
                "give the env_config of that run, or train again",
            )


def require_same_task(folder: Path, header: dict[str, Any], experiment: Experiment) -> None:
    """What can be judged of a checkpoint before anything is built: Ray, algorithm, environment.

    :raises CheckpointError: it was made with others
    """
    require_same_ray(folder, header)
    for what, key in {"algo": "algo.name", "env": "environment.env"}.items():
        made, here = header[what], experiment.get(key)
        if made != here:
            raise CheckpointError(
                f"{folder} was made with {key}={made}; you have {key}={here}",
                f"set {key}={made} to continue it, or start from its weights with algo.checkpoint_path",
            )


def restore(folder: Path, trainer: Trainer) -> list[str]:
    """Puts a checkpoint into the trainer's freshly built algorithm; returns what could not be exact.

    Its files are unpickled: who calls this has checked that they are whole and trusted.
    """
    from rayfish.algorithm import snapshot, weights

    weights.restore(trainer.algorithm, folder / "algorithm")
    notes = []
    if (folder / REPLAY).is_file():
        snapshot.load_replay(trainer.algorithm, folder / REPLAY)
    elif snapshot.replay_buffer(trainer.algorithm):
        steps = snapshot.refill_replay(trainer.algorithm)
        notes.append(f"this checkpoint has no replay buffer: learning continues after {steps:,} new steps")
    if not (folder / "processes").is_dir():
        notes.append("this checkpoint is of an older Rayfish: episodes begin again and random numbers differ")
        return notes
    states = {path.stem: path.read_bytes() for path in (folder / "processes").glob("[!.]*.lz4")}
    missing = snapshot.put(trainer.algorithm, states)
    algo = trainer.experiment.algo.name
    if algo in INEXACT:
        notes.append(f"{algo} goes on with its counters and schedules, but not bit for bit: {INEXACT[algo]}")
    if missing:
        notes.append(f"this checkpoint has no state that fits {', '.join(missing)}: new episodes there")
    return notes


def adopt(folder: Path, donor: Path) -> Path:
    """Copies a checkpoint of another run into `folder`, where it becomes the last; returns its place there.

    :raises CheckpointError: the checkpoint is damaged
    :raises NotTrusted: another user made it, and it is not trusted
    """
    header = read_header(donor)
    require_whole(donor, header)
    trust.require_checkpoint(donor)
    folder.mkdir(parents=True, exist_ok=True)
    iteration = int(header["iteration"])
    draft = folder / f".writing-{iteration:06d}-{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(donor, draft)
    if not manifest.is_own(draft):
        manifest.write_header(draft, header)  # it is this user's from now on
    for path in folder.glob("[0-9]*"):
        if int(path.name) >= iteration:
            shutil.rmtree(path)
    return draft.rename(folder / f"{iteration:06d}")


def in_words(folder: Path) -> str:
    """A checkpoint's name and size: `000020: 13 MB, of which the replay buffer 11 MB`."""
    sizes = {name: size for name, (size, _) in read_header(folder)["files"].items()}
    replay = f", of which the replay buffer {text.size(sizes[REPLAY])}" if REPLAY in sizes else ""
    return f"{folder.name}: {text.size(sum(sizes.values()))}{replay}"


def _header(trainer: Trainer) -> dict[str, Any]:
    return {
        "versions": provenance.versions(),
        "algo": trainer.experiment.algo.name,
        "env": trainer.experiment.environment.env,
        "spaces": _spaces(trainer),
        "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "iteration": trainer.iteration,
        "metrics": trainer.metrics,
        "collector": trainer.collector.state(),
        "threads": trainer.threads,
    }


def _spaces(trainer: Trainer) -> dict[str, list[str]]:
    info = trainer.info
    return {
        str(agent): [in_short(info.observation_spaces[agent]), in_short(info.action_spaces[agent])]
        for agent in info.agents
    }


class Checkpoints:
    """The `checkpoints/` folder of a run: when to write, which is best, which to keep."""

    def __init__(self, folder: Path, settings: CheckpointKeys) -> None:
        self.folder = folder
        self.every = int(settings.checkpoint_frequency or 0)
        self.keep = settings.num_to_keep
        self.at_end = bool(settings.checkpoint_at_end)
        self.metric = settings.checkpoint_score_attribute or ""
        self.sign = -1.0 if settings.checkpoint_score_order == "min" else 1.0
        self.best: dict[str, Any] | None = None
        self.last: Path | None = None

    def due(self, iteration: int) -> bool:
        """Whether this iteration is one of every N."""
        return self.every > 0 and iteration % self.every == 0

    def save(self, trainer: Trainer) -> Path:
        """Writes a checkpoint of this iteration, moves the links, drops what is not kept."""
        path = self.folder / f"{trainer.iteration:06d}"
        best, score = self.best, trainer.metrics.get(self.metric)
        if score is not None and (best is None or self.sign * score >= self.sign * best["value"]):
            best = {"metric": self.metric, "value": score, "checkpoint": path.name}
        write(path, trainer, best)
        self.best, self.last = best, path
        self._link()
        self._prune()
        return path

    def saved(self, iteration: int) -> bool:
        """Whether this iteration has its checkpoint already."""
        return self.last is not None and self.last.name == f"{iteration:06d}"

    def any(self) -> bool:
        """Whether there is a checkpoint at all."""
        return bool(manifest.numbered(self.folder))

    def newest(self) -> tuple[Path | None, list[str]]:
        """The last whole checkpoint, whatever became of the link to it, and what is wrong with later ones."""
        damaged: list[str] = []
        for path in reversed(manifest.numbered(self.folder)):
            try:
                require_whole(path, read_header(path))
                return path, damaged
            except CheckpointError as error:
                damaged.append(error.what)
        if damaged:
            config = self.folder.parent / "config.yaml"
            raise CheckpointError(
                f"no checkpoint of this run can be read: {damaged[0]}",
                f"start a new run with the same settings: rayfish train -f {config}",
            )
        return None, []

    def require_continuable(self) -> None:
        """Before anything is started: the last checkpoint, if there is one, was made with this Ray.

        :raises CheckpointError: it was made with another
        """
        for path in manifest.numbered(self.folder)[-1:]:
            try:
                header = read_header(path)
            except CheckpointError:
                continue  # a damaged one is reported when it is restored
            require_same_ray(path, header)

    def recall(self, last: Path) -> None:
        """Takes up the state of an earlier session; a best by another metric means nothing here."""
        self.last, best = last, read_header(last).get("best")
        known = best and best.get("metric") == self.metric and (self.folder / best["checkpoint"]).is_dir()
        self.best = best if known else None
        self._link()

    def drop_after(self, iteration: int) -> None:
        """Removes checkpoints of iterations that are about to be done again, and unfinished drafts."""
        for path in manifest.numbered(self.folder):
            if int(path.name) > iteration:
                _drop(path)
        for path in self.folder.glob(".*"):
            if path.name.startswith(_DRAFTS):
                shutil.rmtree(path, ignore_errors=True)

    def _link(self) -> None:
        if self.last is not None:
            atomic_link(self.folder / "last", self.last.name)
        if self.best is not None:
            atomic_link(self.folder / "best", self.best["checkpoint"])
        else:
            (self.folder / "best").unlink(missing_ok=True)

    def _prune(self) -> None:
        """Checkpoints beyond `num_to_keep`, and replay buffers that no resume will ask for."""
        protected = {self.best["checkpoint"]} if self.best else set()
        if self.last is not None:
            protected.add(self.last.name)
        there = manifest.numbered(self.folder)
        expired = there[: -self.keep] if self.keep else []
        for path in there:
            if path.name not in protected:
                (path / REPLAY).unlink(missing_ok=True)
                if path in expired:
                    _drop(path)


def _drop(path: Path) -> None:
    """Removes a checkpoint in one step, as far as anyone who looks for it can see."""
    gone = path.parent / f".dropping-{path.name}-{os.getpid()}"
    path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
