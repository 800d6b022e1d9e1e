"""What an experiment asks of the machine or cluster, and how much of that there is.

`--fit` shrinks the one to the other and says what it changed.
"""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rayfish import text
from rayfish.algorithm import signatures
from rayfish.algorithm.batched.eligibility import fit as runner_fit
from rayfish.algorithm.batched.eligibility import stored_bytes
from rayfish.errors import ConfigError, Problem, RayfishError
from rayfish.experiment import Experiment
from rayfish.experiment.result_names import todays_metric
from rayfish.experiment.sections import OFFLINE
from rayfish.memory import memory
from rayfish.metrics import names
from rayfish.run.engine import RayOptions, machine_gpus, offered
from rayfish.threads import VARIABLE, machine_cpus

if TYPE_CHECKING:
    from rayfish.envs.env_kind import EnvInfo

_WITH_REPLAY = ("DQN", "SAC", "TQC", "DreamerV3")
_BOOKKEEPING = {True: 40, False: 250}  # bytes of a step besides observation and action: batched, RLlib's
_LAST_OBSERVATIONS = 1 / 16  # of the observations, kept apart for ended episodes
_ROOM = 0.8  # of the free memory for a suggested buffer; the rest is for networks and what else grows


def replay_remark(experiment: Experiment, info: EnvInfo) -> str:
    """What a replay buffer will take in the end, where that is more than the memory there is; else ""."""
    algo, key = str(experiment.algo.name), "training.replay_buffer_config"
    if algo not in _WITH_REPLAY:
        return ""
    config = {**(signatures.default_of("training", "replay_buffer_config", algo) or {})}
    config |= experiment.get(key) or {}
    capacity = int(config.get("capacity") or 10_000)
    limits = [
        int(limit)
        for key, limit in experiment.section("stop_conditions").items()
        if (todays_metric(key) or key) == names.ENV_STEPS and isinstance(limit, int | float) and limit > 0
    ]
    steps = min([capacity, *limits])
    batched = runner_fit(experiment, info).batched
    rows = [
        stored_bytes(info.observation_spaces[agent]) * (1 + _LAST_OBSERVATIONS)
        + stored_bytes(info.action_spaces[agent])
        + _BOOKKEEPING[batched]
        for agent in info.agents
    ]
    # RLlib counts steps of environments, in which every agent acts; the batched buffer steps of agents.
    row = max(rows) if batched else sum(rows)
    free, total = memory()
    if row * steps <= free:
        return ""
    fitting = max(1, int(float(f"{_ROOM * free / row:.1e}")))  # to two digits
    return (
        f"the replay buffer grows to {text.size(row * steps)} ({text.counted(steps, 'step')} of {row:,.0f} "
        f"bytes), which does not fit: {text.size(free)} of {text.size(total)} memory are free; set "
        f"{key}.capacity={fitting}"
    )


@dataclass(frozen=True)
class Request:
    """What the processes of one role ask Ray for: how many there are, and CPUs and GPUs of each."""

    role: str
    count: int
    cpus: float
    gpus: float

    def __str__(self) -> str:
        return text.counted(self.count, self.role)


ENV_RUNNER, EVALUATION_RUNNER, LEARNER, DRIVER = "env runner", "evaluation runner", "learner", "driver"
GPU_KEYS = ("learners.num_gpus_per_learner", "rollouts.num_gpus_per_env_runner", "resources.num_gpus")


def requests(experiment: Experiment) -> list[Request]:
    """What a run asks for, role by role; the GPUs of a local learner are the driver's."""

    def number(key: str, default: float = 0) -> float:
        value = experiment.get(key)
        return default if value is None else float(value)

    evaluates = bool(experiment.get("evaluation.evaluation_interval"))
    runner = number("rollouts.num_cpus_per_env_runner", 1), number("rollouts.num_gpus_per_env_runner")
    learners, learner_gpus = int(number("learners.num_learners")), number("learners.num_gpus_per_learner")
    gpus = number("resources.num_gpus")  # one learner per GPU
    if gpus:
        learners, learner_gpus = int(gpus) if gpus > 1 else learners, min(1.0, gpus)
    per_learner = experiment.get("learners.num_cpus_per_learner")
    # With a GPU, RLlib's "auto" asks for no CPU.
    learner_cpus = float(not learner_gpus) if per_learner in (None, "auto") else float(per_learner)
    main_cpus = number("resources.num_cpus_for_main_process", 1)
    asked = [
        Request(ENV_RUNNER, int(number("rollouts.num_env_runners")), *runner),
        Request(EVALUATION_RUNNER, evaluates * int(number("evaluation.evaluation_num_env_runners")), *runner),
        Request(LEARNER, learners, learner_cpus, learner_gpus),
        Request(DRIVER, 1, main_cpus, 0.0 if learners else learner_gpus),
    ]
    return [request for request in asked if request.count]


def cpus_of(asked: Iterable[Request]) -> float:
    """All CPUs of some requests."""
    return sum(request.count * request.cpus for request in asked)


def gpus_of(asked: Iterable[Request]) -> float:
    """All GPUs of some requests."""
    return sum(request.count * request.gpus for request in asked)


SLOW_S, DOMINATES = 2.0, 0.6


def advice(metrics: Mapping[str, float], experiment: Experiment, torch_threads: int) -> str:
    """What to do where one part of slow iterations takes most of their time; "" when there is nothing.

    :param torch_threads: those of the part that learns or acts in this process
    """
    shares = {"learner": names.LEARN_SHARE, "inference": names.INFERENCE_SHARE}
    share, part = max((metrics.get(name, 0.0), part) for part, name in shares.items())
    if metrics.get(names.TIME_ITERATION, 0.0) < SLOW_S or share < DOMINATES:
        return ""
    cpus, gpu = machine_cpus(), gpus_of(requests(experiment)) > 0
    can = []
    if machine_gpus() and not gpu:
        can.append("resources.num_gpus=1 uses the GPU of this machine")
    if part == "inference":
        can.append("more rollouts.num_envs_per_env_runner choose their actions in one pass")
    elif experiment.algo.name in ("DQN", "SAC"):
        can.append("a smaller training.training_intensity makes fewer updates per step")
    elif experiment.algo.name in ("PPO", "APPO"):
        can.append("fewer training.num_epochs or a larger training.minibatch_size make shorter updates")
    if not gpu and torch_threads < cpus and VARIABLE not in os.environ:
        can.append(
            f"{VARIABLE}={cpus} lets torch use all {cpus} cores (now {torch_threads}), if they are idle"
        )
    return f"{part} takes {text.percent(share)} of the time: {'; '.join(can)}" if can else ""


def remote_workers(experiment: Experiment) -> int:
    """How many processes besides its own a checked experiment asks Ray for; 0 when it does all in one."""
    if experiment.algo.name in OFFLINE or experiment.get("offline_data.output"):
        return 1  # recorded data is read and written by Ray's workers, as many as it sees fit
    asked = ("rollouts.num_env_runners", "learners.num_learners", "evaluation.evaluation_num_env_runners")
    gpus = experiment.resources.num_gpus or 0
    return sum(int(experiment.get(key) or 0) for key in asked) + (int(gpus) if gpus > 1 else 0)


def problems(experiment: Experiment, options: RayOptions) -> Iterator[Problem]:
    """What is asked for beyond what there is, with the arithmetic and the setting that fits."""
    try:
        asked = requests(experiment)
    except (TypeError, ValueError):
        return  # a wrong type, which the key check names
    try:
        require_answer(options.address or "")
        have_cpus, have_gpus = offered(options)
    except RayfishError as error:
        yield Problem("--on", error.what, error.hint)
        return
    where = f"the cluster at {options.address}" if options.address else "this machine"

    def shortage(total: float, kind: str, have: float) -> str:
        listed = _listed(asked, f"{kind.lower()}s")
        return f"asks for {_count(total, kind)}: {listed}; {where} has {have:g}"

    if cpus_of(asked) > have_cpus:
        hint = f"set rollouts.num_env_runners={fitting_runners(experiment, have_cpus)}, or --fit"
        hint += "" if options.address else ", or --ray-num-cpus to oversubscribe"
        what = shortage(cpus_of(asked), "CPU", have_cpus)
        yield Problem("resources", what, hint, experiment.origins.get("rollouts.num_env_runners", ""))
    if gpus_of(asked) > have_gpus:
        what = shortage(gpus_of(asked), "GPU", have_gpus)
        hint = "set learners.num_gpus_per_learner=0 and resources.num_gpus=0, or --fit"
        keys = ("learners.num_gpus_per_learner", "resources.num_gpus")
        origin = next((experiment.origins[key] for key in keys if experiment.origins.get(key)), "")
        yield Problem("resources", what, hint, origin)


def _listed(asked: Iterable[Request], what: str) -> str:
    """Who asks for CPUs or GPUs; those GPUs of the driver are its learner's."""
    learns = what == "gpus"
    return " + ".join(
        str(replace(request, role=LEARNER) if learns and request.role == DRIVER else request)
        for request in asked
        if getattr(request, what)
    )


def _count(number: float, what: str) -> str:
    return f"{number:g} {what}{'' if number == 1 else 's'}"


def require_answer(address: str) -> None:
    """Reports at once an address where nothing listens, which Ray takes long for.

    :raises RayfishError: nothing listens there
    """
    if not address or address in ("auto", "local"):
        return
    if ":" not in address:
        what = f"{address!r} is no address of a Ray cluster"
        raise RayfishError(what, "give HOST:PORT, or ray://HOST:PORT")
    found = re.fullmatch(r"(?:ray://)?(?P<host>[^/:]+):(?P<port>\d+)", address)
    if found is None:
        return
    try:
        socket.create_connection((found["host"], int(found["port"])), timeout=5).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise RayfishError(
            f"no Ray answers at {address}: {why}",
            "check host and port, start Ray there (ray start --head), or leave out --on to train here",
        ) from error


def fitting_runners(experiment: Experiment, cpus: float) -> int:
    """The most env runners that fit besides everything else; 0 samples in the driver."""
    others = cpus_of(request for request in requests(experiment) if request.role != ENV_RUNNER)
    each = experiment.get("rollouts.num_cpus_per_env_runner")
    return max(0, math.floor((cpus - others) / (1 if each is None else max(float(each), 1e-9))))


def fit(experiment: Experiment, options: RayOptions) -> tuple[Experiment, list[str]]:
    """The experiment shrunk to what there is, and a line that says what was changed."""
    wrong = signatures.problems(experiment)
    if wrong:
        raise ConfigError(wrong)
    require_answer(options.address or "")
    have_cpus, have_gpus = offered(options)
    changed = _without_gpus(experiment) if gpus_of(requests(experiment)) > have_gpus else experiment
    for key in ("evaluation.evaluation_num_env_runners", "learners.num_learners"):
        too_many = cpus_of(requests(changed)) > have_cpus and not fitting_runners(changed, have_cpus)
        if too_many and changed.get(key):
            changed = changed.with_values({key: 0, **_following(changed, key)}, _FIT)
    if cpus_of(requests(changed)) > have_cpus:
        runners = fitting_runners(changed, have_cpus)
        changed = changed.with_values({"rollouts.num_env_runners": runners}, _FIT)
    if cpus_of(requests(changed)) > have_cpus:  # processors for one process alone
        changed = changed.with_values({"resources.num_cpus_for_main_process": 1}, _FIT)
    return changed, _changes(experiment, changed, f"{_count(have_cpus, 'CPU')}, {_count(have_gpus, 'GPU')}")


_FIT = "--fit"


def _without_gpus(experiment: Experiment) -> Experiment:
    changes: dict[str, Any] = {key: 0 for key in GPU_KEYS if experiment.get(key)}
    if "resources.num_gpus" in changes:
        changes |= _following(experiment, "resources.num_gpus")
    return experiment.with_values(changes, _FIT)


def _following(experiment: Experiment, key: str) -> dict[str, Any]:
    """What must follow when learners or evaluation runners go: the batch they shared stays whole."""
    if key == "evaluation.evaluation_num_env_runners":
        parallel = "evaluation.evaluation_parallel_to_training"
        return {parallel: False} if experiment.get(parallel) else {}
    share, count = experiment.get("training.train_batch_size_per_learner"), int(experiment.get(key) or 0)
    return {"training.train_batch_size_per_learner": share * count} if share and count > 1 else {}


def _changes(asked: Experiment, got: Experiment, machine: str) -> list[str]:
    changes = [
        f"{key} {asked.get(key)} -> {got.get(key)}"
        for key in sorted(key for key, origin in got.origins.items() if origin == _FIT)
        if asked.get(key) != got.get(key)
    ]
    return [f"shrunk to what there is ({machine}): {', '.join(changes)}"] if changes else []
