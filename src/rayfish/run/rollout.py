"""Recorded episodes of a trained policy: every step, the statistics of each episode, and a summary.

    <run>/rollouts/<time>-<id>/
      trajectories.parquet             one row per step and agent (see run/trajectories.py)
      episodes.parquet  episodes.csv   one row per episode: return, length, how it ended, the env's figures
      summary.json                     mean return with its interval, checkpoint, environment, versions

The folder is written under another name and renamed when it is whole. However a rollout ends, the
finished episodes are kept.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rayfish.envs.env_kind import DEFAULT_AGENT
from rayfish.envs.play import Actions, TimeStep
from rayfish.errors import RayfishError, RunFailed
from rayfish.experiment.words import Override, as_words
from rayfish.files import atomic_write, folder_for
from rayfish.metrics import names
from rayfish.metrics.stats import bootstrap_ci
from rayfish.run import player, provenance
from rayfish.run.player import EpisodePlan, Game, PlayedEpisode, writing_to
from rayfish.run.trajectories import Trajectories, as_json
from rayfish.supervise import signals
from rayfish.supervise.error_messages import explained
from rayfish.text import counted

FILES = ("trajectories.parquet", "episodes.parquet", "episodes.csv", "summary.json")
_SUMMARY = "summary.json"


@dataclass(frozen=True)
class RecordedRollout:
    """What was recorded.

    :param rows: rows of `trajectories.parquet`
    :param stopped: whether fewer episodes were played than asked for
    :param statistics: mean, ci_low, ci_high, std, min and max of `return`, `length`, each policy's
        return (`return/<policy>`) and what the environment reports (`env/<name>`)
    """

    folder: str
    checkpoint: str
    env: str
    seed: int
    explore: bool
    overrides: list[str]
    episodes: int
    steps: int
    rows: int
    stopped: bool
    seconds: float
    statistics: dict[str, dict[str, float]]
    returns: list[float] = field(repr=False)
    lengths: list[int] = field(repr=False)

    @property
    def return_mean(self) -> float:
        """The mean return over all episodes."""
        return self.statistics["return"]["mean"]

    @property
    def trajectories(self) -> Path:
        """The file with every step, for `pandas.read_parquet`."""
        return Path(self.folder) / FILES[0]


def rollout(
    run: str | Path,
    *overrides: Override,
    episodes: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    explore: bool = False,
    save_info: bool = False,
    out: str | Path | None = None,
    env: Any = None,
    progress: Callable[[int, float], None] | None = None,
    trust: bool = False,
) -> RecordedRollout:
    """Plays episodes with a run's best (else last) checkpoint, or with the checkpoint named, and keeps them.

    Ctrl-C, SIGTERM and SIGHUP end it after the step that is being taken; the result then says `stopped`.

    :param run: a run (path, name, id, `last`) or a checkpoint folder
    :param overrides: changes of the experiment: `environment.env_config.wind=3`, or a dictionary of such
    :param episodes: how many episodes to play (20 when neither is given)
    :param steps: play until this many steps are done; the last episode is finished
    :param seed: episode `i` is reset with `seed + i`
    :param explore: sample actions as in training, in place of the most likely ones
    :param save_info: also keep the environment's infos, as JSON text
    :param out: the folder to write, in place of a new one in the run's `rollouts/`
    :param env: an environment class or creator, for runs that were trained on one given from Python
    :param progress: called after each episode with how many are done and the last return
    :param trust: run the code that another user's run names
    :raises KeyboardInterrupt: it was stopped before an episode was over: nothing is kept
    """
    plan = EpisodePlan(episodes, steps, seed, explore)
    game = player.prepare(run, overrides, plan, verb="rollout", env=env, trust=trust)
    folder = _place(game, out)
    with _interruptible() as end_if_requested, _draft(folder) as draft:
        recording = _Recording(game, draft, save_info=save_info)
        fault: BaseException | None = None
        try:
            recording.play(end_if_requested, progress)
        except (KeyboardInterrupt, RayfishError) as error:
            if not recording.rows:
                raise
            fault = error
        found = recording.finish(folder, as_words(overrides), stopped=fault is not None)
    if isinstance(fault, RayfishError):
        kept = f"{counted(found.episodes, 'finished episode')} kept in {folder}"
        raise RunFailed(f"{fault.what}; {kept}", fault.hint) from fault
    return found


class _Recording:
    """One rollout while it is played, and its files.

    :param rows: what is kept of each finished episode
    """

    def __init__(self, game: Game, draft: Path, *, save_info: bool) -> None:
        self.game = game
        self.draft = draft
        self.rows: list[dict[str, Any]] = []
        self._save_info = save_info
        self._trajectories: Trajectories | None = None
        self._started = time.perf_counter()

    def play(self, after_step: Callable[[], None], progress: Callable[[int, float], None] | None) -> None:
        """All episodes, each noted when it is over."""
        game, save_info = self.game, self._save_info
        about = {"checkpoint": str(game.checkpoint), "env": game.env_name, "seed": game.plan.seed}
        with explained(game.experiment), player.opened(game) as env:
            trajectories = self._trajectories = Trajectories(
                self.draft / FILES[0], env, game.agent, save_info=save_info, about=about
            )

            def see(step: int, actions: Actions, now: TimeStep) -> None:
                trajectories(step, actions, now)
                after_step()

            for played in player.play(game, env, see):
                self.rows.append(_row(played, save_info=save_info))
                if progress is not None:
                    progress(len(self.rows), played.total)

    def finish(self, folder: Path, overrides: list[str], *, stopped: bool) -> RecordedRollout:
        """Completes the files; `folder` is where they will be."""
        game = self.game
        known = dict.fromkeys(name for row in self.rows for name in row)
        columns: dict[str, list[Any]] = {name: [row.get(name) for row in self.rows] for name in known}
        if self._trajectories is None:
            raise RuntimeError("finish() comes after play()")
        self._trajectories.close()
        found = RecordedRollout(
            folder=str(folder),
            checkpoint=str(game.checkpoint),
            env=game.env_name,
            seed=game.plan.seed,
            explore=game.plan.explore,
            overrides=overrides,
            episodes=len(self.rows),
            steps=sum(columns["length"]),
            rows=self._trajectories.rows,
            stopped=stopped,
            seconds=round(time.perf_counter() - self._started, 3),
            statistics=_statistics(columns),
            returns=columns["return"],
            lengths=columns["length"],
        )
        with writing_to(self.draft, out="folder"):
            _write_episodes(self.draft, columns)
            summary = asdict(found) | {"versions": provenance.versions()}
            for listed in ("folder", "returns", "lengths"):  # it may be moved; the rest is in episodes
                del summary[listed]
            atomic_write(self.draft / _SUMMARY, json.dumps(summary, indent=2) + "\n")
        return found


def _row(played: PlayedEpisode, *, save_info: bool) -> dict[str, Any]:
    """What is kept of an episode.

    :param save_info: also the info of the reset, which belongs to no step
    """
    found: dict[str, Any] = {
        "episode": played.number,
        "seed": played.seed,
        "return": played.total,
        "length": played.length,
        "terminated": played.terminated,
        "truncated": played.truncated,
        "seconds": played.seconds,
    }
    found |= {f"return/{policy}": value for policy, value in played.parts.items()}
    found |= {names.env(name): value for name, value in played.figures.items()}
    if save_info:
        found["reset_info"] = as_json(played.reset_info.get(DEFAULT_AGENT, played.reset_info))
    return found


def _statistics(columns: Mapping[str, list[Any]]) -> dict[str, dict[str, float]]:
    """Mean with its 95 % interval, spread and ends of everything that measures an episode."""
    return {
        name: _spread([float(value) for value in values if value is not None])
        for name, values in columns.items()
        if name in ("return", "length") or name.startswith(("return/", "env/"))
    }


def _spread(values: list[float]) -> dict[str, float]:
    mean, low, high = bootstrap_ci(values, seed=0)
    alike = min(values) == max(values)  # rounding must not make a spread of it
    std = 0.0 if alike else float(np.std(values, ddof=1))
    ends = {"min": min(values), "max": max(values)}
    return {"mean": mean, "ci_low": low, "ci_high": high, "std": std, **ends}


def _write_episodes(folder: Path, columns: dict[str, list[Any]]) -> None:
    """`episodes.parquet` and `episodes.csv`."""
    pq.write_table(pa.table(columns), folder / "episodes.parquet")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    atomic_write(folder / "episodes.csv", text.getvalue())


@contextmanager
def _interruptible() -> Iterator[Callable[[], None]]:
    """While entered, the first Ctrl-C, SIGTERM or SIGHUP waits for the step taken now, a second does not.

    Yields what ends the rollout after that step.
    """
    requested = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        signals.note(number)
        if requested and number != signal.SIGHUP:
            raise KeyboardInterrupt
        requested = True

    def end_if_requested() -> None:
        if requested:
            raise KeyboardInterrupt

    previous = signals.handle(handle)
    try:
        yield end_if_requested
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _place(game: Game, out: str | Path | None) -> Path:
    """Where the files go; an earlier rollout there is never overwritten."""
    if out is None:
        return player.place(game.checkpoint, "rollouts", "rollout")
    folder = Path(out).expanduser()
    if folder.exists() and not folder.is_dir():
        raise RayfishError(f"{folder} is a file; a rollout is a folder of files", "name a folder with --out")
    taken = [name for name in FILES if (folder / name).exists()]
    if taken:
        raise RayfishError(
            f"{folder} holds a rollout already ({', '.join(taken)})",
            "name another folder, or remove that one",
        )
    return folder


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """A hidden folder next to `folder` that becomes it, or part of it, when all went well."""
    draft = folder.parent / f".writing-{folder.name}"
    with ExitStack() as stack:
        with writing_to(folder, out="folder"):
            stack.enter_context(folder_for(folder))
            stack.callback(shutil.rmtree, draft, ignore_errors=True)
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
        yield draft
        with writing_to(folder, out="folder"):
            if folder.exists():
                for name in FILES:
                    (draft / name).replace(folder / name)
            else:
                draft.rename(folder)
