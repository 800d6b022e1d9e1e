"""Fuel models: Anderson's 13, Scott and Burgan's 40, and ground that does not burn.

Values are those of the USFS Behave engine. Anderson, H. E. (1982), Aids to determining fuel models,
INT-GTR-122; Scott, J. H. and Burgan, R. E. (2005), Standard fire behavior fuel models, RMRS-GTR-153.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rayfish.errors import RayfishError, did_you_mean

DEPTH, EXTINCTION, W1H, W10H, W100H, W_HERB, W_WOODY, SAV1H, SAV_HERB, SAV_WOODY, HEAT, DYNAMIC = range(12)
"""The columns of `table()`: depth, moisture of extinction, five loads, three surface-to-volume ratios, heat
of combustion, and whether live herbs are moved to dead fuel as they dry (0 or 1)."""

NO_DATA = (-9999, -32768, 32767)
"""What rasters hold where they know nothing; treated as bare ground (99)."""

LB_PER_FT2 = 2000.0 / 43560.0
"""Pounds per square foot in one ton per acre."""


@dataclass(frozen=True)
class FuelModel:
    """One standard fuel model; a zero load means that the class is absent."""

    number: int  # as in LANDFIRE's FBFM13 and FBFM40 rasters
    code: str  # short name: FM1 to FM13, GR1, SH5, NB9, ...
    name: str  # what it stands for
    depth_ft: float  # depth of the fuel bed, feet
    extinction: float  # moisture of extinction of dead fuel, a fraction
    w1h: float  # load of dead fuel that dries within an hour (thin), lb/ft^2
    w10h: float  # load of dead ten-hour fuel, lb/ft^2
    w100h: float  # load of dead hundred-hour fuel, lb/ft^2
    herb: float  # load of live herbs, lb/ft^2
    woody: float  # load of live woody fuel, lb/ft^2
    sav1h: float  # surface-area-to-volume ratio of one-hour fuel, 1/ft
    sav_herb: float  # the same of herbs, live or cured
    sav_woody: float  # the same of live woody fuel
    heat: float  # heat of combustion, BTU/lb
    dynamic: bool  # live herbs become dead fuel as they dry

    @property
    def burnable(self) -> bool:
        """Whether there is anything to burn."""
        return self.w1h + self.w10h + self.w100h + self.herb + self.woody > 0.0


# Loads in lb/ft^2. Live woody fuel of model 7 has 1500 in Behave, 1550 in Anderson's report.
_ANDERSON = """
#   code  ft   Mx   1 h  10 h 100 h  herb woody sav1 herb woody name
  1 FM1  1.0 0.12 0.034     0     0     0     0 3500 1500 1500  Short grass
  2 FM2  1.0 0.15 0.092 0.046 0.023 0.023     0 3000 1500 1500  Timber grass and understory
  3 FM3  2.5 0.25 0.138     0     0     0     0 1500 1500 1500  Tall grass
  4 FM4  6.0 0.20 0.230 0.184 0.092     0 0.230 2000 1500 1500  Chaparral
  5 FM5  2.0 0.20 0.046 0.023     0     0 0.092 2000 1500 1500  Brush
  6 FM6  2.5 0.25 0.069 0.115 0.092     0     0 1750 1500 1500  Dormant brush, hardwood slash
  7 FM7  2.5 0.40 0.052 0.086 0.069     0 0.017 1750 1500 1500  Southern rough
  8 FM8  0.2 0.30 0.069 0.046 0.115     0     0 2000 1500 1500  Short needle litter
  9 FM9  0.2 0.25 0.134 0.019 0.007     0     0 2500 1500 1500  Long needle or hardwood litter
 10 FM10 1.0 0.25 0.138 0.092 0.230     0 0.092 2000 1500 1500  Timber litter and understory
 11 FM11 1.0 0.15 0.069 0.207 0.253     0     0 1500 1500 1500  Light logging slash
 12 FM12 2.3 0.20 0.184 0.644 0.759     0     0 1500 1500 1500  Medium logging slash
 13 FM13 3.0 0.25 0.322 1.058 1.288     0     0 1500 1500 1500  Heavy logging slash
 91 NB1  1.0 0.10     0     0     0     0     0 1500 1500 1500  Urban, developed
 92 NB2  1.0 0.10     0     0     0     0     0 1500 1500 1500  Snow, ice
 93 NB3  1.0 0.10     0     0     0     0     0 1500 1500 1500  Agricultural
 98 NB8  1.0 0.10     0     0     0     0     0 1500 1500 1500  Open water
 99 NB9  1.0 0.10     0     0     0     0     0 1500 1500 1500  Bare ground
"""

# Loads in tons per acre, as published.
_SCOTT_BURGAN = """
#   code  ft   Mx   1 h  10 h 100 h  herb woody sav1 herb woody name
101 GR1  0.4 0.15  0.10     0     0  0.30     0 2200 2000 1500  Short, sparse, dry climate grass
102 GR2  1.0 0.15  0.10     0     0  1.00     0 2000 1800 1500  Low load, dry climate grass
103 GR3  2.0 0.30  0.10  0.40     0  1.50     0 1500 1300 1500  Low load, very coarse, humid climate grass
104 GR4  2.0 0.15  0.25     0     0  1.90     0 2000 1800 1500  Moderate load, dry climate grass
105 GR5  1.5 0.40  0.40     0     0  2.50     0 1800 1600 1500  Low load, humid climate grass
106 GR6  1.5 0.40  0.10     0     0  3.40     0 2200 2000 1500  Moderate load, humid climate grass
107 GR7  3.0 0.15  1.00     0     0  5.40     0 2000 1800 1500  High load, dry climate grass
108 GR8  4.0 0.30  0.50  1.00     0  7.30     0 1500 1300 1500  High load, very coarse, humid climate grass
109 GR9  5.0 0.40  1.00  1.00     0  9.00     0 1800 1600 1500  Very high load, humid climate grass
121 GS1  0.9 0.15  0.20     0     0  0.50  0.65 2000 1800 1800  Low load, dry climate grass-shrub
122 GS2  1.5 0.15  0.50  0.50     0  0.60  1.00 2000 1800 1800  Moderate load, dry climate grass-shrub
123 GS3  1.8 0.40  0.30  0.25     0  1.45  1.25 1800 1600 1600  Moderate load, humid climate grass-shrub
124 GS4  2.1 0.40  1.90  0.30  0.10  3.40  7.10 1800 1600 1600  High load, humid climate grass-shrub
141 SH1  1.0 0.15  0.25  0.25     0  0.15  1.30 2000 1800 1600  Low load, dry climate shrub
142 SH2  1.0 0.15  1.35  2.40  0.75     0  3.85 2000 1800 1600  Moderate load, dry climate shrub
143 SH3  2.4 0.40  0.45  3.00     0     0  6.20 1600 1800 1400  Moderate load, humid climate shrub
144 SH4  3.0 0.30  0.85  1.15  0.20     0  2.55 2000 1800 1600  Low load, humid climate timber-shrub
145 SH5  6.0 0.15  3.60  2.10     0     0  2.90  750 1800 1600  High load, dry climate shrub
146 SH6  2.0 0.30  2.90  1.45     0     0  1.40  750 1800 1600  Low load, humid climate shrub
147 SH7  6.0 0.15  3.50  5.30  2.20     0  3.40  750 1800 1600  Very high load, dry climate shrub
148 SH8  3.0 0.40  2.05  3.40  0.85     0  4.35  750 1800 1600  High load, humid climate shrub
149 SH9  4.4 0.40  4.50  2.45     0  1.55  7.00  750 1800 1500  Very high load, humid climate shrub
161 TU1  0.6 0.20  0.20  0.90  1.50  0.20  0.90 2000 1800 1600  Light load, dry climate timber-grass-shrub
162 TU2  1.0 0.30  0.95  1.80  1.25     0  0.20 2000 1800 1600  Moderate load, humid climate timber-shrub
163 TU3  1.3 0.30  1.10  0.15  0.25  0.65  1.10 1800 1600 1400  Moderate load, humid timber-grass-shrub
164 TU4  0.5 0.12  4.50     0     0     0  2.00 2300 1800 2000  Dwarf conifer understory
165 TU5  1.0 0.25  4.00  4.00  3.00     0  3.00 1500 1800  750  Very high load, dry climate timber-shrub
181 TL1  0.2 0.30  1.00  2.20  3.60     0     0 2000 1800 1600  Low load, compact conifer litter
182 TL2  0.2 0.25  1.40  2.30  2.20     0     0 2000 1800 1600  Low load broadleaf litter
183 TL3  0.3 0.20  0.50  2.20  2.80     0     0 2000 1800 1600  Moderate load conifer litter
184 TL4  0.4 0.25  0.50  1.50  4.20     0     0 2000 1800 1600  Small downed logs
185 TL5  0.6 0.25  1.15  2.50  4.40     0     0 2000 1800 1600  High load conifer litter
186 TL6  0.3 0.25  2.40  1.20  1.20     0     0 2000 1800 1600  High load broadleaf litter
187 TL7  0.4 0.25  0.30  1.40  8.10     0     0 2000 1800 1600  Large downed logs
188 TL8  0.3 0.35  5.80  1.40  1.10     0     0 1800 1800 1600  Long-needle litter
189 TL9  0.6 0.35  6.65  3.30  4.15     0     0 1800 1800 1600  Very high load broadleaf litter
201 SB1  1.0 0.25  1.50  3.00 11.00     0     0 2000 1800 1600  Low load activity fuel
202 SB2  1.0 0.25  4.50  4.25  4.00     0     0 2000 1800 1600  Moderate load activity or low load blowdown
203 SB3  1.2 0.25  5.50  2.75  3.00     0     0 2000 1800 1600  High load activity fuel or moderate blowdown
204 SB4  2.7 0.25  5.25  3.50  5.25     0     0 2000 1800 1600  High load blowdown
"""


def _models(text: str, unit: float) -> dict[int, FuelModel]:
    """The fuel models of one table whose loads are written in `unit` lb/ft^2."""
    models = {}
    for line in text.strip().splitlines()[1:]:
        number, code, *cells, name = line.split(maxsplit=12)
        depth, extinction, *values = map(float, cells)
        loads, ratios = [load * unit for load in values[:5]], values[5:]
        heat = 9000.0 if code == "GR6" else 8000.0
        # Scott and Burgan call dynamic just those of their models that have live herbs.
        dynamic = int(number) > 100 and loads[3] > 0.0
        rest: list[Any] = [depth, extinction, *loads, *ratios, heat, dynamic]
        models[int(number)] = FuelModel(int(number), code, name, *rest)
    return models


_STANDARD = _models(_ANDERSON, 1.0) | _models(_SCOTT_BURGAN, LB_PER_FT2)

FUEL_MODELS: Mapping[int, FuelModel] = MappingProxyType(_STANDARD | dict.fromkeys(NO_DATA, _STANDARD[99]))
"""Every fuel model by number; the numbers that mean no data give bare ground."""

BURNABLE = tuple(number for number, model in _STANDARD.items() if model.burnable)
"""The numbers of the 53 models that burn."""


def find(model: int | str) -> FuelModel:
    """The fuel model of a number (4) or code ("FM4", "gr2")."""
    if isinstance(model, str):
        codes = {known.code: known for known in _STANDARD.values()}
        if model.strip().upper() in codes:
            return codes[model.strip().upper()]
        close = did_you_mean(model.strip().upper(), codes)
        hint = f"did you mean {', '.join(close)}?" if close else f"codes are {', '.join(codes)}"
        raise RayfishError(f"there is no fuel model {model!r}", hint)
    if model in FUEL_MODELS:
        return FUEL_MODELS[int(model)]
    nearest = min(_STANDARD, key=lambda number: abs(number - model))
    raise RayfishError(
        f"there is no fuel model {model}",
        f"the nearest is {nearest} ({_STANDARD[nearest].name}); Anderson's are 1 to 13, Scott and Burgan's "
        "101 to 204, those that do not burn 91, 92, 93, 98, 99",
    )


def as_numbers(models: ArrayLike) -> NDArray[np.int64]:
    """Fuel models given as numbers or codes, as numbers that `table()` has rows for; no data becomes 99."""
    given = np.asarray(models)
    known, where = np.unique(given, return_inverse=True)
    numbers = np.array([find(value).number for value in known.tolist()], dtype=np.int64)
    return numbers[where].reshape(given.shape)


@cache
def table() -> NDArray[np.float64]:
    """All fuel models as an array [256, 12], one row per number; rows of unknown numbers are NaN."""
    rows = np.full((256, DYNAMIC + 1), np.nan)
    for number, model in _STANDARD.items():
        rows[number] = astuple(model)[3:]  # without number, code and name
    rows.setflags(write=False)
    return rows
