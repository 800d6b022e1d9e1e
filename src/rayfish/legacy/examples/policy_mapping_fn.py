"""The mapping that old files with several agents name: agent 0 uses p0, agent 1 uses p1, and so on."""

from __future__ import annotations

from typing import Any


class PolicyMappingFn:
    """A mapping function as a class, which a YAML file can name."""

    def __call__(self, agent_id: Any, episode: Any = None, worker: Any = None, **kwargs: Any) -> str:
        """The policy of the agent's own number."""
        return f"p{agent_id}"
