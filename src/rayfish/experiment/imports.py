"""The user's own code by name: `pkg.mod:Name`, `pkg.mod.Name` or `file.py:Name` gives the object.

Only what an experiment names is imported, and always under its real module name (a file under its
stem, with its folder on `sys.path`), so that objects pickle by reference and are found again on
every worker once that worker has called `use_paths` with the same folders.

The door of `experiment/` to `legacy/` for old import paths, which every worker loads; `compose` is the other.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from rayfish.errors import CodeError, did_you_mean
from rayfish.legacy import import_paths as old_modules
from rayfish.legacy.env_names import gone_env

_FORMS = "write pkg.module:Name, pkg.module.Name or file.py:Name"


def load_object(path: str, paths: Sequence[str | Path] = ()) -> Any:
    """The object an import path names.

    :param path: `pkg.mod:Name`, `pkg.mod.Name` (`Name` may be dotted: `Outer.Inner`), or
        `file.py:Name` with the file absolute or relative to one of `paths` or the current folder
    :param paths: folders where the user's modules and files are looked up, best first
    :raises CodeError: not found, does not import, or has no such name
    """
    text = path.strip()
    head, colon, names = text.partition(":")
    if is_file_path(head):
        module = load_file(head, paths)
        if not names:
            raise CodeError(
                f"{text!r} names a file, but not which object in it",
                _offer(f"write {head}:NAME", public_names(module)),
            )
        return _attribute(module, names, text)
    use_paths(paths)
    if colon:
        if not head or not names:
            raise CodeError(f"{text!r} is not an import path", _FORMS)
        return _attribute(load_module(head, paths), names, text)
    if not is_dotted_name(head):
        raise CodeError(f"{text!r} is not an import path", _FORMS)
    parts = head.split(".")
    # The longest prefix that is a module carries the rest as attributes.
    for cut in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:cut])
        if cut == 1 or _exists(name):
            return _attribute(load_module(name, paths), ".".join(parts[cut:]), text)
    raise AssertionError("unreachable: a path of two parts always has a first")


def load_module(name: str, paths: Sequence[str | Path] = ()) -> ModuleType:
    """The module called `name`, looked up in `paths` before the installed packages.

    :raises CodeError: there is no such module, or it fails while being imported
    """
    use_paths(paths)
    if name in sys.modules:
        return sys.modules[name]
    return _import(name, paths)


def load_file(file: str | Path, paths: Sequence[str | Path] = ()) -> ModuleType:
    """The module in a Python file, imported under its stem (or dotted, when it lies in a package).

    :raises CodeError: no such file, its stem is already another module's name, or it does not import
    """
    use_paths(paths)
    found = find_file(file, paths)
    root, name = found.parent, found.stem
    while (root / "__init__.py").is_file():
        root, name = root.parent, f"{root.name}.{name}"
    if found.stem == "__init__":
        name = name.rpartition(".")[0]
    _put_first(str(root))
    loaded = sys.modules.get(name)
    if loaded is not None:
        _same_file(loaded.__dict__.get("__file__"), found, name)
        return loaded
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(name) if "." not in found.stem else None
    _same_file(spec.origin if spec else None, found, name)
    return _import(name, paths)


def use_paths(paths: Iterable[str | Path]) -> None:
    """Put folders on `sys.path`, once each: behind the standard library, before installed packages.

    There a user's `utils.py` wins over a stray installed one, and a `random.py` cannot break Python.
    What is about to be loaded may import modules by their old names, too.
    """
    old_modules.install()
    for folder in reversed([_absolute(entry) for entry in paths]):
        if folder not in sys.path:
            sys.path.insert(_first_user_slot(), folder)


def find_file(file: str | Path, paths: Sequence[str | Path] = ()) -> Path:
    """The absolute path of a file given as absolute, or relative to one of `paths` or the current folder."""
    wanted = Path(file).expanduser()
    folders = [Path(_absolute(entry)) for entry in paths] + [Path.cwd()]
    candidates = [wanted] if wanted.is_absolute() else [folder / wanted for folder in folders]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    near = {file.name for place in candidates for file in place.parent.glob("*.py")}
    places = ", ".join(dict.fromkeys(str(place.parent) for place in candidates))
    raise CodeError(
        f"there is no file {str(file)!r} (looked in {places})",
        _offer("check the path", did_you_mean(wanted.name, near)),
    )


def module_exists(name: str, paths: Sequence[str | Path] = ()) -> bool:
    """Whether a module of that dotted name can be found (its parent packages are imported for it)."""
    use_paths(paths)
    return _exists(name)


def require_place(path: str, paths: Sequence[str | Path] = ()) -> None:
    """Checks that the file or module of an import path is there, without running the user's code.

    :raises CodeError: it is not
    """
    head, colon, _ = path.partition(":")
    if is_file_path(head):
        find_file(head, paths)
        return
    module = head if colon else head.rpartition(".")[0]
    if not module:
        raise CodeError(f"{path!r} is no import path", "write package.module:Name or file.py:Name")
    if not module_exists(module, paths):
        raise CodeError(
            f"there is no module {module!r} for {path!r}", "install it, or write it as a file: file.py:Name"
        )


def is_file_path(text: str) -> bool:
    """Whether the part of an import path before the colon names a Python file."""
    return text.endswith(".py")


def is_dotted_name(text: str) -> bool:
    """Whether a text may be `pkg.mod.Name`."""
    return "." in text and all(part.isidentifier() for part in text.split("."))


def public_names(module: ModuleType) -> list[str]:
    """Names a module defines itself, without underscore: what a user may have meant."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and getattr(value, "__module__", None) == module.__name__
    ]


def _import(name: str, paths: Sequence[str | Path]) -> ModuleType:
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise _no_module(name, error.name, paths) from error
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _no_module(name: str, missing: str, paths: Sequence[str | Path]) -> CodeError:
    parent, _, leaf = missing.rpartition(".")
    if parent and parent in sys.modules:
        folders = [str(place) for place in getattr(sys.modules[parent], "__path__", [])]
        what = f"the package {parent!r} has no module {leaf!r}"
        if not folders:
            what = f"{parent!r} is a module, not a package, so it holds no {leaf!r}"
    else:
        folders = [_absolute(entry) for entry in paths] or [str(Path.cwd())]
        what = f"there is no module {missing!r} (looked in {', '.join(folders)} and the installed packages)"
    if missing != name:
        what += f", needed for {name!r}"
    near = did_you_mean(leaf, (module.name for module in pkgutil.iter_modules(folders)))
    fallback = "run from the folder that holds it, give its file (file.py:Name), or pip install it"
    return CodeError(what, _offer(fallback, near))


def _broken(name: str, error: BaseException) -> CodeError:
    """An exception while the user's module ran: which line of theirs, and why."""
    if isinstance(error, SyntaxError):
        return invalid_python(error)
    reason = f"{type(error).__name__}: {error}".rstrip(": ")
    frame = user_frame(error)
    where = f" at {frame.filename}:{frame.lineno}" if frame else ""
    source = f"\n    {frame.line}" if frame and frame.line else ""
    hint = "fix that line" if frame else "see the traceback with --debug"
    install = re.search(r"pip install [\w.\[\]<>=~-]*[\w\]]", str(error))
    hint = install[0] if install and isinstance(error, ImportError) else hint
    if isinstance(error, ModuleNotFoundError) and error.name:
        gone = gone_env(error.name)
        hint = gone[1] if gone else f"pip install {error.name.split('.')[0]}, or fix that import"
    return CodeError(f"importing {name!r} failed{where}: {reason}{source}", hint)


def invalid_python(error: SyntaxError) -> CodeError:
    """Which line of a user's file is not Python."""
    line = (error.text or "").strip()
    what = f"{error.filename}:{error.lineno} is not valid Python: {error.msg}"
    return CodeError(f"{what}\n    {line}" if line else what, "fix that line")


def user_frame(error: BaseException) -> traceback.FrameSummary | None:
    """The last frame in code that is neither Python's, nor an installed package's, nor ours."""
    libraries = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    foreign = (*libraries, str(Path(__file__).parent.parent), "<")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(foreign) and Path(frame.filename).is_file()
    ]
    return frames[-1] if frames else None


def _attribute(module: ModuleType, names: str, path: str) -> Any:
    value: Any = module
    for name in names.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            known = list(vars(value)) if isinstance(value, type) else list(vars(module))
            near = did_you_mean(name, known) or public_names(module)[:5]
            owner = f"module {module.__name__!r} ({getattr(module, '__file__', 'built in')})"
            if value is not module:
                owner = f"{value!r}"
            hint = _offer("check the spelling", near)
            if module.__name__ == "__main__":
                hint = "other processes cannot import the main script: define it in a file of its own"
            raise CodeError(f"{path!r}: {owner} has no {name!r}", hint) from None
    return value


def _same_file(origin: str | None, wanted: Path, name: str) -> None:
    if origin is not None and Path(origin).resolve() == wanted:
        return
    taken = origin or name in sys.builtin_module_names or name in sys.modules
    other = f"already the name of another module ({origin or 'built in'})" if taken else "not a module name"
    what = f"{wanted} cannot be imported as {name!r}: that is {other}"
    raise CodeError(what, f"rename the file, for instance to my_{wanted.stem.replace('.', '_')}.py")


def _exists(name: str) -> bool:
    if name in sys.modules:
        return True
    importlib.invalidate_caches()
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        # A parent that is missing or is no package means "no"; anything else its code raised is
        # reported by the real import below.
        return not (error.name and (name == error.name or name.startswith(error.name + ".")))
    except Exception:
        return True


def _put_first(folder: str) -> None:
    """Make `folder` the first of the user's places, so that its files win over their namesakes."""
    slot = _first_user_slot()
    if folder in sys.path[: slot + 1]:
        return
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(slot, folder)


def _first_user_slot() -> int:
    """Just behind the last folder of the standard library."""
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    standard |= {os.path.join(folder, "lib-dynload") for folder in standard}  # noqa: PTH118
    slots = [index for index, entry in enumerate(sys.path) if entry in standard]
    return max(slots) + 1 if slots else 0


def _absolute(folder: str | Path) -> str:
    return str(Path(folder).expanduser().absolute())


def _offer(fallback: str, names: Sequence[str]) -> str:
    return f"{fallback}; did you mean {' or '.join(names[:5])}?" if names else fallback
