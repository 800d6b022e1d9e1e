"""Observation normalisation as an RLlib connector: running mean and spread per policy and leaf.

RLlib's own `MeanStdFilter` also rescales action masks and images and keeps one statistic per
agent; this one leaves masks, images and integers alone, shares the statistic of a policy among
its agents, and updates once per vector step instead of once per environment.

Several env runners are merged without counting anything twice: each runner reports the sum of all it has
seen, and the driver adds the newest report of each to what an earlier session had gathered.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import tree
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core import DEFAULT_MODULE_ID

from rayfish.models.spaces import MASK_KEY

CLIP = 10.0
_FLOOR = 1e-4  # a feature that hardly moves is centred, not blown up

Moments = tuple[float, np.ndarray, np.ndarray]  # count, mean, sum of squared deviations


def combine(a: Moments | None, b: Moments) -> Moments:
    """The moments of two samples together (Chan et al., 1979), exact for any sizes."""
    if a is None or a[0] == 0:
        return b
    count = a[0] + b[0]
    shift = b[1] - a[1]
    return count, a[1] + shift * (b[0] / count), a[2] + b[2] + shift**2 * (a[0] * b[0] / count)


class NormalizeObservations(ConnectorV2):
    """Centres and scales float observations with statistics gathered while exploring."""

    def __init__(self, input_observation_space: Any = None, input_action_space: Any = None, **kwargs: Any):
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._runner = uuid.uuid4().hex
        self._total: dict[str, dict[tuple, Moments]] = {}  # policy -> leaf -> what normalises
        self._own: dict[str, dict[tuple, Moments]] = {}  # what this runner has seen itself
        self._base: dict[str, dict[tuple, Moments]] = {}  # driver: what a restored run had seen
        self._reports: dict[str, dict[str, dict[tuple, Moments]]] = {}  # driver: runner -> its own

    def recompute_output_observation_space(
        self, input_observation_space: gym.Space, input_action_space: gym.Space
    ) -> gym.Space:
        """The same space with every normalised leaf bounded by the clip value."""
        return _normalised_space(input_observation_space)

    def __call__(
        self, *, rl_module: Any, batch: dict, episodes: Sequence, explore: bool | None = None, **kwargs: Any
    ) -> dict:
        """Normalises the newest observation of every episode; statistics grow only while exploring."""
        grouped: dict[str, list] = {}
        for episode in self.single_agent_episode_iterator(episodes):
            grouped.setdefault(episode.module_id or DEFAULT_MODULE_ID, []).append(episode)
        for policy, members in grouped.items():
            observations = [episode.get_observations(indices=-1) for episode in members]
            if explore is not False:
                self._learn(policy, observations)
            for episode, observation in zip(members, observations, strict=True):
                episode.set_observations(at_indices=-1, new_data=self._apply(policy, observation))
                # The episode checks new observations against its space: give it the new bounds.
                space, agent = self.observation_space, episode.agent_id
                several = agent is not None and isinstance(space, gym.spaces.Dict) and agent in space.spaces
                episode.observation_space = space[agent] if several else space
        return batch

    def batch(self, policy: str, observations: Any, new: Any = None) -> Any:
        """A batch of observations [N, ...] in normalised form; `new` ones update the statistics before."""
        if new is not None:
            for path, leaf in tree.flatten_with_path(new):
                if len(leaf) and _is_normalised(path, leaf[0]):
                    self._add(policy, path, np.asarray(leaf, dtype=np.float64))
        return self._apply(policy, observations)

    def _learn(self, policy: str, observations: list) -> None:
        columns: dict[tuple, list] = {}
        for observation in observations:
            for path, leaf in tree.flatten_with_path(observation):
                if _is_normalised(path, leaf):
                    columns.setdefault(path, []).append(leaf)
        for path, leaves in columns.items():
            self._add(policy, path, np.asarray(leaves, dtype=np.float64))

    def _add(self, policy: str, path: tuple, data: np.ndarray) -> None:
        """Adds the rows of one leaf."""
        mean = data.mean(axis=0)
        seen = (float(len(data)), mean, np.square(data - mean).sum(axis=0))
        for store in (self._total, self._own):
            moments = store.setdefault(policy, {})
            moments[path] = combine(moments.get(path), seen)

    def _apply(self, policy: str, observation: Any) -> Any:
        moments = self._total.get(policy, {})

        def normalise(path: tuple, leaf: Any) -> Any:
            if path not in moments:
                return leaf
            mean, std = _mean_std(moments[path])
            return np.clip((leaf - mean) / std, -CLIP, CLIP).astype(np.float32)

        return tree.map_structure_with_path(normalise, observation)

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The statistic in use and what this runner has seen."""
        return {"runner": self._runner, "total": _copy(self._total), "own": _copy(self._own)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Uses a merged or restored statistic; new observations add to it."""
        self._total = _copy(state.get("total", {}))
        if "own" in state:  # a checkpoint's whole state, not the broadcast of a merge
            self._base = _copy(self._total)
            self._reports = {}

    def whole_state(self) -> dict[str, Any]:
        """All of it, with the parts the sums were made of: adding them up again must round alike."""
        reports = {runner: _copy(report) for runner, report in self._reports.items()}
        return {**self.get_state(), "base": _copy(self._base), "reports": reports}

    def set_whole_state(self, state: dict[str, Any]) -> None:
        """Puts back what `whole_state` returned."""
        self._runner = state["runner"]
        self._total, self._own, self._base = (_copy(state[part]) for part in ("total", "own", "base"))
        self._reports = {runner: _copy(report) for runner, report in state["reports"].items()}

    def merge_states(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """Adds up what every runner has seen (each counted once, however often it reports)."""
        for state in states:
            self._reports[state["runner"]] = state["own"]
        total = _copy(self._base)
        for report in self._reports.values():
            for policy, leaves in report.items():
                merged = total.setdefault(policy, {})
                for path, moments in leaves.items():
                    merged[path] = combine(merged.get(path), moments)
        self._total = total
        return {"total": _copy(total)}

    def statistics(self) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """Mean, spread and clip per policy and leaf, in the form a loaded policy applies."""
        return {
            policy: {
                "leaves": [
                    {
                        "path": list(path),
                        "mean": _mean_std(m)[0].astype(np.float64),
                        "std": _mean_std(m)[1],
                        "clip": CLIP,
                    }
                    for path, m in leaves.items()
                ]
            }
            for policy, leaves in self._total.items()
        }


def normaliser_of(algorithm: Any) -> NormalizeObservations | None:
    """The driver's normaliser, which holds the merged statistics; None without `observation_filter`."""
    pipeline = getattr(getattr(algorithm, "env_runner", None), "_env_to_module", None)
    return normaliser_in(pipeline or getattr(algorithm, "env_to_module_connector", None))


def normaliser_in(pipeline: Any) -> NormalizeObservations | None:
    """The normaliser in a connector pipeline; None when it has none."""
    pieces = (p for p in getattr(pipeline, "connectors", []) if isinstance(p, NormalizeObservations))
    return next(pieces, None)


def _mean_std(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    count, mean, squares = moments
    if count < 2:
        return mean, np.ones_like(mean)
    return mean, np.maximum(np.sqrt(squares / (count - 1)), _FLOOR)


def _is_normalised(path: tuple, leaf: Any) -> bool:
    array = np.asarray(leaf)
    return array.dtype.kind == "f" and array.ndim < 3 and MASK_KEY not in path


def _normalised_space(space: gym.Space, key: str = "") -> gym.Space:
    if isinstance(space, gym.spaces.Dict):
        return gym.spaces.Dict({k: _normalised_space(s, k) for k, s in space.spaces.items()})
    if isinstance(space, gym.spaces.Tuple):
        return gym.spaces.Tuple([_normalised_space(s) for s in space.spaces])
    if (
        isinstance(space, gym.spaces.Box)
        and space.dtype.kind == "f"
        and len(space.shape) < 3
        and key != MASK_KEY
    ):
        return gym.spaces.Box(-CLIP, CLIP, space.shape, np.float32)
    return space


def _copy(stats: dict[str, dict[tuple, Moments]]) -> dict[str, dict[tuple, Moments]]:
    return {policy: dict(leaves) for policy, leaves in stats.items()}
