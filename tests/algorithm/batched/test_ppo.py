"""The batched PPO says what RLlib's says: advantages, losses and gradients on the same experience."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing

from rayfish.algorithm.batched import ppo
from rayfish.algorithm.batched.actors import ActorCriticActor
from rayfish.algorithm.batched.episodes import as_episodes
from rayfish.algorithm.batched.fused import fused
from rayfish.algorithm.batched.sampler import Sampler
from rayfish.envs.guard import Guard
from rayfish.envs.vector import GymVector
from rayfish.experiment import Experiment
from rayfish.models.build import actor_critic
from rayfish.models.options import resolve
from rayfish.run.trainer import Trainer

POLICY = "default_policy"


class MaskedLine(gym.Env):
    """Walk along a line; the way back is forbidden at its beginning. Ends by itself or is cut off."""

    metadata = {"render_modes": []}  # noqa: RUF012  (a vector writes into it)
    observation_space = gym.spaces.Dict(
        {
            "observations": gym.spaces.Box(-10, 10, (3,), np.float32),
            "action_mask": gym.spaces.Box(0, 1, (3,), np.int8),
        }
    )
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = 0, 0
        return self._seen(), {}

    def step(self, action):
        assert action != 0 or self.place > 0, "a forbidden action was taken"
        self.place += int(action) - 1
        self.steps += 1
        return self._seen(), float(self.place), self.place >= 4, self.steps >= 9, {}

    def _seen(self):
        noise = self.np_random.normal(size=2)
        mask = np.array([self.place > 0, 1, 1], np.int8)
        return {"observations": np.array([self.place, *noise], np.float32), "action_mask": mask}


ENVS = {
    "CartPole": (lambda: Guard(gym.make("CartPole-v1")), "CartPole-v1"),
    "Pendulum": (lambda: Guard(gym.make("Pendulum-v1", max_episode_steps=13)), "Pendulum-v1"),
    "MaskedLine": (MaskedLine, "tests.algorithm.batched.test_ppo:MaskedLine"),
}


@pytest.mark.parametrize("name", ENVS)
@pytest.mark.parametrize("share", [False, True])
def test_loss_and_gradients_are_those_of_the_stock_learner(name, share, ray_session):
    make, env = ENVS[name]
    words = [
        "rollouts.runner=rllib", f"environment.env={env}", "training.lambda_=0.9",
        "training.use_kl_loss=true",
        "training.kl_coeff=0.3", "training.entropy_coeff=0.02", "training.vf_clip_param=2.0",
        f"training.model.vf_share_layers={share}", "training.model.fcnet_hiddens=[16,16]",
    ]  # fmt: skip
    with Trainer(Experiment.compose("cartpole", words)) as trainer:
        learner = trainer.algorithm.learner_group._learner
        module, config = learner.module[POLICY], trainer.config
        rollout = collected(make, module.net, steps=40, slots=6)
        with torch.no_grad():  # so that the policy that learns is not the one that acted
            for weights in module.net.parameters():
                weights.add_(0.05 * torch.randn_like(weights))
        theirs = stock_batch(learner, rollout, module)
        stock_loss = learner.compute_loss_for_module(
            module_id=POLICY, config=config, batch=theirs, fwd_out=module.forward_train(theirs)
        )
        expected = torch.autograd.grad(stock_loss, list(module.net.parameters()))
        named = ("policy_loss", "vf_loss", "entropy", "mean_kl_loss")
        figures = {key: learner.metrics.peek((POLICY, key)).item() for key in named}
        loop = ppo.PPO(module.net, module.action_space, torch.optim.Adam(module.net.parameters(), lr=0.0))
        settings = ppo.PPOSettings(
            gamma=config.gamma, lambda_=0.9, clip_param=config.clip_param, vf_clip_param=2.0,
            vf_loss_coeff=config.vf_loss_coeff, entropy_coeff=0.02, kl_coeff=0.3,
        )  # fmt: skip
        ours = loop.batch([rollout], settings)
        assert_same_rows(ours, theirs)
        for passes in (loop.fused, None):
            loop.fused = passes
            if passes is None:
                ours.inputs = rollout_rows(rollout)
            loop.optimiser.attach()
            metrics = loop.step(ours, settings)()
            torch.testing.assert_close(metrics["total_loss"], stock_loss.detach(), rtol=1e-4, atol=1e-5)
            for key, value in figures.items():
                assert float(metrics[key]) == pytest.approx(value, rel=1e-3, abs=1e-5)
            for weights, gradient in zip(module.net.parameters(), expected, strict=True):
                torch.testing.assert_close(
                    loop.optimiser.gradients[id(weights)], gradient, rtol=1e-3, atol=1e-5
                )


def collected(make, net, steps, slots):
    torch.manual_seed(3)
    envs = gym.vector.SyncVectorEnv([make] * slots, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    vector = GymVector(envs)
    sampler = Sampler(vector, ActorCriticActor(net, vector.action_space))
    sampler.reset(seed=5)
    rollout = sampler.collect(steps)
    assert rollout.done.any(), "no episode ended: the test would not see an end"
    return rollout


def stock_batch(learner, rollout, module):
    episodes = as_episodes(rollout, (module.observation_space, module.action_space))
    shared: dict = {}
    made = learner._learner_connector(
        rl_module=learner.module, batch={}, episodes=episodes, shared_data=shared, metrics=learner.metrics
    )
    batch = made[POLICY]
    # RLlib counts the rows it added for bootstrapping when it centres and scales; ours are steps alone.
    real = batch[Columns.LOSS_MASK]
    advantages = batch[Postprocessing.ADVANTAGES]
    kept = advantages[real]
    batch[Postprocessing.ADVANTAGES] = (advantages - kept.mean()) / kept.std(unbiased=False)
    return batch


def rollout_rows(rollout):
    from rayfish.nested import map_nested

    return map_nested(lambda leaf: leaf.flatten(0, 1), rollout.obs)


def assert_same_rows(ours, theirs):
    """The stock pipeline has other rows in between and another order: compare by what was seen."""
    real = theirs[Columns.LOSS_MASK]
    for key, mine in (
        (Postprocessing.ADVANTAGES, ours.advantages),
        (Postprocessing.VALUE_TARGETS, ours.value_targets),
    ):
        expected = theirs[key][real]
        assert len(expected) == len(mine)
        torch.testing.assert_close(mine.sort().values, expected.sort().values, rtol=1e-3, atol=1e-3)


def test_an_epoch_takes_every_row_in_full_minibatches():
    rows = torch.arange(10.0)
    batch = ppo.Batch(rows, None, rows, rows, rows, rows, rows)
    settings = ppo.PPOSettings(num_epochs=3, minibatch_size=4)
    found = [minibatch.inputs for minibatch in ppo.minibatches(batch, settings)]
    assert [len(minibatch) for minibatch in found] == [4] * 9
    for epoch in range(3):
        assert set(torch.cat(found[3 * epoch : 3 * epoch + 3]).tolist()) == set(range(10))


@pytest.mark.parametrize("space", [gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,), np.float32)])
def test_an_update_is_adam_by_autograd(space):
    """The flat, written-out update ends at the weights that torch's own Adam and autograd reach."""
    model = resolve({"fcnet_hiddens": [8, 8], "fcnet_activation": "relu"})
    seen = gym.spaces.Box(-1, 1, (4,), np.float32)
    nets = []
    for written_out in (True, False):
        torch.manual_seed(0)
        net = actor_critic(seen, space, model, critic=True)
        loop = ppo.PPO(net, space, torch.optim.Adam(net.parameters(), lr=0.01))
        if not written_out:
            loop.fused = None
            loop.optimiser.is_adam = False  # torch's own step
        torch.manual_seed(1)
        obs = torch.randn(64, 4)
        actions, logp = loop.dist.sample(net.policy(obs)[0].detach())
        batch = ppo.Batch(
            obs, None, actions, logp, net.policy(obs)[0].detach(), torch.randn(64), torch.randn(64)
        )
        loop.optimiser.attach()
        settings = ppo.PPOSettings(entropy_coeff=0.1, grad_clip=0.5, num_epochs=3, minibatch_size=16)
        for minibatch in ppo.minibatches(batch, settings):
            loop.step(minibatch, settings)
        nets.append(net)
    for mine, theirs in zip(*(net.parameters() for net in nets), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_networks_with_other_layers_are_left_to_autograd():
    seen = gym.spaces.Box(-1, 1, (4,), np.float32)
    for model in ({"fcnet_activation": "silu"}, {"fcnet_use_layernorm": True}, {"use_lstm": True}):
        assert fused(actor_critic(seen, gym.spaces.Discrete(2), resolve(model), critic=True)) is None
    image = gym.spaces.Box(0, 255, (16, 16, 3), np.uint8)
    assert fused(actor_critic(image, gym.spaces.Discrete(2), resolve({}), critic=True)) is None


@pytest.mark.parametrize(
    ("rows", "shape"), [(8192, (8, 1024)), (8203, (8, 1026)), (8500, (9, 1024)), (900, (1, 900))]
)
def test_a_few_rows_too_many_are_spread_over_the_minibatches(rows, shape):
    column = torch.zeros(rows)
    batch = ppo.Batch(column, None, column, column, column, column, column)
    assert ppo.epoch_shape(batch, ppo.PPOSettings(minibatch_size=1024)) == shape
