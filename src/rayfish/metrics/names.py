"""Every metric name, spelled once, with its unit and what it means.

A name is either fixed (`rollout/return_mean`) or one of a family with a part that the run decides
(`learn/<policy>/<loss>`). Other code imports the constants below and never writes a name out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rayfish.errors import did_you_mean

ITERATION = "run/iteration"
ENV_STEPS = "run/env_steps"
EPISODES = "run/episodes"
TRAINED_STEPS = "run/trained_steps"
WORKERS_LOST = "run/workers_lost"
WORKER_RESTARTS = "run/worker_restarts"
LEARNER_RESTARTS = "run/learner_restarts"
ENV_RESTARTS = "run/env_restarts"

RETURN_MEAN = "rollout/return_mean"
RETURN_MIN = "rollout/return_min"
RETURN_MAX = "rollout/return_max"
LENGTH_MEAN = "rollout/length_mean"
STEPS_PER_S = "rollout/env_steps_per_s"

EVAL_RETURN_MEAN = "eval/return_mean"
EVAL_CI_LOW = "eval/ci_low"
EVAL_CI_HIGH = "eval/ci_high"
EVAL_LENGTH_MEAN = "eval/length_mean"
EVAL_EPISODES = "eval/episodes"

TIME_TOTAL = "time/total_s"
TIME_ITERATION = "time/iteration_s"
ENV_SHARE = "time/env_share"
INFERENCE_SHARE = "time/inference_share"
LEARN_SHARE = "time/learn_share"
SYNC_SHARE = "time/sync_share"
EVAL_SHARE = "time/eval_share"

CPU = "system/cpu"
RAM = "system/ram"
PROCESS_RAM = "system/process_ram_gb"
GPU = "system/gpu"
GPU_MEMORY = "system/gpu_memory"

RESTARTS = {
    WORKER_RESTARTS: "worker restart",
    LEARNER_RESTARTS: "learner restart",
    ENV_RESTARTS: "environment restart",
}
"""What was lost and brought back, as it is called when it is counted."""

SHARES = (ENV_SHARE, INFERENCE_SHARE, LEARN_SHARE, SYNC_SHARE, EVAL_SHARE)
COUNTERS = (
    ITERATION,
    ENV_STEPS,
    EPISODES,
    TRAINED_STEPS,
    TIME_TOTAL,
    WORKER_RESTARTS,
    LEARNER_RESTARTS,
    ENV_RESTARTS,
)


@dataclass(frozen=True)
class Metric:
    """One entry of the table: a name (or the pattern of a family), its unit and its meaning."""

    name: str
    unit: str
    doc: str


TABLE: tuple[Metric, ...] = (
    Metric(ITERATION, "iterations", "Training iterations since the run began, earlier sessions included."),
    Metric(ENV_STEPS, "steps", "Environment steps sampled for training since the run began."),
    Metric(EPISODES, "episodes", "Training episodes finished since the run began."),
    Metric(
        TRAINED_STEPS,
        "steps",
        "Steps in train batches since the run began: DQN and SAC count a step as often as it is replayed, "
        "PPO a batch once, whatever its epochs. On the batched path those of every agent.",
    ),
    Metric(WORKERS_LOST, "workers", "Env runners that are down at this moment."),
    Metric(WORKER_RESTARTS, "restarts", "Env runners restarted since the run began."),
    Metric(
        LEARNER_RESTARTS, "restarts", "Times the run went back to a checkpoint because a remote learner died."
    ),
    Metric(
        ENV_RESTARTS,
        "restarts",
        "Environments that failed and were remade (restart_failed_sub_environments).",
    ),
    Metric(
        RETURN_MEAN, "reward", "Mean return of the last 100 episodes (or metrics_num_episodes_for_smoothing)."
    ),
    Metric(RETURN_MIN, "reward", "Lowest return among the last 100 finished episodes."),
    Metric(RETURN_MAX, "reward", "Highest return among the last 100 finished episodes."),
    Metric(LENGTH_MEAN, "steps", "Mean length of the last 100 finished episodes."),
    Metric(STEPS_PER_S, "steps/s", "Environment steps per second of this iteration, evaluation left out."),
    Metric(
        "rollout/<policy>/return_mean", "reward", "The same window for one policy (several policies only)."
    ),
    Metric("learn/<policy>/<loss>", "", "What the learner reports for a policy: losses, entropy, gradients."),
    Metric(EVAL_RETURN_MEAN, "reward", "Mean return of this evaluation's episodes."),
    Metric(EVAL_CI_LOW, "reward", "Lower end of the 95 % bootstrap interval of that mean."),
    Metric(EVAL_CI_HIGH, "reward", "Upper end of the 95 % bootstrap interval of that mean."),
    Metric(EVAL_LENGTH_MEAN, "steps", "Mean length of this evaluation's episodes."),
    Metric(EVAL_EPISODES, "episodes", "Episodes of this evaluation."),
    Metric("eval/<policy>/return_mean", "reward", "The same for one policy (several policies only)."),
    Metric("eval/env/<name>", "", "What the environment reports, as the mean of this evaluation's episodes."),
    Metric(TIME_TOTAL, "s", "Training time since the run began, earlier sessions included."),
    Metric(TIME_ITERATION, "s", "Duration of this iteration."),
    Metric(ENV_SHARE, "0-1", "Share of the iteration spent stepping and resetting environments."),
    Metric(INFERENCE_SHARE, "0-1", "Share spent choosing actions (forward passes and connectors)."),
    Metric(LEARN_SHARE, "0-1", "Share spent learning (updates, replay buffers)."),
    Metric(SYNC_SHARE, "0-1", "Share spent moving weights and samples, and waiting for them."),
    Metric(EVAL_SHARE, "0-1", "Share spent evaluating."),
    Metric(
        "env/<name>", "", "What the environment or a callback reports; per episode: mean of the last 100."
    ),
    Metric(CPU, "%", "Processor load of this machine."),
    Metric(RAM, "%", "Memory in use on this machine."),
    Metric(PROCESS_RAM, "GB", "Memory of the training process itself."),
    Metric(GPU, "%", "Load of the busiest GPU."),
    Metric(GPU_MEMORY, "%", "Memory in use on the fullest GPU."),
)

_FAMILIES = tuple(
    re.compile(
        "".join(".+" if part.startswith("<") else re.escape(part) for part in re.split(r"(<\w+>)", m.name))
    )
    for m in TABLE
    if "<" in m.name
)


def fixed() -> list[str]:
    """The names without a variable part, in the order of the table."""
    return [metric.name for metric in TABLE if "<" not in metric.name]


def is_known(name: str) -> bool:
    """Whether a run can report a metric of this name."""
    return name in fixed() or any(family.fullmatch(name) for family in _FAMILIES)


def unreported(wanted: Mapping[str, str], metrics: Mapping[str, Any]) -> list[str]:
    """A line for each setting whose metric a report lacks, with what was meant and what there is.

    :param wanted: setting -> the metric it names; a metric of the table may come later and is passed over
    :param metrics: the report
    """
    lines = []
    for setting, metric in wanted.items():
        if metric in metrics or metric in fixed():
            continue
        family = metric.partition("/")[0]
        there = sorted(name for name in metrics if name.startswith(f"{family}/"))
        close = did_you_mean(metric, there, most=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        listed = f"reported: {', '.join(there)}" if there else f"no {family}/ metric is reported"
        lines.append(f"{setting}: no report has {metric!r} so far{meant} ({listed})")
    return lines


def policy_return(policy: str) -> str:
    """The name of a policy's last-100 mean return."""
    return f"rollout/{policy}/return_mean"


def eval_policy_return(policy: str) -> str:
    """The name of a policy's mean return in evaluation."""
    return f"eval/{policy}/return_mean"


def eval_env(what: str) -> str:
    """The name of a number the environment reports in evaluation."""
    return f"eval/env/{what}"


def learn(policy: str, what: str) -> str:
    """The name of one number the learner reports for a policy."""
    return f"learn/{policy}/{what}"


def env(what: str) -> str:
    """The name of a number the environment or a callback reports."""
    return f"env/{what}"
