"""How good an agent is: fixed seeds, no exploration, a mean with its interval, and baselines beside it.

Runs the saved policy by itself (no Ray, no GPU), so that episode `i` of the same checkpoint and seed is
the same episode on every machine and at every count: one after the other, or side by side where the
environment promises the same of its vector (see `rayfish.run.baselines`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rayfish.errors import RayfishError
from rayfish.experiment import Experiment
from rayfish.experiment.words import Override, as_words
from rayfish.files import atomic_write, folder_for, why_unwritable
from rayfish.run import baselines as base
from rayfish.run import episodes_table, player
from rayfish.run.baselines import Offer, Row
from rayfish.run.player import Game
from rayfish.supervise.error_messages import explained

MOST_SHOWN = 4
"""Figures that are shown of an environment that does not name those that matter."""

Progress = Callable[[int, float], None]


@dataclass(frozen=True)
class Compared:
    """A baseline on the episodes that the agent had.

    :param statistics: mean, ci_low and ci_high of `return`, `length` and the environment's figures
    :param differences: the same of agent less baseline, episode by episode
    :param significant: whether zero is outside the interval of a difference
    :param episodes: the numbers of every episode
    """

    statistics: dict[str, dict[str, float]]
    differences: dict[str, dict[str, float]]
    significant: dict[str, bool]
    episodes: dict[str, list[float]] = field(repr=False)


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found; `file` is its JSON on disk.

    :param checkpoint: what played: a checkpoint, or `baseline:<name>`
    :param statistics: mean, ci_low and ci_high of `return`, `length` and the environment's figures
    :param figures: what the environment reported of every episode
    :param shown: the figures that matter
    :param compared_by: the one that matters most, `return` where the environment names none
    :param baselines: by name, in the order in which they were asked for
    """

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
    statistics: dict[str, dict[str, float]] = field(default_factory=dict)
    figures: dict[str, list[float]] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)
    compared_by: str = base.RETURN
    baselines: dict[str, Compared] = field(default_factory=dict)


def evaluate(
    run: str | Path,
    *overrides: Override,
    episodes: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    explore: bool = False,
    env: Any = None,
    out: str | Path | None = None,
    baselines: Sequence[str] = (),
    progress: Progress | None = None,
    trust: bool = False,
) -> Evaluation:
    """Plays episodes with a run's best (else last) checkpoint, or with the checkpoint named.

    :param run: a run (path, name, id, `last`) or a checkpoint folder; `baseline:<name>` plays a baseline of
        the environment of an experiment, whose name and settings are the overrides
    :param overrides: changes of the experiment: `environment.env_config.wind=3`, or a dictionary of such
    :param episodes: how many episodes to play (20 when neither is given)
    :param steps: play until this many steps are done; the last episode is finished
    :param seed: episode `i` is reset with `seed + i`
    :param explore: sample actions as in training, in place of the most likely ones
    :param env: an environment class or creator, for runs that were trained on one given from Python
    :param out: the file to write, in place of a new one in the run's `evaluations/`; what has no run is
        written only where this is given
    :param baselines: baselines of the environment that play the same episodes; `all` is every one
    :param progress: called after each episode with how many are done and the last return
    :param trust: run the code that another user's run names
    """
    words = as_words(overrides)
    tell = progress or (lambda done, last: None)
    if str(run).startswith(base.PREFIX):
        return _of_baseline(
            str(run),
            words,
            episodes=episodes,
            steps=steps,
            seed=seed,
            env=env,
            out=out,
            beside=baselines,
            tell=tell,
        )
    game = player.prepare(
        run,
        words,
        verb="evaluate",
        episodes=episodes,
        steps=steps,
        seed=seed,
        explore=explore,
        env=env,
        trust=trust,
    )
    file = _place(game.checkpoint) if out is None else Path(out).expanduser()
    experiment = game.experiment
    offer = base.required(experiment) if baselines else base.offer_of(experiment)
    chosen = offer.choose(baselines) if offer is not None else []
    begun = time.perf_counter()
    with explained(experiment), player.opened(game) as world:
        rows = _rows(game, world, offer, tell)
        beside = _beside(offer, chosen, rows, seed, tell)
    found = _found(
        str(game.checkpoint), game.env_name, rows, beside, offer=offer, begun=begun, seed=seed, file=str(file)
    )
    _write(found)
    return found


def _of_baseline(
    target: str,
    words: Sequence[str],
    *,
    episodes: int | None,
    steps: int | None,
    seed: int,
    env: Any,
    out: str | Path | None,
    beside: Sequence[str],
    tell: Progress,
) -> Evaluation:
    """A baseline in the evaluation environment of an experiment, without any run."""
    from rayfish.experiment.overrides import split_words

    if steps is not None or (episodes is not None and episodes < 1):
        raise RayfishError(f"{target} plays a number of episodes, at least 1", "give it as --episodes 20")
    name, overrides = split_words(words)
    named = [word.partition("=")[2] for word in overrides if word.startswith("experiment=")]
    overrides = [word for word in overrides if not word.startswith("experiment=")]
    experiment = Experiment.compose(name or (named[-1] if named else None), overrides, env=env)
    offer = base.required(experiment)
    wanted = base.split(target.removeprefix(base.PREFIX))
    first, *others = offer.choose(wanted) + offer.choose(beside)
    begun = time.perf_counter()
    with explained(experiment):
        rows = base.play_baseline(offer, first, episodes=episodes or player.EPISODES, seed=seed, ended=tell)
        compared = _beside(offer, [one for one in others if one != first], rows, seed, tell)
    file = "" if out is None else str(Path(out).expanduser())
    found = _found(
        f"{base.PREFIX}{first}", offer.env, rows, compared, offer=offer, begun=begun, seed=seed, file=file
    )
    if file:
        _write(found)
    return found


def _rows(game: Game, world: Any, offer: Offer | None, tell: Progress) -> list[Row]:
    """The agent's episodes, side by side where the environment's vector is as good as single ones."""
    if offer is not None and offer.native:
        return base.play_agent(
            offer,
            game.agent,
            explore=game.explore,
            episodes=game.episodes,
            steps=game.steps,
            seed=game.seed,
            ended=tell,
        )
    rows: list[Row] = []
    for played in player.play(game, world):
        reported = episodes_table.row(played, save_info=False)
        figures = {key.removeprefix("env/"): value for key, value in reported.items() if key[:4] == "env/"}
        rows.append(Row(played.total, played.length, figures, played.parts))
        tell(len(rows), played.total)
    return rows


def _beside(
    offer: Offer | None, names: Sequence[str], rows: Sequence[Row], seed: int, tell: Progress
) -> dict[str, Compared]:
    """Baselines on the episodes of `rows`."""
    found: dict[str, Compared] = {}
    own = base.columns(rows)
    for name in names:
        assert offer is not None
        table = base.columns(base.play_baseline(offer, name, episodes=len(rows), seed=seed, ended=tell))
        apart = base.differences(own, table)
        marks = {key: base.significant(value) for key, value in apart.items()}
        found[name] = Compared(base.intervals(table), apart, marks, table)
    return found


def _found(
    played_by: str,
    env: str,
    rows: Sequence[Row],
    compared: Mapping[str, Compared],
    *,
    offer: Offer | None,
    begun: float,
    seed: int,
    file: str,
) -> Evaluation:
    table = base.columns(rows)
    statistics = base.intervals(table)
    figures = {name: values for name, values in table.items() if name not in (base.RETURN, base.LENGTH)}
    named = [name for name in (offer.figures if offer is not None else ()) if name in figures]
    policies = dict.fromkeys(policy for row in rows for policy in row.parts)
    lengths = [row.length for row in rows]
    return Evaluation(
        checkpoint=played_by,
        env=env,
        episodes=len(rows),
        steps=sum(lengths),
        return_mean=statistics[base.RETURN]["mean"],
        ci_low=statistics[base.RETURN]["ci_low"],
        ci_high=statistics[base.RETURN]["ci_high"],
        length_mean=sum(lengths) / len(lengths),
        seconds=round(time.perf_counter() - begun, 3),
        seed=seed,
        returns=[row.total for row in rows],
        lengths=lengths,
        policy_returns={
            policy: sum(row.parts.get(policy, 0.0) for row in rows) / len(rows) for policy in policies
        },
        file=file,
        statistics=statistics,
        figures=figures,
        shown=named or list(figures)[:MOST_SHOWN],
        compared_by=(named or [base.RETURN])[0],
        baselines=dict(compared),
    )


def _place(checkpoint: Path) -> Path:
    where = player.place(checkpoint, "evaluations", "evaluation")
    return where.with_name(f"{where.name}-{checkpoint.name}.json")


def _write(found: Evaluation) -> None:
    file = Path(found.file)
    try:
        with folder_for(file):
            atomic_write(file, json.dumps(asdict(found), indent=2) + "\n")
    except OSError as error:
        reason, remedy = why_unwritable(error, file)
        raise RayfishError(
            f"the evaluation cannot be written to {file}: {reason}",
            f"{remedy}, or name another file with --out",
        ) from error
