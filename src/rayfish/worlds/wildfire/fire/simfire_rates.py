"""SimFire's rates of spread: Rothermel's model of one fuel class, as SimFire 2.0.1 computes it.

Its defects are kept on purpose (downhill counts as uphill, off-wind directions get a cosine of the wind, no
limit to the wind): who continues a SimFire study needs the same numbers. `physics: behave` has right ones.
Inputs are float32 and so is most of the arithmetic, in SimFire's order of operations, so that the results are
equal to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rayfish.worlds.wildfire.fire.codes import NEIGHBOURS
from rayfish.worlds.wildfire.fire.tables import gradient

HEAT, MINERAL, SILICA_FREE, DENSITY = (np.float32(value) for value in (8000, 0.0555, 0.01, 32))
"""SimFire's fuel particles: BTU/lb, total and effective mineral content, lb/ft^3."""


def rates(landscape: Any, cell_ft: float, moisture: float) -> np.ndarray:
    """Feet per minute into each cell, by the direction fire travels in: float64 [H*W, 8]."""
    along_y, along_x = gradient(landscape.elevation.astype(np.float64), cell_ft)
    steepness = np.hypot(along_x, along_y).astype(np.float32)
    downhill = np.arctan2(along_y, along_x + 0.000001).astype(np.float32)
    fuel = [np.asarray(getattr(landscape, name), np.float32) for name in ("w_0", "delta", "M_x", "sigma")]
    wind = [np.asarray(getattr(landscape, name), np.float32) for name in ("wind_speed", "wind_direction")]
    with np.errstate(all="ignore"):  # SimFire's random fuels give NaN, which then never burn
        found = [
            _towards(dx, dy, fuel, wind, steepness, downhill, np.float32(moisture)) for dx, dy in NEIGHBOURS
        ]
    return np.ascontiguousarray(np.stack([part.ravel() for part in found], axis=1))


def _towards(
    dx: int,
    dy: int,
    fuel: list[np.ndarray],
    wind: list[np.ndarray],
    steepness: np.ndarray,
    downhill: np.ndarray,
    moisture: np.float32,
) -> np.ndarray:
    w_0, delta, m_x, sigma = fuel
    speed, direction = wind
    eta_s = min(0.174 * SILICA_FREE**-0.19, 1)
    share = np.minimum(moisture / m_x, 1)
    eta_m = 1 - 2.59 * share + 5.11 * share**2 - 3.52 * share**3
    net = w_0 * (1 - MINERAL)
    bulk = w_0 / delta
    packing = bulk / DENSITY
    best = 3.348 * sigma**-0.8189
    gamma_max = sigma**1.5 / (495 + 0.0594 * sigma**1.5)
    a = 133 * sigma**-0.7913
    gamma = gamma_max * (packing / best) ** a * np.exp(a * (1 - packing / best))
    intensity = gamma * net * HEAT * eta_m * eta_s
    xi = np.exp((0.792 + 0.681 * sigma**0.5) * (packing + 0.1)) / (192 + 0.2595 * sigma)
    c = 7.47 * np.exp(-0.133 * sigma**0.55)
    b = 0.02526 * sigma**0.54
    e = 0.715 * np.exp(-3.59e-4 * sigma)
    theta = np.float32(np.arctan2(np.float32(-dy), np.float32(dx)))
    along = speed * np.cos(np.radians(90 - direction) - theta)
    along = np.where(along < 0, np.float32(0), along)
    phi_w = c * along**b * (packing / best) ** -e
    slope = -steepness * np.cos(downhill + theta)
    sign = np.where(slope > 0, 1, -1)  # integers: what follows is float64, as in SimFire
    phi_s = 5.275 * packing**-0.3 * sign * slope**2
    epsilon = np.exp(-138 / sigma)
    q_ig = 250 + 1116 * moisture
    rate = (intensity * xi * (1 + phi_w + phi_s)) / (bulk * epsilon * q_ig)
    return np.where(w_0 > 0, np.where(rate < 0, 0.0, rate), 0.0)
