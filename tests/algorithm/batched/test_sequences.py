"""Sequences of a recurrent policy repeat, in one pass, what it said step by step."""

from __future__ import annotations

import math
from types import SimpleNamespace

import gymnasium as gym
import pytest
import torch

from rayfish.algorithm.batched import ppo
from rayfish.algorithm.batched.actors import ActorCriticActor
from rayfish.algorithm.batched.algorithms import for_learners
from rayfish.algorithm.batched.sampler import Sampler
from rayfish.algorithm.batched.sequences import split
from rayfish.envs.vector import GymVector
from rayfish.models.build import actor_critic
from rayfish.models.options import resolve


@pytest.mark.parametrize("share", [False, True])
def test_padded_sequences_say_what_was_said_while_sampling(share):
    torch.manual_seed(0)
    vector = GymVector(gym.make_vec("CartPole-v1", 4, "vector_entry_point", max_episode_steps=30))
    model = resolve({"use_lstm": True, "lstm_cell_size": 8, "fcnet_hiddens": [8], "vf_share_layers": share})
    net = actor_critic(vector.observation_space, vector.action_space, model, critic=True)
    sampler = Sampler(vector, ActorCriticActor(net, vector.action_space))
    sampler.reset(seed=1)
    for _ in range(2):  # the second begins in the middle of episodes
        rollout = sampler.collect(50)
        assert rollout.valid is not None, "this vector resets in a step of its own"
        sequences = split(rollout, longest=8)
        with torch.no_grad():
            dist_inputs, _, _ = net.policy(sequences.gather(rollout.obs), sequences.first(rollout.states))
        real = sequences.weight > 0
        assert int(real.sum()) == len(rollout)
        torch.testing.assert_close(
            dist_inputs[real], sequences.gather(rollout.extras[ppo.DIST_INPUTS])[real], rtol=1e-4, atol=1e-6
        )


def test_a_recurrent_update_learns_from_every_step_once():
    torch.manual_seed(0)
    vector = GymVector(gym.make_vec("CartPole-v1", 4, "vector_entry_point"))
    net = actor_critic(
        vector.observation_space,
        vector.action_space,
        resolve({"use_lstm": True, "lstm_cell_size": 8, "fcnet_hiddens": [8]}),
        critic=True,
    )
    sampler = Sampler(vector, ActorCriticActor(net, vector.action_space))
    sampler.reset(seed=1)
    rollout = sampler.collect(40)
    loop = ppo.PPO(net, vector.action_space, torch.optim.Adam(net.parameters()))
    batch = loop.batch([rollout], ppo.PPOSettings(max_seq_len=10))
    assert batch.weight is not None
    assert int(batch.weight.sum()) == len(rollout)
    kept = batch.advantages[batch.weight > 0]
    assert float(kept.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(kept.std(unbiased=False)) == pytest.approx(1.0, abs=1e-4)
    parts = loop.update([rollout], ppo.PPOSettings(num_epochs=2, minibatch_size=40, max_seq_len=10))
    assert all(torch.isfinite(value) for value in parts.values())


@pytest.mark.parametrize("learners", [0, 1, 3])
@pytest.mark.parametrize(("size", "holds"), [(64, 64), (4, 20)], ids=["usual", "shorter-than-a-sequence"])
def test_recurrent_minibatches_hold_real_steps_and_every_step_each_epoch(learners, size, holds):
    torch.manual_seed(0)
    vector = GymVector(gym.make_vec("CartPole-v1", 8, "vector_entry_point", max_episode_steps=6))
    model = resolve({"use_lstm": True, "lstm_cell_size": 8, "fcnet_hiddens": [8]})
    net = actor_critic(vector.observation_space, vector.action_space, model, critic=True)
    sampler = Sampler(vector, ActorCriticActor(net, vector.action_space))
    sampler.reset(seed=1)
    rollout = sampler.collect(125)
    loop = ppo.PPO(net, vector.action_space, torch.optim.Adam(net.parameters()))
    given = for_learners(SimpleNamespace(config=SimpleNamespace(num_learners=learners)), [rollout])
    counts = set()
    for share in given.get("batches") or [given["batch"]]:
        settings = ppo.PPOSettings(
            minibatch_size=size, num_epochs=2, largest_share=given.get("largest_share")
        )
        batch = loop.batch(share, settings)
        steps = sum(len(part) for part in share)
        assert batch.weight.numel() > 3 * steps, "most of it is padding"
        batch.value_targets = batch.weight.flatten().cumsum(0).view_as(batch.weight)  # a number for each step
        found = [
            minibatch.value_targets[minibatch.weight > 0] for minibatch in ppo.minibatches(batch, settings)
        ]
        assert all(abs(len(taken) - holds) < 6 for taken in found), "episodes are of at most 6 steps"
        count = len(found) // 2
        for epoch in (found[:count], found[count:]):
            assert torch.cat(epoch).unique().numel() == steps
        counts.add(count)
    assert len(counts) == 1, "learners step together"
    assert counts == {math.ceil(steps / holds - 0.25)} or learners > 1
