"""`trajectories.parquet`: every step of every agent, one row each, written as it is played.

A row is a whole transition: `observation, action, reward, terminated, truncated, next_observation`.
That is the form offline RL trains on, since its losses take single transitions in any order; and the
last observation of an episode, which a bare list of observations and actions loses, has its place. A
row closes when its agent is observed again or its episode ends, so that where agents take turns the
rewards in between are added up, as learners expect them.

Rows are written in groups of some megabytes, so that memory does not grow with the number of
episodes. Where several agents' spaces differ, see `columns.by_policy`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rayfish.envs.env_kind import agents_and_spaces, is_multi_agent
from rayfish.errors import EnvironmentFault, RayfishError
from rayfish.files import why_unwritable
from rayfish.models.space_json import to_json
from rayfish.run.columns import ColumnLeaf, as_json, by_policy
from rayfish.run.player import PlayedStep, policy_of
from rayfish.run.policy import Agent

GROUP_BYTES = 32_000_000
"""About so much is held in memory before it is written as a row group."""

_ROW_BYTES = 64  # what a row takes beside its observations and actions, roughly
_FIXED = {
    "episode": pa.int64(),
    "step": pa.int64(),
    "agent": pa.string(),
    "policy": pa.string(),
    "reward": pa.float64(),
    "terminated": pa.bool_(),
    "truncated": pa.bool_(),
    "info": pa.string(),
}

Row = dict[str, Any]
"""Column -> value; a leaf's value is its array."""


class Trajectories:
    """Records what is played (a `player.Recorder`).

    :param file: where to write; it is whole only after `close`
    :param env: the environment that is played
    :param save_info: also write what the environment says beside its observations
    :param about: facts for the file's metadata
    """

    def __init__(
        self, file: Path, env: Any, agent: Agent, *, save_info: bool, about: Mapping[str, Any]
    ) -> None:
        self.file = file
        self.rows = 0
        self._agent = agent
        self._save_info = save_info
        self._lay_out(env)
        described = {"about": dict(about), "columns": self._described(), "spaces": self._spaces}
        schema = self._schema().with_metadata({"rayfish": json.dumps(described)})
        with writing_to(file):
            self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._held: list[Row] = []
        self._held_bytes = 0
        self._written_to = -1  # the last episode of which rows are in the file
        self._episode, self._step, self._finished = 0, 0, 0
        self._seen: dict[Any, Row] = {}
        self._open: dict[Any, Row] = {}

    def begin(self, episode: int, now: PlayedStep) -> None:
        """An episode was reset."""
        self._episode, self._step = episode, 0
        self._open.clear()
        self._seen = {name: self._observation(name, value) for name, value in now.observations.items()}

    def step(self, actions: Mapping[Any, Any], now: PlayedStep) -> None:
        """Opens a row for every agent that acted, and closes those whose outcome is known."""
        for name, action in actions.items():
            self._open[name] = self._opened(name, action)
        for name, reward in now.rewards.items():
            if name in self._open:
                self._open[name]["reward"] += float(reward)
        self._seen |= {name: self._observation(name, value) for name, value in now.observations.items()}
        for name in list(self._open):
            if name in now.observations or any(now.ended(name)):
                self._close_row(name, now)
        self._step += 1

    def end(self) -> None:
        """The episode is over: rows that still wait for an observation get none."""
        for name in list(self._open):
            self._close_row(name, PlayedStep({}, {}))
        self._finished += 1

    def close(self) -> None:
        """Makes the file whole; of an episode that did not end nothing is kept."""
        self._held = [row for row in self._held if row["episode"] < self._finished]
        with writing_to(self.file):
            self._write()
            self._writer.close()
            if self._written_to >= self._finished:
                self._drop_unfinished()

    def _opened(self, name: Any, action: Any) -> Row:
        policy = policy_of(self._agent, name)
        acted = {leaf.column: leaf.of(action) for leaf in self._actions[policy]}
        return {
            "episode": self._episode,
            "step": self._step,
            "agent": None if name is None else str(name),
            "policy": policy,
            "reward": 0.0,
            **self._seen[name],
            **acted,
        }

    def _close_row(self, name: Any, now: PlayedStep) -> None:
        row = self._open.pop(name)
        row["terminated"], row["truncated"] = now.ended(name)
        if name in now.observations:
            row |= {_next(column): value for column, value in self._seen[name].items()}
        if self._save_info:
            row["info"] = as_json(now.infos.get(name, {}))
            self._held_bytes += len(row["info"])
        self._held.append(row)
        self._held_bytes += self._row_bytes
        if self._held_bytes >= GROUP_BYTES:
            with writing_to(self.file):
                self._write()

    def _observation(self, name: Any, value: Any) -> Row:
        policy = policy_of(self._agent, name)
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
        beside = self.file.with_suffix(".whole")
        self.rows = 0
        with (
            pq.ParquetFile(self.file) as old,
            pq.ParquetWriter(beside, old.schema_arrow, compression="zstd") as new,
        ):
            for number in range(old.num_row_groups):
                group = old.read_row_group(number)
                group = group.filter(pc.less(group["episode"], self._finished))
                if len(group):
                    new.write_table(group)
                    self.rows += len(group)
        beside.replace(self.file)

    def _lay_out(self, env: Any) -> None:
        agents, observations, actions = agents_and_spaces(env)
        names = agents if is_multi_agent(env) else (None,)
        policies = {policy_of(self._agent, name): agent for name, agent in zip(names, agents, strict=True)}
        seen = {policy: observations[agent] for policy, agent in policies.items()}
        done = {policy: actions[agent] for policy, agent in policies.items()}
        self._spaces = {
            policy: {"observation": to_json(seen[policy]), "action": to_json(done[policy])}
            for policy in policies
        }
        self._observations = by_policy("observation", seen)
        self._actions = by_policy("action", done)
        first = {leaf.column: leaf for found in self._observations.values() for leaf in found}
        self._leaves: dict[str, ColumnLeaf] = {
            **first,
            **{leaf.column: leaf for found in self._actions.values() for leaf in found},
            **{_next(column): leaf for column, leaf in first.items()},
        }
        self._row_bytes = _ROW_BYTES + sum(leaf.size * leaf.dtype.itemsize for leaf in self._leaves.values())

    def _schema(self) -> Any:
        """Columns in the order people read a transition."""
        fixed = {name: pa.field(name, kind) for name, kind in _FIXED.items()}
        lain = {name: pa.field(name, leaf.type) for name, leaf in self._leaves.items()}
        last = {name: field for name, field in lain.items() if name.startswith("next_")}
        ahead = [fixed[name] for name in ("episode", "step", "agent", "policy")]
        outcome = [fixed[name] for name in ("reward", "terminated", "truncated")]
        info = [fixed["info"]] if self._save_info else []
        acted = [field for name, field in lain.items() if name not in last]
        return pa.schema([*ahead, *acted, *outcome, *last.values(), *info])

    def _described(self) -> dict[str, Any]:
        return {
            column: {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
            for column, leaf in self._leaves.items()
        }


def _next(column: str) -> str:
    return f"next_{column}"


@contextmanager
def writing_to(file: Path) -> Iterator[None]:
    """Tells a full disk, or a folder one may not write, in plain words."""
    try:
        yield
    except OSError as error:
        reason, remedy = why_unwritable(error, file)
        raise RayfishError(
            f"{file} cannot be written: {reason}", f"{remedy}, or name another folder with --out"
        ) from error
