"""What a cluster has for trials, and whether all of its machines can run them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayfish import __version__
from rayfish.errors import RayfishError
from rayfish.sweep.task import Resources
from rayfish.text import size

_UNITS = {"CPU": "CPU", "GPU": "GPU", "memory": "bytes of memory"}
_ROUNDING = 1e-6
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Node:
    """One machine of the cluster: all it has, by Ray's names."""

    name: str
    has: dict[str, float]


@dataclass
class Capacity:
    """How many trials fit at once, and whether one more does now.

    :param free: the unused resources of all of them together
    :param where: what the cluster is called in messages
    """

    nodes: list[Node]
    free: dict[str, float]
    where: str

    def total(self, name: str) -> float:
        """All of one resource, over all machines."""
        return sum(node.has.get(name, 0.0) for node in self.nodes)

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
        """Whether one more fits next to those that run."""
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
            name: self.total(name) - self.free.get(name, 0.0)
            for name in ("CPU", "GPU")
            if resources.total(name)
        }
        taken = [f"{amount:g} {name}s" for name, amount in used.items() if amount > _ROUNDING]
        others = f"; others use {' and '.join(taken)} of it now, so it may be fewer at first" if taken else ""
        return f"each trial holds {needs(resources)}: {count} at a time on {self.where}{others}"

    def _has(self, resources: Resources) -> str:
        names = list(dict.fromkeys(name for bundle in resources.bundles for name in bundle))
        lacking = [name for name in names if resources.total(name) > self.total(name) + _ROUNDING]
        if lacking:
            return f"{self.where} has {' and '.join(amount(name, self.total(name)) for name in lacking)}"
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


def require_same_everywhere(ray: Any, folder: Path, *, apart: bool = False) -> None:
    """All machines must see the sweep's folder, into which trials write, and have the same Rayfish.

    :param apart: whether this process is on none of the cluster's machines
    :raises RayfishError: a machine does not see the folder, or has another Rayfish or none
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]
    if len(nodes) < 2 and not apart:
        return
    asked = []
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = ray.remote(_sees_and_has).options(num_cpus=0, scheduling_strategy=there)
        asked.append((node, task.remote(str(folder / "sweep.json"))))
    for node, future in asked:
        host = node["NodeManagerHostname"]
        try:
            sees, version = ray.get(future, timeout=_PATIENCE_S)
        except Exception as error:
            if node["NodeID"] not in {other["NodeID"] for other in ray.nodes() if other["Alive"]}:
                continue  # it died, which Ray has noticed only now
            if isinstance(error, ray.exceptions.GetTimeoutError):
                raise RayfishError(
                    f"the machine {host} did not answer within {_PATIENCE_S:g} s",
                    "see `ray status`; start the sweep again when the machine is up or has left the cluster",
                ) from None
            last = str(error).strip().splitlines()[-1]
            raise RayfishError(
                f"the machine {host} cannot run trials: {last}",
                f"install Rayfish {__version__} there, in the Python that its Ray runs in",
            ) from None
        require_same(host, version, __version__, folder, sees=sees)


def require_same(host: str, there: str, here: str, folder: Path, *, sees: bool) -> None:
    """A machine must have the sweep's Rayfish and see its folder.

    :raises RayfishError: it has another one, or does not
    """
    if there != here:
        raise RayfishError(
            f"the machine {host} has Rayfish {there}, where the sweep was started it is {here}",
            f"pip install rayfish=={here} there",
        )
    if not sees:
        raise RayfishError(
            f"the machine {host} does not see {folder}, where trials are written",
            "set runtime.local_dir to a folder that all machines of the cluster share",
        )


def _sees_and_has(file: str) -> tuple[bool, str]:
    """On another machine: whether it sees a file, and which Rayfish it has."""
    return Path(file).is_file(), __version__


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
