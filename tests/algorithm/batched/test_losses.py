"""The closed-form gradients of PPO, DQN and SAC are those of their losses, by autograd, in float64."""

import gymnasium as gym
import pytest
import torch

from rayfish.algorithm.batched.distributions import distribution
from rayfish.algorithm.batched.dqn import DQNSettings, dqn_loss, dqn_loss_gradient
from rayfish.algorithm.batched.ppo import Batch, PPOSettings, ppo_loss, ppo_loss_gradients
from rayfish.algorithm.batched.sac import (
    SquashedSample,
    actor_loss,
    actor_loss_gradient,
    alpha_loss,
    alpha_loss_gradient,
    critic_loss,
    critic_loss_gradient,
)
from rayfish.models.actions import LOG_STD_BOUNDS

ROWS = 200
SPACES = {
    "Categorical": (gym.spaces.Discrete(4), 4),
    "MultiCategorical": (gym.spaces.MultiDiscrete([2, 3]), 5),
    "Gaussian": (gym.spaces.Box(-1.0, 1.0, (3,)), 6),
}


@pytest.fixture(autouse=True)
def doubles():
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def parameter(*shape):
    return torch.randn(*shape).requires_grad_()


def assert_gradient(loss, at, gradient):
    (expected,) = torch.autograd.grad(loss, at, retain_graph=True)
    assert expected.abs().max() > 0  # it can fail
    torch.testing.assert_close(gradient.reshape(expected.shape), expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("kl_coeff", [None, 0.3])
@pytest.mark.parametrize("entropy_coeff", [0.0, 0.02])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("space", SPACES)
def test_ppo(space, weighted, entropy_coeff, kl_coeff):
    action_space, inputs = SPACES[space]
    dist = distribution(action_space)
    dist_inputs, values = parameter(ROWS, inputs), parameter(ROWS)
    old = (dist_inputs + 0.3 * torch.randn(ROWS, inputs)).detach()
    actions, logp = dist.sample(old)
    batch = Batch(
        inputs=torch.empty(ROWS),
        mask=None,
        actions=actions,
        logp=logp,
        dist_inputs=old,
        advantages=torch.randn(ROWS),
        value_targets=3.0 * torch.randn(ROWS),
        weight=(torch.rand(ROWS) > 0.3).double() if weighted else None,
    )
    settings = PPOSettings(
        clip_param=0.2, vf_clip_param=4.0, vf_loss_coeff=0.5, entropy_coeff=entropy_coeff, kl_coeff=kl_coeff
    )
    loss, _ = ppo_loss(dist, dist_inputs, values, batch, settings)
    with torch.no_grad():
        d_dist_inputs, d_values = ppo_loss_gradients(dist, dist_inputs, values, batch, settings)
    assert_gradient(loss, dist_inputs, d_dist_inputs)
    assert_gradient(loss, values, d_values)


@pytest.mark.parametrize("loss_fn", ["huber", "mse"])
def test_dqn(loss_fn):
    settings = DQNSettings(td_error_loss_fn=loss_fn)
    chosen, target, weights = parameter(ROWS), 2.0 * torch.randn(ROWS), torch.rand(ROWS)
    td_errors, gradient = dqn_loss_gradient(chosen.detach(), target, weights, settings)
    assert_gradient(dqn_loss(chosen, target, weights, settings), chosen, gradient)
    assert torch.equal(td_errors, (chosen - target).abs())


def test_dqn_with_atoms():
    settings = DQNSettings(num_atoms=11)
    chosen, target = parameter(ROWS, 11), torch.randn(ROWS, 11).softmax(dim=-1)
    weights = torch.rand(ROWS)
    _, gradient = dqn_loss_gradient(chosen.detach(), target, weights, settings)
    assert_gradient(dqn_loss(chosen, target, weights, settings), chosen, gradient)


def test_critic_of_sac():
    q, target, weights = parameter(ROWS), 2.0 * torch.randn(ROWS), torch.rand(ROWS)
    assert_gradient(critic_loss(q, target, weights), q, critic_loss_gradient(q.detach(), target, weights))


def test_actor_of_sac_with_discrete_actions():
    logits, q, alpha = parameter(ROWS, 4), torch.randn(ROWS, 4), torch.tensor(0.2)
    log_p = logits.log_softmax(dim=-1)
    with torch.no_grad():
        gradient = actor_loss_gradient(alpha, log_p, q, log_p.exp())
    assert_gradient(actor_loss(alpha, log_p, q, log_p.exp()), logits, gradient)


def test_actor_of_sac_with_continuous_actions():
    """Half of the rows act in the states that are learned from, the others in the states after them."""
    dist_inputs, alpha, slope = parameter(2 * ROWS, 6), torch.tensor(0.2), torch.randn(ROWS, 3)
    torch.manual_seed(5)
    sample = SquashedSample(dist_inputs, LOG_STD_BOUNDS)
    q = (sample.actions[:ROWS] * slope).sum(dim=-1)
    loss = actor_loss(alpha, sample.logp[:ROWS], q)
    torch.manual_seed(5)
    with torch.no_grad():
        drawn = SquashedSample(dist_inputs, LOG_STD_BOUNDS)
        gradient = drawn.backward(-slope / ROWS, (alpha / ROWS).expand(ROWS, 1))
    (expected,) = torch.autograd.grad(loss, dist_inputs)
    torch.testing.assert_close(gradient, expected[:ROWS], rtol=1e-7, atol=1e-10)  # tanh saturates


def test_temperature_of_sac():
    log_alpha, logp, target_entropy = parameter(1), torch.randn(ROWS), torch.tensor(-0.7)
    gradient = alpha_loss_gradient(logp, target_entropy)
    assert_gradient(alpha_loss(log_alpha, logp, target_entropy), log_alpha, gradient)
