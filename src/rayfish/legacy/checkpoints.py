"""Checkpoints that Ray wrote by itself: recognised, and refused in one sentence.

Looked at by their file names only: what is in them is pickled, which would run whatever it says.

    checkpoint_000010/checkpoint-10  .tune_metadata                      Ray 1
    checkpoint_000010/rllib_checkpoint.json  algorithm_state.pkl         Ray 2.0 to 2.9, old networks later on
    .../rllib_checkpoint.json (version 2 and more)  class_and_ctor_args.pkl   RLlib's new networks
"""

from __future__ import annotations

import re
from pathlib import Path

from rayfish.errors import CheckpointError
from rayfish.files import parse_json

_FILE = re.compile(r"checkpoint-?\d+(\.tune_metadata)?")
_FOLDER = re.compile(r"checkpoint_\d+")
_VERSION = re.compile(rb"ray_version.{1,8}?(\d+\.\d+[.\w]*)", re.DOTALL)
_AGAIN = "train it again from its old experiment file: rayfish train -f FILE.yaml"


def refuse(path: Path) -> None:
    """Raises when `path` is a checkpoint of Ray's own, a file of one, or the folder of a trial with some.

    :raises CheckpointError: what it is, why it cannot be used, and what to do
    """
    here = path.absolute()
    if not path.exists() or any((folder / "rayfish.json").is_file() for folder in (here, *here.parents)):
        return
    if path.is_file() and not _is_part(path):
        return  # an experiment file that lies beside its checkpoints, say
    folder = path if path.is_dir() else path.parent
    inside = sorted(found for found in folder.glob("checkpoint_*") if found.is_dir())
    for candidate in (folder, *inside[-1:]):
        found = _of_new_networks(candidate) or _of_old_networks(candidate, path)
        if found is not None:
            what, hint = found
            raise CheckpointError(f"{path} is {what}", hint)


def _is_part(file: Path) -> bool:
    """Whether a file has the name of a checkpoint, or of a part of one."""
    return bool(_FILE.fullmatch(file.name)) or file.name.startswith(
        (".", "rllib_checkpoint", "algorithm_state")
    )


def _of_new_networks(folder: Path) -> tuple[str, str] | None:
    header = _header(folder)
    number = str(header.get("checkpoint_version", "")).split(".")[0]
    if not (folder / "class_and_ctor_args.pkl").is_file() and not (number.isdigit() and int(number) >= 2):
        return None
    made = _by(str(header.get("ray_version", "")))
    return (
        f"a checkpoint of RLlib itself{made}, not of Rayfish: it holds no experiment to play or go on from",
        "train with rayfish train, whose checkpoints are self-contained; "
        "that one is read by ray.rllib's Algorithm.from_checkpoint",
    )


def _of_old_networks(folder: Path, named: Path) -> tuple[str, str] | None:
    header = _header(folder)
    numbered = [found for found in folder.glob("checkpoint*") if _FILE.fullmatch(found.name)]
    metadata = [found for found in folder.glob("*.tune_metadata") if found.is_file()]
    in_ray_folder = bool(_FOLDER.fullmatch(folder.absolute().name)) or named in numbered
    pickled = any((folder / f"algorithm_state.{end}").is_file() for end in ("pkl", "msgpck", "msgpack"))
    if not (header or metadata or pickled or (numbered and in_ray_folder)):
        return None
    made = str(header.get("ray_version", "")) or _version_in(metadata)
    return (
        f"an old checkpoint of RLlib{_by(made)}: its weights belong to networks that RLlib no longer has",
        _AGAIN,
    )


def _header(folder: Path) -> dict[str, object]:
    try:
        read = parse_json((folder / "rllib_checkpoint.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def _version_in(files: list[Path]) -> str:
    """Ray's version out of its metadata, which is searched as bytes and never unpickled."""
    for file in files:
        found = _VERSION.search(file.read_bytes()[:100_000])
        if found:
            return found[1].decode("ascii", "replace")
    return ""


def _by(version: str) -> str:
    return f" (Ray {version})" if version else ""
