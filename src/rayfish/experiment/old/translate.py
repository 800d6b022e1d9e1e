"""One old experiment in today's words, with the fate of each of its keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rayfish.errors import Problem, did_you_mean
from rayfish.experiment import tree
from rayfish.experiment.old import nested, results, rules, search
from rayfish.experiment.old.form import ALGORITHM_KEYS, OldExperiment
from rayfish.experiment.old.outcome import FATES, Context, Fate, Outcome, became, ignored, refused
from rayfish.experiment.old.tables import CLOSEST, EXPERIMENT_IGNORED, GONE_WITH_IT, THEN
from rayfish.experiment.sections import ALGORITHMS, OFFLINE

_TUNE_LATER = "a search over it is `rayfish tune`'s; a single run takes the first value"


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
        """What a person must decide, in the form every bad input is told in."""
        return [Problem(entry.old, *_parted(entry), entry.where) for entry in self.of("refused")]

    @property
    def tunables(self) -> list[str]:
        """Today's keys that have a search space."""
        spaces = tree.leaves(self.config.get("tunables") or {})
        return [key.removesuffix(".type") for key, _ in spaces if key.endswith(".type")]


def translate(old: OldExperiment, *, closest: bool = False) -> Translation:
    """Translate every key of an old experiment.

    :param closest: take the closest algorithm (or setting) there is where RLlib has dropped one
    """
    found = Translation(old)
    found.config["runtime"] = {"name": old.name}
    searches = list(search.find(old.values))
    first = {space.path: space.choices[0] if space.kind else None for space in searches}
    values = search.settled(old.values, first)
    context, run = _context(values, closest)
    for key, value in values.items():
        if key != "config":
            _add(found, key, value, _experiment_key(key, value, context, run, values))
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
        if found.experiment.values and tree.get(found.config, dotted, tree.MISSING) is tree.MISSING:
            outcome = became(dotted, value, f"{context.algo}'s default of the time")
            found.entries.append(Entry("(left to RLlib)", None, found.experiment.where(""), outcome))
            _put(found, dotted, value, f"{found.experiment.file} (default of the time)")


def _context(values: Mapping[str, Any], closest: bool) -> tuple[Context, str]:
    """What the rules look at, and the algorithm's name in the file."""
    named = next((values[key] for key in ALGORITHM_KEYS if values.get(key)), "")
    given = values.get("config")
    config: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    run = str(named).rpartition(".")[2].rpartition("/")[2].removesuffix("Trainer").removesuffix("Config")
    algo = _known(run, ALGORITHMS) or CLOSEST.get(_known(run, CLOSEST) or "", "PPO")
    env = values.get("env") or config.get("env") or ""
    return Context(algo, str(env), config, closest), run


def _known(name: str, names: Mapping[str, str]) -> str | None:
    return next((known for known in names if known.lower() == name.lower()), None)


def _algorithm(run: str, context: Context) -> Outcome:
    known = _known(run, ALGORITHMS)
    if known is not None:
        return became("algo.name", known)
    gone = _known(run, CLOSEST)
    if gone is None:
        close = did_you_mean(run, [*ALGORITHMS, *CLOSEST])
        meant = f"did you mean {close[0]}?" if close else f"there are: {', '.join(ALGORITHMS)}"
        return refused(f"there is no algorithm {run!r}: {meant}")
    today = CLOSEST[gone]
    if context.closest:
        return became("algo.name", today, f"--closest: {gone} is no longer in RLlib", changed=True)
    return refused(
        f"{gone} is no longer in RLlib: the closest today is {today} ({ALGORITHMS[today]}); "
        f"add --closest to use it"
    )


def _experiment_key(
    key: str, value: Any, context: Context, run: str, values: Mapping[str, Any]
) -> list[Outcome]:
    """What becomes of a key beside `config`."""
    try:
        return _beside_config(key, value, context, run, values)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        return [refused(f"{key} cannot be {value!r}: write it as Ray's manual of that time has it")]


def _beside_config(
    key: str, value: Any, context: Context, run: str, values: Mapping[str, Any]
) -> list[Outcome]:
    if key in ALGORITHM_KEYS:
        return [_algorithm(run, context)]
    if key == "env":
        return rules.outcomes("env", value, context)
    if key == "stop":
        return _stop(value, context)
    if key == "pass_criteria":
        why = "it told a test when to pass; `stop` ends the run"
        return [ignored(why)] if values.get("stop") else _stop(value, context)
    if key in ("checkpoint_config", "failure_config") and isinstance(value, Mapping | None):
        value = value or {}
        inner = [
            (k, o)
            for k, v in value.items()
            for o in _checkpoint(k, v) or [nested.unknown(k, key, _CHECKPOINT)]
        ]
        return [replace(outcome, inner=k) for k, outcome in inner] or [ignored("empty")]
    if key in ("local_dir", "storage_path"):
        return [became("runtime.local_dir", str(value)) if value else ignored("none given")]
    if key == "name":
        return [became("runtime.name", str(value)) if value else ignored("none given")]
    if key in ("num_samples", "repeat"):
        more = int(value or 1) > 1
        return [
            became("search.num_samples", value, "`rayfish tune` runs them") if more else ignored("one run")
        ]
    if key == "time_budget_s":
        return [became("stop_conditions.time_total_s", value) if value else ignored("none given")]
    if key == "restore":
        why = "a checkpoint of old Ray cannot be opened today: train anew, or name a Rayfish run"
        return [refused(why) if value else ignored("none given")]
    if key in ("scheduler", "search_alg", "metric", "mode"):
        return [became(f"search.{key}", value, "`rayfish tune` reads it") if value else ignored("none given")]
    if key in EXPERIMENT_IGNORED:
        return [ignored(EXPERIMENT_IGNORED[key])]
    if key in ("framework", "frameworks"):
        named = value if isinstance(value, list) else [value]
        return rules.outcomes("framework", "torch" if "torch" in named else named[0], context)
    checkpoint = _checkpoint(key, value)
    if checkpoint:
        return checkpoint
    home = "config" if key in rules.known_keys() else ""
    hint = f"it belongs into {home}" if home else "remove it"
    return [refused(f"an experiment has no key {key!r}: {hint}")]


_CHECKPOINT = {
    "checkpoint_freq": "checkpoint_frequency",
    "checkpoint_frequency": "checkpoint_frequency",
    "checkpoint_at_end": "checkpoint_at_end",
    "keep_checkpoints_num": "num_to_keep",
    "num_to_keep": "num_to_keep",
    "checkpoint_score_order": "checkpoint_score_order",
}


def _checkpoint(key: str, value: Any) -> list[Outcome]:
    """When checkpoints are written and which are kept."""
    if _CHECKPOINT.get(key) == "num_to_keep" and value == 0:
        return [ignored("all are kept")]
    if key in _CHECKPOINT:
        return [
            ignored("none given")
            if value is None
            else became(f"checkpoint.{_CHECKPOINT[key]}", rules.whole(value, _CHECKPOINT[key]))
        ]
    if key in ("checkpoint_score_attr", "checkpoint_score_attribute"):
        return [_score(value)]
    known = ("max_failures", "fail_fast", "checkpoint_keep_all_ranks")
    return [ignored("without meaning for a run")] if key in known or key.startswith("_checkpoint") else []


def _score(value: Any) -> Outcome:
    if not value:
        return ignored("none given")
    name = str(value).removeprefix("min-")
    metric = results.todays_metric(name)
    if metric is None:
        return refused(f"no metric is called {name!r}: write rollout/return_mean, say")
    values = {"checkpoint.checkpoint_score_attribute": metric}
    if str(value).startswith("min-"):
        values["checkpoint.checkpoint_score_order"] = "min"
    return Outcome("translated", values)


def _stop(value: Any, context: Context) -> list[Outcome]:
    if not isinstance(value, Mapping):
        empty = ignored("none given")
        return [refused("stop holds keys and values: stop: {training_iteration: 100}") if value else empty]
    return [_stop_condition(key, limit, context) for key, limit in _flat(value)] or [ignored("empty")]


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested conditions (`evaluation: {episode_reward_mean: 150}`) as one name each."""
    for key, inner in value.items():
        name = f"{prefix}{key}"
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{name}/")
        else:
            yield name, inner


def _stop_condition(key: str, limit: Any, context: Context) -> Outcome:
    metric = results.todays_metric(key)
    if metric is None and key.startswith(_OURS):
        metric = key
    if metric is None:
        why = results.why_gone(key)
        because = why or "write episode_reward_mean, timesteps_total, ..."
        return refused(f"no result is called {key!r} any more: {because}", key)
    if metric == "run/env_steps" and context.algo in OFFLINE:
        why = f"{context.algo} takes no steps of its own; the steps it learnt from were counted"
        return became(
            "stop_conditions.run/trained_steps", rules.whole(limit, "timesteps_total"), why, inner=key
        )
    if results.is_counted_otherwise(key):
        why = f"{metric} counts the environment's steps; {key} counted agents' or trained ones"
        return became(f"stop_conditions.{metric}", limit, why, changed=True, inner=key)
    name = _PLAIN.get(metric, metric)
    return became(f"stop_conditions.{name}", rules.whole(limit, name), inner=key)


_OURS = ("run/", "rollout/", "eval/", "time/", "learn/", "env/", "system/")
_PLAIN = {
    "run/iteration": "training_iteration",
    "run/env_steps": "timesteps_total",
    "run/episodes": "episodes_total",
    "time/total_s": "time_total_s",
    "rollout/return_mean": "episode_reward_mean",
}
"""Metrics for which the main config has a line of its own."""


def _config_key(key: str, value: Any, context: Context, run: str) -> list[Outcome]:
    found = rules.outcomes(key, value, context)
    if _known(run, ALGORITHMS) is not None:
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
    """What stands at an inner key; the whole where there is no such place."""
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


_MAY_MEET = (
    "training.model.",
    "training.optimizer.",
    "training.replay_buffer_config.type",
    "environment.",
    "evaluation.evaluation_interval",
    "multi_agent.policies",
    "stop_conditions.",
    "tunables.",
    "runtime.",
)
"""Where several old keys lead to one of today's, and that is no contradiction."""


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


def _tunable(found: Translation, space: search.Search, values: Any, context: Context) -> None:
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
        tried = [variant.get(keys[0]) for variant in variants]
        options = tried if space.kind in ("grid", "choice") else space.values
        outcome = became(f"tunables.{keys[0]}", {"type": space.kind, "values": options}, _TUNE_LATER)
    elif not keys:
        outcome = ignored("its values mean the same today")
    else:
        why = f"takes {space.choices[0]!r}; the others change {len(keys)} settings together: a file for each"
        outcome = Outcome("translated", {}, why, changed=True)
    _add(found, old, space.values, [outcome])


def _variant(space: search.Search, choice: Any, values: Any, context: Context) -> list[Outcome]:
    """What becomes of the one old key that holds the search space, with one choice made."""
    changed = search.settled(values, {space.path: choice})
    inside = space.path[0] == "config" and len(space.path) > 1
    key = space.path[1] if inside else space.path[0]
    value = changed["config"][key] if inside else changed[key]
    if inside:
        return rules.outcomes(key, value, replace(context, config=changed["config"]))
    fresh = replace(context, env=str(changed.get("env") or context.env))
    return _experiment_key(key, value, fresh, _context(changed, context.closest)[1], changed)


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
        found.entries.append(
            Entry(
                "run", None, found.experiment.where(""), refused("no algorithm is named: add run: PPO, say")
            )
        )


def _parted(entry: Entry) -> tuple[str, str]:
    """What is wrong, and the next step, of a refusal."""
    what, _, step = entry.outcome.why.partition(": ")
    return (what, step) if step else (entry.outcome.why, "")
