"""What the user's files say, read without running them: names, classes and what these inherit from.

A callback or a model brings in Ray or torch when it is imported, which takes seconds; its text is
enough to tell a misspelt name, a function in place of a class, or a class that inherits from nothing.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

from rayfish.errors import CodeError, did_you_mean
from rayfish.experiment.imports import find_file, invalid_python, is_file_path, use_paths


def require_class(path: str, paths: Sequence[str | Path], base: str) -> ast.ClassDef | None:
    """Checks that an import path names a class that may inherit from `base`; gives its text where seen.

    :param base: what it has to inherit from, for the message
    :raises CodeError: there is no such name, it is no class, or it inherits from nothing
    """
    file, name = _place(path, paths)
    if file is None or not name or "." in name:
        return None
    module = _parsed(file)
    if module is None:
        return None
    bound = dict(_bound(module.body))
    node = bound.get(name)
    if name not in bound:
        if "*" in bound or "__getattr__" in bound:
            return None
        classes = [word for word, made in bound.items() if isinstance(made, ast.ClassDef)]
        close = did_you_mean(name, bound) or classes
        hint = f"did you mean {' or '.join(close[:3])}?" if close else f"write a class {name}({base}) there"
        raise CodeError(f"{path!r}: {file} has no {name!r}", hint)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        raise CodeError(
            f"{path!r} is a function ({file}:{node.lineno}), not a class",
            f"name a class that inherits from {base}",
        )
    if isinstance(node, ast.ClassDef) and not _inherits(node, bound):
        raise CodeError(
            f"{path!r} ({file}:{node.lineno}) inherits from nothing, so it is no {base.rpartition('.')[2]}",
            f"let it inherit from {base}",
        )
    return node if isinstance(node, ast.ClassDef) else None


def methods(node: ast.ClassDef) -> list[str]:
    """The methods a class defines itself."""
    return [part.name for part in node.body if isinstance(part, ast.FunctionDef)]


def environments_in(file: Path) -> list[str]:
    """The classes of a Python file that look like environments; [] where it cannot be read."""
    try:
        module = _parsed(file)
    except CodeError:
        return []
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)] if module else []
    return [
        node.name
        for node in classes
        if "step" in methods(node) or any(ast.unparse(base).endswith("Env") for base in node.bases)
    ]


def _place(path: str, paths: Sequence[str | Path]) -> tuple[Path | None, str]:
    """The file an import path leads to (None where there is no such text), and the name in it."""
    head, colon, name = path.strip().partition(":")
    if is_file_path(head):
        return find_file(head, paths), name
    if not colon:
        head, _, name = head.rpartition(".")
    use_paths(paths)
    try:
        spec = importlib.util.find_spec(head)
    except (ImportError, ValueError, AttributeError):
        return None, name
    origin = Path(spec.origin) if spec is not None and spec.origin else None
    return (origin if origin is not None and origin.suffix == ".py" else None), name


def _parsed(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_bytes(), filename=str(file))
    except SyntaxError as error:
        raise invalid_python(error) from error
    except (OSError, ValueError):
        return None  # the import itself will say why


def _bound(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Every name that the statements of a module bind, also inside `if` and `try`."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield (alias.asname or alias.name).partition(".")[0] or "*", node
        else:
            for part in ast.walk(node) if not hasattr(node, "body") else ():
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    yield part.id, node
            for block in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(node, block, []))
            for handler in getattr(node, "handlers", []):
                yield from _bound(handler.body)


def _inherits(node: ast.ClassDef, bound: dict[str, ast.stmt]) -> bool:
    """Whether a class may inherit from something that its own file does not define."""
    for base in node.bases:
        if not isinstance(base, ast.Name):
            return True
        other = bound.get(base.id)
        if base.id != "object" and (not isinstance(other, ast.ClassDef) or _inherits(other, bound)):
            return True
    return bool(node.keywords or node.decorator_list)
