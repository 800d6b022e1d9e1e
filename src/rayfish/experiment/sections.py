"""The sections of an experiment: which part of RLlib each one feeds, and every key that is Rayfish's own.

RLlib's own keys are not listed here: they come from its signatures (`algorithm/signatures`). Each field
is documented once; `docs/reference.md`, `rayfish config keys` and tab completion are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ALGORITHMS: dict[str, str] = {
    "PPO": "on-policy actor-critic, the robust first choice",
    "APPO": "PPO with asynchronous sampling, for many env runners",
    "IMPALA": "asynchronous actor-critic with V-trace, for many env runners",
    "DQN": "Q-learning with replay (double, dueling, prioritised), discrete actions",
    "SAC": "off-policy actor-critic with entropy, continuous actions first",
    "TQC": "SAC with truncated quantile critics, continuous actions",
    "DreamerV3": "learns a world model and plans in it",
    "BC": "imitates recorded behaviour",
    "MARWIL": "imitates recorded behaviour, better actions more",
    "CQL": "SAC on recorded data, kept conservative",
    "IQL": "implicit Q-learning on recorded data",
}
"""Algorithm names with one line each, in the order they are offered."""

OFFLINE = ("BC", "MARWIL", "CQL", "IQL")
"""Those that learn from recorded data."""


SEVERAL_NETWORKS = ("SAC", "TQC", "CQL", "IQL", "DreamerV3")
"""Those with a learning rate and an optimiser for each of their networks."""

PER_POLICY = (
    "model",
    "lr",
    "grad_clip",
    "clip_param",
    "entropy_coeff",
    "vf_clip_param",
    "vf_loss_coeff",
    "use_kl_loss",
    "kl_coeff",
    "kl_target",
)
"""What one policy of several may have of its own; RLlib reads everything else once for all."""


@dataclass(frozen=True)
class Field:
    """One documented key.

    :param type: what it takes: int, float, bool, str, list, dict, path (an import path), joined by " | "
    :param default: what the shipped config says
    :param doc: what it does, one or two sentences
    :param unit: unit of a number, "" when it has none
    :param choices: the only values allowed; empty for any
    """

    type: str
    default: Any
    doc: str
    unit: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """One part of the experiment.

    :param doc: what it is about
    :param method: the `AlgorithmConfig` method it feeds, "" when it is Rayfish's alone
    :param own: Rayfish's own keys, and RLlib's keys whose meaning or default differs here
    :param is_open: any key is allowed
    :param open_keys: keys whose content is the user's (any key below them is allowed)
    """

    doc: str
    method: str = ""
    own: dict[str, Field] = field(default_factory=dict)
    is_open: bool = False
    open_keys: tuple[str, ...] = ()


_MAIN: dict[str, Section] = {
    "cli": Section(
        "How the command behaves when it is given without a verb (`rayfish cli.mode=train ...`).",
        own={
            "mode": Field("str", "train", "What to do.", choices=("train", "tune", "view")),
            "data_dir": Field(
                "str | null", None, "A folder for data, for other values to build on: ${cli.data_dir}/sets."
            ),
        },
    ),
    "algo": Section(
        "Which algorithm learns, and from where it starts.",
        own={
            "name": Field("str", "DQN", "The algorithm, by RLlib's name.", choices=tuple(ALGORITHMS)),
            "checkpoint_path": Field(
                "str | null", None, "Start from the weights of this run or checkpoint (warm start)."
            ),
        },
    ),
    "runtime": Section(
        "What the run is called and where it is kept.",
        own={
            "name": Field(
                "str | null",
                None,
                "Folder name under local_dir. null: the environment's and algorithm's names.",
            ),
            "local_dir": Field("str", "runs", "The folder that run folders are made in."),
            "tags": Field(
                "list | str", [], "Words to find the run by: rayfish runs list --tag WORD. One or a list."
            ),
        },
    ),
    "checkpoint": Section(
        "When the state of the run is written, and which states are kept.",
        own={
            "checkpoint_frequency": Field(
                "int", 20, "How often to write; 0: not while training.", "iterations"
            ),
            "num_to_keep": Field(
                "int | null", None, "Newest ones kept, besides best and last; null keeps all."
            ),
            "checkpoint_at_end": Field("bool", True, "Write one when the run ends."),
            "replay_buffer": Field(
                "bool",
                True,
                "Save the replay buffer too, in the last and the best one; a resume is exact only with it.",
            ),
            "checkpoint_score_attribute": Field(
                "str", "rollout/return_mean", "The metric by which a checkpoint is the best."
            ),
            "checkpoint_score_order": Field(
                "str", "max", "Whether more or less of that metric is better.", choices=("max", "min")
            ),
        },
    ),
    "stop_conditions": Section(
        "The run ends when the first of these is reached. Any metric name works as a key "
        "(`rollout/return_mean: 475`), and so do RLlib's old and new result names. A metric that falls: "
        "`env/error: '<= 0.01'`, or `{below: 0.01}`; `'>= 0.5'` and `{above: 0.5}` are the plain number.",
        own={
            "training_iteration": Field("int | null", 1_000_000, "Iterations done.", "iterations"),
            "timesteps_total": Field("int | null", 2_000_000_000, "Environment steps taken.", "steps"),
            "episode_reward_mean": Field(
                "float | null", None, "Mean return of the last 100 episodes: the goal, which a preset states."
            ),
            "time_total_s": Field(
                "float | null", None, "Time trained, earlier sessions included.", "seconds"
            ),
            "episodes_total": Field("int | null", None, "Episodes finished.", "episodes"),
        },
        is_open=True,
    ),
    "trackers": Section(
        "Where metrics go besides metrics.jsonl and progress.csv.",
        own={"tensorboard": Field("bool", True, "Write TensorBoard events into the run's events/ folder.")},
    ),
}

_RLLIB: dict[str, Section] = {
    "environment": Section(
        "What the agent acts in.",
        "environment",
        own={
            "env": Field(
                "str | null",
                None,
                "A Gymnasium id (CartPole-v1), package.module:Class, a creator function by import path, "
                "my_env.py:MyEnv, a name registered with Ray, or one from the entry points rayfish.envs.",
            ),
            "env_config": Field("dict", {}, "Handed to the environment's constructor; any key goes."),
            "imports": Field("list", [], "Modules imported first on every process, e.g. to register envs."),
            "clip_rewards": Field(
                "bool | float | list | null",
                None,
                "Clip rewards while training: to their sign (true), to a size (a number), to [low, high]. "
                "Reported returns and evaluation keep the true rewards.",
            ),
            "atari": Field(
                "bool | dict | null",
                None,
                "DeepMind's preprocessing of an Atari game: true, or some of {dim: 84, framestack: 4, "
                "grayscale: true, frame_skip: 4, noop_max: 30, zero_mean: false}. Episodes are whole games.",
            ),
            "observe_last_action": Field("bool", False, "Add the last action to the observation."),
            "observe_last_reward": Field("bool", False, "Add the last reward to the observation."),
            "env_task_fn": Field(
                "path | null",
                None,
                "A curriculum: a function of (train_results, env, env_ctx) that gives the next task of an "
                "environment; called for each after every iteration, needs its get_task and set_task.",
            ),
        },
        open_keys=("env_config", "atari"),
    ),
    "rollouts": Section(
        "How experience is collected. The section may also be called env_runners.",
        "env_runners",
        own={
            "num_env_runners": Field(
                "int", 0, "Processes that collect experience; 0: the main process does it.", "processes"
            ),
            "num_envs_per_env_runner": Field(
                "int | str",
                "auto",
                "Environments each one steps together. auto: 8 for PPO, APPO, IMPALA, else 1.",
                choices=("auto",),
            ),
            "runner": Field(
                "str",
                "auto",
                "Which sampling loop: RLlib's, or Rayfish's batched one; auto takes the faster that fits.",
                choices=("auto", "batched", "rllib"),
            ),
            "autotune": Field(
                "bool",
                False,
                "Measure before training how the environment is stepped fastest here, and write the choice "
                "into the run's config.yaml: in this process, as its own vector or in processes "
                "(gym_env_vectorize_mode), and num_envs_per_env_runner; a key that you set is kept.",
            ),
            "horizon": Field("int | null", None, "Longest episode; null: the environment decides.", "steps"),
            "sample_timeout_s": Field(
                "float | null",
                None,
                "Leave out what a slow runner collects after so long; null: wait for it.",
                "seconds",
            ),
            "observation_filter": Field(
                "str",
                "NoFilter",
                "Normalise observations by their running mean and deviation (MeanStdFilter), or not.",
                choices=("NoFilter", "MeanStdFilter"),
            ),
        },
    ),
    "learners": Section("Who computes the updates, and on which GPUs.", "learners"),
    "resources": Section(
        "What the main process takes.",
        "resources",
        own={
            "num_gpus": Field(
                "float | int | null",
                None,
                "GPUs to learn on: 1 or a share of one; more than 1: a learner for each.",
            )
        },
    ),
    "training": Section(
        "The algorithm's own settings. Keys left out keep RLlib's default for that algorithm.",
        "training",
        own={
            "model": Field("dict", {}, "The network; see the section training.model."),
            "optimizer": Field(
                "dict",
                {},
                "Another optimiser than RLlib's Adam: {type: adam | adamw | rmsprop | sgd, epsilon, decay, "
                "momentum, weight_decay}; its rate is training.lr. Not for SAC, TQC, CQL, IQL, DreamerV3.",
            ),
        },
        open_keys=("optimizer",),
    ),
    "exploration": Section(
        "How the agent explores while it trains.",
        "",
        own={
            "explore": Field(
                "bool", True, "Sample actions (true) or take the best one (false) while training."
            ),
            "exploration_config": Field(
                "dict",
                {},
                "RLlib's old form: {type: EpsilonGreedy, initial_epsilon, final_epsilon, warmup_timesteps, "
                "epsilon_timesteps} sets DQN's schedule, for which today's form is training.epsilon; "
                "{type: SoftQ, temperature} draws its actions by how good they are.",
            ),
        },
        open_keys=("exploration_config",),
    ),
    "evaluation": Section(
        "Measuring the policy while it trains.",
        "evaluation",
        own={
            "evaluation_config": Field(
                "dict",
                {"explore": False},
                "Settings that differ while evaluating; env_config is merged over environment.env_config.",
            )
        },
        open_keys=("evaluation_config",),
    ),
    "multi_agent": Section(
        "Several agents: which policies there are and who uses which.",
        "multi_agent",
        own={
            "policies": Field(
                "list | dict | null",
                None,
                "The policies' names, or names with their own settings ({scout: {model: {...}, lr: 0.001}}). "
                "null: those that mapping names, else one shared by all.",
            ),
            "mapping": Field(
                "dict",
                {},
                "Agent id, or a pattern of ids (`scout_*`), -> policy; the first that fits counts.",
            ),
        },
        open_keys=("policies", "mapping"),
    ),
    "framework": Section(
        "The deep learning framework.",
        "framework",
        own={"framework": Field("str", "torch", "RLlib's new stack runs on torch only.", choices=("torch",))},
    ),
    "fault_tolerance": Section(
        "What happens when a worker dies, hangs, or nothing gets on.",
        "fault_tolerance",
        own={
            "restart_failed_env_runners": Field("bool", True, "Start a runner that died again."),
            "max_num_env_runner_restarts": Field(
                "int", 100, "Restarts of one runner; after that it stays away.", "restarts"
            ),
            "max_learner_restarts": Field(
                "int",
                3,
                "How often a run goes back to its last checkpoint because a remote learner died.",
                "restarts",
            ),
            "env_timeout_s": Field(
                "float | null",
                300.0,
                "How long one reset or step of an environment may take; null: any time.",
                "seconds",
            ),
            "no_progress_timeout_s": Field(
                "float | null",
                300.0,
                "The run ends when no step and no update was made for so long; null: never.",
                "seconds",
            ),
        },
    ),
    "offline_data": Section(
        "Recorded experience to learn from (BC, MARWIL, CQL, IQL), or to write.",
        "offline_data",
        own={
            "input_": Field(
                "str | list",
                "sampler",
                "Where recorded episodes lie: a path or a list of paths. Old RLlib's JSON is read too.",
            ),
            "actions_in_input_normalized": Field(
                "bool", False, "Files of old RLlib: their actions are between -1 and 1 already."
            ),
        },
    ),
    "reporting": Section("How much work one training iteration is.", "reporting"),
    "callbacks": Section(
        "Your own code at fixed moments of the training.",
        "callbacks",
        own={
            "callbacks_class": Field(
                "path | list | null", None, "An RLlibCallback class by import path, or a list of them."
            )
        },
    ),
    "debugging": Section(
        "Seeds, logs and repeatability.",
        "debugging",
        own={
            "log_level": Field(
                "str",
                "WARN",
                "How much RLlib itself says.",
                choices=("DEBUG", "INFO", "WARN", "WARNING", "ERROR"),
            ),
            "log_sys_usage": Field("bool", True, "Record processor, memory and GPU use as system/ metrics."),
            "seed": Field("int | null", 2000, "Seeds everything; synchronous algorithms repeat bit for bit."),
            "deterministic": Field(
                "bool", False, "Refuse, by name, whatever cannot be repeated bit for bit."
            ),
        },
    ),
}

_LATER: dict[str, Section] = {
    "simulation": Section(
        "Settings of your simulator, any key; an env_config takes them by ${simulation}.", is_open=True
    ),
    "tunables": Section("The search space of `rayfish tune`.", is_open=True),
    "search": Section(
        "How `rayfish tune` searches: the method, who ends early, and what counts as good.",
        own={
            "method": Field(
                "str",
                "auto",
                "Who proposes points. auto: grid where everything is a grid, else optuna.",
                choices=(
                    "auto",
                    "grid",
                    "random",
                    "optuna",
                    "bohb",
                    "hyperopt",
                    "bayesopt",
                    "nevergrad",
                    "ax",
                    "hebo",
                ),
            ),
            "method_config": Field(
                "dict", {}, "Settings of the method itself (optuna: sampler, n_startup_trials, pruner, ...)."
            ),
            "num_samples": Field(
                "int | null",
                None,
                "Points to try; with a grid, times each of its points. null: 20, grid once.",
            ),
            "metric": Field("str | null", None, "What counts. null: rollout/return_mean of an experiment."),
            "mode": Field("str", "max", "Whether more or less of it is better.", choices=("max", "min")),
            "score": Field(
                "str", "last", "Which of a trial's reports is its score.", choices=("last", "best")
            ),
            "scheduler": Field(
                "str",
                "none",
                "Who ends bad trials early. pruner: Optuna's own, with the method optuna.",
                choices=("none", "asha", "hyperband", "median", "pbt", "pb2", "pruner"),
            ),
            "scheduler_config": Field(
                "dict", {}, "Settings of the scheduler (max_t, grace_period, perturbation_interval, ...)."
            ),
            "time": Field(
                "str | null", None, "What schedulers count. null: run/iteration, or a report's step."
            ),
            "repeat": Field("int", 1, "Seeds per point; a point's score is their mean.", "trials"),
            "max_concurrent": Field("int | null", None, "Trials at a time. null: as many as fit.", "trials"),
            "max_failures": Field("int", 0, "How often a failing trial is tried again."),
            "time_budget_s": Field(
                "float | null", None, "No new trial after this, and running ones end.", "s"
            ),
            "goal": Field("float | null", None, "The sweep ends when a trial reaches this score."),
            "seed": Field("int | null", None, "Of the search itself. null: debugging.seed."),
            "start_from": Field(
                "list", [], "Sweeps and runs whose best points are tried first; or points, key by key."
            ),
            "resources": Field(
                "dict", {}, "What a trial of a function or program holds: cpu, gpu, memory, others by name."
            ),
            "reuse_workers": Field(
                "bool", True, "Processes go on with the next trial; imports are paid once."
            ),
        },
        open_keys=("method_config", "scheduler_config", "resources"),
    ),
    "cluster": Section(
        "Where to run when it is not this machine: a later version; today `--on ADDRESS`.", is_open=True
    ),
}

SECTIONS: dict[str, Section] = {**_MAIN, **_RLLIB, **_LATER}
"""Every section by name, in the order they are shown."""

METHODS: dict[str, str] = {name: section.method for name, section in SECTIONS.items() if section.method}
"""Section -> the `AlgorithmConfig` method it feeds."""


def defaults() -> dict[str, Any]:
    """Dotted key -> shipped default, for every key that is Rayfish's own."""
    return {
        f"{name}.{key}": f.default for name, section in SECTIONS.items() for key, f in section.own.items()
    }
