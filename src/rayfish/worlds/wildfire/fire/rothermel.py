"""How fast a surface fire spreads, which way and with what flames: Rothermel's model as in USFS Behave.

References, by the equation or page in the comments: Rothermel, R. C. (1972), A mathematical model for
predicting fire spread in wildland fuels, INT-115 ("R"); Albini, F. A. (1976), Estimating wildfire behavior
and effects, INT-GTR-30 ("A"); Andrews, P. L. (2018), The Rothermel surface fire spread model, RMRS-GTR-371.
Units: feet, minutes, pounds, BTU. Dead fuel has four classes (1 h, 10 h, 100 h, cured herbs), live fuel two
(herbs, woody); loads, surface-area-to-volume ratios and moistures of one life state travel as tuples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from rayfish.errors import RayfishError
from rayfish.worlds.wildfire.fire import fuels
from rayfish.worlds.wildfire.fire.codes import MPH

Classes = tuple[float, ...]
"""One number per size class of a life state."""

SAV_10H, SAV_100H = 109.0, 30.0  # 1/ft, the same in every standard fuel model
PARTICLE_DENSITY = 32.0  # lb/ft^3
MINERALS = 0.0555  # fraction of the dry mass that is not fuel
MINERAL_DAMPING = 0.174 * 0.01**-0.19  # R eq. 30 with 1 % of silica-free minerals
ONES = (1.0, 1.0, 1.0, 1.0)  # for sums of the weights alone


@njit(cache=True)
def cured_fraction(herb_moisture: float) -> float:
    """The part of a dynamic model's live herbs that counts as dead; the coefficients are Behave's."""
    if herb_moisture < 0.30:
        return 1.0
    if herb_moisture > 1.20:
        return 0.0
    return min(1.0, 1.333 - 1.11 * herb_moisture)


@njit(cache=True)
def _surface(loads: Classes, savs: Classes, values: Classes) -> float:
    """The sum of `values` weighted by the surface area of each class (R eq. 53, times particle density)."""
    total = 0.0
    for i in range(len(loads)):
        total += loads[i] * savs[i] * values[i]
    return total


@njit(cache=True)
def _bin(sav: float) -> int:
    """The size bin of particles (A): classes in one bin share their surface-area weights."""
    if sav >= 1200.0:
        return 0
    if sav >= 192.0:
        return 1
    if sav >= 96.0:
        return 2
    if sav >= 48.0:
        return 3
    return 4


@njit(cache=True)
def _net_load(loads: Classes, savs: Classes, area: float) -> float:
    """The load of a life state less its minerals, each class weighted by its bin (R eq. 24, A)."""
    total = 0.0
    for i in range(len(loads)):
        for j in range(len(loads)):
            if _bin(savs[i]) == _bin(savs[j]):
                total += loads[i] * loads[j] * savs[j]
    return (1.0 - MINERALS) * total / area


@njit(cache=True)
def _fine(loads: Classes, savs: Classes, values: Classes, scale: float) -> float:
    """The sum of `values` weighted by load, the finer the fuel the more (A p. 89)."""
    total = 0.0
    for i in range(len(loads)):
        total += loads[i] * math.exp(-scale / savs[i]) * values[i]
    return total


@njit(cache=True)
def _live_extinction(fine_dead: float, fine_water: float, fine_live: float, extinction: float) -> float:
    """The moisture at which live fuel stops burning, from the fine dead fuel there is to dry it (A p. 89)."""
    if fine_live < 1e-7 or fine_dead < 1e-7:
        return extinction
    dryness = 1.0 - fine_water / fine_dead / extinction
    return max(extinction, 2.9 * fine_dead / fine_live * dryness - 0.226)


@njit(cache=True)
def _moisture_damping(moisture: float, extinction: float) -> float:
    """How much of the reaction is left at a moisture (R eq. 29)."""
    if moisture >= extinction:
        return 0.0
    ratio = moisture / extinction
    return 1.0 - 2.59 * ratio + 5.11 * ratio**2 - 3.52 * ratio**3


@njit(cache=True)
def _reaction_velocity(sav: float, packing: float) -> float:
    """The reaction velocity, 1/min, at a packing ratio relative to the best (R eq. 36, 38; A p. 88)."""
    power = sav**1.5
    fastest = power / (495.0 + 0.0594 * power)
    a = 133.0 * sav**-0.7913
    return fastest * packing**a * math.exp(a * (1.0 - packing))


@njit(cache=True)
def _propagating_flux(sav: float, packing_ratio: float) -> float:
    """The part of the reaction's heat that reaches the fuel ahead (R eq. 42)."""
    return math.exp((0.792 + 0.681 * math.sqrt(sav)) * (packing_ratio + 0.1)) / (192.0 + 0.2595 * sav)


@njit(cache=True)
def _ignition_heat(loads: Classes, savs: Classes, moistures: Classes) -> float:
    """The heat of preignition of a life state, weighted by surface area (R eq. 12, 14, 77)."""
    total = 0.0
    for i in range(len(loads)):
        heat = 250.0 + 1116.0 * moistures[i]
        total += loads[i] * savs[i] * math.exp(-138.0 / savs[i]) * heat
    return total


@njit(cache=True)
def base(
    row: NDArray[np.float64], m1: float, m10: float, m100: float, mh: float, mw: float
) -> tuple[float, float, float, float, float, float, float]:
    """What depends on fuel and moisture alone; the first five are the first arguments of `head`.

    :param row: a row of `fuels.table()`
    :param m1: moisture of dead one-hour fuel (and of cured herbs), a fraction; `m10`, `m100`: of ten-hour and
        hundred-hour fuel; `mh`: of live herbs; `mw`: of live woody fuel
    :returns: rate of spread without wind and slope (ft/min); reaction intensity (BTU/ft^2/min); exponent B
        and factor K of the wind coefficient K U^B (U in ft/min); factor of the slope coefficient (times the
        squared tangent); heat per unit area (BTU/ft^2); characteristic surface-area-to-volume ratio (1/ft).
        All zero where there is nothing to burn.
    """
    herbs = row[fuels.W_HERB]
    cured = herbs * cured_fraction(mh) if row[fuels.DYNAMIC] > 0.0 else 0.0
    dead = (row[fuels.W1H], row[fuels.W10H], row[fuels.W100H], cured)
    live = (herbs - cured, row[fuels.W_WOODY])
    load = dead[0] + dead[1] + dead[2] + dead[3] + live[0] + live[1]
    if load == 0.0:
        return 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    dead_savs = (row[fuels.SAV1H], SAV_10H, SAV_100H, row[fuels.SAV_HERB])
    live_savs = (row[fuels.SAV_HERB], row[fuels.SAV_WOODY])
    dead_moistures, live_moistures = (m1, m10, m100, m1), (mh, mw)

    dead_area, live_area = _surface(dead, dead_savs, ONES), _surface(live, live_savs, ONES)
    area = dead_area + live_area
    sav = (_surface(dead, dead_savs, dead_savs) + _surface(live, live_savs, live_savs)) / area  # R eq. 71
    density = load / row[fuels.DEPTH]
    packing_ratio = density / PARTICLE_DENSITY
    packing = packing_ratio / (3.348 * sav**-0.8189)  # R eq. 37

    extinction = row[fuels.EXTINCTION]
    burning = 0.0  # net load that takes part in the reaction
    if dead_area > 0.0:
        moisture = _surface(dead, dead_savs, dead_moistures) / dead_area
        burning += _net_load(dead, dead_savs, dead_area) * _moisture_damping(moisture, extinction)
    if live_area > 0.0:
        moisture = _surface(live, live_savs, live_moistures) / live_area
        fine_dead = _fine(dead, dead_savs, ONES, 138.0)
        fine_water = _fine(dead, dead_savs, dead_moistures, 138.0)
        fine_live = _fine(live, live_savs, ONES, 500.0)
        live_extinction = _live_extinction(fine_dead, fine_water, fine_live, extinction)
        burning += _net_load(live, live_savs, live_area) * _moisture_damping(moisture, live_extinction)
    intensity = _reaction_velocity(sav, packing) * burning * row[fuels.HEAT] * MINERAL_DAMPING  # R eq. 27, 58

    sink = _ignition_heat(dead, dead_savs, dead_moistures) + _ignition_heat(live, live_savs, live_moistures)
    rate = intensity * _propagating_flux(sav, packing_ratio) / (density * sink / area)  # R eq. 52, no wind
    wind_b = 0.02526 * sav**0.54  # R eq. 47 to 50
    wind_k = 7.47 * math.exp(-0.133 * sav**0.55) * packing ** (-0.715 * math.exp(-0.000359 * sav))
    slope_k = 5.275 * packing_ratio**-0.3  # R eq. 51
    return rate, intensity, wind_b, wind_k, slope_k, intensity * 384.0 / sav, sav


@njit(cache=True)
def eccentricity(effective_mph: float) -> float:
    """The eccentricity of the fire's ellipse (Anderson 1983), at most 8 times as long as wide."""
    if effective_mph <= 1e-7:
        return 0.0
    ratio = 0.936 * math.exp(0.1147 * effective_mph) + 0.461 * math.exp(-0.0692 * effective_mph) - 0.397
    ratio = min(8.0, max(1.0, ratio))
    return math.sqrt(ratio**2 - 1.0) / ratio


@njit(cache=True)
def head(
    no_wind_rate: float,
    reaction_intensity: float,
    wind_b: float,
    wind_k: float,
    slope_k: float,
    midflame_mph: float,
    wind_to_x: float,
    wind_to_y: float,
    slope_x: float,
    slope_y: float,
    wind_limit: bool,
) -> tuple[float, float, float, float, float]:
    """The head of the fire: wind and slope add as vectors, as in Behave; their sum gives rate and heading.

    :param no_wind_rate: this and the next four: the first five of `base`
    :param midflame_mph: wind speed at the height of the flames, mph
    :param wind_to_x: unit vector toward which the wind blows, along columns
    :param wind_to_y: the same along rows, downwards
    :param slope_x: rise per run of the ground along columns
    :param slope_y: the same along rows, downwards
    :param wind_limit: wind and slope together count for no more than a wind of 0.9 I_R ft/min (R)
    :returns: head rate (ft/min), unit vector of the heading (x, y; y downwards), eccentricity of the ellipse,
        effective wind (mph). Without wind and slope the heading is (1, 0) and the ellipse a circle.
    """
    if no_wind_rate == 0.0:
        return 0.0, 1.0, 0.0, 0.0, 0.0
    limit = 0.9 * reaction_intensity if wind_limit else math.inf
    phi_wind = wind_k * (midflame_mph * MPH) ** wind_b
    x, y = phi_wind * wind_to_x, phi_wind * wind_to_y
    steepness = math.sqrt(slope_x**2 + slope_y**2)
    if steepness > 0.0:
        phi_slope = min(slope_k * steepness**2, limit)  # Behave caps this too, whatever the units say
        x += phi_slope * slope_x / steepness
        y += phi_slope * slope_y / steepness
    phi = math.sqrt(x**2 + y**2)
    if phi == 0.0:
        return no_wind_rate, 1.0, 0.0, 0.0, 0.0
    effective = (phi / wind_k) ** (1.0 / wind_b)
    rate = no_wind_rate * (1.0 + phi)
    if effective > limit:
        effective = limit
        rate = no_wind_rate * (1.0 + wind_k * limit**wind_b)
    return rate, x / phi, y / phi, eccentricity(effective / MPH), effective / MPH


@njit(cache=True)
def time_across(distance: float, aside: float, ellipse: float, cosine: float) -> float:
    """The time that fire from an ignition takes over a distance at an angle to the heading, by its cosine.

    :param aside: rate of spread at right angles to the heading: that of the head times 1 - `ellipse`
    :param ellipse: eccentricity from `head`
    """
    return (1.0 - ellipse * cosine) * distance / aside


@njit(cache=True)
def fireline_intensity(heat_per_area: float, rate: float) -> float:
    """Byram's fireline intensity, BTU/ft/s, of fire spreading at `rate` ft/min."""
    return heat_per_area * rate / 60.0


@njit(cache=True)
def flame_length(intensity: float) -> float:
    """Byram's flame length, ft, at a fireline intensity in BTU/ft/s."""
    return 0.45 * intensity**0.46 if intensity >= 1e-7 else 0.0


@dataclass(frozen=True)
class SurfaceFire:
    """What a surface fire does at its head; floats, or arrays of the inputs' common shape."""

    spread_rate_ft_min: Any  # rate of spread, ft/min
    flame_length_ft: Any  # flame length, ft
    intensity_btu_ft_s: Any  # fireline intensity, BTU/ft/s
    reaction_intensity: Any  # heat released per area and time, BTU/ft^2/min
    heat_per_unit_area: Any  # heat released per area, BTU/ft^2
    effective_wind_mph: Any  # the wind that would do what wind and slope do together, mph
    eccentricity: Any  # of the fire's ellipse: 0 is a circle


def surface_fire(
    fuel_model: ArrayLike,
    m1h: ArrayLike,
    m10h: ArrayLike,
    m100h: ArrayLike,
    m_herb: ArrayLike,
    m_woody: ArrayLike,
    midflame_mph: ArrayLike,
    slope: ArrayLike,
    wind_limit: bool = True,
) -> SurfaceFire:
    """The head of a surface fire with the wind blowing straight upslope; inputs broadcast like NumPy's.

    Moistures are fractions: of dead fuel that dries within 1, 10 and 100 hours, of live herbs, of live wood.

    :param fuel_model: number (4, 102) or code ("FM4", "GR2") of the fuel model
    :param midflame_mph: wind speed at the height of the flames, mph
    :param slope: rise per run; below 0 the wind blows downslope
    :param wind_limit: Behave's limit on the effect of strong wind
    """
    named = {"m1h": m1h, "m10h": m10h, "m100h": m100h, "m_herb": m_herb, "m_woody": m_woody}
    for name, value in named.items():
        _check(name, value, 0.0, 3.0, "moistures are fractions: write 0.06 for 6 %")
    _check("midflame_mph", midflame_mph, 0.0, 1000.0, "give the wind in miles per hour, 0 or more")
    _check("slope", slope, -1000.0, 1000.0, "give the slope as rise per run: 0.3 for 30 %")
    numbers = fuels.as_numbers(fuel_model)
    given = np.broadcast_arrays(numbers, *named.values(), midflame_mph, slope)
    cases = np.stack([np.asarray(values, dtype=np.float64).ravel() for values in given])
    found = np.empty((len(fields(SurfaceFire)), cases.shape[1]))
    _surface_fires(fuels.table(), cases, bool(wind_limit), found)
    shape = given[0].shape
    return SurfaceFire(*(values.reshape(shape) if shape else float(values[0]) for values in found))


def _check(name: str, value: ArrayLike, low: float, high: float, hint: str) -> None:
    values = np.asarray(value, dtype=np.float64)
    wrong = ~((values >= low) & (values <= high))  # catches NaN too
    if wrong.any():
        raise RayfishError(f"{name} is {values[wrong][0]:g}, outside {low:g} to {high:g}", hint)


@njit(cache=True)
def _surface_fires(
    table: NDArray[np.float64], cases: NDArray[np.float64], wind_limit: bool, found: NDArray[np.float64]
) -> None:
    for i in range(cases.shape[1]):
        number, m1, m10, m100, mh, mw, mph, slope = cases[:, i]
        bed = base(table[int(number)], m1, m10, m100, mh, mw)
        rate, _, _, ellipse, effective = head(*bed[:5], mph, 1.0, 0.0, slope, 0.0, wind_limit)
        intensity = fireline_intensity(bed[5], rate)
        found[0, i], found[1, i], found[2, i] = rate, flame_length(intensity), intensity
        found[3, i], found[4, i], found[5, i], found[6, i] = bed[1], bed[5], effective, ellipse
