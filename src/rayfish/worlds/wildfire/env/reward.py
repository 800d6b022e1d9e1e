"""What agents get for a step: SimHarness's rewards as they were meant, and where to put one's own.

d is the number of cells that are not unburned (burning, burned, or under a line), b the same in the benchmark
fire (without intervention); k counts updates of the fire, the benchmark's last is T, and B = b_T.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rayfish.errors import CodeError, EnvironmentFault
from rayfish.worlds.wildfire.env.options import REWARDS, Options


@dataclass(frozen=True)
class Step:
    """What a step of N episodes brought; arrays [N] unless said otherwise."""

    updated: np.ndarray  # whether the fire went on in this step
    updates: np.ndarray  # k, the updates of the fire so far
    damaged: np.ndarray  # d, cells that are not unburned, now
    damaged_before: np.ndarray  # d at the update before this one (between updates: at the last one)
    damaged_step_before: np.ndarray  # d at the step before
    benchmark: np.ndarray  # b_k; B where the benchmark fire is out
    benchmark_before: np.ndarray  # b_{k-1}, likewise
    benchmark_final: np.ndarray  # B
    benchmark_length: np.ndarray  # T
    burning: np.ndarray  # burning cells
    lines: np.ndarray  # lines placed in this step
    endangered: np.ndarray  # agents in or beside flames
    ended: np.ndarray  # the fire is out or has nothing left to burn, or the runtime is over
    truncated: np.ndarray  # the episode is cut off
    last: np.ndarray  # the reward of the last step in which the fire went on, 0 before the first
    cells: int  # of the map, one number
    agents: int  # one number
    agent_speed: int  # steps per update of the fire, one number

    @property
    def benchmark_growth(self) -> np.ndarray:
        """b_k - b_{k-1}."""
        return self.benchmark - self.benchmark_before

    @property
    def growth(self) -> np.ndarray:
        """d_k - d_{k-1}."""
        return self.damaged - self.damaged_before

    @property
    def still_to_burn(self) -> np.ndarray:
        """What the benchmark fire would still have taken, b_T - b_k, where this one ended before it."""
        early = self.ended & (self.updates < self.benchmark_length)
        return np.where(early, self.benchmark_final - self.benchmark, 0)


Reward = Callable[[Step], np.ndarray]
"""A reward: of what a step brought, the rewards [N]."""


def saved(step: Step) -> np.ndarray:
    """What this step saved of B; the rewards of an episode add up to its `saved_share`."""
    growth = step.damaged - step.damaged_step_before
    expected = np.where(step.updated, step.benchmark_growth, 0)
    return (expected - growth + step.still_to_burn) / step.benchmark_final


def simple(step: Step) -> np.ndarray:
    """SimHarness's SimpleReward: minus the burning share of the map, at updates of the fire."""
    return np.where(step.updated, -step.burning / step.cells, 0.0)


def area_saved(step: Step) -> np.ndarray:
    """SimHarness's AreaSavedPropReward: ((b_k - b_{k-1}) - (d_k - d_{k-1})) / B at updates of the fire, with
    what the benchmark would still have taken when the fire ends; at other steps the last of these, and a
    little for lines.
    """
    now = (step.benchmark_growth - step.growth + step.still_to_burn) / step.benchmark_final
    bonus = np.where(step.damaged < step.benchmark_final, 1.0, 0.0) * _for_lines(step)
    return np.where(step.updated, now, step.last + bonus)


def area_saved_v2(step: Step) -> np.ndarray:
    """SimHarness's AreaSavedPropRewardV2: as `area_saved`, but a step costs at most what the benchmark lost
    in it; beyond the benchmark's end damage counts while it is less than B; lines cost once it is more.
    """
    within = step.updates <= step.benchmark_length
    less = step.damaged < step.benchmark_final
    inside = step.benchmark_growth - np.minimum(step.growth, step.benchmark_growth)
    beyond = np.where(less, -step.growth, 0)
    kept = np.where(less, step.still_to_burn, 0)
    now = (np.where(within, inside, beyond) + kept) / step.benchmark_final
    sign = np.sign(step.benchmark_final - step.damaged)
    return np.where(step.updated, now, step.last + sign * _for_lines(step))


def _for_lines(step: Step) -> np.ndarray:
    return step.lines / (step.agents * step.agent_speed) / step.benchmark_final


_KNOWN: dict[str, Reward] = dict(zip(REWARDS, (saved, simple, area_saved, area_saved_v2), strict=True))


def load(options: Options) -> Reward:
    """The reward that the options name.

    :raises RayfishError: an import path leads to no function
    """
    given = options.reward
    if callable(given):
        return given
    if given in _KNOWN:
        return _KNOWN[given]
    from rayfish.experiment.imports import load_object

    try:
        found = load_object(given)
    except CodeError as error:
        raise EnvironmentFault(f"reward={given!r}: {error.what}", error.hint) from error
    if not callable(found):
        raise EnvironmentFault(
            f"reward={given!r} is a {type(found).__name__}",
            "name a function of one rayfish.worlds.wildfire.env.reward.Step that gives the rewards [N]",
        )
    return found


def checked(rewards: object, number: int, name: object) -> np.ndarray:
    """Rewards of a function as they should be: float64 [N].

    :raises EnvironmentFault: another shape, or something that is no number
    """
    found = np.asarray(rewards, np.float64)
    if found.shape != (number,) or not np.isfinite(found).all():
        what = f"of the shape {found.shape}" if found.shape != (number,) else "that are not finite"
        raise EnvironmentFault(f"reward={name!r} gave rewards {what}", f"give {number} finite numbers")
    return found
