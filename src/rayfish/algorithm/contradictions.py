"""Settings that are fine alone but not together, found before RLlib fails on them or ignores one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rayfish.algorithm.signatures import default_at, default_of, entries
from rayfish.errors import Problem, did_you_mean
from rayfish.experiment.result_names import todays_metric
from rayfish.experiment.sections import OFFLINE, SEVERAL_NETWORKS

if TYPE_CHECKING:
    from rayfish.experiment import Experiment

ASYNCHRONOUS = ("APPO", "IMPALA")
_FIRST_COME = "it learns from whichever runner answers first"
INEXACT = {
    "APPO": _FIRST_COME,
    "IMPALA": _FIRST_COME,
    "DreamerV3": "its actor draws random numbers in an order of its own",
}
"""Algorithms that never repeat bit for bit, and why."""

OPTIMISERS = {
    "adam": {"epsilon": "eps", "weight_decay": "weight_decay"},
    "adamw": {"epsilon": "eps", "weight_decay": "weight_decay"},
    "rmsprop": {
        "epsilon": "eps",
        "decay": "alpha",
        "momentum": "momentum",
        "weight_decay": "weight_decay",
    },
    "sgd": {"momentum": "momentum", "weight_decay": "weight_decay"},
}
"""Types of `training.optimizer` -> the settings of each, with torch's names for them."""

BUFFERS = ("EpisodeReplayBuffer", "PrioritizedEpisodeReplayBuffer")

_BUFFER_KEYS = (
    "type",
    "capacity",
    "alpha",
    "beta",
    "batch_size_B",
    "batch_length_T",
    "metrics_num_episodes_for_smoothing",
)
_EPSILON_GREEDY = ("type", "initial_epsilon", "final_epsilon", "warmup_timesteps", "epsilon_timesteps")

# Smallest sensible value of a number, by key; below it RLlib fails later and less clearly.
_AT_LEAST: dict[str, float] = {
    "rollouts.num_env_runners": 0,
    "rollouts.num_envs_per_env_runner": 1,
    "rollouts.horizon": 1,
    "learners.num_learners": 0,
    "learners.num_gpus_per_learner": 0,
    "training.minibatch_size": 1,
    "training.num_epochs": 1,
    "training.train_batch_size_per_learner": 1,
    "training.gamma": 0,
    "training.lambda_": 0,
    "checkpoint.checkpoint_frequency": 0,
    "checkpoint.num_to_keep": 1,
    "evaluation.evaluation_interval": 1,
    "evaluation.evaluation_num_env_runners": 0,
    "debugging.seed": 0,
}
_RATES = ("actor_lr", "critic_lr", "alpha_lr", "value_lr", "world_model_lr")
_AT_MOST: dict[str, float] = {"training.gamma": 1, "training.lambda_": 1}


Found = Iterator[tuple[str, str, str]]
"""What a check yields: the key, what is wrong, and what to do."""


def contradictions(experiment: Experiment, algo: str) -> Iterator[Problem]:
    """Every contradiction in an experiment whose keys and types were checked before."""
    for check in _CHECKS:
        for key, what, hint in check(experiment, algo):
            # A group was written where its type was; `origin` takes the key itself where it has none.
            yield Problem(key, what, hint, experiment.origin(f"{key}.type"))


def _effective(experiment: Experiment, dotted: str, algo: str) -> Any:
    """The experiment's value, or RLlib's default for the algorithm."""
    value = experiment.get(dotted)
    return default_at(dotted, algo) if value is None else value


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _scale(experiment: Experiment, algo: str) -> tuple[int, int, int]:
    """Environments per runner, runners, and learners; at least one of each."""
    keys = ("rollouts.num_envs_per_env_runner", "rollouts.num_env_runners", "learners.num_learners")
    numbers = [_effective(experiment, key, algo) for key in keys]
    envs, runners, learners = (max(1, int(number)) if _number(number) else 1 for number in numbers)
    return envs, runners, learners


def _ranges(experiment: Experiment, algo: str) -> Found:
    for dotted, least in _AT_LEAST.items():
        value, most = experiment.get(dotted), _AT_MOST.get(dotted)
        if _number(value) and (value < least or (most is not None and value > most)):
            allowed = f"at least {least:g}" if most is None else f"from {least:g} to {most:g}"
            yield _out_of_range(dotted, value, algo, allowed, least)
    for dotted in (f"training.{key}" for key in ("lr", *_RATES)):
        value = experiment.get(dotted)
        if _number(value) and value <= 0:
            yield _out_of_range(dotted, value, algo, "above 0", 0.001)


def _out_of_range(dotted: str, value: Any, algo: str, allowed: str, fallback: float) -> tuple[str, str, str]:
    """A number beyond its bounds; what RLlib takes by default is the best example of one within."""
    usual = default_at(dotted, algo)
    usual = usual if _number(usual) and usual > 0 else fallback
    return dotted, f"is {value}, but must be {allowed}", f"for example {dotted}={usual}"


def _recurrent_replay(experiment: Experiment, algo: str) -> Found:
    key = "training.replay_buffer_config.type"
    buffer = experiment.get(key) or "PrioritizedEpisodeReplayBuffer"
    if algo == "DQN" and experiment.get("training.model.use_lstm") and "Prioritized" in str(buffer):
        what = "RLlib's prioritised replay cannot give DQN the sequences that use_lstm needs"
        yield key, what, f"set {key}=EpisodeReplayBuffer"


def _minibatch(experiment: Experiment, algo: str) -> Found:
    """A minibatch fits into the batch; with memory it holds a whole sequence, or RLlib fails on it."""
    mini_key, batch_key = "training.minibatch_size", "training.train_batch_size_per_learner"
    mini, batch = _effective(experiment, mini_key, algo), _effective(experiment, batch_key, algo)
    is_written = experiment.get(mini_key) is not None
    either_is_written = is_written or experiment.get(batch_key) is not None
    if either_is_written and _number(mini) and _number(batch) and mini > batch:
        what = f"a minibatch of {mini} does not fit into a train batch of {batch}"
        hint = f"set {mini_key}={batch} or less, or {batch_key}={mini} or more"
        yield mini_key if is_written else batch_key, what, hint
    length_key = "training.model.max_seq_len"
    length = experiment.get(length_key) or 20
    recurrent = algo == "PPO" and experiment.get("training.model.use_lstm")
    if recurrent and _number(mini) and _number(length) and mini < length:
        what = f"a minibatch of {mini} steps does not hold a sequence of {length}"
        hint = f"set {mini_key}={length} or more, or {length_key}={mini} or less"
        yield mini_key if is_written else length_key, what, hint


def _fragments(experiment: Experiment, algo: str) -> Found:
    """PPO collects whole fragments; RLlib refuses a batch more than 10 % off."""
    key = "rollouts.rollout_fragment_length"
    length, batch = experiment.get(key), _effective(experiment, "training.train_batch_size_per_learner", algo)
    if algo != "PPO" or not _number(length) or not _number(batch) or length < 1:
        return
    envs, runners, learners = _scale(experiment, algo)
    total, chunk = batch * learners, length * envs * runners
    rounds = max(1, -(-total // chunk))
    if abs(rounds * chunk - total) > 0.1 * total:
        what = (
            f"{runners} runners x {envs} environments x {length} steps = {chunk} per round, "
            f"which does not add up to a batch of {total}"
        )
        hint = f"set {key}=auto, or the batch to {rounds * chunk // learners}"
        yield key, what, hint


def note_on_batch(experiment: Experiment) -> str:
    """How many steps PPO trains on where its batch is no multiple of the environments; "" where it is."""
    key, algo = "training.train_batch_size_per_learner", str(experiment.algo.name)
    batch = _effective(experiment, key, algo)
    mode = _effective(experiment, "rollouts.batch_mode", algo)
    if algo != "PPO" or not _number(batch) or mode == "complete_episodes":
        return ""
    envs, runners, learners = _scale(experiment, algo)
    total = int(batch) * learners
    each, left = divmod(total, envs * runners)
    length = experiment.get("rollouts.rollout_fragment_length")
    if _number(length) and length * envs * runners <= total:
        return ""  # see `_fragments`
    # As RLlib shares them out: the first runners take one step more until the batch is full.
    steps = [max(1, each + (left > index * envs)) for index in range(runners)]
    if _number(length):
        steps = [length] * runners
    if envs * sum(steps) == total:
        return ""
    per = str(steps[0]) if len(set(steps)) == 1 else f"{steps[-1]} or {steps[0]}"
    every = "one step" if per == "1" else f"{per} steps"
    return (
        f"a batch of {total} with {envs * runners} environments: each update trains on "
        f"{envs * sum(steps)} steps ({every} of every environment)"
    )


def _evaluation(experiment: Experiment, _: str) -> Found:
    get = experiment.section("evaluation").get
    if not get("evaluation_interval"):
        yield from _unmeasured(experiment)
        return
    duration, parallel = get("evaluation_duration", 10), get("evaluation_parallel_to_training")
    key = "evaluation.evaluation_duration"
    if duration in (None, 0):
        what = f"is {duration}, but evaluation is on (evaluation_interval={get('evaluation_interval')})"
        yield key, what, f"set {key}=10, or evaluation.evaluation_interval=null"
    elif isinstance(duration, str) and duration != "auto":
        yield key, f"is {duration!r}, but takes a number or auto", f"set {key}=10"
    elif duration == "auto" and not parallel:
        hint = "set evaluation.evaluation_parallel_to_training=true, or a number"
        what = "auto means as long as the training step takes, so it needs evaluation in parallel"
        yield key, what, hint
    if parallel and not get("evaluation_num_env_runners"):
        key = "evaluation.evaluation_parallel_to_training"
        what = "evaluation in parallel needs runners of its own, and evaluation_num_env_runners is 0"
        yield key, what, "set evaluation.evaluation_num_env_runners=1"


def _unmeasured(experiment: Experiment) -> Found:
    """Stop conditions on evaluations that never happen."""
    for key, limit in experiment.section("stop_conditions").items():
        if limit is not None and str(todays_metric(str(key)) or key).startswith("eval/"):
            what = "never fires: nothing is evaluated (evaluation.evaluation_interval is null)"
            dotted = f"stop_conditions.{key}"
            yield dotted, what, "set evaluation.evaluation_interval=1"


def _learning_rate(experiment: Experiment, algo: str) -> Found:
    """Algorithms with one rate per network refuse a common one."""
    if experiment.get("training.lr") is not None and default_of("training", "lr", algo) is None:
        known = entries("training", algo)
        rates = [key for key in _RATES if key in known]
        if rates:
            hint = f"set {', '.join(f'training.{rate}' for rate in rates)} instead"
            what = f"{algo} has one learning rate per network, and refuses a common one"
            yield "training.lr", what, hint


def _schedules(experiment: Experiment, _: str) -> Found:
    for key in ("lr", "entropy_coeff", "epsilon", "actor_lr", "critic_lr", "alpha_lr", "value_lr"):
        value, dotted = experiment.get(f"training.{key}"), f"training.{key}"
        if not isinstance(value, list):
            continue
        pairs = [pair for pair in value if isinstance(pair, list) and len(pair) == 2]
        if len(pairs) != len(value) or len(value) < 2:
            what, hint = f"is {value}, which is no schedule", f"write {dotted}=[[0, 1e-3], [100000, 1e-4]]"
            yield dotted, what, hint
        elif pairs[0][0] != 0:
            hint = f"begin with [0, {pairs[0][1]}]"
            what = f"a schedule begins at step 0, not {pairs[0][0]}"
            yield dotted, what, hint


def _optimizer(experiment: Experiment, algo: str) -> Found:
    settings, key = experiment.training.optimizer, "training.optimizer"
    if not isinstance(settings, dict) or not settings:
        return
    if algo in SEVERAL_NETWORKS:
        what = f"{algo} has an optimiser for each of its networks, which stay RLlib's own"
        yield key, what, f"remove it (~{key})"
        return
    yield from _only(experiment, key, ("type", *OPTIMISERS["rmsprop"]))
    kind = settings.get("type") or "adam"
    if kind not in OPTIMISERS:
        what = f"is {kind!r}, which is not one of {', '.join(OPTIMISERS)}"
        yield f"{key}.type", what, f"set {key}.type=adam"
        return
    for word in settings:
        if word != "type" and word not in OPTIMISERS[kind] and word in OPTIMISERS["rmsprop"]:
            hint = f"remove it, or set {key}.type=rmsprop"
            yield f"{key}.{word}", f"{kind} has no {word}", hint


def _exploration(experiment: Experiment, algo: str) -> Found:
    old, key = experiment.exploration.exploration_config, "exploration.exploration_config"
    kind = str(old.get("type", "EpsilonGreedy")).rpartition(".")[2] if isinstance(old, dict) and old else ""
    if kind == "EpsilonGreedy" and algo != "DQN":
        what = f"EpsilonGreedy is for DQN; {algo} explores by sampling from its policy"
        yield key, what, f"remove it (~{key}), or algo.name=DQN"
    elif kind == "SoftQ" and algo == "DQN":
        yield from _only(experiment, key, ("type", "temperature"))
        temperature = old.get("temperature", 1.0)
        if not _number(temperature) or temperature <= 0:
            what = f"is {temperature!r}, but must be a number above 0"
            yield f"{key}.temperature", what, f"for example {key}.temperature=1.0"
    elif kind not in ("", "EpsilonGreedy", "StochasticSampling"):
        hint = "write an RLModule with your own _forward_exploration (training.model.custom_model)"
        yield key, f"{kind} is gone from RLlib", hint
    elif kind == "EpsilonGreedy":
        yield from _only(experiment, key, _EPSILON_GREEDY)
        if "epsilon_timesteps" not in old:
            hint = f"add {key}.epsilon_timesteps=10000, or set training.epsilon"
            yield key, "a schedule needs epsilon_timesteps, which is not set", hint


def _only(experiment: Experiment, key: str, known: tuple[str, ...]) -> Found:
    """Keys of an inner section that nothing would read."""
    section = experiment.get(key)
    for word in section if isinstance(section, dict) else ():
        if word not in known:
            meant = did_you_mean(word, known)
            hint = f"did you mean {key}.{meant[0]}?" if meant else f"one of: {', '.join(known)}"
            yield f"{key}.{word}", "there is no such key", hint


def _replay(experiment: Experiment, _: str) -> Found:
    kind, key = experiment.get("training.replay_buffer_config.type"), "training.replay_buffer_config.type"
    if isinstance(kind, str) and kind not in BUFFERS and "." not in kind and ":" not in kind:
        what, hint = f"there is no replay buffer {kind!r}", f"one of: {', '.join(BUFFERS)}"
        yield key, what, hint
    elif kind is None or kind in BUFFERS:  # a buffer of the user's own may take more
        yield from _only(experiment, "training.replay_buffer_config", _BUFFER_KEYS)


def _policies(experiment: Experiment, _: str) -> Found:
    mapping, policies = experiment.multi_agent.mapping, experiment.multi_agent.policies
    known = set(policies) if isinstance(policies, dict | list) else set()
    if not known and isinstance(mapping, dict):
        known = set(mapping.values())
    trained, key = experiment.get("multi_agent.policies_to_train"), "multi_agent.policies_to_train"
    for policy in trained if isinstance(trained, list) and known else ():
        if policy not in known:
            hint = f"one of: {', '.join(sorted(known))}"
            yield key, f"there is no policy {policy!r}", hint


def _gpus(experiment: Experiment, _: str) -> Found:
    total, each = experiment.resources.num_gpus, experiment.get("learners.num_gpus_per_learner")
    if _number(total) and _number(each) and total and each and min(1, total) != each:
        what = f"asks for {total} GPUs, and learners.num_gpus_per_learner for {each} each"
        yield "resources.num_gpus", what, "set one of them"


def _deterministic(experiment: Experiment, algo: str) -> Found:
    key = "debugging.deterministic"
    if experiment.get(key) is not True:
        return
    for other, what, hint in _unrepeatable(experiment, algo):
        yield other, f"{what}, and {key}=true", f"{hint}, or {key}=false"


def _unrepeatable(experiment: Experiment, algo: str) -> Iterator[tuple[str, str, str]]:
    """The settings that no seed makes repeatable: key, why, what to do."""
    if algo in INEXACT:
        yield "algo.name", f"{algo} never repeats: {INEXACT[algo]}", "use PPO, DQN or SAC"
    if experiment.debugging.seed is None:
        yield "debugging.seed", "without a seed nothing repeats", "set debugging.seed=2000"
    if experiment.stop_conditions.time_total_s is not None:
        hint = "stop by stop_conditions.timesteps_total or training_iteration"
        yield "stop_conditions.time_total_s", "the clock ends the run at another step each time", hint
    if experiment.rollouts.autotune:
        hint = "set rollouts.autotune=false with what an earlier run's config.yaml says was chosen"
        yield "rollouts.autotune", "a measurement chooses how many environments there are", hint
    if experiment.get("reporting.min_time_s_per_iteration"):
        hint = "set reporting.min_sample_timesteps_per_iteration in its place"
        yield "reporting.min_time_s_per_iteration", "the clock decides how long an iteration is", hint
    if experiment.get("evaluation.evaluation_parallel_to_training"):
        hint = "set evaluation.evaluation_parallel_to_training=false"
        yield "evaluation.evaluation_parallel_to_training", "two threads take turns by chance", hint
    if experiment.get("learners.num_learners") and experiment.get("learners.num_gpus_per_learner"):
        hint = "set learners.num_learners=0, which keeps the one GPU"
        yield "learners.num_learners", "remote learners choose GPU kernels by themselves", hint
    if algo in OFFLINE and experiment.get("learners.num_learners"):
        hint = "set learners.num_learners=0"
        yield "learners.num_learners", "remote learners read recorded data as it comes", hint


_CHECKS: tuple[Callable[[Experiment, str], Found], ...] = (
    _ranges,
    _recurrent_replay,
    _minibatch,
    _fragments,
    _evaluation,
    _learning_rate,
    _schedules,
    _optimizer,
    _exploration,
    _replay,
    _policies,
    _gpus,
    _deterministic,
)
