"""Tables of `speed.py`: runs in, medians and ratios out, as JSON and as a page for people.

Takes the lines of `results/speed-runs.jsonl`; gives `results/speed.json` and `results/speed.md`. A median is
over the seeds; a seed that did not reach its goal counts as infinitely slow, so that a peer which fails on
most seeds has "not reached" as its median. Ratios are the peer's time over Rayfish's (above 1: Rayfish is
faster) and Rayfish's steps per second over the peer's.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from speed_runs import PEERS, ROOT, TASKS, Choice, Log, preset_settings
from zoo import ZOO

RESULTS = ROOT / "results"
PACKAGES = ("rayfish", "ray", "torch", "numpy", "gymnasium", "stable_baselines3", "sbx-rl", "jax")


def summary(log: Log, kind: str) -> dict[str, Any]:
    """Medians over seeds of every task and peer that has runs of this kind."""
    tasks: dict[str, Any] = {}
    for task, spec in TASKS.items():
        rows = {}
        for peer in PEERS:
            lines = list(log.of(kind, task, peer))
            if lines:
                rows[peer] = _row(lines)
        if rows:
            _ratios(rows)
            tasks[task] = {
                "env": spec.env,
                "algo": spec.algo,
                "goal": spec.goal,
                "window": spec.window,
                "peers": rows,
            }
    return tasks


def _row(lines: list[dict[str, Any]]) -> dict[str, Any]:
    latest = lines[-1]["choice"]
    lines = [line for line in lines if line["choice"] == latest]

    def median(key: str) -> float | None:
        values = [line[key] if line["reached"] or line["only_steps"] else math.inf for line in lines]
        middle = statistics.median(values)
        return None if math.isinf(middle) else round(middle, 2)

    return {
        "choice": latest,
        "envs": lines[-1]["envs"],
        "runner": lines[-1].get("runner"),
        "seeds": [line["seed"] for line in lines],
        "reached": sum(line["reached"] for line in lines),
        "steps": median("steps"),
        "train_s": median("train_s"),
        "whole_s": median("whole_s"),
        "steps_per_s": round(statistics.median(line["steady_steps_per_s"] for line in lines), 1),
        "return_mean": round(statistics.median(line["return_mean"] for line in lines), 1),
        "train_s_of_seeds": [line["train_s"] for line in lines],
        "whole_s_of_seeds": [line["whole_s"] for line in lines],
        "settings": lines[-1].get("settings"),
    }


def _ratios(rows: dict[str, Any]) -> None:
    ours = rows.get("rayfish")
    for row in rows.values():
        for key in ("train_s", "whole_s"):
            both = ours is not None and ours[key] and row[key]
            row[f"{key}_ratio"] = round(row[key] / ours[key], 2) if ours and both else None
        row["steps_per_s_ratio"] = round(ours["steps_per_s"] / row["steps_per_s"], 2) if ours else None


def searches(log: Log) -> list[dict[str, Any]]:
    """The search for each peer's best threads and env count: everything that was tried."""
    keys = (
        "task",
        "peer",
        "seed",
        "choice",
        "only_steps",
        "reached",
        "train_s",
        "steady_steps_per_s",
        "error",
    )
    return [{key: line[key] for key in keys if key in line} for line in log.lines if line["kind"] == "search"]


def write(log: Log, kind: str) -> str:
    """Writes `speed.json` and `speed.md` (not for a quick look) and gives the page."""
    tasks = summary(log, kind)
    page = _page(log, tasks, kind)
    if kind == "run":
        found = {
            "command": "python benchmarks/speed.py",
            "when": time.strftime("%Y-%m-%d"),
            "machine": machine(),
            "versions": versions(),
            "tasks": tasks,
            "equal": latest_equal(),
            "search": searches(log),
        }
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "speed.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "speed.md").write_text(page, encoding="utf-8")
    return page


def latest_equal() -> dict[str, Any] | None:
    """What `--equal` measured last."""
    path = RESULTS / "speed-equal.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def machine() -> str:
    """Processor and cores, in words."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text("utf-8").splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def versions() -> dict[str, str]:
    """Installed versions of everybody compared."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _page(log: Log, tasks: dict[str, Any], kind: str) -> str:
    lines = [
        "# Speed against peers",
        "",
        f"`python benchmarks/speed.py`, {time.strftime('%Y-%m-%d')}; {machine()}.",
        "",
    ]
    lines += [", ".join(f"{name} {number}" for name, number in versions().items()) + ".", ""]
    lines += [
        "Medians over seeds. *Training* runs from the first env step to the goal, *whole* is the command "
        "from the shell. Steps/s are those after the first quarter of a run. × is how much Rayfish is ahead.",
        "",
    ]
    for name, task in tasks.items():
        lines += _task_table(name, task, kind)
    equal = latest_equal()
    if equal:
        lines += _equal_table(equal)
    tried = searches(log)
    if tried and kind == "run":
        lines += _search_table(tried)
    return "\n".join(lines) + "\n"


def _task_table(name: str, task: dict[str, Any], kind: str) -> list[str]:
    goal = "no goal" if kind == "steps" else f"goal {task['goal']:g} over the last {task['window']} episodes"
    lines = [f"## {name}: {task['algo']} on {task['env']}, {goal}", ""]
    if task["algo"] != "PPO":
        lines += [updates_in_words(name), ""]
    lines += ["| peer | threads, envs | seeds reached | steps | training s | × | whole s | × | steps/s | × |"]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    for peer, row in task["peers"].items():
        cells = [
            PEERS[peer].title + (f" ({row['runner']})" if row["runner"] else ""),
            f"{row['choice']['threads'] or 'own'}, {row['envs']}",
            f"{row['reached']}/{len(row['seeds'])}",
        ]
        cells.append(_steps(row))
        for key in ("train_s", "whole_s"):
            cells += [_seconds(row, key), _times(row, key, task["peers"].get("rayfish"))]
        cells += [_number(row["steps_per_s"], 0), _ratio(row["steps_per_s_ratio"])]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def updates_in_words(task: str) -> str:
    """How often off-policy peers learn: their steps per second are not those of equal work."""
    settings, zoo = preset_settings(task), ZOO[task]
    training = settings["training"]
    # A round of RLlib's is one fragment (`n_step` long by default) of every env, and one update.
    ours = 1 / (settings["envs"] * training.get("n_step", 1))
    if training.get("training_intensity"):
        ours = training["training_intensity"] / training["train_batch_size_per_learner"]
    theirs = zoo.get("gradient_steps", 1) / zoo.get("train_freq", 1)
    return (
        f"Updates per env step: Rayfish and RLlib {ours:.3g}, Stable-Baselines3 and sbx {theirs:.3g}; "
        "compare steps/s across these two groups with that in mind."
    )


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def _steps(row: dict[str, Any]) -> str:
    """Env steps to the goal, or how far the peer was when it was given up."""
    return _number(row["steps"], 0) if row["steps"] else f"given up at {row['return_mean']:g}"


def _seconds(row: dict[str, Any], key: str) -> str:
    """Seconds to the goal, or that it takes more than these."""
    return _number(row[key], 1) if row[key] else f"> {statistics.median(row[f'{key}_of_seeds']):,.0f}"


def _times(row: dict[str, Any], key: str, ours: dict[str, Any] | None) -> str:
    """How often Rayfish's time goes into it, or at least goes into what it had taken when it was given up."""
    if ours is None or not ours[key]:
        return "-"
    if row[key]:
        return _ratio(row[f"{key}_ratio"])
    return f"> {statistics.median(row[f'{key}_of_seeds']) / ours[key]:.1f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _equal_table(equal: dict[str, Any]) -> list[str]:
    lines = ["## PPO at equal network, batch, minibatch and epochs", "", equal["what"], ""]
    lines += ["| variant | steps/s (median) | seconds per iteration |", "|---|---|---|"]
    for row in equal["rows"]:
        lines.append(f"| {row['variant']} | {row['steps_per_s']:,.0f} | {row['seconds']:.3f} |")
    said = [f"Rayfish is {equal['ratio']:.2f} times as fast as {equal['best_stock']}."]
    if "preset_over_equal_stock" in equal:
        said += [
            f"Its CartPole preset as shipped (256 environments, minibatch 1024, 3 epochs, ReLU) makes "
            f"{equal['preset_over_equal_stock']:.1f} times the steps per second of that stock row, and "
            f"{equal['preset_over_stock_defaults']:.0f} times those of RLlib's PPO with nothing set."
        ]
    return [*lines, "", " ".join(said), ""]


def _search_table(tried: list[dict[str, Any]]) -> list[str]:
    lines = ["## Search for each peer's threads and env count", ""]
    lines += [
        "| task | peer | tried | seed | steps/s | training s to the goal |",
        "|---|---|---|---|---|---|",
    ]
    for line in tried:
        seconds = (
            f"{line['train_s']:.1f}" if line["reached"] else ("" if line["only_steps"] else "not reached")
        )
        lines.append(
            f"| {line['task']} | {line['peer']} | {Choice(**line['choice'])} | {line['seed']} | "
            f"{line['steady_steps_per_s']:,.0f} | {seconds} |"
        )
    return [*lines, ""]
