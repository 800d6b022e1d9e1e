"""How good an agent is: fixed seeds, no exploration, a mean with its interval, and baselines.

Runs the saved policy by itself (no Ray, no GPU), so that episode `i` of the same checkpoint and seed is
the same episode on every machine and at every count: one after the other, or side by side where the
environment promises the same of its vector (see `rayfish.run.baselines`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rayfish.errors import RayfishError
from rayfish.experiment import Experiment
from rayfish.experiment.words import Override, as_words
from rayfish.files import atomic_write, folder_for
from rayfish.run import baselines as base
from rayfish.run import player
from rayfish.run.baselines import Offer
from rayfish.run.player import Episode, EpisodePlan, Game, writing_to
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
    :param baselines: by name, in the order in which they were named
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
    """Plays episodes with a run's best (else last) checkpoint, or with the checkpoint named, and scores them.

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
    words, plan = as_words(overrides), EpisodePlan(episodes, steps, seed, explore)
    tell = progress or (lambda done, last: None)
    if str(run).startswith(base.PREFIX):
        return _of_baseline(str(run), words, plan, env=env, out=out, others=baselines, tell=tell)
    game = player.prepare(run, words, plan, verb="evaluate", env=env, trust=trust)
    if out is None:
        place = player.place(game.checkpoint, "evaluations", "evaluation")
        out = place.with_name(f"{place.name}-{game.checkpoint.name}.json")
    experiment = game.experiment
    offer = base.required(experiment) if baselines else base.offer_of(experiment)
    names = offer.choose(baselines) if offer is not None else []
    started = time.perf_counter()
    with explained(experiment), player.opened(game) as world:
        played = _episodes(game, world, offer, tell)
        compared = _compared(offer, names, played, seed, tell)
    about = {"checkpoint": str(game.checkpoint), "env": game.env_name, "seed": seed}
    return _evaluation(played, compared, offer, started, out, **about)


def _of_baseline(
    target: str,
    words: Sequence[str],
    plan: EpisodePlan,
    *,
    env: Any,
    out: str | Path | None,
    others: Sequence[str],
    tell: Progress,
) -> Evaluation:
    """A baseline in the evaluation environment of an experiment, without any run."""
    from rayfish.experiment.overrides import split_words

    if plan.steps is not None or (plan.count is not None and plan.count < 1):
        raise RayfishError(f"{target} plays a number of episodes, at least 1", "give it as --episodes 20")
    name, overrides = split_words(words)
    named = [word.partition("=")[2] for word in overrides if word.startswith("experiment=")]
    overrides = [word for word in overrides if not word.startswith("experiment=")]
    experiment = Experiment.compose(name or (named[-1] if named else None), overrides, env=env)
    offer = base.required(experiment)
    first, *more = dict.fromkeys(
        offer.choose(base.split(target.removeprefix(base.PREFIX))) + offer.choose(others)
    )
    count, started = plan.count or player.EPISODES, time.perf_counter()
    with explained(experiment):
        played = base.play_baseline(offer, first, episodes=count, seed=plan.seed, ended=tell)
        compared = _compared(offer, more, played, plan.seed, tell)
    about = {"checkpoint": f"{base.PREFIX}{first}", "env": offer.env, "seed": plan.seed}
    return _evaluation(played, compared, offer, started, out, **about)


def _episodes(game: Game, world: Any, offer: Offer | None, tell: Progress) -> Sequence[Episode]:
    """The agent's episodes, side by side where the environment's vector is as good as single ones."""
    if offer is not None and offer.native:
        return base.play_agent(offer, game.agent, game.plan, tell)
    episodes: list[Episode] = []
    for played in player.play(game, world):
        episodes.append(played)
        tell(len(episodes), played.total)
    return episodes


def _compared(
    offer: Offer | None, names: Sequence[str], played: Sequence[Episode], seed: int, tell: Progress
) -> dict[str, Compared]:
    """Baselines on the episodes that were played."""
    found: dict[str, Compared] = {}
    own = base.columns(played)
    for name in names:
        assert offer is not None
        table = base.columns(base.play_baseline(offer, name, episodes=len(played), seed=seed, ended=tell))
        apart = base.differences(own, table)
        marks = {key: base.significant(value) for key, value in apart.items()}
        found[name] = Compared(base.intervals(table), apart, marks, table)
    return found


def _evaluation(
    played: Sequence[Episode],
    compared: dict[str, Compared],
    offer: Offer | None,
    started: float,
    out: str | Path | None,
    **about: Any,
) -> Evaluation:
    """What episodes came to, written to `out`.

    :param about: the fields of `Evaluation` that say what played
    """
    file = None if out is None else Path(out).expanduser()
    table = base.columns(played)
    statistics = base.intervals(table)
    returns = statistics[base.RETURN]
    figures = {name: values for name, values in table.items() if name not in (base.RETURN, base.LENGTH)}
    named = [name for name in (offer.figures if offer is not None else ()) if name in figures]
    policies = dict.fromkeys(policy for episode in played for policy in episode.parts)
    lengths = [episode.length for episode in played]
    found = Evaluation(
        file=str(file or ""),
        episodes=len(played),
        steps=sum(lengths),
        return_mean=returns["mean"],
        ci_low=returns["ci_low"],
        ci_high=returns["ci_high"],
        length_mean=sum(lengths) / len(lengths),
        seconds=round(time.perf_counter() - started, 3),
        returns=[episode.total for episode in played],
        lengths=lengths,
        policy_returns={
            policy: sum(episode.parts.get(policy, 0.0) for episode in played) / len(played)
            for policy in policies
        },
        statistics=statistics,
        figures=figures,
        shown=named or list(figures)[:MOST_SHOWN],
        compared_by=(named or [base.RETURN])[0],
        baselines=compared,
        **about,
    )
    if file is not None:
        with writing_to(file, "the evaluation"), folder_for(file):
            atomic_write(file, json.dumps(asdict(found), indent=2) + "\n")
    return found
