"""Does it learn? Wildfire presets trained, then played on fires they have never seen, beside all baselines.

    python benchmarks/wildfire_training.py wildfire                  # minutes; wildfire_64 half an hour
    python benchmarks/wildfire_training.py wildfire_64 --run FOLDER  # a run that was made before

Takes presets; runs `rayfish train PRESET` and `rayfish evaluate RUN --baselines --episodes 64` as a user
would, and puts what came of it into `results/wildfire-training.json` (the curve, the time, and of every
policy the share that it saved of what burns when nobody acts, with 95 % intervals) and a picture beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
FILE = RESULTS / "wildfire-training.json"
FIGURE = "saved_share"
PRESETS = ("wildfire", "wildfire_64", "wildfire_marl", "wildfire_128", "wildfire_dqn")
POINTS = 200  # of a curve that is kept
COLOURS = {"nothing": "0.6", "random": "0.4", "line_ahead": "tab:orange", "encircle": "tab:red"}


def main() -> None:
    """Trains what is asked for, adds it to the results, prints the table, draws all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("presets", nargs="+", choices=PRESETS)
    parser.add_argument("--run", help="a run of the one preset named, in place of training it now")
    words = parser.parse_args()
    if words.run and len(words.presets) > 1:
        parser.error("--run goes with one preset")
    known = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    for preset in words.presets:
        run = Path(words.run) if words.run else train(preset)
        known[preset] = look(run)
        FILE.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(table(preset, known[preset]))
    draw(known)


def rayfish(*words: str) -> None:
    subprocess.run([str(Path(sys.executable).parent / "rayfish"), *words], check=True)


def train(preset: str) -> Path:
    """A run of the preset in ./runs."""
    before = set(Path("runs").glob("*/*/run.json"))
    rayfish("train", preset)
    (made,) = set(Path("runs").glob("*/*/run.json")) - before
    return made.parent


def look(run: Path) -> dict[str, Any]:
    """What a run learnt."""
    rayfish("evaluate", str(run), "--baselines", "--episodes", "64")
    newest = max((run / "evaluations").glob("*.json"), key=lambda file: file.stat().st_mtime)
    found = json.loads(newest.read_text("utf-8"))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    curve = [
        [line["run/env_steps"], round(line["time/total_s"], 1), round(line[f"env/{FIGURE}"], 4)]
        for line in lines
        if f"env/{FIGURE}" in line
    ]
    policies = {"agent": found["statistics"]} | {
        name: one["statistics"] for name, one in found["baselines"].items()
    }
    return {
        "command": f"rayfish {' '.join((run / 'command.txt').read_text('utf-8').split()[1:])}",
        "env_steps": lines[-1]["run/env_steps"],
        "training_s": round(lines[-1]["time/total_s"], 1),
        "cores": len(os.sched_getaffinity(0)),
        "episodes": found["episodes"],
        FIGURE: {name: {k: round(v, 4) for k, v in one[FIGURE].items()} for name, one in policies.items()},
        "better_than": [name for name, one in found["baselines"].items() if _better(one)],
        "curve": curve[:: max(1, len(curve) // POINTS)],
    }


def _better(baseline: dict[str, Any]) -> bool:
    return baseline["significant"][FIGURE] and baseline["differences"][FIGURE]["mean"] > 0


def table(preset: str, found: dict[str, Any]) -> str:
    """A preset's policies, the best first."""
    rows = sorted(found[FIGURE].items(), key=lambda item: -item[1]["mean"])
    lines = [f"{preset}: {found['env_steps']:,} steps in {found['training_s']:.0f} s of training"]
    lines += [
        f"  {name:11} {one['mean']:6.1%} saved [{one['ci_low']:.1%}, {one['ci_high']:.1%}]"
        for name, one in rows
    ]
    return "\n".join([*lines, f"  significantly better than {', '.join(found['better_than']) or 'none'}"])


def draw(known: dict[str, Any]) -> None:
    """A panel per preset: the training curve, the baselines as lines, the evaluation as a dot."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(known), figsize=(5.2 * len(known), 4), squeeze=False, sharey=True)
    for panel, (preset, found) in zip(panels[0], known.items(), strict=True):
        steps, _, saved = zip(*found["curve"], strict=True)
        panel.plot([step / 1e6 for step in steps], saved, label="in training (it explores)")
        agent = found[FIGURE]["agent"]
        reach = [[agent["mean"] - agent["ci_low"]], [agent["ci_high"] - agent["mean"]]]
        panel.errorbar(
            [found["env_steps"] / 1e6], [agent["mean"]], yerr=reach, fmt="o", capsize=3,
            color="tab:green", label="64 unseen fires",
        )  # fmt: skip
        for name, colour in COLOURS.items():
            panel.axhline(found[FIGURE][name]["mean"], color=colour, linestyle="--", linewidth=1, label=name)
        panel.set_title(f"{preset}: {found['training_s'] / 60:.0f} min of training")
        panel.set_xlabel("million env steps")
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("share saved of what burns when nobody acts")
    panels[0][-1].legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    figure.savefig(RESULTS / "wildfire-training.png", dpi=120)


if __name__ == "__main__":
    main()
