"""Hand-written gradients of PPO, DQN and SAC: CPU time per minibatch, on and off.

    python benchmarks/gradients.py      # prints and writes benchmarks/results/gradients.json

Each preset is trained with its hand-written passes (on) and with autograd of `ppo_loss`, or of the networks
of DQN and SAC, in their place (off), both in turn in one process; medians of the iterations. CPU time (user
and system) of this process in the optimizer steps, one thread. Takes about a minute.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["OMP_NUM_THREADS"] = "1"

import torch

import rayfish
from rayfish.algorithm.batched import off_policy_networks, ppo
from rayfish.algorithm.batched.dqn import DQN
from rayfish.algorithm.batched.sac import SAC

ROUNDS = 9
PRESETS: dict[str, tuple[str, type, str]] = {
    "PPO, the cartpole preset": ("cartpole", ppo.PPO, "step"),
    "DQN, the cartpole-dqn preset": ("cartpole-dqn", DQN, "update"),
    "SAC, the pendulum preset": ("pendulum", SAC, "update"),
}
"""What is measured: the preset, the learner, and its method that learns from one minibatch."""


def autograd_step(
    self: ppo.PPO, minibatch: ppo.Batch, settings: ppo.PPOSettings, rate: Any = None
) -> Callable[[], dict[str, torch.Tensor]]:
    """`PPO.step` as one would write it without closed-form gradients."""
    outputs = self._outputs(minibatch.inputs, minibatch.state)
    loss, metrics = ppo.ppo_loss(self.dist, *outputs, minibatch, settings)
    self.optimiser.gradient.zero_()
    loss.backward()
    self.optimiser.clip(settings.grad_clip, settings.grad_clip_by)
    self.optimiser.step(rate)
    return lambda: metrics


@contextmanager
def hand_written(on: bool) -> Iterator[None]:
    """With `on` false, learners that are built or trained meanwhile use autograd."""
    with ExitStack() as patches:
        if not on:
            patches.enter_context(patch.object(ppo, "fused", lambda net: None))
            patches.enter_context(patch.object(ppo.PPO, "step", autograd_step))
            patches.enter_context(patch.object(off_policy_networks, "is_plain", lambda *networks: False))
        yield


def per_minibatch(trainer: rayfish.Trainer, learner: type, method: str) -> float:
    """CPU milliseconds of one iteration's optimizer steps, per minibatch."""
    spent: list[float] = []
    learn = getattr(learner, method)

    def timed(*args: Any, **kwargs: Any) -> Any:
        begun = time.process_time()
        result = learn(*args, **kwargs)
        spent.append(time.process_time() - begun)
        return result

    with patch.object(learner, method, timed):
        while not spent:
            trainer.step()
    return 1000 * sum(spent) / len(spent)


def measure(preset: str, learner: type, method: str) -> dict[str, float]:
    """Milliseconds per minibatch on and off, and how many times as fast the hand-written passes are."""
    with ExitStack() as open_:
        trainers = {}
        for on in (True, False):
            with hand_written(on):
                trainers[on] = open_.enter_context(rayfish.Trainer(preset, "debugging.seed=1"))
                per_minibatch(trainers[on], learner, method)  # warm up
        found: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(ROUNDS):
            for on, trainer in trainers.items():
                with hand_written(on):
                    found[on].append(per_minibatch(trainer, learner, method))
    on_ms, off_ms = statistics.median(found[True]), statistics.median(found[False])
    ratio = statistics.median(off / on for on, off in zip(found[True], found[False], strict=True))
    return {"on_ms": round(on_ms, 3), "off_ms": round(off_ms, 3), "ratio": round(ratio, 2)}


def main() -> None:
    """Measures, prints and writes."""
    torch.set_num_threads(1)
    results = {}
    for name, (preset, learner, method) in PRESETS.items():
        results[name] = found = measure(preset, learner, method)
        print(f"{name}: {found['on_ms']} ms on, {found['off_ms']} ms off: {found['ratio']} times as fast")
    path = Path(__file__).resolve().parent / "results" / "gradients.json"
    path.write_text(json.dumps({"torch": torch.__version__, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
