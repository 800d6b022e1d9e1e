"""Baselines that an environment brings, and many episodes of one policy played side by side.

An environment offers baselines in its own module, or in a module `baselines` next to it:

    BASELINES     name -> factory; `factory(vector, seed)` returns a policy with `reset(vector, which)`,
                  called when episodes begin in the slots `which`, and `act(vector)`, the actions of all slots
    FIGURES       optional: which figures of its episodes to show, the one that matters most first
    make_vector   optional: `make_vector(num_envs, **env_config)`, the vector in which baselines act for an
                  environment of several agents

It promises that a slot of its vector that is reset with a seed plays the episode that a single environment
plays with that seed. So every policy meets the same episodes: number `i` is reset with `seed + i`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from rayfish.envs import build as envs
from rayfish.envs import guard
from rayfish.envs.resolve import resolve
from rayfish.envs.spec import EnvSpec
from rayfish.envs.vector import GymVector, Tree
from rayfish.errors import RayfishError, did_you_mean
from rayfish.experiment import Experiment
from rayfish.metrics.stats import bootstrap_ci
from rayfish.nested import map_nested
from rayfish.run.player import Episode, EpisodePlan, check_length
from rayfish.run.policy import Agent
from rayfish.supervise.watchdog import report_progress

ALL = "all"
"""Stands for every baseline that an environment brings."""

PREFIX = "baseline:"
"""What is written before a baseline's name where a run could be named."""

SLOTS = 64
"""Episodes that are played side by side."""

RETURN, LENGTH = "return", "length"


class Baseline(Protocol):
    """A policy that comes with an environment."""

    def reset(self, env: Any, which: np.ndarray) -> None:
        """Episodes have begun in the slots `which`."""

    def act(self, env: Any) -> Any:
        """The actions of all slots."""


@dataclass(frozen=True)
class Offer:
    """What an environment brings.

    :param policies: factories by name
    :param figures: which figures to show, the one that matters most first; empty for all of them
    :param native: whether its own vector can be played in
    """

    env: str
    policies: Mapping[str, Callable[[Any, int], Baseline]]
    figures: tuple[str, ...]
    native: bool
    _spec: EnvSpec
    _config: Mapping[str, Any]
    _make_vector: Callable[..., Any] | None

    @property
    def of_team(self) -> bool:
        """Whether baselines act in another environment than agents, whose rewards are counted otherwise."""
        return self._make_vector is not None and not self.native

    def choose(self, wanted: Sequence[str]) -> list[str]:
        """The names that are meant; `all` is every one.

        :raises RayfishError: there is no baseline of a name
        """
        if ALL in wanted:
            return list(self.policies)
        for name in wanted:
            if name not in self.policies:
                near = did_you_mean(name, self.policies)
                hint = f"did you mean {' or '.join(near)}?" if near else "name one of these"
                known = ", ".join(self.policies)
                raise RayfishError(f"{self.env} has no baseline {name!r}; it has {known}", hint)
        return list(dict.fromkeys(wanted))

    @contextmanager
    def opened(self, slots: int) -> Iterator[GymVector]:
        """Many of the environment as one, closed at the end."""
        if self.of_team:
            assert self._make_vector is not None
            limit = {} if self._spec.horizon is None else {"max_episode_steps": self._spec.horizon}
            made = self._make_vector(slots, **limit, **self._config)
        else:
            # There is no vector of Gymnasium's for several agents.
            if not self.native and envs.describe(self._spec, self._config).kind == "multi":
                raise RayfishError(
                    f"{self.env} has several agents, for which its baselines cannot act",
                    "offer make_vector(num_envs, **env_config) beside its BASELINES",
                )
            made = envs.make_vector(self._spec, self._config, slots)
        try:
            yield GymVector(made)
        finally:
            guard.close(made)


def offer_of(experiment: Experiment) -> Offer | None:
    """What the evaluation environment of an experiment brings; None when it has no baselines."""
    spec = envs.from_experiment(experiment, evaluation=True)
    source = resolve(spec)
    registered = gym.registry.get(source.gym_id) if source.gym_id else None
    made_by: Any = source.target if registered is None else registered.entry_point
    place = made_by.partition(":")[0] if isinstance(made_by, str) else getattr(made_by, "__module__", "")
    for module in _modules(place):
        found = getattr(module, "BASELINES", None)
        if isinstance(found, Mapping) and found:
            changed = bool(spec.atari or spec.last_action or spec.last_reward)
            return Offer(
                env=spec.name,
                policies=found,
                figures=tuple(getattr(module, "FIGURES", ())),
                native=bool(registered and registered.vector_entry_point) and not changed,
                _spec=spec,
                _config=envs.env_config_of(experiment, evaluation=True),
                _make_vector=getattr(module, "make_vector", None),
            )
    return None


def required(experiment: Experiment) -> Offer:
    """As `offer_of`, of an environment that must have baselines."""
    found = offer_of(experiment)
    if found is None:
        name = envs.from_experiment(experiment, evaluation=True).name
        raise RayfishError(
            f"{name} brings no baselines", "give its module a BASELINES = {name: factory}, or leave this out"
        )
    return found


def split(names: str) -> list[str]:
    """Names that are written with commas between them; none at all means every one."""
    return [name for name in (part.strip() for part in names.split(",")) if name] or [ALL]


def play_agent(
    offer: Offer, agent: Agent, plan: EpisodePlan, ended: Callable[[int, float], None]
) -> list[Episode]:
    """Episodes of a trained policy, in the order of their numbers.

    :param ended: called when an episode is over, with how many are and its return
    """
    slots = min(plan.count or SLOTS, SLOTS)

    def act(obs: Tree) -> Any:
        # Always as many rows: a matrix product rounds otherwise for other sizes, and an episode should
        # not depend on how many are played with it.
        wide = map_nested(lambda leaf: np.concatenate([leaf, np.repeat(leaf[:1], SLOTS - slots, 0)]), obs)
        return map_nested(lambda leaf: leaf[:slots], agent.act_batch(wide, explore=plan.explore))

    rows: list[Episode] = []
    with offer.opened(slots) as vector:
        while not plan.enough(len(rows), sum(row.length for row in rows)):
            agent.reset()
            rows += _batch(vector, plan.seed, rows, act, lambda which: agent.reset(rows=which), ended)
    # A batch may have played more than the plan asks for.
    done = np.cumsum([row.length for row in rows]).tolist()
    return rows[: next(n for n, steps in enumerate(done, 1) if plan.enough(n, steps))]


def play_baseline(
    offer: Offer, name: str, *, episodes: int, seed: int, ended: Callable[[int, float], None]
) -> list[Episode]:
    """Episodes of a baseline: those that `play_agent` plays with the same numbers."""
    rows: list[Episode] = []
    with offer.opened(min(episodes, SLOTS)) as vector:
        while len(rows) < episodes:
            policy = offer.policies[name](vector.env, seed + len(rows))
            act, begin = partial(_acted, policy, vector.env), partial(policy.reset, vector.env)
            rows += _batch(vector, seed, rows, act, begin, ended)
    return [replace(row, total=float("nan")) if offer.of_team else row for row in rows[:episodes]]


def columns(rows: Sequence[Episode]) -> dict[str, list[float]]:
    """Return, length and figures of all episodes by name; only what every episode has."""
    names = [name for name in rows[0].figures if all(name in row.figures for row in rows)]
    found = {RETURN: [row.total for row in rows], LENGTH: [float(row.length) for row in rows]}
    found |= {name: [row.figures[name] for row in rows] for name in names if name not in found}
    return {name: values for name, values in found.items() if not np.isnan(values).any()}


def intervals(table: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """The mean of every column, with its 95 % interval."""
    return {
        name: dict(zip(("mean", "ci_low", "ci_high"), bootstrap_ci(values), strict=True))
        for name, values in table.items()
    }


def differences(
    agent: Mapping[str, Sequence[float]], baseline: Mapping[str, Sequence[float]]
) -> dict[str, dict[str, float]]:
    """Agent less baseline, episode by episode, with the 95 % interval of the mean difference.

    Intervals of paired differences are narrower than those of two means: both had the same episodes.
    """
    pairs = {name: np.subtract(agent[name], baseline[name]).tolist() for name in agent if name in baseline}
    return intervals(pairs)


def significant(difference: Mapping[str, float]) -> bool:
    """Whether zero is outside the 95 % interval of a difference."""
    return difference["ci_low"] > 0 or difference["ci_high"] < 0


def _modules(place: str) -> Iterator[ModuleType]:
    """The module itself and, in a package, `baselines` next to it."""
    try:
        own = sys.modules.get(place) or importlib.import_module(place)
    except (ImportError, ValueError):  # a class that was made by hand, or in a file without a name
        return
    yield own
    package = place if hasattr(own, "__path__") else place.rpartition(".")[0]
    sibling = f"{package}.baselines"
    if package and importlib.util.find_spec(sibling) is not None:
        yield importlib.import_module(sibling)


def _acted(policy: Baseline, env: Any, obs: Tree) -> Any:
    """A baseline looks at the environment itself."""
    return policy.act(env)


def _batch(  # noqa: PLR0917
    vector: GymVector,
    seed: int,
    before: Sequence[Episode],
    act: Callable[[Tree], Any],
    begin: Callable[[np.ndarray], None],
    ended: Callable[[int, float], None],
) -> list[Episode]:
    """One more episode in every slot; those that begin after it in the same slot do not count."""
    obs, rows, steps = vector.reset(seed + len(before)), dict[int, Episode](), 0
    begin(np.arange(vector.num_slots))
    while len(rows) < vector.num_slots:
        now = vector.step(act(obs))
        report_progress()
        obs, steps = now.obs, steps + 1
        finished = vector.take_finished()
        for place, slot in enumerate(finished.slots):
            if slot not in rows:
                whole = {k: v[place] for k, v in finished.env.items() if len(v) == len(finished.slots)}
                rows[slot] = Episode(finished.returns[place], finished.lengths[place], whole)
                ended(len(before) + len(rows), rows[slot].total)
        if now.ended.size:
            begin(now.ended)
        check_length(steps)
    return [rows[slot] for slot in range(vector.num_slots)]
