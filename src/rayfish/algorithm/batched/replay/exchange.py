"""A replay buffer of one path as that of the other, so that either can resume a checkpoint.

Steps, ends and true last observations are kept; priorities are not, so that every step counts as new. An
episode that was running when the checkpoint was made ends there, truncated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from torch import Tensor

from rayfish.algorithm.batched.episodes import as_episodes
from rayfish.algorithm.batched.replay.buffer import ReplayBuffer
from rayfish.algorithm.batched.rollout import Rollout, Tree
from rayfish.algorithm.batched.sampler import tensor
from rayfish.nested import map_nested


def fitting_replay(algorithm: Any, loaded: Any) -> Any:
    """The replay buffer of a checkpoint for an algorithm: as it is, or its steps in the kind that fits."""
    current = algorithm.local_replay_buffer
    if isinstance(current, ReplayBuffer) == isinstance(loaded, ReplayBuffer):
        return loaded
    if isinstance(loaded, ReplayBuffer):
        if not algorithm.config.is_multi_agent:  # agents' steps do not tell whose episodes they were
            current.add(to_episodes(loaded))
        return current
    agents = [getattr(episode, "agent_episodes", {"": episode}).values() for episode in loaded.episodes]
    fill(current, [episode for group in agents for episode in group], _slots(algorithm))
    return current


def to_episodes(replay: ReplayBuffer) -> list[SingleAgentEpisode]:
    """All steps of an array buffer as episodes, those that ended first in front."""
    found: list[tuple[int, SingleAgentEpisode]] = []
    for rollout in replay.rollouts():
        left = len(rollout)
        for episode in as_episodes(rollout):
            left -= len(episode)
            found.append((left, episode))
    return [episode for _, episode in sorted(found, key=lambda pair: -pair[0])]


def fill(replay: ReplayBuffer, episodes: Sequence[SingleAgentEpisode], slots: dict[int, int]) -> None:
    """Puts episodes into an array buffer, oldest first, side by side in the slots of its streams."""
    episodes = [episode for episode in episodes if len(episode)]
    streams = [stream for stream, count in slots.items() for _ in range(count)]
    for start in range(0, len(episodes), len(streams)):
        row = episodes[start : start + len(streams)]
        taken = 0
        for stream, count in slots.items():
            mine, taken = row[taken : taken + count], taken + count
            if mine:
                replay.add(_side_by_side(mine, count, stream))


def _side_by_side(episodes: Sequence[SingleAgentEpisode], slots: int, stream: int) -> Rollout:
    """Whole episodes as one rollout: each in a slot of its own, which waits once it is over."""
    steps = max(len(episode) for episode in episodes)
    seen = [_stacked(episode.get_observations()) for episode in episodes]
    actions = [np.asarray(episode.get_actions()) for episode in episodes]
    valid, terminated, done = (torch.zeros(steps, slots, dtype=torch.bool) for _ in range(3))
    rewards = torch.zeros(steps, slots)
    for slot, episode in enumerate(episodes):
        length = len(episode)
        valid[:length, slot] = True
        rewards[:length, slot] = torch.as_tensor(np.asarray(episode.get_rewards()), dtype=torch.float32)
        done[length - 1, slot] = True
        terminated[length - 1, slot] = bool(episode.is_terminated)
    order = sorted(range(len(episodes)), key=lambda slot: (len(episodes[slot]), slot))
    finals = [map_nested(lambda leaf: leaf[-1], seen[slot]) for slot in order]
    return Rollout(
        obs=map_nested(lambda *leaves: _padded([leaf[:-1] for leaf in leaves], steps, slots), *seen),
        actions=_padded(actions, steps, slots),
        rewards=rewards,
        terminated=terminated,
        done=done,
        valid=valid,
        last_obs=map_nested(lambda leaf: _padded([leaf[-1:]], 1, slots)[0], seen[0]),
        final_index=torch.tensor([(len(episodes[slot]) - 1) * slots + slot for slot in order]),
        final_obs=map_nested(lambda *leaves: torch.from_numpy(np.stack(leaves)), *finals),
        stream=stream,
    )


def _padded(columns: Sequence[np.ndarray], steps: int, slots: int) -> Tensor:
    out = np.zeros((steps, slots, *columns[0].shape[1:]), columns[0].dtype)
    for slot, column in enumerate(columns):
        out[: len(column), slot] = column
    return torch.from_numpy(out)


def _stacked(observations: Any) -> Tree:
    """Of an episode: one array per leaf, as the sampler would have them."""
    if isinstance(observations, list):
        observations = map_nested(lambda *leaves: np.stack(leaves), *observations)
    return map_nested(lambda leaf: tensor(leaf).numpy(), observations)


def _slots(algorithm: Any) -> dict[int, int]:
    """Stream -> its slots, as the runners of an algorithm will fill them."""
    group = algorithm.env_runner_group
    if not group.num_remote_env_runners():
        return {0: group.local_env_runner.vector.num_slots}
    found = group.foreach_env_runner(
        lambda runner: (runner.worker_index, runner.vector.num_slots), local_env_runner=False
    )
    return dict(sorted(found))
