"""How fast fires burn: whole fires on one core, and thousands at once on a GPU.

    python benchmarks/wildfire.py            # this machine's CPU; for peers see wildfire_peers.py
    python benchmarks/wildfire.py --gpu      # an NVIDIA GPU (pip install 'rayfish[cuda]')

The fire: fuel model 2 (timber, grass and understory), dead fuel at 6, 7 and 8 % moisture, live at 60 %,
midflame wind of 5 mph toward the East, 50 ft cells, one minute per update, on level ground and on hills (600
ft, slopes of 46 % on average, where a minute takes four steps), ignition in the middle (on the GPU anywhere).
It runs until nothing burns any more; the whole map has burned. Every fire has a landscape of its own, and
making its table is counted. Medians of repeated fires, one thread. Results: `results/wildfire.json`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from rayfish.worlds.wildfire.fire.simulator import Simulator

RESULTS = Path(__file__).resolve().parent / "results"
SIZES = (64, 128, 256, 512, 1024)
TERRAINS = ("flat", "perlin")
GPU_FIRES, GPU_UPDATES = 16384, 500


def config(size: int, terrain: str = "flat") -> dict[str, Any]:
    """The fire of this benchmark on a square map."""
    return {
        "area": {"screen_size": [size, size], "pixel_scale": 50.0},
        "simulation": {"update_rate": 1.0, "runtime": "10000h"},
        "terrain": {
            "topography": {"type": "functional", "functional": {"function": terrain}},
            "fuel": {"type": "functional", "functional": {"function": "uniform", "uniform": {"model": 2}}},
        },
        "fire": {
            "fire_initial_position": {"type": "static", "static": {"position": [size // 2, size // 2]}},
            "max_fire_duration": 4,
        },
        "environment": {"moisture": {"m1h": 0.06, "m10h": 0.07, "m100h": 0.08, "herb": 0.6, "woody": 0.6}},
        "wind": {"function": "simple", "simple": {"speed": 5.0, "direction": 90.0}},
    }


def whole_fire(size: int, terrain: str) -> dict[str, float]:
    """One fire from its landscape to the last flame."""
    simulator = Simulator(config(size, terrain), 1, seed=1)
    landscape = simulator.landscape(0)
    simulator.run(0)
    begun = time.perf_counter()
    simulator.set_landscape(0, landscape)  # makes the table of rates
    made = time.perf_counter()
    simulator.run(10**9)
    ended = time.perf_counter()
    counts = simulator.counts()[0]
    assert counts[2] == size * size, counts
    return {"updates": int(simulator.updates[0]), "setup": made - begun, "fire": ended - made}


def memory(size: int) -> int:
    """Bytes of one fire with a landscape of its own: state and table."""
    engine = Simulator(config(size), 1, seed=1).engine
    return sum(array.nbytes for array in (*engine.fires, *engine.tables()))


def on_cpu() -> list[dict[str, Any]]:
    """A row per size and terrain."""
    rows = []
    for terrain in TERRAINS:
        for size in SIZES:
            whole_fire(size, terrain)
            fires = [whole_fire(size, terrain) for _ in range(7 if size <= 256 else 3)]
            took = statistics.median(fire["setup"] + fire["fire"] for fire in fires)
            updates = fires[0]["updates"]
            rows.append(
                {
                    "terrain": terrain,
                    "size": size,
                    "updates": updates,
                    "setup_ms": round(1e3 * statistics.median(fire["setup"] for fire in fires), 3),
                    "fire_ms": round(1e3 * statistics.median(fire["fire"] for fire in fires), 3),
                    "updates_per_s": round(updates / took),
                    "ignitions_per_s": round(size * size / took),
                    "ns_per_ignition": round(1e9 * took / size**2, 1),
                    "bytes": memory(size),
                }
            )
            print(
                f"{terrain:6} {size:4}: {updates:5} updates, {rows[-1]['updates_per_s']:>8,} updates/s, "
                f"{rows[-1]['ignitions_per_s']:>10,} ignitions/s, {rows[-1]['bytes'] / 1e6:.2f} MB"
            )
    return rows


def on_gpu(terrain: str) -> dict[str, Any]:
    """Many fires at once, and whether their maps are the CPU's."""
    from rayfish.worlds.wildfire.fire.cuda import CudaFires

    rng = np.random.default_rng(1)
    simulator = Simulator(config(128, terrain), GPU_FIRES, seed=1)
    starts = [[(int(x), int(y))] for x, y in rng.integers(0, 128, (GPU_FIRES, 2))]
    for _ in range(4):  # the first one compiles
        simulator.reset(ignitions=starts)
        begun = time.perf_counter()
        fires = CudaFires(simulator)
        moved = time.perf_counter()
        fires.run(GPU_UPDATES)
        ended = time.perf_counter()
        fires.copy_back()
        updates = int(simulator.updates.sum())
    some = Simulator(config(128, terrain), 256, seed=1)
    some.reset(ignitions=starts[:256])
    some.run(GPU_UPDATES)
    result = {
        "terrain": terrain,
        "fires": GPU_FIRES,
        "updates": updates,
        "steps_per_update": int(simulator.engine.tables().substeps[0]),
        "updates_per_s": round(updates / (ended - moved)),
        "updates_per_s_with_copy_there": round(updates / (ended - begun)),
        "maps_equal_to_cpu": bool((simulator.fire_map[:256] == some.fire_map).all()),
    }
    print(json.dumps(result))
    return result


def main() -> None:
    """Runs what was asked for and adds it to the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", action="store_true", help="on an NVIDIA GPU instead")
    parser.add_argument("--out", type=Path, default=RESULTS / "wildfire.json")
    words = parser.parse_args()
    known = json.loads(words.out.read_text("utf-8")) if words.out.exists() else {}
    machine = {"python": platform.python_version(), "numpy": np.__version__}
    if words.gpu:
        part = {"gpu": {"rows": [on_gpu(terrain) for terrain in TERRAINS], **machine}}
    else:
        part = {"cpu": {"rows": on_cpu(), **machine}}
    words.out.write_text(
        json.dumps(known | {"command": "python benchmarks/wildfire.py"} | part, indent=1) + "\n"
    )
    print(f"written: {words.out.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
