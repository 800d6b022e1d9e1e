"""Every metric name, spelled once, with its meaning.

A name is either fixed (`rollout/return_mean`) or one of a family with a part that the run decides
(`learn/<policy>/<loss>`). Other code imports the constants below and never writes a name out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rayfish.errors import did_you_mean

TABLE: dict[str, str] = {}
"""Every name, or pattern of a family -> its meaning."""


def _metric(name: str, meaning: str) -> str:
    TABLE[name] = meaning
    return name


ITERATION = _metric("run/iteration", "Training iterations since the run began, earlier sessions included.")
ENV_STEPS = _metric("run/env_steps", "Environment steps sampled for training since the run began.")
EPISODES = _metric("run/episodes", "Training episodes finished since the run began.")
TRAINED_STEPS = _metric(
    "run/trained_steps",
    "Steps in train batches since the run began: DQN and SAC count a step as often as it is replayed, "
    "PPO a batch once, whatever its epochs. On the batched path those of every agent.",
)
WORKERS_LOST = _metric("run/workers_lost", "Env runners that are down at this moment.")
WORKER_RESTARTS = _metric("run/worker_restarts", "Env runners restarted since the run began.")
LEARNER_RESTARTS = _metric(
    "run/learner_restarts", "Times the run went back to a checkpoint because a remote learner died."
)
ENV_RESTARTS = _metric(
    "run/env_restarts", "Environments that failed and were remade (restart_failed_sub_environments)."
)

RETURN_MEAN = _metric(
    "rollout/return_mean", "Mean return of the last 100 episodes (or metrics_num_episodes_for_smoothing)."
)
RETURN_MIN = _metric("rollout/return_min", "Lowest return among the last 100 finished episodes.")
RETURN_MAX = _metric("rollout/return_max", "Highest return among the last 100 finished episodes.")
LENGTH_MEAN = _metric("rollout/length_mean", "Mean length of the last 100 finished episodes, in steps.")
STEPS_PER_S = _metric(
    "rollout/env_steps_per_s", "Environment steps per second of this iteration, evaluation left out."
)
_metric("rollout/<policy>/return_mean", "The same window for one policy (several policies only).")
_metric("learn/<policy>/<loss>", "What the learner reports for a policy: losses, entropy, gradients.")

EVAL_RETURN_MEAN = _metric("eval/return_mean", "Mean return of this evaluation's episodes.")
EVAL_CI_LOW = _metric("eval/ci_low", "Lower end of the 95 % bootstrap interval of that mean.")
EVAL_CI_HIGH = _metric("eval/ci_high", "Upper end of the 95 % bootstrap interval of that mean.")
EVAL_LENGTH_MEAN = _metric("eval/length_mean", "Mean length of this evaluation's episodes, in steps.")
EVAL_EPISODES = _metric("eval/episodes", "Episodes of this evaluation.")
_metric("eval/<policy>/return_mean", "The same for one policy (several policies only).")
_metric("eval/env/<name>", "What the environment reports, as the mean of this evaluation's episodes.")

TIME_TOTAL = _metric("time/total_s", "Training time since the run began, earlier sessions included.")
TIME_ITERATION = _metric("time/iteration_s", "Duration of this iteration.")
ENV_SHARE = _metric("time/env_share", "Share (0-1) of the iteration spent in environments: steps and resets.")
INFERENCE_SHARE = _metric("time/inference_share", "Share spent on actions (forward passes and connectors).")
LEARN_SHARE = _metric("time/learn_share", "Share spent learning (updates, replay buffers).")
SYNC_SHARE = _metric("time/sync_share", "Share spent moving weights and samples, and waiting for them.")
EVAL_SHARE = _metric("time/eval_share", "Share spent evaluating.")
_metric("env/<name>", "What the environment or a callback reports; per episode: mean of the last 100.")

CPU = _metric("system/cpu", "Processor load of this machine, in %.")
RAM = _metric("system/ram", "Memory in use on this machine, in %.")
PROCESS_RAM = _metric("system/process_ram_gb", "Memory of the training process itself.")
GPU = _metric("system/gpu", "Load of the busiest GPU, in %.")
GPU_MEMORY = _metric("system/gpu_memory", "Memory in use on the fullest GPU, in %.")

RESTARTS = {
    WORKER_RESTARTS: "worker restart",
    LEARNER_RESTARTS: "learner restart",
    ENV_RESTARTS: "environment restart",
}
"""What was lost and brought back, as it is called when it is counted."""

COUNTERS = (ITERATION, ENV_STEPS, EPISODES, TRAINED_STEPS, TIME_TOTAL, *RESTARTS)

policy_return = "rollout/{}/return_mean".format
"""The name of a policy's last-100 mean return."""

eval_policy_return = "eval/{}/return_mean".format
"""The name of a policy's mean return in evaluation."""

eval_env = "eval/env/{}".format
"""The name of a number the environment reports in evaluation."""

learn = "learn/{}/{}".format
"""The name of one number the learner reports for a policy."""

env = "env/{}".format
"""The name of a number the environment or a callback reports."""

_FAMILIES = tuple(re.compile(re.sub(r"<\w+>", ".+", name)) for name in TABLE if "<" in name)


def fixed() -> list[str]:
    """The names without a variable part, in the order of the table."""
    return [name for name in TABLE if "<" not in name]


def is_known(name: str) -> bool:
    """Whether a run can report a metric of this name."""
    return name in fixed() or any(family.fullmatch(name) for family in _FAMILIES)


def unreported(wanted: Mapping[str, str], metrics: Mapping[str, Any]) -> list[str]:
    """A line for each setting whose metric a report lacks, with what was meant and what there is.

    :param wanted: setting -> the metric it names; a metric of the table may come later and is passed over
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
