"""Everything that can be known to be wrong before any compute, reported at once.

Each stage judges what it knows (keys, environment, model, spaces); this file adds what needs
several of them together, such as a warm start; what the machine has is judged by `run.resources`.
Imports neither torch nor RLlib, unless a custom model is named: that is built once, to see that it fits.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rayfish.algorithm import signatures
from rayfish.algorithm.batched.eligibility import BATCHED, NATIVE, fit, saved
from rayfish.algorithm.callback_hooks import HOOKS, require_adaptable
from rayfish.algorithm.unused_keys import is_dead
from rayfish.envs import build as envs
from rayfish.envs import state
from rayfish.envs.env_kind import EnvInfo, alike, in_short
from rayfish.errors import CodeError, ConfigError, MissingExtra, Problem, RayfishError, did_you_mean
from rayfish.experiment import Experiment
from rayfish.experiment.files import SHIPPED
from rayfish.experiment.imports import require_place
from rayfish.experiment.mapping import PolicyMapping, policies_of
from rayfish.experiment.sections import OFFLINE, PER_POLICY
from rayfish.experiment.source import methods
from rayfish.metrics import names
from rayfish.metrics.stop import StopConditions
from rayfish.models import check as models
from rayfish.models.options import resolve
from rayfish.run import manifest, resources
from rayfish.run.directory import DEFAULT_ROOT, find_checkpoint
from rayfish.run.engine import RayOptions
from rayfish.run.policy_files import read_policies

REPLAYING = ("DQN", "SAC", "TQC")
_LARGE_BATCH = 1000

_SETS_ARE_SETTLED = os.environ.get("PYTHONHASHSEED", "random").isdigit()  # as this process began

_MAKE_ENV = {
    *("environment", "environment.env", "environment.env_config", "environment.imports"),
    *("evaluation", "evaluation.evaluation_config", "evaluation.evaluation_config.env_config"),
}
"""Keys of the wrong type with which no environment can be made."""


def check(experiment: Experiment, options: RayOptions | None = None) -> list[Problem]:
    """All problems of an experiment on this machine; empty when it can run."""
    return inspect(experiment, options)[0]


def inspect(
    experiment: Experiment, options: RayOptions | None = None
) -> tuple[list[Problem], EnvInfo | None]:
    """All problems, and what the environment is when it could be made."""
    problems = signatures.problems(experiment)
    named = {problem.key for problem in problems}
    limits = StopConditions(experiment.section("stop_conditions")).problems
    problems += [problem for problem in limits if problem.key not in named]
    problems += resources.problems(experiment, options or RayOptions())
    malformed = list(_malformed(experiment))
    problems += malformed
    info: EnvInfo | None = None
    if not malformed and not named & _MAKE_ENV:  # else it could not even be asked for
        env_problems, info = envs.problems(experiment)
        problems += [problem for problem in env_problems if problem.key not in named]
    if info is not None:
        problems += _space_problems(experiment, info)
        problems += _order_problems(experiment, info)
    else:
        model, name = experiment.training.model, str(experiment.algo.name)
        problems += models.section_problems(model or {}, name, experiment.paths)
    problems += [*_offline_problems(experiment), *_best_problems(experiment), *_code_problems(experiment)]
    problems += _start_problems(experiment, info)
    problems += [*_extra_problems(experiment), *_place_problems(experiment)]
    if info is not None and not problems:
        problems += _built_problems(experiment, info)
    if info is not None and not problems:
        problems += _runner_problems(experiment, info)
        info = saved(experiment, info)
    return [_placed(problem, experiment) for problem in problems], info


def require(experiment: Experiment, options: RayOptions | None = None) -> EnvInfo:
    """The environment's description, or `ConfigError` with every problem."""
    problems, info = inspect(experiment, options)
    if problems or info is None:
        raise ConfigError(problems)
    return info


def _malformed(experiment: Experiment) -> Iterator[Problem]:
    """What the key check cannot see: entries of a list that are no names of modules."""
    key = "environment.imports"
    listed = experiment.get(key)
    for entry in listed if isinstance(listed, list) else ():
        if not isinstance(entry, str):
            what = f"holds {entry!r}, but takes names of modules"
            yield Problem(key, what, f"for example {key}=[my_envs]")


def _placed(problem: Problem, experiment: Experiment) -> Problem:
    """A problem with the place it was written, unless that is a shipped default, which no user has to fix."""
    key = problem.key
    below = (where for name, where in experiment.origins.items() if name.startswith(f"{key}."))
    where = problem.where or experiment.origins.get(key) or next(below, "")
    shipped = where.startswith(SHIPPED) and "/experiment/" not in where
    return replace(problem, where="" if shipped else where)


def _space_problems(experiment: Experiment, info: EnvInfo) -> Iterator[Problem]:
    """Spaces the algorithm or the model cannot take, each reported once though agents share it."""
    found: dict[tuple[str, str], Problem] = {}
    model = experiment.training.model or {}
    name = str(experiment.algo.name)
    for agent, space in info.observation_spaces.items():
        for problem in models.problems(model, space, info.action_spaces[agent], name, experiment.paths):
            found.setdefault((problem.key, problem.what), problem)
    yield from found.values()
    if info.kind == "multi":
        yield from _mapping_problems(experiment, info)
        yield from _policy_problems(experiment)


def _built_problems(experiment: Experiment, info: EnvInfo) -> Iterator[Problem]:
    """Custom models that cannot be built on the environment's spaces; only these bring in torch here."""
    algo, common = str(experiment.algo.name), experiment.training.model or {}
    policies = experiment.multi_agent.policies
    sections: dict[str, tuple[Any, dict[str, Any]]] = {"training.model": (info.agents[0], common)}
    if isinstance(policies, dict) and info.kind == "multi":
        sections = {
            f"multi_agent.policies.{policy}.model": (
                _an_agent_of(policy, experiment, info),
                {**common, **((settings or {}).get("model") or {})},
            )
            for policy, settings in policies.items()
        }
    for key, (agent, section) in sections.items():
        if not section.get("custom_model") or agent not in info.observation_spaces:
            continue
        from rayfish.models.build import require_buildable

        seen, done = info.observation_spaces[agent], info.action_spaces[agent]
        try:
            require_buildable(algo, seen, done, section, experiment.paths)
        except RayfishError as error:
            yield Problem(f"{key}.custom_model", error.what, error.hint)


def _an_agent_of(policy: str, experiment: Experiment, info: EnvInfo) -> Any:
    """An agent that uses a policy and so has its spaces (any where all are alike); "" if it is unknown."""
    spaces = {(str(info.observation_spaces[a]), str(info.action_spaces[a])) for a in info.agents}
    if len(spaces) == 1:
        return info.agents[0]
    if experiment.get("multi_agent.policy_mapping_fn"):
        return policy if policy in info.agents else ""  # the user's code is not run by a check
    policy_of = PolicyMapping.of(experiment)
    return next((agent for agent in info.agents if policy_of(agent) == policy), "")


def remarks(experiment: Experiment, info: EnvInfo | None = None) -> list[str]:
    """What works, but is hardly meant, or will not work for long.

    :param info: what the check found of the environment, where it could be made
    """
    replay = resources.replay_remark(experiment, info) if info is not None else ""
    return list(filter(None, [_batch_remark(experiment), replay]))


def _batch_remark(experiment: Experiment) -> str:
    key, algo = "training.train_batch_size_per_learner", str(experiment.algo.name)
    batch = experiment.get(key)
    usual = signatures.default_of("training", "train_batch_size_per_learner", algo)
    if algo not in REPLAYING or not isinstance(batch, int) or not isinstance(usual, int):
        return ""
    if batch < max(_LARGE_BATCH, 4 * usual):
        return ""
    return (
        f"{key}={batch}: with {algo} every update learns from that many replayed steps, which is slow; "
        f"{usual} is usual (PPO collects such a batch once per iteration)"
    )


def _policy_problems(experiment: Experiment) -> Iterator[Problem]:
    """Settings of single policies: few have an effect; a model is checked like the common one."""
    policies, name = experiment.multi_agent.policies, str(experiment.algo.name)
    known = signatures.entries("training", name)
    for policy, settings in policies.items() if isinstance(policies, dict) else ():
        key = f"multi_agent.policies.{policy}"
        for word in settings or {}:
            if word not in PER_POLICY:
                hint = f"policies may differ in {', '.join(PER_POLICY)}; other settings go under training"
                yield Problem(f"{key}.{word}", "there is no such key", hint)
            elif word != "model" and (word not in known or is_dead(f"training.{word}", name)):
                yield Problem(f"{key}.{word}", f"{name} has no such setting", "remove it")
        for found in models.section_problems((settings or {}).get("model") or {}, name, experiment.paths):
            yield replace(found, key=found.key.replace("training.model", f"{key}.model"))


def _mapping_problems(experiment: Experiment, info: EnvInfo) -> Iterator[Problem]:
    """Lines of the mapping that lead nowhere, policies without agents, and agents that cannot share one."""
    if experiment.get("multi_agent.policy_mapping_fn"):
        return
    named, policy_of = policies_of(experiment), PolicyMapping.of(experiment)
    agents_in_words = ", ".join(map(str, info.agents))
    astray = set()
    for glob, policy in (experiment.multi_agent.mapping or {}).items():
        if named and policy not in named:
            what = f"{glob!r} is mapped to {policy!r}, which is not in multi_agent.policies"
            hint = f"add {policy!r} to multi_agent.policies, or map to {' or '.join(map(str, named))}"
            yield Problem("multi_agent.mapping", what, hint)
        if not any(str(agent) == str(glob) or fnmatchcase(str(agent), str(glob)) for agent in info.agents):
            astray.add(policy)
            what = f"{glob!r} fits no agent; the agents are {agents_in_words}"
            meant = did_you_mean(str(glob), map(str, info.agents))
            hint = f"did you mean {meant[0]}?" if meant else "name an agent, or a pattern such as red_*"
            yield Problem(f"multi_agent.mapping.{glob}", what, hint)
    users: dict[str, list[Any]] = {}
    for agent in info.agents:
        users.setdefault(policy_of(agent), []).append(agent)
    for policy in named:
        if policy not in users and policy not in astray:
            hint = f"map an agent to it; the agents are {agents_in_words}"
            yield Problem("multi_agent.policies", f"no agent uses the policy {policy!r}", hint)
    for policy, agents in users.items():
        spaces = {(str(info.observation_spaces[a]), str(info.action_spaces[a])) for a in agents}
        if len(spaces) > 1:
            example = ", ".join(f"{agent}: {agent}" for agent in agents[:2])
            members = ", ".join(map(str, agents))
            what = f"agents {members} share policy {policy!r}, but their spaces differ"
            hint = f"give each its own policy, for example multi_agent.mapping={{{example}}}"
            yield Problem("multi_agent.mapping", what, hint)


def _code_problems(experiment: Experiment) -> Iterator[Problem]:
    """Callbacks and the mapping function that are not there, or are no callbacks."""
    named = {f"callbacks.{key}": value for key, value in experiment.section("callbacks").items()}
    named["multi_agent.policy_mapping_fn"] = experiment.get("multi_agent.policy_mapping_fn")
    for key, value in named.items():
        for path in value if isinstance(value, list) else [value]:
            try:
                if isinstance(path, str):
                    require_place(path, experiment.paths)
                    if key == "callbacks.callbacks_class":
                        _require_callback(path, experiment)
            except CodeError as error:
                yield Problem(key, error.what, error.hint, experiment.origin(key))


def _require_callback(path: str, experiment: Experiment) -> None:
    """A class that inherits from something, with no method that RLlib would never call.

    :raises CodeError: it is none
    """
    written = require_adaptable(path, experiment.paths)
    for name in methods(written) if written is not None else ():
        close = did_you_mean(name, HOOKS, most=1)
        if name.startswith("on_") and name not in HOOKS and close:
            raise CodeError(
                f"{path!r} has a method {name}, which RLlib never calls", f"did you mean {close[0]}?"
            )


def _extra_problems(experiment: Experiment) -> Iterator[Problem]:
    """Optional packages that this experiment needs and this installation lacks."""
    name = experiment.algo.name
    needed = []
    if name == "DreamerV3":
        needed.append(("PIL", "algo.name", MissingExtra("pillow", "dreamer", "DreamerV3")))
    if name in OFFLINE or experiment.get("offline_data.output"):
        missing = MissingExtra("msgpack-numpy", "offline", "recorded episodes")
        needed.append(("msgpack_numpy", "offline_data", missing))
    for module, key, missing in needed:
        if importlib.util.find_spec(module) is None:
            yield Problem(key, str(missing.what), missing.hint)


def _start_problems(experiment: Experiment, info: EnvInfo | None) -> Iterator[Problem]:
    """A checkpoint to start from that is not there, is damaged, or belongs to other spaces."""
    key = "algo.checkpoint_path"
    if not experiment.get(key):
        return
    try:
        checkpoint = find_checkpoint(str(experiment.get(key)))
        manifest.require_files(checkpoint, "config.yaml")
        saved = read_policies(checkpoint / "policy", weights=False).policies
        made_by = Experiment.load(checkpoint / "config.yaml")
    except RayfishError as error:
        yield Problem(key, error.what, error.hint)
        return
    if info is None or info.kind == "multi" or len(saved) != 1:
        return
    (policy,) = saved.values()
    for what, made, here in (
        ("observations", policy.observation_space, info.observation_space),
        ("actions", policy.action_space, info.action_space),
    ):
        if made is not None and not alike(made, here):
            text = (
                f"the checkpoint expects the {what} {in_short(made)}, this environment has {in_short(here)}"
            )
            hint = "start from a run on the same spaces, or leave out algo.checkpoint_path"
            yield Problem(key, text, hint)
            return
    yield from _network_problems(experiment, made_by)


def _network_problems(experiment: Experiment, made_by: Experiment) -> Iterator[Problem]:
    """Layers of another shape than those of the checkpoint to start from."""
    sections = [one.training.model or {} for one in (made_by, experiment)]
    name = str(experiment.algo.name)
    if any(models.section_problems(section, name, experiment.paths) for section in sections):
        return  # what is wrong with a section itself is reported elsewhere
    before, now = (resolve(section) for section in sections)
    for key in ("custom_model", "fcnet_hiddens", "head_fcnet_hiddens", "conv_filters", "use_lstm"):
        if before[key] != now[key]:
            what = f"its network has {key}={before[key]}, this experiment {key}={now[key]}"
            hint = f"set training.model.{key}={before[key]}, or leave out algo.checkpoint_path"
            yield Problem("algo.checkpoint_path", what, hint)
            return


def _place_problems(experiment: Experiment) -> Iterator[Problem]:
    """A folder for runs that cannot be written."""
    key = "runtime.local_dir"
    place = Path(str(experiment.get(key) or DEFAULT_ROOT)).expanduser().absolute()
    there = next((folder for folder in (place, *place.parents) if folder.exists()), place)
    if not there.is_dir():
        what = f"runs cannot be written to {place}: {there} is a file"
    elif not os.access(there, os.W_OK | os.X_OK):
        what = f"runs cannot be written to {place}: you may not write to {there}"
    else:
        return
    yield Problem(key, what, f"set {key} to a folder you may write")


def _best_problems(experiment: Experiment) -> Iterator[Problem]:
    """A metric that no run reports would never make a checkpoint the best."""
    key = "checkpoint.checkpoint_score_attribute"
    metric = experiment.get(key)
    if metric and not names.is_known(str(metric)):
        meant = did_you_mean(str(metric), names.fixed())
        hint = f"did you mean {meant[0]}?" if meant else ""
        yield Problem(key, f"no run reports a metric {metric!r}", hint)


def _offline_problems(experiment: Experiment) -> Iterator[Problem]:
    name, key = experiment.algo.name, "offline_data.input_"
    named = experiment.offline_data.input_
    if name in OFFLINE and named in (None, "", [], "sampler"):
        what = f"{name} learns from recorded data, and none is named"
        yield Problem(key, what, f"set {key} to a folder of recorded episodes")
    for place in named if isinstance(named, list) else [named]:
        local = isinstance(place, str) and place not in ("", "sampler") and "://" not in place
        if name in OFFLINE and local and not _there(place):
            what = f"there is no file or folder {place} (looked in {Path.cwd()})"
            hint = "correct the path, or record episodes first with offline_data.output"
            if "tests/data/" in place:
                hint = "it is data of Ray's source tree (rllib/tests/data), which its package lacks: " + hint
            yield Problem(key, what, hint)
    key = "offline_data.dataset_num_iters_per_learner"
    if name == "CQL" and experiment.get(key) == 1:
        what = "RLlib's CQL cannot do with 1 update per iteration"
        yield Problem(key, what, "set it to 2 or more, or leave it out for a whole pass over the data")


def _there(place: str) -> bool:
    """Whether a file, a folder, or anything that fits a pattern is there."""
    path = Path(place).expanduser()
    return any(path.parent.glob(path.name)) if re.search(r"[*?\[]", path.name) else path.exists()


def _order_problems(experiment: Experiment, info: EnvInfo) -> Iterator[Problem]:
    """Several agents repeat only where the order of sets is settled, as it is on the command line."""
    key = "debugging.deterministic"
    if experiment.get(key) and info.kind == "multi" and not _SETS_ARE_SETTLED:
        what = "RLlib walks through sets of agents, whose order is chance in this process"
        yield Problem(key, what, "start Python with PYTHONHASHSEED=0, or use `rayfish train`")


def _runner_problems(experiment: Experiment, info: EnvInfo) -> Iterator[Problem]:
    """An env runner that cannot step this environment, or not correctly."""
    key, mode = "rollouts.runner", "rollouts.gym_env_vectorize_mode"
    fitting = fit(experiment, info)
    if fitting.batched:
        return
    if experiment.get(key) == BATCHED:
        yield Problem(key, f"batched does not fit: {fitting.why}", f"set {key}=auto")
    elif info.native_same_step and str(experiment.get(mode)).lower() == "vector_entry_point":
        what = (
            "the environment's vector resets in the step that ends an episode (AutoresetMode.SAME_STEP); "
            f"RLlib's env runner, used because {fitting.why}, would bootstrap from the next episode's "
            "first observation"
        )
        yield Problem(mode, what, f"set {mode}=sync")


def note_on_saving(experiment: Experiment, info: EnvInfo) -> str:
    """What the user should know of how the run's environments are saved; "" when there is nothing."""
    if experiment.algo.name in OFFLINE:
        return ""
    own_vector = fit(experiment, info).vector == NATIVE  # which the batched runner saves whole
    return state.note(info, None if own_vector else experiment.get("rollouts.gym_env_vectorize_mode"))
