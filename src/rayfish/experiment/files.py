"""Config files to one nested dictionary: Hydra says which files and in what order, we read them.

Hydra's defaults list is the hard part of composing and stays Hydra's. Reading the files ourselves,
with YAML marks, is what gives every value its file and line. Nothing here touches Hydra's global
state, so a notebook with its own `hydra.initialize` is not disturbed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rayfish.compat.hydra_defaults import defaults_list
from rayfish.errors import ConfigError, Problem, did_you_mean
from rayfish.experiment import tree
from rayfish.experiment.yaml_reader import Excess, keys_in, parsed

CONF = Path(__file__).resolve().parent.parent / "conf"
"""The folder of the shipped groups."""

SHIPPED = "rayfish/conf/"
"""How the origin of a shipped value begins."""

_PRESET = "_file"
"""The name under which a preset given as a file is known to Hydra."""


@dataclass
class Composed:
    """What the files alone say: values (interpolations not yet resolved) and where each was written.

    :param choices: group -> the option chosen of it
    :param variables: dotted key -> what was written there, of values that hold an environment variable
    """

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    choices: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)


class ConfigFolders:
    """The folders searched for main configs and groups, the user's before the shipped ones."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = [folder.resolve() for folder in folders]
        if CONF not in self.folders:
            self.folders.append(CONF)

    def find(self, config: str) -> Path | None:
        """The file of `config` ("experiment/cartpole"), the first one in search order."""
        for folder in self.folders:
            for suffix in (".yaml", ".yml"):
                path = folder / f"{config}{suffix}"
                if path.is_file():
                    return path
        return None

    def is_group(self, name: str) -> bool:
        """Whether `name` ("training/model") is a folder of choices."""
        with suppress(OSError):  # too long for a file's name
            return any((folder / name).is_dir() for folder in self.folders)
        return False

    def options(self, group: str) -> list[str]:
        """The choices of a group, or the main configs for the group ""."""
        found: set[str] = set()
        for folder in self.folders:
            found.update(path.stem for path in (folder / group).glob("*.y*ml"))
        return sorted(found)

    def groups(self) -> list[str]:
        """Every group there is, as in `training/model`."""
        found: set[str] = set()
        for folder in self.folders:
            if folder != CONF and not _looks_like_conf(folder):
                continue
            found.update(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_dir())
        return sorted(name for name in found if "/." not in f"/{name}" and "__pycache__" not in name)

    def files(self) -> list[Path]:
        """The user's own YAML files: main configs, groups and the preset given as a file."""
        own = [folder for folder in self.folders if folder != CONF]
        found = [path for folder in own for path in sorted(folder.glob("*.y*ml"))]
        groups = [folder / group for folder in own for group in self.groups()]
        return found + [path for group in groups for path in sorted(group.glob("*.y*ml"))]

    def line_with(self, word: str) -> str:
        """The file and line of the user's defaults lists that names `word`; "" where none does."""
        for path in self.files():
            text = path.read_text(encoding="utf-8", errors="replace")
            for number, line in enumerate(text.splitlines() if "defaults:" in text else (), 1):
                if line.lstrip().startswith("- ") and word in re.split(r"[\s/:@]+", line):
                    return f"{show(path)}:{number}"
        return ""


def config_folder(config_dir: str | Path | None) -> Path | None:
    """The user's folder of configs, which must be there."""
    if config_dir is None:
        return None
    folder = Path(config_dir).expanduser().resolve()
    if not folder.is_dir():
        what = f"there is no folder {config_dir}"
        hint = f"looked at {folder}; create it, or correct the path"
        raise ConfigError([Problem("--config-dir", what, hint)])
    return folder


def compose_files(config_name: str, choices: Sequence[str], folders: ConfigFolders) -> Composed:
    """Read the main config with its groups; `choices` are Hydra group overrides (`training/model=lstm`)."""
    if folders.find(config_name) is None:
        known = folders.options("")
        raise ConfigError([_not_found("config name", config_name, known, "-cn")])
    composed = Composed()
    listed, composed.choices = _defaults_list(config_name, list(choices), folders)
    for path, package in listed:
        _lay(composed, path, package)
    return composed


def offer_preset(preset: Path | dict[str, Any], into: Path) -> str:
    """Make a preset, a file anywhere or its values, findable under `into`; returns the choice for Hydra."""
    import yaml

    path = into / "experiment" / f"{_PRESET}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(preset, Path):
        read_marked(preset)  # what is wrong with the file itself is reported before Hydra stumbles over it
        path.symlink_to(preset.resolve())
    else:
        path.write_text(yaml.safe_dump(preset, sort_keys=False), encoding="utf-8")
    # A preset is about the whole experiment, with or without Hydra's `# @package _global_` header.
    return f"+experiment@_global_={_PRESET}"


def read_marked(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """One YAML file as a dictionary, and the line each dotted key is written on."""
    import yaml

    text = _text_of(path)
    try:
        loader, node = parsed(text)
        value = loader.construct_document(node) if node is not None else {}
    except yaml.YAMLError as error:
        raise ConfigError([yaml_problem(path, error, text)]) from error
    if value is None:
        value = {}
    if not isinstance(value, dict):
        holds = "a list" if isinstance(value, list) else f"only the value {value!r}"
        what = f"holds {holds}, where keys and values belong"
        hint = "write `section:` lines, such as `training:` with `  lr: 0.001` below it"
        raise ConfigError([Problem(show(path), what, hint)])
    lines = _lines_of(node)
    _require_defaults_list(path, value, lines)
    return value, lines


def read_lenient(path: Path) -> tuple[Any, dict[str, int], list[str]] | None:
    """Values, lines and keys that are written twice (the last counts), as forgiving as PyYAML; else None."""
    import yaml

    try:
        loader, node = parsed(_text_of(path), twice=True)
        # Before anchors are merged in, which may be overridden.
        twice = [dotted for dotted, _, _, again in keys_in(node) if again]
        values = loader.construct_document(node) if node is not None else {}
    except (yaml.YAMLError, TypeError, ValueError):
        return None  # what is wrong with it, reading it as a file of today tells
    return values, _lines_of(node), twice


def key_lines(text: str) -> dict[str, int]:
    """Dotted key -> its line in a YAML text, from 1."""
    return _lines_of(parsed(text, twice=True)[1])


def _lines_of(node: Any) -> dict[str, int]:
    return {dotted: key.start_mark.line + 1 for dotted, key, _, _ in keys_in(node)}


def _text_of(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        if b"\0" in error.object:
            what, hint = "is not a text file", "name a YAML file; runs and checkpoints go to --resume"
        else:
            line = error.object.count(b"\n", 0, error.start) + 1
            what = f"is not UTF-8 text: line {line} has the byte 0x{error.object[error.start]:02x}"
            hint = "save it as UTF-8 in your editor"
        raise ConfigError([Problem(show(path), what, hint)]) from error
    except OSError as error:
        what, hint = f"cannot be read: {error.strerror}", "check its permissions, or name another file"
        raise ConfigError([Problem(show(path), what, hint)]) from error
    return text


def _require_defaults_list(path: Path, values: dict[str, Any], lines: dict[str, int]) -> None:
    defaults = values.get("defaults", [])
    if not isinstance(defaults, list):
        where = f"{show(path)}:{lines.get('defaults', 1)}"
        hint = f"write `defaults:` with `  - {defaults}` below it"
        if not isinstance(defaults, str):
            hint = "write `defaults:` with one `  - group: option` line for each choice below it"
        raise ConfigError([Problem("defaults", f"is {defaults!r}, where a list belongs", hint, where)])
    for entry in defaults:
        if not (isinstance(entry, str) or (isinstance(entry, dict) and len(entry) == 1)):
            where = f"{show(path)}:{lines.get('defaults', 1)}"
            hint = "write `- group: option`, or the name of a preset"
            raise ConfigError([Problem("defaults", f"the entry {entry!r} chooses nothing", hint, where)])


def yaml_problem(path: Path, error: Any, text: str = "") -> Problem:
    """A YAML syntax error as one sentence with file and line."""
    from rayfish.experiment.yaml_reader import explain

    line, what, hint = explain(error, text)
    where = f"{show(path)}:{line}" if line else show(path)
    beyond = isinstance(error, Excess)
    return Problem(path.name, f"{'cannot be read' if beyond else 'is not valid YAML'}: {what}", hint, where)


def describe(path: Path) -> str:
    """What a config file is for: its first paragraph of comments, without Hydra's header."""
    found: list[str] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.lstrip("# ").strip()
        if not line.startswith("#") or (found and not text):
            break
        found += [text] if text and "@package" not in line else []
    return " ".join(found)


def show(path: Path) -> str:
    """A file as people look for it: shipped ones as rayfish/conf/..., others relative to here if below."""
    path = path.resolve()
    if path.is_relative_to(CONF):
        return SHIPPED + path.relative_to(CONF).as_posix()
    cwd = Path.cwd()
    return path.relative_to(cwd).as_posix() if path.is_relative_to(cwd) else str(path)


def _looks_like_conf(folder: Path) -> bool:
    return any((folder / name).is_dir() for name in ("experiment", "environment", "training", "rollouts"))


def _lay(composed: Composed, path: Path, package: str) -> None:
    """Lay one file upon what is composed so far, at its package, and note where each value was written."""
    values, lines = read_marked(path)
    values.pop("defaults", None)
    shown = show(path)
    composed.files.append(shown)
    wrapped = tree.nested(package, values) if package else values
    drop_conditions(composed, wrapped)
    for dotted, value in tree.leaves(values):
        full = f"{package}.{dotted}" if package else dotted
        old = tree.get(composed.values, full, tree.MISSING)
        if value == {} and isinstance(old, dict):
            continue
        if isinstance(old, dict) and not isinstance(value, dict):
            tree.forget(composed.origins, full)
        line = tree.nearest(lines, dotted)  # of a key that came in by a YAML merge (`<<`), its parent's
        composed.origins[full] = f"{shown}:{line}" if line else shown
    tree.merge(composed.values, wrapped)


def drop_conditions(composed: Composed, over: Mapping[str, Any]) -> None:
    """Empty the stop conditions that `over` states again as dictionaries: they replace, they do not merge."""
    stated = over.get("stop_conditions")
    for metric, limit in stated.items() if isinstance(stated, Mapping) else ():
        dotted = f"stop_conditions.{metric}"
        if isinstance(limit, Mapping) and isinstance(composed.values.get("stop_conditions"), dict):
            tree.put(composed.values, dotted, {})
            tree.forget(composed.origins, dotted)


def _not_found(kind: str, name: str, known: Sequence[str], key: str) -> Problem:
    close = did_you_mean(name, known)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return Problem(key, f"there is no {kind} {name!r}", f"{hint}there are: {', '.join(known)}")


def _defaults_list(
    config_name: str, choices: list[str], folders: ConfigFolders
) -> tuple[list[tuple[Path, str]], dict[str, Any]]:
    """Which files, in which order, under which package: Hydra's defaults list; and the groups' choices."""
    try:
        listed = defaults_list(config_name, choices, folders.folders, _values_and_text)
    except Exception as error:
        retried = _retry_with_plus(error, choices)
        if retried is not None:
            return _defaults_list(config_name, retried, folders)
        raise _explained(error, config_name, folders) from error
    found: list[tuple[Path, str]] = []
    for default in listed.defaults:
        name, package = default.config_path or "", default.package or ""
        path = folders.find(name) if name else None
        if not name or (path is None and package.partition(".")[0] == "hydra"):  # Hydra's own
            continue
        if path is None:
            what = f"{name} is not a file in {', '.join(show(folder) for folder in folders.folders)}"
            raise ConfigError([Problem(config_name, what, "write it as a YAML file in one of these folders")])
        found.append((path, "" if package == "_global_" else package))
    return found, dict(listed.overrides.known_choices)


def _values_and_text(path: Path) -> tuple[dict[str, Any], str]:
    """A file within our limits, for Hydra."""
    return read_marked(path.resolve())[0], _text_of(path)


def _retry_with_plus(error: Exception, choices: list[str]) -> list[str] | None:
    """A group missing from the user's own defaults list is added to it, as if they had typed the `+`."""
    text = str(error)
    if "No match in the defaults list" not in text:
        return None
    for index, choice in enumerate(choices):
        group = choice.partition("=")[0]
        if not choice.startswith(("+", "~")) and f"'{group}'" in text:
            return [*choices[:index], f"+{choice}", *choices[index + 1 :]]
    return None


def _explained(error: Exception, config_name: str, folders: ConfigFolders) -> ConfigError:
    """Hydra's exception in plain words: which option is missing, or what is wrong with a file."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConfigError):
            return cause
        cause = cause.__cause__ or cause.__context__
    missing = getattr(error, "missing_cfg_file", None)
    if missing and "/" in str(missing):
        group, _, option = str(missing).rpartition("/")
        return ConfigError([_missing_option(group, option, folders)])
    twice = re.search(r"Multiple values for ([\w/]+)", str(error))
    astray = re.search(r"Could not override '([\w/]+)", str(error))
    if twice:
        group, what, hint = twice[1], f"{twice[1]} is chosen twice", f"write `- override /{twice[1]}: OPTION`"
    elif astray and not folders.is_group(astray[1]):
        return ConfigError([_missing_group(astray[1], folders)])
    elif astray:
        group, hint = astray[1], f"write `- /{astray[1]}: OPTION`"
        what = f"{group} is not chosen yet, so there is nothing to override"
    if twice or astray:
        return ConfigError([Problem("defaults", what, hint, folders.line_with(group.rpartition("/")[2]))])
    hint = "see the defaults list at the top of the file"
    return ConfigError([Problem(config_name, str(error).strip(), hint)])


def _missing_group(group: str, folders: ConfigFolders) -> Problem:
    close = did_you_mean(group, folders.groups(), most=1)
    hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(folders.groups())}"
    where = folders.line_with(group.partition("/")[0])
    return Problem("defaults", f"there is no group {group!r}", hint, where)


def _missing_option(group: str, option: str, folders: ConfigFolders) -> Problem:
    """A choice that is not there: of a preset, of a group, or of a group that is not there either."""
    written = folders.line_with(option)
    if not folders.options(group):
        return _missing_group(group.removeprefix("experiment/"), folders)
    kind = "preset" if group == "experiment" else f"{group} option"
    known = [name for name in folders.options(group) if name != _PRESET]
    return replace(_not_found(kind, option, known, group), where=written)
