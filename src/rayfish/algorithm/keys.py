"""Checks an experiment's keys and values against RLlib's signatures and our own sections; imports no RLlib.

Everything wrong is found in one go: unknown keys with what was probably meant, keys that nothing reads,
wrong types and words. What contradicts something else is in `contradictions`.
"""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rayfish.algorithm.contradictions import contradictions, note_on_batch
from rayfish.algorithm.signatures import default_at, default_of, entries, table
from rayfish.algorithm.unused_keys import (
    DEAD_KEYS,
    EVALUATION_SECTIONS,
    FOR_BOX_ACTIONS,
    NEEDS,
    NOT_IN_EVALUATION,
    is_dead,
    unread_by,
)
from rayfish.errors import MOST_SHOWN, Problem, did_you_mean
from rayfish.experiment import tree
from rayfish.experiment.files import SHIPPED
from rayfish.experiment.legacy_door import GONE_KEYS, OLD_KEYS, SECTION_ALIASES, is_old
from rayfish.experiment.sections import ALGORITHMS, CLOSEST, METHODS, SECTIONS, spelled
from rayfish.models import options

if TYPE_CHECKING:
    from rayfish.envs.build import EnvInfo
    from rayfish.experiment import Experiment

_KINDS: dict[str, tuple[Any, str]] = {
    "null": (type(None), "null"),
    "path": (str, "an import path"),
    "str": (str, "text"),
    "bool": (bool, "true or false"),
    "int": (int, "a whole number"),
    "float": (int | float, "a number"),
    "list": (list | tuple, "a list"),
    "dict": (dict, "keys and values"),
}
"""The words for types in `signatures` -> Python's type, and how messages call it."""

# Words RLlib accepts for a text key; its signatures do not list them.
CHOICES: dict[str, tuple[str, ...]] = {
    "rollouts.batch_mode": ("truncate_episodes", "complete_episodes"),
    "rollouts.gym_env_vectorize_mode": ("sync", "async", "vector_entry_point"),
    "training.grad_clip_by": ("value", "norm", "global_norm"),
    "training.td_error_loss_fn": ("huber", "mse"),
    "training.model_size": ("nano", "micro", "mini", "XXS", "XS", "S", "M", "L", "XL"),
    "evaluation.evaluation_duration_unit": ("episodes", "timesteps"),
    "multi_agent.count_steps_by": ("env_steps", "agent_steps"),
    "resources.placement_strategy": ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"),
}

_NO_SUGGESTION = "see `rayfish config keys`; values of your own go under simulation"
# Ray hands out parts of a processor, which RLlib's signatures deny.
_FRACTIONS = ("rollouts.num_cpus_per_env_runner", "resources.num_cpus_for_main_process")

ELSEWHERE: dict[str, str] = {
    **options.ELSEWHERE,
    "learning_rate": "training.lr",
    "batch_size": "training.train_batch_size_per_learner",
    "n_steps": "rollouts.rollout_fragment_length",
    "n_epochs": "training.num_epochs",
    "n_envs": "rollouts.num_envs_per_env_runner",
    "gae_lambda": "training.lambda_",
    "clip_range": "training.clip_param",
    "ent_coef": "training.entropy_coeff",
    "vf_coef": "training.vf_loss_coeff",
    "max_grad_norm": "training.grad_clip",
    "discount": "training.gamma",
    "save_freq": "checkpoint.checkpoint_frequency",
    "eval_freq": "evaluation.evaluation_interval",
    "n_eval_episodes": "evaluation.evaluation_duration",
    "update_epochs": "training.num_epochs",
    "num_minibatches": "training.minibatch_size",
    "num_steps": "rollouts.rollout_fragment_length",
    "num_envs": "rollouts.num_envs_per_env_runner",
    "clip_coef": "training.clip_param",
    "buffer_size": "training.replay_buffer_config.capacity",
    "learning_starts": "training.num_steps_sampled_before_learning_starts",
    "policy_lr": "training.actor_lr",
    "q_lr": "training.critic_lr",
    "target_update_interval": "training.target_network_update_freq",
    "exploration_fraction": "training.epsilon",
    "normalize_observations": "rollouts.observation_filter",
    "total_timesteps": "stop_conditions.timesteps_total",
}
"""What other libraries call a setting -> its key here."""

_EXAMPLES = {
    "stop_conditions.time_total_s": "3600, in seconds",
    "stop_conditions.episode_reward_mean": "475",
    "stop_conditions.training_iteration": "100",
    "stop_conditions.timesteps_total": "1000000",
    "stop_conditions.episodes_total": "1000",
}


def all_problems(experiment: Experiment) -> list[Problem]:
    """Everything wrong with the experiment's keys and values, in the order of its sections."""
    found = key_problems(experiment)
    if not any(problem.key == "algo.name" for problem in found):
        wrong = {problem.key for problem in found}
        algo = str(experiment.algo.name)
        found.extend(p for p in contradictions(experiment, algo) if p.key not in wrong)
    return found


def remarks(experiment: Experiment, info: EnvInfo | None = None) -> list[str]:
    """What is not wrong but worth a line: a batch that is no multiple, keys without effect for now."""
    batch = note_on_batch(experiment)
    return [*([batch] if batch else []), *_without_effect(experiment, info)]


def without_unread(saved: Experiment) -> Experiment:
    """A saved experiment less the keys that have no effect; an earlier version may have accepted them."""
    from rayfish.models.check import section_problems

    section, algo = saved.training.model or {}, str(saved.algo.name)
    found = [*key_problems(saved), *section_problems(section, algo, saved.paths)]
    keys = [problem.key for problem in found if problem.what.startswith("has no effect")]
    if not keys:
        return saved
    config = copy.deepcopy(saved.config)
    for key in keys:
        tree.drop(config, key)
    origins = {key: where for key, where in saved.origins.items() if key not in keys}
    notes = [f"{key}={saved.get(key)} is left out: it has no effect, and had none before" for key in keys]
    return replace(saved, config=config, origins=origins, notes=(*saved.notes, *notes))


def _without_effect(experiment: Experiment, info: EnvInfo | None) -> Iterator[str]:
    """Keys that the user wrote and that another key, or the environment, leaves without effect."""
    algo = str(experiment.algo.name)
    set_keys = [key for key, where in experiment.origins.items() if where and not where.startswith(SHIPPED)]
    written = [_whole_key(key) for key in set_keys if experiment.get(key) not in (None, {}, [], "")]
    unread = _unread_model_keys(experiment, info)
    for dotted in dict.fromkeys(written):
        section, value = dotted.partition(".")[0], experiment.get(dotted)
        if dotted in unread:
            yield f"{dotted} has no effect{unread[dotted]}"
        elif section == "cluster":
            yield f"{dotted} has no effect: a run goes to a cluster by `--on ADDRESS`"
        elif section == "multi_agent" and info is not None and info.kind != "multi":
            yield f"{dotted} has no effect: the environment has one agent"
        elif value == default_at(dotted, algo):
            continue
        elif dotted in FOR_BOX_ACTIONS and info is not None and not info.has_box_actions:
            yield f"{dotted} has no effect: no action is a Box"
        else:
            needed = next((NEEDS[p] for p in NEEDS if fnmatch.fnmatchcase(dotted, p)), "")
            home = ".".join(dotted.split(".")[:2])
            if needed and not is_dead(home, algo) and not _holds(experiment, dotted, needed, algo):
                is_set = "" if "=" in needed or ">" in needed else " is set"
                yield f"{dotted} has no effect unless {needed.replace('|', ' or ')}{is_set}"


def _whole_key(dotted: str) -> str:
    """The key whose dictionary a value is in: custom_model_config of custom_model_config.size."""
    parts = dotted.split(".")
    if dotted.startswith("training.model."):
        return ".".join(parts[:3])
    home = ".".join(parts[:2])
    return home if home in NEEDS else dotted


def _unread_model_keys(experiment: Experiment, info: EnvInfo | None) -> dict[str, str]:
    """Keys of training.model that are set but not read, each with the condition or the reason."""
    from rayfish.models.check import unread_for_spaces

    section = experiment.training.model or {}
    found = {} if info is None else {key: f": {why}" for key, why in unread_for_spaces(section, info).items()}
    found |= {key: f" unless training.model.{needed} is set" for key, needed in options.unused(section)}
    return {f"training.model.{key}": why for key, why in found.items()}


def _holds(experiment: Experiment, dotted: str, needed: str, algo: str) -> bool:
    """Whether what a key needs is set; what its own switch is needs nothing."""
    if "|" in needed:
        return any(_holds(experiment, dotted, one, algo) for one in needed.split("|"))
    key, _, least = needed.partition(">")
    key, _, wanted = key.partition("=")
    value = experiment.get(key)
    value = default_at(key, algo) if value is None else value
    if wanted:
        return str(value).lower() == wanted.lower()
    return dotted == key or (value > int(least) if least and value else bool(value))


def key_problems(experiment: Experiment) -> list[Problem]:
    """What is wrong with single keys and their values, apart from the other keys."""
    found = list(_algorithm(experiment))
    algo = experiment.algo.name if not found else None
    left = iter(range(MOST_SHOWN))  # suggestions: each compares a word with all keys there are
    for name, values in experiment.config.items():
        if not name.startswith("_"):
            found.extend(_section(experiment, name, values, algo, left))
    found.extend(_stop_conditions(experiment))
    found.extend(_evaluation_config(experiment, algo, left))
    found.extend(
        Problem(dotted, "must be set: the file says ???", f"add {dotted}=VALUE", experiment.origin(dotted))
        for dotted, value in tree.leaves(experiment.config)
        if value == "???"
    )
    return found


def _algorithm(experiment: Experiment) -> Iterator[Problem]:
    name = experiment.algo.name
    if isinstance(name, str) and name in ALGORITHMS:
        return
    where = experiment.origin("algo.name")
    old = spelled(name, CLOSEST)
    if old:
        new = CLOSEST[old]
        hint = f"the closest today is {new} ({ALGORITHMS[new]}): algo.name={new}"
        yield Problem("algo.name", f"{old} is no longer in RLlib", hint, where)
        return
    close = did_you_mean(str(name).upper(), ALGORITHMS)
    hint = (f"did you mean {close[0]}? " if close else "") + f"there are: {', '.join(ALGORITHMS)}"
    yield Problem("algo.name", f"there is no algorithm {name!r}", hint, where)


def _section(
    experiment: Experiment, name: str, values: Any, algo: str | None, left: Iterator[int]
) -> Iterator[Problem]:
    """Unknown, dead and ill-typed keys of one section; `left` counts down suggestions for unknown words."""
    section = SECTIONS.get(name)
    where = _written(experiment, name)
    if section is None:
        known = [*SECTIONS, *SECTION_ALIASES]
        hint = _NO_SUGGESTION if next(left, None) is None else _suggest(name, known, home_of(name))
        yield Problem(name, "there is no such section", hint, where)
        return
    if not isinstance(values, dict):
        what = f"is {values!r}, where keys and values belong"
        yield Problem(name, what, f"write {name}: {{key: value}}", where)
        return
    rllib = entries(name, algo)
    for key, value in values.items():
        dotted = f"{name}.{key}"
        if dotted == "algo.name" or (name == "stop_conditions" and _is_comparison(value)):
            continue  # judged first, with the algorithms that are gone; and with the metrics
        if key in section.own:
            own = section.own[key]
            default, type_, choices = own.default, own.type, own.choices
        elif key in rllib:
            default, choices = default_of(name, key, algo or "PPO"), CHOICES.get(dotted, ())
            type_ = "float | null" if dotted in _FRACTIONS else rllib[key]["type"]
        else:
            if not section.is_open:
                yield _unknown(experiment, name, str(key), algo, left)
            continue
        if is_dead(dotted, algo):
            yield from _dead(experiment, dotted, value, default, algo)
        else:
            yield from _value(experiment, dotted, value, type_, choices)


def _dead(
    experiment: Experiment, dotted: str, value: Any, default: Any, algo: str | None
) -> Iterator[Problem]:
    """A key that nothing reads; harmless at its default, or null."""
    if value is None or value == default:
        return
    if dotted in DEAD_KEYS:
        what, hint = f"nothing in RLlib {table()['ray']} reads it", DEAD_KEYS[dotted]
    else:
        what, hint = f"{algo} does not read it", unread_by(dotted)[1]
    where = _written(experiment, dotted)
    if "/experiment/" in where and algo is not None:
        hint = _of_preset(dotted, algo, next(name for name in ALGORITHMS if not is_dead(dotted, name)))
    yield Problem(dotted, f"has no effect: {what}", hint, where)


def _value(
    experiment: Experiment, dotted: str, value: Any, type_: str, choices: tuple[str, ...]
) -> Iterator[Problem]:
    if value == "???":
        return
    where = _written(experiment, dotted)
    kinds = type_.split(" | ")
    if "any" not in kinds and not any(_is(value, kind) for kind in kinds):
        takes = " or ".join(_KINDS[kind][1] for kind in kinds)
        yield Problem(dotted, f"is {value!r}, but takes {takes}", _type_hint(dotted, value, kinds), where)
    elif choices and isinstance(value, str) and value not in choices:
        close = did_you_mean(value, choices)
        hint = f"did you mean {close[0]}?" if close else f"for example {dotted}={choices[0]}"
        yield Problem(dotted, f"is {value!r}, which is not one of {', '.join(choices)}", hint, where)


def _is(value: Any, kind: str) -> bool:
    """Whether a value read from a file is of a kind; a whole number is also a number, true is not."""
    return isinstance(value, _KINDS[kind][0]) and (kind == "bool" or not isinstance(value, bool))


def _type_hint(dotted: str, value: Any, kinds: list[str]) -> str:
    if isinstance(value, float) and value.is_integer() and "int" in kinds:
        return f"write {dotted}={int(value)}"
    if isinstance(value, str) and ({"int", "float"} & set(kinds)):
        try:
            return f"write the number without quotes: {dotted}={float(value):g}"
        except ValueError:
            pass
    if isinstance(value, str) and "list" in kinds and not {"int", "float"} & set(kinds):
        return f"write a list: {dotted}=[{value}]"
    if dotted in _EXAMPLES:
        return f"for example {dotted}={_EXAMPLES[dotted]}"
    examples = {"int": "4", "float": "0.001", "bool": "true", "list": "[64, 64]", "dict": "{key: value}"}
    example = next((examples[kind] for kind in kinds if kind in examples), None)
    if example:
        return f"for example {dotted}={example}"
    return f"see `rayfish config keys {dotted.partition('.')[0]}`"


def _unknown(
    experiment: Experiment, section: str, key: str, algo: str | None, left: Iterator[int]
) -> Problem:
    """An unknown key, with what was probably meant: a typo, another section or algorithm, an old name."""
    dotted = f"{section}.{key}"
    where = _written(experiment, dotted)
    if next(left, None) is None:
        return Problem(dotted, "there is no such key", _NO_SUGGESTION, where)
    if key in GONE_KEYS and not home_of(key):
        return Problem(dotted, "is gone from RLlib", GONE_KEYS[key], where)
    alive = {*SECTIONS[section].own, *entries(section, algo)}
    known = sorted(k for k in alive if _is_offered(f"{section}.{k}", algo))
    if section == "training" and algo is not None:
        owners = [
            name for name in ALGORITHMS if key in entries("training", name) and not is_dead(dotted, name)
        ]
        if owners:
            *most, last = owners
            who = f"{', '.join(most)} and {last} have" if most else f"{last} has"
            what = f"{algo} has no such setting; {who}"
            return Problem(dotted, what, _other_algorithm(dotted, where, algo, owners[0], known), where)
    return Problem(dotted, "there is no such key", _suggest(key, known, home_of(key), f"{section}."), where)


def _is_offered(dotted: str, algo: str | None = None) -> bool:
    """Whether a key may be suggested: one that has an effect, by today's name."""
    return not is_dead(dotted, algo) and not is_old(dotted)


def _other_algorithm(dotted: str, where: str, algo: str, owner: str, known: list[str]) -> str:
    """What to do with a key of another algorithm; a preset made for that one is the usual reason."""
    if "/experiment/" in where:
        return _of_preset(dotted, algo, owner)
    close = did_you_mean(dotted.rpartition(".")[2], known)
    if close:
        return f"did you mean training.{close[0]}? else remove it"
    return f"remove it, or set algo.name={owner}"


def _of_preset(dotted: str, algo: str, owner: str) -> str:
    return f"the preset is tuned for {owner}: choose one for {algo}, or remove the key with ~{dotted}"


def home_of(key: str) -> str:
    """The dotted key that a bare key belongs to, where some section has it."""
    if key in OLD_KEYS:
        return OLD_KEYS[key]
    for name, section in SECTIONS.items():
        known = key in section.own or (name in METHODS and key in entries(name))
        if known and _is_offered(f"{name}.{key}"):
            return f"{name}.{key}"
    return ""


def _suggest(word: str, known: Iterable[str], home: str, prefix: str = "") -> str:
    """The next step for an unknown word: where it belongs, what is spelled like it here, or elsewhere."""
    if home:
        return f"it belongs to another section: {home}"
    known = list(known)
    if word in ELSEWHERE:
        meant = [ELSEWHERE[word]]
    elif close := did_you_mean(word, known) or [name for name in known if name.endswith(f"_{word}")]:
        meant = [prefix + name for name in close]
    elif other := did_you_mean(word, ELSEWHERE, most=1):
        meant = [ELSEWHERE[other[0]]]
    else:
        meant = [
            f"{section}.{key}"
            for section in METHODS
            for key in did_you_mean(word, [*entries(section), *SECTIONS[section].own], most=1)
            if _is_offered(f"{section}.{key}")
        ]
    return f"did you mean {' or '.join(meant[:3])}?" if meant else _NO_SUGGESTION


def _stop_conditions(experiment: Experiment) -> Iterator[Problem]:
    """Limits are numbers; whether a metric of that name exists is judged where metrics are named."""
    for key, value in experiment.section("stop_conditions").items():
        if key not in SECTIONS["stop_conditions"].own and not _is_comparison(value):
            yield from _value(experiment, f"stop_conditions.{key}", value, "float | null", ())


def _is_comparison(limit: Any) -> bool:
    """Whether a stop condition is written with a side ("<= 0.1", {below: 0.1}); `metrics.stop` reads it."""
    return isinstance(limit, dict) or (isinstance(limit, str) and any(sign in limit for sign in "<>="))


def _evaluation_config(experiment: Experiment, algo: str | None, left: Iterator[int]) -> Iterator[Problem]:
    """RLlib sets any key of evaluation_config in silence; only settings it has make sense."""
    inner = experiment.evaluation.evaluation_config
    if not isinstance(inner, dict):
        return
    known = {
        key: (section, entry["type"])
        for section in METHODS
        for key, entry in entries(section, algo if section == "training" else None).items()
    }
    for key, value in inner.items():
        dotted = f"evaluation.evaluation_config.{key}"
        where = experiment.origin(dotted)
        if key in ("env", "horizon"):
            continue
        if key not in known:
            hint = GONE_KEYS.get(key, _NO_SUGGESTION)
            if key not in GONE_KEYS and next(left, None) is not None:
                hint = _suggest(key, known, "")
            yield Problem(dotted, "there is no such key", hint, where)
        elif key in NOT_IN_EVALUATION:
            yield Problem(
                dotted, "has no effect: an evaluation does not read it", NOT_IN_EVALUATION[key], where
            )
        elif known[key][0] not in EVALUATION_SECTIONS and key not in ("epsilon", "seed"):
            what = f"has no effect: {known[key][0]}.{key} is not for evaluations"
            yield Problem(dotted, what, f"remove it (~{dotted})", where)
        elif not isinstance(value, dict):
            yield from _value(experiment, dotted, value, known[key][1], ())


def _written(experiment: Experiment, dotted: str) -> str:
    """Where a key was written, or the first value below it."""
    below = (where for key, where in experiment.origins.items() if key.startswith(f"{dotted}."))
    return experiment.origin(dotted) or next(below, "")
