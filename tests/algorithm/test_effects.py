"""Every key that an experiment may set has a reader, once per algorithm and runner, or is refused."""

from __future__ import annotations

import ast
import fnmatch
import functools
import importlib
import inspect
import textwrap

import gymnasium as gym
import numpy as np
import pytest
import torch

from rayfish import Experiment
from rayfish.algorithm.batched import eligibility
from rayfish.algorithm.build import config_class
from rayfish.algorithm.keys import ELSEWHERE, all_problems, remarks
from rayfish.algorithm.module import MODULES, module_spec
from rayfish.algorithm.signatures import entries
from rayfish.algorithm.unused_keys import DEAD_FOR, DEAD_KEYS, NEEDS, is_dead
from rayfish.envs.env_kind import EnvInfo
from rayfish.experiment.sections import ALGORITHMS, METHODS, OFFLINE, SECTIONS
from rayfish.legacy.hydra_keys import is_old
from rayfish.models.check import section_problems
from rayfish.models.options import NEEDS as MODEL_NEEDS
from rayfish.models.options import ONLY_FOR, OPTIONS

# Methods of RLlib that store settings, check them, or belong to its old stack.
SETTERS = {
    "__init__",
    "training",
    *METHODS.values(),
    "rl_module",
    "experimental",
    "checkpointing",
    "api_stack",
}
NOT_READERS = {
    *(
        "compute_single_action",
        "compute_actions",
        "__getstate__",
        "__setstate__",
        "_serialize_dict",
        "to_dict",
    ),
    *("_sync_filters_if_needed", "_get_env_id_and_creator", "get_torch_compile_worker_config"),
    *("default_resource_request", "_get_main_process_bundle"),
}
RENAMED = {  # keys that RLlib stores under another name
    "learners.learner_connector": "_learner_connector",
    "rollouts.env_to_module_connector": "_env_to_module_connector",
    "rollouts.module_to_env_connector": "_module_to_env_connector",
    "evaluation.dataset_num_iters_per_offline_eval_runner": "dataset_num_iters_per_eval_runner",
    "framework.framework": "framework_str",
}
READ_ELSEWHERE = {
    "learners.local_gpu_idx": "ray.rllib.utils.framework",
    "learners.learner_config_dict": "the user's own learner",
    "evaluation.validate_offline_eval_runners_after_construction": "OfflineEvaluationRunnerGroup",
    "offline_data.input_read_schema": "ray.rllib.offline.offline_prelearner",
    "fault_tolerance.restart_failed_sub_environments": "rayfish.envs.restarts",
    "resources.num_cpus_for_main_process": "rayfish.run.resources",
    "reporting.metrics_num_episodes_for_smoothing": "rayfish.run.trainer",
}
# With these the batched runner is not taken (`fitting.reasons`), or it reads the experiment itself.
RLLIBS_RUNNER = {"rollouts.batch_mode", "rollouts.gym_env_vectorize_mode", *eligibility._CONNECTORS}


@functools.cache
def names_in(function):
    """(names that a function reads or calls, whether it calls the method it overrides)."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return set(), set(), False
    read, called, inherits = set(), set(), False
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            read.add(node.attr)
        elif isinstance(node, ast.Name):
            called.add(node.id)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            read.add(str(node.slice.value))
        elif isinstance(node, ast.Call):
            read |= {
                a.value for a in node.args[:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)
            }
            inherits |= getattr(node.func, "id", "") == "super"
    return read, called, inherits


def methods_of(cls):
    """The methods that an instance runs: not those that are overridden without a call of super()."""
    done = set()
    for base in cls.__mro__:
        if not base.__module__.startswith(("ray.rllib", "rayfish")):
            continue
        for name, member in vars(base).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if inspect.isfunction(function) and name not in done:
                function = inspect.unwrap(function)
                yield name, function
                if not names_in(function)[2]:
                    done.add(name)


def is_reader(name):
    old = "old_api_stack" in name or "old_and_hybrid" in name
    return not old and name not in NOT_READERS and not name.startswith(("validate", "_validate"))


def read_by(config, classes):
    """Every name that is read where training leads: public methods, and what they call."""
    pool = {}
    for cls in classes:
        for name, function in methods_of(cls):
            pool.setdefault(name, set()).add(function)
    for name, function in methods_of(config):
        if name not in SETTERS:
            pool.setdefault(name, set()).add(function)
    modules = {base.__module__ for cls in (*classes, config) for base in cls.__mro__}
    functions = {}
    for module in [m for m in modules if m.startswith(("ray.rllib", "rayfish"))] + [
        "ray.rllib.algorithms.utils"
    ]:
        for name, function in vars(importlib.import_module(module)).items():
            if inspect.isfunction(function) and function.__module__ == module:
                functions.setdefault(name, set()).add(function)
    public = [
        f for name, found in pool.items() if not name.startswith("_") and is_reader(name) for f in found
    ]
    todo = public + [
        f for name in ("__init__", "__enter__", "__call__", "_setup") for f in pool.get(name, ())
    ]
    done, found = set(), set()
    while todo:
        function = todo.pop()
        if function in done:
            continue
        done.add(function)
        read, called, _ = names_in(function)
        found |= read
        for name in filter(is_reader, read | called):
            todo += [*functions.get(name, ()), *(pool.get(name, ()) if name in read else ())]
    return found


def shared_classes():
    from ray.rllib.algorithms.algorithm import TrainIterCtx
    from ray.rllib.core.learner.learner_group import LearnerGroup
    from ray.rllib.env.env_runner_group import EnvRunnerGroup

    from rayfish.algorithm.callbacks import EpisodeReport

    return (EnvRunnerGroup, LearnerGroup, TrainIterCtx, EpisodeReport)


def rllibs_classes(algo):
    from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
    from ray.rllib.offline import offline_env_runner, offline_evaluation_runner, offline_prelearner
    from ray.rllib.offline import offline_evaluation_runner_group as group
    from ray.rllib.offline import offline_policy_evaluation_runner as evaluation

    from rayfish.algorithm.offline_data import RecordedData

    config = config_class(algo)()
    learner = config.get_default_learner_class()
    module = MODULES.get(algo) or config.get_default_rl_module_spec().module_class
    runners = (SingleAgentEnvRunner, MultiAgentEnvRunner, offline_env_runner.OfflineSingleAgentEnvRunner)
    offline = (
        RecordedData,
        offline_prelearner.OfflinePreLearner,
        offline_evaluation_runner.OfflineEvaluationRunner,
        group.OfflineEvaluationRunnerGroup,
        evaluation.OfflinePolicyEvaluationRunner,
        evaluation.OfflinePolicyPreEvaluator,
    )
    return (
        learner,
        config.algo_class,
        module,
        *runners,
        *shared_classes(),
        *(offline if algo in OFFLINE else ()),
    )


def batched_classes(algo):
    from rayfish.algorithm.batched import algorithms, learner
    from rayfish.algorithm.batched.runner import BatchedEnvRunner

    config = config_class(algo)()
    learns, runs = config.get_default_learner_class(), config.algo_class
    if algo in ("PPO", "DQN", "SAC"):
        learns, runs = getattr(learner, f"Batched{algo}Learner"), getattr(algorithms, f"Batched{algo}")
    return (learns, runs, MODULES[algo], BatchedEnvRunner, *shared_classes())


def accepted(algo):
    """RLlib's keys that an experiment of an algorithm may set, other than those that Rayfish translates."""
    for section in METHODS:
        for key in entries(section, algo):
            dotted = f"{section}.{key}"
            if key not in SECTIONS[section].own and not is_dead(dotted, algo) and not is_old(dotted):
                yield dotted


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_accepted_key_has_a_reader(algo):
    read = read_by(config_class(algo), rllibs_classes(algo))
    known = {dotted: RENAMED.get(dotted, dotted.partition(".")[2]) for dotted in accepted(algo)}
    assert len(known) > 60
    unread = [dotted for dotted, name in known.items() if name not in read and dotted not in READ_ELSEWHERE]
    assert unread == []


@pytest.mark.parametrize("algo", eligibility.ALGORITHMS)
def test_every_accepted_key_has_a_reader_with_the_batched_runner(algo):
    read = read_by(config_class(algo), batched_classes(algo))
    for dotted in accepted(algo):
        name = RENAMED.get(dotted, dotted.partition(".")[2])
        rllibs = dotted in RLLIBS_RUNNER or dotted.startswith(("offline_data.output_", "callbacks.on_"))
        assert rllibs or name in read or dotted in READ_ELSEWHERE, dotted


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_keys_without_effect_are_refused_and_never_suggested(algo):
    dead = [f"{s}.{k}" for s in METHODS for k in entries(s, algo) if is_dead(f"{s}.{k}", algo)]
    assert dead
    words = [f"algo.name={algo}", "environment.env=CartPole-v1"]
    experiment = Experiment.compose(None, words).with_values(dict.fromkeys(dead, "other"), "test")
    found = {problem.key: problem for problem in all_problems(experiment)}
    assert {dotted for dotted in dead if "has no effect" not in found[dotted].what} == set()
    for dotted in dead:
        words = found[dotted].hint.replace(",", " ").replace(";", " ").split()
        assert not [word for word in words if word in DEAD_KEYS]
        assert dotted in DEAD_KEYS or not [word for word in words if is_dead(word, algo)]


def test_lists_of_keys_without_effect_name_keys_that_exist():
    for dotted, (algorithms, _) in DEAD_FOR.items():
        section, _, key = dotted.partition(".")
        assert algorithms and set(algorithms) < set(ALGORITHMS) and dotted not in DEAD_KEYS
        known = {*SECTIONS[section].own}.union(*(entries(section, algo) for algo in algorithms))
        assert fnmatch.filter(known, key), dotted
    needed = [one for target in NEEDS.values() for one in target.split("|")]
    targets = [target.partition("=")[0].partition(">")[0] for target in (*needed, *ELSEWHERE.values())]
    for dotted in targets:
        section, key = dotted.split(".")[:2]
        known = {*entries(section), *SECTIONS[section].own}
        assert key in known and dotted not in DEAD_KEYS, dotted


IMAGES = gym.spaces.Dict(
    {"image": gym.spaces.Box(0, 255, (32, 32, 3), np.uint8), "speed": gym.spaces.Box(-1, 1, (3,), np.float32)}
)
ACTIONS = {"DQN": gym.spaces.Discrete(3)}
OTHER = {
    "fcnet_hiddens": [8],
    "head_fcnet_hiddens": [8],
    "fusionnet_hiddens": [8],
    "conv_filters": [[4, 4, 4], [8, 4, 4]],
    "lstm_cell_size": 8,
    "max_seq_len": 5,
    "log_std_clip_param": 1.0,
}
# The network is the same with them: they are read by connectors, or while it runs.
NOT_SEEN = {"max_seq_len", "custom_model", "custom_model_config"}


def other(key):
    option = OPTIONS[key]
    if key.endswith("_kwargs"):
        return {"gain": 2.0} if "kernel" in key else {"val": 2.0}
    if key in OTHER:
        return OTHER[key]
    if option.type == "bool":
        return True
    return "silu" if "activation" in key else "xavier_normal_" if "kernel" in key else "ones_"


def network(algo, model):
    spec = module_spec(algo, model)
    spec.observation_space, spec.action_space = IMAGES, ACTIONS.get(algo, gym.spaces.Box(-1, 1, (2,)))
    config = config_class(algo)()
    spec.model_config = {**config._model_config_auto_includes, **spec.model_config}
    torch.manual_seed(0)
    module = spec.build()
    clips = [getattr(part, "clip", None) for part in module.modules()]
    weights = {name: weight.double().sum().item() for name, weight in module.state_dict().items()}
    return str(module), weights, clips


def base_for(key):
    """A model section in which a key has an effect, as `NEEDS` says."""
    needed = MODEL_NEEDS.get(key)
    if needed is None:
        return {}
    if needed.endswith("_initializer"):
        name = "xavier_normal_" if "kernel" in needed else "constant_"
        base = {needed: name, key: {"gain": 1.0} if "kernel" in needed else {"val": 1.0}}
        return {**base_for(needed), **base}
    return {needed: OPTIONS[needed].default or other(needed)}


@pytest.mark.parametrize("algo", MODULES)
def test_every_model_key_changes_the_network_or_is_refused(algo):
    for key in OPTIONS.keys() - NOT_SEEN:
        base = base_for(key)
        if section_problems(base, algo) or section_problems({**base, key: other(key)}, algo):
            lstm = "use_lstm" in (key, *base)
            assert lstm or algo not in ONLY_FOR.get(key, ((algo,), ""))[0], key
            continue
        small = {"fcnet_hiddens": [16], "head_fcnet_hiddens": [4], **base} if key != "fcnet_hiddens" else base
        assert network(algo, {**small, key: other(key)}) != network(algo, small), key


def test_dreamer_refuses_every_model_key():
    for key in OPTIONS.keys() - NOT_SEEN:
        (problem,) = section_problems({key: other(key)}, "DreamerV3")
        assert problem.key == f"training.model.{key}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["training.model.lstm_cell_size=64"], "unless training.model.use_lstm is set"),
        (["training.model.head_fcnet_activation=tanh"], "unless training.model.head_fcnet_hiddens is set"),
        (["evaluation.evaluation_duration=5"], "unless evaluation.evaluation_interval is set"),
        (["training.grad_clip_by=norm"], "unless training.grad_clip is set"),
        (["training.use_kl_loss=false", "training.kl_target=0.1"], "unless training.use_kl_loss=true"),
        (["algo.name=DQN", "training.v_min=-1"], "unless training.num_atoms>1"),
        (
            ["algo.name=SAC", "training.replay_buffer_config={type: EpisodeReplayBuffer, alpha: 0.3}"],
            "unless training.replay_buffer_config.type=Prioritized",
        ),
        (["cluster.name=big"], "--on ADDRESS"),
        (["rollouts.num_cpus_per_env_runner=2"], "unless rollouts.num_env_runners or evaluation."),
        (["algo.name=APPO", "training.simple_queue_size=3"], "unless training.use_circular_buffer=false"),
        (["training.model.custom_model_config={a: 1}"], "custom_model_config has no effect unless"),
        (["training.model.fcnet_bias_initializer_kwargs={val: 2}"], "kwargs has no effect unless"),
        (["learners.learner_config_dict={a: 1, b: 2}"], "learner_config_dict has no effect unless learners."),
    ],
)
def test_a_key_that_another_one_keeps_without_effect_is_remarked(words, said):
    found = remarks(Experiment.compose(None, ["environment.env=CartPole-v1", "algo.name=PPO", *words]))
    assert len([remark for remark in found if said in remark]) == 1, found


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("training.model.conv_activation=tanh", "no observation is an image"),
        ("training.model.conv_filters=[[16,4,2]]", "no observation is an image"),
        ("training.model.free_log_std=true", "no action is a Box"),
        ("training.model.log_std_clip_param=2.0", "no action is a Box"),
        ("environment.clip_actions=true", "no action is a Box"),
    ],
)
def test_a_key_that_the_spaces_keep_without_effect_is_remarked(word, said):
    experiment = Experiment.compose(None, ["environment.env=CartPole-v1", "algo.name=PPO", word])
    key = word.partition("=")[0]
    assert f"{key} has no effect: {said}" in remarks(experiment, info_of("vector", gym.spaces.Discrete(2)))
    assert remarks(experiment, info_of("image", gym.spaces.Box(-1, 1, (2,)))) == []


def test_a_custom_model_may_read_every_model_key():
    words = ["training.model.custom_model=mine.py:Mine", "training.model.conv_activation=tanh"]
    experiment = Experiment.compose(None, ["environment.env=CartPole-v1", "algo.name=PPO", *words])
    assert remarks(experiment, info_of("vector", gym.spaces.Discrete(2))) == []


def info_of(kind, actions):
    shape = (32, 32, 3) if kind == "image" else (4,)
    observations = {"agent": gym.spaces.Box(0, 255, shape, np.uint8)}
    return EnvInfo("Env", "single", ("agent",), observations, {"agent": actions})


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["training.model.use_lstm=true", "training.model.lstm_cell_size=64"],
        ["evaluation.evaluation_interval=1", "evaluation.evaluation_duration=5"],
        ["algo.name=DQN", "training.num_atoms=51", "training.v_min=-1"],
        ["training.model.lstm_cell_size=256"],
        ["algo.name=DQN", "training.replay_buffer_config.alpha=0.3"],
        ["rollouts.num_env_runners=1", "rollouts.num_cpus_per_env_runner=2"],
    ],
)
def test_keys_with_an_effect_get_no_remark(words):
    experiment = Experiment.compose(None, ["environment.env=CartPole-v1", "algo.name=PPO", *words])
    assert [remark for remark in remarks(experiment) if "no effect" in remark] == []


def test_a_saved_experiment_gets_the_remarks_of_its_own_keys_only(tmp_path):
    words = ["environment.env=CartPole-v1", "algo.name=PPO", "training.model.lstm_cell_size=64"]
    Experiment.compose(None, words).save(tmp_path / "config.yaml")
    found = [line for line in remarks(Experiment.load(tmp_path / "config.yaml")) if "no effect" in line]
    assert found == ["training.model.lstm_cell_size has no effect unless training.model.use_lstm is set"]
