"""The batched loop on a GPU, without Ray: environment steps per second, and the time to a return of 475.

    python benchmarks/gpu.py            # prints, and writes benchmarks/results/gpu.json

Thousands of CartPoles in torch (examples/gpu/torch_cartpole.py) are stepped and learnt from on one GPU by
the same sampler, network, advantage estimation and minibatch code as on a CPU: two 64x64 tanh networks,
32 steps per rollout, 4 epochs of 8 minibatches. Needs torch, gymnasium and NumPy alone. Steps per second
are medians over blocks of iterations, after the graphs were recorded; goals: 20 million with 65,536
copies, 6 million with 8,192. "eager" is the same without recorded graphs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import deque
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT.parent / "src"), str(ROOT.parent / "examples" / "gpu")]

from torch_cartpole import TorchCartPole  # noqa: E402

from rayfish.algorithm.batched import graphs, ppo  # noqa: E402
from rayfish.algorithm.batched.actors import ActorCriticActor  # noqa: E402
from rayfish.algorithm.batched.gpu_sampler import ResidentSampler, ResidentVector  # noqa: E402
from rayfish.models.build import actor_critic  # noqa: E402
from rayfish.models.options import resolve  # noqa: E402

STEPS, EPOCHS, MINIBATCHES, GOAL = 32, 4, 8, 475.0


class Loop:
    """One agent being trained: the sampler, the learner, and the window of the last 100 episodes."""

    def __init__(self, copies: int, device: str, seed: int, lr: float) -> None:
        torch.manual_seed(seed)
        env = TorchCartPole(copies, device=device)
        model = resolve({"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh", "vf_share_layers": False})
        actions = env.single_action_space
        net = actor_critic(env.single_observation_space, actions, model, critic=True).to(device)
        self.vector = ResidentVector(env)
        self.sampler = ResidentSampler(self.vector, ActorCriticActor(net, actions))
        self.learner = ppo.PPO(net, actions, torch.optim.Adam(net.parameters(), lr=lr))
        self.settings = ppo.PPOSettings(
            gamma=0.99,
            lambda_=0.95,
            clip_param=0.2,
            vf_clip_param=1e6,
            vf_loss_coeff=0.5,
            num_epochs=EPOCHS,
            minibatch_size=copies * STEPS // MINIBATCHES,
        )
        self.window: deque[float] = deque(maxlen=100)
        self.sampler.reset(seed)

    def iterate(self) -> None:
        """One rollout and its update."""
        rollout = self.sampler.collect(STEPS)
        self.learner.update([rollout], self.settings)
        self.window.extend(self.vector.take_finished().returns)

    @property
    def mean(self) -> float:
        """The mean return of the last 100 finished episodes; 0 before there are so many."""
        return statistics.fmean(self.window) if len(self.window) == 100 else 0.0


def speed(copies: int, device: str, iterations: int, blocks: int) -> float:
    """Environment steps per second."""
    loop = Loop(copies, device, seed=0, lr=1e-3)
    for _ in range(4):
        loop.iterate()
    rates = []
    for _ in range(blocks):
        synchronise(device)
        begun = time.perf_counter()
        for _ in range(iterations):
            loop.iterate()
        synchronise(device)
        rates.append(iterations * STEPS * copies / (time.perf_counter() - begun))
    return statistics.median(rates)


def solve(copies: int, device: str, seed: int, limit_s: float) -> dict[str, float]:
    """Seconds and steps until the last 100 episodes have a mean return of 475."""
    loop = Loop(copies, device, seed, lr=2e-3)
    synchronise(device)
    begun, iterations = time.perf_counter(), 0
    while loop.mean < GOAL and time.perf_counter() - begun < limit_s:
        loop.iterate()
        iterations += 1
    seconds = time.perf_counter() - begun
    return {"return": round(loop.mean, 1), "seconds": round(seconds, 2), "steps": iterations * STEPS * copies}


def profile(copies: int, device: str, iterations: int = 10) -> dict[str, float]:
    """Milliseconds per iteration of the parts: sampling, and learning."""
    loop = Loop(copies, device, seed=0, lr=1e-3)
    for _ in range(4):
        loop.iterate()
    spent = {"sample_ms": 0.0, "batch_ms": 0.0, "learn_ms": 0.0}
    for _ in range(iterations):
        synchronise(device)
        times = [time.perf_counter()]
        rollout = loop.sampler.collect(STEPS)
        synchronise(device)
        times.append(time.perf_counter())
        loop.learner.batch([rollout], loop.settings)
        synchronise(device)
        times.append(time.perf_counter())
        loop.learner.update([rollout], loop.settings)
        synchronise(device)
        times.append(time.perf_counter())
        for name, start, end in zip(spent, times, times[1:], strict=False):
            spent[name] += 1000 * (end - start) / iterations
    spent["learn_ms"] -= spent["batch_ms"]
    return {name: round(value, 2) for name, value in spent.items()}


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Measures, prints and writes the result file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, nargs="+", default=[8192, 65536])
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "gpu.json")
    arguments = parser.parse_args()
    device = arguments.device
    found: dict[str, object] = {
        "command": "python benchmarks/gpu.py",
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "settings": f"64x64 tanh, T={STEPS}, {EPOCHS} epochs of {MINIBATCHES} minibatches, float32",
    }
    for copies in arguments.copies:
        rate = speed(copies, device, arguments.iterations, blocks=5)
        parts = profile(copies, device)
        graphs._BEFORE_RECORDING = 10**9
        eager = speed(copies, device, max(2, arguments.iterations // 4), blocks=3)
        graphs._BEFORE_RECORDING = 2
        found[str(copies)] = {"steps_per_s": round(rate), "eager_steps_per_s": round(eager), **parts}
        rates = f"{rate / 1e6:6.2f} M steps/s (eager {eager / 1e6:.2f} M)"
        print(f"{copies:7,} copies: {rates}  {parts}", flush=True)
    found["solve"] = [solve(arguments.copies[0], device, seed, limit_s=60.0) for seed in range(3)]
    for line in found["solve"]:
        print(f"return 475 with {arguments.copies[0]:,} copies: {line}", flush=True)
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
