"""How much a trial or a job holds, as users write it: numbers, or arithmetic such as `10*1024**3`."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from rayfish.errors import ConfigError, Problem
from rayfish.sweep.task import Resources

_NAMES = {"cpus": "cpu", "num_cpus": "cpu", "gpus": "gpu", "num_gpus": "gpu", "ram": "memory"}
"""Other names of what each machine has; Ray writes CPU and num_cpus, Tune's users both."""

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_LARGEST_POWER = 128
_LEAST = 0.0001
"""What Ray counts in; smaller amounts it refuses."""


def resources_of(values: Mapping[str, Any], where: str = "") -> Resources:
    """The resources of one trial, from `search.resources`: cpu, gpu, memory, others of a cluster by name.

    :raises ConfigError: with everything that is wrong
    """
    problems: list[Problem] = []
    amounts: dict[str, float] = {}
    for key, value in values.items():
        place, known = f"search.resources.{key}", str(key).lower()
        name = _NAMES.get(known, known if known in ("cpu", "gpu", "memory") else str(key))
        if name in amounts:
            problems.append(Problem(place, f"is {name} once more", "leave one of the two out", where))
        amounts[name] = held(value, name, place, problems, where)
    if problems:
        raise ConfigError(problems)
    return Resources(
        cpus=amounts.pop("cpu", 1.0),
        gpus=amounts.pop("gpu", 0.0),
        memory=amounts.pop("memory", 0.0),
        custom=tuple(sorted(amounts.items())),
    )


def held(value: Any, what: str, key: str, problems: list[Problem], where: str = "") -> float:
    """The amount of `what` (cpu, gpu, ...), with a problem noted if Ray cannot give that."""
    number = amount(value, key, problems, where)
    if number < 0:
        problems.append(Problem(key, f"is {number:g}", "give 0 or more", where))
    elif 0 < number < _LEAST:
        wrong = f"is {number:g}, and Ray counts in steps of {_LEAST}"
        problems.append(Problem(key, wrong, f"give 0, or {_LEAST} and more", where))
    elif what == "gpu" and number > 1 and not number.is_integer():
        wrong = f"is {number:g}, and Ray gives a part of one GPU, or whole ones"
        hint = f"give {math.floor(number)} or {math.ceil(number)}, or less than 1"
        problems.append(Problem(key, wrong, hint, where))
    return number


def amount(value: Any, key: str, problems: list[Problem], where: str = "") -> float:
    """A number, or the value of an arithmetic text: `10*1024**3`; else 0, with a problem noted."""
    hint = "write a number, or arithmetic such as 10*1024**3"
    try:
        number = math.nan
        if isinstance(value, int | float) and not isinstance(value, bool):
            number, hint = float(value), "give a number that is finite"
        elif isinstance(value, str):
            number = float(_calculated(ast.parse(value.strip(), mode="eval").body))
    except (SyntaxError, ValueError, TypeError, ArithmeticError):
        pass
    if math.isfinite(number):
        return number
    problems.append(Problem(key, f"cannot be {value!r}", hint, where))
    return 0.0


def _calculated(node: ast.expr) -> float:
    """The value of a tree of plain numbers and operators; nothing else is ever run."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _calculated(node.left), _calculated(node.right)
        if isinstance(node.op, ast.Pow) and abs(right) <= _LARGEST_POWER:
            return float(left) ** right
        if type(node.op) in _OPERATORS:
            return float(_OPERATORS[type(node.op)](left, right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _calculated(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    raise ValueError("neither a number nor arithmetic")
