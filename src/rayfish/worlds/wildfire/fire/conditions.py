"""Conditions on figures, like "50 < steps < 150 and percent_burned > 30": read, never executed as code."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from rayfish.errors import RayfishError, suggest

_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_COMPUTE: dict[type, Callable[[Any, Any], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_LONGEST = 1000


class ConditionFault(RayfishError):
    """A condition cannot be read."""


class Condition:
    """A condition over some names, joined by `and`, `or`, `not` and brackets.

    :raises ConditionFault: `text` is no condition, or uses something else than `names`
    """

    def __init__(self, text: str, names: Sequence[str]) -> None:
        self.text = text
        self.names = tuple(names)
        try:
            if len(text) > _LONGEST:
                raise ValueError
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._fault("cannot be read") from None
        if any(isinstance(node, ast.BitAnd | ast.BitOr) for node in ast.walk(tree)):
            raise ConditionFault(f"{self.text!r} has & or |", "write and, or")
        self._met = self._truth(tree)

    def holds(self, figures: Mapping[str, float]) -> bool:
        """Whether figures meet it."""
        try:
            return self._met(figures)
        except ZeroDivisionError:
            raise ConditionFault(f"{self.text!r} divides by 0", "compare by multiplying instead") from None

    def _truth(self, node: ast.expr) -> Callable[[Mapping[str, float]], bool]:
        if isinstance(node, ast.BoolOp):
            parts = [self._truth(part) for part in node.values]
            joined = all if isinstance(node.op, ast.And) else any
            return lambda figures: joined(part(figures) for part in parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            part = self._truth(node.operand)
            return lambda figures: not part(figures)
        if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
            values = [self._value(part) for part in (node.left, *node.comparators)]
            signs = [_COMPARE[type(op)] for op in node.ops]

            def compared(figures: Mapping[str, float]) -> bool:
                found = [value(figures) for value in values]
                return all(sign(a, b) for sign, a, b in zip(signs, found[:-1], found[1:], strict=True))

            return compared
        raise self._fault(f"has {ast.unparse(node)!r}, which is no comparison")

    def _value(self, node: ast.expr) -> Callable[[Mapping[str, float]], float]:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            number = cast(float, node.value)
            return lambda figures: number
        if isinstance(node, ast.Name):
            name = node.id
            if name not in self.names:
                raise ConditionFault(
                    f"{self.text!r} has the unknown name {name!r}", suggest(name, self.names)
                )
            return lambda figures: figures[name]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            part = self._value(node.operand)
            return lambda figures: -part(figures)
        if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTE:
            compute = _COMPUTE[type(node.op)]
            left, right = self._value(node.left), self._value(node.right)
            return lambda figures: compute(left(figures), right(figures))
        raise self._fault(f"has {ast.unparse(node)!r}, which is no number and no name")

    def _fault(self, why: str) -> ConditionFault:
        text = self.text if len(self.text) <= 100 else f"{self.text[:100]}..."
        return ConditionFault(
            f"the condition {text!r} {why}",
            f"write it like '50 < {self.names[0]} < 150', joined by and, or, not; "
            f"names are {', '.join(self.names)}",
        )
