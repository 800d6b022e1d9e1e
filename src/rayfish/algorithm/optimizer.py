"""Another optimiser than RLlib's Adam (`training.optimizer`), for algorithms that have one per policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rayfish.algorithm.contradictions import OPTIMISERS

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

_CLASSES = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}


def set_optimizer(config: AlgorithmConfig, settings: Mapping[str, Any]) -> None:
    """Give a config a learner that optimises by `settings`; the learning rate stays `training.lr`."""
    config.learners(learner_class=_learner(config.learner_class, dict(settings)))


def _learner(base: type, settings: dict[str, Any]) -> type:
    kind = settings.get("type") or "adam"
    names = OPTIMISERS[kind]
    arguments = {names[key]: value for key, value in settings.items() if key in names and value is not None}

    def configure_optimizers_for_module(self: Any, module_id: str, config: Any = None) -> None:
        """As RLlib does it, with another class and arguments."""
        parameters = self.get_parameters(self._module[module_id])
        optimizer = _CLASSES[kind](parameters, lr=1e-3, **arguments)  # type: ignore[operator]
        self.register_optimizer(
            module_id=module_id, optimizer=optimizer, params=parameters, lr_or_lr_schedule=config.lr
        )

    # Named and placed as its base, so that messages and checkpoints speak of the same learner.
    own = {
        "configure_optimizers_for_module": configure_optimizers_for_module,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
    }
    return type(base.__name__, (base,), own)
