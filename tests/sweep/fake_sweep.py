"""A sweep that never ran: sixty trials as ASHA would leave them, for what shows sweeps."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from rayfish.sweep.records import DONE, FAILED, RUNNING, STOPPED, Trial
from rayfish.sweep.settings import Search
from rayfish.sweep.space import Space, parameters_in
from rayfish.sweep.view import SweepView

SPACE: dict[str, Any] = {
    "training.lr": "loguniform(1e-5,1e-2)",
    "training.gamma": "uniform(0.9,0.999)",
    "training.model.fcnet_hiddens": {
        "type": "choice",
        "values": [[64], [64, 64], [128, 128], [256, 256, 256]],
    },
    "algo.name": "choice(PPO,APPO,IMPALA)",
    "training.model.use_lstm": "choice(true,false)",
    "training.model.lstm_cell_size": {
        "type": "lograndint",
        "values": [16, 257],
        "when": {"training.model.use_lstm": True},
    },
}


def score_of(params: dict[str, Any]) -> float:
    """A landscape with one good place: a middling learning rate, a large discount, PPO a little ahead."""
    lr = math.exp(-((math.log10(params.get("training.lr", 1e-3)) + 3.3) ** 2) / 0.6)
    gamma = (params.get("training.gamma", 0.95) - 0.9) / 0.1
    algo = {"PPO": 1.0, "APPO": 0.92, "IMPALA": 0.8}.get(params.get("algo.name"), 1.0)
    return 20 + 470 * lr * (0.55 + 0.45 * gamma) * algo


def trial(number: int, params: dict[str, Any], rng: np.random.Generator, *, length: int = 40, **changes: Any):
    """A trial that has ended, with the curve of a training run."""
    best = score_of(params) * float(rng.normal(1, 0.04))
    steps = np.arange(1, length + 1)
    values = 20 + (best - 20) / (1 + np.exp(-(steps - 16) / 5)) + rng.normal(0, 5, length)
    begun = 1_780_000_000 + 12.0 * number
    made = Trial(
        number,
        f"{number:03d}",
        params,
        point=number,
        state=DONE,
        value=float(values[-1]),
        step=float(length),
        curve=[(float(s), float(v)) for s, v in zip(steps, values, strict=True)],
        seconds=1.4 * length,
        attempt=1,
        started=begun,
        ended=begun + 1.4 * length,
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def sweep(
    folder: Path | str = "runs/cartpole/20260530-101500-ab12",
    *,
    count: int = 60,
    failed: int = 3,
    running: int = 0,
    repeat: int = 1,
    space: dict[str, Any] | Space | None = None,
    total: int | None = None,
    **settings: Any,
) -> SweepView:
    """So many trials; the last of them fail or still run, most of the others were stopped early."""
    rng = np.random.default_rng(7)
    space = space if isinstance(space, Space) else parameters_in(SPACE if space is None else space)
    trials: dict[int, Trial] = {}
    params: dict[str, Any] = {}
    for number in range(1, count + 1):
        if (number - 1) % repeat == 0:
            params = space.completed({}, rng)
        place = (number - 1) // repeat + 1
        if number > count - running:
            made = trial(number, params, rng, length=int(rng.integers(2, 30)), state=RUNNING, ended=None)
        elif number > count - running - failed:
            error = "ValueError: The parameter loc has invalid values: tensor([nan, nan]) <b>not html</b>"
            made = trial(
                number, params, rng, state=FAILED, error=error, value=None, curve=[], seconds=3.2, step=0
            )
        else:
            promising = score_of(params) > 200
            length = 40 if promising else int(rng.choice([4, 8, 16]))
            state = DONE if promising else STOPPED
            made = trial(number, params, rng, length=length, state=state)
            made.why = "" if promising else f"ASHA: below the upper third at iteration {length}"
        made.point, made.seed = place, number if repeat > 1 else None
        trials[number] = made
    settings = {"method": "optuna", "scheduler": "asha", "repeat": repeat} | settings
    return SweepView(
        title="cartpole · PPO on CartPole-v1",
        folder=Path(folder),
        search=Search(**settings),
        space=space,
        trials=trials,
        metric="rollout/return_mean",
        time="run/iteration",
        total=count if total is None else total,
        begun=time.time() - 614,
        seconds=614.0,
        running=running,
        slots=max(4, running),
    )
