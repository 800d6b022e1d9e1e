"""RLlib's own learner beside the batched update, on the same weights and the same batch."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch

from rayfish.algorithm.build import config_class
from rayfish.algorithm.module import module_spec
from rayfish.nested import map_nested

POLICY = "default_policy"
BOX = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
MASKED = gym.spaces.Dict(
    {"observations": gym.spaces.Box(-1.0, 1.0, (3,), np.float32), "action_mask": gym.spaces.MultiBinary(4)}
)
PICTURE = gym.spaces.Box(0, 255, (12, 12, 1), np.uint8)


def build(algo: str, model: dict[str, Any], space: gym.Space, actions: gym.Space, **training: Any) -> Any:
    """RLlib's learner for our module, its target networks moved a little from the current ones."""
    torch.manual_seed(0)
    config = config_class(algo)().training(**training)
    if algo == "SAC":
        config.training(target_entropy=training.get("target_entropy", -0.7))
    config.rl_module(rl_module_spec=module_spec(algo, model))
    config.experimental(_validate_config=False)
    learner = config.build_learner(spaces={POLICY: (space, actions)})
    with torch.no_grad():
        for _, target in learner.module[POLICY].get_target_network_pairs():
            for weights in target.parameters():
                weights.add_(torch.randn_like(weights) * 0.05)
    return learner


def make_batch(space: gym.Space, actions: gym.Space, size: int = 16, seed: int = 0) -> dict[str, Any]:
    """A batch as the array replay buffer gives it."""
    space.seed(seed)
    actions.seed(seed)
    random = np.random.default_rng(seed)
    seen = [space.sample() for _ in range(2 * size)]
    if isinstance(space, gym.spaces.Dict):
        for one in seen:
            one["action_mask"][0] = 1
    both = map_nested(lambda *leaves: torch.from_numpy(np.stack(leaves)), *seen)
    chosen = [actions.sample() for _ in range(size)]
    if isinstance(space, gym.spaces.Dict):
        chosen = [np.flatnonzero(one["action_mask"])[-1] for one in seen[:size]]
    return {
        "both": both,
        "obs": map_nested(lambda leaf: leaf[:size], both),
        "next_obs": map_nested(lambda leaf: leaf[size:], both),
        "actions": torch.from_numpy(np.stack(chosen)),
        "rewards": torch.from_numpy(random.normal(size=size) * 3).float(),
        "terminateds": torch.from_numpy(random.random(size) < 0.3),
        "n_step": torch.from_numpy(random.integers(1, 4, size)).float(),
        "weights": torch.from_numpy(random.random(size)).float(),
        "indices": torch.arange(size),
    }


def stock_update(learner: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """One update by RLlib: gradients as the optimizers took them, and what was logged."""
    names = {
        "obs": Columns.OBS, "next_obs": Columns.NEXT_OBS, "actions": Columns.ACTIONS,
        "rewards": Columns.REWARDS, "terminateds": Columns.TERMINATEDS, "n_step": "n_step",
        "weights": "weights",
    }  # fmt: skip
    columns = SampleBatch({theirs: batch[ours] for ours, theirs in names.items()})
    theirs = MultiAgentBatch({POLICY: columns}, env_steps=len(batch["rewards"])).policy_batches
    learner.metrics.reduce()
    _, losses, _ = learner._update(theirs)
    gradients = {
        name: p.grad.clone() for name, p in learner.module[POLICY].named_parameters() if p.grad is not None
    }
    logged = {
        key: value.detach() if isinstance(value, torch.Tensor) else value
        for key, value in learner.metrics.peek(POLICY).items()
    }
    return {"gradients": gradients, "loss": float(losses[POLICY].detach()), "logged": logged}


def weights(learner: Any) -> dict[str, torch.Tensor]:
    """A copy of all weights."""
    return {name: value.clone() for name, value in learner.module[POLICY].state_dict().items()}


def close(ours: Any, theirs: Any, tolerance: float = 2e-5) -> None:
    """The same to float tolerance."""
    torch.testing.assert_close(
        torch.as_tensor(ours), torch.as_tensor(theirs), rtol=tolerance, atol=tolerance, check_dtype=False
    )
