"""DQN's batched update is RLlib's: the same loss, gradients, priorities and weights after a step."""

from __future__ import annotations

import copy

import gymnasium as gym
import pytest
import torch

from rayfish.algorithm.batched.dqn import DQN, DQNSettings
from rayfish.algorithm.batched.off_policy_networks import (
    AutogradQ,
    FusedQ,
    Network,
    OffPolicyUpdate,
    q_function,
)
from tests.algorithm.batched.off_policy_parity import (
    BOX,
    MASKED,
    PICTURE,
    POLICY,
    build,
    close,
    make_batch,
    stock_update,
    weights,
)

ACTIONS = gym.spaces.Discrete(4)
PLAIN = {"fcnet_hiddens": [16, 16], "fcnet_activation": "tanh"}


def ours_for(learner) -> DQN:
    module = learner.module[POLICY]
    online = q_function(module.encoder, module.af, getattr(module, "vf", None))
    target = q_function(module._target_encoder, module._target_af, getattr(module, "_target_vf", None))
    [(_, optimizer)] = learner.get_optimizers_for_module(POLICY)
    loop = DQN(online, target, optimizer, masked=module.masked)
    loop.attach()
    return loop


def both(model: dict, space: gym.Space = BOX, **training):
    """(RLlib's learner, ours on a copy of it, settings, a batch)."""
    training = {"lr": 1e-2, "grad_clip": None, **training}
    stock = build("DQN", model, space, ACTIONS, **training)
    batched = build("DQN", model, space, ACTIONS, **training)
    batched.module[POLICY].load_state_dict(stock.module[POLICY].state_dict())
    config = stock.config
    settings = DQNSettings(
        gamma=config.gamma, double_q=config.double_q, num_atoms=config.num_atoms, v_min=config.v_min,
        v_max=config.v_max, td_error_loss_fn=config.td_error_loss_fn, grad_clip=config.grad_clip,
        grad_clip_by=config.grad_clip_by,
    )  # fmt: skip
    return stock, batched, ours_for(batched), settings


CASES = {
    "double and dueling": ({}, {}, BOX),
    "single stream, no double": ({}, {"dueling": False, "double_q": False}, BOX),
    "relu head, mse": (
        {"fcnet_hiddens": [16], "head_fcnet_hiddens": [8]}, {"td_error_loss_fn": "mse", "gamma": 0.9}, BOX,
    ),
    "no layers before the heads": ({"fcnet_hiddens": [], "head_fcnet_hiddens": [12]}, {}, BOX),
    "atoms": ({}, {"num_atoms": 7, "v_min": -4.0, "v_max": 4.0}, BOX),
    "atoms without dueling": ({}, {"num_atoms": 5, "dueling": False, "double_q": False}, BOX),
    "masked": ({}, {}, MASKED),
    "masked atoms": ({}, {"num_atoms": 5}, MASKED),
    "layer norm": ({"fcnet_use_layernorm": True}, {}, BOX),
    "picture": ({"fcnet_hiddens": [16], "conv_filters": [[4, 4, 2]]}, {}, PICTURE),
    "clipped by norm": ({}, {"grad_clip": 0.05}, BOX),
    "clipped by value": ({}, {"grad_clip": 0.01, "grad_clip_by": "value"}, BOX),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_that_of_rllibs_learner(name):
    model, training, space = CASES[name]
    stock, batched, loop, settings = both({**PLAIN, **model}, space, **training)
    written = name not in ("layer norm", "picture")
    assert isinstance(loop._online, FusedQ if written else AutogradQ)
    for seed in range(2):  # the second with moments from the first
        batch = make_batch(space, ACTIONS, seed=seed)
        theirs = stock_update(stock, batch)
        errors = loop.update(batch, settings)
        metrics = loop.metrics()
        if settings.grad_clip is None:
            for key, gradient in theirs["gradients"].items():
                close(dict(batched.module[POLICY].named_parameters())[key].grad, gradient)
        assert float(metrics["total_loss"]) == pytest.approx(theirs["loss"], rel=1e-4)
        logged = theirs["logged"]
        close(errors, logged["td_error"][0] if isinstance(logged["td_error"], list) else logged["td_error"])
        for key in ("qf_loss", "qf_mean", "qf_max", "qf_min", "td_error_mean"):
            assert float(metrics[key]) == pytest.approx(float(logged[key]), rel=1e-3, abs=1e-4), key
        for key in set(metrics) - {"total_loss"}:
            assert key in logged, key
        left, right = weights(batched), weights(stock)
        for key, value in right.items():
            close(left[key], value, 1e-4)


def test_the_target_network_follows_as_in_rllib():
    from ray.rllib.core.learner.utils import update_target_network

    for tau in (1.0, 0.1):
        _, batched, loop, _ = both(PLAIN)
        module = batched.module[POLICY]
        expected = copy.deepcopy(module)
        for main, target in expected.get_target_network_pairs():
            update_target_network(main_net=main, target_net=target, tau=tau)
        loop.update_target(tau)
        for key, value in expected.state_dict().items():
            close(module.state_dict()[key], value, 1e-6)


def test_whole_numbers_among_the_buffers_are_left_alone():
    main, target = torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    main(torch.randn(5, 3))
    OffPolicyUpdate({}, [(Network(main), Network(target))]).update_target(0.5)
    close(target.running_mean, main.running_mean * 0.5, 1e-6)


def test_fading_moments_end_as_zeros_and_move_no_weight():
    _, batched, loop, settings = both({**PLAIN, "fcnet_activation": "relu"})
    batch = make_batch(BOX, ACTIONS)
    loop.update(batch, settings)
    batch["weights"] = torch.zeros(16)  # nothing more to learn: every moment fades
    for _ in range(600):
        loop.update(batch, settings)
    before = weights(batched)
    for _ in range(200):
        loop.update(batch, settings)
    average, _, count = loop.optimiser.moments
    smallest = torch.finfo(torch.float32).tiny
    assert int(count) == 801
    assert not bool(((average != 0) & (average.abs() < smallest)).any())
    for key, value in weights(batched).items():
        assert torch.equal(value, before[key]), key
