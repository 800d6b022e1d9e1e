"""Words on the command line: `key=value` parsed by Hydra's grammar, applied and multiplied by us.

Hydra refuses keys it has not seen and sweeps outside its own launcher; here open keys need no `+`,
and `a=1,2` under `--multirun` becomes several runs.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from rayfish.errors import ConfigError, Problem, did_you_mean
from rayfish.experiment import tree
from rayfish.experiment.bare_words import is_bare, settings_of
from rayfish.experiment.files import Composed, ConfigFolders, config_folder, drop_conditions
from rayfish.experiment.yaml_reader import DEEPEST, load

COMMAND_LINE = "command line"
"""The origin of a value given as an override."""

DEFAULT_SEED = 2000
"""debugging.seed where nothing sets it; the first of `--seeds N`."""

_MAIN_KEYS = {"algo": "algo.name", "environment": "environment.env"}
"""Sections that people set as a whole, by the name of what they choose."""

_DISTRIBUTIONS = ("uniform", "loguniform", "quniform", "qloguniform", "randint", "lograndint", "randn")

_LONGEST_SHOWN = 80

_UNUSUAL_KEY = re.compile(r"[\w-]+\.[^=@\s]*[/*?\[\]][^=@\s]*")

_COMPARISON = re.compile(r"(?P<key>[^=<>]+=|\+{0,2}stop(_conditions)?\.[^=<>\s]+)(?P<value>\s*[<>]=?[^'\"]*)")


def split_words(
    words: Sequence[str], config_dir: str | Path | None = None, name: str | None = None
) -> tuple[str | None, list[str]]:
    """The experiment's name and the overrides among the words after a verb: `cartpole training.lr=1e-3`.

    Bare words that name an algorithm or an environment are overrides, laid below those that are written out.

    :param name: one more bare word, that is given by itself
    """
    bare = [*([name] if name is not None else []), *filter(is_bare, words)]
    found, short = settings_of(bare, config_folder(config_dir))
    return found, [*short, *(word for word in words if not is_bare(word))]


def parse(overrides: Sequence[str]) -> list[Any]:
    """Each word as Hydra's `Override`; every word that cannot be read is reported at once."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser, parsed, problems = OverridesParser.create(), [], []
    for word in overrides:
        if _depth(word) > DEEPEST:
            key, what = word.partition("=")[0], f"values are nested more than {DEEPEST} deep"
            key = key if len(key) <= _LONGEST_SHOWN else f"{key[:_LONGEST_SHOWN]}…"
            problems.append(Problem(key, what, "write it flatter", COMMAND_LINE))
            continue
        if {"'", '"'} & set(word.partition("=")[0]):
            problems.append(_quoted_key(word))
            continue
        if word.lstrip("+").startswith("="):
            problems.append(Problem(word, "has no key", "write section.key=value", COMMAND_LINE))
            continue
        try:
            parsed.append(_parse_one(parser, word))
        except HydraException:
            problems.append(_unreadable(word))
    if problems:
        raise ConfigError(problems)
    return parsed


def _parse_one(parser: Any, word: str) -> Any:
    """One override; what Hydra's grammar lacks (patterns of agent ids as keys, JSON) is lifted over it."""
    from hydra.errors import HydraException

    compared = _COMPARISON.fullmatch(word)
    if compared is not None:  # the shell took the quotes away, or stop_conditions.metric<=0.1
        word = f"{compared['key'].removesuffix('=')}='{compared['value']}'"
    written, equals, value = word.partition("=")
    key = written.lstrip("+")
    lifted = bool(equals and _UNUSUAL_KEY.fullmatch(key))
    plain = written.replace(key, "key") if lifted else written
    try:
        override = parser.parse_overrides([f"{plain}{equals}{value}"])[0]
    except HydraException:
        found = _flow_value(value)
        if found is None:
            raise
        override = parser.parse_overrides([f"{plain}={{}}"])[0]
        override.value = lambda: found
    if lifted:
        override.key_or_group = key
    override.input_line = word
    return override


def _flow_value(text: str) -> Any:
    """A mapping or list in JSON or YAML that Hydra's grammar lacks (`{"size": 8}`); None for any other text.

    A text with a call (`[f(1,2)]`) is none: YAML would cut it at the comma.
    """
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        found = load(text)
        plain = [token.value for token in yaml.scan(text) if getattr(token, "plain", False)]
    except yaml.YAMLError:
        return None
    return found if isinstance(found, dict | list) and "(" not in "".join(plain) else None


def group_choices(parsed: Sequence[Any], folders: ConfigFolders) -> tuple[list[str], list[Any]]:
    """Split overrides into group choices, which are Hydra's, and values, which are ours."""
    choices: list[str] = []
    values: list[Any] = []
    for override in parsed:
        key = override.key_or_group
        group = key.replace(".", "/")
        if key in _MAIN_KEYS and _is_name(override, folders):  # algo=PPO
            override.key_or_group = _MAIN_KEYS[key]
        if group != key and folders.is_group(group) and override.value() in folders.options(group):
            choices.append(override.input_line.replace(key, group, 1))  # training.model=lstm
        elif folders.is_group(override.key_or_group) and _names_option(override, folders):
            choices.append(override.input_line)
        else:
            values.append(override)
    return choices, values


def _is_name(override: Any, folders: ConfigFolders) -> bool:
    """Whether a section is given one name: that of an algorithm or environment, not of one of its options."""
    value = override.value() if not override.is_delete() else None
    return isinstance(value, str) and value not in folders.options(override.key_or_group)


def _names_option(override: Any, folders: ConfigFolders) -> bool:
    """Whether a group is given one of its options (or a misspelt one) rather than a value of its own."""
    value = override.value()
    if override.is_delete() or value is None:
        return True
    names = value if isinstance(value, list) else [value]
    known = folders.options(override.key_or_group)
    # `callbacks=my.module:Callback` sets the section's main key; no option has such a name.
    return all(isinstance(name, str) and (name in known or not set(name) & set(":.")) for name in names)


def apply(composed: Composed, values: Sequence[Any]) -> None:
    """Lay value overrides upon the files' values, in the order they were written."""
    for override in values:
        key = override.key_or_group
        if key.startswith("hydra/"):  # a group of Hydra's own, of which only the name is kept
            key = key.replace("/", ".")
        if override.is_delete():
            _delete(composed, override)
            continue
        value = override.value()
        if isinstance(value, dict):
            drop_conditions(composed, tree.nested(key, value))
        old = tree.get(composed.values, key)
        if isinstance(value, dict) and isinstance(old, dict):
            tree.merge(old, value)
        else:
            tree.put(composed.values, key, value)
            tree.forget(composed.origins, key)
        written = tree.leaves(value, key) if isinstance(value, dict) and value else [(key, value)]
        composed.origins.update({name: COMMAND_LINE for name, _ in written})


def expand(
    overrides: Sequence[str], multirun: bool, seeds: int | None, *, base_seed: int = DEFAULT_SEED
) -> list[tuple[str, ...]]:
    """One tuple of overrides per run.

    :param multirun: whether `a=1,2` asks for several runs; without it such a word is a mistake
    :param seeds: run everything this many times, with debugging.seed = base, base + 1, ...
    :param base_seed: the first seed where no override sets debugging.seed
    """
    axes: list[list[str]] = []
    problems: list[Problem] = []
    swept_seed = False
    for override in parse(overrides):
        word, key = override.input_line, override.get_key_element()
        if not override.is_sweep_override():
            axes.append([word])
        elif not multirun or not override.is_discrete_sweep():
            problems.append(_sweep_problem(word, key, multirun))
        else:
            swept_seed = swept_seed or key.lstrip("+") == "debugging.seed"
            axes.append([f"{key}={value}" for value in override.sweep_string_iterator()])
    if seeds is not None:
        base_seed = _seed_in(overrides, base_seed)
        if seeds < 1 or swept_seed:
            what = f"--seeds {seeds}" + (" together with a swept debugging.seed" if swept_seed else "")
            hint = "leave out one of the two" if swept_seed else "give --seeds 1 or more"
            problems.append(Problem("--seeds", f"{what} makes no set of runs", hint))
        axes.append([f"debugging.seed={base_seed + i}" for i in range(seeds)])
    if problems:
        raise ConfigError(problems)
    return [tuple(combination) for combination in itertools.product(*axes)]


def _seed_in(overrides: Sequence[str], base: int) -> int:
    for word in overrides:
        found = re.fullmatch(r"\+{0,2}debugging\.seed=(\d+)", word)
        base = int(found.group(1)) if found else base
    return base


def _delete(composed: Composed, override: Any) -> None:
    key = override.key_or_group
    found = tree.get(composed.values, key, tree.MISSING)
    if found is tree.MISSING:
        close = did_you_mean(key, [name for name, _ in tree.leaves(composed.values)])
        hint = f"did you mean ~{close[0]}?" if close else "`rayfish config show` lists the keys there are"
        raise ConfigError([Problem(key, "cannot be removed: there is no such key", hint, COMMAND_LINE)])
    wanted = override.value()
    if wanted is not None and wanted not in ("", found):
        what = f"is {found!r}, so `{override.input_line}` removes nothing"
        raise ConfigError([Problem(key, what, f"write ~{key}", COMMAND_LINE)])
    tree.drop(composed.values, key)
    tree.forget(composed.origins, key)


def _unreadable(word: str) -> Problem:
    key, _, value = word.partition("=")
    call = re.match(r"(\w+)\(", value)
    if call and call.group(1) in _DISTRIBUTIONS:
        what = f"{value} is a search space, not a value"
        return Problem(key, what, "use it with `rayfish tune`", COMMAND_LINE)
    if not re.fullmatch(r"[+~]{0,2}[\w./@-]+", key):
        hint = "write section.key=value; a key is made of letters, digits, _ and -"
        return Problem(key or word, f"`{word}` has no readable key", hint, COMMAND_LINE)
    if not value:
        return Problem(key, f"`{word}` cannot be read", "write key=value", COMMAND_LINE)
    opened = _left_open(value)
    if opened:
        closed = f"{key}={value}{opened[1]}"
        closed = f'"{closed}"' if "'" in closed and '"' not in closed else shlex.quote(closed)
        hint = f"close it, with the whole word in quotes for the shell: {closed}"
        return Problem(key, f"`{word}` opens {opened[0]} that is not closed", hint, COMMAND_LINE)
    hint = f"quote values with special signs: '{key}=\"...\"'"
    return Problem(key, f"the value in `{word}` cannot be read", hint, COMMAND_LINE)


def _quoted_key(word: str) -> Problem:
    key, _, value = word.partition("=")
    if value[-1:] == key[0]:  # the whole word is in quotes
        value = value[:-1]
    key = re.sub("['\"]", "", key)
    hint = f"drop the quotes: {shlex.quote(f'{key}={value}')}"
    return Problem(key, f"`{word}` has quotes in its key", hint, COMMAND_LINE)


def _depth(word: str) -> int:
    """How deep a word sets a value: the dots of its key, and its brackets."""
    depth = deepest = word.partition("=")[0].count(".")
    for sign in word:
        depth += (sign in "[{(") - (sign in "]})")
        deepest = max(deepest, depth)
    return deepest


def _left_open(value: str) -> tuple[str, str] | None:
    """(the sign a value opens and does not close, what closes it); None where all are closed."""
    waiting: list[str] = []
    quote = ""
    for sign in value:
        if quote or sign in "'\"":
            quote = "" if sign == quote else quote or sign
        elif sign in "[{(":
            waiting.append(sign)
        elif sign in "]})" and waiting:
            waiting.pop()
    if quote:
        return f"a quote {quote}", quote
    closing = "".join({"[": "]", "{": "}", "(": ")"}[sign] for sign in reversed(waiting))
    return (f"a bracket {waiting[-1]}", closing) if waiting else None


def _sweep_problem(word: str, key: str, multirun: bool) -> Problem:
    key, value = key.lstrip("+"), word.partition("=")[2]
    if multirun:
        hint = "name the values (a=1,2 or range(0,3)), or use `rayfish tune`"
        what = f"`{word}` is a continuous range, which --multirun cannot enumerate"
        return Problem(key, what, hint, COMMAND_LINE)
    hint = f"add --multirun to run each of them, or write {key}=[{value}] for a list"
    return Problem(key, f"`{word}` names several values", hint, COMMAND_LINE)
