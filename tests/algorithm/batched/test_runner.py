"""The batched runner within RLlib: which experiments it takes, and that its checkpoints are everyone's."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from pettingzoo import ParallelEnv
from ray.rllib.callbacks.callbacks import RLlibCallback

import rayfish
from rayfish.algorithm.adapters import ParallelAdapter
from rayfish.algorithm.batched.actors import ActorCriticActor
from rayfish.algorithm.batched.algorithms import for_learners
from rayfish.algorithm.batched.eligibility import AGENTS, NATIVE, STACKED, fit
from rayfish.algorithm.batched.gpu_sampler import ResidentSampler, ResidentVector
from rayfish.algorithm.batched.rollout import Rollout
from rayfish.algorithm.batched.runner import BatchedEnvRunner
from rayfish.algorithm.batched.sampler import Sampler
from rayfish.algorithm.contradictions import note_on_batch
from rayfish.algorithm.normalise import NormalizeObservations
from rayfish.envs.agents import AgentsVector
from rayfish.errors import EnvironmentFault
from rayfish.experiment import Experiment
from rayfish.experiment.imports import load_object
from rayfish.models.build import actor_critic
from rayfish.models.options import resolve
from rayfish.run import preflight
from tests.helpers import ROOT

SMALL = (
    "algo.name=PPO",
    "rollouts.num_envs_per_env_runner=4",
    "training.train_batch_size_per_learner=128",
    "training.minibatch_size=32",
    "training.num_epochs=1",
    "training.model.fcnet_hiddens=[8]",
)
HERE = "tests.algorithm.batched.test_runner"


class Parts(gym.Env):
    """Nested observations, several choices at once."""

    observation_space = gym.spaces.Dict(
        {
            "place": gym.spaces.Box(-1, 1, (2,), np.float32),
            "kind": gym.spaces.Discrete(3),
            "image": gym.spaces.Box(0, 255, (16, 16, 1), np.uint8),
            "flags": gym.spaces.MultiDiscrete([2, 3]),
        }
    )
    action_space = gym.spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t >= 7, False, {"metrics": {"seven": self.t}}


class Couple(ParallelEnv):
    """Two agents that are paid for doing what they see; one of them leaves early."""

    metadata = {"name": "couple"}  # noqa: RUF012
    possible_agents = ("left", "right")

    def observation_space(self, agent):
        return gym.spaces.Box(0, 1, (2,), np.float32)

    def action_space(self, agent):
        return gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed) if seed is not None else getattr(self, "rng", None)
        self.t, self.agents = 0, list(self.possible_agents)
        return self.look(), {agent: {} for agent in self.agents}

    def look(self):
        self.shown = {agent: int(self.rng.integers(2)) for agent in self.agents}
        return {agent: np.eye(2, dtype=np.float32)[shown] for agent, shown in self.shown.items()}

    def step(self, actions):
        self.t += 1
        rewards = {agent: float(actions[agent] == self.shown[agent]) for agent in actions}
        ends = {agent: agent == "right" and self.t == 4 for agent in actions}
        cut = dict.fromkeys(actions, self.t == 6)
        obs = self.look()
        self.agents = [agent for agent in self.agents if not (ends[agent] or cut[agent])]
        return obs, rewards, ends, cut, {agent: {} for agent in actions}


class Watching(RLlibCallback):
    def on_episode_end(self, **kwargs):
        pass


class Quiet(RLlibCallback):
    def on_train_result(self, *, result, **kwargs):
        result["seen"] = True


def chosen(*words: str):
    experiment = Experiment.compose(None, [*SMALL, *words])
    _, info = preflight.inspect(experiment)
    return fit(experiment, info)


@pytest.mark.parametrize(
    ("words", "vector"),
    [
        (("environment.env=CartPole-v1",), NATIVE),
        (("environment.env=CartPole-v1", "rollouts.gym_env_vectorize_mode=sync"), STACKED),
        (("environment.env=CartPole-v1", "environment.observe_last_action=true"), STACKED),
        (("environment.env=Pendulum-v1", "algo.name=IMPALA", "~training.minibatch_size"), STACKED),
        ((f"environment.env={HERE}:Parts",), STACKED),
        ((f"callbacks.callbacks_class={HERE}:Quiet", "environment.env=CartPole-v1"), NATIVE),
        ((f"environment.env={HERE}:Couple",), AGENTS),
        (("environment.env=CartPole-v1", "learners.add_default_connectors_to_learner_pipeline=true"), NATIVE),
    ],
)
def test_what_fits_is_taken(words, vector):
    found = chosen(*words)
    assert found.batched, found.why
    assert found.vector == vector


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("algo.name=TQC", "environment.env=Pendulum-v1"), "TQC has RLlib's own way"),
        (("rollouts.batch_mode=complete_episodes",), "whole episodes"),
        ((f"callbacks.callbacks_class={HERE}:Watching",), "on_episode_end of Watching"),
        (("rollouts.runner=rllib",), "rollouts.runner=rllib"),
        (("training.use_critic=false",), "without a critic"),
        (
            ("rollouts.add_default_connectors_to_env_to_module_pipeline=false",),
            "rollouts.add_default_connectors_to_env_to_module_pipeline=false",
        ),
        (
            ("rollouts.add_default_connectors_to_module_to_env_pipeline=false",),
            "module_to_env_pipeline=false",
        ),
        (("learners.add_default_connectors_to_learner_pipeline=false",), "to_learner_pipeline=false"),
    ],
)
def test_what_does_not_fit_says_why(words, why):
    more = (
        words if any("environment.env" in word for word in words) else ("environment.env=CartPole-v1", *words)
    )
    found = chosen(*more)
    assert found.runner == "rllib"
    assert why in found.why


def test_batched_that_does_not_fit_is_a_problem_with_its_reason():
    words = (
        "environment.env=CartPole-v1",
        "rollouts.runner=batched",
        "rollouts.batch_mode=complete_episodes",
    )
    problems, _ = preflight.inspect(Experiment.compose(None, [*SMALL, *words]))
    assert [problem.key for problem in problems] == ["rollouts.runner"]
    assert "whole episodes" in problems[0].what


def test_every_learner_gets_a_share_of_the_slots():
    def rollout(slots):
        rows = torch.arange(3 * slots, dtype=torch.float32).view(3, slots)
        none = torch.zeros(3, slots, dtype=torch.bool)
        ends = torch.tensor([slots, 2 * slots - 1])  # in the second step, of the first and the last slot
        return Rollout(rows, rows, rows, none, none, None, rows[0], ends, ends.float())

    class Algorithm:
        config = SimpleNamespace(num_learners=3)

    given = for_learners(Algorithm(), [rollout(1), rollout(1), rollout(5)])
    shares = given["batches"]
    assert [sum(part.shape[1] for part in share) for share in shares] == [2, 2, 3]
    assert given["largest_share"] == 9
    assert torch.cat([part.rewards[0] for share in shares for part in share]).tolist() == [
        0,
        0,
        0,
        1,
        2,
        3,
        4,
    ]
    last = shares[2][0]
    assert last.final_index.tolist() == [1 * 3 + 2]
    assert last.final_obs.tolist() == [9.0]


def test_learners_share_rollouts_of_different_lengths_by_their_steps():
    def rollout(steps, slots):
        rows = torch.zeros(steps, slots)
        none = torch.zeros(steps, slots, dtype=torch.bool)
        return Rollout(
            rows, rows, rows, none, none, None, rows[0], torch.zeros(0, dtype=torch.int64), rows[:0, 0]
        )

    algorithm = SimpleNamespace(config=SimpleNamespace(num_learners=2, minibatch_size=4))
    shares = for_learners(algorithm, [rollout(60, 8), rollout(5, 8)])["batches"]
    assert [sum(len(part) for part in share) for share in shares] == [240, 280]
    shares = for_learners(algorithm, [rollout(60, 1), rollout(5, 1)])["batches"]
    assert [sum(len(part) for part in share) for share in shares] == [60, 5]


def test_a_batch_has_the_steps_that_were_asked_for_however_many_slots_only_reset(ray_session):
    words = ("environment.env=CartPole-v1", "rollouts.horizon=1", "rollouts.num_envs_per_env_runner=8")
    with rayfish.Trainer(None, *SMALL, *words, "training.train_batch_size_per_learner=1000") as trainer:
        assert trainer.step()["run/env_steps"] == 1000
        assert 2000 <= trainer.step()["run/env_steps"] < 2008


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (
            ("training.train_batch_size_per_learner=2", "rollouts.num_envs_per_env_runner=8"),
            "a batch of 2 with 8 environments: each update trains on 8 steps (one step of every environment)",
        ),
        (
            ("training.train_batch_size_per_learner=1000", "rollouts.num_envs_per_env_runner=3"),
            "a batch of 1000 with 3 environments: each update trains on 1002 steps "
            "(334 steps of every environment)",
        ),
        (("training.train_batch_size_per_learner=1000", "rollouts.num_envs_per_env_runner=8"), ""),
        (("algo.name=DQN", "~training.minibatch_size", "~training.num_epochs"), ""),
    ],
)
def test_a_batch_that_the_environments_do_not_divide_is_stated(words, note):
    experiment = Experiment.compose(None, [*SMALL, "environment.env=CartPole-v1", *words])
    assert note_on_batch(experiment) == note


def test_a_policy_that_does_not_explore_learns_too(ray_session):
    words = ("environment.env=CartPole-v1", "exploration.explore=false")
    with rayfish.Trainer(None, *SMALL, *words) as trainer:
        assert isinstance(trainer.algorithm.env_runner, BatchedEnvRunner)
        assert not trainer.algorithm.env_runner.policy.training
        assert np.isfinite(trainer.step()["learn/default_policy/total_loss"])


@pytest.mark.parametrize(
    "words",
    [
        (f"environment.env={HERE}:Parts",),
        (f"environment.env={HERE}:Parts", "training.model.use_lstm=true", "training.model.lstm_cell_size=8"),
        ("environment.env=Pendulum-v1", "rollouts.observation_filter=MeanStdFilter"),
    ],
    ids=["nested", "memory", "normalised"],
)
def test_it_trains_reports_and_evaluates(words, ray_session):
    more = ("evaluation.evaluation_interval=1", "evaluation.evaluation_duration=3", "rollouts.horizon=20")
    with rayfish.Trainer(None, *SMALL, *words, *more) as trainer:
        assert isinstance(trainer.algorithm.env_runner, BatchedEnvRunner)
        trainer.step()
        metrics = trainer.step()
    assert metrics["run/env_steps"] == 256
    assert metrics["eval/episodes"] == 3
    assert np.isfinite(metrics["learn/default_policy/total_loss"])
    if "Parts" in words[0]:
        assert metrics["env/seven"] == 7
        assert metrics["rollout/length_mean"] == metrics["rollout/return_mean"] == 7


@pytest.mark.parametrize(("runner", "evaluators"), [("batched", 1), ("rllib", 0)])
def test_evaluation_normalises_with_the_statistics_of_the_training_just_done(runner, evaluators, ray_session):
    words = (
        "environment.env=CartPole-v1",
        "rollouts.observation_filter=MeanStdFilter",
        "rollouts.num_env_runners=1",
        "evaluation.evaluation_interval=1",
        "evaluation.evaluation_duration=1",
        f"evaluation.evaluation_num_env_runners={evaluators}",
        f"rollouts.runner={runner}",
    )
    with rayfish.Trainer(None, *SMALL, *words) as trainer:
        for _ in range(2):
            trainer.step()
            [trained] = trainer.algorithm.env_runner_group.foreach_env_runner(
                _statistics, local_env_runner=False
            )
            evaluated = trainer.algorithm.eval_env_runner_group.foreach_env_runner(_statistics)
            np.testing.assert_array_equal(evaluated[-1], trained)
            leaves = trainer.policy_parts()["normaliser"]["default_policy"]["leaves"]
            np.testing.assert_array_equal([leaves[0]["mean"], leaves[0]["std"]], trained)


def _statistics(runner):
    [piece] = [piece for piece in runner._env_to_module.connectors if hasattr(piece, "statistics")]
    leaves = piece.statistics().get("default_policy", {"leaves": [{"mean": 0, "std": 0}]})["leaves"]
    return [leaves[0]["mean"], leaves[0]["std"]]


class Late(Couple):
    """Sees fives only; the agent on the right joins two steps late."""

    def reset(self, seed=None, options=None):
        self.t, self.agents = 0, ["left"]
        return self.look(), {}

    def look(self):
        return {agent: np.full(2, 5, np.float32) for agent in self.agents}

    def step(self, actions):
        self.t += 1
        self.agents = ["left", "right"][: 1 + (self.t >= 2)]
        obs, over = self.look(), self.t == 5
        self.agents = [] if over else self.agents
        return obs, dict.fromkeys(obs, 1.0), dict.fromkeys(obs, over), dict.fromkeys(obs, False), {}


def test_blank_rows_of_absent_agents_do_not_enter_the_normaliser():
    vector = AgentsVector([ParallelAdapter(Late()), ParallelAdapter(Late())], "shared")
    net = actor_critic(vector.observation_space, vector.action_space, resolve({}), critic=True)
    piece = NormalizeObservations(vector.observation_space, vector.action_space)
    sampler = Sampler(vector, ActorCriticActor(net, vector.action_space))
    sampler.normalise = lambda obs, new: piece.batch("shared", obs, new)
    sampler.reset(0)
    rollout = sampler.collect(20)
    assert not rollout.valid.all(), "no agent was ever away"
    [leaf] = piece.statistics()["shared"]["leaves"]
    assert leaf["mean"].tolist() == [5.0, 5.0]


def test_a_compiled_network_learns_what_it_learns_uncompiled(ray_session):
    words = ("environment.env=CartPole-v1", "training.model.use_lstm=true", "training.model.lstm_cell_size=8")
    compiled = (
        "framework.torch_compile_learner=true",
        "framework.torch_compile_learner_dynamo_backend=eager",
    )
    losses = []
    for more in ((), compiled):
        with rayfish.Trainer(None, *SMALL, *words, *more) as trainer:
            losses.append(trainer.step()["learn/default_policy/total_loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_several_agents_learn_as_one_batch(ray_session):
    words = ("training.lr=0.02", "training.num_epochs=4", "rollouts.num_envs_per_env_runner=8")
    with rayfish.Trainer(None, *SMALL, f"environment.env={HERE}:Couple", *words) as trainer:
        assert isinstance(trainer.algorithm.env_runner, BatchedEnvRunner)
        first = trainer.step()
        for _ in range(25):
            metrics = trainer.step()
    assert first["run/env_steps"] == 128
    assert first["rollout/length_mean"] == 6
    assert first["rollout/return_mean"] < 7.5
    assert metrics["rollout/return_mean"] > 9  # of 10: four steps of one agent, six of the other
    assert metrics["rollout/shared/return_mean"] == metrics["rollout/return_mean"]


@pytest.mark.parametrize("order", [("batched", "rllib"), ("rllib", "batched")])
def test_a_checkpoint_of_one_path_goes_on_in_the_other(order, tmp_path, ray_session):
    words = (*SMALL, "environment.env=CartPole-v1", "rollouts.observation_filter=MeanStdFilter")
    with rayfish.Trainer(None, *words, f"rollouts.runner={order[0]}") as trainer:
        trainer.step()
        trainer.step()
        saved, weights = trainer.save(tmp_path / "saved"), trainer.get_weights()["default_policy"]
        adam = adam_of(trainer)
    with rayfish.Trainer(None, *words, f"rollouts.runner={order[1]}") as trainer:
        notes = trainer.restore(saved)
        assert isinstance(trainer.algorithm.env_runner, BatchedEnvRunner) == (order[1] == "batched")
        for name, value in trainer.get_weights()["default_policy"].items():
            np.testing.assert_array_equal(value, weights[name])
        torch.testing.assert_close(adam_of(trainer), adam)
        metrics = trainer.step()
    assert notes, "that environments begin again is to be told"
    assert metrics["run/iteration"] == 3
    assert metrics["run/env_steps"] > 300


def adam_of(trainer):
    learner = trainer.algorithm.learner_group._learner
    [(_, optimizer)] = learner.get_optimizers_for_module("default_policy")
    state = [optimizer.state[p] for group in optimizer.param_groups for p in group["params"]]
    return [torch.cat([part["exp_avg"].reshape(-1), part["exp_avg_sq"].reshape(-1)]) for part in state]


@pytest.fixture
def unlisted():
    """What the example registers does not stay for other tests."""
    yield
    gym.registry.pop("TorchCartPole-v0", None)
    for name in [name for name in sys.modules if "torch_cartpole" in name]:
        del sys.modules[name]


@pytest.mark.usefixtures("unlisted")
def test_an_environment_of_tensors_stays_beside_the_policy(ray_session):
    words = (
        "rollouts.num_envs_per_env_runner=16",
        "training.train_batch_size_per_learner=512",
        "training.minibatch_size=128",
    )
    file = str(ROOT / "examples" / "gpu" / "cartpole.yaml")
    returns = []
    for _ in range(2):
        with rayfish.Trainer(file, *words) as trainer:
            runner = trainer.algorithm.env_runner
            assert isinstance(runner._sampler, ResidentSampler)
            for _ in range(3):
                metrics = trainer.step()
            returns.append((metrics["rollout/return_mean"], metrics["learn/default_policy/total_loss"]))
            assert metrics["run/env_steps"] == 3 * 512
            assert metrics["rollout/length_mean"] == metrics["rollout/return_mean"]
    assert returns[0] == returns[1]


@pytest.mark.usefixtures("unlisted")
@pytest.mark.parametrize("key", ["final_observation", "unknown"])
def test_an_environment_of_tensors_provides_last_observations_by_either_key(key):
    cls = load_object(str(ROOT / "examples" / "gpu" / "torch_cartpole.py") + ":TorchCartPole", ())
    env = cls(4, max_episode_steps=3, device="cpu")
    step = env.step
    env.step = lambda actions: (*(result := step(actions))[:4], {key: result[4]["final_obs"]})
    env.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    net = actor_critic(env.single_observation_space, env.single_action_space, resolve({}), critic=True)
    sampler = ResidentSampler(ResidentVector(env), ActorCriticActor(net, env.single_action_space))
    sampler.reset(0)
    if key == "unknown":
        with pytest.raises(EnvironmentFault, match="do not hold the episode's last observation"):
            sampler.collect(3)
        return
    rollout = sampler.collect(4)
    assert rollout.done[2].all()
    assert (rollout.final_obs[2] != rollout.obs[3]).any(dim=1).all(), "not the next episode's first"


@pytest.mark.usefixtures("unlisted")
def test_rllibs_runner_refuses_a_vector_that_resets_in_the_same_step():
    words = ("rollouts.runner=rllib", "rollouts.gym_env_vectorize_mode=vector_entry_point")
    experiment = Experiment.compose(str(ROOT / "examples" / "gpu" / "cartpole.yaml"), words)
    problems, _ = preflight.inspect(experiment)
    assert [problem.key for problem in problems] == ["rollouts.gym_env_vectorize_mode"]
    assert "SAME_STEP" in problems[0].what and problems[0].hint.endswith("=sync")


def test_an_environment_of_jax_arrays_is_sampled_as_one_batch(ray_session):
    words = (
        "environment.env=phys2d/CartPole-v1",
        "rollouts.num_envs_per_env_runner=16",
        "training.train_batch_size_per_learner=1024",
        "training.minibatch_size=256",
    )
    returns = []
    with rayfish.Trainer("cartpole", *words) as trainer:
        assert type(trainer.algorithm.env_runner).__name__ == "BatchedEnvRunner"
        for _ in range(8):
            metrics = trainer.step()
            returns.append(metrics["rollout/return_mean"])
    # It begins an episode in a step of its own, which is none of the agent's and does not count.
    assert 8 * 1024 <= metrics["run/env_steps"] < 8 * (1024 + 16)
    assert returns[-1] > returns[0], "the policy does not learn from what it sees"


def test_no_two_runners_seed_an_environment_alike():
    seeds = []
    for worker in range(3):
        # RLlib's own seed of a runner is the experiment's and its number; copy i of it takes i more.
        runner = SimpleNamespace(_seed=7 + worker, worker_index=worker, num_envs=4)
        first = BatchedEnvRunner._own_seed(runner)
        seeds += range(first, first + 4)
    assert len(set(seeds)) == 12 and seeds[0] == 7


def test_remote_runners_fetch_the_weights_that_impala_leaves_for_them():
    words = (
        "environment.env=CartPole-v1",
        "rollouts.num_env_runners=1",
        "training.model.fcnet_hiddens=[8]",
        "reporting.min_time_s_per_iteration=0.5",
    )
    with rayfish.Trainer(None, "algo.name=APPO", *words) as trainer:  # IMPALA's class
        first = trainer.foreach_runner(_sum_of_weights)[-1]
        for _ in range(20):
            trainer.step()
            if trainer.foreach_runner(_sum_of_weights)[-1] != first:
                return
    pytest.fail("the runner still acts with its first weights")


def _sum_of_weights(runner) -> float:
    assert type(runner).__name__ == "BatchedEnvRunner"
    return sum(float(value.detach().abs().sum()) for value in runner.module.parameters())
