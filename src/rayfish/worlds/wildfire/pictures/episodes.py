"""Pictures of running episodes: the fire, the agents and where they have been."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rayfish.worlds.wildfire.fire.codes import BURNED, BURNING, FIRELINE, MPH

if TYPE_CHECKING:
    from rayfish.worlds.wildfire.env.episodes import Episodes

LOST = "×"
"""The number of an agent that is lost."""

LONGEST_TRAIL = 400
"""Steps of an agent that a picture shows."""


class Pictures:
    """Paints the episodes of an environment; keeps where agents have been."""

    def __init__(self, number: int) -> None:
        self._trails: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(number)]
        self._painters: dict[Any, Any] = {}

    def note(self, episodes: Episodes) -> None:
        """A step was made."""
        for n, trail in enumerate(self._trails):
            if episodes.steps[n] <= 1:
                trail.clear()
            trail.append((episodes.crew.x[n].copy(), episodes.crew.y[n].copy()))
            del trail[:-LONGEST_TRAIL]

    def frame(self, episodes: Episodes, n: int) -> np.ndarray:
        """A picture of one episode, uint8 [height, width, 3]."""
        crew, seen, options = episodes.crew, episodes.seen, episodes.options
        trail = self._trails[n] if episodes.steps[n] > 0 else []
        x, y = seen.wind[n]
        counts = seen.counts[n]
        figures: dict[str, Any] = {
            "burned": f"{100 * (counts[BURNING] + counts[BURNED]) / episodes.cells:.0f} %",
            "lines": int(counts[FIRELINE:].sum()),
            "step": int(episodes.steps[n]),
        }
        return np.asarray(
            self._painter(episodes, n).frame(
                episodes.sim.fire_map[n],
                [
                    (int(crew.x[n, a]), int(crew.y[n, a]), LOST if crew.lost[n, a] else a)
                    for a in range(options.num_agents)
                ],
                [[(int(xs[a]), int(ys[a])) for xs, ys in trail] for a in range(options.num_agents)],
                wind=(math.hypot(x, y) / MPH, math.degrees(math.atan2(x, -y)) % 360),
                clock_minutes=float(episodes.updates[n]) * episodes.settings.simulation.update_rate,
                figures=figures,
            )
        )

    def _painter(self, episodes: Episodes, n: int) -> Any:
        """Painting the ground takes a while: it is kept for as long as the landscape stays."""
        from rayfish.worlds.wildfire.pictures.render import Painter

        landscape = episodes.sim.landscape(n)
        key = 0 if not episodes.varied else n
        known = self._painters.get(key)
        if known is None or known[0] is not landscape:
            made = Painter(landscape.elevation, landscape.fuel, episodes.settings.area.pixel_scale)
            known = self._painters[key] = (landscape, made)
        return known[1]

    def __getstate__(self) -> dict[str, Any]:
        """Painted grounds are made again."""
        return {"_trails": self._trails, "_painters": {}}
