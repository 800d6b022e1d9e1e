"""The search space: which keys may vary, over what, and under which condition.

A parameter is written as SimHarness2 wrote its `tunables`, `{type: loguniform, values: [1e-5, 1e-2]}`,
or short, as on the command line: `training.lr=loguniform(1e-5,1e-2)`. Ray Tune's own forms
(`{grid_search: [...]}`, `tune.uniform(0, 1)`) are read as well.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rayfish.errors import ConfigError, Problem, RayfishError, did_you_mean, suggest

KINDS = {
    "grid": "each of the values",
    "choice": "one of the values",
    "uniform": "a number from low to high",
    "loguniform": "a number from low to high, evenly over its magnitude",
    "quniform": "low, high, step",
    "qloguniform": "low, high, step, evenly over its magnitude",
    "randint": "a whole number from low to high, high excluded",
    "lograndint": "a whole number from low to high, high excluded, evenly over its magnitude",
    "qrandint": "low, high, step: whole numbers, high included",
    "normal": "mean and standard deviation",
    "sample_from": "the import path of a function that is given the other parameters",
}
_ALIASES = {
    "grid_search": "grid",
    "randn": "normal",
    "interval": "uniform",
    "range": "grid",
    "categorical": "choice",
}
_LISTS = ("grid", "choice")
_WITH_STEP = ("quniform", "qloguniform", "qrandint")
_SHORT = re.compile(r"\s*(\w+)\((.*)\)\s*(?:if\s+(.+))?", re.DOTALL)
_MOST_GRID_POINTS = 100_000
_TINY = 1e-9
_HYDRA = (
    *("str", "int", "float", "bool", "json_str", "glob"),
    *("sort", "shuffle", "tag", "extend_list", "choice", "range"),
)
"""Functions of Hydra's grammar, which make values."""


@dataclass(frozen=True)
class Parameter:
    """One key that varies.

    :param key: dotted, as in the experiment: `training.lr`
    :param kind: one of `KINDS`
    :param values: the values, or the bounds (low, high[, step]; mean, deviation; an import path)
    :param when: other keys with the values they must have for this one to matter, else it is left out
    """

    key: str
    kind: str
    values: tuple[Any, ...]
    when: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    @property
    def is_list(self) -> bool:
        """Whether its values are named one by one."""
        return self.kind in _LISTS

    @property
    def is_log(self) -> bool:
        """Whether magnitudes count, not differences."""
        return "log" in self.kind

    @property
    def is_integer(self) -> bool:
        """Whether it takes whole numbers only."""
        return self.kind.endswith("randint")

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest value; of a normal distribution, three deviations around its mean."""
        if self.kind == "normal":
            mean, deviation = self.values
            return mean - 3 * deviation, mean + 3 * deviation
        low, high = self.values[:2]
        return low, high - 1 if self.kind in ("randint", "lograndint") else high

    def active(self, params: Mapping[str, Any], keys: Collection[str]) -> bool:
        """Whether its condition holds for the parameters chosen so far; only `keys` can violate it."""
        return all(
            key not in keys or (key in params and params[key] in allowed) for key, allowed in self.when
        )

    def sample(self, rng: np.random.Generator, params: Mapping[str, Any]) -> Any:
        """One value at random."""
        if self.is_list:
            return self.values[int(rng.integers(len(self.values)))]
        if self.kind == "sample_from":
            return _called(self.key, self.values[0], params)
        if self.kind == "normal":
            return float(rng.normal(*self.values))
        low, high = self.bounds
        if self.is_log:
            return self.rounded(math.exp(rng.uniform(math.log(low), math.log(high + self.is_integer))))
        if self.is_integer:
            return self.rounded(int(rng.integers(int(low), int(high) + 1)))
        return self.rounded(float(rng.uniform(low, high)))

    def rounded(self, value: Any) -> Any:
        """A number as the parameter can have it: on its steps, whole, within its bounds."""
        if self.is_list or self.kind in ("normal", "sample_from"):
            return value
        low, high = self.bounds
        if self.kind in _WITH_STEP:
            step = self.values[2]
            low, high = math.ceil(low / step - _TINY) * step, math.floor(high / step + _TINY) * step
            value = min(max(round(value / step) * step, low), high)
            value = float(f"{value:.12g}")  # not 0.30000000000000004
        if self.is_integer:
            value = math.floor(value)
        return type(value)(min(max(value, low), high))


@dataclass(frozen=True)
class Space:
    """All parameters, in an order in which each comes after the ones its condition names."""

    parameters: tuple[Parameter, ...] = ()

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def __getitem__(self, key: str) -> Parameter:
        return next(parameter for parameter in self.parameters if parameter.key == key)

    @property
    def keys(self) -> list[str]:
        """The dotted keys."""
        return [parameter.key for parameter in self.parameters]

    @property
    def grid(self) -> list[dict[str, Any]]:
        """Every combination of the grid's values, the last one varying fastest; [{}] without a grid."""
        axes = [parameter for parameter in self.parameters if parameter.kind == "grid"]
        keys = [axis.key for axis in axes]
        whole = [
            dict(zip(keys, values, strict=True))
            for values in itertools.product(*(axis.values for axis in axes))
        ]
        if not any(axis.when for axis in axes):
            return whole
        points: dict[str, dict[str, Any]] = {}
        for chosen in whole:
            kept: dict[str, Any] = {}
            for axis in axes:  # conditions on what is drawn later are checked when it is drawn
                if axis.active(kept, keys):
                    kept[axis.key] = chosen[axis.key]
            points.setdefault(repr(kept), kept)
        return list(points.values())

    def completed(self, params: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """A point: the given values, random ones for the others, inactive parameters left out."""
        point: dict[str, Any] = {}
        for parameter in self.parameters:
            if parameter.active(point, self.keys):
                given = parameter.key in params
                point[parameter.key] = params[parameter.key] if given else parameter.sample(rng, point)
        return point

    def to_dict(self) -> dict[str, Any]:
        """The space in the form of `tunables`."""
        return {
            p.key: {"type": p.kind, "values": list(p.values)}
            | ({"when": {key: list(allowed) for key, allowed in p.when}} if p.when else {})
            for p in self.parameters
        }


def parameters_in(tree: Mapping[str, Any], where: str = "tunables") -> Space:
    """The search space written in a `tunables` section or a Python dictionary, nested or with dotted keys.

    :raises ConfigError: with every parameter that cannot be read
    """
    problems: list[Problem] = []
    found = [read(key, value, problems, where) for key, value in _leaves(tree)]
    return ordered([parameter for parameter in found if parameter is not None], problems)


def from_words(words: Sequence[str]) -> tuple[list[str], Space]:
    """Words of the command line: those that set a value, and the search space of the others.

    `a=1,2` and `a=range(0,3)` are a grid here, as with `--multirun`.
    """
    rest, found, problems = [], [], list[Problem]()
    for word in words:
        key, equals, text = word.partition("=")
        key = key.lstrip("+")
        if not equals or key.startswith(("search.", "runtime.", "cli.")):
            rest.append(word)
        elif short := text if is_short(text) else _grid(word):
            found.append(read(key, short, problems, "command line"))
        elif wrong := mistyped(text):
            problems.append(Problem(key, *wrong, "command line"))
        else:
            rest.append(word)
    return rest, ordered([parameter for parameter in found if parameter is not None], problems)


def is_short(value: Any) -> bool:
    """Whether a text is a parameter's short form: `loguniform(1e-5,1e-2)`."""
    match = _SHORT.fullmatch(value) if isinstance(value, str) else None
    return bool(match and (match[1] in KINDS or match[1] in _ALIASES) and match[1] != "range")


def mistyped(value: Any) -> tuple[str, str] | None:
    """What is wrong with a text that was meant to be a search space, and the next step; else None."""
    found = re.match(r"\s*(\w+)\s*(\(?)", value) if isinstance(value, str) else None
    if found is None:
        return None
    name, opens = found[1], bool(found[2])
    known = name in KINDS or name in _ALIASES
    if known and not opens and name == value.strip() and name not in ("normal", "choice", "grid", "range"):
        return f"{name} has no values", f"write {name}(...): {KINDS.get(name, '')}"
    if known and opens and not re.search(r"\)\s*(if\s.+)?$", value):
        return f"`{value}` opens a bracket that is not closed", f"write {value.strip()})"
    close = did_you_mean(name, KINDS)
    if opens and not known and close and name not in _HYDRA:
        return f"there is no type {name!r}", f"did you mean {' or '.join(close)}?"
    return None


def is_parameter(value: Any) -> bool:
    """Whether a value stands for many: a short form, a dictionary form, one of Tune's own objects."""
    if isinstance(value, Mapping):
        return _form(value) is not None
    return is_short(value) or _is_tune_domain(value)


def read(key: str, value: Any, problems: list[Problem], where: str = "") -> Parameter | None:
    """One parameter from any of its forms; None, with the problem noted, where it cannot be read."""
    when: Any = None
    if _is_tune_domain(value):
        kind, values = _from_tune(value)
    elif isinstance(value, Mapping) and _form(value) is not None:
        kind, values, when = _form(value)  # type: ignore[misc]
    elif is_short(value):
        kind, values, when = _from_short(value)
    elif isinstance(value, list | tuple):
        kind, values = "grid", list(value)
    else:
        hint = "write {type: loguniform, values: [1e-5, 1e-2]}, or loguniform(1e-5,1e-2)"
        hint += f"; types: {', '.join(KINDS)}"
        problems.append(Problem(key, f"{value!r} is no search space", hint, where))
        return None
    kind = _ALIASES.get(str(kind), str(kind))
    wrong = _wrong(kind, values)
    if wrong:
        problems.append(Problem(key, wrong[0], wrong[1], where))
        return None
    if kind in (*_LISTS, "sample_from"):
        found = tuple(map(_python, values))
    else:
        found = tuple(int(float(v)) if kind.endswith("randint") else float(v) for v in values)
    return Parameter(key, kind, found, _when(when))


def ordered(parameters: Sequence[Parameter], problems: Sequence[Problem] = ()) -> Space:
    """A space with conditions after what they depend on; of two parameters of one key the later one.

    :raises ConfigError: for the problems given, and for conditions that go round in a circle
    """
    problems = list(problems)
    waiting = list({parameter.key: parameter for parameter in parameters}.values())
    keys = {parameter.key for parameter in waiting}
    done: list[Parameter] = []
    while waiting:
        ready = [
            p for p in waiting if all(key not in keys or key in {d.key for d in done} for key, _ in p.when)
        ]
        if not ready:
            names = ", ".join(p.key for p in waiting)
            what = f"the conditions of {names} go round in a circle"
            problems.append(Problem(waiting[0].key, what, "break it"))
            break
        chosen = min(ready, key=lambda p: p.kind == "sample_from")  # they may ask for any of the others
        done.append(chosen)
        waiting.remove(chosen)
    grid = math.prod(len(p.values) for p in done if p.kind == "grid")
    if grid > _MOST_GRID_POINTS:
        hint = "use choice() with search.num_samples for some keys"
        problems.append(Problem("tunables", f"the grid has {grid:,} points", hint))
    if problems:
        raise ConfigError(problems)
    return Space(tuple(done))


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        dotted = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping) and _form(value) is None and value:
            yield from _leaves(value, dotted)
        else:
            yield dotted, value


def _form(value: Mapping[str, Any]) -> tuple[str, list[Any], Any] | None:
    """Kind, values and condition of a parameter in dictionary form; None for an ordinary dictionary."""
    if "type" in value and set(value) <= {"type", "values", "value", "when"} and len(value) > 1:
        values = value.get("values", value.get("value"))
        return (
            str(value["type"]),
            list(values) if isinstance(values, list | tuple | np.ndarray) else [values],
            value.get("when"),
        )
    rest = {key: inner for key, inner in value.items() if key != "when"}
    if len(rest) == 1:
        kind, values = next(iter(rest.items()))
        known = kind in KINDS or kind in _ALIASES
        if known and isinstance(values, list | tuple | np.ndarray):
            return kind, list(values), value.get("when")
        if kind == "sample_from" and isinstance(values, str):
            return kind, [values], value.get("when")
    return None


def _from_short(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    match = _SHORT.fullmatch(text)
    assert match is not None
    when = {}
    for part in re.split(r"\s+and\s+", match[3]) if match[3] else ():
        key, _, value = part.partition("=")
        when[key.strip()] = _arguments(value.strip("= ") or "true")
    return match[1], _arguments(match[2]), when


def _arguments(text: str) -> list[Any]:
    """Comma-separated values, read by Hydra's grammar, as everything on the command line is."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    if re.fullmatch(r"[\w.]+:[\w.]+|[\w./-]+\.py:\w+", text.strip()):  # an import path, for sample_from
        return [text.strip()]
    parser = OverridesParser.create()

    def value_of(text: str) -> Any:
        return parser.parse_overrides([f"x={text}"])[0].value()

    def text_or_value(text: str) -> Any:
        try:
            return value_of(text)
        except HydraException:
            return text

    try:
        return list(value_of(f"[{text}]"))
    except HydraException:
        return [text_or_value(part.strip()) for part in text.split(",") if part.strip()]


def _grid(word: str) -> str:
    """A sweep in Hydra's grammar (`a=1,2`) as a grid in its short form; "" for any other word."""
    from rayfish.experiment.overrides import parse

    try:
        override = parse([word])[0]
    except ConfigError:
        return ""
    values = override.sweep_string_iterator() if override.is_sweep_override() else ()
    return f"grid({','.join(map(str, values))})" if values else ""


def _when(when: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """A condition as (key, values it may have); a single value stands for itself."""
    pairs = when.items() if isinstance(when, Mapping) else ()
    listed = ((str(key), v if isinstance(v, list | tuple) else (v,)) for key, v in pairs)
    return tuple((key, tuple(map(_python, values))) for key, values in listed)


def _python(value: Any) -> Any:
    """NumPy's numbers, words and truth values as Python's own, also in lists; arrays stay what they are."""
    if isinstance(value, np.number | np.bool_ | np.str_):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(map(_python, value))
    return {key: _python(inner) for key, inner in value.items()} if type(value) is dict else value


def _wrong(kind: str, values: Sequence[Any]) -> tuple[str, str] | None:
    """What keeps a parameter from being one, and the next step; None where all is well."""
    shown = f"{kind}({', '.join(str(v) for v in values)})"
    if kind not in KINDS:
        hint = suggest(kind, [*KINDS, *_ALIASES], f"there are {', '.join(KINDS)}")
        return f"there is no type {kind!r}", hint
    if kind in _LISTS:
        return None if values else (f"{kind}() has no values", "name at least one")
    if kind == "sample_from":
        paths = [value for value in values if isinstance(value, str) and ":" in value]
        named = len(values) == 1 and (paths or callable(values[0]))
        return None if named else (f"{shown} names no function", "write module:function or file.py:function")
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError):
        return f"{shown} has values that are no numbers", f"{kind} takes {KINDS[kind]}"
    wanted = 3 if kind in _WITH_STEP else 2
    if len(numbers) != wanted:
        return f"{shown} has {len(numbers)} values, not {wanted}", f"{kind} takes {KINDS[kind]}"
    if not all(math.isfinite(number) for number in numbers):
        return f"{shown} is not finite", f"{kind} takes {KINDS[kind]}"
    if kind == "normal":
        return None if numbers[1] > 0 else (f"{shown} has no spread", "give a deviation above 0")
    if kind in _WITH_STEP and numbers[2] <= 0:
        return f"{shown} has the step {numbers[2]:g}", "give a step above 0"
    if kind.endswith("randint") and any(number != int(number) for number in numbers):
        return f"{shown} is not whole", f"{kind} takes {KINDS[kind]}"
    if numbers[0] >= numbers[1]:
        return f"{shown} is empty: {numbers[0]:g} is not below {numbers[1]:g}", "give the lower number first"
    if "log" in kind and numbers[0] <= 0:
        return f"{shown} begins at {numbers[0]:g}", "a logarithmic range begins above 0"
    return None


def _is_tune_domain(value: Any) -> bool:
    """Whether it is one of Ray Tune's own objects; Tune itself need not be imported to see that."""
    return type(value).__module__ == "ray.tune.search.sample" and hasattr(value, "sample")


def _from_tune(domain: Any) -> tuple[str, list[Any]]:
    """The same parameter in our words."""
    name = type(domain).__name__
    sampler = domain.get_sampler()
    step = getattr(sampler, "q", None)
    inner = type(getattr(sampler, "sampler", sampler)).__name__
    if name == "Categorical":
        return "choice", list(domain.categories)
    if name == "Function":
        return "sample_from", [domain.func]
    if "Normal" in inner:
        normal = getattr(sampler, "sampler", sampler)
        return "normal", [normal.mean, normal.sd]
    log = "log" if "LogUniform" in inner else ""
    if name == "Integer":
        kind = f"{log}randint" if step is None or log else "qrandint"
        step = None if kind != "qrandint" else step
    else:
        kind = f"{log}uniform" if step is None else f"q{log}uniform"
    return kind, [domain.lower, domain.upper, *([step] if step is not None else [])]


def _called(key: str, function: Any, params: Mapping[str, Any]) -> Any:
    """`sample_from`: a function of the other parameters, given as one dictionary or not at all."""
    if isinstance(function, str):
        from rayfish.experiment.imports import load_object

        function = load_object(function)
    import inspect

    try:
        return function(_Chosen(params)) if inspect.signature(function).parameters else function()
    except Exception as error:
        name = getattr(function, "__name__", function)
        raise RayfishError(
            f"{key}: sample_from({name}) failed with {type(error).__name__}: {error}",
            f"it is given {', '.join(params) or 'nothing: no other parameter varies'}",
        ) from error


class _Chosen(dict[str, Any]):
    """The parameters chosen so far; also as Ray Tune hands them over: `spec.config.lr`."""

    def __missing__(self, key: str) -> Any:
        if key in ("config", "spec"):
            return self
        raise KeyError(key)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no parameter {name!r} was chosen before this one") from None
