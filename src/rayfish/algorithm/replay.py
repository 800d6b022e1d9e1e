"""Replay buffers for several agents: RLlib's, with figures that can be saved whatever agents are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.rllib.utils.replay_buffers.multi_agent_episode_buffer import MultiAgentEpisodeReplayBuffer
from ray.rllib.utils.replay_buffers.multi_agent_prioritized_episode_buffer import (
    MultiAgentPrioritizedEpisodeReplayBuffer,
)


class _NamedFigures:
    """RLlib reports by agent id, and cannot save a report by ids that are numbers."""

    def get_metrics(self) -> Any:
        """What the buffer counts, by names."""
        return _named(super().get_metrics())  # type: ignore[misc]


class AgentsReplay(_NamedFigures, MultiAgentEpisodeReplayBuffer):
    """Drawn from evenly."""


class AgentsPrioritizedReplay(_NamedFigures, MultiAgentPrioritizedEpisodeReplayBuffer):
    """Drawn from by how much there is to learn."""


def name_figures(buffer: Any) -> None:
    """Makes RLlib's buffer for several agents one with names; RLlib's checks accept its own classes only."""
    for kind in (AgentsPrioritizedReplay, AgentsReplay):
        if type(buffer) is kind.__mro__[2]:
            buffer.__class__ = kind


def _named(figures: Any) -> Any:
    if not isinstance(figures, Mapping):
        return figures
    return {str(key): _named(value) for key, value in figures.items()}
