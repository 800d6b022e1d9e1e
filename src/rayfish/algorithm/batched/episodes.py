"""A rollout as RLlib's episodes, for algorithms whose learner is RLlib's own (IMPALA, APPO)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from rayfish.algorithm.batched.replay.transitions import indexed
from rayfish.algorithm.batched.rollout import Rollout
from rayfish.nested import map_nested


def as_episodes(
    rollout: Rollout, spaces: tuple[gym.Space, gym.Space], weights_seq_no: int = 0
) -> list[SingleAgentEpisode]:
    """One episode, or piece of one, per slot and end; copies, so that the memory can be used again.

    :param spaces: of observations and actions
    :param weights_seq_no: the number of the weights that acted
    """
    host = indexed(rollout.to("cpu"))
    steps, slots = host.shape
    done, terminated = host.done.numpy(), host.terminated.numpy()
    valid = None if host.valid is None else host.valid.numpy()
    obs = map_nested(lambda leaf: leaf.numpy(), host.obs)
    extras = {name: value.numpy() for name, value in host.extras.items()}
    assert host.final_index is not None
    final = {int(at): place for place, at in enumerate(host.final_index.tolist())}
    found = []
    for slot in range(slots):
        for start, end in _pieces(done[:, slot], None if valid is None else valid[:, slot]):
            last = end - 1
            ended = bool(done[last, slot])
            if ended:
                after = map_nested(
                    lambda leaf, at=final[last * slots + slot]: leaf[at].numpy(), host.final_obs
                )
            elif end < steps:
                after = map_nested(lambda leaf, at=(end, slot): leaf[at], obs)
            else:
                after = map_nested(lambda leaf, at=slot: leaf[at].numpy(), host.last_obs)
            seen = map_nested(
                lambda leaf, then, a=start, b=end, n=slot: np.concatenate([leaf[a:b, n], then[None]]),
                obs,
                after,
            )
            episode = SingleAgentEpisode(
                observation_space=spaces[0],
                action_space=spaces[1],
                observations=seen,
                actions=host.actions.numpy()[start:end, slot].copy(),
                rewards=host.rewards.numpy()[start:end, slot].copy(),
                infos=[{}] * (end - start + 1),
                terminated=ended and bool(terminated[last, slot]),
                truncated=ended and not bool(terminated[last, slot]),
                extra_model_outputs={
                    **_cut(extras, start, end, slot),
                    "weights_seq_no": np.full(end - start, weights_seq_no),
                },
                len_lookback_buffer=0,
            )
            found.append(episode.to_numpy())
    return found


def _cut(extras: dict[str, np.ndarray], start: int, end: int, slot: int) -> dict[str, Any]:
    return {name: value[start:end, slot].copy() for name, value in extras.items()}


def _pieces(done: np.ndarray, valid: np.ndarray | None) -> list[tuple[int, int]]:
    """[start, end) of the steps of one slot that belong together."""
    steps = len(done)
    cuts = set((np.flatnonzero(done) + 1).tolist()) | {0, steps}
    if valid is not None:
        changes = np.flatnonzero(np.diff(valid.astype(np.int8))) + 1
        cuts |= set(changes.tolist())
    places = sorted(cuts)
    pairs = [(a, b) for a, b in pairwise(places) if b > a]
    return pairs if valid is None else [(a, b) for a, b in pairs if valid[a]]
