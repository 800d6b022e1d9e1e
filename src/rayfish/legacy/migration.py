"""`rayfish config migrate`: an old file in, files of today out."""

from __future__ import annotations

from pathlib import Path

from rayfish.errors import RayfishError
from rayfish.experiment.compose import preset_file
from rayfish.experiment.files import read_marked, show
from rayfish.files import atomic_write
from rayfish.legacy.file_format import read_old
from rayfish.legacy.migrate import WRITTEN, as_today, file_name
from rayfish.legacy.translate import Translation, translate

FOLDER = "migrated"


def migrate(name: str, out: Path | None = None, *, closest: bool = False) -> list[tuple[Translation, Path]]:
    """Write each experiment of an old file as a file of today; gives what became of it, and where it is.

    :param out: the folder for the new files, `migrated/` beside the old one when not given
    :raises RayfishError: it is no old file, or a file of that name with other content is there
    """
    file = preset_file(name)
    experiments = read_old(file)
    if experiments is None:
        read_marked(file)  # what is wrong with its text, if anything
        raise RayfishError(
            f"{show(file)} is no old RLlib file: it has no `run:` and `config:` below a name",
            f"if it is an experiment of today, train it: rayfish train -f {show(file)}",
        )
    text, folder = file.read_text(encoding="utf-8"), out or file.parent / FOLDER
    found: list[tuple[Translation, Path]] = []
    for old in experiments:
        translation = translate(old, closest=closest)
        name = file_name(translation, {path.name for _, path in found})
        found.append((translation, folder / name))
    for _, path in found:
        if path.exists() and WRITTEN not in path.read_text(encoding="utf-8", errors="replace"):
            what = f"{show(path)} is there already, and was not written by this command"
            raise RayfishError(what, "name another folder: --out DIR")
    for translation, path in found:
        _write(path, as_today(translation, text, closest))
    return found


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, text)
    except OSError as error:
        why = error.strerror or str(error)
        raise RayfishError(f"{path} cannot be written: {why}", "name another folder: --out DIR") from error
