"""How good an agent is: fixed seeds, no exploration, a mean with its interval.

Runs the saved policy by itself (no Ray, no GPU), one episode after the other, so that episode
`i` of the same checkpoint and seed is the same episode on every machine and at every count.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rayfish.errors import RayfishError
from rayfish.metrics.stats import bootstrap_ci
from rayfish.run import playing
from rayfish.run.directory import atomic_write
from rayfish.run.faults import explained


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found; `file` is its JSON on disk."""

    checkpoint: str
    env: str
    episodes: int
    steps: int
    return_mean: float
    ci_low: float
    ci_high: float
    length_mean: float
    seconds: float
    seed: int
    returns: list[float]
    lengths: list[int]
    policy_returns: dict[str, float]
    file: str = ""


def evaluate(
    run: str | Path,
    *overrides: str,
    episodes: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    explore: bool = False,
    env: Any = None,
    out: str | Path | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Evaluation:
    """Plays episodes with a run's best (else last) checkpoint, or with the checkpoint named.

    :param run: a run (path, name, id, `last`) or a checkpoint folder
    :param overrides: `key=value` changes of the experiment, such as `environment.env_config.wind=3`
    :param episodes: how many episodes to play (20 when neither is given)
    :param steps: play until this many steps are done; the last episode is finished
    :param seed: episode `i` is reset with `seed + i`
    :param explore: sample actions as in training, in place of the most likely ones
    :param env: an environment class or creator, for runs that were trained on one given from Python
    :param out: the file to write, in place of a new one in the run's `evaluations/`
    :param progress: called after each episode with how many are done and the last return
    """
    game = playing.prepare(
        run, overrides, verb="evaluate", episodes=episodes, steps=steps, seed=seed, explore=explore, env=env
    )
    begun = time.perf_counter()
    returns: list[float] = []
    lengths: list[int] = []
    totals: dict[str, float] = {}
    with explained(game.experiment), playing.opened(game) as world:
        for played in playing.play(game, world):
            returns.append(played.total)
            lengths.append(played.length)
            for policy, value in played.parts.items():
                totals[policy] = totals.get(policy, 0.0) + value
            if progress is not None:
                progress(len(returns), played.total)
    mean, low, high = bootstrap_ci(returns, seed=0)
    found = Evaluation(
        checkpoint=str(game.checkpoint),
        env=game.env_name,
        episodes=len(returns),
        steps=sum(lengths),
        return_mean=mean,
        ci_low=low,
        ci_high=high,
        length_mean=sum(lengths) / len(lengths),
        seconds=round(time.perf_counter() - begun, 3),
        seed=seed,
        returns=returns,
        lengths=lengths,
        policy_returns={policy: value / len(returns) for policy, value in totals.items()},
        file=str(_place(game.checkpoint) if out is None else Path(out).expanduser()),
    )
    _write(found)
    return found


def _place(checkpoint: Path) -> Path:
    where = playing.place(checkpoint, "evaluations", "evaluation")
    return where.with_name(f"{where.name}-{checkpoint.name}.json")


def _write(found: Evaluation) -> None:
    file = Path(found.file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, json.dumps(asdict(found), indent=2) + "\n")
    except OSError as error:
        raise RayfishError(
            f"the evaluation cannot be written to {file}: {error.strerror or error}",
            "name a file you may write with --out",
        ) from error
