"""What a cluster has for trials, checked before the first one starts and kept account of after."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rayfish.errors import RayfishError
from rayfish.sweep.task import Resources
from rayfish.text import size

_UNITS = {"CPU": "CPU", "GPU": "GPU", "memory": "bytes of memory"}
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Node:
    """One machine of the cluster: all it has, by Ray's names."""

    name: str
    has: dict[str, float]


class Capacity:
    """How many trials fit at once, and whether one more does now.

    :param nodes: the machines
    :param free: what nobody uses now, over all of them
    :param where: what the cluster is called in messages
    """

    def __init__(self, nodes: Sequence[Node], free: dict[str, float], where: str) -> None:
        self.nodes = list(nodes)
        self.free = free
        self.where = where

    def fitting(self, resources: Resources) -> int:
        """How many such trials all machines together could hold, were they empty.

        Further processes of a trial may lie on other machines than its main one.
        """
        if len(resources.bundles) == 1:
            return sum(_times(node.has, resources.bundles[0]) for node in self.nodes)
        left = [dict(node.has) for node in self.nodes]
        count = 0
        while count < 10_000 and all(_place(bundle, left) for bundle in resources.bundles):
            count += 1
        return count

    def fits_now(self, resources: Resources, held: Sequence[Resources]) -> bool:
        """Whether one more fits beside those that run."""
        left = [dict(node.has) for node in self.nodes]
        for other in held:
            for bundle in other.bundles:
                _place(bundle, left)
        return all(_place(bundle, left) for bundle in resources.bundles)

    def holds(self, held: Sequence[Resources]) -> bool:
        """Whether all of these fit at the same time."""
        left = [dict(node.has) for node in self.nodes]
        return all(_place(bundle, left) for other in held for bundle in other.bundles)

    def require(self, resources: Resources, hint: str) -> int:
        """How many trials run at once.

        :raises RayfishError: not even one fits; with the arithmetic
        """
        count = self.fitting(resources)
        if count < 1:
            raise RayfishError(f"each trial needs {self.lacking(resources).removeprefix('it needs ')}", hint)
        return count

    def lacking(self, resources: Resources) -> str:
        """Why there is no room for a trial, in words."""
        return f"it needs {needs(resources)}; {self._has(resources)}"

    def note(self, resources: Resources, count: int) -> str:
        """How many fit, and what others hold of the cluster now."""
        used = {
            name: sum(n.has.get(name, 0.0) for n in self.nodes) - self.free.get(name, 0.0)
            for name in ("CPU", "GPU")
            if resources.total(name)
        }
        taken = [f"{amount:g} {name}s" for name, amount in used.items() if amount > _ROUNDING]
        others = f"; others use {' and '.join(taken)} of it now, so it may be fewer at first" if taken else ""
        return f"each trial holds {needs(resources)}: {count} at a time on {self.where}{others}"

    def _has(self, resources: Resources) -> str:
        names = list(dict.fromkeys(name for bundle in resources.bundles for name in bundle))
        total = {name: sum(node.has.get(name, 0.0) for node in self.nodes) for name in names}
        lacking = [name for name in names if resources.total(name) > total[name] + _ROUNDING]
        if lacking:
            return f"{self.where} has {' and '.join(amount(name, total[name]) for name in lacking)}"
        largest = max(resources.bundles, key=lambda bundle: sum(bundle.values()))
        most = ", ".join(
            amount(name, max((n.has.get(name, 0.0) for n in self.nodes), default=0.0)) for name in largest
        )
        return f"no single machine of {self.where} has room for a process of it (the largest has {most})"


def of_ray(ray: Any, where: str) -> Capacity:
    """The capacity of the Ray this process is connected to."""
    nodes = [
        Node(str(node["NodeManagerHostname"]), {k: float(v) for k, v in node["Resources"].items()})
        for node in ray.nodes()
        if node["Alive"]
    ]
    return Capacity(nodes, {k: float(v) for k, v in ray.available_resources().items()}, where)


def needs(resources: Resources) -> str:
    """What a trial holds, in words: `3 CPUs (1 for itself, 2 for its workers) and 1 GPU`."""
    names = list(dict.fromkeys(name for bundle in resources.bundles for name in bundle)) or ["CPU"]
    parts = []
    for name in names:
        own, total = resources.bundles[0].get(name, 0.0), resources.total(name)
        inside = f" ({own:g} for itself, {total - own:g} for its workers)" if total > own > 0 else ""
        parts.append(amount(name, total) + inside)
    return " and ".join(parts)


def amount(name: str, value: float) -> str:
    """`2 CPUs`, `0.5 GPU`, `10 GB of memory`."""
    if name == "memory":
        return f"{size(value)} of memory"
    plural = "" if value == 1 or (0 < value < 1) else "s"
    return f"{value:g} {_UNITS.get(name, name)}{plural if name in ('CPU', 'GPU') else ''}"


def _times(has: dict[str, float], bundle: dict[str, float]) -> int:
    counts = [
        math.floor(has.get(name, 0.0) / wanted + _ROUNDING) for name, wanted in bundle.items() if wanted
    ]
    return min(counts, default=1_000)


def _place(bundle: dict[str, float], left: list[dict[str, float]]) -> bool:
    for node in left:
        if all(node.get(name, 0.0) + _ROUNDING >= wanted for name, wanted in bundle.items()):
            for name, wanted in bundle.items():
                node[name] -= wanted
            return True
    return False
