"""Results that RLlib 2.60 gave in real runs, recorded without their connectors' detail timers."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

NAMES = ("ppo_local", "ppo_two_runners", "dqn", "sac", "impala", "ppo_multi_agent", "ppo_no_episode")


@cache
def results(name: str) -> list[dict[str, Any]]:
    """The results of successive iterations of one run."""
    return json.loads((Path(__file__).parent / "data" / f"{name}.json").read_text())


def lines(name: str) -> list[dict[str, float]]:
    """What a new Collector makes of them."""
    from rayfish.metrics.collect import Collector

    collector, now, out = Collector(), 0.0, []
    for result in results(name):
        now += result["time_this_iter_s"]
        out.append(collector.update(result, now))
    return out
