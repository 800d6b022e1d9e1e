"""Where the file of a bare `custom_model: name` is: `<name>.py` in model/ or models/. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rayfish.errors import ModelError, did_you_mean

CLASS_NAME = "CustomModel"
FOLDERS = ("model", "models")


def locate(name: str, paths: Sequence[str]) -> str:
    """`custom_model` as an import path or `file.py:Class`, which a bare name is turned into.

    :param paths: folders beside which model/ and models/ are looked up, best first
    :raises ModelError: a bare name has no file; names the nearest
    """
    if any(sign in name for sign in ".:/\\"):
        return name
    roots = dict.fromkeys([*(Path(path) for path in paths), Path.cwd()])
    folders = [root / folder for root in roots for folder in FOLDERS]
    for folder in folders:
        if (folder / f"{name}.py").is_file():
            return f"{folder / name}.py:{CLASS_NAME}"
    known = [file.stem for folder in folders if folder.is_dir() for file in folder.glob("*.py")]
    meant = did_you_mean(name, known)
    raise ModelError(
        f"custom_model {name!r}: there is no {name}.py in {', '.join(map(str, folders))}",
        f"did you mean {meant[0]!r}?"
        if meant
        else f"put {name}.py with a class {CLASS_NAME} there, or write package.module:Class",
    )
