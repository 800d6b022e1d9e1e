"""Readers of single values in a wildfire's settings: each takes what a person wrote and the dotted key it
stands at, and gives the value in its own type or says what to write.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import PurePath
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from rayfish.errors import EnvironmentFault, RayfishError, suggest
from rayfish.worlds.wildfire.fire import fuels, geo

Reader = Callable[[Any, str], Any]

Grid = float | NDArray[np.float64]
"""One number for the whole map, or one per cell [H, W]."""

_UNIT_MINUTES = {"s": 1 / 60, "m": 1.0, "h": 60.0, "d": 1440.0, "w": 10080.0}
_TIME = re.compile(
    r"(\d+(?:\.\d+)?)(s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:r|our)?s?|d(?:ay)?s?|w(?:k|eek)?s?)?",
    re.IGNORECASE,
)


class SettingsFault(EnvironmentFault):
    """A wildfire's settings cannot be read as written."""


def section(kind: Any, given: Any, where: str) -> Any:
    """A section as its dataclass: every key known, every value read by its own reader."""
    if given is None:
        return kind()
    if not isinstance(given, Mapping):
        raise SettingsFault(
            f"{where or 'the configuration'} is {given!r}", "give a section of keys and values"
        )
    readers = readers_of(kind)
    known_keys(given, readers, where)
    return kind(**{key: readers[key](item, f"{where}.{key}".lstrip(".")) for key, item in given.items()})


@cache
def readers_of(kind: type) -> dict[str, Reader]:
    """How each field of a dataclass is read: as annotated, or by its type."""
    hints = get_type_hints(kind, include_extras=True)
    return {entry.name: _reader(hints[entry.name]) for entry in fields(kind)}


def _reader(hint: Any) -> Reader:
    if get_origin(hint) is Annotated:
        return cast(Reader, get_args(hint)[1])
    if is_dataclass(hint):
        return partial(section, hint)
    plain: dict[Any, Reader] = {bool: flag, int: whole, float: number, str: text, Any: as_is}
    return plain[hint]


def known_keys(given: Mapping[Any, Any], known: Mapping[str, Any], where: str) -> None:
    """Raises when `given` has a key that is not `known`."""
    for key in given:
        if key not in known:
            what = f"{where or 'the configuration'} has no key {key!r}"
            raise SettingsFault(what, suggest(str(key), known))


def minutes_of(time: str | float) -> int:
    """Whole minutes of a time such as "24h", "1d 2h", "1d2h", "90minutes"; a bare number is minutes."""
    if isinstance(time, int | float) and not isinstance(time, bool) and math.isfinite(time) and time >= 0:
        return round(time)
    written = str(time)
    found = _TIME.findall(written)
    if not found or _TIME.sub("", written).strip():
        raise SettingsFault(f"{time!r} is no time", "write it like 24h, 1d 2h, 90m (units s, m, h, d, w)")
    return round(sum(float(amount) * _UNIT_MINUTES[unit[:1].lower() or "m"] for amount, unit in found))


def runtime(given: Any, where: str) -> int:
    """A time in whole minutes."""
    try:
        return minutes_of(given)
    except SettingsFault as fault:
        raise SettingsFault(f"{where}: {fault.what}", fault.hint) from None


def number(given: Any, where: str, *, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number from `low` to `high`."""
    try:
        if isinstance(given, bool):
            raise TypeError
        found = float(given)  # also "1e-07", which YAML takes for text
    except (TypeError, ValueError):
        raise SettingsFault(f"{where} is {given!r}", "give a number") from None
    if not math.isfinite(found) or not low <= found <= high:
        bounds = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise SettingsFault(
            f"{where} is {given!r}", f"give a number {bounds}" if low > -math.inf else "give a finite number"
        )
    return found


def above_zero(given: Any, where: str) -> float:
    """A number above 0."""
    if (found := number(given, where, low=0)) == 0:
        raise SettingsFault(f"{where} is 0", "give a number above 0")
    return found


def whole(given: Any, where: str, *, low: int | None = None) -> int:
    """A whole number of at least `low`."""
    found = number(given, where)
    if found != int(found) or (low is not None and found < low):
        least = "" if low is None else f" of at least {low}"
        raise SettingsFault(f"{where} is {given!r}", f"give a whole number{least}")
    return int(given) if isinstance(given, int) else int(found)


def maybe(read: Reader) -> Reader:
    """What `read` reads, or null."""
    return lambda given, where: None if given is None else read(given, where)


def flag(given: Any, where: str) -> bool:
    """True or false."""
    if not isinstance(given, bool):
        raise SettingsFault(f"{where} is {given!r}", "give true or false")
    return given


def choice(*known: str) -> Reader:
    """One of some words."""

    def read(given: Any, where: str) -> str:
        if given in known:
            return str(given)
        raise SettingsFault(
            f"{where} is {given!r}", suggest(str(given), known, f"it is one of {', '.join(known)}")
        )

    return read


def choices(*known: str) -> Reader:
    """Some of some words."""
    one = choice(*known)

    def read(given: Any, where: str) -> tuple[str, ...]:
        found = [one(item, where) for item in items(given, where, f"[{known[0]}, {known[1]}]")]
        return tuple(word for word in known if word in found)

    return read


def text(given: Any, where: str) -> str:
    """Text, such as a path."""
    return str(given)


def as_is(given: Any, where: str) -> Any:
    """Whatever it is; for keys that are kept but not used."""
    return given


def ignored(given: Any, where: str) -> None:
    """Nothing; for keys of SimFire's files that SimFire itself does not use."""


def items(given: Any, where: str, example: str) -> list[Any]:
    """The items of a list; SimFire also writes "(3, 4)"."""
    if isinstance(given, str):
        try:
            given = ast.literal_eval(given)
        except (SyntaxError, ValueError):
            raise SettingsFault(f"{where} is {given!r}", f"give a list like {example}") from None
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise SettingsFault(f"{where} is {given!r}", f"give a list like {example}")
    return list(given)


def point(given: Any, where: str) -> tuple[int, int]:
    """A cell, (column, row)."""
    found = items(given, where, "[3, 4], column and row")
    if len(found) != 2:
        raise SettingsFault(f"{where} has {len(found)} numbers", "give two: column (x) and row (y)")
    return whole(found[0], where), whole(found[1], where)


def points(given: Any, where: str) -> tuple[tuple[int, int], ...]:
    """Several cells."""
    return tuple(point(item, where) for item in items(given, where, "[[3, 4], [3, 5]]"))


def size(given: Any, where: str) -> tuple[int, int]:
    """Rows and columns; one number is a square."""
    found = [given, given] if isinstance(given, int) else items(given, where, "[64, 64], rows and columns")
    if len(found) != 2:
        raise SettingsFault(f"{where} has {len(found)} numbers", "give two: rows and columns")
    return whole(found[0], where, low=1), whole(found[1], where, low=1)


def between(given: Any, where: str, *, low: float = -math.inf) -> tuple[float, float]:
    """The lowest and the highest of a range."""
    found = [number(item, where, low=low) for item in items(given, where, "[0.5, 1.5]")]
    if len(found) != 2 or found[0] > found[1]:
        raise SettingsFault(f"{where} is {given!r}", "give the lowest and the highest value, [low, high]")
    return found[0], found[1]


def model(given: Any, where: str) -> int:
    """A fuel model, by number or code."""
    try:
        return fuels.find(given if isinstance(given, str) else whole(given, where)).number
    except SettingsFault:
        raise
    except RayfishError as error:
        raise SettingsFault(f"{where}: {error.what}", error.hint) from None


def models(given: Any, where: str) -> tuple[int, ...]:
    """Fuel models, at least one."""
    found = items(given, where, "[1, 2, 4]")
    if not found:
        raise SettingsFault(f"{where} is empty", "name at least one fuel model")
    return tuple(model(item, where) for item in found)


def array(given: Any, where: str) -> NDArray[Any]:
    """A map of numbers [rows, columns]."""
    try:
        found = np.array(given)
    except ValueError:
        found = np.empty(0)
    if found.ndim != 2 or found.dtype.kind not in "biuf" or not found.size:
        raise SettingsFault(f"{where} is no map of numbers", "give an array [rows, columns]")
    found.setflags(write=False)
    return found


def grid(given: Any, where: str, *, low: float = -math.inf) -> Grid:
    """A number, a map, or the path of a map."""
    if isinstance(given, str) and PurePath(given).suffix.lower() in geo.SUFFIXES:
        given = geo.load(given, where).values
    if isinstance(given, str) or not isinstance(given, np.ndarray | Sequence):
        return number(given, where, low=low)
    found = array(given, where).astype(np.float64)
    if not np.isfinite(found).all() or found.min() < low:
        raise SettingsFault(
            f"{where} has values from {found.min():g} to {found.max():g}",
            f"give numbers of at least {low:g} for all cells" if low > -math.inf else "give finite numbers",
        )
    found.setflags(write=False)
    return found


Seed = Annotated[int | None, maybe(partial(whole, low=0))]
"""A whole number, or null where it shall be drawn."""

Count = Annotated[int, partial(whole, low=1)]
AboveZero = Annotated[float, above_zero]
NotNegative = Annotated[float, partial(number, low=0)]
Path = Annotated[str | None, maybe(text)]
MaybeFloat = Annotated[float | None, maybe(number)]
GridNotNegative = Annotated[Grid, partial(grid, low=0)]
