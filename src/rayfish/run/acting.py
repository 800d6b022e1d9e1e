"""One policy at work: arrays in, normalised, through the network, actions out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rayfish import threads
from rayfish.errors import CheckpointError, RayfishError
from rayfish.experiment.imports import use_paths
from rayfish.models.actions import TEMPERATURE, choose, epsilon_greedy, for_env, soft_q
from rayfish.models.build import build_network
from rayfish.models.networks import FAMILIES
from rayfish.models.spaces import MASK_KEY, as_arrays, split_mask
from rayfish.models.summary import summary
from rayfish.nested import first_leaf, map_nested
from rayfish.run import manifest
from rayfish.run.policy_files import SavedPolicies, SavedPolicy


class Policy:
    """A network with its spaces, normaliser and action rules.

    :param recurrent: whether it remembers within an episode
    """

    module: nn.Module
    recurrent: bool
    initial_state: Callable[[], Any]
    """The recurrent state at the start of an episode, without a batch axis."""

    def __init__(self, saved: SavedPolicy, device: str) -> None:
        self.name = saved.name
        self.observation_space = saved.observation_space
        self.action_space = saved.action_space
        self.device = torch.device(device)
        self.generator = torch.Generator(device=self.device)
        self.generator.seed()
        self._normalize_actions = saved.normalize_actions
        self._clip_actions = saved.clip_actions
        self._normaliser = saved.normaliser

    @cached_property
    def _work(self) -> float:
        return threads.multiplications(self.module, self.observation_space)

    def act(self, observations: Any, state: Any, *, explore: bool) -> tuple[Any, Any]:
        """(actions for the environment, next state) for a batch of arrays.

        :param state: what the last call returned; None at the start of an episode
        """
        rows = len(first_leaf(observations))
        for leaf in self._normaliser:  # in copies: the caller's arrays stay as they are
            observations = _normalised(observations, leaf["path"], leaf)
        tensors = map_nested(self._tensor, observations)
        if self.recurrent and state is None:
            state = self.join([None] * rows)
        if self.recurrent and (kept := len(first_leaf(state))) != rows:
            raise RayfishError(
                f"{rows} observations, but the memory of {kept} episodes",
                "call agent.reset() when the number of environments changes",
            )
        with threads.limited_to(threads.fitting(rows * self._work)), torch.inference_mode():
            actions, after = self._act(tensors, state, explore)
        normalize, clip = self._normalize_actions, self._clip_actions
        return for_env(actions, self.action_space, normalize=normalize, clip=clip), after

    def _act(self, observations: Any, state: Any, explore: bool) -> tuple[np.ndarray, Any]:
        raise NotImplementedError

    def arrays(self, observations: Any, *, lead: int) -> Any:
        """Observations as arrays of the policy's space, checked."""
        return as_arrays(observations, self.observation_space, lead)

    def batch(self, observations: Sequence[Any]) -> Any:
        """Several observations as one batch."""
        parts = [self.arrays(observation, lead=0) for observation in observations]
        if len(parts) == 1:
            return map_nested(lambda leaf: leaf[np.newaxis], parts[0])
        return map_nested(lambda *leaves: np.stack(leaves), *parts)

    def one(self, actions: np.ndarray, row: int) -> Any:
        """One action of a batch, as the environment takes it."""
        return int(actions[row]) if isinstance(self.action_space, gym.spaces.Discrete) else actions[row]

    def join(self, states: Sequence[Any]) -> Any:
        """States of single episodes (None: at their start) as one batch."""
        start = map_nested(lambda leaf: leaf.unsqueeze(0).to(self.device), self.initial_state())
        return map_nested(lambda *leaves: torch.cat(leaves), *(start if s is None else s for s in states))

    def row(self, state: Any, row: int) -> Any:
        """The state of one row of a batch, as a batch of one."""
        return map_nested(lambda leaf: leaf[row : row + 1], state)

    def reset_rows(self, state: Any, rows: Sequence[int] | np.ndarray) -> None:
        """Puts some rows of a batch's state back to the start of an episode."""
        index = torch.as_tensor(np.asarray(rows))

        def restart(leaf: Tensor, start: Tensor) -> None:
            leaf[index] = start.to(leaf.device)

        with torch.inference_mode():
            map_nested(restart, state, self.initial_state())

    def seed(self, seed: int) -> None:
        """Seeds what `explore` draws from."""
        self.generator.manual_seed(seed)

    def summary(self) -> str:
        """Layers with parameters: name, kind, shapes, how many numbers."""
        return summary(self.module, f"{self.name}: {self.observation_space} -> {self.action_space}")

    def _tensor(self, array: np.ndarray) -> Tensor:
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        return torch.as_tensor(np.ascontiguousarray(array), device=self.device)


class NetworkPolicy(Policy):
    """A policy with one of Rayfish's networks."""

    def __init__(self, saved: SavedPolicy, folder: SavedPolicies, device: str) -> None:
        super().__init__(saved, device)
        family = FAMILIES[folder.algo]
        self._q = family == "q"
        self._squashed = family == "policy"
        self._masked = split_mask(self.observation_space)[1] is not None
        epsilon = saved.model.get("epsilon") or 0.0  # or a schedule [[step, value], ...]
        self._epsilon = float(epsilon[-1][1] if isinstance(epsilon, list | tuple) else epsilon)
        self._temperature = saved.model.get(TEMPERATURE)
        model = {**saved.model, "paths": [*folder.paths, *saved.model.get("paths", [])]}
        critic = any(key.startswith("vf.") for key in saved.weights)
        self.module = build_network(
            folder.algo, self.observation_space, self.action_space, model, critic=critic
        )
        try:
            self.module.load_state_dict(saved.weights)
        except RuntimeError as error:
            raise CheckpointError(
                f"the weights of policy {self.name!r} do not fit its model: {error}",
                "if the custom model's code has changed since, load it with the code it was trained with",
            ) from error
        self.module.to(self.device).eval()
        self.initial_state = self.module.initial_state  # type: ignore[assignment]
        self.recurrent = bool(self.initial_state())

    def _act(self, observations: Any, state: Any, explore: bool) -> tuple[np.ndarray, Any]:
        mask = observations[MASK_KEY] if self._masked else None
        if mask is not None and not bool((mask > 0).any(dim=-1).all()):
            raise RayfishError("the action_mask forbids every action", "a mask allows at least one action")
        if self.recurrent:
            observations = map_nested(lambda leaf: leaf.unsqueeze(1), observations)
        outputs, after = self.module(observations, state)
        if self.recurrent:
            outputs = outputs.squeeze(1)
        if self._q and explore and self._temperature:
            return soft_q(outputs, self._temperature, self.generator), after
        if self._q:
            epsilon = self._epsilon if explore else 0.0
            return epsilon_greedy(outputs, mask, epsilon, self.generator), after
        actions = choose(
            outputs, self.action_space, squashed=self._squashed, explore=explore, generator=self.generator
        )
        return actions, after


class ModulePolicy(Policy):
    """A policy with an RLModule of its own (the user's, or DreamerV3's): this one needs RLlib."""

    def __init__(self, saved: SavedPolicy, folder: SavedPolicies, device: str) -> None:
        from rayfish.algorithm.inference import ModuleActor

        manifest.require_files(folder.folder.parent, "algorithm/learner_group/learner/rl_module/")
        use_paths(folder.paths)
        super().__init__(saved, device)
        self._actor = ModuleActor(folder.folder.parent / "algorithm", saved.name, self.device)
        self.module = self._actor.module
        self.observation_space = saved.observation_space or self._actor.observation_space
        self.action_space = saved.action_space or self._actor.action_space
        self.initial_state = self._actor.initial_state
        self.recurrent = self._actor.recurrent

    def _act(self, observations: Any, state: Any, explore: bool) -> tuple[np.ndarray, Any]:
        return self._actor.act(observations, state, explore=explore)


def _normalised(observations: Any, path: Sequence[Any], leaf: dict[str, Any]) -> Any:
    """Observations with the float leaf at `path` centred and scaled as in training."""
    if path:
        key, rest = path[0], path[1:]
        if isinstance(observations, tuple):
            parts = list(observations)
            parts[key] = _normalised(parts[key], rest, leaf)
            return tuple(parts)
        return {**observations, key: _normalised(observations[key], rest, leaf)}
    scaled = np.clip((observations - leaf["mean"]) / leaf["std"], -leaf["clip"], leaf["clip"])
    return scaled.astype(np.float32)
