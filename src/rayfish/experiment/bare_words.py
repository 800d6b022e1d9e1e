"""Words without a `=`: `rayfish train PPO CartPole-v1` names an algorithm and an environment.

A word is an experiment (a preset or a file) if there is one of that name, else an algorithm, else the
experiment file ./WORD.yaml, else an environment. Algorithms and environments become the settings they are
short for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from rayfish.errors import ConfigError, Problem, RayfishError, did_you_mean
from rayfish.experiment.files import ConfigFolders
from rayfish.experiment.sections import ALGORITHMS, CLOSEST, SECTIONS, spelled

ENV_GROUP = "rayfish.envs"
"""The entry points by which installed packages offer environments."""

_FILE = (".yaml", ".yml")
_PATH = ("/", "./", "../", "~")
_ENV_ID = re.compile(r"[\w./:-]+-v\d+")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_COMPARED = re.compile(r"\+{0,2}stop(_conditions)?\.[^\s<>]+\s*[<>]")
_EXPERIMENT, _ALGORITHM, _ENVIRONMENT = "experiment", "algo.name", "environment.env"
_MANY = {_EXPERIMENT: "experiments", _ALGORITHM: "algorithms", _ENVIRONMENT: "environments"}
_SHOWN = 3
_LONGEST_SHOWN = 80


def is_bare(word: str) -> bool:
    """Whether a word is no setting; stop_conditions.env/error<0.1 is one."""
    return not ("=" in word or word.startswith("~") or _COMPARED.match(word))


def settings_of(words: Sequence[str], user: Path | None = None) -> tuple[str | None, list[str]]:
    """The experiment among bare words, None where they name none; and the others as settings.

    :param user: the folder of the user's own presets
    :raises RayfishError: two words name the same thing, or one names nothing there is
    """
    folders = ConfigFolders([user] if user else [])
    found: dict[str, str] = {}
    for word in words:
        try:
            kind, name = _meaning(word.strip(), folders, user)
        except OSError as error:
            what = f"{word[:_LONGEST_SHOWN]}… cannot be looked up: {error.strerror}"
            raise ConfigError([Problem(_EXPERIMENT, what, "name a preset, or a file by its path")]) from None
        if kind in found:
            raise RayfishError(
                f"two {_MANY[kind]} were named: {found[kind]} and {name}",
                "name one; everything else is key=value",
            )
        found[kind] = name
    experiment = found.pop(_EXPERIMENT, None)
    return experiment, [f"{key}={_quoted(value)}" for key, value in found.items()]


def _meaning(word: str, folders: ConfigFolders, user: Path | None) -> tuple[str, str]:
    """What a word names: a setting's key, or "experiment", and the name in its right spelling."""
    if _is_experiment(word, folders, user):
        return _EXPERIMENT, word
    _require_no_setting(word)
    algorithms = [spelled(part, ALGORITHMS) for part in word.split(",")]  # PPO,DQN for --multirun
    if all(algorithms):
        return _ALGORITHM, ",".join(map(str, algorithms))
    if spelled(word, CLOSEST):  # which today's is closest, the check reports
        return _ALGORITHM, word
    if Path(word).is_file() and not word.endswith(".py"):
        raise ConfigError([_unknown(word, folders)])
    if _ENV_ID.fullmatch(word) or _MODULE.fullmatch(word) or ":" in word or word.endswith(".py"):
        return _ENVIRONMENT, word
    file = next((word + end for end in _FILE if Path(word + end).is_file()), None)
    if file is not None:
        return _EXPERIMENT, file
    named = next((name for name in _environments() if name == word), None)
    if named is None:
        raise ConfigError([_unknown(word, folders)])
    return _ENVIRONMENT, named


def _require_no_setting(word: str) -> None:
    """A key or a value that lost its `=`, to a space or a colon, is no name."""
    if not word:
        hint = "leave it out, or set the variable that it stands for"
        raise ConfigError([Problem("experiment", "one of the words is empty", hint)])
    key, colon, value = word.partition(":")
    if key.partition(".")[0] in SECTIONS and not key.endswith(".py"):
        rest = f"{key}.KEY" if "." not in key else key
        hint = f"write {rest}={value or 'VALUE'}, without spaces around the ="
        what = "is a section, not a setting" if "." not in key else "has a colon" if colon else "has no value"
        raise ConfigError([Problem(word, what, hint)])
    if _NUMBER.fullmatch(word) or word.lower() in ("true", "false", "null", "none"):
        hint = f"write KEY={word}, without spaces around the ="
        raise ConfigError([Problem(word, "is a value without a key", hint)])


def _is_experiment(word: str, folders: ConfigFolders, user: Path | None) -> bool:
    head = word.partition(":")[0]
    if head.endswith(_FILE) or word.startswith(_PATH) or folders.find(f"experiment/{word}"):
        return not head.endswith(".py")
    places = (Path.cwd(), *([user] if user else []))
    return "/" in word and any((place / word).exists() for place in places) and not head.endswith(".py")


def _environments() -> Iterator[str]:
    """Names of environments without the shape of one: entry points, and ids without their version."""
    import gymnasium as gym

    yield from (point.name for point in entry_points(group=ENV_GROUP))
    yield from dict.fromkeys(re.sub(r"-v\d+$", "", env_id) for env_id in gym.registry)


def _unknown(word: str, folders: ConfigFolders) -> Problem:
    from rayfish.experiment.source import environments_in

    presets = folders.options("experiment")
    what = f"there is no experiment, algorithm or environment {word!r}"
    if Path(word).is_file():
        hint = "experiment files end in .yaml, files with environments in .py"
        return Problem(_EXPERIMENT, f"{word} is neither an experiment nor an environment", hint)
    if word == "last" or (Path("runs") / word).is_dir():
        return Problem(_EXPERIMENT, what, f"to go on with that run: rayfish train --resume {word}")
    if Path(word).is_dir():
        inside = [f"{word.rstrip('/')}/{path.name}" for path in sorted(Path(word).glob("*.y*ml"))]
        hint = f"name a file in it: {', '.join(inside[:_SHOWN])}" if inside else "name a YAML file"
        hint += "; runs are continued with --resume"
        return Problem(_EXPERIMENT, f"{word} is a folder, not an experiment", hint)
    own = [f"{path.name}:{word}" for path in sorted(Path.cwd().glob("*.py")) if _defines(path, word)]
    own = own or [f"{word}.py:{name}" for name in environments_in(Path(f"{word}.py"))]
    environments = (name for name in _environments() if "/" not in name)
    known = {name.lower(): name for name in (*environments, *ALGORITHMS, *presets)}
    close = own or [known[name] for name in did_you_mean(word.lower(), known)]
    hint = f"did you mean {' or '.join(close[:_SHOWN])}? " if close else ""
    hint += f"experiments: {', '.join(presets)}, or your file ./{word}.yaml; "
    hint += f"algorithms: {', '.join(ALGORITHMS)}; environments: `rayfish env list`, or your my_env.py:MyEnv"
    return Problem(_EXPERIMENT, what, hint)


def _defines(path: Path, name: str) -> bool:
    """Whether a Python file defines a class or function of that name."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return re.search(rf"^(class|def) {re.escape(name)}\b", text, re.MULTILINE) is not None


def _quoted(value: str) -> str:
    """As Hydra's grammar reads it back; a list for --multirun stays one."""
    from rayfish.experiment.words import word

    return value if "," in value else word("", value)[1:]
