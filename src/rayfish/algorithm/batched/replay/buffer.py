"""A replay buffer of preallocated arrays: takes rollouts, returns batches of transitions as tensors.

There is a ring of rows for each slot, and all rings lie in one array, row by row: the step after the one
at place `p` lies at `p + columns`. An observation is stored once, for what was seen after a step is what
was seen before the next; the last observations of ended episodes lie behind the rings.

Transitions over several steps are made while drawing. They end with their episode, or at the newest
observation if that comes first, and say how many steps they span.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rayfish.algorithm.batched.replay.priorities import Priorities
from rayfish.algorithm.batched.replay.rings import Rings
from rayfish.algorithm.batched.replay.transitions import (
    STEP_ARRAYS,
    copy_rows,
    empty_rows,
    indexed,
    newest,
    pairs,
    within_memory,
)
from rayfish.algorithm.batched.rollout import Rollout, Tree
from rayfish.nested import map_nested

Batch = dict[str, Tree]
"""`obs`, `actions`, `rewards`, `next_obs`, `terminateds`, `n_step`, `weights`, `indices`, each with B rows;
and `both`, the 2 B rows of `obs` and `next_obs`, which are views of it."""

_FINALS_SHARE = 16  # of the rows, to begin with; episodes shorter than that make the store grow
_LOWEST = 1e-12  # of priorities, as in RLlib


class ReplayBuffer:
    """Steps of several streams of slots, drawn evenly.

    :param capacity: steps it holds; in each slot the oldest make room
    :param seed: of its own generator; None for a random one
    :param device: where the arrays live, and where batches come out
    """

    def __init__(self, capacity: int, *, seed: int | None = None, device: torch.device | str = "cpu") -> None:
        self.capacity = int(capacity)
        self.device = torch.device(device)
        self.generator = torch.Generator(self.device)
        if seed is None:
            self.generator.seed()
        else:
            self.generator.manual_seed(seed)
        self.steps_added = 0
        self.steps_drawn = 0
        self.episodes_added = 0
        self.episodes_evicted = 0
        self._streams: dict[int, np.ndarray] = {}  # stream -> its columns
        self._arrays: dict[str, Tree] = {}
        self._rings = Rings(2, 1)
        self._ones = torch.ones(0, device=self.device)
        self._bounds: tuple[Tensor, ...] | None = None

    def __len__(self) -> int:
        """Steps that can be drawn."""
        return self._rings.total

    @property
    def episodes(self) -> int:
        """Ended episodes whose last step is in the buffer."""
        return self.episodes_added - self.episodes_evicted

    def add(self, rollout: Rollout) -> None:
        """Copies the steps of a rollout behind those of its stream; entries that only waited are left out."""
        rollout = indexed(rollout.to(self.device))
        columns = self._streams.get(rollout.stream)
        if columns is None or columns.size != rollout.shape[1]:
            columns = self._make_room(rollout)
        rings = self._rings
        whole = rollout.shape[0] < rings.rows
        if not whole:  # only the newest fit
            rollout = newest(rollout, rings.rows - 1)
        steps, _ = rollout.shape
        valid = None if rollout.valid is None else rollout.valid.cpu().numpy()
        if valid is not None and valid.all():
            valid = None
        self._cut(self._broken(rollout.obs, columns, valid) if whole else self._unfinished(columns))
        late = columns[~rings.known[columns]]  # their newest step may be complete now
        late_places = rings.newest_places(late)
        places = rings.next_places(steps, columns, valid)
        taken = None if valid is None else np.flatnonzero(valid.reshape(-1))
        fresh = places if taken is None else places[taken]
        self._write(rollout, fresh, taken)
        self._write_finals(rollout, places, valid)
        self.steps_added += rings.advance(columns, rollout.done.cpu().numpy(), valid)
        self._write_heads(rollout.last_obs, columns, valid)
        rings.refresh()
        self._bounds = None
        self._mark(np.concatenate([late_places, fresh]) if late.size else fresh, columns)

    def sample(
        self, size: int, *, n_step: int | tuple[int, int] = 1, gamma: float = 0.99, beta: float = 0.0
    ) -> Batch:
        """A batch of transitions.

        :param n_step: steps that a transition spans; a pair: drawn for each, from the one to the other
        :param gamma: discount of the rewards within a transition
        :param beta: how far importance weights make up for priorities; nothing here
        """
        places, weights = self._draw(size, beta)
        rings, rewards = self._rings, self._arrays["rewards"]
        if n_step in (1, (1, 1)):
            last, summed = places, rewards.index_select(0, places)
            spans = self._constant(size)
        else:
            last, summed, spans = self._span(places, n_step, gamma)
        final = self._final_there.index_select(0, last)
        after = torch.where(final >= 0, final, (last + rings.columns) % rings.size)
        pair = torch.cat((places, after))
        both = map_nested(lambda array: array.index_select(0, pair), self._arrays["obs"])
        self.steps_drawn += size
        return {
            "obs": map_nested(lambda leaf: leaf[:size], both),
            "next_obs": map_nested(lambda leaf: leaf[size:], both),
            "both": both,
            "actions": self._arrays["actions"].index_select(0, places),
            "rewards": summed,
            "terminateds": self._arrays["terminated"].index_select(0, last),
            "n_step": spans,
            "weights": weights,
            "indices": places,
        }

    def update_priorities(self, indices: Tensor, td_errors: Tensor) -> None:
        """Without priorities, nothing."""

    def counts(self) -> dict[str, int]:
        """Steps and episodes added, evicted and drawn so far, under RLlib's names."""
        return {
            "num_env_steps_added": self.steps_added,
            "num_env_steps_evicted": self.steps_added - int(self._rings.counts.sum()),
            "num_env_steps_sampled": self.steps_drawn,
            "num_episodes_added": self.episodes_added,
            "num_episodes_evicted": self.episodes_evicted,
        }

    def rollouts(self) -> Iterator[Rollout]:
        """Everything that can be drawn, slot by slot, each as a rollout of one slot on the CPU.

        A step is `done` where it is the last of its episode in the buffer.
        """
        rings = self._rings
        for index in range(rings.columns if self._streams else 0):
            places = rings.history(index, rings.rows)[: int(rings.ready[index])]
            if not places.size:
                continue
            final = self._final_of[places]
            after = np.where(final >= 0, final, (places + rings.columns) % rings.size)
            obs, next_obs = (self._taken("obs", self._there(at)) for at in (places, after))
            yield Rollout(
                obs=obs,
                **{name: self._taken(name, self._there(places)) for name in STEP_ARRAYS},
                done=torch.from_numpy(final >= 0).unsqueeze(1),
                valid=None,
                last_obs=map_nested(lambda leaf: leaf[-1], next_obs),
                final_index=None,
                final_obs=next_obs,
            )

    def _taken(self, name: str, places: Tensor) -> Tree:
        """[T, 1, ...] of an array."""
        return map_nested(lambda array: array.index_select(0, places).cpu().unsqueeze(1), self._arrays[name])

    # Drawing

    def _draw(self, size: int, beta: float) -> tuple[Tensor, Tensor]:
        """(places of steps, their importance weights)."""
        rings = self._rings
        if not rings.total:
            raise IndexError("the replay buffer is empty: add a rollout first")
        drawn = torch.randint(rings.total, (size,), device=self.device, generator=self.generator)
        if rings.aligned:
            oldest = int((rings.limits[0] - rings.ready[0]) % rings.rows) * rings.columns
            return (drawn + oldest) % rings.size, self._constant(size)
        ends, starts, oldest_rows, _ = self._column_bounds()
        column = torch.searchsorted(ends, drawn, right=True)
        row = (oldest_rows[column] + drawn - starts[column]) % rings.rows
        return row * rings.columns + column, self._constant(size)

    def _span(
        self, places: Tensor, n_step: int | tuple[int, int], gamma: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(place of each transition's last step, its discounted rewards, how many steps it spans)."""
        rings = self._rings
        low, high = n_step if isinstance(n_step, tuple) else (n_step, n_step)
        row = places // rings.columns
        if rings.aligned:
            left = (int(rings.limits[0]) - row) % rings.rows
        else:
            left = (self._column_bounds()[3][places % rings.columns] - row) % rings.rows
        if low == high:
            wanted = left.clamp(max=high)
        else:
            drawn = torch.randint(low, high + 1, places.shape, device=self.device, generator=self.generator)
            wanted = torch.minimum(left, drawn)
        ahead = torch.arange(high, device=self.device)
        path = (places.unsqueeze(1) + ahead * rings.columns) % rings.size
        ended = (self._final_there[path] >= 0).long()
        before = ended.cumsum(dim=1) - ended
        inside = (before == 0) & (ahead < wanted.unsqueeze(1))
        spans = inside.sum(dim=1)
        rewards = self._arrays["rewards"][path]
        discounts = torch.pow(gamma, ahead.to(rewards.dtype))
        summed = torch.where(inside, rewards * discounts, 0.0).sum(dim=1)
        last = (places + (spans - 1) * rings.columns) % rings.size
        return last, summed, spans.to(torch.float32)

    def _column_bounds(self) -> tuple[Tensor, ...]:
        """Where each column ends and starts among the draws, its oldest row and its limit."""
        if self._bounds is None:
            rings = self._rings
            ends = rings.ready.cumsum()
            oldest = (rings.limits - rings.ready) % rings.rows
            self._bounds = tuple(
                torch.from_numpy(part).to(self.device)
                for part in (ends, ends - rings.ready, oldest, rings.limits)
            )
        return self._bounds

    def _constant(self, size: int) -> Tensor:
        if self._ones.numel() < size:
            self._ones = torch.ones(size, device=self.device)
        return self._ones[:size]

    # Adding

    def _mark(self, fresh: np.ndarray, columns: np.ndarray) -> None:
        """Marks which places can be drawn from now on, in buffers with priorities."""

    def _write(self, rollout: Rollout, fresh: np.ndarray, taken: np.ndarray | None) -> None:
        """Copies steps to their places, over what was there."""
        self._evict(fresh)
        where = self._there(fresh)
        chosen = None if taken is None else self._there(taken)
        for array, new in pairs(self._arrays["obs"], rollout.obs):
            copy_rows(array, where, new.flatten(0, 1), chosen)
        for name in STEP_ARRAYS:
            copy_rows(self._arrays[name], where, getattr(rollout, name).flatten(0, 1), chosen)

    def _evict(self, places: np.ndarray) -> None:
        """Gives back the room of the last observations of steps that are overwritten."""
        stores = self._final_of[places]
        held = stores >= 0
        if held.any():
            old = stores[held]
            self._free[self._free_count : self._free_count + old.size] = old
            self._free_count += old.size
            self.episodes_evicted += int(old.size)
            self._set_finals(places[held], -1)

    def _write_finals(self, rollout: Rollout, places: np.ndarray, valid: np.ndarray | None) -> None:
        assert rollout.final_index is not None
        ends = rollout.final_index.cpu().numpy()
        last = rollout.final_obs
        if valid is not None:
            kept = np.flatnonzero(valid.reshape(-1)[ends])
            if kept.size < ends.size:
                chosen = self._there(kept)
                ends, last = ends[kept], map_nested(lambda leaf: leaf.index_select(0, chosen), last)
        if ends.size:
            self._store_finals(places[ends], last)

    def _store_finals(self, places: np.ndarray, observations: Tree) -> None:
        """Keeps the last observations of the episodes that ended with the steps at `places`."""
        count = places.size
        if count > self._free_count:
            self._grow_finals(count)
        self._free_count -= count
        store = self._free[self._free_count : self._free_count + count].copy()
        where = self._there(store)
        for array, new in pairs(self._arrays["obs"], observations):
            copy_rows(array, where, new, None)
        self._set_finals(places, store)
        self.episodes_added += int(count)

    def _set_finals(self, places: np.ndarray, store: np.ndarray | int) -> None:
        self._final_of[places] = store
        if self.device.type != "cpu":  # elsewhere they are the same memory
            self._final_there[self._there(places)] = self._there(self._final_of[places])

    def _write_heads(self, last_obs: Tree, columns: np.ndarray, valid: np.ndarray | None) -> None:
        """What was seen last goes where the next step will begin."""
        self._evict(self._rings.head_places(columns))
        seen = None if valid is None else np.flatnonzero(valid[-1])
        where = self._there(self._rings.head_places(columns if seen is None else columns[seen]))
        chosen = None if seen is None else self._there(seen)
        for array, new in pairs(self._arrays["obs"], last_obs):
            copy_rows(array, where, new, chosen)

    def _broken(self, obs: Tree, columns: np.ndarray, valid: np.ndarray | None) -> np.ndarray:
        """The columns whose episode does not continue in a rollout: their runner was restarted or reset.

        The observation that waits for its action is compared with the first step in the rollout.
        """
        rings = self._rings
        continues = rings.known[columns] & ~rings.ended[columns]
        if valid is not None:
            continues &= valid.any(axis=0)
        if not continues.any():
            return columns[:0]
        where = self._there(rings.head_places(columns))
        row: Any = 0
        if valid is not None:
            row = self._there(valid.argmax(axis=0)), torch.arange(columns.size, device=self.device)
        waiting = [(array.index_select(0, where), new[row]) for array, new in pairs(self._arrays["obs"], obs)]
        if all(torch.equal(held, new) for held, new in waiting):
            return columns[:0]
        differs = torch.zeros(columns.size, dtype=torch.bool, device=self.device)
        for held, new in waiting:
            differs |= (held != new).reshape(columns.size, -1).any(dim=1)
        return columns[differs.cpu().numpy() & continues]

    def _unfinished(self, columns: np.ndarray) -> np.ndarray:
        """Columns whose newest step ended no episode; drops steps with an unknown next observation."""
        rings = self._rings
        unknown = columns[~rings.known[columns]]
        rings.heads[unknown] = (rings.heads[unknown] - 1) % rings.rows
        rings.counts[unknown] -= 1
        rings.known[unknown] = True
        rings.ended[unknown] = (self._final_of[rings.newest_places(unknown)] >= 0) | (
            rings.counts[unknown] == 0
        )
        return columns[~rings.ended[columns]]

    def _cut(self, broken: np.ndarray) -> None:
        """Ends the episodes of these columns: their newest step is kept as one that ran out of time."""
        if not broken.size:
            return
        where = self._there(self._rings.head_places(broken))
        seen = map_nested(lambda array: array.index_select(0, where), self._arrays["obs"])
        self._store_finals(self._rings.newest_places(broken), seen)
        self._rings.ended[broken] = True

    def _there(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(index).to(self.device)

    # Room

    def _make_room(self, rollout: Rollout) -> np.ndarray:
        """Rings for a new stream, or for another number of slots in one; what fits of the old is kept."""
        before = SimpleNamespace(**vars(self)) if self._streams else None
        slots = {stream: columns.size for stream, columns in self._streams.items()}
        slots[rollout.stream] = rollout.shape[1]
        ends = np.cumsum([0, *slots.values()])
        streams = {stream: np.arange(ends[i], ends[i + 1]) for i, stream in enumerate(slots)}
        columns = int(ends[-1])
        rows = max(2, -(-self.capacity // columns) + 1)
        like = {name: getattr(rollout, name) for name in ("obs", *STEP_ARRAYS)}
        like = map_nested(lambda leaf: leaf[0], like)
        with within_memory(self.capacity, like, self.device):
            self._allocate(rows, columns, like)
        self._streams = streams
        if before is not None:
            self._take_over(before)
        return streams[rollout.stream]

    def _take_over(self, before: Any) -> None:
        """Copies the newest steps that the buffer had before, of every stream, as many as fit."""
        added = self.episodes_added
        for stream, columns in before._streams.items():
            for old, new in zip(columns, self._streams[stream], strict=False):
                self._copy_column(before, int(old), int(new))
        self.episodes_evicted = added - (self.episodes_added - added)
        self.episodes_added = added
        self._rings.refresh()

    def _copy_column(self, before: Any, old: int, new: int) -> None:
        past, rings = before._rings, self._rings
        source = past.history(old, rings.rows - 1)
        count = source.size
        target = np.arange(count) * rings.columns + new
        rings.heads[new], rings.counts[new] = count % rings.rows, count
        rings.known[new], rings.ended[new] = past.known[old], past.ended[old]
        rings.used_rows = max(rings.used_rows, min(rings.rows, count + 1))
        here, there = self._there(source), self._there(target)
        head = self._there(past.head_places(np.array([old])))
        for name in STEP_ARRAYS:
            self._arrays[name].index_copy_(0, there, before._arrays[name].index_select(0, here))
        for array, held in pairs(self._arrays["obs"], before._arrays["obs"]):
            array.index_copy_(0, there, held.index_select(0, here))
            array[int(rings.heads[new]) * rings.columns + new] = held[int(head)]
        stores = before._final_of[source]
        ends = np.flatnonzero(stores >= 0)
        if ends.size:
            kept = self._there(stores[ends])
            self._store_finals(
                target[ends], map_nested(lambda held: held.index_select(0, kept), before._arrays["obs"])
            )
        if isinstance(self, PrioritizedReplayBuffer) and count:
            self._priorities.put(there, before._priorities.of(here))

    def _allocate(self, rows: int, columns: int, like: dict[str, Tree]) -> None:
        """Empty arrays, whose rows are as those of `like`."""
        self._rings = Rings(rows, columns)
        self._bounds = None
        size = rows * columns
        finals = max(64, size // _FINALS_SHARE)
        self._arrays = {
            name: map_nested(lambda leaf: empty_rows(size, leaf, self.device), like[name])
            for name in STEP_ARRAYS
        }
        self._arrays["obs"] = map_nested(
            lambda leaf: empty_rows(size + finals, leaf, self.device), like["obs"]
        )
        self._final_of = np.full(size, -1, np.int64)
        self._final_there = self._there(self._final_of)
        self._free = np.arange(size + finals - 1, size - 1, -1)
        self._free_count = finals

    def _grow_finals(self, wanted: int) -> None:
        """At least twice the room for last observations."""
        now, size = self._free.size, self._rings.size
        more = max(now, wanted)
        filled = self._rings.used_rows * self._rings.columns  # to copy the rest would take its memory

        def grown(array: Tensor) -> Tensor:
            new = empty_rows(size + now + more, array, self.device)
            new[:filled], new[size : size + now] = array[:filled], array[size:]
            return new

        with within_memory(self.capacity, self._arrays, self.device):
            self._arrays["obs"] = map_nested(grown, self._arrays["obs"])
        first = size + now
        free = np.empty(now + more, np.int64)
        free[: self._free_count] = self._free[: self._free_count]
        free[self._free_count : self._free_count + more] = np.arange(first + more - 1, first - 1, -1)
        self._free = free
        self._free_count += more

    # Saving

    def __getstate__(self) -> dict[str, Any]:
        """All of it as NumPy arrays, of which only the filled part is written."""
        state = {name: value for name, value in vars(self).items() if name not in _REBUILT}
        state["device"] = str(self.device)
        state["generator"] = self.generator.get_state().numpy()
        if not self._streams:
            return state
        filled = self._rings.used_rows * self._rings.columns
        stores = np.sort(self._final_of[self._final_of >= 0])
        there = self._there(stores)
        state["arrays"] = map_nested(lambda array: array[:filled].cpu().numpy(), self._arrays)
        state["finals"] = map_nested(
            lambda array: array.index_select(0, there).cpu().numpy(), self._arrays["obs"]
        )
        state["final_of"] = self._final_of[:filled].copy()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """On the device it was on, or on the CPU where there is none such."""
        parts = {name: state.pop(name, None) for name in ("arrays", "finals", "final_of", "generator")}
        device = torch.device(state.pop("device"))
        vars(self).update(state)
        self.device = device if device.type == "cpu" or torch.cuda.is_available() else torch.device("cpu")
        self.generator = torch.Generator(self.device)
        if self.device.type == device.type:
            self.generator.set_state(torch.from_numpy(parts["generator"].copy()))
        else:
            self.generator.manual_seed(int(parts["generator"].sum()))
        self._ones = torch.ones(0, device=self.device)
        if not self._streams:
            return
        rings = state["_rings"]
        arrays = map_nested(torch.from_numpy, parts["arrays"])
        with within_memory(self.capacity, arrays, self.device):
            self._allocate(rings.rows, rings.columns, arrays)
        self._rings = rings
        for array, saved in pairs(self._arrays, arrays):
            array[: len(saved)] = saved.to(self.device)
        places = np.flatnonzero(parts["final_of"] >= 0)
        places = places[np.argsort(parts["final_of"][places])]
        if places.size:
            counts = self.episodes_added
            self._store_finals(
                places, map_nested(lambda saved: torch.from_numpy(saved).to(self.device), parts["finals"])
            )
            self.episodes_added = counts


_REBUILT = (
    "device",
    "generator",
    "_arrays",
    "_final_of",
    "_final_there",
    "_free",
    "_free_count",
    "_ones",
    "_bounds",
)


class PrioritizedReplayBuffer(ReplayBuffer):
    """Steps drawn in proportion to how wrong the last prediction of their value was.

    As RLlib's: a step's priority is its error to the power of `alpha`, a new step has the highest so far, and
    the importance weight of a step is (lowest priority / its priority) to the power of `beta`.

    :param alpha: 0 for drawing evenly, 1 in full proportion to the errors
    """

    def __init__(
        self,
        capacity: int,
        *,
        alpha: float = 1.0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(capacity, seed=seed, device=device)
        self.alpha = float(alpha)
        self._priorities = Priorities(0, self.device)
        self._highest = torch.ones((), dtype=torch.float64, device=self.device)

    def update_priorities(self, indices: Tensor, td_errors: Tensor) -> None:
        """Gives steps the priorities of their errors.

        :param indices: of a batch, before anything else was added
        """
        errors = td_errors.detach().clamp(min=_LOWEST).to(torch.float64)
        torch.maximum(self._highest, errors.max(), out=self._highest)
        self._priorities.put(indices, errors.pow_(self.alpha))

    def _draw(self, size: int, beta: float) -> tuple[Tensor, Tensor]:
        if not len(self):
            raise IndexError("the replay buffer is empty: add a rollout first")
        places, priorities = self._priorities.draw(size, self.generator)
        weights = (self._priorities.lowest() / priorities).pow_(beta)
        return places, weights.to(torch.float32)

    def _mark(self, fresh: np.ndarray, columns: np.ndarray) -> None:
        """New steps have the highest priority; heads, and steps whose end is not known yet, none."""
        rings = self._rings
        hidden = columns[~rings.known[columns]]
        if hidden.size:
            fresh = fresh[~np.isin(fresh, rings.newest_places(hidden))]
        gone = np.concatenate([rings.head_places(columns), rings.newest_places(hidden)])
        there = self._there(np.concatenate([fresh, gone]))
        priorities = torch.zeros(there.numel(), dtype=torch.float64, device=self.device)
        priorities[: fresh.size] = self._highest.pow(self.alpha)
        self._priorities.put(there, priorities)

    def _allocate(self, rows: int, columns: int, like: dict[str, Tree]) -> None:
        super()._allocate(rows, columns, like)
        self._priorities = Priorities(rows * columns, self.device)

    def __getstate__(self) -> dict[str, Any]:
        """The same, with the priorities."""
        state = super().__getstate__()
        filled = self._rings.used_rows * self._rings.columns if self._streams else 0
        leaves, sums = self._priorities.read(filled)
        state["_priorities"] = leaves.cpu().numpy(), sums.cpu().numpy()
        state["_highest"] = float(self._highest)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The same, with the priorities."""
        leaves, sums = state.pop("_priorities")
        highest = state.pop("_highest")
        super().__setstate__(state)
        if not self._streams:
            self._priorities = Priorities(0, self.device)
        self._highest = torch.tensor(highest, dtype=torch.float64, device=self.device)
        self._priorities.load(self._there(leaves.copy()), self._there(sums.copy()))
