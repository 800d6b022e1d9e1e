"""Agents that build lines while a wildfire spreads: simulator, environments, baselines, pictures.

Once this is imported, `gymnasium.make("rayfish/Wildfire-v0")` and `gymnasium.make_vec` find the environment.
"""

from __future__ import annotations

import gymnasium as gym

from rayfish.worlds.wildfire.env.env import WildfireEnv, WildfireVectorEnv
from rayfish.worlds.wildfire.env.options import LANDSCAPES, Options
from rayfish.worlds.wildfire.fire.rothermel import surface_fire
from rayfish.worlds.wildfire.fire.scenarios import ScenarioSet
from rayfish.worlds.wildfire.fire.simulator import Simulator

WILDFIRE = "rayfish/Wildfire-v0"
"""The environment's Gymnasium id."""

if WILDFIRE not in gym.registry:
    gym.register(
        WILDFIRE,
        entry_point="rayfish.worlds.wildfire.env.env:WildfireEnv",
        vector_entry_point="rayfish.worlds.wildfire.env.env:WildfireVectorEnv",
    )

__all__ = [
    "LANDSCAPES",
    "WILDFIRE",
    "Options",
    "ScenarioSet",
    "Simulator",
    "WildfireEnv",
    "WildfireVectorEnv",
    "surface_fire",
]
