"""Many environments as one: a step takes and gives arrays, whatever way finished episodes begin again.

Gymnasium's vectors reset a finished environment in the same step (its last observation travels in the
infos), in the step after (which then is no step of an episode), or not by themselves. A `Vector` hides
that: it says which entries are steps, and gives the true last observation of every episode. Returns and
lengths are counted here, for every finished episode exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from rayfish.envs import guard
from rayfish.envs.restarts import LOST, RESTARTS
from rayfish.envs.rewards import TRUE_RETURN
from rayfish.errors import EnvironmentFault
from rayfish.nested import first_leaf, map_nested

METRICS = "metrics"
"""Key of an episode's last info under which an environment reports figures of its own."""

FINAL_OBS = ("final_obs", "final_observation")
"""Keys of a vector's infos with the last observations of ended episodes: today's, and Gymnasium 0.x's."""

MOST_FIGURES = 32
"""Numbers of an episode's last info that are taken up beside `metrics`."""

_NOT_FIGURES = frozenset({TRUE_RETURN, "TimeLimit.truncated"})

Tree = Any


def figures(info: Any) -> Iterator[tuple[str, float]]:
    """The numbers in an episode's last info: those under `metrics`, then those beside it (`is_success`)."""
    if not isinstance(info, Mapping):
        return
    reported = info.get(METRICS)
    chosen = dict(reported) if isinstance(reported, Mapping) else {}
    yield from ((str(name), float(value)) for name, value in chosen.items() if _is_number(value))
    beside = (
        (name, float(value))
        for name, value in info.items()
        if isinstance(name, str) and name not in chosen and name not in _NOT_FIGURES and _is_number(value)
    )
    yield from islice(beside, MOST_FIGURES)


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "biuf"
    return isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)


@dataclass
class StepResult:
    """What one step of all N slots returned, of which K ended an episode.

    :param obs: what each slot sees now; the next episode's first observation where one ended and another
        began in the same step
    :param valid: [N] false where the slot took no step; None when all did
    :param ended: [K] the slots whose episode ended in this step
    :param final_obs: [K, ...] their true last observations
    :param present: [N] false where `obs` is not an observation of this step; None when all are
    :param final_apart: whether `final_obs` is not in `obs` as well
    :param lost: [N] the slots whose environment failed and was remade (`envs.restarts`): this was no step
        of theirs, and their episode ends, truncated, with the one before; None without any
    """

    obs: Tree
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray | None
    ended: np.ndarray
    final_obs: Tree
    present: np.ndarray | None = None
    final_apart: bool = True
    lost: np.ndarray | None = None


@dataclass
class Finished:
    """Episodes in the order in which they ended.

    :param earned: the sums of the rewards as the learner got them, which may be clipped
    :param slots: the environment each was played in
    :param env: what environments reported of them, by name
    :param policy: the returns of each policy; of several agents only
    """

    returns: list[float] = field(default_factory=list)
    earned: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    env: dict[str, list[float]] = field(default_factory=dict)
    policy: dict[str, list[float]] = field(default_factory=dict)

    def add(self, other: Finished, place: int) -> None:
        """Take up one episode of another list; figures only where every episode has reported them."""
        for name in ("returns", "earned", "lengths", "slots"):
            getattr(self, name).append(getattr(other, name)[place])
        for mine, theirs in ((self.env, other.env), (self.policy, other.policy)):
            for name, values in theirs.items():
                if len(values) == len(other.returns):
                    mine.setdefault(name, []).append(values[place])

    def end(self, slot: int, earned: float, length: int, *, true: Any = None, policy: str = "") -> None:
        """Take up one episode; `true` is its return by rewards that were not clipped, if they were."""
        returned = float(earned if true is None else true)
        self.returns.append(returned)
        self.earned.append(float(earned))
        self.lengths.append(int(length))
        self.slots.append(slot)
        if policy:
            self.policy.setdefault(policy, []).append(returned)

    def report(self, info: Mapping[str, Any]) -> None:
        """Take up the figures of an episode's last info."""
        for name, value in figures(info):
            self.env.setdefault(name, []).append(value)


class Vector:
    """What the sampler steps.

    :param env: what RLlib and callbacks see as the environment
    """

    env: Any
    num_slots: int
    observation_space: gym.Space
    action_space: gym.Space
    counted: tuple[str, ...] = ()
    """The attributes that `state` keeps."""
    present: np.ndarray | None = None
    """[N] false where the newest observation of a slot is blank or an old one; None when all are new."""

    def __init__(self) -> None:
        self.finished = Finished()
        self.restarts = 0
        """Environments that were remade because they failed, since `take_restarts` was called."""
        self.lost_episodes = 0
        """Episodes that were lost by it, in all."""
        self.lost_steps = 0
        """Of several agents: steps of environments that were none because of it, in all."""

    def reset(self, seed: int | None) -> Tree:
        """Begin all episodes; the first observations."""
        raise NotImplementedError

    def step(self, actions: Any) -> StepResult:
        """One step of every slot."""
        raise NotImplementedError

    def take_finished(self) -> Finished:
        """The episodes that ended since the last call."""
        taken, self.finished = self.finished, Finished()
        return taken

    def take_restarts(self) -> int:
        """How often environments were remade since the last call."""
        taken, self.restarts = self.restarts, 0
        return taken

    def state(self) -> dict[str, Any]:
        """What it counts, besides the environments themselves; see `set_state`."""
        return {name: getattr(self, name) for name in self.counted}

    def set_state(self, state: dict[str, Any]) -> None:
        """Put back what `state` gave."""
        vars(self).update(state)

    def close(self) -> None:
        """Close the environments."""
        guard.close(self.env)


class GymVector(Vector):
    """A Gymnasium `VectorEnv` in any of its autoreset modes."""

    counted = ("_returns", "_lengths", "_over", "_mode", "finished")

    def __init__(self, env: VectorEnv) -> None:
        super().__init__()
        self.env = env
        self.num_slots = env.num_envs
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        declared = (env.metadata or {}).get("autoreset_mode")
        self._mode = AutoresetMode(declared or AutoresetMode.NEXT_STEP)
        self._declared = declared is not None
        self._returns = np.zeros(self.num_slots)
        self._lengths = np.zeros(self.num_slots, np.int64)
        self._over = np.zeros(self.num_slots, bool)

    def reset(self, seed: int | None) -> Tree:
        """Begin all episodes."""
        self._returns[:], self._lengths[:], self._over[:] = 0.0, 0, False
        obs, infos = self.env.reset(seed=seed)
        self._count_restarts(infos)
        return map_nested(as_array, obs)

    def step(self, actions: Any) -> StepResult:
        """One step; an environment that only began again in it took none."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        obs, rewards = map_nested(as_array, obs), as_array(rewards)
        terminated, truncated = as_array(terminated).astype(bool), as_array(truncated).astype(bool)
        valid = None
        if self._mode is AutoresetMode.NEXT_STEP and self._over.any():
            valid = ~self._over
            rewards, terminated, truncated = (np.where(valid, x, 0) for x in (rewards, terminated, truncated))
            terminated, truncated = terminated.astype(bool), truncated.astype(bool)
        lost = self._count_restarts(infos)
        if lost is not None:
            valid = ~lost if valid is None else valid & ~lost
            self._drop(lost)
        self._add(rewards, valid)
        over = terminated | truncated
        ended = np.flatnonzero(over)
        if ended.size and not self._declared and last_observations(infos) is not None:
            self._mode = AutoresetMode.SAME_STEP  # as vectors written for Gymnasium 0.x reset
        final = self._final(obs, infos, ended)
        if ended.size:
            self._count(infos, ended)
            if self._mode is AutoresetMode.DISABLED:
                first, _ = self.env.reset(options={"reset_mask": over})
                obs = map_nested(as_array, first)
        self._over = over
        apart = self._mode is not AutoresetMode.NEXT_STEP
        return StepResult(
            obs, rewards, terminated, truncated, valid, ended, final, final_apart=apart, lost=lost
        )

    def _count_restarts(self, infos: dict[str, Any]) -> np.ndarray | None:
        """Counts environments that were remade; gives which slots lost their episode by it, if any did."""
        if RESTARTS not in infos:
            return None
        self.restarts += int(np.sum(infos[RESTARTS]))
        if LOST not in infos:
            return None
        lost = as_array(infos[LOST]).astype(bool)
        self.lost_episodes += int(lost.sum())
        return lost

    def _final(self, obs: Tree, infos: dict[str, Any], ended: np.ndarray) -> Tree:
        """The true last observations of the slots that ended."""
        if self._mode is not AutoresetMode.SAME_STEP or not ended.size:
            return map_nested(lambda leaf: leaf[ended], obs)
        final = last_observations(infos)
        missing = ended if final is None else ended[[_absent(infos, final, index) for index in ended]]
        if missing.size:
            raise no_last_observation(self.env, int(missing[0]))
        if isinstance(final, np.ndarray) and final.dtype == object:
            return map_nested(lambda *leaves: np.stack(leaves), *(final[index] for index in ended))
        return map_nested(lambda _, leaf: as_array(leaf)[ended], obs, final)

    def _drop(self, lost: np.ndarray) -> None:
        """Forget the sums of episodes that were lost."""
        self._returns[lost], self._lengths[lost] = 0.0, 0

    def _add(self, rewards: np.ndarray, valid: np.ndarray | None) -> None:
        """Add one step to the sums."""
        self._returns += rewards
        self._lengths += 1 if valid is None else valid

    def _count(self, infos: dict[str, Any], ended: np.ndarray) -> None:
        """Take up the episodes that ended."""
        last = infos.get("final_info", infos) if self._mode is AutoresetMode.SAME_STEP else infos
        for index in ended.tolist():
            info = _of_one(last, index)
            if TRUE_RETURN in infos:  # of a vector whose rewards are clipped as a whole
                info[TRUE_RETURN] = infos[TRUE_RETURN][index]
            true = info.get(TRUE_RETURN)
            self.finished.end(index, self._returns[index], self._lengths[index], true=true)
            self.finished.report(info)
        self._returns[ended], self._lengths[ended] = 0.0, 0


def holds_tensors(obs: Tree) -> bool:
    """Whether observations are torch tensors, of an environment that lives beside the policy."""
    return type(first_leaf(obs)).__module__.startswith("torch")


def as_array(leaf: Any) -> np.ndarray:
    """As NumPy, from whatever library and device it is of."""
    if holds_tensors(leaf):
        leaf = leaf.detach().cpu()
    return np.asarray(leaf)


def last_observations(infos: Mapping[str, Any]) -> Any:
    """What infos hold of the last observations of ended episodes; None when nothing."""
    return next((infos[key] for key in FINAL_OBS if infos.get(key) is not None), None)


def no_last_observation(env: Any, index: int) -> EnvironmentFault:
    """The error for a same-step vector that loses the last observation of an episode."""
    return EnvironmentFault(
        f"{type(env.unwrapped).__name__} resets environment {index} in the step that ends its episode, "
        "and its infos do not hold the episode's last observation",
        f'return it from step() in infos["{FINAL_OBS[0]}"] (an array with one entry per environment); '
        "without it a truncated episode would be bootstrapped from the next one's first observation",
    )


def _absent(infos: Mapping[str, Any], final: Any, index: int) -> bool:
    """Whether the last observation of one environment is missing, by its mask or because it is None."""
    mask = next((infos[f"_{key}"] for key in FINAL_OBS if f"_{key}" in infos), None)
    objects = isinstance(final, np.ndarray) and final.dtype == object
    return (mask is not None and not mask[index]) or (objects and final[index] is None)


def _of_one(infos: Any, index: int) -> dict[str, Any]:
    """One environment's info out of a vector's: arrays by key, with a mask `_key` beside each.

    Gymnasium 0.x gave an array of dicts, None for environments without one.
    """
    if not isinstance(infos, Mapping):
        return dict(infos[index] or {})
    found: dict[str, Any] = {}
    for key, value in infos.items():
        if key.startswith("_"):
            continue
        if isinstance(value, Mapping):
            found[key] = _of_one(value, index)
        elif hasattr(value, "__getitem__") and (f"_{key}" not in infos or infos[f"_{key}"][index]):
            found[key] = value[index]
    return found
