"""Where a bare `custom_model: name` lies: `<name>.py` in model/ or models/. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rayfish.errors import ModelError, did_you_mean

CLASS_NAME = "CustomModel"
FOLDERS = ("model", "models")


def is_bare(name: str) -> bool:
    """Whether `custom_model` is a bare name rather than an import path or a file."""
    return not any(sign in name for sign in ".:/\\")


def find_model_file(name: str, paths: Sequence[str]) -> Path:
    """The file of a bare name.

    :param paths: folders beside which model/ and models/ are looked up, best first
    :raises ModelError: there is none; names the nearest
    """
    roots = dict.fromkeys([*(Path(path) for path in paths), Path.cwd()])
    folders = [root / folder for root in roots for folder in FOLDERS]
    for folder in folders:
        if (folder / f"{name}.py").is_file():
            return folder / f"{name}.py"
    known = [file.stem for folder in folders if folder.is_dir() for file in folder.glob("*.py")]
    meant = did_you_mean(name, known)
    raise ModelError(
        f"custom_model {name!r}: there is no {name}.py in {', '.join(map(str, folders))}",
        f"did you mean {meant[0]!r}?"
        if meant
        else f"put {name}.py with a class {CLASS_NAME} there, or write package.module:Class",
    )
