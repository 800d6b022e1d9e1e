"""Does it learn? Wildfire presets trained on several seeds, then evaluated on fires they have never seen.

    python benchmarks/wildfire_training.py wildfire                       # three seeds; about 5 minutes each
    python benchmarks/wildfire_training.py wildfire --runs RUN RUN RUN    # runs that were made before

For every seed runs `rayfish train PRESET debugging.seed=S` and `rayfish evaluate RUN --baselines
--episodes 64` as a user would, and writes `results/wildfire-training.json` (curves, times, and for every
policy the share it saved of what burns without intervention) and a picture. An agent's interval is over
seeds (Student's t), a baseline's over the 64 fires. Presets of one agent on the small landscape are also
evaluated on landscapes that differ from the one of training: other hills and fuel, and other hills, fuel and
wind (`randomize`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from scipy import stats

from rayfish.worlds.wildfire import LANDSCAPES

RESULTS = Path(__file__).resolve().parent / "results"
FILE = RESULTS / "wildfire-training.json"
FIGURE = "saved_share"
PRESETS = ("wildfire", "wildfire_64", "wildfire_marl", "wildfire_128", "wildfire_dqn")
UNSEEN = {
    "other hills and fuel": ["elevation", "fuel", "ignition"],
    "other hills, fuel and wind": ["elevation", "fuel", "wind", "ignition"],
}
"""Landscapes that no preset is trained on, by what is drawn for every fire."""

POINTS = 200  # of a curve that is kept
COLOURS = {"nothing": "0.6", "random": "0.4", "line_ahead": "tab:orange", "encircle": "tab:red"}


def main() -> None:
    """Trains the presets, adds them to the results, prints the table, draws all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("presets", nargs="+", choices=PRESETS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[2000, 2001, 2002])
    parser.add_argument("--runs", type=Path, nargs="+", help="finished runs of the one preset named")
    words = parser.parse_args()
    if words.runs and len(words.presets) > 1:
        parser.error("--runs goes with one preset")
    known = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    for preset in words.presets:
        runs = words.runs or [train(preset, seed) for seed in words.seeds]
        known[preset] = summary(preset, runs)
        FILE.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(table(preset, known[preset]))
    draw(known)


def rayfish(*words: str) -> None:
    subprocess.run([str(Path(sys.executable).parent / "rayfish"), *words], check=True)


def train(preset: str, seed: int) -> Path:
    """A run of the preset in ./runs."""
    before = set(Path("runs").glob("*/*/run.json"))
    rayfish("train", preset, f"debugging.seed={seed}")
    (made,) = set(Path("runs").glob("*/*/run.json")) - before
    return made.parent


def summary(preset: str, runs: list[Path]) -> dict[str, Any]:
    """What the runs of a preset learnt."""
    metrics = [_lines(run) for run in runs]
    configs = [yaml.safe_load((run / "config.yaml").read_text("utf-8")) for run in runs]
    found: dict[str, Any] = {
        "command": f"rayfish train {preset} debugging.seed=SEED",
        "seeds": [config["debugging"]["seed"] for config in configs],
        "env_steps": metrics[0][-1]["run/env_steps"],
        "training_s": [round(lines[-1]["time/total_s"], 1) for lines in metrics],
        "cores": len(os.sched_getaffinity(0)),
        **over_seeds([evaluate(run) for run in runs]),
    }
    if configs[0]["environment"]["env_config"]["simulation"] == "small" and preset != "wildfire_marl":
        found["unseen"] = {
            name: over_seeds([evaluate(run, drawn) for run in runs]) for name, drawn in UNSEEN.items()
        }
    found["curves"] = [_curve(lines) for lines in metrics]
    return found


def evaluate(run: Path, drawn: list[str] | None = None) -> dict[str, Any]:
    """The result of `rayfish evaluate`, on the fires held out or on landscapes drawn for every fire."""
    with tempfile.TemporaryDirectory() as folder:
        words = []
        if drawn:
            landscape = Path(folder) / "landscape.yaml"
            landscape.write_text(
                yaml.safe_dump({**LANDSCAPES["small"], "randomize": drawn}), encoding="utf-8"
            )
            words = [f"environment.env_config.simulation={landscape}"]
        rayfish("evaluate", str(run), "--baselines", "--episodes", "64", *words)
    newest = max((run / "evaluations").glob("*.json"), key=lambda file: file.stat().st_mtime)
    return json.loads(newest.read_text("utf-8"))


def over_seeds(evaluations: list[dict[str, Any]]) -> dict[str, Any]:
    """The agents' mean with its interval over seeds, the baselines', and which of them every seed beats."""
    agents = [_rounded(one["statistics"][FIGURE]) for one in evaluations]
    mean = sum(agent["mean"] for agent in agents) / len(agents)
    low, high = None, None
    if len(agents) > 1:
        error = stats.sem([agent["mean"] for agent in agents])
        low, high = (float(end) for end in stats.t.interval(0.95, len(agents) - 1, mean, error))
    baselines = evaluations[0]["baselines"]
    return {
        "episodes": evaluations[0]["episodes"],
        FIGURE: {
            "agent": _rounded({"mean": mean, "ci_low": low, "ci_high": high}) | {"by_seed": agents},
            **{name: _rounded(one["statistics"][FIGURE]) for name, one in baselines.items()},
        },
        "every_seed_beats": [
            name for name in baselines if all(_better(one["baselines"][name]) for one in evaluations)
        ],
    }


def _better(baseline: dict[str, Any]) -> bool:
    return baseline["significant"][FIGURE] and baseline["differences"][FIGURE]["mean"] > 0


def _rounded(interval: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value is None else round(value, 4) for name, value in interval.items()}


def _lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


def _curve(lines: list[dict[str, Any]]) -> list[list[float]]:
    """Env steps, seconds and share saved, `POINTS` of them."""
    points = [
        [line["run/env_steps"], round(line["time/total_s"], 1), round(line[f"env/{FIGURE}"], 4)]
        for line in lines
        if f"env/{FIGURE}" in line
    ]
    return points[:: max(1, len(points) // POINTS)]


def table(preset: str, found: dict[str, Any]) -> str:
    """A preset's policies, the best first, on every kind of landscape."""
    lines = [
        f"{preset}: {found['env_steps']:,} steps, seeds {', '.join(map(str, found['seeds']))}, "
        f"training {', '.join(f'{seconds:.0f}' for seconds in found['training_s'])} s"
    ]
    for name, part in {"held-out fires": found, **found.get("unseen", {})}.items():
        lines.append(f" {name}")
        for policy, one in sorted(part[FIGURE].items(), key=lambda item: -item[1]["mean"]):
            interval = "one seed" if one["ci_low"] is None else f"{one['ci_low']:.1%}, {one['ci_high']:.1%}"
            seeds = "  by seed " + ", ".join(f"{s['mean']:.1%}" for s in one.get("by_seed", ()))
            lines.append(
                f"  {policy:11} {one['mean']:6.1%} saved [{interval}]{seeds if 'by_seed' in one else ''}"
            )
        lines.append(
            f"  every seed is significantly better than {', '.join(part['every_seed_beats']) or 'none'}"
        )
    return "\n".join(lines)


def draw(known: dict[str, Any]) -> None:
    """A panel per preset: every seed's training curve, baselines as lines, evaluations as dots."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    known = {preset: known[preset] for preset in PRESETS if preset in known}
    figure, panels = plt.subplots(1, len(known), figsize=(5.2 * len(known), 4), squeeze=False, sharey=True)
    for panel, (preset, found) in zip(panels[0], known.items(), strict=True):
        for number, curve in enumerate(found["curves"]):
            steps, _, saved = zip(*curve, strict=True)
            label = "in training (it explores)" if number == 0 else None
            panel.plot([step / 1e6 for step in steps], saved, color="tab:blue", alpha=0.7, lw=1, label=label)
        agents = found[FIGURE]["agent"]["by_seed"]
        panel.plot(
            [found["env_steps"] / 1e6] * len(agents), [agent["mean"] for agent in agents], "o",
            color="tab:green", alpha=0.8, label="64 unseen fires",
        )  # fmt: skip
        for name, colour in COLOURS.items():
            panel.axhline(found[FIGURE][name]["mean"], color=colour, linestyle="--", linewidth=1, label=name)
        panel.set_title(f"{preset}: {len(agents)} seed{'s' if len(agents) > 1 else ''}")
        panel.set_xlabel("million env steps")
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("share saved of what burns without intervention")
    panels[0][0].legend(loc="lower right", bbox_to_anchor=(1, 0.08), fontsize=8)
    figure.tight_layout()
    figure.savefig(RESULTS / "wildfire-training.png", dpi=120)


if __name__ == "__main__":
    main()
