"""`trajectories.parquet`: every step of every agent, one row each, written as it is played.

A row is a whole transition: `observation, action, reward, terminated, truncated, next_observation`.
That is the form offline RL trains on, since its losses take single transitions in any order; and the
last observation of an episode, which a bare list of observations and actions loses, has its place. A
row closes when its agent is observed again or its episode ends, so that where agents take turns the
rewards in between are added up, as learners expect them.

Rows are written in groups of some megabytes, so that memory does not grow with the number of
episodes. The columns of a space (where several agents' spaces differ, see `by_policy`):

| space | column |
|---|---|
| Discrete, Box without axes | a number |
| Box, MultiDiscrete, MultiBinary | a fixed-size list of the space's own number type (an image stays bytes) |
| the same with two axes and more | the same list, marked as Arrow's tensor of that shape |
| Dict, Tuple | one column per part: `observation.position`, `action.0` |

pandas, Polars and DuckDB see lists in C order; pyarrow's `to_numpy_ndarray()` gives them their shape.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rayfish.envs.env_kind import DEFAULT_AGENT, agents_and_spaces
from rayfish.envs.play import Actions, TimeStep
from rayfish.errors import EnvironmentFault
from rayfish.models.space_json import to_json
from rayfish.run.player import writing_to
from rayfish.run.policy import Agent
from rayfish.run.policy_files import jsonable

GROUP_BYTES = 32_000_000
"""About so much is held in memory before it is written as a row group."""

_ROW_BYTES = 64  # what a row takes besides its observations and actions, roughly
_WHERE = {"episode": pa.int64(), "step": pa.int64(), "agent": pa.string(), "policy": pa.string()}
_OUTCOME = {"reward": pa.float64(), "terminated": pa.bool_(), "truncated": pa.bool_()}

Row = dict[str, Any]
"""Column -> value; a leaf's value is its array."""


class Trajectories:
    """Records what is played (a `player.See`).

    :param file: where to write; it is whole only after `close`
    :param save_info: also write the environment's infos
    :param about: facts for the file's metadata
    """

    def __init__(
        self, file: Path, env: Any, agent: Agent, *, save_info: bool, about: Mapping[str, Any]
    ) -> None:
        self.file = file
        self.rows = 0
        self._agent = agent
        self._save_info = save_info
        agents, observations, actions = agents_and_spaces(env)
        policies = {agent.policy_of(name): name for name in agents}
        self._observations = by_policy("observation", {p: observations[name] for p, name in policies.items()})
        self._actions = by_policy("action", {p: actions[name] for p, name in policies.items()})
        seen = {leaf.column: leaf for found in self._observations.values() for leaf in found}
        done = {leaf.column: leaf for found in self._actions.values() for leaf in found}
        last = {f"next_{column}": leaf for column, leaf in seen.items()}
        self._leaves: dict[str, ColumnLeaf] = {**seen, **done, **last}
        self._row_bytes = _ROW_BYTES + sum(leaf.size * leaf.dtype.itemsize for leaf in self._leaves.values())
        described = {
            "about": dict(about),
            "columns": {
                column: {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
                for column, leaf in self._leaves.items()
            },
            "spaces": {
                policy: {"observation": to_json(observations[name]), "action": to_json(actions[name])}
                for policy, name in policies.items()
            },
        }
        types = {column: leaf.type for column, leaf in self._leaves.items()}
        last_types = {column: types.pop(column) for column in last}
        info = {"info": pa.string()} if save_info else {}
        fields = {**_WHERE, **types, **_OUTCOME, **last_types, **info}  # in the order people read them
        schema = pa.schema(list(fields.items()), metadata={"rayfish": json.dumps(described)})
        with writing_to(file, out="folder"):
            self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._held: list[Row] = []
        self._held_bytes = 0
        self._written_to = -1  # the last episode with rows in the file
        self._episode, self._finished = -1, 0
        self._seen: dict[Any, Row] = {}
        self._open: dict[Any, Row] = {}

    def __call__(self, step: int, actions: Actions, now: TimeStep) -> None:
        """Opens a row for every agent that acted, and closes those whose outcome is known."""
        if step == 0:
            self._episode += 1
            self._open.clear()
            self._seen.clear()
        for name, action in actions.items():
            self._open[name] = self._opened(step - 1, name, action)
        for name, reward in now.rewards.items():
            if name in self._open:
                self._open[name]["reward"] += float(reward)
        self._seen |= {name: self._observation(name, value) for name, value in now.observations.items()}
        for name in list(self._open):
            if name in now.observations or any(now.ended(name)):
                self._close_row(name, now)
        if now.over:  # rows that still wait for an observation get none
            for name in list(self._open):
                self._close_row(name, TimeStep({}, {}))
            self._finished += 1

    def close(self) -> None:
        """Makes the file whole; of an episode that did not end nothing is kept."""
        self._held = [row for row in self._held if row["episode"] < self._finished]
        with writing_to(self.file, out="folder"):
            self._write()
            self._writer.close()
            if self._written_to >= self._finished:
                self._drop_unfinished()

    def _opened(self, step: int, name: Any, action: Any) -> Row:
        policy = self._agent.policy_of(name)
        acted = {leaf.column: leaf.of(action) for leaf in self._actions[policy]}
        return {
            "episode": self._episode,
            "step": step,
            "agent": None if name == DEFAULT_AGENT else str(name),
            "policy": policy,
            "reward": 0.0,
            **self._seen[name],
            **acted,
        }

    def _close_row(self, name: Any, now: TimeStep) -> None:
        row = self._open.pop(name)
        row["terminated"], row["truncated"] = now.ended(name)
        if name in now.observations:
            row |= {f"next_{column}": value for column, value in self._seen[name].items()}
        if self._save_info:
            row["info"] = as_json(now.infos.get(name, {}))
            self._held_bytes += len(row["info"])
        self._held.append(row)
        self._held_bytes += self._row_bytes
        if self._held_bytes >= GROUP_BYTES:
            with writing_to(self.file, out="folder"):
                self._write()

    def _observation(self, name: Any, value: Any) -> Row:
        policy = self._agent.policy_of(name)
        if policy not in self._observations:
            raise EnvironmentFault(
                f"the environment has an agent {name!r} that it did not declare",
                "name all agents that may appear in possible_agents",
            )
        return {leaf.column: leaf.of(value) for leaf in self._observations[policy]}

    def _write(self) -> None:
        """One row group; the rows are let go first, so that none is ever written twice."""
        rows, self._held, self._held_bytes = self._held, [], 0
        if not rows:
            return
        columns = [
            self._leaves[field.name].array([row.get(field.name) for row in rows])
            if field.name in self._leaves
            else pa.array([row.get(field.name) for row in rows], field.type)
            for field in self._writer.schema
        ]
        self._writer.write_table(pa.table(columns, schema=self._writer.schema))
        self.rows += len(rows)
        self._written_to = rows[-1]["episode"]

    def _drop_unfinished(self) -> None:
        """Copies the file without the rows of the episode that was given up, group by group."""
        whole = self.file.with_suffix(".whole")
        self.rows = 0
        with (
            pq.ParquetFile(self.file) as old,
            pq.ParquetWriter(whole, old.schema_arrow, compression="zstd") as new,
        ):
            for number in range(old.num_row_groups):
                group = old.read_row_group(number)
                group = group.filter(pc.less(group["episode"], self._finished))
                if len(group):
                    new.write_table(group)
                    self.rows += len(group)
        whole.replace(self.file)


@dataclass(frozen=True)
class ColumnLeaf:
    """One column: a part of a space that holds numbers.

    :param path: the keys and indices that lead to it in an observation or action
    """

    column: str
    path: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return int(np.prod(self.shape, dtype=np.int64))

    @cached_property
    def type(self) -> Any:
        """The column's type in Arrow's words."""
        number = pa.from_numpy_dtype(self.dtype)
        if not self.shape:
            return number
        if self.size == 0:
            return pa.list_(number)  # Arrow knows no fixed-size list of nothing
        if len(self.shape) > 1 and self.dtype != np.bool_:
            return pa.fixed_shape_tensor(number, self.shape)
        return pa.list_(number, self.size)

    def of(self, value: Any) -> np.ndarray[Any, Any]:
        """This leaf's numbers in an observation or action: a copy, because environments reuse arrays.

        :raises EnvironmentFault: the value has another structure or size than its space
        """
        part, hint = value, "return what the space declares; `rayfish env check` tells more"
        try:
            for key in self.path:
                part = part[key]
            numbers = np.array(part).astype(self.dtype, copy=False).reshape(-1)
        except (LookupError, TypeError, ValueError) as error:
            what = f"{self.column} cannot be written: {type(error).__name__}: {error}"
            raise EnvironmentFault(what, hint) from error
        if numbers.size != self.size:
            what = f"{self.column} has shape {np.shape(part)}, its space declares {self.shape}"
            raise EnvironmentFault(what, hint)
        return numbers

    def array(self, values: Sequence[np.ndarray[Any, Any] | None]) -> Any:
        """The column of many rows; None is a missing value."""
        missing = np.array([value is None for value in values])
        if self.shape and self.size == 0:
            return pa.array([None if value is None else [] for value in values], self.type)
        blank = np.zeros(self.size, self.dtype)
        flat = np.concatenate([blank if value is None else value for value in values])
        if not self.shape:
            return pa.array(flat, mask=missing)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(flat), self.size, mask=pa.array(missing))
        return (
            pa.ExtensionArray.from_storage(self.type, lists)
            if isinstance(self.type, pa.FixedShapeTensorType)
            else lists
        )


def leaves(space: gym.Space[Any], column: str, path: tuple[Any, ...] = ()) -> Iterator[ColumnLeaf]:
    """The columns of a space, in its own order.

    :raises EnvironmentFault: a kind of space that holds no fixed count of numbers
    """
    parts: Mapping[Any, gym.Space[Any]] | None = None
    if isinstance(space, gym.spaces.Dict):
        parts = space.spaces
    elif isinstance(space, gym.spaces.Tuple):
        parts = dict(enumerate(space.spaces))
    if parts is not None:
        for key, part in parts.items():
            yield from leaves(part, f"{column}.{key}", (*path, key))
    elif space.shape is not None and space.dtype is not None:
        yield ColumnLeaf(column, path, tuple(space.shape), np.dtype(space.dtype))
    else:
        raise EnvironmentFault(
            f"a {type(space).__name__} space ({column}) has no fixed count of numbers, so no column holds it",
            "use Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple",
        )


def by_policy(column: str, spaces: Mapping[str, gym.Space[Any]]) -> dict[str, list[ColumnLeaf]]:
    """The columns of each policy: the same for all where their spaces are alike.

    Else each has columns of its own, `observation.<policy>`, which are null in the others' rows.

    """
    shared = {policy: list(leaves(space, column)) for policy, space in spaces.items()}
    first = next(iter(shared.values()))
    if all(found == first for found in shared.values()):
        return shared
    return {policy: list(leaves(space, f"{column}.{policy}")) for policy, space in spaces.items()}


def as_json(value: Any) -> str:
    """Whatever an environment puts into its info, as JSON text.

    Arrays become lists and NumPy's numbers numbers; what JSON cannot hold becomes its `repr`.
    """
    try:
        return json.dumps(jsonable(value, repr), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # a structure that contains itself
        return json.dumps(repr(value), ensure_ascii=False)
