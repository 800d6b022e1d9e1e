"""Acting with an RLModule from a checkpoint, without an Algorithm and without starting Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule

from rayfish.errors import CheckpointError
from rayfish.nested import map_nested

_MODULE = "learner_group/learner/rl_module"


class ModuleActor:
    """RLlib's module of one policy, from the tree of a checkpoint: tensors in, actions out."""

    def __init__(self, folder: Path, policy: str, device: torch.device) -> None:
        path = folder / _MODULE / policy
        if not path.is_dir():
            raise CheckpointError(f"the checkpoint has no module {path}", "use another checkpoint of the run")
        self.module: Any = RLModule.from_checkpoint(str(path.resolve()))
        self.module.to(device).eval()
        self.device = device
        self.observation_space = self.module.observation_space
        self.action_space = self.module.action_space
        self.recurrent = bool(self.module.is_stateful())

    def initial_state(self) -> dict[str, Any]:
        """The module's start of an episode, and the flag that DreamerV3 wants to see there."""
        if not self.recurrent:
            return {}
        state = map_nested(torch.as_tensor, self.module.get_initial_state())
        return {"module": state, "first": torch.ones(())}

    def act(self, observations: Any, state: Any, *, explore: bool) -> tuple[np.ndarray, Any]:
        """(actions, next state) for a batch of tensors."""
        batch = {Columns.OBS: observations}
        if self.recurrent:
            batch = {
                Columns.OBS: map_nested(lambda leaf: leaf.unsqueeze(1), observations),
                Columns.STATE_IN: state["module"],
                "is_first": state["first"],
            }
        if explore:
            out = self.module.forward_exploration(batch, t=0)
            distribution = self.module.get_exploration_action_dist_cls
        else:
            out = self.module.forward_inference(batch)
            distribution = self.module.get_inference_action_dist_cls
        if Columns.ACTIONS in out:
            actions = out[Columns.ACTIONS]
        else:
            chosen = distribution().from_logits(out[Columns.ACTION_DIST_INPUTS])
            actions = (chosen if explore else chosen.to_deterministic()).sample()
        if self.recurrent:
            actions = actions.squeeze(1)
            state = {"module": out[Columns.STATE_OUT], "first": torch.zeros_like(state["first"])}
        return actions.cpu().numpy(), state
