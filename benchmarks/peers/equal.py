"""PPO on Gymnasium's native CartPole vector at equal network, batch, minibatch and epochs: Rayfish and RLlib.

    python benchmarks/speed.py --equal          # or this file; writes benchmarks/results/speed-equal.json

Takes nothing; gives steady env steps per second of both. 64x64 tanh, separate networks, batch 8192, minibatch
512, 4 epochs. First RLlib's best env count and vectorisation are found, and Rayfish's env count; then the
best of each take turns in this one process, one iteration each, so that the machine's noise hits all alike.
Two more take turns beside them: Rayfish's CartPole preset as it is shipped, and RLlib's PPO with nothing set
but the environment. Medians over the rounds. Takes about 4 minutes.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # small matrices: one thread is the best for both (see the search)
warnings.filterwarnings("ignore")

import rayfish  # noqa: E402

BATCH, MINIBATCH, EPOCHS = 8192, 512, 4
STOCK = [("sync", n) for n in (1, 8, 16, 32, 64, 128, 256)]
STOCK += [("vector_entry_point", n) for n in (8, 16, 32, 64, 128, 256)]
FISH = (64, 128, 256, 512)
WARM_UP, TRIES, ROUNDS = 2, 3, 25
DEFAULTS = "own defaults"
RESULT = Path(__file__).resolve().parent.parent / "results" / "speed-equal.json"
Step = Callable[[], int]


def stock(open_: ExitStack, vectorize: str, envs: int) -> Step:
    """RLlib by hand; a step gives the env steps made so far."""
    from ray.rllib.algorithms.ppo import PPOConfig

    config = PPOConfig().environment("CartPole-v1").debugging(seed=1, log_level="ERROR")
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=envs, gym_env_vectorize_mode=vectorize)
    config.training(
        train_batch_size_per_learner=BATCH, minibatch_size=MINIBATCH, num_epochs=EPOCHS, vf_clip_param=1e6
    )
    config.rl_module(
        model_config={"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh", "vf_share_layers": False}
    )
    algorithm = config.build_algo()
    open_.callback(algorithm.stop)
    return lambda: int(algorithm.train()["num_env_steps_sampled_lifetime"])


def fish(open_: ExitStack, runner: str, envs: int) -> Step:
    """Rayfish with the same numbers; a step gives the env steps made so far."""
    trainer = open_.enter_context(
        rayfish.Trainer(
            "cartpole",
            f"rollouts.runner={runner}",
            f"rollouts.num_envs_per_env_runner={envs}",
            f"training.train_batch_size_per_learner={BATCH}",
            f"training.minibatch_size={MINIBATCH}",
            f"training.num_epochs={EPOCHS}",
            "training.lr=5e-5",
            "training.lambda_=1.0",
            "training.model.fcnet_hiddens=[64,64]",
            "training.model.fcnet_activation=tanh",
            "training.model.vf_share_layers=false",
            "debugging.seed=1",
        )
    )
    return lambda: int(trainer.step()["run/env_steps"])


def stock_defaults(open_: ExitStack) -> Step:
    """RLlib's PPO as it comes: its own batch, network and two remote runners."""
    from ray.rllib.algorithms.ppo import PPOConfig

    algorithm = PPOConfig().environment("CartPole-v1").debugging(seed=1, log_level="ERROR").build_algo()
    open_.callback(algorithm.stop)
    return lambda: int(algorithm.train()["num_env_steps_sampled_lifetime"])


def fish_defaults(open_: ExitStack) -> Step:
    """Rayfish's CartPole preset as it comes."""
    trainer = open_.enter_context(rayfish.Trainer("cartpole", "debugging.seed=1"))
    return lambda: int(trainer.step()["run/env_steps"])


class Timed:
    """A variant and the seconds and env steps of its iterations.

    :param step: makes one iteration and gives the env steps made so far
    """

    def __init__(self, step: Step) -> None:
        self.step, self.before = step, 0
        self.seconds: list[float] = []
        self.speeds: list[float] = []

    def iterate(self) -> None:
        """One timed iteration."""
        begun = time.perf_counter()
        total = self.step()
        took = time.perf_counter() - begun
        self.seconds.append(took)
        self.speeds.append((total - self.before) / took)
        self.before = total

    def median(self, last: int) -> tuple[float, float]:
        """Steps per second and seconds per iteration of the last iterations."""
        return statistics.median(self.speeds[-last:]), statistics.median(self.seconds[-last:])


def tried(make: Callable[[ExitStack], Step]) -> float:
    """Steps per second of a variant alone, for the search."""
    with ExitStack() as open_:
        timed = Timed(make(open_))
        for _ in range(WARM_UP + TRIES):
            timed.iterate()
        return timed.median(TRIES)[0]


def batched_runner() -> str:
    """`batched`, or `auto` with a word about it where this Rayfish refuses it."""
    try:
        with rayfish.Trainer("cartpole", "rollouts.runner=batched") as trainer:
            trainer.step()
    except rayfish.RayfishError as error:
        print(f"rollouts.runner=batched is refused, measuring auto: {str(error).splitlines()[0]}")
        return "auto"
    return "batched"


def main() -> None:
    """Searches, measures in turns, prints and writes the result."""
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    runner = batched_runner()
    found: dict[tuple[str, str, int], float] = {}
    for vectorize, envs in STOCK:
        found["stock", vectorize, envs] = tried(partial(stock, vectorize=vectorize, envs=envs))
        print(f"  RLlib stock, {vectorize}, {envs} envs: {found['stock', vectorize, envs]:,.0f} steps/s")
    for envs in FISH:
        found["rayfish", runner, envs] = tried(partial(fish, runner=runner, envs=envs))
        print(f"  Rayfish, {runner}, {envs} envs: {found['rayfish', runner, envs]:,.0f} steps/s")
    best = {
        group: max((key for key in found if key[:2] == group), key=lambda key: found[key])
        for group in {key[:2] for key in found}
    }
    rows = in_turns(list(best.values()))
    write(rows, found, runner)
    ray.shutdown()


def in_turns(variants: list[tuple[str, str, int]]) -> list[dict[str, Any]]:
    """The best of each kind, one iteration each, round after round."""
    with ExitStack() as open_:
        timed = {key: Timed((stock if key[0] == "stock" else fish)(open_, *key[1:])) for key in variants}
        timed["rayfish", DEFAULTS, 256] = Timed(fish_defaults(open_))
        timed["stock", DEFAULTS, 1] = Timed(stock_defaults(open_))
        for _ in range(WARM_UP + ROUNDS):
            for one in timed.values():
                one.iterate()
        rows = []
        for (who, how, envs), one in timed.items():
            speed, seconds = one.median(ROUNDS)
            title = "Rayfish" if who == "rayfish" else "RLlib stock"
            rows.append(
                {
                    "variant": f"{title}, {how}, {envs} envs",
                    "who": who,
                    "defaults": how == DEFAULTS,
                    "steps_per_s": round(speed, 1),
                    "seconds": seconds,
                }
            )
    return sorted(rows, key=lambda row: -row["steps_per_s"])


def write(rows: list[dict[str, Any]], found: dict[tuple[str, str, int], float], runner: str) -> None:
    """Prints the rows and writes the result file."""
    best = {
        (who, own): max(
            (row for row in rows if (row["who"], row["defaults"]) == (who, own)),
            key=lambda row: row["steps_per_s"],
        )
        for who in ("rayfish", "stock")
        for own in (False, True)
    }
    speed = {key: row["steps_per_s"] for key, row in best.items()}
    result = {
        "command": "python benchmarks/speed.py --equal",
        "what": f"64x64 tanh, separate networks, batch {BATCH}, minibatch {MINIBATCH}, {EPOCHS} epochs; "
        f"median of {ROUNDS} iterations in turns, in one process.",
        "runner": runner,
        "rows": rows,
        "best_stock": best["stock", False]["variant"],
        "ratio": round(speed["rayfish", False] / speed["stock", False], 2),
        "preset_over_equal_stock": round(speed["rayfish", True] / speed["stock", False], 2),
        "preset_over_stock_defaults": round(speed["rayfish", True] / speed["stock", True], 2),
        "search": [
            {"who": key[0], "how": key[1], "envs": key[2], "steps_per_s": round(speed, 1)}
            for key, speed in found.items()
        ],
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        print(f"{row['variant']:44} {row['steps_per_s']:>10,.0f} steps/s")
    print(f"at equal settings {result['ratio']} times as fast")
    print(f"the preset against that stock row: {result['preset_over_equal_stock']} times")
    print(f"the preset against RLlib's own defaults: {result['preset_over_stock_defaults']} times")


if __name__ == "__main__":
    main()
