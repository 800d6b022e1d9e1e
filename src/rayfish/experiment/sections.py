"""The sections of an experiment: which part of RLlib each one feeds, and every key that is Rayfish's own.

`experiment.rollouts.runner` reads a key; editors complete it and mypy checks it. Each key is declared and
documented once: `docs/reference.md`, `rayfish config keys`, tab completion and the checks are made from it.
RLlib's own keys are not listed here: they come from its signatures (`algorithm/signatures`), and are read by
`experiment.get("training.lr")`.
"""

import copy
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, Literal, NewType, TypeVar, Union, cast, get_args, get_origin, overload

T = TypeVar("T")
ImportPath = NewType("ImportPath", str)
"""`package.module:Name` or `file.py:Name`."""

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

CLOSEST: dict[str, str] = {
    "A2C": "PPO",
    "A3C": "IMPALA",
    "PG": "PPO",
    "DDPPO": "PPO",
    "DDPG": "SAC",
    "TD3": "TQC",
    "ApexDDPG": "SAC",
    "APEX_DDPG": "SAC",
    "ApexDQN": "DQN",
    "APEX_DQN": "DQN",
    "APEX": "DQN",
    "R2D2": "DQN",
    "SimpleQ": "DQN",
    "Rainbow": "DQN",
    "RNNSAC": "SAC",
    "QMIX": "PPO",
    "MADDPG": "SAC",
    "MAML": "PPO",
    "MBMPO": "DreamerV3",
    "Dreamer": "DreamerV3",
    "ES": "PPO",
    "ARS": "PPO",
    "SlateQ": "DQN",
    "CRR": "CQL",
    "DT": "BC",
    "AlphaZero": "PPO",
    "LeelaChessZero": "PPO",
    "AlphaStar": "APPO",
    "BanditLinUCB": "DQN",
    "BanditLinTS": "DQN",
    "LinUCB": "DQN",
    "LinTS": "DQN",
    "RandomAgent": "PPO",
}
"""Algorithms RLlib has dropped -> the closest one it still has."""

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


def spelled(name: object, names: Iterable[str]) -> str | None:
    """A name as `names` spells it, whatever its case; None where it is not among them."""
    return next((known for known in names if known.lower() == str(name).lower()), None)


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


def key(default: T, doc: str, unit: str = "", choices: tuple[str, ...] = ()) -> T:
    """Declares a key of a section; its annotation says what it takes, a Literal names its choices."""
    return cast(T, _Key(default, doc, unit, choices))


class _Key:
    """Reads one value of a section, or its default."""

    def __init__(self, default: Any, doc: str, unit: str, choices: tuple[str, ...]) -> None:
        self.default, self.doc, self.unit, self.choices = default, doc, unit, choices

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, keys: "Keys | None", owner: type) -> Any:
        if keys is None:
            return self
        return keys.values[self.name] if self.name in keys.values else copy.copy(self.default)

    def field(self, annotation: Any) -> Field:
        """The key as the reference shows it."""
        members = (
            get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
        )
        literals = [member for member in members if get_origin(member) is Literal]
        choices = self.choices + tuple(choice for member in literals for choice in get_args(member))
        return Field(" | ".join(map(_type_name, members)), self.default, self.doc, self.unit, choices)


def _type_name(annotation: Any) -> str:
    if annotation is types.NoneType:
        return "null"
    if annotation is ImportPath:
        return "path"
    if get_origin(annotation) is Literal:
        return "str"
    return str((get_origin(annotation) or annotation).__name__)


class Keys:
    """A view of one section of an experiment: its values, and the defaults of those that are absent."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values


K = TypeVar("K", bound=Keys)


class Section(Generic[K]):
    """One part of the experiment; of an experiment, the view of its keys.

    :param keys: Rayfish's own keys, and RLlib's keys whose meaning or default differs here
    :param method: the `AlgorithmConfig` method it feeds, "" when it is Rayfish's alone
    :param is_open: any key is allowed
    :param open_keys: keys whose content is the user's (any key below them is allowed)
    """

    def __init__(
        self, keys: type[K], method: str = "", *, is_open: bool = False, open_keys: tuple[str, ...] = ()
    ) -> None:
        self.keys, self.method, self.is_open, self.open_keys = keys, method, is_open, open_keys
        self.doc = " ".join((keys.__doc__ or "").split())

    @cached_property
    def own(self) -> dict[str, Field]:
        """Each of its keys as the reference shows it."""
        return {name: vars(self.keys)[name].field(type_) for name, type_ in self.keys.__annotations__.items()}

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, experiment: None, owner: type) -> "Section[K]": ...
    @overload
    def __get__(self, experiment: "Sections", owner: type) -> K: ...
    def __get__(self, experiment: "Sections | None", owner: type) -> "K | Section[K]":
        if experiment is None:
            return self
        values = experiment.config.get(self.name)
        return self.keys(values if isinstance(values, Mapping) else {})


class CliKeys(Keys):
    """How the command behaves when it is given without a verb (`rayfish cli.mode=train ...`)."""

    mode: Literal["train", "tune", "view"] = key("train", "What to do.")
    data_dir: str | None = key(None, "A folder for data, for other values to build on: ${cli.data_dir}/sets.")


class AlgoKeys(Keys):
    """Which algorithm learns, and from where it starts."""

    name: str = key("DQN", "The algorithm, by RLlib's name.", choices=tuple(ALGORITHMS))
    checkpoint_path: str | None = key(None, "Start from the weights of this run or checkpoint (warm start).")


class RuntimeKeys(Keys):
    """What the run is called and where it is kept."""

    name: str | None = key(
        None, "Folder name under local_dir. null: the environment's and algorithm's names."
    )
    local_dir: str = key("runs", "The folder that run folders are made in.")
    tags: list[Any] | str = key([], "Words to find the run by: rayfish runs list --tag WORD. One or a list.")


class CheckpointKeys(Keys):
    """When the state of the run is written, and which states are kept."""

    checkpoint_frequency: int = key(20, "How often to write; 0: not while training.", unit="iterations")
    num_to_keep: int | None = key(None, "Newest ones kept, besides best and last; null keeps all.")
    checkpoint_at_end: bool = key(True, "Write one when the run ends.")
    replay_buffer: bool = key(
        True, "Save the replay buffer too, in the last and the best one; a resume is exact only with it."
    )
    checkpoint_score_attribute: str = key(
        "rollout/return_mean", "The metric by which a checkpoint is the best."
    )
    checkpoint_score_order: Literal["max", "min"] = key(
        "max", "Whether more or less of that metric is better."
    )


class StopConditionsKeys(Keys):
    """The run ends when the first of these is reached. Any metric name works as a key
    (`rollout/return_mean: 475`), and so do RLlib's old and new result names. A metric that falls:
    `env/error: '<= 0.01'`, or `{below: 0.01}`; `'>= 0.5'` and `{above: 0.5}` are the plain number.
    """

    training_iteration: int | None = key(1_000_000, "Iterations done.", unit="iterations")
    timesteps_total: int | None = key(2_000_000_000, "Environment steps taken.", unit="steps")
    episode_reward_mean: float | None = key(
        None, "Mean return of the last 100 episodes: the goal, which a preset states."
    )
    time_total_s: float | None = key(None, "Time trained, earlier sessions included.", unit="seconds")
    episodes_total: int | None = key(None, "Episodes finished.", unit="episodes")


class TrackersKeys(Keys):
    """Where metrics go besides metrics.jsonl and progress.csv."""

    tensorboard: bool = key(True, "Write TensorBoard events into the run's events/ folder.")


class EnvironmentKeys(Keys):
    """What the agent acts in."""

    env: str | None = key(
        None,
        "A Gymnasium id (CartPole-v1), package.module:Class, a creator function by import path, "
        "my_env.py:MyEnv, a name registered with Ray, or one from the entry points rayfish.envs.",
    )
    env_config: dict[str, Any] = key({}, "Handed to the environment's constructor; any key goes.")
    imports: list[Any] = key([], "Modules imported first on every process, e.g. to register envs.")
    clip_rewards: bool | float | list[Any] | None = key(
        None,
        "Clip rewards while training: to their sign (true), to a size (a number), to [low, high]. "
        "Reported returns and evaluation keep the true rewards.",
    )
    atari: bool | dict[str, Any] | None = key(
        None,
        "DeepMind's preprocessing of an Atari game: true, or some of {dim: 84, framestack: 4, "
        "grayscale: true, frame_skip: 4, noop_max: 30, zero_mean: false}. Episodes are whole "
        "games.",
    )
    observe_last_action: bool = key(False, "Add the last action to the observation.")
    observe_last_reward: bool = key(False, "Add the last reward to the observation.")
    env_task_fn: ImportPath | None = key(
        None,
        "A curriculum: a function of (train_results, env, env_ctx) that gives the next task of an "
        "environment; called for each after every iteration, needs its get_task and set_task.",
    )


class RolloutsKeys(Keys):
    """How experience is collected. The section may also be called env_runners."""

    num_env_runners: int = key(
        0, "Processes that collect experience; 0: the main process does it.", unit="processes"
    )
    num_envs_per_env_runner: int | Literal["auto"] = key(
        "auto", "Environments each one steps together. auto: 8 for PPO, APPO, IMPALA, else 1."
    )
    runner: Literal["auto", "batched", "rllib"] = key(
        "auto", "Which sampling loop: RLlib's, or Rayfish's batched one; auto takes the faster that fits."
    )
    autotune: bool = key(
        False,
        "Measure before training how the environment is stepped fastest here, and write the "
        "choice into the run's config.yaml: in this process, as its own vector or in processes "
        "(gym_env_vectorize_mode), and num_envs_per_env_runner; a key that you set is kept.",
    )
    horizon: int | None = key(None, "Longest episode; null: the environment decides.", unit="steps")
    sample_timeout_s: float | None = key(
        None, "Leave out what a slow runner collects after so long; null: wait for it.", unit="seconds"
    )
    observation_filter: Literal["NoFilter", "MeanStdFilter"] = key(
        "NoFilter", "Normalise observations by their running mean and deviation (MeanStdFilter), or not."
    )


class LearnersKeys(Keys):
    """Who computes the updates, and on which GPUs."""


class ResourcesKeys(Keys):
    """What the main process takes."""

    num_gpus: float | int | None = key(
        None, "GPUs to learn on: 1 or a share of one; more than 1: a learner for each."
    )


class TrainingKeys(Keys):
    """The algorithm's own settings. Keys left out keep RLlib's default for that algorithm."""

    model: dict[str, Any] = key({}, "The network; see the section training.model.")
    optimizer: dict[str, Any] = key(
        {},
        "Another optimiser than RLlib's Adam: {type: adam | adamw | rmsprop | sgd, epsilon, "
        "decay, momentum, weight_decay}; its rate is training.lr. Not for SAC, TQC, CQL, IQL, "
        "DreamerV3.",
    )


class ExplorationKeys(Keys):
    """How the agent explores while it trains."""

    explore: bool = key(True, "Sample actions (true) or take the best one (false) while training.")
    exploration_config: dict[str, Any] = key(
        {},
        "RLlib's old form: {type: EpsilonGreedy, initial_epsilon, final_epsilon, "
        "warmup_timesteps, epsilon_timesteps} sets DQN's schedule, for which today's form is "
        "training.epsilon; {type: SoftQ, temperature} draws its actions by how good they are.",
    )


class EvaluationKeys(Keys):
    """Measuring the policy while it trains."""

    evaluation_config: dict[str, Any] = key(
        {"explore": False},
        "Settings that differ while evaluating; env_config is merged over environment.env_config.",
    )


class MultiAgentKeys(Keys):
    """Several agents: which policies there are and who uses which."""

    policies: list[Any] | dict[str, Any] | None = key(
        None,
        "The policies' names, or names with their own settings ({scout: {model: {...}, lr: "
        "0.001}}). null: those that mapping names, else one shared by all.",
    )
    mapping: dict[str, Any] = key(
        {}, "Agent id, or a pattern of ids (`scout_*`), -> policy; the first that fits counts."
    )


class FrameworkKeys(Keys):
    """The deep learning framework."""

    framework: Literal["torch"] = key("torch", "RLlib's new stack runs on torch only.")


class FaultToleranceKeys(Keys):
    """What happens when a worker dies, hangs, or nothing gets on."""

    restart_failed_env_runners: bool = key(True, "Start a runner that died again.")
    max_num_env_runner_restarts: int = key(
        100, "Restarts of one runner; after that it stays away.", unit="restarts"
    )
    max_learner_restarts: int = key(
        3, "How often a run goes back to its last checkpoint because a remote learner died.", unit="restarts"
    )
    env_timeout_s: float | None = key(
        300.0, "How long one reset or step of an environment may take; null: any time.", unit="seconds"
    )
    no_progress_timeout_s: float | None = key(
        300.0, "The run ends when no step and no update was made for so long; null: never.", unit="seconds"
    )


class OfflineDataKeys(Keys):
    """Recorded experience to learn from (BC, MARWIL, CQL, IQL), or to write."""

    input_: str | list[Any] = key(
        "sampler", "Where recorded episodes lie: a path or a list of paths. Old RLlib's JSON is read too."
    )
    actions_in_input_normalized: bool = key(
        False, "Files of old RLlib: their actions are between -1 and 1 already."
    )


class ReportingKeys(Keys):
    """How much work one training iteration is."""


class CallbacksKeys(Keys):
    """Your own code at fixed moments of the training."""

    callbacks_class: ImportPath | list[Any] | None = key(
        None, "An RLlibCallback class by import path, or a list of them."
    )


class DebuggingKeys(Keys):
    """Seeds, logs and repeatability."""

    log_level: Literal["DEBUG", "INFO", "WARN", "WARNING", "ERROR"] = key(
        "WARN", "How much RLlib itself says."
    )
    log_sys_usage: bool = key(True, "Record processor, memory and GPU use as system/ metrics.")
    seed: int | None = key(2000, "Seeds everything; synchronous algorithms repeat bit for bit.")
    deterministic: bool = key(False, "Refuse, by name, whatever cannot be repeated bit for bit.")


class SimulationKeys(Keys):
    """Settings of your simulator, any key; an env_config takes them by ${simulation}."""


class TunablesKeys(Keys):
    """The search space of `rayfish tune`."""


class SearchKeys(Keys):
    """How `rayfish tune` searches: the method, who ends early, and what counts as good."""

    method: Literal[
        "auto", "grid", "random", "optuna", "bohb", "hyperopt", "bayesopt", "nevergrad", "ax", "hebo"
    ] = key("auto", "Who proposes points. auto: grid where everything is a grid, else optuna.")
    method_config: dict[str, Any] = key(
        {}, "Settings of the method itself (optuna: sampler, n_startup_trials, pruner, ...)."
    )
    num_samples: int | None = key(
        None, "Points to try; with a grid, times each of its points. null: 20, grid once."
    )
    metric: str | None = key(None, "What counts. null: rollout/return_mean of an experiment.")
    mode: Literal["max", "min"] = key("max", "Whether more or less of it is better.")
    score: Literal["last", "best"] = key("last", "Which of a trial's reports is its score.")
    scheduler: Literal["none", "asha", "hyperband", "median", "pbt", "pb2", "pruner"] = key(
        "none", "Who ends bad trials early. pruner: Optuna's own, with the method optuna."
    )
    scheduler_config: dict[str, Any] = key(
        {}, "Settings of the scheduler (max_t, grace_period, perturbation_interval, ...)."
    )
    time: str | None = key(None, "What schedulers count. null: run/iteration, or a report's step.")
    repeat: int = key(1, "Seeds per point; a point's score is their mean.", unit="trials")
    max_concurrent: int | None = key(None, "Trials at a time. null: as many as fit.", unit="trials")
    max_failures: int = key(0, "How often a failing trial is tried again.")
    time_budget_s: float | None = key(None, "No new trial after this, and running ones end.", unit="s")
    goal: float | None = key(None, "The sweep ends when a trial reaches this score.")
    seed: int | None = key(None, "Of the search itself. null: debugging.seed.")
    start_from: list[Any] = key(
        [], "Sweeps and runs whose best points are tried first; or points, key by key."
    )
    resources: dict[str, Any] = key(
        {}, "What a trial of a function or program holds: cpu, gpu, memory, others by name."
    )
    reuse_workers: bool = key(True, "Processes go on with the next trial; imports are paid once.")


class ClusterKeys(Keys):
    """Where to run when it is not this machine: a later version; today `--on ADDRESS`."""


class Sections:
    """The sections as attributes, in the order they are shown."""

    config: dict[str, Any]

    cli = Section(CliKeys)
    algo = Section(AlgoKeys)
    runtime = Section(RuntimeKeys)
    checkpoint = Section(CheckpointKeys)
    stop_conditions = Section(StopConditionsKeys, is_open=True)
    trackers = Section(TrackersKeys)
    environment = Section(EnvironmentKeys, "environment", open_keys=("env_config", "atari"))
    rollouts = Section(RolloutsKeys, "env_runners")
    learners = Section(LearnersKeys, "learners")
    resources = Section(ResourcesKeys, "resources")
    training = Section(TrainingKeys, "training", open_keys=("optimizer",))
    exploration = Section(ExplorationKeys, open_keys=("exploration_config",))
    evaluation = Section(EvaluationKeys, "evaluation", open_keys=("evaluation_config",))
    multi_agent = Section(MultiAgentKeys, "multi_agent", open_keys=("policies", "mapping"))
    framework = Section(FrameworkKeys, "framework")
    fault_tolerance = Section(FaultToleranceKeys, "fault_tolerance")
    offline_data = Section(OfflineDataKeys, "offline_data")
    reporting = Section(ReportingKeys, "reporting")
    callbacks = Section(CallbacksKeys, "callbacks")
    debugging = Section(DebuggingKeys, "debugging")
    simulation = Section(SimulationKeys, is_open=True)
    tunables = Section(TunablesKeys, is_open=True)
    search = Section(SearchKeys, open_keys=("method_config", "scheduler_config", "resources"))
    cluster = Section(ClusterKeys, is_open=True)


SECTIONS: dict[str, Section[Any]] = {
    name: section for name, section in vars(Sections).items() if isinstance(section, Section)
}
"""Every section by name, in the order they are shown."""

METHODS: dict[str, str] = {name: section.method for name, section in SECTIONS.items() if section.method}
"""Section -> the `AlgorithmConfig` method it feeds."""


def defaults() -> dict[str, Any]:
    """Dotted key -> shipped default, for every key that is Rayfish's own."""
    return {
        f"{name}.{key}": f.default for name, section in SECTIONS.items() for key, f in section.own.items()
    }
