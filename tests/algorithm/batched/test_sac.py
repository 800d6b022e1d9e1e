"""SAC's batched update is RLlib's: the same losses, gradients, priorities and weights after a step."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from rayfish.algorithm.batched.learner import networks_of
from rayfish.algorithm.batched.off_policy_networks import AutogradPolicy, FusedPolicy
from rayfish.algorithm.batched.sac import SAC, SACSettings
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

MOVES = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
CHOICES = gym.spaces.Discrete(4)
PLAIN = {"fcnet_hiddens": [16, 16], "fcnet_activation": "relu"}


def ours_for(learner) -> SAC:
    module = learner.module[POLICY]
    loop = SAC(
        networks_of(module),
        log_alpha=learner.curr_log_alpha[POLICY],
        target_entropy=learner.target_entropy[POLICY],
        optimizers=optimizers(learner),
        discrete=isinstance(module.action_space, gym.spaces.Discrete),
        masked=module.masked,
    )
    loop.attach()
    return loop


def optimizers(learner) -> dict[str, torch.optim.Optimizer]:
    return {name.removeprefix(f"{POLICY}_"): one for name, one in learner.get_optimizers_for_module(POLICY)}


def same_noise(monkeypatch, size: int, seed: int) -> None:
    """Both draw the same actions: RLlib for observations and next ones in turn, ours for both at once."""
    from ray.rllib.core.distribution.torch.torch_distribution import TorchSquashedGaussian

    noise = torch.randn(2 * size, 2, generator=torch.Generator().manual_seed(seed))
    parts = iter(noise.split(size))

    def drawn(self, *, sample_shape=None):
        before = self.loc + self._dist.scale * next(parts)
        return self._squash(before), self._squashed_logp(before)

    monkeypatch.setattr(TorchSquashedGaussian, "rsample_and_logp", drawn)
    monkeypatch.setattr(TorchSquashedGaussian, "sample_and_logp", drawn)
    monkeypatch.setattr(torch, "randn_like", lambda like: noise.clone())


CASES = {
    "box": ({}, {}, BOX, MOVES),
    "one critic": ({}, {"twin_q": False}, BOX, MOVES),
    "tanh, free deviation": (
        {"fcnet_activation": "tanh", "free_log_std": True, "head_fcnet_hiddens": [8]}, {}, BOX, MOVES,
    ),
    "narrow deviation": ({"log_std_clip_param": 0.02}, {}, BOX, MOVES),
    "action after the observation": ({"fusionnet_hiddens": [8]}, {}, BOX, MOVES),
    "picture": ({"fcnet_hiddens": [16], "conv_filters": [[4, 4, 2]]}, {}, PICTURE, MOVES),
    "discrete": ({}, {}, BOX, CHOICES),
    "discrete, one critic": ({}, {"twin_q": False}, BOX, CHOICES),
    "masked": ({}, {}, MASKED, CHOICES),
    "discrete picture": ({"fcnet_hiddens": [16], "conv_filters": [[4, 4, 2]]}, {}, PICTURE, CHOICES),
    "clipped": ({}, {"grad_clip": 0.05}, BOX, MOVES),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_that_of_rllibs_learner(name, monkeypatch):
    model, training, space, actions = CASES[name]
    training = {
        "actor_lr": 1e-2, "critic_lr": 1e-2, "alpha_lr": 1e-2, "lr": None, "grad_clip": None,
        "initial_alpha": 0.7, **training,
    }  # fmt: skip
    model = {**PLAIN, **model}
    stock, batched = (build("SAC", model, space, actions, **training) for _ in range(2))
    batched.module[POLICY].load_state_dict(stock.module[POLICY].state_dict())
    loop = ours_for(batched)
    settings = SACSettings(
        gamma=stock.config.gamma, grad_clip=stock.config.grad_clip, grad_clip_by=stock.config.grad_clip_by
    )
    autograd = ("picture", "discrete picture", "action after the observation")
    assert isinstance(loop._policy, AutogradPolicy if name in autograd else FusedPolicy)
    for seed in range(2):  # the second with moments from the first
        batch = make_batch(space, actions, seed=seed)
        same_noise(monkeypatch, 16, seed)
        theirs = stock_update(stock, batch)
        same_noise(monkeypatch, 16, seed)
        errors = loop.update(batch, settings)
        metrics = loop.metrics()
        if settings.grad_clip is None:
            mine = dict(batched.module[POLICY].named_parameters())
            for key, gradient in theirs["gradients"].items():
                close(mine[key].grad, gradient)
        assert float(metrics["total_loss"]) == pytest.approx(theirs["loss"], rel=1e-4)
        logged = theirs["logged"]
        close(errors, logged["td_error"][0] if isinstance(logged["td_error"], list) else logged["td_error"])
        for key in set(metrics) - {"total_loss"}:
            assert float(metrics[key]) == pytest.approx(float(logged[key]), rel=1e-3, abs=1e-4), key
        close(batched.curr_log_alpha[POLICY].detach(), stock.curr_log_alpha[POLICY].detach())
        left, right = weights(batched), weights(stock)
        for key, value in right.items():
            close(left[key], value, 1e-4)


def test_the_policys_loss_leaves_the_critics_alone():
    learner = build("SAC", PLAIN, BOX, MOVES, actor_lr=1e-2, critic_lr=1e-2, alpha_lr=1e-2, lr=None)
    loop = ours_for(learner)
    batch = make_batch(BOX, MOVES)
    batch["weights"] = torch.zeros(16)  # the critics have nothing to learn
    before = weights(learner)
    loop.update(batch, SACSettings())
    after = weights(learner)
    for key, value in before.items():
        moved = not torch.equal(value, after[key])
        assert moved == key.startswith("pi"), key
