"""One old experiment in today's words, with the fate of each of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rayfish.errors import ConfigError, Problem
from rayfish.experiment import tree
from rayfish.experiment.sections import ALGORITHMS, CLOSEST, spelled
from rayfish.legacy import rules, search_space, top_level_keys
from rayfish.legacy.file_format import ALGORITHM_KEYS, OldExperiment
from rayfish.legacy.key_tables import GONE_WITH_IT, THEN
from rayfish.legacy.outcome import FATES, Context, Fate, Outcome, became, ignored, refused

_TUNE_LATER = "a search over it is `rayfish tune`'s; a single run takes the first value"
_FEW = 6
_MAY_MEET = (
    *("training.model.", "training.optimizer.", "training.replay_buffer_config.type", "environment."),
    *("evaluation.evaluation_interval", "multi_agent.policies", "stop_conditions.", "tunables.", "runtime."),
)
"""Where several old keys lead to one of today's, and that is no contradiction."""


@dataclass(frozen=True)
class Entry:
    """A line of the report.

    :param old: the old key, as in `config.model.use_attention`
    :param value: what the file says there
    :param where: file and line
    """

    old: str
    value: Any
    where: str
    outcome: Outcome

    @property
    def today(self) -> str:
        """Today's keys and values in one line."""
        return ", ".join(f"{key}={value}" for key, value in self.outcome.values.items())


@dataclass
class Translation:
    """What became of an old experiment.

    :param config: today's sections, only with what the file says
    :param origins: today's dotted keys -> file and line of the old ones
    """

    experiment: OldExperiment
    config: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)

    def of(self, fate: Fate) -> list[Entry]:
        """The entries of one fate."""
        return [entry for entry in self.entries if entry.outcome.fate == fate]

    @property
    def fate(self) -> Fate:
        """The worst fate among the keys: that of the whole file."""
        return max((entry.outcome.fate for entry in self.entries), key=FATES.index, default="translated")

    @property
    def problems(self) -> list[Problem]:
        """What a person must decide; in the text of a refusal the next step follows the first colon."""
        found = []
        for entry in self.of("refused"):
            what, _, step = entry.outcome.why.partition(": ")
            found.append(Problem(entry.old, what, step, entry.where))
        return found

    @property
    def tunables(self) -> list[str]:
        """Today's keys that have a search space."""
        spaces = tree.leaves(self.config.get("tunables") or {})
        return [key.removesuffix(".type") for key, _ in spaces if key.endswith(".type")]

    def required(self) -> Translation:
        """Itself, where nothing is refused.

        :raises ConfigError: with everything that a person must decide
        """
        if self.problems:
            raise ConfigError(self.problems)
        return self

    def notes(self) -> list[str]:
        """What a user must know of a translated file, shortest first."""
        done, gone, file = self.of("translated"), self.of("ignored"), self.experiment.file
        names = list(dict.fromkeys(entry.old.removeprefix("config.") for entry in gone))
        more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
        left = f", {len(gone)} ignored ({', '.join(names[:_FEW])}{more})" if gone else ""
        where = f"; `rayfish config migrate {file}` shows each" if file.endswith((".yaml", ".yml")) else ""
        found = [f"{file} speaks RLlib's old language: {len(done)} settings translated{left}{where}"]
        for entry in done:
            if entry.outcome.changed:
                today = f"{entry.today}: " if entry.today else ""
                found.append(f"{entry.old}: {today}{entry.outcome.why}")
        searched = self.tunables
        if searched:
            found.append(
                f"{', '.join(searched)} {'has' if len(searched) == 1 else 'have'} a search space: this run "
                "takes the first value of each; `rayfish tune` with this file runs them all"
            )
        return found


def translate(old: OldExperiment, *, closest: bool = False) -> Translation:
    """Translate every key of an old experiment.

    :param closest: take the closest algorithm (or setting) there is where RLlib has dropped one
    """
    found = Translation(old)
    if old.name:
        _put(found, "runtime.name", old.name, old.where(""))
    searches = list(search_space.find(old.values))
    first = {space.path: space.choices[0] if space.kind else None for space in searches}
    values = search_space.settled(old.values, first)
    context, run = _context(values, closest)
    for key, value in values.items():
        if key != "config":
            _add(found, key, value, top_level_keys.outcomes(key, value, context, run, values))
    config = values.get("config")
    if not isinstance(config, Mapping | None):
        _add(found, "config", config, [refused("write keys and values: config: {...}")])
        config = {}
    code = {space.path for space in searches if not space.kind}
    for key, value in (config or {}).items():
        if key == "env" and values.get("env"):
            _add(found, "config.env", value, [ignored("the experiment names its environment beside config")])
        elif ("config", key) not in code:
            _add(found, f"config.{key}", value, _config_key(str(key), value, context, run))
    _as_then(found, context)
    for space in searches:
        _tunable(found, space, values, context)
    _settle(found)
    return found


def _as_then(found: Translation, context: Context) -> None:
    """Defaults of the time that changed what was learnt, where the file leaves them to RLlib."""
    for dotted, value in THEN.get(context.algo, {}).items():
        if tree.get(found.config, dotted, tree.MISSING) is tree.MISSING:
            why = f"{context.algo}'s default of the time"
            if dotted.startswith("reporting."):
                why = "so that no iteration is without a step"
            outcome = became(dotted, value, why)
            found.entries.append(Entry("(left to RLlib)", None, found.experiment.where(""), outcome))
            _put(found, dotted, value, f"{found.experiment.file} (default of the time)")


def _context(values: Mapping[str, Any], closest: bool) -> tuple[Context, str]:
    """What the rules look at, and the algorithm's name in the file."""
    named = next((values[key] for key in ALGORITHM_KEYS if values.get(key)), "")
    given = values.get("config")
    config: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    run = str(named).rpartition(".")[2].rpartition("/")[2].removesuffix("Trainer").removesuffix("Config")
    algo = spelled(run, ALGORITHMS) or CLOSEST.get(spelled(run, CLOSEST) or "", "PPO")
    env = values.get("env") or config.get("env") or ""
    return Context(algo, str(env), config, closest), run


def _config_key(key: str, value: Any, context: Context, run: str) -> list[Outcome]:
    found = rules.outcomes(key, value, context)
    if spelled(run, ALGORITHMS) is not None:
        return found
    # An algorithm that is gone took its own settings with it; only what it shares is looked at.
    if key in GONE_WITH_IT or (context.closest and key in rules.known_keys()):
        gone = ignored(f"{context.algo} has no such setting, which {run} had")
        return [replace(gone, inner=o.inner) if o.fate == "refused" else o for o in found]
    return found


def _add(found: Translation, old: str, value: Any, outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        name = f"{old}.{outcome.inner}" if outcome.inner else old
        inner = _inside(value, outcome.inner)
        entry = Entry(name, inner, found.experiment.where(name), _undisputed(found, outcome))
        found.entries.append(entry)
        for dotted, today in entry.outcome.values.items():
            _put(found, dotted, today, entry.where)


def _inside(value: Any, path: str) -> Any:
    """The value at an inner key; the whole value where there is no such key."""
    for separator in (".", "/"):
        found = value
        for part in path.split(separator):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is not None:
            return found
    return value.get(path) if isinstance(value, Mapping) and path in value else value


def _undisputed(found: Translation, outcome: Outcome) -> Outcome:
    """The outcome, or a refusal where another old key has given today's key another value."""
    for dotted, value in outcome.values.items():
        before = tree.get(found.config, dotted, value)
        if not dotted.startswith(_MAY_MEET) and dotted in found.origins and before != value:
            where = found.origins[dotted]
            return refused(f"{dotted} would be {value}, but {before} by {where}: keep one of the two")
    return outcome


def _put(found: Translation, dotted: str, value: Any, where: str) -> None:
    """Lay a value at its place; of two stop conditions on one metric the nearer one holds, as ever."""
    current = tree.get(found.config, dotted)
    if dotted.startswith("stop_conditions.") and isinstance(current, int | float):
        value = min(current, value)
    if dotted == "multi_agent.policies" and isinstance(current, list) and isinstance(value, Mapping):
        current = {name: {} for name in current}
    if isinstance(current, dict) and isinstance(value, Mapping):
        value = tree.merge(dict(current), value)
    elif isinstance(current, dict) and current and value is True:
        return  # `environment.atari: true` beside its own settings
    tree.put(found.config, dotted, value)
    for leaf, _ in tree.leaves(value) if isinstance(value, dict) else ():
        found.origins[f"{dotted}.{leaf}"] = where
    found.origins[dotted] = where


def _tunable(found: Translation, space: search_space.OldSearchSpace, values: Any, context: Context) -> None:
    """A search space under today's key; what several of today's keys depend on stays with its first value."""
    old, where = ".".join(space.path), found.experiment.where(".".join(space.path))
    if not space.kind:
        why = "code in YAML is not run: write the values as grid_search, or a range in tunables"
        found.entries.append(Entry(old, space.values[0], where, refused(why)))
        return
    outcomes = [_variant(space, choice, values, context) for choice in space.choices]
    wrong = [outcome for choice in outcomes for outcome in choice if outcome.fate == "refused"]
    if wrong:
        _add(found, old, space.values, wrong[:1])
        return
    variants = [{key: val for o in choice for key, val in o.values.items()} for choice in outcomes]
    keys = list(dict.fromkeys(key for variant in variants for key in variant))
    if space.kind in ("grid", "choice"):
        keys = [key for key in keys if len({repr(variant.get(key)) for variant in variants}) > 1]
    if len(keys) == 1:
        options = space.values
        if space.kind in ("grid", "choice"):
            options = [variant.get(keys[0]) for variant in variants]
        outcome = became(f"tunables.{keys[0]}", {"type": space.kind, "values": options}, _TUNE_LATER)
    elif not keys:
        outcome = ignored("its values mean the same today")
    else:
        why = f"takes {space.choices[0]!r}; the others change {len(keys)} settings together: a file for each"
        outcome = Outcome("translated", {}, why, changed=True)
    _add(found, old, space.values, [outcome])


def _variant(space: search_space.OldSearchSpace, choice: Any, values: Any, context: Context) -> list[Outcome]:
    """What becomes of the one old key that holds the search space, with one choice made."""
    changed = search_space.settled(values, {space.path: choice})
    inside = space.path[0] == "config" and len(space.path) > 1
    key = space.path[1] if inside else space.path[0]
    value = changed["config"][key] if inside else changed[key]
    if inside:
        return rules.outcomes(key, value, replace(context, config=changed["config"]))
    fresh = replace(context, env=str(changed.get("env") or context.env))
    return top_level_keys.outcomes(key, value, fresh, _context(changed, context.closest)[1], changed)


def _settle(found: Translation) -> None:
    """What must agree once all keys are known, and what the file holds besides the experiment."""
    old = found.experiment
    for name in old.beside:
        why = "no experiment: only what others take from it by an anchor counts"
        found.entries.append(Entry(name, None, old.file, ignored(why)))
    for key in old.twice:
        found.entries.append(Entry(key, None, old.where(key), ignored("written twice: the last one counts")))
    measured = any(str(key).startswith("eval/") for key in found.config.get("stop_conditions") or {})
    if measured and not tree.get(found.config, "evaluation.evaluation_interval"):
        why = "a stop condition looks at evaluations, and there were none"
        _add(found, "stop", None, [became("evaluation.evaluation_interval", 1, why, changed=True)])
    if not tree.get(found.config, "algo.name") and found.fate != "refused":
        why = "no algorithm is named: add run: PPO, say"
        found.entries.append(Entry("run", None, old.where(""), refused(why)))
