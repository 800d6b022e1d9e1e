"""The private names of RLlib that Rayfish uses hold what it expects of them."""

from __future__ import annotations

import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import tree
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.connector_pipeline_v2 import ConnectorPipelineV2
from ray.rllib.core.learner.learner import Learner
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.examples.envs.classes.multi_agent import MultiAgentCartPole
from ray.rllib.offline.offline_prelearner import OfflinePreLearner

from rayfish.compat import rllib_internals as rllib
from rayfish.compat.ray_internals import results_in


def config(*, agents: int = 0, env_runners: int = 0):
    made = PPOConfig().debugging(seed=7).env_runners(num_env_runners=env_runners, num_envs_per_env_runner=2)
    if not agents:
        return made.environment("CartPole-v1").training(train_batch_size_per_learner=40, minibatch_size=20)
    made.environment(MultiAgentCartPole, env_config={"num_agents": agents})
    return made.multi_agent(policies={"shared"}, policy_mapping_fn=lambda *_, **__: "shared")


@pytest.fixture(params=[0, 2], ids=["one agent", "several agents"])
def runner(request, ray_session):
    kind = MultiAgentEnvRunner if request.param else SingleAgentEnvRunner
    made = kind(config=config(agents=request.param), worker_index=0)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def algorithm(ray_session, tmp_path_factory):
    with results_in(str(tmp_path_factory.getbasetemp())):
        made = config(env_runners=1).build_algo()
    yield made
    made.stop()


def test_an_algorithm_makes_its_folder_where_it_should(algorithm, tmp_path_factory):
    assert Path(algorithm.logdir).parent == tmp_path_factory.getbasetemp()


def test_a_runner_continues_its_episodes_and_with_a_state_put_back_too(runner):
    assert rllib.needs_reset(runner)
    runner.sample(num_timesteps=6)
    assert not rllib.needs_reset(runner)
    state = rllib.sampler_state(runner, episodes=True)
    [running, *_] = [episode for episode in state["_ongoing_episodes"] if episode is not None]
    assert set(rllib.sampler_state(runner, episodes=False)) < set(state)
    assert len(rllib.earlier_pieces(runner, running)) == 1

    rllib.reset_at_next_sample(runner)
    assert rllib.needs_reset(runner) and not rllib.earlier_pieces(runner, running)
    rllib.put_back(runner, state)
    assert not rllib.needs_reset(runner)
    runner.sample(num_timesteps=2)
    assert running.id_ in runner._ongoing_episodes_for_metrics or running.is_done


def test_a_vector_resets_the_environments_that_are_over_with_a_state_put_back_too():
    made = [gym.make_vec("CartPole-v1", 2, vectorization_mode="sync") for _ in range(2)]
    for vector in made:
        vector.reset(seed=3)
    whole, resumed = made
    while not whole.step(np.ones(2, int))[2].any():
        pass
    state = rllib.vector_state(whole)
    assert state["_autoreset_envs"].any() and len(state) > 4
    rllib.put_back(resumed, state)
    over = state["_autoreset_envs"].copy()
    assert not resumed.step(np.ones(2, int))[1][over].any()  # a reset has no reward


def test_a_runner_resets_with_the_seed_that_is_set(runner):
    assert rllib.seed_of(runner) is not None
    first = []
    for _ in range(2):
        rllib.set_seed(runner, 11)
        rllib.reset_at_next_sample(runner)
        [episode, *_] = runner.sample(num_timesteps=1, random_actions=True)
        first.append(str(episode.get_observations(0)))
    assert first[0] == first[1]


def test_a_runner_has_connectors_callbacks_and_a_device(runner):
    assert all(isinstance(pipeline, ConnectorPipelineV2) for pipeline in rllib.connectors_of(runner))
    assert len(rllib.callbacks_of(runner)) == 1
    assert str(rllib.device_of(runner)) == "cpu"


def test_a_runner_takes_weights_with_a_higher_number_only(runner):
    def set_all(value, version):
        weights = tree.map_structure(lambda leaf: leaf * 0 + value, runner.module.get_state())
        runner.set_state({"rl_module": weights, "weights_seq_no": version})
        [leaf, *_] = tree.flatten(runner.module.get_state())
        return float(leaf.flat[0])

    assert set_all(1.0, 5) == 1.0 and rllib.weights_version(runner) == 5
    assert set_all(2.0, 5) == 1.0
    rllib.set_weights_version(runner, -1)
    assert set_all(2.0, 5) == 2.0


def test_a_config_has_its_connector_and_says_who_merges_states():
    def connector(env, spaces=None, device=None):
        return []

    assert rllib.env_to_module_factory(PPOConfig()) is None
    assert (
        rllib.env_to_module_factory(PPOConfig().env_runners(env_to_module_connector=connector)) is connector
    )
    assert not rllib.merges_while_training(PPOConfig())
    assert rllib.merges_while_training(IMPALAConfig())


def test_fixed_learning_rates_are_those_of_the_config(algorithm):
    [learner] = [found.get() for found in algorithm.learner_group.foreach_learner(lambda learner: learner)]
    assert isinstance(learner, Learner) and rllib.learner_index(learner) == 0
    [group] = learner.get_optimizers_for_module("default_policy")[0][1].param_groups
    rate, group["lr"] = float(group["lr"]), 0.5
    rllib.apply_fixed_rates(learner)
    assert float(group["lr"]) == pytest.approx(rate) != 0.5


def test_a_group_has_its_actors_and_says_whether_one_is_down(algorithm, ray_session):
    group = algorithm.env_runner_group
    [(number, actor)] = rllib.actors_of(group).items()
    assert number == 1 and not rllib.has_lost_actors(group)
    ray_session.kill(actor)
    limit = time.monotonic() + 60
    while not rllib.has_lost_actors(group) and time.monotonic() < limit:  # the kill arrives when it arrives
        group.foreach_env_runner(lambda runner: None, local_env_runner=False)
    assert rllib.has_lost_actors(group)


def test_the_step_from_rows_to_batches_has_a_module_of_its_own():
    prelearner = OfflinePreLearner.__new__(OfflinePreLearner)
    rllib.share_module(prelearner, "module")
    assert vars(prelearner) == {"_module": "module"}
    assert "_module" in OfflinePreLearner.__init__.__code__.co_names
