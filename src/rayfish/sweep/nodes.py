"""Before a sweep begins on several machines: each of them sees its folder and has the same Rayfish."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rayfish import __version__
from rayfish.errors import RayfishError

_PATIENCE_S = 60.0


def require_fit(ray: Any, folder: Path, *, apart: bool = False) -> None:
    """Trials write into the sweep's folder wherever they run, so all machines must share it.

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
        task = ray.remote(_look).options(num_cpus=0, scheduling_strategy=there)
        asked.append((node, task.remote(str(folder / "sweep.json"))))
    for node, future in asked:
        host = node["NodeManagerHostname"]
        try:
            sees, version = ray.get(future, timeout=_PATIENCE_S)
        except Exception as error:
            if node["NodeID"] not in {other["NodeID"] for other in ray.nodes() if other["Alive"]}:
                continue  # it had died, and Ray has noticed it only now
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
    """The rule itself: what a machine has, and what the sweep has.

    :raises RayfishError: they differ
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


def _look(file: str) -> tuple[bool, str]:
    import rayfish

    return Path(file).is_file(), rayfish.__version__
