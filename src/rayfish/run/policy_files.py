"""The saved policy: `policy/policy.json` and one safetensors file per policy.

    policy/
      policy.json                  layout, algorithm, agents' mapping; per policy: spaces, model, actions
      <policy>.safetensors         weights, and the means and spreads of the observation normaliser

Written next to RLlib's own tree in every checkpoint; reading it needs torch but neither Ray nor
pickle. A policy whose network is not Rayfish's (kind "rllib") keeps its weights in RLlib's tree.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import gymnasium as gym
import numpy as np

from rayfish.errors import CheckpointError, ModelError
from rayfish.files import Unreadable, read_keys
from rayfish.models.space_json import from_json, to_json
from rayfish.run import manifest

if TYPE_CHECKING:
    import torch

LAYOUT = 1
_NORMALISER = "normaliser"


@dataclass(frozen=True)
class SavedPolicy:
    """One policy as it lies on disk.

    :param kind: "native" (a Rayfish network) or "rllib" (an RLModule of its own)
    :param model: the whole model section, with what the algorithm adds to it
    :param normaliser: per leaf its path, mean, std and clip; empty without normalisation
    """

    name: str
    kind: str
    observation_space: gym.Space
    action_space: gym.Space
    model: dict[str, Any]
    normalize_actions: bool
    clip_actions: bool
    normaliser: list[dict[str, Any]] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class SavedPolicies:
    """Everything in a `policy/` folder.

    :param mapping: agent-id glob -> policy
    :param mapping_function: import path of a function (agent_id) -> policy, when there is one
    :param paths: folders where the user's code lay when the policy was saved
    """

    folder: Path
    algo: str
    policies: dict[str, SavedPolicy]
    mapping: dict[str, str]
    mapping_function: str | None
    paths: list[str]


def save_policy(
    folder: Path,
    *,
    modules: Mapping[str, Any],
    algo: str,
    normaliser: Mapping[str, Any] | None = None,
    normalize_actions: bool = True,
    clip_actions: bool = False,
    mapping: Mapping[str, str] | None = None,
    mapping_function: str | None = None,
    paths: Sequence[str] = (),
) -> None:
    """Writes the policies of a training run so that `load` can act with them alone.

    :param modules: policy id -> its RLModule (the learner's, or an env runner's)
    :param normaliser: policy id -> `{"leaves": [{"path", "mean", "std", "clip"}]}`
    :param normalize_actions: Box actions leave the network as -1..1 and are scaled to the bounds
    :param clip_actions: Box actions are clipped to the bounds (only without `normalize_actions`)
    :param mapping: agent-id glob -> policy id, for several agents
    :param mapping_function: import path of a function that maps an agent to its policy
    """
    folder.mkdir(parents=True, exist_ok=True)
    described = {}
    for name, wrapped in modules.items():
        leaves = (normaliser or {}).get(name, {}).get("leaves", [])
        described[name] = _save_weights(folder / _file(name), wrapped, leaves) | {
            "normalize_actions": normalize_actions,
            "clip_actions": clip_actions,
        }
    data = {
        "layout": LAYOUT,
        "algo": algo,
        "mapping": dict(mapping or {}),
        "mapping_function": mapping_function,
        "paths": [str(path) for path in paths],
        "policies": described,
    }
    text = json.dumps(data, indent=2, allow_nan=False)
    (folder / "policy.json").write_text(text + "\n", encoding="utf-8")
    for name in modules:  # safetensors writes for the owner alone; the umask decides, as for all files
        shutil.copymode(folder / "policy.json", folder / _file(name))


def _save_weights(file: Path, wrapped: Any, leaves: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Writes the weights and the normaliser of a policy; returns what `policy.json` says of them."""
    import torch
    from safetensors.torch import save_file

    module, native = _unwrapped(wrapped), is_native(wrapped)
    tensors = dict(module.network_state()) if native else {}
    for index, leaf in enumerate(leaves):
        for part in ("mean", "std"):
            values = torch.as_tensor(np.asarray(leaf[part], dtype=np.float64))
            tensors[f"{_NORMALISER}/{index}/{part}"] = values
    # A copy: safetensors refuses tensors that share memory.
    save_file({key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}, file)
    return {
        "kind": "native" if native else "rllib",
        "observation_space": _space(module.observation_space, native),
        "action_space": _space(module.action_space, native),
        "model": jsonable(dict(module.model_config or {})) if native else {},
        "normaliser": [{"path": list(leaf["path"]), "clip": float(leaf["clip"])} for leaf in leaves],
        "sha256": manifest.sha256(file),
    }


def is_native(module: Any) -> bool:
    """Whether a module has one of Rayfish's networks, which loads without RLlib."""
    return hasattr(_unwrapped(module), "network_state")


def _unwrapped(module: Any) -> Any:
    return module.unwrapped() if hasattr(module, "unwrapped") else module


def read_policies(folder: Path, *, weights: bool = True) -> SavedPolicies:
    """What `save_policy` wrote.

    :param weights: False leaves them out, and imports no torch
    :raises CheckpointError: incomplete, damaged, or made by a newer Rayfish
    """
    file, another = folder / "policy.json", manifest.another(folder.parent)
    manifest.require_files(folder.parent, f"{folder.name}/{file.name}")
    try:
        data = read_keys(file)
    except FileNotFoundError:
        raise CheckpointError(f"{folder.parent} holds no saved policy: {file} is missing", another) from None
    except Unreadable as error:
        raise CheckpointError(f"{file} {error}", another) from error
    if data.get("layout", 0) > LAYOUT:
        raise CheckpointError(
            f"{file} has layout {data['layout']}, this Rayfish reads up to {LAYOUT}",
            "install a newer Rayfish: pip install --upgrade rayfish",
        )
    policies = {}
    try:
        for name, entry in data["policies"].items():
            tensors = _tensors(folder / _file(name), entry.get("sha256")) if weights else {}
            described = entry if weights else {**entry, "normaliser": []}
            policies[name] = _read_policy(name, described, tensors)
        paths = [str(path) for path in data.get("paths", [])]
        return SavedPolicies(folder, data["algo"], policies, data["mapping"], data["mapping_function"], paths)
    except (KeyError, TypeError, AttributeError) as error:
        lacks = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(f"{file} is incomplete: {lacks}", another) from error


def _tensors(file: Path, sha256: str | None) -> dict[str, torch.Tensor]:
    """The weights in a file, checked against what `policy.json` says of it; older ones say nothing."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    checkpoint = file.parent.parent
    manifest.require_files(checkpoint, f"{file.parent.name}/{file.name}")
    try:
        tensors = load_file(file)
    except FileNotFoundError:
        raise CheckpointError(f"the weights {file} are missing", manifest.another(checkpoint)) from None
    except (OSError, SafetensorError) as error:
        what = f"the weights {file} ({file.stat().st_size:,} bytes) are cut short or damaged"
        raise CheckpointError(what, manifest.another(checkpoint)) from error
    if sha256 is not None and manifest.sha256(file) != sha256:
        raise CheckpointError(
            f"the weights {file} are not as they were written", manifest.another(checkpoint)
        )
    return tensors


def _read_policy(name: str, entry: dict[str, Any], tensors: dict[str, torch.Tensor]) -> SavedPolicy:
    leaves = [
        {
            "path": leaf["path"],
            "clip": leaf["clip"],
            "mean": tensors[f"{_NORMALISER}/{index}/mean"].numpy(),
            "std": tensors[f"{_NORMALISER}/{index}/std"].numpy(),
        }
        for index, leaf in enumerate(entry["normaliser"])
    ]
    return SavedPolicy(
        name=name,
        kind=entry["kind"],
        observation_space=from_json(entry["observation_space"]) if entry["observation_space"] else None,
        action_space=from_json(entry["action_space"]) if entry["action_space"] else None,
        model=entry["model"],
        normalize_actions=entry["normalize_actions"],
        clip_actions=entry["clip_actions"],
        normaliser=leaves,
        weights={key: value for key, value in tensors.items() if not key.startswith(f"{_NORMALISER}/")},
    )


def _space(space: gym.Space, native: bool) -> dict[str, Any] | None:
    """JSON of a space; an RLModule of the user's may have one that only RLlib's tree can hold."""
    try:
        return to_json(space)
    except ModelError:
        if native:
            raise
        return None


def _file(policy: str) -> str:
    """File name of a policy; ids may hold signs that a file name may not."""
    return f"{quote(policy, safe='')}.safetensors"


def jsonable(value: Any, as_text: Callable[[Any], str] = str) -> Any:
    """Numbers, text, lists and dicts as they are, arrays as lists; what JSON cannot hold as text."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(part, as_text) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(part, as_text) for part in value]
    if hasattr(value, "tolist") and not isinstance(value, type):  # arrays, NumPy's numbers, tensors
        return jsonable(value.tolist(), as_text)
    held = math.isfinite(value) if isinstance(value, float) else isinstance(value, str | int | bool | None)
    return value if held else as_text(value)
