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
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
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
from rayfish.supervise.error_messages import explained
from rayfish.supervise.signals import Interrupts
from rayfish.text import counted

FILES = ("trajectories.parquet", "episodes.parquet", "episodes.csv", "summary.json")


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
    """Plays episodes as `evaluate` does, whose parameters mean the same here, and keeps every step of them.

    Ctrl-C, SIGTERM and SIGHUP end it after the step that is being taken; the result then says `stopped`.

    :param save_info: also keep the environment's infos, as JSON text
    :param out: the folder to write, in place of a new one in the run's `rollouts/`
    :raises KeyboardInterrupt: it was stopped before an episode was over: nothing is kept
    """
    plan = EpisodePlan(episodes, steps, seed, explore)
    game = player.prepare(run, overrides, plan, verb="rollout", env=env, trust=trust)
    folder = _place(game, out)
    about = {"checkpoint": str(game.checkpoint), "env": game.env_name, "seed": game.plan.seed}
    rows: list[dict[str, Any]] = []
    fault: BaseException | None = None
    started = time.perf_counter()
    with Interrupts(lambda line: None) as interrupts, _draft(folder) as draft:
        interrupts.begin()
        try:
            with explained(game.experiment), player.opened(game) as world:
                file = draft / FILES[0]
                trajectories = Trajectories(file, world, game.agent, save_info=save_info, about=about)

                def see(step: int, actions: Actions, now: TimeStep) -> None:
                    trajectories(step, actions, now)
                    if interrupts.requested:
                        raise KeyboardInterrupt

                for played in player.play(game, world, see):
                    rows.append(_row(played, save_info=save_info))
                    if progress is not None:
                        progress(len(rows), played.total)
        except (KeyboardInterrupt, RayfishError) as error:
            if not rows:
                raise
            fault = error
        interrupts.close()
        trajectories.close()
        about |= {"folder": str(folder), "explore": explore, "overrides": as_words(overrides)}
        about |= {"rows": trajectories.rows, "stopped": fault is not None}
        found = _written(draft, rows, started, about)
    if isinstance(fault, RayfishError):
        kept = f"{counted(found.episodes, 'finished episode')} kept in {folder}"
        raise RunFailed(f"{fault.what}; {kept}", fault.hint) from fault
    return found


def _written(
    draft: Path, rows: list[dict[str, Any]], started: float, about: dict[str, Any]
) -> RecordedRollout:
    """The result, and its files next to the trajectories.

    :param about: the fields of `RecordedRollout` that do not come from the episodes
    """
    known = dict.fromkeys(name for row in rows for name in row)
    columns: dict[str, list[Any]] = {name: [row.get(name) for row in rows] for name in known}
    found = RecordedRollout(
        episodes=len(rows),
        steps=sum(columns["length"]),
        seconds=round(time.perf_counter() - started, 3),
        statistics=_statistics(columns),
        returns=columns["return"],
        lengths=columns["length"],
        **about,
    )
    with writing_to(draft, out="folder"):
        _write_episodes(draft, columns)
        summary = asdict(found) | {"versions": provenance.versions()}
        for listed in ("folder", "returns", "lengths"):  # it may be moved; the rest is in episodes
            del summary[listed]
        atomic_write(draft / "summary.json", json.dumps(summary, indent=2) + "\n")
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
