"""Environments inside RLlib's own runners: here and on a remote worker, one agent or several."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rayfish.envs.build import EnvSpec, describe, make
from tests.envs.user_code import GOOD, OLD_RLLIB, PARALLEL

NAMES: list[str] = []


@pytest.fixture
def relay(folder):
    from rayfish.algorithm.adapters import ParallelAdapter

    folder.write("relay.py", PARALLEL)
    return ParallelAdapter(make(EnvSpec("relay:Relay", folder.paths)))


def test_an_agent_that_leaves_early_does_not_end_the_episode(relay):
    relay.reset(seed=0)
    relay.step({"first": 0, "second": 0, "third": 0})
    _, _, ended, cut, _ = relay.step({"first": 0, "second": 0, "third": 0})
    assert (ended["first"], ended["__all__"], cut["__all__"]) == (True, False, False)
    assert relay.agents == ["second", "third"]
    seen, rewards, _, _, infos = relay.step({"second": 0, "third": 0})
    assert set(seen) == set(rewards) == set(infos) == {"second", "third"}


def test_an_end_that_is_termination_for_one_and_truncation_for_another_keeps_both(relay):
    relay.reset(seed=0)
    for _ in range(2):
        relay.step({"first": 0, "second": 0, "third": 0})
    for _ in range(3):
        _, _, ended, cut, _ = relay.step({"second": 0, "third": 0})
    assert ended == {"second": True, "third": False, "__all__": False}
    assert cut == {"second": False, "third": True, "__all__": True}


def test_an_episode_is_over_when_agents_are_gone_though_a_flag_was_forgotten(relay):
    relay.reset(seed=0)
    inner = relay.env.step

    def forgetful(actions):
        seen, rewards, _, _, infos = inner(actions)
        relay.env.agents = []
        return seen, rewards, dict.fromkeys(seen, False), dict.fromkeys(seen, False), infos

    relay.env.step = forgetful
    _, _, ended, cut, _ = relay.step({"first": 0, "second": 0, "third": 0})
    assert cut["__all__"] and all(cut.values())
    assert not any(ended.values())


def test_the_metadata_of_the_class_is_not_shared_with_rllib(relay):
    relay.metadata["autoreset_mode"] = "x"
    assert gym.Env.metadata.get("autoreset_mode") != "x"
    assert type(relay.env).metadata.get("autoreset_mode") != "x"


def note(name):
    NAMES.append(name)


def config_for(spec, env_config, *, several):
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune import register_env

    from rayfish.algorithm.adapters import EnvCreator

    register_env("rayfish-test", EnvCreator(spec, setup=None))
    config = PPOConfig().environment("rayfish-test", env_config=env_config)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=2)
    if several:
        agents = describe(spec, env_config).agents
        config.multi_agent(policies=set(agents), policy_mapping_fn=lambda agent, episode, **_: agent)
    return config


CASES = [
    ("grid.py:GridEnv", {"size": 4}, None, 10),
    ("grid:Dictated", {}, 6, 6),
    ("CartPole-v1", {}, 5, 5),
    ("relay.py:Relay", {"length": 7}, None, 7),
    ("relay:Relay", {"length": 7}, 4, 4),
    ("pair:Pair", {}, None, 8),
    ("pair.Pair", {}, 3, 3),
]


@pytest.mark.parametrize(("name", "env_config", "horizon", "length"), CASES)
def test_rllibs_runner_samples_whole_episodes_of_every_kind(
    ray_session, folder, name, env_config, horizon, length
):
    from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    for file, code in (("grid.py", GOOD), ("relay.py", PARALLEL), ("pair.py", OLD_RLLIB)):
        folder.write(file, code)
    several = "grid" not in name and "CartPole" not in name
    kind = MultiAgentEnvRunner if several else SingleAgentEnvRunner
    spec = EnvSpec(name, folder.paths, horizon=horizon)
    runner = kind(config=config_for(spec, env_config, several=several), worker_index=0)
    episodes = runner.sample(num_episodes=3, random_actions=True)
    runner.stop()
    assert [len(episode) for episode in episodes] == [length] * 3
    assert all(episode.is_truncated for episode in episodes) == (
        horizon is not None or name == "relay.py:Relay"
    )


def test_a_remote_worker_finds_the_file_and_knows_its_name(ray_session, folder):
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    folder.write("grid.py", GOOD)
    config = config_for(EnvSpec("grid.py:Dictated", folder.paths), {"size": 5}, several=False)
    remote = ray_session.remote(SingleAgentEnvRunner).remote(config=config, worker_index=2, num_workers=2)
    look = remote.sample.remote(num_timesteps=20, random_actions=True)
    shapes = [episode.get_observations(0).shape for episode in ray_session.get(look)]
    assert set(shapes) == {(5,)}
    worker = remote.__ray_call__.remote(lambda self: self.env.unwrapped.envs[0].unwrapped.worker)
    assert ray_session.get(worker) == 2
    ray_session.kill(remote)


def test_setup_is_called_with_the_workers_name():
    from ray.rllib.env.env_context import EnvContext

    from rayfish.algorithm import adapters

    NAMES.clear()
    adapters._SET_UP.clear()
    create = adapters.EnvCreator(EnvSpec("CartPole-v1"), setup=note)
    for index in (0, 3, 3):
        create(EnvContext({}, worker_index=index)).close()
    assert NAMES == ["driver", "runner 3"]


def test_a_vector_is_made_when_rllib_asks_for_many_at_once(folder):
    from ray.rllib.env.env_context import EnvContext

    from rayfish.algorithm.adapters import EnvCreator

    folder.write("grid.py", GOOD)
    own = EnvCreator(EnvSpec("CartPole-v1", horizon=20))(EnvContext({}, 1) | {"num_envs": 3}).unwrapped
    assert (type(own).__name__, own.num_envs, own.max_episode_steps) == ("CartPoleVectorEnv", 3, 20)
    sync = EnvCreator(EnvSpec("grid:GridEnv", folder.paths))(EnvContext({"size": 4}, 1) | {"num_envs": 2})
    assert sync.reset(seed=1)[0].shape == (2, 4)
    assert np.isfinite(sync.step(np.zeros(2, int))[0]).all()
