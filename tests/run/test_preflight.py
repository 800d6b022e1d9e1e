"""What is wrong is said before any compute, all of it, with the arithmetic and the next step."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rayfish import memory
from rayfish.envs.env_kind import EnvInfo
from rayfish.errors import ConfigError
from rayfish.experiment import Experiment
from rayfish.run import preflight, resources
from rayfish.run.engine import RayOptions

TWO_CPUS = RayOptions(num_cpus=2, num_gpus=0)


@pytest.fixture(autouse=True)
def two_cpus_and_no_gpu(monkeypatch):
    """Whatever Ray other tests have running, this machine is the one judged here."""
    monkeypatch.setattr(resources, "offered", lambda options: (float(options.num_cpus or 2), 0.0))


def compose(*overrides: str, name: str | None = "cartpole") -> Experiment:
    return Experiment.compose(name, overrides)


def texts(experiment: Experiment, options: RayOptions = TWO_CPUS) -> list[str]:
    return [str(problem) for problem in preflight.check(experiment, options)]


def test_presets_are_sound():
    for name in ("cartpole", "cartpole-dqn", "pendulum"):
        assert texts(compose(name=name)) == []


def test_every_wrong_model_key_is_reported():
    words = ("training.model.num_layers=3", "training.model.activation=relu", "algo.name=DQN")
    found = preflight.check(compose(*words, "training.model.vf_share_layers=true", name="cartpole-dqn"))
    keys = ["num_layers", "activation", "vf_share_layers"]
    assert [problem.key for problem in found] == [f"training.model.{key}" for key in keys]


def test_too_many_runners_are_refused_with_the_arithmetic():
    (problem,) = texts(compose("rollouts.num_env_runners=8"))
    assert "asks for 9 CPUs: 8 env runners + 1 driver; this machine has 2" in problem
    assert "set rollouts.num_env_runners=1, or --fit" in problem


def test_fit_shrinks_to_the_machine_and_says_what_it_changed():
    wanted = compose("rollouts.num_env_runners=8", "learners.num_gpus_per_learner=1")
    fitted, notes = resources.fit(wanted, TWO_CPUS)
    assert fitted.get("rollouts.num_env_runners") == 1
    assert fitted.get("learners.num_gpus_per_learner") == 0
    assert notes == [
        "shrunk to what there is (2 CPUs, 0 GPUs): "
        "learners.num_gpus_per_learner 1 -> 0, rollouts.num_env_runners 8 -> 1"
    ]
    assert texts(fitted) == []


def test_fit_keeps_the_batch_whole_that_learners_shared():
    shares = (
        "resources.num_gpus=4", "training.train_batch_size_per_learner=1000", "training.minibatch_size=500",
    )  # fmt: skip
    fitted, _ = resources.fit(compose(*shares), TWO_CPUS)
    assert fitted.get("training.train_batch_size_per_learner") == 4000
    beside = (
        "rollouts.num_env_runners=2", "evaluation.evaluation_num_env_runners=2",
        "evaluation.evaluation_interval=1", "evaluation.evaluation_parallel_to_training=true",
    )  # fmt: skip
    fitted, _ = resources.fit(compose(*beside), TWO_CPUS)
    assert texts(fitted) == [], "no evaluation beside the training without runners for it"


def test_gpus_that_are_not_there_are_refused():
    (problem,) = texts(compose("resources.num_gpus=2"))
    assert "asks for 2 GPUs" in problem
    assert "this machine has 0" in problem


def test_every_problem_is_reported_at_once():
    found = "\n".join(
        texts(
            compose(
                "training.lrr=1e-3",
                "training.minibatch_size=9000",
                "rollouts.num_env_runners=many",
                "environment.env=CartPole-v7",
                "training.model.fcnet_hidens=[64]",
            )
        )
    )
    for part in ("training.lrr", "minibatch_size", "num_env_runners", "CartPole-v7", "fcnet_hidens"):
        assert part in found, part


def test_spaces_an_algorithm_cannot_take_are_named():
    (problem,) = texts(compose("algo.name=DQN", "environment.env=Pendulum-v1", name=None))
    assert "DQN" in problem
    assert "Box" in problem


def test_require_raises_with_all_problems():
    with pytest.raises(ConfigError) as caught:
        preflight.require(compose("training.lrr=1", "environment.env=Nope-v0"), TWO_CPUS)
    assert len(caught.value.problems) >= 2


def test_offline_algorithms_ask_for_their_data():
    found = texts(compose("algo.name=BC", "environment.env=CartPole-v1", name=None))
    assert any("offline_data.input_" in text for text in found)


def test_a_metric_that_is_never_reported_is_no_measure_of_the_best():
    (problem,) = texts(compose("checkpoint.checkpoint_score_attribute=rolout/return_mean"))
    assert "rollout/return_mean" in problem


def test_a_learner_on_a_gpu_needs_no_cpu_of_its_own():
    asked = resources.requests(compose("learners.num_learners=1", "learners.num_gpus_per_learner=1"))
    assert resources.cpus_of(asked) == 1
    assert resources.gpus_of(asked) == 1


def test_fit_names_wrong_types_before_it_calculates():
    with pytest.raises(ConfigError, match="num_env_runners"):
        resources.fit(compose("rollouts.num_env_runners=many"), TWO_CPUS)


def test_a_missing_optional_package_names_its_extra(monkeypatch):
    monkeypatch.setattr(preflight.importlib.util, "find_spec", lambda name: None)
    (problem,) = preflight._extra_problems(compose("algo.name=DreamerV3", name=None))
    assert "pillow" in str(problem)
    assert "rayfish[dreamer]" in str(problem)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("training.replay_buffer_config.capcity=100", "capacity"),
        ("exploration.exploration_config.epsilon_timestep=100", "epsilon_timesteps"),
    ],
)
def test_a_typo_inside_an_inner_section_is_not_accepted_in_silence(word, meant):
    found = "\n".join(texts(compose(word, name="cartpole-dqn")))
    assert word.partition("=")[0] in found
    assert meant in found


BROKEN_MODELS = """
import torch
from torch import nn
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule

class Plain(nn.Module):
    def __init__(self, obs_space, num_outputs, **kwargs):
        super().__init__()
        self.layer = nn.Linear(obs_space.shape[7], num_outputs)

class Narrow(nn.Module):
    def __init__(self, obs_space, num_outputs, **kwargs):
        super().__init__()
        self.layer = nn.Linear(3, num_outputs)

    def forward(self, obs):
        return self.layer(obs)

class Module(TorchRLModule):
    def setup(self):
        self.layer = nn.Linear(self.observation_space.shape[0], self.model_config["width"])
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Plain", "tuple index out of range"),
        ("Narrow", "failed on a batch of two observations"),
        ("Module", "KeyError: 'width'"),
    ],
)
def test_a_custom_model_that_cannot_be_built_is_found_by_the_check(workdir, name, said):
    (workdir / f"broken_{name}.py").write_text(BROKEN_MODELS)
    (problem,) = preflight.check(compose(f"training.model.custom_model=broken_{name}.py:{name}"), TWO_CPUS)
    assert problem.key == "training.model.custom_model"
    assert said in problem.what


def test_a_batch_of_ppos_size_gets_a_remark_where_every_update_learns_from_it():
    key = "training.train_batch_size_per_learner"
    [remark] = preflight.remarks(compose(f"{key}=1500", name="pendulum"))
    assert f"{key}=1500" in remark and "256 is usual" in remark
    assert preflight.remarks(compose(f"{key}=512", name="pendulum")) == []
    assert preflight.remarks(compose(f"{key}=1500")) == []


WIDE = gym.spaces.Box(-1.0, 1.0, (3000,), np.float32)
REPLAY = "training.replay_buffer_config.capacity"


def replaying(*words: str, agents: int = 1, **more: str) -> tuple[Experiment, EnvInfo]:
    """SAC on an environment with 3000 floats (12,000 bytes) per agent."""
    names = tuple(f"agent_{number}" for number in range(agents))
    action = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    info = EnvInfo(
        name="wide", kind="single" if agents == 1 else "multi", agents=names,
        observation_spaces=dict.fromkeys(names, WIDE), action_spaces=dict.fromkeys(names, action), **more,
    )  # fmt: skip
    return compose(*words, name="pendulum"), info


@pytest.mark.parametrize(
    ("words", "agents", "size"),
    [
        ((), 1, "1.3 GB (100,000 steps of 12,798 bytes)"),
        (("rollouts.runner=rllib",), 1, "1.3 GB (100,000 steps of 13,008 bytes)"),
        (("training.replay_buffer_config.type=EpisodeReplayBuffer",), 1, "1.3 GB"),
        (("rollouts.runner=rllib",), 3, "3.9 GB (100,000 steps of 39,024 bytes)"),
    ],
)
def test_a_replay_buffer_that_will_not_fit_is_reported_before_the_run(monkeypatch, words, agents, size):
    monkeypatch.setattr(resources, "memory", lambda: (1.0e9, 4.0e9))
    [remark] = preflight.remarks(*replaying(*words, f"{REPLAY}=100000", agents=agents))
    assert f"grows to {size}" in remark
    assert "1 GB of 4 GB memory are free; set training.replay_buffer_config.capacity=" in remark
    fitting = int(remark.rpartition("=")[2])
    assert preflight.remarks(*replaying(*words, f"{REPLAY}={fitting}", agents=agents)) == []


def test_a_replay_buffer_counts_no_step_after_the_end_of_the_run(monkeypatch):
    monkeypatch.setattr(resources, "memory", lambda: (1.0e9, 4.0e9))
    stop = "stop_conditions.timesteps_total"
    assert preflight.remarks(*replaying(f"{REPLAY}=1000000", f"{stop}=50000")) == []
    assert preflight.remarks(*replaying(f"{REPLAY}=1000000", f"{stop}=90000")) != []


def test_memory_is_that_of_the_container(tmp_path):
    v2, v1 = tmp_path / "user" / "job", tmp_path / "memory" / "job"
    for folder in (v2, v1):
        folder.mkdir(parents=True)
    (v2 / "memory.max").write_text("max\n")
    (v2.parent / "memory.max").write_text("8000\n")
    (v2.parent / "memory.current").write_text("3000\n")
    (v2.parent / "memory.stat").write_text("anon 1\ninactive_file 1000\n")
    (v1 / "memory.limit_in_bytes").write_text("6000\n")
    (v1 / "memory.usage_in_bytes").write_text("500\n")
    (v1 / "memory.stat").write_text("total_inactive_file 100\n")
    own = tmp_path / "own"
    own.write_text("0::/user/job\n")
    assert list(memory._container_limits(str(tmp_path), str(own))) == [(8000.0, 2000.0)]
    own.write_text("5:cpu:/job\n4:memory:/job\n0::/\n")
    assert list(memory._container_limits(str(tmp_path), str(own))) == [(6000.0, 400.0)]
    free, total = resources.memory()
    assert 0 < free <= total
