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
    """What a policy says to a batch of observations.

    :param actions: [N, ...] as the policy chose them, not yet scaled to the environment's bounds
    :param extras: [N, ...] what a learner wants to know besides, by name
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


class Storage:
    """Memory for T steps of N slots, kept from one rollout to the next of the same planned length."""

    def __init__(self, steps: int, slots: int, device: torch.device) -> None:
        self.planned = self.steps = self._rows = steps
        self._device = device
        self._trees: dict[str, Tree] = {}
        # What environments give stays on the host until the rollout is complete.
        self.rewards = np.empty((steps, slots), np.float32)
        self.terminated, self.done, self.valid = (np.empty((steps, slots), bool) for _ in range(3))

    def put(self, name: str, step: int, tree: Tree) -> Tree:
        """Keep what belongs to a step; gives it as it stands in the storage."""
        if name not in self._trees:
            self._trees[name] = map_nested(
                lambda leaf: torch.empty((self._rows, *leaf.shape), dtype=leaf.dtype, device=self._device),
                tree,
            )
        return map_nested(
            lambda leaf, value: leaf[step].copy_(value, non_blocking=True), self._trees[name], tree
        )

    def begin(self) -> None:
        """A rollout begins, whose length is not known yet."""
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
        for name in ("rewards", "terminated", "done", "valid"):
            array = getattr(self, name)
            more = np.empty((self._rows - old, array.shape[1]), array.dtype)
            setattr(self, name, np.concatenate([array, more]))

    def get(self, name: str) -> Tree:
        """[T, N, ...] of what was kept under a name; None when nothing was."""
        if name not in self._trees:
            return None
        return map_nested(lambda leaf: leaf[: self.steps], self._trees[name])

    def outcome(self, step: int, moment: StepResult) -> None:
        """Keep what a step of the environments gave."""
        self.rewards[step], self.terminated[step] = moment.rewards, moment.terminated
        np.logical_or(moment.terminated, moment.truncated, out=self.done[step])
        self.valid[step] = True if moment.valid is None else moment.valid

    def outcomes(self) -> dict[str, Tensor | None]:
        """Rewards and ends of all steps, on the device; `valid` only where a slot waited."""
        host = {
            "rewards": self.rewards,
            "terminated": self.terminated,
            "done": self.done,
            "valid": self.valid,
        }
        found: dict[str, Tensor | None] = {
            name: torch.from_numpy(array[: self.steps]).to(self._device) for name, array in host.items()
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
        return {
            name: None if tree is None else map_nested(lambda leaf: leaf[order], tree)
            for name, tree in found.items()
        }


class Sampler:
    """Steps a vector with an actor and gives rollouts; each one in the memory of the one before.

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
        first = self.actor.initial_state()
        slots = self.vector.num_slots
        self.state = (
            None if first is None else map_nested(lambda leaf: _repeated(leaf, slots, self.device), first)
        )

    def restore(self, obs: Tree, state: Tree | None) -> None:
        """Go on from what was seen and remembered when a snapshot was taken."""
        self.obs = obs
        self.state = None if state is None else map_nested(lambda leaf: leaf.to(self.device), state)

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
            said = self.actor.act(obs, self.state, t + step * self.pace)
            storage.put("actions", step, said.actions)
            for name, value in said.extras.items():
                storage.put(name, step, value)
                names.add(name)
            chosen = self._for_env(said.actions)
            acted = time.perf_counter()
            moment = self.vector.step(chosen)
            self.clock.policy += acted - now
            self.clock.env += time.perf_counter() - acted
            storage.outcome(step, moment)
            if moment.lost is not None:
                _cut(step, np.flatnonzero(moment.lost), storage, ends)
            self._onwards(step, moment, said.state, ends)
            step += 1
            real += slots if moment.valid is None else int(moment.valid.sum())
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

    def _onwards(self, step: int, moment: StepResult, state: Tree | None, ends: Ends) -> None:
        """What is seen next, and the ends of episodes."""
        self.obs = self._seen(moment.obs, _rows(moment.obs, moment.present))
        self.state = state
        if moment.ended.size:
            at = torch.from_numpy(moment.ended).to(self.device)
            last = None if state is None else map_nested(lambda leaf: leaf[at], state)
            seen = self._seen(moment.final_obs, moment.final_obs if moment.final_apart else None)
            final_obs = map_nested(lambda leaf: leaf.to(self.device), seen)
            ends.add(step, moment.ended, final_obs, last)
        if state is None:
            return
        fresh = moment.terminated | moment.truncated
        if moment.valid is not None:
            fresh |= ~moment.valid  # who waited begins his next episode with a blank memory
        if fresh.any():
            at = torch.from_numpy(np.flatnonzero(fresh)).to(self.device)
            self.state = map_nested(
                lambda leaf, new: _begun(leaf, at, new), state, self.actor.initial_state()
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
    states = storage.get("states")
    seen = map_nested(lambda leaf: leaf[step][at.to(leaf.device)], storage.get("obs"))
    state = None if states is None else map_nested(lambda leaf: leaf[step][at.to(leaf.device)], states)
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


def _begun(state: Tensor, ended: Tensor, first: Tensor) -> Tensor:
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
