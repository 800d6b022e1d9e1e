"""Conditions on figures, like "50 < steps < 150 and percent_burned > 30": nothing but comparisons can run."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import CodeType

from rayfish.errors import RayfishError, suggest

_COMPARE = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
_COMPUTE = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_LONGEST = 1000


class ConditionFault(RayfishError):
    """A condition cannot be read."""


class Condition:
    """A condition over some names, joined by `and`, `or`, `not` and brackets.

    :param text: what is written
    :param names: the names it may use
    :raises ConditionFault: it is no condition, or uses something else
    """

    def __init__(self, text: str, names: Sequence[str]) -> None:
        self.text, self.names = text, tuple(names)
        try:
            if len(text) > _LONGEST:
                raise ValueError
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._fault("cannot be read") from None
        self._check_truth(tree.body)
        self._code: CodeType = compile(tree, "<condition>", "eval")

    def holds(self, figures: Mapping[str, float]) -> bool:
        """Whether figures meet it."""
        try:
            return bool(eval(self._code, {"__builtins__": {}}, dict(figures)))
        except ZeroDivisionError:
            raise ConditionFault(f"{self.text!r} divides by 0", "compare by multiplying instead") from None

    def _check_truth(self, node: ast.expr) -> None:
        if isinstance(node, ast.BoolOp):
            for part in node.values:
                self._check_truth(part)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._check_truth(node.operand)
        elif isinstance(node, ast.Compare) and all(isinstance(sign, _COMPARE) for sign in node.ops):
            for part in (node.left, *node.comparators):
                self._check_value(part)
        else:
            self._refuse(node, "no comparison")

    def _check_value(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            if node.id not in self.names:
                what = f"{self.text!r} has the unknown name {node.id!r}"
                raise ConditionFault(what, suggest(node.id, self.names))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            self._check_value(node.operand)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, _COMPUTE):
            self._check_value(node.left)
            self._check_value(node.right)
        elif not (isinstance(node, ast.Constant) and type(node.value) in (int, float)):
            self._refuse(node, "no number and no name")

    def _refuse(self, node: ast.expr, what: str) -> None:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
            raise ConditionFault(f"{self.text!r} has & or |", "write and, or")
        raise self._fault(f"has {ast.unparse(node)!r}, which is {what}")

    def _fault(self, why: str) -> ConditionFault:
        text = self.text if len(self.text) <= 100 else f"{self.text[:100]}..."
        return ConditionFault(
            f"the condition {text!r} {why}",
            f"write it like '50 < {self.names[0]} < 150', joined by and, or, not; "
            f"names are {', '.join(self.names)}",
        )
