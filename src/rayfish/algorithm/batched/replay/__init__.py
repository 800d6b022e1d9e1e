"""Replay: transitions kept in rings, drawn with or without priorities, handed between processes."""

from rayfish.algorithm.batched.replay.buffer import PrioritizedReplayBuffer, ReplayBuffer

__all__ = ["PrioritizedReplayBuffer", "ReplayBuffer"]
