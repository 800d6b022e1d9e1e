"""Rayfish: an environment and an experiment file become a trained, measured, reproducible agent.

    import rayfish

    run = rayfish.train("cartpole", "training.lr=3e-4")     # a whole run; returns its folder
    agent = rayfish.load(run)                               # the trained policy, without Ray
    action = agent.act(observation)

    with rayfish.Trainer("cartpole") as trainer:            # or iteration by iteration
        result = trainer.step()

Everything is imported on first use, so that `import rayfish` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Experiment": "rayfish.experiment",
    "RayfishError": "rayfish.errors",
    "Trainer": "rayfish.run.trainer",
    "evaluate": "rayfish.run.evaluate",
    "load": "rayfish.run.policy",
    "load_sweep": "rayfish.sweep.outcome",
    "rollout": "rayfish.run.rollout",
    "train": "rayfish.run.train",
    "tune": "rayfish.sweep.tune",
    "view": "rayfish.run.view",
}

__all__ = [
    "Experiment",
    "RayfishError",
    "Trainer",
    "__version__",
    "evaluate",
    "load",
    "load_sweep",
    "rollout",
    "train",
    "tune",
    "view",
]

if TYPE_CHECKING:
    from rayfish.errors import RayfishError
    from rayfish.experiment import Experiment
    from rayfish.run.evaluate import evaluate
    from rayfish.run.policy import load
    from rayfish.run.rollout import rollout
    from rayfish.run.train import train
    from rayfish.run.trainer import Trainer
    from rayfish.run.view import view
    from rayfish.sweep.outcome import load_sweep
    from rayfish.sweep.tune import tune


def __getattr__(name: str) -> Any:
    if name == "sweep":  # rayfish.sweep.report(...) in a function that is tuned
        return import_module("rayfish.sweep")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'rayfish' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
