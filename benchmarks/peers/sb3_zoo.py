"""Peer: Stable-Baselines3 with the RL Baselines3 Zoo's settings (see `zoo.py`).

python benchmarks/peers/sb3_zoo.py --task cartpole --seed 1 --threads 1
"""

from __future__ import annotations

import sys

from common import read_words

words = read_words(__doc__ or "")
sys.modules["gym"] = None  # type: ignore[assignment]  # Stable-Baselines3 would load the old Gym, if it is there

import stable_baselines3  # noqa: E402  (threads are set before the libraries are loaded)
import zoo  # noqa: E402

if __name__ == "__main__":
    zoo.train(stable_baselines3, words)
