"""Recorded data in a fixed order, with a place that can be saved and found again.

RLlib reads recorded data through Ray Data with two workers, each with a buffer of its own, whose batches come
in any order: no run repeats, none can resume, and returns are estimated with the value function the run began
with. With the learner in this process the data is read once, into Ray's object store, and the same steps are
taken here, in order, with the current weights.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import ray
from ray.data.block import BlockAccessor
from ray.rllib.offline.offline_data import OfflineData
from ray.rllib.offline.offline_prelearner import OfflinePreLearner
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils import unflatten_dict
from ray.rllib.utils.torch_utils import convert_to_torch_tensor

from rayfish.compat.rllib_internals import share_module
from rayfish.errors import RayfishError
from rayfish.generators import undisturbed


class OrderedPreLearner(OfflinePreLearner):
    """RLlib's step from rows to train batches; it collects episodes in a set, whose order is chance."""

    def _validate_episodes(self, episodes: list[Any]) -> list[Any]:  # type: ignore[override]
        kept = super()._validate_episodes(episodes)
        return [episode for episode in episodes if episode in kept]


class RecordedData(OfflineData):
    """RLlib's `OfflineData` for a learner in the driver; remote learners read as RLlib has it."""

    def __init__(self, config: Any) -> None:
        ray.data.DataContext.get_current().execution_options.preserve_order = True
        super().__init__(config)
        self._prelearner: Any = None
        self._tables: list[Any] = []  # references to the data, in the order of its files
        self._ends = np.zeros(0, dtype=np.int64)  # the row after the last one of each table
        self._row = 0
        self._buffer: bytes | None = None

    def sample(
        self,
        num_samples: int,
        return_iterator: bool = False,
        num_shards: int = 0,
        module_state: dict[str, Any] | None = None,
    ) -> Any:
        """The next train batch, or an iterator over batches."""
        if num_shards > 0:
            return super().sample(num_samples, return_iterator, num_shards, module_state)
        if return_iterator:
            return [_Batches(self, num_samples)]
        batch = unflatten_dict(self.next_batch(num_samples) or self.next_batch(num_samples) or {})
        modules = {module: SampleBatch(data) for module, data in batch.items()}
        return MultiAgentBatch(modules, env_steps=sum(len(data) for data in modules.values()))

    def next_batch(self, num_samples: int) -> dict[str, Any] | None:
        """The next batch as RLlib's flat dictionary; None once at the end of each pass."""
        self._load()
        if self._row >= self._ends[-1]:
            self._row = 0
            return None
        episodes = self.config.input_read_episodes or self.config.input_read_sample_batches
        rows = (self.data_read_batch_size if episodes else None) or num_samples
        batch = BlockAccessor.for_block(self._slice(self._row, self._row + rows)).to_batch_format("numpy")
        self._row += rows
        return self._ready_prelearner()(batch)

    def position(self) -> dict[str, Any]:
        """The place in the data, with the episodes that batches are drawn from."""
        buffer = getattr(self._prelearner, "episode_buffer", None)
        saved = self._buffer if buffer is None else pickle.dumps(buffer, protocol=5)
        return {"row": self._row, "buffer": saved}

    def go_to(self, position: dict[str, Any]) -> None:
        """Continues reading at a place that `position` returned."""
        self._row, self._buffer = position["row"], position["buffer"]
        self._prelearner = None

    def _load(self) -> None:
        if self._tables:
            return
        tables = self.data.to_arrow_refs()
        sizes = ray.get([_rows.remote(table) for table in tables])
        self._tables = [table for table, size in zip(tables, sizes, strict=True) if size]
        self._ends = np.cumsum([size for size in sizes if size], dtype=np.int64)
        if not self._tables:
            raise RayfishError(f"there is no row in {self.path}", "offline_data.input_ names recorded data")

    def _slice(self, start: int, stop: int) -> pa.Table:
        """The rows from `start` to before `stop`, as far as there are."""
        parts = []
        index = int(np.searchsorted(self._ends, start, side="right"))
        while index < len(self._tables) and start < stop:
            first = int(self._ends[index - 1]) if index else 0
            last = min(stop, int(self._ends[index]))
            parts.append(ray.get(self._tables[index]).slice(start - first, last - start))
            start, index = last, index + 1
        return pa.concat_tables(parts)

    def _ready_prelearner(self) -> Any:
        if self._prelearner is None:
            learner = self.learner_handles[0]
            kind = self.prelearner_class
            with undisturbed():  # it initialises a module of its own, which is thrown away
                self._prelearner = (OrderedPreLearner if kind is OfflinePreLearner else kind)(
                    config=self.config,
                    spaces=self.spaces["__env__"],
                    module_spec=self.module_spec,
                    module_state=learner.get_state(components="rl_module")["rl_module"],
                )
            share_module(self._prelearner, learner.module)
            buffer = getattr(self._prelearner, "episode_buffer", None)
            if buffer is not None and self._buffer is not None:
                self._prelearner.episode_buffer = pickle.loads(self._buffer)
            elif buffer is not None and self.config.seed is not None:
                buffer.rng = np.random.default_rng(self.config.seed)
        return self._prelearner


@ray.remote(num_cpus=0)
def _rows(table: pa.Table) -> int:
    return table.num_rows


class _Batches:
    """What a learner that updates several times per iteration draws from, with Ray Data's method."""

    def __init__(self, data: RecordedData, num_samples: int) -> None:
        self._data = data
        self._num_samples = num_samples
        self._device: Any = None

    def iter_torch_batches(self, *, device: Any = None, **kwargs: Any) -> _Batches:
        """Itself: each `iter` of it is the rest of one pass over the data."""
        self._device = device
        return self

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while (batch := self._data.next_batch(self._num_samples)) is not None:
            yield convert_to_torch_tensor(batch, device=self._device)
