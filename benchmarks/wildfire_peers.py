"""How fast other wildfire simulators from PyPI are: the question of `wildfire.py`, asked of its peers.

    python benchmarks/wildfire_peers.py                                    # the peers installed here
    python benchmarks/wildfire_peers.py --python A/bin/python B/bin/python  # those of other interpreters

They ask for versions of NumPy and torch that do not go together: give each a virtual environment of its own
(`pip install pytorchfire==0.1.0 torch==2.13.0`, `pip install pyrorl==1.0.1`, and `pip install
pyretechnics==2026.10.20`, which compiles for minutes). Whole fires at 64x64 and 128x128, from their layers to the
last flame; CPU seconds of one process with one thread, so that what else the machine does hardly counts; medians,
after one fire that is not counted. These are other models than Rayfish's, each row says which: the figures tell
what one pays for a fire, not who solves the same equations faster. Results: `results/wildfire-peers.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results"
CELL_FT, MPH = 50.0, 5.0
FOOT, MILE = 0.3048, 1.609344
MOISTURES = {
    "dead_1hr": 0.06,
    "dead_10hr": 0.07,
    "dead_100hr": 0.08,
    "live_herbaceous": 0.6,
    "live_woody": 0.6,
}
FIRES, STEPS = 5, 2000


def pytorchfire(size: int) -> tuple[int, float]:
    """Updates of one fire, and the share of the map that burned."""
    import torch
    from pytorchfire import WildfireModel

    torch.set_num_threads(1)
    start = torch.zeros(size, size, dtype=torch.bool)
    start[size // 2, size // 2] = True
    layers = {
        "p_veg": torch.zeros(size, size),
        "wind_velocity": torch.full((size, size), MPH * MILE / 3.6),
        "wind_towards_direction": torch.zeros(size, size),  # East
        "initial_ignition": start,
    }
    # Alexandridis' own constants for Spetses.
    constants = {"p_h": 0.58, "c_1": 0.045, "c_2": 0.131, "a": 0.078, "p_continue": 0.3}
    model = WildfireModel(layers, {name: torch.tensor(value) for name, value in constants.items()})
    model.eval()
    updates = 0
    with torch.no_grad():
        while bool(model.state[0].any()):
            model.compute()
            updates += 1
    return updates, float(model.state[1].float().mean())


def pyretechnics(size: int) -> tuple[int, float]:
    """Minutes of one fire until nothing is left to burn, and the share of the map that burned."""
    from pyretechnics import eulerian_level_set as els
    from pyretechnics.space_time_cube import SpaceTimeCube

    shape = (1, size, size)
    # It takes wind at 10 m: from midflame by the factor of an open fuel bed one foot deep, then up by 1.15.
    wind = MPH * MILE / (1.83 / math.log((20 + 0.36) / 0.13)) * 1.15
    layers = {
        **dict.fromkeys(("slope", "aspect"), 0.0),
        **dict.fromkeys(("canopy_cover", "canopy_height", "canopy_base_height", "canopy_bulk_density"), 0.0),
        "fuel_model": 2,
        "wind_speed_10m": wind,
        "upwind_direction": 270.0,
        "foliar_moisture": 0.9,
        **{f"fuel_moisture_{name}": share for name, share in MOISTURES.items()},
    }
    cubes = {name: SpaceTimeCube(shape, np.full((size, size), value)) for name, value in layers.items()}
    state = els.SpreadState(shape).ignite_cell((size // 2, size // 2))
    found = els.spread_fire_with_phi_field(
        cubes, state, cube_resolution=(1e5, CELL_FT * FOOT, CELL_FT * FOOT), start_time=0.0
    )
    burned = state.get_full_matrices(["fire_type"])["fire_type"] > 0
    return round(found["stop_time"]), float(burned.mean())


def pyrorl(size: int) -> tuple[int, float]:
    """Steps of an environment with random actions; what burns of it is not the question there."""
    import random

    import gymnasium
    from pyrorl.map_helpers.create_map_info import generate_map_info

    random.seed(1)
    np.random.seed(1)  # noqa: NPY002  (it draws its maps and fires from there)
    areas, paths, paths_to_areas = generate_map_info(size, size, 5, save_map=False)
    env = gymnasium.make(
        "pyrorl/PyroRL-v0",
        num_rows=size,
        num_cols=size,
        populated_areas=areas,
        paths=paths,
        paths_to_pops=paths_to_areas,
        disable_env_checker=True,
    )
    env.reset(seed=1)
    for _ in range(STEPS):
        _, _, ended, cut, _ = env.step(env.action_space.sample())
        if ended or cut:
            env.reset()
    return STEPS, float("nan")


PEERS: dict[str, tuple[Callable[[int], tuple[int, float]], tuple[int, ...], str, str]] = {
    "pytorchfire": (
        pytorchfire,
        (64, 128),
        "an update of a probabilistic cellular automaton (Alexandridis), over the whole map",
        "no fuel models, moisture, time or distance; made for fitting by gradients; one fire at a time",
    ),
    "pyretechnics": (
        pyretechnics,
        (64, 128),
        "a minute of a level-set front with Rothermel's rates, in as many steps as its accuracy needs",
        "smoother and rounder fronts than cells give, crown fire and spotting too; one call for the whole fire, "
        "which is its fastest way; one fire at a time",
    ),
    "pyrorl": (
        pyrorl,
        (20,),
        "an env step: evacuation, and a probabilistic cellular automaton on the map size of its examples",
        "no physics of spread; agents choose roads for people, they do not fight the fire",
    ),
}


def measure(name: str) -> list[dict[str, Any]]:
    """A row per size, or one that says why there is none."""
    fire, sizes, update, remark = PEERS[name]
    try:
        found = {"name": name, "version": version(name), "update": update, "remark": remark}
        fire(sizes[0])  # compiles, loads, warms up
    except (PackageNotFoundError, ImportError) as error:
        return [{"name": name, "skipped": f"{type(error).__name__}: {error}"}]
    rows = []
    for size in sizes:
        took, updates, shares = [], [], []
        for _ in range(FIRES):
            begun = time.process_time()
            number, share = fire(size)
            took.append(time.process_time() - begun)
            updates.append(number)
            shares.append(share)
        per_second = statistics.median(n / s for n, s in zip(updates, took, strict=True))
        row = {
            "size": size,
            "updates": statistics.median(updates),
            "cpu_s": round(statistics.median(took), 4),
        }
        row["updates_per_cpu_s"] = round(per_second, 1)
        if not math.isnan(shares[0]):
            row["burned_share"] = round(statistics.median(shares), 3)
        rows.append(found | row | {"python": platform.python_version(), "numpy": np.__version__})
        print(
            f"{name:12} {version(name):10} {size:4}: {updates[-1]:5} updates, {per_second:10,.1f} per CPU second"
        )
    return rows


def merged(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """New rows in place of old ones of the same peer; a peer that is missing here keeps what was measured."""
    got = {row["name"] for row in new if "skipped" not in row}
    kept = [row for row in old if row["name"] not in got and row["name"] in PEERS]
    known = got | {row["name"] for row in kept}
    return sorted(
        [*kept, *(row for row in new if row["name"] in got or row["name"] not in known)],
        key=lambda row: (list(PEERS).index(row["name"]), row.get("size", 0)),
    )


def main() -> None:
    """Measures here, or has other interpreters do it; adds to the result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", nargs="+", default=[], help="interpreters to measure in")
    parser.add_argument("--out", type=Path, default=RESULTS / "wildfire-peers.json")
    words = parser.parse_args()
    out = words.out.resolve()
    for python in words.python:
        subprocess.run([python, __file__, "--out", str(out)], check=True)
    if words.python:
        return
    os.chdir(tempfile.mkdtemp())  # PyroRL makes folders where it is
    rows = [row for name in PEERS for row in measure(name)]
    known = json.loads(out.read_text("utf-8"))["rows"] if out.exists() else []
    found = {"command": "python benchmarks/wildfire_peers.py", "rows": merged(known, rows)}
    out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(f"written: {out.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
