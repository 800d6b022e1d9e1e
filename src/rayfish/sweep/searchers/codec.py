"""Parameters in the three forms that every search method knows: a category, a whole number, a number.

A value and its code stand for each other exactly, so a resumed method that is given the recorded values
knows what it knew before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from rayfish.sweep.importance import is_number
from rayfish.sweep.searchers.base import position
from rayfish.sweep.space import Parameter, Space

CATEGORY, WHOLE, REAL = "category", "whole", "real"
_NORMAL_PARTS = 10_000
"""A normal distribution is searched over its quantiles 1/10000 to 9999/10000: 3.7 deviations each way."""


@dataclass(frozen=True)
class Axis:
    """One parameter as a search method sees it.

    :param form: category (codes are places in its list), whole, or real
    :param high: included
    :param log: whether it is searched by magnitude
    """

    parameter: Parameter
    form: str
    low: float
    high: float
    log: bool = False

    @property
    def size(self) -> int:
        """How many codes there are, of a category or a whole number."""
        return int(self.high) - int(self.low) + 1

    def decode(self, code: Any) -> Any:
        """The value that a code stands for."""
        parameter = self.parameter
        if self.form == CATEGORY:
            return parameter.values[int(code)]
        if parameter.kind == "normal":
            return NormalDist(*parameter.values).inv_cdf(int(code) / _NORMAL_PARTS)
        if parameter.kind.startswith("q"):
            value = parameter.rounded(int(code) * parameter.values[2])
            return int(value) if parameter.is_integer else float(value)
        return int(code) if self.form == WHOLE else float(parameter.rounded(float(code)))

    def encode(self, value: Any) -> Any:
        """The code of a value, the nearest one where a value is not quite of this parameter."""
        parameter = self.parameter
        if self.form == CATEGORY:
            return position(parameter.values, value) or 0
        if parameter.kind == "normal":
            code = NormalDist(*parameter.values).cdf(float(value)) * _NORMAL_PARTS
        elif parameter.kind.startswith("q"):
            code = float(value) / parameter.values[2]
        else:
            code = float(value)
        code = min(max(code, self.low), self.high)
        return round(code) if self.form == WHOLE else code

    def holds(self, value: Any) -> bool:
        """Whether a value can be one of this parameter's at all."""
        if self.form == CATEGORY:
            return position(self.parameter.values, value) is not None
        return is_number(value)


def axes(space: Space) -> list[Axis]:
    """The parameters that a method chooses; `sample_from` follows from the others and is none."""
    return [_axis(parameter) for parameter in space if parameter.kind != "sample_from"]


def _axis(parameter: Parameter) -> Axis:
    if parameter.is_list:
        return Axis(parameter, CATEGORY, 0, len(parameter.values) - 1)
    if parameter.kind == "normal":
        return Axis(parameter, WHOLE, 1, _NORMAL_PARTS - 1)
    low, high = parameter.bounds
    if parameter.kind.startswith("q"):
        step = parameter.values[2]
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        first = max(first, 1) if parameter.is_log else first
        return Axis(parameter, WHOLE, first, max(first, last), parameter.is_log)
    return Axis(parameter, WHOLE if parameter.is_integer else REAL, low, high, parameter.is_log)
