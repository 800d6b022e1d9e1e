"""Epochs recorded as CUDA graphs take the same steps as those that are not, at the current learning rate.

Without a GPU the same code runs over the same fixed memory, and only the recording itself is missing.
"""

from __future__ import annotations

import gymnasium as gym
import pytest
import torch

from rayfish.algorithm.batched import ppo
from rayfish.algorithm.batched.actors import ActorCriticActor
from rayfish.algorithm.batched.sampler import Sampler
from rayfish.envs.vector import GymVector
from rayfish.models.build import actor_critic
from rayfish.models.options import resolve

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=NEEDS_GPU)]
OPTIMIZERS = {
    "adam": torch.optim.Adam,
    "adam with weight decay": lambda weights: torch.optim.Adam(weights, weight_decay=0.1),
    "amsgrad": lambda weights: torch.optim.Adam(weights, amsgrad=True),
    "decoupled": lambda weights: torch.optim.Adam(weights, weight_decay=0.1, decoupled_weight_decay=True),
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": lambda weights: torch.optim.SGD(weights, momentum=0.5),
}
# Learning rates, and whether the rollout is one in which slots waited, so that its rows are fewer.
UPDATES = [(1e-3, 0), (1e-3, 0), (5e-3, 0), (2e-2, 1), (1e-4, 0), (1e-2, 1), (1e-2, 1), (3e-3, 0), (0.0, 0)]


def made(optimizer, device):
    torch.manual_seed(0)
    vector = GymVector(gym.make_vec("CartPole-v1", 4, "vector_entry_point"))
    model = resolve({"fcnet_hiddens": [8], "fcnet_activation": "tanh"})
    net = actor_critic(vector.observation_space, vector.action_space, model, critic=True).to(device)
    sampler = Sampler(vector, ActorCriticActor(net, vector.action_space), device=device)
    sampler.reset(seed=1)
    rollouts = [sampler.collect(6).copy(), sampler.collect(40).copy()]
    assert rollouts[0].valid is None and rollouts[1].valid is not None
    return ppo.PPO(net, vector.action_space, OPTIMIZERS[optimizer](net.parameters())), rollouts


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("size", [10, None], ids=["minibatches", "whole-batch"])
def test_recorded_epochs_follow_the_learning_rate_whatever_comes_between(optimizer, device, size):
    settings = ppo.PPOSettings(num_epochs=2, minibatch_size=size, kl_coeff=0.2, entropy_coeff=0.01)
    ends, recorded = [], []
    for may_record in (True, False):
        loop, rollouts = made(optimizer, device)
        if not may_record:
            loop.records = lambda rollouts: False
        for index, (rate, waited) in enumerate(UPDATES):
            loop.optimiser.optimizer.param_groups[0]["lr"] = rate
            torch.manual_seed(index)
            if device == "cpu" and loop.records([rollouts[waited]]):
                loop.optimiser.attach()
                loop._recorded(loop.batch([rollouts[waited]], settings), settings)
                recorded.append(waited)
            else:
                loop.update([rollouts[waited]], settings)
        ends.append(loop.optimiser.weights.clone())
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-6)
    if device == "cpu":
        assert recorded == ([0] * 6 if optimizer in ("adam", "adam with weight decay") else [])


def test_neither_several_learners_nor_other_networks_are_recorded():
    loop, rollouts = made("adam", "cpu")
    assert loop.records(rollouts[:1]) and not loop.records(rollouts)
    loop._average = lambda gradient: None
    assert not loop.records(rollouts[:1])
    loop._average, loop.fused = None, None
    assert not loop.records(rollouts[:1])
