"""The experiment: one resolved set of values, each with the place it came from."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfish.errors import ConfigError, Problem
from rayfish.experiment import tree
from rayfish.experiment.sections import SECTIONS, Sections
from rayfish.files import atomic_write

if TYPE_CHECKING:
    from rayfish.experiment.words import Override
    from rayfish.legacy.file_format import OldExperiment

_HEADER = "# The whole experiment, resolved; `rayfish train -f` on this file repeats it."
_PATHS_KEY = "# paths:"
_ORIGIN_COLUMN = 60
_SHORT_FORMS = ("callbacks", "framework")  # may be one value, see `compose`


@dataclass(frozen=True)
class Experiment(Sections):
    """What is to be trained, and how: the first stage's result, handed to every later one.

    Rayfish's own keys are attributes of its sections, typed (`experiment.rollouts.runner`).

    :param config: plain nested dictionaries and values, interpolations resolved
    :param origins: dotted key of each value -> the file and line, or "command line", that wrote it
    :param overrides: the key=value words as the user wrote them
    :param paths: folders where the user's own environments, models and callbacks are looked up
    :param env: an environment class or creator handed in from Python, else None
    :param notes: what was translated from older names, one sentence each
    :param fit: shrink it to the machine unasked; an old file's numbers were made for another one
    :param variables: dotted key -> (what was written, what it is now) of values that hold an environment
        variable (`${oc.env:TOKEN}`): they are written to files as they were, and resolved when read again
    """

    config: dict[str, Any]
    origins: dict[str, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    env: Any = None
    notes: tuple[str, ...] = ()
    fit: bool = False
    variables: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @classmethod
    def compose(
        cls,
        name: str | OldExperiment | None = None,
        overrides: Override | Sequence[Override] = (),
        *,
        config_name: str = "config",
        config_dir: str | Path | None = None,
        env: Any = None,
        closest: bool = False,
    ) -> Experiment:
        """The experiment that a preset (or a YAML file) and overrides describe.

        :param name: a preset (`cartpole`) or a path to a YAML file, today's or an old RLlib one
            (`old.yaml:name` for one of several in it); None takes the default experiment, unless something
            else names an environment
        :param overrides: `key=value` words, and group choices such as `training/model=lstm`; from Python
            also dictionaries: `{"training.lr": 1e-3}`, `{"training": {"lr": 1e-3}}`
        :param config_name: the main config
        :param config_dir: a folder with main configs and groups of your own, searched first
        :param env: an environment class or creator, in place of `environment.env`
        :param closest: an old file's algorithm that RLlib has dropped becomes the closest one it has
        """
        from rayfish.experiment.compose import compose, source_of

        return compose(source_of(name, overrides, config_dir, closest), config_name, env)

    @classmethod
    def load(cls, path: str | Path, *, resolve: bool = True) -> Experiment:
        """The experiment of a run, from the config.yaml that `save` wrote.

        :param resolve: environment variables are filled in; without, an unset one does no harm
        """
        import yaml

        from rayfish.experiment.yaml_reader import safe_load

        file = Path(path)
        if file.is_dir():
            file = file / "config.yaml"
        try:
            text = file.read_text(encoding="utf-8")
            config = safe_load(text)
        except OSError as error:
            raise _unreadable(file, f"the experiment cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise _unreadable(file, "the experiment cannot be read: it is not text") from error
        except yaml.YAMLError as error:
            from rayfish.experiment.yaml_reader import explain

            line, what, _ = explain(error, text)
            raise _unreadable(file, f"the experiment cannot be read: line {line}: {what}") from error
        if not isinstance(config, dict) or "algo" not in config:
            raise _unreadable(file, "the experiment cannot be read: it names no algorithm (algo.name)")
        origins = {key: str(file) for key, _ in tree.leaves(config)} | _written_origins(text)
        paths = [line.removeprefix(_PATHS_KEY) for line in text.splitlines() if line.startswith(_PATHS_KEY)]
        folders = safe_load(paths[0]) if paths else [str(file.resolve().parent)]
        variables = _fill_variables(config, origins) if resolve else {}
        _require_sections(config, file)
        return cls(config, origins, paths=tuple(folders), variables=variables)

    def save(self, path: str | Path) -> None:
        """Write config.yaml: plain resolved YAML, with where each value came from beside it."""
        atomic_write(path, self.to_yaml())

    def to_yaml(self) -> str:
        """The text of config.yaml."""
        import json

        text = dump(self.written())
        origins = {line: self.origins[key] for key, line, _ in _single_lines(text) if key in self.origins}
        lines = [_HEADER, f"{_PATHS_KEY} {json.dumps(list(self.paths))}"]
        for number, line in enumerate(text.splitlines()):
            where = origins.get(number)
            lines.append(f"{line:<{_ORIGIN_COLUMN}} # {where}" if where else line)
        return "\n".join(lines) + "\n"

    def written(self) -> dict[str, Any]:
        """The values as they may be shown and kept: environment variables by their names."""
        kept = {key: text for key, (text, value) in self.variables.items() if self.get(key) == value}
        values = copy.deepcopy(self.config) if kept else self.config
        for key, text in kept.items():
            tree.put(values, key, text)
        return values

    def get(self, dotted: str, default: Any = None) -> Any:
        """The value at a dotted key (`training.lr`), or `default`."""
        return tree.get(self.config, dotted, default)

    def section(self, name: str) -> dict[str, Any]:
        """A copy of one section; empty where it is absent."""
        value = self.config.get(name)
        return copy.deepcopy(value) if isinstance(value, dict) else {}

    def mapping(self, dotted: str) -> dict[str, Any]:
        """A copy of the keys below a dotted key; empty where there are none.

        :raises ConfigError: something else is there; a list of pairs is no section
        """
        value = self.get(dotted)
        if value is not None and not isinstance(value, dict):
            raise ConfigError([_no_section(dotted, value, self.origin(dotted))])
        return copy.deepcopy(value or {})

    def origin(self, dotted: str) -> str:
        """Where a value was written, "" when unknown; a section's own keys are asked for one by one."""
        return tree.nearest(self.origins, dotted) or ""

    def with_overrides(self, words: Override | Sequence[Override]) -> Experiment:
        """A copy with `key=value` words or dictionaries laid upon it."""
        from rayfish.experiment.compose import changed

        return changed(self, words) if words else self

    def with_values(self, values: Mapping[str, Any], origin: str) -> Experiment:
        """A copy with some dotted keys set again, their origin noted."""
        config, origins = copy.deepcopy(self.config), dict(self.origins)
        for dotted, value in values.items():
            tree.put(config, dotted, value)
            tree.forget(origins, dotted)
            origins[dotted] = origin
        return replace(self, config=config, origins=origins)


def _unreadable(file: Path, what: str) -> ConfigError:
    """A config.yaml that is gone or damaged; a run's checkpoints hold copies of it."""
    copies = sorted(file.parent.glob("checkpoints/[0-9]*/config.yaml"))
    hint = f"put back its copy: cp {copies[-1]} {file}" if copies else "name a run folder or its config.yaml"
    return ConfigError([Problem(str(file), what, hint)])


def _require_sections(config: Mapping[str, Any], file: Path) -> None:
    for name in SECTIONS:
        value = config.get(name)
        if value is not None and not isinstance(value, dict) and name not in _SHORT_FORMS:
            raise ConfigError([_no_section(name, value, str(file))])


def _no_section(key: str, value: Any, where: str) -> Problem:
    what = f"is a {type(value).__name__}, not a group of keys"
    return Problem(key, what, f"write {key.rpartition('.')[2]}: {{key: value}}", where)


def _fill_variables(config: dict[str, Any], origins: dict[str, str]) -> dict[str, tuple[Any, Any]]:
    """Resolves the environment variables of a config.yaml in place; gives what was written and what it is."""
    from rayfish.experiment.compose import resolved

    texts = tree.from_environment(config)
    values = {key: resolved(config, origins, key) for key in texts}
    for key, value in values.items():
        tree.put(config, key, value)
    return {key: (texts[key], value) for key, value in values.items()}


def dump(values: Mapping[str, Any]) -> str:
    """Sections and values as YAML, one value per line."""
    import yaml

    return yaml.dump(values, Dumper=_dumper(), sort_keys=False, width=1000)


def _dumper() -> Any:
    """PyYAML's safe dumper, with one value per line and short lists in brackets."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Sections as blocks, lists of plain values in brackets; no `&anchors`, which are hard to read."""

        def ignore_aliases(self, data: Any) -> bool:
            """Equal lists are written out again."""
            return True

    def represent_list(dumper: Any, value: Any) -> Any:
        flat = not any(isinstance(item, dict) for item in value)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flat)

    Dumper.add_representer(list, represent_list)
    Dumper.add_representer(tuple, represent_list)
    return Dumper


def _written_origins(text: str) -> dict[str, str]:
    """The origins that `to_yaml` wrote beside the values."""
    lines, found = text.splitlines(), {}
    for key, line, end in _single_lines(text):
        _, mark, origin = lines[line][end:].partition("# ")
        if mark:
            found[key] = origin.strip()
    return found


def _single_lines(text: str) -> list[tuple[str, int, int]]:
    """Dotted key, line and column of its end, of each value that is on the line of its key."""
    from rayfish.experiment.yaml_reader import keys_in, parsed

    return [
        (dotted, key.start_mark.line, value.end_mark.column)
        for dotted, key, value, _ in keys_in(parsed(text, twice=True)[1])
        if key.start_mark.line == value.end_mark.line and not (value.id == "mapping" and value.value)
    ]
