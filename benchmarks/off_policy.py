"""DQN and SAC: CPU seconds per 1000 env steps, the batched path against RLlib's own at the same settings.

    python benchmarks/off_policy.py             # prints and writes benchmarks/results/off_policy.json
    python benchmarks/off_policy.py --remote    # one remote env runner against none: off_policy_remote.json

Each setting is trained on both paths in turn, in one process, over the same number of steps after learning
has begun; medians of the pieces. CPU time (user and system) of this process, one thread: what others do on
the machine hardly changes it. With Stable-Baselines3 installed (the `bench` extra) its DQN and SAC are
measured at the same network, batch and updates per step. Claim: at least 5 times RLlib stock, and ahead of
Stable-Baselines3. Takes about 3 minutes.

With `--remote` the steps per second of a run with one remote env runner are divided by those of a run that
samples in its own process; both take turns of one iteration, and the median of the ratios counts. Claim: at
least 0.9. It needs two free cores: a remote runner gains nothing where there is only one.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
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


REMOTE = {
    "DQN, the cartpole-dqn preset": ("cartpole-dqn", 2000),
    "DQN, RLlib's defaults (1 env, batch 32, 256x256, an update per step)": (
        "algo.name=DQN",
        500,
        "environment.env=CartPole-v1",
    ),
    "SAC, the pendulum preset": ("pendulum", 1000),
    "SAC, RLlib's defaults (1 env, batch 256, 256x256, an update per step)": (
        "algo.name=SAC",
        100,
        "environment.env=Pendulum-v1",
    ),
}
"""What is measured with `--remote`: the experiment, env steps of an iteration, and more words."""
TURNS = 9


def remote_ratio(preset: str, steps: int, words: tuple[str, ...]) -> dict[str, float]:
    """Steps per second with a runner in this process and with a remote one, and the ratio of the two."""
    with ExitStack() as open_:
        common = (
            preset, *words, "debugging.seed=1", f"reporting.min_sample_timesteps_per_iteration={steps}",
            "training.num_steps_sampled_before_learning_starts=300",
        )  # fmt: skip
        trainers = [
            open_.enter_context(rayfish.Trainer(*common, f"rollouts.num_env_runners={runners}"))
            for runners in (0, 1)
        ]
        for trainer in trainers:
            while trainer.metrics.get("run/env_steps", 0) < 400:
                trainer.step()
        turns = [tuple(_steps_per_s(trainer) for trainer in trainers) for _ in range(TURNS)]
    local, remote = (statistics.median(column) for column in zip(*turns, strict=True))
    ratios = sorted(there / here for here, there in turns)
    return {
        "local_steps_per_s": round(local),
        "remote_steps_per_s": round(remote),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_min": round(ratios[0], 2),
        "ratio_max": round(ratios[-1], 2),
    }


def _steps_per_s(trainer: rayfish.Trainer) -> float:
    before, begun = trainer.metrics["run/env_steps"], time.perf_counter()
    trainer.step()
    return (trainer.metrics["run/env_steps"] - before) / (time.perf_counter() - begun)


def remote() -> None:
    """Measures one remote runner against none."""
    found = {}
    for name, (preset, steps, *words) in REMOTE.items():
        found[name] = remote_ratio(preset, steps, tuple(words))
        print(f"{name}: {found[name]}", flush=True)
    _write("off_policy_remote", "--remote", "env steps per second, median of turns", found)


def main() -> None:
    """Measures, prints and writes the result file."""
    if "--remote" in sys.argv[1:]:
        remote()
        return
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
    _write("off_policy", "", "CPU seconds per 1000 env steps, one thread", found)


def _write(name: str, option: str, unit: str, found: dict[str, dict[str, float]]) -> None:
    result = {
        "command": f"python benchmarks/off_policy.py {option}".rstrip(),
        "unit": unit,
        "versions": {package: version(package) for package in ("ray", "torch")},
        "load_average": round(os.getloadavg()[0], 1),
        "settings": found,
    }
    text = json.dumps(result, indent=2) + "\n"
    (ROOT / "results" / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
