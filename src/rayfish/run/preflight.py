"""Everything that can be known to be wrong before any compute, reported at once.

Each stage judges what it knows (keys, environment, model, spaces); this file adds what needs
several of them together, such as resources, and can shrink a request to the machine (`--fit`).
Imports neither torch nor RLlib.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import math
from dataclasses import replace
from typing import Any

from rayfish.algorithm import signatures
from rayfish.envs import build as envs
from rayfish.errors import CodeError, ConfigError, MissingExtra, Problem, RayfishError, did_you_mean
from rayfish.experiment import Experiment
from rayfish.experiment.imports import require_place
from rayfish.experiment.sections import OFFLINE
from rayfish.metrics import names
from rayfish.metrics.stop import StopConditions
from rayfish.models import check as models
from rayfish.run.directory import find_checkpoint
from rayfish.run.engine import RayOptions, offered


def check(experiment: Experiment, options: RayOptions | None = None) -> list[Problem]:
    """All problems of an experiment on this machine; empty when it can run."""
    return inspect(experiment, options)[0]


def inspect(
    experiment: Experiment, options: RayOptions | None = None
) -> tuple[list[Problem], envs.EnvInfo | None]:
    """All problems, and what the environment is when it could be made."""
    problems = signatures.problems(experiment)
    problems += StopConditions(experiment.section("stop_conditions")).problems
    problems += resource_problems(experiment, options or RayOptions())
    env_problems, info = envs.problems(experiment)
    problems += env_problems
    if info is not None:
        problems += _space_problems(experiment, info)
    else:
        model, name = experiment.get("training.model"), str(experiment.get("algo.name"))
        problems += models.section_problems(model or {}, name, experiment.paths)
    problems += _offline_problems(experiment) + _best_problems(experiment) + _code_problems(experiment)
    problems += _start_problems(experiment) + _extra_problems(experiment)
    return [p if p.where else replace(p, where=experiment.origins.get(p.key, "")) for p in problems], info


def require(experiment: Experiment, options: RayOptions | None = None) -> envs.EnvInfo:
    """The environment's description, or `ConfigError` with every problem."""
    problems, info = inspect(experiment, options)
    if problems or info is None:
        raise ConfigError(problems)
    return info


def _space_problems(experiment: Experiment, info: envs.EnvInfo) -> list[Problem]:
    """Spaces the algorithm or the model cannot take, each said once though agents share it."""
    found: dict[str, Problem] = {}
    model = experiment.get("training.model") or {}
    name = str(experiment.get("algo.name"))
    for agent, space in info.observation_spaces.items():
        for problem in models.problems(model, space, info.action_spaces[agent], name, experiment.paths):
            found.setdefault(problem.what, problem)
    return list(found.values()) + (_agent_problems(experiment, info) if info.kind == "multi" else [])


def _agent_problems(experiment: Experiment, info: envs.EnvInfo) -> list[Problem]:
    """What is wrong with policies and their mapping, where there are several agents."""
    return _mapping_problems(experiment, info) + _policy_problems(experiment)


def _policy_problems(experiment: Experiment) -> list[Problem]:
    """Settings of single policies: only `model` has an effect, and it is checked like the common one."""
    policies = experiment.get("multi_agent.policies")
    problems = []
    for policy, settings in policies.items() if isinstance(policies, dict) else ():
        key = f"multi_agent.policies.{policy}"
        for word in settings or {}:
            if word != "model":
                hint = "only `model` can differ between policies; other settings go under training"
                problems.append(Problem(f"{key}.{word}", "there is no such key", hint))
        found = models.section_problems(
            (settings or {}).get("model") or {}, str(experiment.get("algo.name")), experiment.paths
        )
        problems += [replace(p, key=p.key.replace("training.model", f"{key}.model")) for p in found]
    return problems


def _mapping_problems(experiment: Experiment, info: envs.EnvInfo) -> list[Problem]:
    """Agents that would share a policy although their spaces differ; policies nobody uses."""
    if experiment.get("multi_agent.policy_mapping_fn"):
        return []
    mapping = experiment.get("multi_agent.mapping") or {}
    named = experiment.get("multi_agent.policies") or sorted(set(mapping.values()))
    problems = [
        Problem(
            "multi_agent.mapping", f"{glob!r} is mapped to {policy!r}, which is not in multi_agent.policies"
        )
        for glob, policy in mapping.items()
        if named and policy not in named
    ]
    members: dict[str, list[Any]] = {}
    for agent in info.agents:
        fitting = [policy for glob, policy in mapping.items() if fnmatch.fnmatchcase(str(agent), glob)]
        own = str(agent) if str(agent) in named else next(iter(named), "default_policy")
        members.setdefault(fitting[0] if fitting else own, []).append(agent)
    for policy in named:
        if policy not in members:
            hint = f"map an agent to it; the agents are {', '.join(map(str, info.agents))}"
            problems.append(Problem("multi_agent.policies", f"no agent uses the policy {policy!r}", hint))
    for policy, agents in members.items():
        spaces = {(str(info.observation_spaces[a]), str(info.action_spaces[a])) for a in agents}
        if len(spaces) > 1:
            example = ", ".join(f"{agent}: {agent}" for agent in agents[:2])
            problems.append(
                Problem(
                    "multi_agent.mapping",
                    f"agents {', '.join(map(str, agents))} share policy {policy!r}, but their spaces differ",
                    f"give each its own policy, for example multi_agent.mapping={{{example}}}",
                )
            )
    return problems


def _code_problems(experiment: Experiment) -> list[Problem]:
    """Callbacks and the mapping function whose file or module is not there."""
    named = {f"callbacks.{key}": value for key, value in experiment.section("callbacks").items()}
    named["multi_agent.policy_mapping_fn"] = experiment.get("multi_agent.policy_mapping_fn")
    problems = []
    for key, value in named.items():
        for path in value if isinstance(value, list) else [value]:
            try:
                if isinstance(path, str):
                    require_place(path, experiment.paths)
            except CodeError as error:
                problems.append(Problem(key, error.what, error.hint, experiment.origin(key)))
    return problems


def _extra_problems(experiment: Experiment) -> list[Problem]:
    """Optional packages that this experiment needs and this installation lacks."""
    name = experiment.get("algo.name")
    needed = []
    if name == "DreamerV3":
        needed.append(("PIL", "pillow", "dreamer", "algo.name", "DreamerV3"))
    if name in OFFLINE or experiment.get("offline_data.output"):
        needed.append(("msgpack_numpy", "msgpack-numpy", "offline", "offline_data", "recorded episodes"))
    return [
        Problem(key, str(missing.what), missing.hint)
        for module, package, extra, key, purpose in needed
        if importlib.util.find_spec(module) is None
        for missing in [MissingExtra(package, extra, purpose)]
    ]


def _start_problems(experiment: Experiment) -> list[Problem]:
    """A checkpoint to start from that is not there."""
    key = "algo.checkpoint_path"
    try:
        if experiment.get(key):
            find_checkpoint(str(experiment.get(key)))
    except RayfishError as error:
        return [Problem(key, error.what, error.hint)]
    return []


def _best_problems(experiment: Experiment) -> list[Problem]:
    """A metric that no run reports would never make a checkpoint the best."""
    key = "checkpoint.checkpoint_score_attribute"
    metric = experiment.get(key)
    if not metric or names.is_known(str(metric)):
        return []
    meant = did_you_mean(str(metric), names.fixed())
    return [Problem(key, f"no run reports a metric {metric!r}", f"did you mean {meant[0]}?" if meant else "")]


def _offline_problems(experiment: Experiment) -> list[Problem]:
    name = experiment.get("algo.name")
    problems = []
    if name in OFFLINE and experiment.get("offline_data.input_") in (None, "", [], "sampler"):
        problems.append(
            Problem(
                "offline_data.input_",
                f"{name} learns from recorded data, and none is named",
                "set offline_data.input_ to a folder of recorded episodes",
            )
        )
    updates = experiment.get("offline_data.dataset_num_iters_per_learner")
    if name == "CQL" and updates == 1:
        problems.append(
            Problem(
                "offline_data.dataset_num_iters_per_learner",
                "RLlib's CQL cannot do with 1 update per iteration",
                "set it to 2 or more, or leave it out for a whole pass over the data",
            )
        )
    return problems


def needs(experiment: Experiment) -> tuple[dict[str, float], dict[str, float]]:
    """CPUs and GPUs asked for, by who asks (in the words the message uses)."""

    def number(key: str, default: float = 0) -> float:
        value = experiment.get(key)
        return default if value is None else float(value)

    runners, learners = number("rollouts.num_env_runners"), number("learners.num_learners")
    evaluators = (
        number("evaluation.evaluation_num_env_runners")
        if experiment.get("evaluation.evaluation_interval")
        else 0
    )
    per_runner, runner_gpus = (
        number("rollouts.num_cpus_per_env_runner", 1),
        number("rollouts.num_gpus_per_env_runner"),
    )
    per_learner = experiment.get("learners.num_cpus_per_learner")
    on_gpu = number("learners.num_gpus_per_learner") > 0  # then RLlib's "auto" asks for no CPU
    learner_cpus = float(not on_gpu) if per_learner in (None, "auto") else float(per_learner)
    cpus = {
        f"{runners:g} env runner{'s' if runners != 1 else ''}": runners * per_runner,
        f"{evaluators:g} evaluation runner{'s' if evaluators != 1 else ''}": evaluators * per_runner,
        f"{learners:g} learner{'s' if learners != 1 else ''}": learners * learner_cpus,
        "1 driver": number("resources.num_cpus_for_main_process", 1),
    }
    gpus = {
        f"{runners:g} env runners": runners * runner_gpus,
        f"{max(learners, 1):g} learner{'s' if learners > 1 else ''}": max(
            max(learners, 1) * number("learners.num_gpus_per_learner"), number("resources.num_gpus")
        ),
    }
    return {k: v for k, v in cpus.items() if v}, {k: v for k, v in gpus.items() if v}


def resource_problems(experiment: Experiment, options: RayOptions) -> list[Problem]:
    """What is asked for beyond what there is, with the arithmetic and the setting that fits."""
    try:
        cpus, gpus = needs(experiment)
    except (TypeError, ValueError):
        return []  # a wrong type, which the key check names
    have_cpus, have_gpus = offered(options)
    where = f"the cluster at {options.address}" if options.address else "this machine"
    problems = []
    if sum(cpus.values()) > have_cpus:
        fitting = fitting_runners(experiment, have_cpus)
        problems.append(
            Problem(
                "resources",
                f"asks for {sum(cpus.values()):g} CPUs: {' + '.join(cpus)}; {where} has {have_cpus:g}",
                f"set rollouts.num_env_runners={fitting}, or --fit"
                + (", or --ray-num-cpus to oversubscribe" if not options.address else ""),
                experiment.origins.get("rollouts.num_env_runners", ""),
            )
        )
    if sum(gpus.values()) > have_gpus:
        problems.append(
            Problem(
                "resources",
                f"asks for {sum(gpus.values()):g} GPUs: {' + '.join(gpus)}; {where} has {have_gpus:g}",
                "set learners.num_gpus_per_learner=0 and resources.num_gpus=0, or --fit",
                experiment.origins.get("learners.num_gpus_per_learner", "")
                or experiment.origins.get("resources.num_gpus", ""),
            )
        )
    return problems


def fitting_runners(experiment: Experiment, cpus: float) -> int:
    """The most env runners that fit beside everything else; 0 samples in the driver."""
    asked, _ = needs(experiment)
    others = sum(v for k, v in asked.items() if "env runner" not in k)
    each = experiment.get("rollouts.num_cpus_per_env_runner")
    return max(0, math.floor((cpus - others) / (1 if each is None else max(float(each), 1e-9))))


def fit(experiment: Experiment, options: RayOptions) -> tuple[Experiment, list[str]]:
    """The experiment shrunk to what there is, and a line for each thing that was changed."""
    wrong = signatures.problems(experiment)
    if wrong:
        raise ConfigError(wrong)
    have_cpus, have_gpus = offered(options)
    changes: dict[str, Any] = {}
    _, gpus = needs(experiment)
    if sum(gpus.values()) > have_gpus:
        for key in (
            "learners.num_gpus_per_learner",
            "rollouts.num_gpus_per_env_runner",
            "resources.num_gpus",
        ):
            if experiment.get(key):
                changes[key] = 0
    changed = experiment.with_values(changes, "--fit") if changes else experiment
    for key in ("evaluation.evaluation_num_env_runners", "learners.num_learners"):
        if (
            sum(needs(changed)[0].values()) > have_cpus
            and fitting_runners(changed, have_cpus) == 0
            and changed.get(key)
        ):
            changed = changed.with_values({key: 0}, "--fit")
    if sum(needs(changed)[0].values()) > have_cpus:
        runners = fitting_runners(changed, have_cpus)
        changed = changed.with_values({"rollouts.num_env_runners": runners}, "--fit")
    notes = [
        f"--fit: {key} {experiment.get(key)} -> {changed.get(key)}"
        for key in sorted(k for k, origin in changed.origins.items() if origin == "--fit")
        if experiment.get(key) != changed.get(key)
    ]
    return changed, notes
