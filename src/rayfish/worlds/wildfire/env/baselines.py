"""Policies that come with the environment, to compare agents with; they look at the fire itself.

figures = run_baseline("encircle", {"simulation": "small"}, episodes=64)
print(figures["saved_share"].mean())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rayfish.errors import EnvironmentFault, suggest
from rayfish.worlds.wildfire.env import tactics
from rayfish.worlds.wildfire.env.env import METRICS, WildfireVectorEnv
from rayfish.worlds.wildfire.env.options import INTERACTIONS, MOVES
from rayfish.worlds.wildfire.fire.benchmark import Benchmarks
from rayfish.worlds.wildfire.fire.codes import ATTENUATION_FT, HOLDING_FT


class WildfireBaseline:
    """A policy for all environments of a vector."""

    def __init__(self, env: WildfireVectorEnv, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = (env.num_envs, env.options.num_agents)

    def require(self, env: WildfireVectorEnv, movements: Sequence[str], interactions: Sequence[str]) -> None:
        """Raises an EnvironmentFault where the environment does not offer these."""
        for kind, needed, offered in (
            ("movement", movements, env.options.movements),
            ("interaction", interactions, env.options.interactions),
        ):
            for name in needed:
                if name not in offered:
                    raise EnvironmentFault(
                        f"the baseline {_name_of(self)} needs the {kind} {name!r}",
                        f"add it to the environment's {kind}s, or leave this baseline out",
                    )

    def reset(self, env: WildfireVectorEnv, which: np.ndarray) -> None:
        """Episodes have begun in the environments `which`."""

    def act(self, env: WildfireVectorEnv) -> np.ndarray:
        """The actions of all environments, as the action space has them."""
        raise NotImplementedError


class Nothing(WildfireBaseline):
    """Agents that stand still."""

    def __init__(self, env: WildfireVectorEnv, seed: int = 0) -> None:
        super().__init__(env, seed)
        self.require(env, ["none"], ["none"])
        self._still = env.options.movements.index("none")
        self._idle = env.options.interactions.index("none")

    def act(self, env: WildfireVectorEnv) -> np.ndarray:
        """Neither movement nor line."""
        return env.decode.encode(np.full(self.shape, self._still), np.full(self.shape, self._idle))


class Random(WildfireBaseline):
    """Agents that do anything."""

    def act(self, env: WildfireVectorEnv) -> np.ndarray:
        """Every movement and interaction is as likely as any other."""
        moves, interactions = env.decode.sizes
        return env.decode.encode(
            self.rng.integers(moves, size=self.shape), self.rng.integers(interactions, size=self.shape)
        )


class Planned(WildfireBaseline):
    """Agents that plan a line when an episode begins, and then build it."""

    def __init__(self, env: WildfireVectorEnv, seed: int = 0) -> None:
        super().__init__(env, seed)
        offered, physics = env.options.interactions, env.episodes.settings.simulation.physics
        lines = [name for name in offered if name != "none"]
        self.require(env, list(MOVES), ["none", *([] if lines else ["fireline"])])
        self._still, self._idle = env.options.movements.index("none"), offered.index("none")
        strength = HOLDING_FT if physics == "behave" else ATTENUATION_FT
        self._line = offered.index(max(lines, key=lambda name: strength[INTERACTIONS[name]]))
        self._moves = {MOVES[name]: place for place, name in enumerate(env.options.movements)}
        self._benchmarks = Benchmarks(env.episodes.settings, "last")
        self._paths = np.zeros((env.num_envs, 2 * sum(env.episodes.shape) + 8), np.int64)
        self._at, self._ends = (np.zeros(self.shape, np.int64) for _ in range(2))

    def plan(self, env: WildfireVectorEnv, n: int, arrival: np.ndarray, path: np.ndarray) -> int:
        """Writes cells in walking order into `path` and gives their number.

        :param arrival: int32 [C] the update in which the fire would reach a cell
        """
        raise NotImplementedError

    def reset(self, env: WildfireVectorEnv, which: np.ndarray) -> None:
        """Plans for the episodes that have begun."""
        sim, starts = env.episodes.sim, env.episodes.starts
        given = [start for n in which if (start := starts[n]) is not None]
        landscapes = [sim.landscape(int(n)) if env.episodes.varied else None for n in which]
        agents = self.shape[1]
        for n, one in zip(which, self._benchmarks.of(given, landscapes), strict=True):
            assert one.ignited is not None
            length = self.plan(env, int(n), one.ignited, self._paths[n])
            parts = np.arange(agents + 1) * length // agents
            self._at[n], self._ends[n] = parts[:-1], parts[1:]

    def act(self, env: WildfireVectorEnv) -> np.ndarray:
        """The next steps on the planned paths."""
        episodes, crew = env.episodes, env.episodes.crew
        dx, dy, line = (np.zeros(self.shape, kind) for kind in (np.int64, np.int64, np.bool_))
        plan, width = (self._paths, self._ends, self._at), episodes.shape[1]
        tactics.follow(*plan, crew.x, crew.y, episodes.fire_map, width, dx, dy, line)
        move = np.full(self.shape, self._still)
        for (x, y), number in self._moves.items():
            if x or y:
                move[(dx == x) & (dy == y)] = number
        return env.decode.encode(move, np.where(line, self._line, self._idle))

    def _situation(self, env: WildfireVectorEnv, n: int, arrival: np.ndarray) -> tactics.Situation:
        episodes, ground = env.episodes, env.episodes.ground
        place = ground.of[n]
        work = episodes.steps_per_line[ground.fuel[place]]
        agents, speed = (episodes.crew.x[n], episodes.crew.y[n]), env.options.agent_speed
        return tactics.Situation(arrival, ground.burnable[place], work, *agents, *episodes.shape, speed)


class Encircle(Planned):
    """The smallest box around the fire that can be closed before the fire is there."""

    def plan(self, env: WildfireVectorEnv, n: int, arrival: np.ndarray, path: np.ndarray) -> int:
        """See `tactics.plan_ring`."""
        return int(tactics.plan_ring(self._situation(env, n, arrival), path))


class LineAhead(Planned):
    """A line across the path of the fire's head, from edge to edge of the map."""

    def plan(self, env: WildfireVectorEnv, n: int, arrival: np.ndarray, path: np.ndarray) -> int:
        """See `tactics.plan_ahead`."""
        start = env.episodes.starts[n]
        assert start is not None
        x, y = start.cells[0]
        cell, wind = y * env.episodes.shape[1] + x, env.episodes.seen.wind[n]
        return int(tactics.plan_ahead(self._situation(env, n, arrival), cell, wind, path))


BASELINES: dict[str, type[WildfireBaseline]] = {
    "nothing": Nothing,
    "random": Random,
    "line_ahead": LineAhead,
    "encircle": Encircle,
}
"""The baseline policies by name."""

FIGURES = ("saved_share", "burned_share", "lines", "contained")
"""Figures of an episode that policies are compared by, the one that matters most first."""


def make_vector(num_envs: int, num_agents: int = 4, **given: Any) -> WildfireVectorEnv:
    """Where baselines act for the agents of `WildfireParallel`, on the same fires."""
    return WildfireVectorEnv(num_envs, num_agents=num_agents, **given)


def make_baseline(name: str, env: WildfireVectorEnv, seed: int = 0) -> WildfireBaseline:
    """A baseline policy by its name.

    :raises EnvironmentFault: there is none of this name, or it cannot act in this environment
    """
    if name not in BASELINES:
        raise EnvironmentFault(f"there is no baseline {name!r}", suggest(name, BASELINES))
    return BASELINES[name](env, seed)


def run_baseline(
    name: str,
    env_options: Mapping[str, Any] | None = None,
    *,
    episodes: int = 64,
    seeds: Sequence[int] | None = None,
) -> dict[str, np.ndarray]:
    """Plays one episode for each seed; figures of each episode by name, with `return` and `length`.

    :param env_options: keyword arguments of the environment
    :param episodes: how many, with the seeds 0, 1, ...
    :param seeds: which seeds, in place of `episodes`
    """
    chosen = list(range(episodes) if seeds is None else seeds)
    env = WildfireVectorEnv(len(chosen), **(env_options or {}))
    policy = make_baseline(name, env)
    env.reset(seed=chosen)
    policy.reset(env, np.arange(len(chosen)))
    returns, lengths = np.zeros((2, len(chosen)))
    figures: dict[str, np.ndarray] = {}
    playing = np.ones(len(chosen), bool)
    while playing.any():
        _, rewards, terminated, truncated, infos = env.step(policy.act(env))
        returns += np.where(playing, rewards, 0.0)
        lengths += playing
        over = terminated | truncated
        if not over.any():
            continue
        first = over & playing
        for key, values in infos["final_info"][METRICS].items():
            if not key.startswith("_"):
                figures.setdefault(key, np.zeros(len(chosen)))[first] = values[first]
        playing &= ~over
        policy.reset(env, np.flatnonzero(over))
    return {**figures, "return": returns, "length": lengths}


def _name_of(policy: WildfireBaseline) -> str:
    return next(name for name, kind in BASELINES.items() if isinstance(policy, kind))
