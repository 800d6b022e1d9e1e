"""Names of algorithms: in any case, and those that RLlib has dropped. RLlib's own are in `sections`."""

from __future__ import annotations

from collections.abc import Iterable

CLOSEST: dict[str, str] = {
    "A2C": "PPO",
    "A3C": "IMPALA",
    "PG": "PPO",
    "DDPPO": "PPO",
    "DDPG": "SAC",
    "TD3": "TQC",
    "ApexDDPG": "SAC",
    "APEX_DDPG": "SAC",
    "ApexDQN": "DQN",
    "APEX_DQN": "DQN",
    "APEX": "DQN",
    "R2D2": "DQN",
    "SimpleQ": "DQN",
    "Rainbow": "DQN",
    "RNNSAC": "SAC",
    "QMIX": "PPO",
    "MADDPG": "SAC",
    "MAML": "PPO",
    "MBMPO": "DreamerV3",
    "Dreamer": "DreamerV3",
    "ES": "PPO",
    "ARS": "PPO",
    "SlateQ": "DQN",
    "CRR": "CQL",
    "DT": "BC",
    "AlphaZero": "PPO",
    "LeelaChessZero": "PPO",
    "AlphaStar": "APPO",
    "BanditLinUCB": "DQN",
    "BanditLinTS": "DQN",
    "LinUCB": "DQN",
    "LinTS": "DQN",
    "RandomAgent": "PPO",
}
"""Algorithms RLlib has dropped -> the closest one it still has."""


def spelled(name: object, names: Iterable[str]) -> str | None:
    """A name as `names` spells it, whatever its case; None where it is not among them."""
    return next((known for known in names if known.lower() == str(name).lower()), None)
