"""How fast other wildfire simulators from PyPI are: the question of `wildfire.py`, asked of its peers.

    python benchmarks/wildfire_peers.py                            # the peers installed here
    python benchmarks/wildfire_peers.py --python OTHER/bin/python  # those of another interpreter

They want different versions of NumPy: give them virtual environments of their own, one with `pytorchfire`
1.0.3.post2, torch 2.13.0 and `pyrorl` 1.0.1, one with `pyretechnics` 2026.10.20, which compiles for a while.
Whole fires, layers to last flame; CPU seconds of one process, one thread; medians of five, after one not
counted. Other models than Rayfish's: the figures tell what one pays for a fire, not who solves the same
equations faster. Each interpreter adds its rows to `results/wildfire-peers.json`.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import os
import random
import statistics
import subprocess
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

OUT = Path(__file__).resolve().parent / "results" / "wildfire-peers.json"
KM_H = 5 * 1.609344  # midflame wind
OPEN = 1.83 / math.log((20 + 0.36) / 0.13) / 1.15  # midflame wind over wind at 10 m, fuel one foot deep
CUBE = (1e5, 50 * 0.3048, 50 * 0.3048)  # minutes of the same weather, metres of a cell's sides
FIRES, STEPS = 5, 2000
PLACES = ("num_rows", "num_cols", "populated_areas", "paths", "paths_to_pops")
FIGURES = ("updates", "cpu_s", "updates_per_cpu_s", "burned_share")


def pytorchfire(size: int) -> tuple[int, float]:
    """An update is a step of a probabilistic cellular automaton (Alexandridis) over the whole map.

    No fuel models, moisture, minutes or feet; made to be fitted by gradients; one fire at a time.
    """
    import torch
    from pytorchfire import WildfireModel

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    layers = {"p_veg": torch.zeros(size, size), "wind_towards_direction": torch.zeros(size, size)}  # East
    layers["wind_velocity"] = torch.full((size, size), KM_H / 3.6)
    layers["initial_ignition"] = torch.zeros(size, size, dtype=torch.bool)
    layers["initial_ignition"][size // 2, size // 2] = True
    constants = {"p_h": 0.58, "c_1": 0.045, "c_2": 0.131, "a": 0.078, "p_continue": 0.3}  # Alexandridis'
    model = WildfireModel(layers, {name: torch.tensor(value) for name, value in constants.items()}).eval()
    updates = 0
    while bool(model.state[0].any()):
        model.compute()
        updates += 1
    return updates, float(model.state[1].float().mean())


def pyretechnics(size: int) -> tuple[int, float]:
    """An update is a minute of a level-set front with Rothermel's rates, in as many steps as it needs.

    Fuel, moisture, wind and cells as in `wildfire.py`; smoother fronts than cells give; one fire at a time.
    """
    from pyretechnics import eulerian_level_set as els
    from pyretechnics.space_time_cube import SpaceTimeCube

    shape = (1, size, size)
    canopy = ("canopy_cover", "canopy_height", "canopy_base_height", "canopy_bulk_density")
    live = ("fuel_moisture_live_herbaceous", "fuel_moisture_live_woody", "foliar_moisture")
    layers = dict.fromkeys(("slope", "aspect", *canopy), 0.0) | dict.fromkeys(live, 0.6)
    layers |= {
        f"fuel_moisture_dead_{hours}hr": share for hours, share in ((1, 0.06), (10, 0.07), (100, 0.08))
    }
    layers |= {"fuel_model": 2, "wind_speed_10m": KM_H / OPEN, "upwind_direction": 270}
    cubes = {name: SpaceTimeCube(shape, np.full(shape, value, "float32")) for name, value in layers.items()}
    state = els.SpreadState(shape).ignite_cell((size // 2, size // 2))
    minutes, share, at = 0.0, 0.0, (CUBE, 0.0)
    while share < 1 - 2 / size:  # cells at the upwind edge never burn in it
        minutes = els.spread_fire_with_phi_field(cubes, state, *at, 10.0)["stop_time"]
        share = np.count_nonzero(state.get_full_matrices(["fire_type"])["fire_type"]) / size**2
        at = (None, None)  # goes on where it was
    return round(minutes), share


def pyrorl(size: int) -> tuple[int, float]:
    """An update is a step of its environment: evacuation beside a probabilistic cellular automaton.

    No physics of spread; the agent sends people along roads, it does not fight the fire.
    """
    import gymnasium
    from pyrorl.map_helpers.create_map_info import generate_map_info

    random.seed(1)
    np.random.seed(1)  # it draws maps and fires from there
    given = dict(zip(PLACES, (size, size, *generate_map_info(size, size, 5, save_map=False)), strict=True))
    env = gymnasium.make("pyrorl/PyroRL-v0", disable_env_checker=True, **given)
    env.reset(seed=1)
    for _ in range(STEPS):
        _, _, ended, cut, _ = env.step(env.action_space.sample())
        if ended or cut:
            env.reset()
    return STEPS, math.nan


PEERS = {pytorchfire: (64, 128), pyretechnics: (64, 128), pyrorl: (20,)}
"""Each gives its updates and the share of the map that burned; its docstring goes into the results."""


def measure(fire: Any) -> list[dict[str, Any]]:
    """A row per size, or one that says why there is none."""
    name, about = fire.__name__, (inspect.getdoc(fire) or "").split("\n\n")
    try:
        found = {"name": name, "version": version(name), "update": about[0], "remark": about[1]}
        fire(PEERS[fire][0])
    except (PackageNotFoundError, ImportError) as error:
        return [{"name": name, "skipped": f"{type(error).__name__}: {error}"}]
    rows = []
    for size in PEERS[fire]:
        runs = []
        for _ in range(FIRES):
            begun = time.process_time()
            updates, share = fire(size)
            took = time.process_time() - begun
            runs.append((updates, took, updates / took, share))
        middle = {key: statistics.median(run[place] for run in runs) for place, key in enumerate(FIGURES)}
        rows.append({**found, "size": size} | {key: round(v, 3) for key, v in middle.items() if v >= 0})
        print(f"{name} {size}: {middle}")
    return rows


def main() -> None:
    """Measures here or has another interpreter do it; a peer that is missing keeps the rows it has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", help="the interpreter to measure in")
    parser.add_argument("--out", type=Path, default=OUT)
    words = parser.parse_args()
    out = words.out.resolve()
    if words.python:
        raise SystemExit(subprocess.call([words.python, __file__, "--out", str(out)]))
    os.chdir(tempfile.mkdtemp())  # PyroRL makes folders where it is
    rows = json.loads(out.read_text("utf-8"))["rows"] if out.exists() else []
    for fire in PEERS:
        new, others = measure(fire), [row for row in rows if row["name"] != fire.__name__]
        rows = others + new if len(others) == len(rows) or "skipped" not in new[0] else rows
    found = {"command": "python benchmarks/wildfire_peers.py", "rows": rows}
    out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
