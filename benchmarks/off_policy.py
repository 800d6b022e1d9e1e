"""DQN and SAC: CPU seconds per 1000 env steps, the batched path against RLlib's own at the same settings.

    python benchmarks/off_policy.py         # prints and writes benchmarks/results/off_policy.json

Each setting is trained on both paths in turn, in one process, over the same number of steps after learning
has begun; medians of the pieces. CPU time (user and system) of this process, one thread: what others do on
the machine hardly changes it. With Stable-Baselines3 installed (the `bench` extra) its DQN and SAC are
measured at the same network, batch and updates per step. Claim: at least 5 times RLlib stock, and ahead of
Stable-Baselines3. Takes about 3 minutes.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import rayfish

ROOT = Path(__file__).resolve().parent
PIECES = 5
UNIFORM = "training.replay_buffer_config.type=EpisodeReplayBuffer"
ONE_ENV = ("rollouts.num_envs_per_env_runner=1", "training.n_step=1", UNIFORM)
PLAIN_DQN = (
    "training.train_batch_size_per_learner=64",
    "training.training_intensity=32",
    "training.model.fcnet_hiddens=[256,256]",
    "training.model.fcnet_activation=relu",
    "training.dueling=false",
    "training.double_q=false",
)
SETTINGS = {
    "DQN, the cartpole-dqn preset": ("cartpole-dqn", 500, ()),
    "DQN, 1 env, batch 64, 256x256, an update per 2 steps": ("cartpole-dqn", 256, (*ONE_ENV, *PLAIN_DQN)),
    "DQN, the same, in rounds of 256 steps and 128 updates (the zoo's)": (
        "cartpole-dqn",
        256,
        (*ONE_ENV, *PLAIN_DQN, "rollouts.rollout_fragment_length=256"),
    ),
    "SAC, the pendulum preset": ("pendulum", 400, ()),
    "SAC, 1 env, batch 256, 256x256, an update per step": (
        "pendulum",
        120,
        (*ONE_ENV, "training.training_intensity=256"),
    ),
}
"""What is measured: the preset, env steps of a piece, and more words."""

PEERS = {
    "DQN, 1 env, batch 64, 256x256, an update per 2 steps": ("DQN", {"train_freq": 2}),
    "DQN, the same, in rounds of 256 steps and 128 updates (the zoo's)": (
        "DQN",
        {"train_freq": 256, "gradient_steps": 128},
    ),
    "SAC, 1 env, batch 256, 256x256, an update per step": ("SAC", {"train_freq": 1}),
}
"""What Stable-Baselines3 is measured beside: its algorithm and when it learns."""


def trained(preset: str, words: tuple[str, ...], runner: str, open_: ExitStack) -> Callable[[], float]:
    """A trainer past its first updates; a call trains an iteration: CPU seconds per 1000 steps."""
    trainer = open_.enter_context(
        rayfish.Trainer(preset, *words, f"rollouts.runner={runner}", "debugging.seed=1",
                        "training.num_steps_sampled_before_learning_starts=300")
    )  # fmt: skip
    while trainer.metrics.get("run/env_steps", 0) < 400:
        trainer.step()

    def piece() -> float:
        steps, begun = trainer.metrics["run/env_steps"], time.process_time()
        trainer.step()
        return 1000 * (time.process_time() - begun) / (trainer.metrics["run/env_steps"] - steps)

    return piece


def by_peer(algorithm: str, when: dict[str, int], steps: int) -> float | None:
    """CPU seconds per 1000 steps of Stable-Baselines3; None where it is not installed."""
    try:
        import stable_baselines3
    except ImportError:
        return None
    import torch

    torch.set_num_threads(1)
    common = {"learning_starts": 300, "policy_kwargs": {"net_arch": [256, 256]}, "verbose": 0, "seed": 1}
    if algorithm == "DQN":
        agent = stable_baselines3.DQN("MlpPolicy", "CartPole-v1", batch_size=64, **when, **common)
    else:
        agent = stable_baselines3.SAC("MlpPolicy", "Pendulum-v1", batch_size=256, **when, **common)
    agent.learn(400)
    begun = time.process_time()
    agent.learn(steps, reset_num_timesteps=False)
    return 1000 * (time.process_time() - begun) / steps


def main() -> None:
    """Measures, prints and writes the result file."""
    found = {}
    for name, (preset, steps, words) in SETTINGS.items():
        more = (*words, f"reporting.min_sample_timesteps_per_iteration={steps}")
        with ExitStack() as open_:
            ours, stock = (trained(preset, more, runner, open_) for runner in ("batched", "rllib"))
            pieces = [(ours(), stock()) for _ in range(PIECES)]
        mine, theirs = (statistics.median(piece[index] for piece in pieces) for index in (0, 1))
        row = {"rayfish": round(mine, 2), "rllib": round(theirs, 2), "times": round(theirs / mine, 2)}
        peer = by_peer(*PEERS[name], 5 * steps) if name in PEERS else None
        if peer is not None:
            row |= {"stable_baselines3": round(peer, 2), "times_sb3": round(peer / mine, 2)}
        found[name] = row
        print(f"{name}: {row}", flush=True)
    result = {
        "command": "python benchmarks/off_policy.py",
        "unit": "CPU seconds per 1000 env steps, one thread",
        "versions": {package: version(package) for package in ("ray", "torch")},
        "settings": found,
    }
    text = json.dumps(result, indent=2) + "\n"
    (ROOT / "results" / "off_policy.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
