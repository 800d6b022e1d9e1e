"""A Stable-Baselines3 script tuned: seconds until the first trial reaches a score, ASHA and random search.

    python benchmarks/tune_program.py              # writes benchmarks/results/tune_program.json
    python benchmarks/tune_program.py --seeds 2    # a first look

The script is `examples/tune_program/sb3_ppo.py`, as it is; its metrics come from its TensorBoard files.
Both methods try the same points in the same order (random search with the same seed), two trials at a
time, each of at most MAX_STEPS steps; with ASHA, trials that are behind end early. A sweep ends when a
trial reaches GOAL, or after TRIALS points; one that ends without counts as its whole length, which is too
short, and is counted in the table. The order of the two methods changes from seed to seed. Ray is started
once, before the clock. Mean over seeds, and the 95 % bootstrap interval; the times are wall-clock, so the
machine should be idle. Takes about 12 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rayfish.metrics.stats import bootstrap_ci
from rayfish.run.engine import RayOptions, running_ray
from rayfish.sweep.tune import tune

ROOT = Path(__file__).resolve().parent
SCRIPT = ROOT.parent / "examples" / "tune_program" / "sb3_ppo.py"
METRIC = "rollout/ep_rew_mean"
GOAL, MAX_STEPS, GRACE_STEPS, TRIALS, AT_ONCE = 90.0, 10_000, 2_000, 30, 2
METHODS = {
    "random": {"scheduler": "none"},
    "asha": {
        "scheduler": "asha",
        "scheduler_config": {"grace_period": GRACE_STEPS, "max_t": MAX_STEPS, "reduction_factor": 3},
    },
}
SPACE = {
    "lr": "loguniform(1e-5,1e-2)",
    "gamma": "choice(0.9,0.95,0.98,0.99)",
    "gae_lambda": "uniform(0.8,1.0)",
    "ent_coef": "loguniform(1e-5,0.1)",
    "n_steps": "choice(16,32,64,128)",
    "n_epochs": "randint(2,13)",
}
PROGRAM = {
    "command": f"python {SCRIPT} --out {{folder}} --seed {{trial}} --total-steps {MAX_STEPS} "
    f"--save-every {MAX_STEPS} --lr {{lr}} --gamma {{gamma}} --gae-lambda {{gae_lambda}} "
    "--ent-coef {ent_coef} --n-steps {n_steps} --n-epochs {n_epochs}",
    "metrics": {"source": "tensorboard", "path": "logs/**"},
    "stop_grace_s": 1.0,
}


def sweep(method: str, seed: int, folder: str, goal: float | None = GOAL) -> Any:
    """One sweep; gives an object with `.folder`, `.seconds` and `.trials`."""
    return tune(
        PROGRAM,
        SPACE,
        name=f"{method}-{seed}",
        root=folder,
        plain=True,
        metric=METRIC,
        mode="max",
        method="random",
        score="best",
        num_samples=TRIALS,
        max_concurrent=AT_ONCE,
        goal=goal,
        seed=seed,
        resources={"cpu": 1},
        **METHODS[method],
    )


def measured(method: str, seed: int, folder: str) -> dict[str, Any]:
    """One sweep as a row of the results."""
    result = sweep(method, seed, folder)
    reached = [t for t in result.trials if t.value is not None and t.value >= GOAL]
    steps = sum(trial.step for trial in result.trials)
    return {
        "method": method,
        "seed": seed,
        "seconds": round(_first_time(result), 1) if reached else round(result.seconds, 1),
        "reached": bool(reached),
        "trials": len(result.trials),
        "env_steps": int(steps),
        "best": round(max(t.value for t in result.trials if t.value is not None), 1),
    }


def _first_time(result: Any) -> float:
    """Seconds from the beginning of a sweep to the first report that reaches the goal."""
    lines = (Path(result.folder) / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    times = [e["time"] for e in events if e["event"] == "report" and (e.get("value") or 0.0) >= GOAL]
    return min(times) - events[0]["time"]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Per method the mean and its interval; and the same of what ASHA saves, seed by seed."""
    found: dict[str, Any] = {}
    seconds = {(row["method"], row["seed"]): row["seconds"] for row in rows}
    for method in METHODS:
        mine = [row for row in rows if row["method"] == method]
        mean, low, high = bootstrap_ci([row["seconds"] for row in mine])
        found[method] = {
            "seconds": round(mean, 1),
            "interval_95": [round(low, 1), round(high, 1)],
            "reached": f"{sum(row['reached'] for row in mine)} of {len(mine)}",
            "trials": round(sum(row["trials"] for row in mine) / len(mine), 1),
            "env_steps": round(sum(row["env_steps"] for row in mine) / len(mine)),
        }
    saved = [
        seconds["random", seed] - seconds["asha", seed] for seed in sorted({row["seed"] for row in rows})
    ]
    mean, low, high = bootstrap_ci(saved)
    found["saved_by_asha"] = {"seconds": round(mean, 1), "interval_95": [round(low, 1), round(high, 1)]}
    return found


def main() -> None:
    """Measures, prints the table and writes the result file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "tune_program.json")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, running_ray(RayOptions(num_cpus=AT_ONCE)):
        for seed in range(given.seeds):
            for method in list(METHODS) if seed % 2 == 0 else list(METHODS)[::-1]:
                rows.append(measured(method, seed, folder))
                print(json.dumps(rows[-1]), flush=True)
    found = summary(rows)
    print(f"\nseconds to a mean return of {GOAL:g}, {given.seeds} seeds: mean (95 % interval)")
    for method, values in found.items():
        low, high = values["interval_95"]
        more = f"  reached {values['reached']}, {values['trials']} trials" if "reached" in values else ""
        print(f"{method:>14}  {values['seconds']:6.1f} s  ({low:.1f} to {high:.1f}){more}")
    result = {
        "command": "python benchmarks/tune_program.py",
        "versions": {name: version(name) for name in ("ray", "torch", "stable-baselines3")},
        "machine": f"{platform.machine()}, {platform.system()}, {AT_ONCE} trials at a time",
        "goal": {METRIC: GOAL, "max_steps": MAX_STEPS, "grace_steps": GRACE_STEPS, "trials": TRIALS},
        "space": SPACE,
        "summary": found,
        "runs": rows,
    }
    given.out.parent.mkdir(exist_ok=True)
    given.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
