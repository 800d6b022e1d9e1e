"""The bookkeeping of a replay buffer: which row of which ring holds what. Plain NumPy, never on a GPU.

There is one ring per slot (a column). Its head is the row of the observation that waits for its action;
behind it lie the steps, newest first.
"""

from __future__ import annotations

import numpy as np


class Rings:
    """`columns` rings of `rows` rows; row `r` of column `c` has the place `r * columns + c`."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows = rows
        self.columns = columns
        self.heads = np.zeros(columns, np.int64)
        self.counts = np.zeros(columns, np.int64)
        # What was seen after a column's newest step is known: not so while an agent is away.
        self.known = np.ones(columns, bool)
        # A column's newest step ended an episode.
        self.ended = np.ones(columns, bool)
        self.used_rows = 1
        self.refresh()

    @property
    def size(self) -> int:
        """Places."""
        return self.rows * self.columns

    def refresh(self) -> None:
        """Works out what drawing needs, after a change."""
        hidden = ~self.known & (self.counts > 0)
        self.ready = self.counts - hidden
        self.limits = (self.heads - hidden) % self.rows
        self.total = int(self.ready.sum())
        self.aligned = bool((self.limits == self.limits[0]).all() and (self.ready == self.ready[0]).all())

    def head_places(self, columns: np.ndarray) -> np.ndarray:
        """Where the observations lie that wait for their actions."""
        return self.heads[columns] * self.columns + columns

    def newest_places(self, columns: np.ndarray) -> np.ndarray:
        """Where the newest steps lie."""
        return (self.heads[columns] - 1) % self.rows * self.columns + columns

    def next_places(self, steps: int, columns: np.ndarray, valid: np.ndarray | None) -> np.ndarray:
        """[steps * columns] where further steps go; where `valid` is false the number means nothing."""
        ahead = np.arange(steps)[:, None] if valid is None else valid.cumsum(axis=0) - 1
        rows = self.heads[columns] + ahead
        self.used_rows = min(self.rows, max(self.used_rows, int(rows.max()) + 2))  # and the head's behind
        return (rows % self.rows * self.columns + columns).reshape(-1)

    def advance(self, columns: np.ndarray, done: np.ndarray, valid: np.ndarray | None) -> int:
        """Moves the heads over the steps of a rollout; returns how many those were."""
        steps, slots = done.shape
        if valid is None:
            fresh, newest, seen = np.full(slots, steps), np.full(slots, steps - 1), np.ones(slots, bool)
        else:
            fresh = valid.sum(axis=0)
            newest, seen = steps - 1 - valid[::-1].argmax(axis=0), valid[-1]
        ended = done[newest, np.arange(slots)]
        moved = fresh > 0
        self.ended[columns] = np.where(moved, ended, self.ended[columns])
        self.known[columns] = np.where(moved, seen | ended, self.known[columns])
        heads = self.heads[columns] + fresh
        self.heads[columns] = heads % self.rows
        self.counts[columns] = np.minimum(self.counts[columns] + fresh, self.rows - 1)
        return int(fresh.sum())

    def history(self, column: int, most: int) -> np.ndarray:
        """The places of a column's newest `most` steps, oldest first."""
        count = min(int(self.counts[column]), most)
        rows = (self.heads[column] - count + np.arange(count)) % self.rows
        return rows * self.columns + column
