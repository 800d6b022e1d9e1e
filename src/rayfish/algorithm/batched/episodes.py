"""A rollout as RLlib's episodes, for RLlib's own learners (IMPALA, APPO) and replay buffers."""

from __future__ import annotations

from itertools import pairwise

import gymnasium as gym
import numpy as np
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from rayfish.algorithm.batched.replay.transitions import indexed
from rayfish.algorithm.batched.rollout import Rollout
from rayfish.nested import map_nested


def as_episodes(
    rollout: Rollout,
    spaces: tuple[gym.Space | None, gym.Space | None] = (None, None),
    weights_seq_no: int = 0,
) -> list[SingleAgentEpisode]:
    """One episode, or piece of one, per slot and end; copies, so that the memory can be used again."""
    host = indexed(rollout.to("cpu"))
    steps, slots = host.shape
    done, terminated = host.done.numpy(), host.terminated.numpy()
    valid = np.ones_like(done) if host.valid is None else host.valid.numpy()
    obs, last_obs, final_obs = (
        map_nested(lambda leaf: leaf.numpy(), tree) for tree in (host.obs, host.last_obs, host.final_obs)
    )
    assert host.final_index is not None
    final = {int(at): place for place, at in enumerate(host.final_index.tolist())}
    found = []
    for slot in range(slots):
        for start, end in _pieces(done[:, slot], valid[:, slot]):
            ended = bool(done[end - 1, slot])
            if ended:
                after = map_nested(lambda leaf, at=final[(end - 1) * slots + slot]: leaf[at], final_obs)
            elif end < steps:
                after = map_nested(lambda leaf, at=(end, slot): leaf[at], obs)
            else:
                after = map_nested(lambda leaf, at=slot: leaf[at], last_obs)
            seen = map_nested(
                lambda leaf, then, at=(slice(start, end), slot): np.concatenate([leaf[at], then[None]]),
                obs,
                after,
            )
            own = slice(start, end), slot
            extras = {name: value.numpy()[own].copy() for name, value in host.extras.items()}
            episode = SingleAgentEpisode(
                observation_space=spaces[0],
                action_space=spaces[1],
                observations=seen,
                actions=host.actions.numpy()[own].copy(),
                rewards=host.rewards.numpy()[own].copy(),
                infos=[{}] * (end - start + 1),
                terminated=ended and bool(terminated[end - 1, slot]),
                truncated=ended and not bool(terminated[end - 1, slot]),
                extra_model_outputs={**extras, "weights_seq_no": np.full(end - start, weights_seq_no)},
                len_lookback_buffer=0,
            )
            found.append(episode.to_numpy())
    return found


def _pieces(done: np.ndarray, valid: np.ndarray) -> list[tuple[int, int]]:
    """[start, end) of the steps of one slot that belong together."""
    changes = np.flatnonzero(np.diff(valid.astype(np.int8))) + 1
    cuts = sorted({0, len(done), *(np.flatnonzero(done) + 1).tolist(), *changes.tolist()})
    return [(start, end) for start, end in pairwise(cuts) if valid[start]]
