"""Peer: sbx (Stable-Baselines3's algorithms in JAX) with the RL Baselines3 Zoo's settings (see `zoo.py`).

    python benchmarks/peers/sbx_zoo.py --task cartpole --seed 1 --threads 1

sbx's PPO has no state-dependent exploration ("not properly implemented", its source says), so Pendulum's
`use_sde` is left out there. Compiling counts as training, as a user waits for it.
"""

from __future__ import annotations

import sys

from common import read_words

words = read_words(__doc__ or "")
sys.modules["gym"] = None  # type: ignore[assignment]  # Stable-Baselines3 would load the old Gym, if it is there

import sbx  # noqa: E402  (threads are set before the libraries are loaded)
import zoo  # noqa: E402

if __name__ == "__main__":
    zoo.train(sbx, words, without=("use_sde", "sde_sample_freq"))
