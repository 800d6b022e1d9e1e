"""The sampling loop: one pass of the policy per step for all slots, written into [T, N] arrays in place."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rayfish.algorithm.batched.rollout import Rollout, Tree
from rayfish.envs.vector import StepResult, Vector
from rayfish.models.actions import for_env
from rayfish.nested import first_leaf, map_nested


@dataclass
class Decision:
    """What a policy returns for a batch of observations.

    :param actions: [N, ...] as the policy chose them, not yet scaled to the environment's bounds
    :param extras: [N, ...] what a learner needs besides, by name
    :param state: [N, ...] a recurrent policy's next state; None without memory
    """

    actions: Tensor
    extras: dict[str, Tensor] = field(default_factory=dict)
    state: Tree | None = None


class Actor:
    """Chooses actions for all slots at once."""

    explore = True
    """Whether actions are drawn; otherwise the likeliest are taken."""

    timeless = False
    """Whether what it does depends on nothing but the weights and what it sees."""

    def act(self, obs: Tree, state: Tree | None, t: int) -> Decision:
        """Actions for observations [N, ...]; `t` counts environment steps, for schedules."""
        raise NotImplementedError

    def initial_state(self) -> Tree | None:
        """The state at the start of an episode, without a batch axis; None without memory."""
        return None


Normalise = Callable[[Tree, "Tree | None"], Tree]
"""Observations as they come, and those among them to learn from, to the form the policy sees."""


@dataclass
class Clock:
    """Seconds spent since it was last read."""

    env: float = 0.0
    policy: float = 0.0


_OUTCOMES = ("rewards", "terminated", "done", "valid")


class Storage:
    """Memory for T steps of N slots, kept from one rollout to the next of the same planned length."""

    def __init__(self, steps: int, slots: int, device: torch.device) -> None:
        self.planned = self.steps = self._rows = steps
        self._device = device
        self._trees: dict[str, Tree] = {}
        # What environments return stays on the host until the rollout is complete.
        self.rewards = np.empty((steps, slots), np.float32)
        self.terminated, self.done, self.valid = (np.empty((steps, slots), bool) for _ in range(3))

    def put(self, name: str, step: int, tree: Tree) -> Tree:
        """Keep what belongs to a step; returns the stored copy."""
        if name not in self._trees:
            self._trees[name] = map_nested(
                lambda leaf: torch.empty((self._rows, *leaf.shape), dtype=leaf.dtype, device=self._device),
                tree,
            )
        return map_nested(
            lambda leaf, value: leaf[step].copy_(value, non_blocking=True), self._trees[name], tree
        )

    def begin(self) -> None:
        """Start a rollout, whose length is not known yet."""
        self.steps = self._rows

    def make_room(self, step: int) -> None:
        """More memory where a rollout is longer than planned; what is there stays."""
        if step < self._rows:
            return
        old = self._rows
        self._rows = self.steps = max(step + 1, old * 5 // 4)
        self._trees = {
            name: map_nested(
                lambda leaf: torch.cat([leaf, leaf.new_empty((self._rows - old, *leaf.shape[1:]))]), tree
            )
            for name, tree in self._trees.items()
        }
        for name in _OUTCOMES:
            array = getattr(self, name)
            more = np.empty((self._rows - old, array.shape[1]), array.dtype)
            setattr(self, name, np.concatenate([array, more]))

    def get(self, name: str) -> Tree:
        """[T, N, ...] of what was kept under a name; None when nothing was."""
        return map_nested(lambda leaf: leaf[: self.steps], self._trees.get(name))

    def outcome(self, step: int, result: StepResult) -> None:
        """Keep the result of a step of the environments."""
        self.rewards[step], self.terminated[step] = result.rewards, result.terminated
        np.logical_or(result.terminated, result.truncated, out=self.done[step])
        self.valid[step] = True if result.valid is None else result.valid

    def outcomes(self) -> dict[str, Tensor | None]:
        """Rewards and ends of all steps, on the device; `valid` only where a slot waited."""
        found: dict[str, Tensor | None] = {
            name: torch.from_numpy(getattr(self, name)[: self.steps]).to(self._device) for name in _OUTCOMES
        }
        if self.valid[: self.steps].all():
            found["valid"] = None
        return found


class Ends:
    """The ends of episodes within a rollout."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._index: list[np.ndarray] = []
        self._obs: list[Tree] = []
        self._states: list[Tree] = []
        self.ordered = True

    def add(self, step: int, ended: np.ndarray, obs: Tree, state: Tree | None) -> None:
        """Those of one step: which slots, their last observations, and the policy's states there."""
        self._index.append(step * self._slots + ended)
        self._obs.append(obs)
        if state is not None:
            self._states.append(state)

    def all(self, obs: Tree, state: Tree | None) -> dict[str, Any]:
        """All of them as a rollout's `final_...`; `obs` and `state` show what they look like."""
        device = first_leaf(obs).device
        index = torch.from_numpy(np.concatenate(self._index) if self._index else np.zeros(0, np.int64))
        found = {
            "final_index": index.to(device),
            "final_obs": _joined(self._obs, obs),
            "final_state": None if state is None else _joined(self._states, state),
        }
        if self.ordered:
            return found
        order = index.argsort().to(device)
        return {name: map_nested(lambda leaf: leaf[order], tree) for name, tree in found.items()}


class Sampler:
    """Steps a vector with an actor and returns rollouts, each in the memory of the one before.

    :param device: where the actor's network lives
    :param scale: Box actions are scaled from -1..1 to the environment's bounds (`normalize_actions`)
    :param clip: Box actions are clipped to the bounds (`clip_actions`)
    """

    def __init__(
        self,
        vector: Vector,
        actor: Actor,
        *,
        device: torch.device | str = "cpu",
        scale: bool = True,
        clip: bool = False,
    ) -> None:
        self.vector = vector
        self.actor = actor
        self.device = torch.device(device)
        self.normalise: Normalise | None = None
        self.obs: Tree = None
        self.state: Tree | None = None
        self.clock = Clock()
        self.pace = vector.num_slots
        """Environment steps, everywhere, for each step of this vector."""
        self._scale, self._clip = scale, clip
        self._storage: Storage | None = None
        self._pinned: Tree = None

    def reset(self, seed: int | None) -> None:
        """Begin new episodes everywhere."""
        first_obs = self.vector.reset(seed)
        self.obs = self._seen(first_obs, _rows(first_obs, self.vector.present))
        slots = self.vector.num_slots
        self.state = map_nested(lambda leaf: _repeated(leaf, slots, self.device), self.actor.initial_state())

    def restore(self, obs: Tree, state: Tree | None) -> None:
        """Continue from the observations and states of a snapshot."""
        self.obs = obs
        self.state = map_nested(lambda leaf: leaf.to(self.device), state)

    @torch.no_grad()
    def collect(self, steps: int, t: int = 0, least: int = 0) -> Rollout:
        """So many steps of every slot; `reset` must have been called once.

        :param t: environment steps taken before, for the actor's schedules
        :param least: real steps in all; more rows are collected where slots only reset in some
        """
        slots = self.vector.num_slots
        if self._storage is None or self._storage.planned != steps:
            self._storage = Storage(steps, slots, self.device)
        storage, ends, names = self._storage, Ends(slots), set()
        storage.begin()
        step = real = 0
        while step < steps or real < least:
            now = time.perf_counter()
            storage.make_room(step)
            obs = storage.put("obs", step, self._to_device(self.obs))
            if self.state is not None:
                storage.put("states", step, self.state)
            decision = self.actor.act(obs, self.state, t + step * self.pace)
            storage.put("actions", step, decision.actions)
            for name, value in decision.extras.items():
                storage.put(name, step, value)
                names.add(name)
            chosen = self._for_env(decision.actions)
            acted = time.perf_counter()
            result = self.vector.step(chosen)
            self.clock.policy += acted - now
            self.clock.env += time.perf_counter() - acted
            storage.outcome(step, result)
            if result.lost is not None:
                _cut(step, np.flatnonzero(result.lost), storage, ends)
            self._advance(step, result, decision.state, ends)
            step += 1
            real += slots if result.valid is None else int(result.valid.sum())
        storage.steps = step
        last_obs = map_nested(lambda leaf: leaf.to(self.device), self.obs)
        return Rollout(
            obs=storage.get("obs"),
            actions=storage.get("actions"),
            last_obs=last_obs,
            extras={name: storage.get(name) for name in sorted(names)},
            states=storage.get("states"),
            last_state=self.state,
            **storage.outcomes(),  # type: ignore[arg-type]
            **ends.all(last_obs, self.state),
        )

    def _for_env(self, actions: Tensor) -> Any:
        space = self.vector.action_space
        return for_env(actions.cpu().numpy(), space, normalize=self._scale, clip=self._clip)

    def _advance(self, step: int, result: StepResult, state: Tree | None, ends: Ends) -> None:
        """Take the next observations and states, and record the ends of episodes."""
        self.obs = self._seen(result.obs, _rows(result.obs, result.present))
        self.state = state
        if result.ended.size:
            at = torch.from_numpy(result.ended).to(self.device)
            last = map_nested(lambda leaf: leaf[at], state)
            seen = self._seen(result.final_obs, result.final_obs if result.final_apart else None)
            final_obs = map_nested(lambda leaf: leaf.to(self.device), seen)
            ends.add(step, result.ended, final_obs, last)
        if state is None:
            return
        fresh = result.terminated | result.truncated
        if result.valid is not None:
            fresh |= ~result.valid  # a slot that waited starts its next episode with the initial state
        if fresh.any():
            at = torch.from_numpy(np.flatnonzero(fresh)).to(self.device)
            self.state = map_nested(
                lambda leaf, new: _restarted(leaf, at, new), state, self.actor.initial_state()
            )

    def _seen(self, obs: Tree, new: Tree | None) -> Tree:
        """Observations as the policy sees them, as tensors on the host; it may learn from the new ones."""
        if self.normalise is not None:
            obs = self.normalise(obs, new)
        return map_nested(tensor, obs)

    def _to_device(self, obs: Tree) -> Tree:
        """By way of pinned memory where the policy lives on a GPU, so that the copy waits for nothing."""
        if self.device.type != "cuda":
            return obs
        if self._pinned is None:
            self._pinned = map_nested(lambda leaf: torch.empty_like(leaf).pin_memory(), obs)
        return map_nested(lambda pinned, leaf: pinned.copy_(leaf), self._pinned, obs)


def _cut(step: int, lost: np.ndarray, storage: Storage, ends: Ends) -> None:
    """Ends the episodes of environments that failed in a step, truncated, with the step before it.

    What was seen before the failed step is their last observation. A step of the rollout before was
    bootstrapped from that observation already.
    """
    if step == 0:
        return
    running = lost[storage.valid[step - 1, lost] & ~storage.done[step - 1, lost]]
    if not running.size:
        return
    storage.done[step - 1, running] = True
    at = torch.from_numpy(running)
    trees = (storage.get("obs"), storage.get("states"))
    seen, state = (map_nested(lambda leaf: leaf[step][at.to(leaf.device)], tree) for tree in trees)
    ends.add(step - 1, running, seen, state)
    ends.ordered = False


def _rows(obs: Tree, present: np.ndarray | None) -> Tree:
    """The rows of the slots that are present."""
    return obs if present is None else map_nested(lambda leaf: leaf[present], obs)


def _joined(parts: Sequence[Tree], like: Tree) -> Tree:
    if not parts:
        return map_nested(lambda leaf: leaf[:0], like)
    return map_nested(lambda *leaves: torch.cat(leaves), *parts)


def _repeated(leaf: Tensor, times: int, device: torch.device) -> Tensor:
    return leaf.to(device).unsqueeze(0).repeat(times, *[1] * leaf.dim())


def _restarted(state: Tensor, ended: Tensor, first: Tensor) -> Tensor:
    """The state with the slots of ended episodes back at the start."""
    state = state.clone()
    state[ended] = first.to(state.device)
    return state


def tensor(array: Any) -> Tensor:
    """Without a copy where possible; floating numbers as float32."""
    array = np.asarray(array)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)
