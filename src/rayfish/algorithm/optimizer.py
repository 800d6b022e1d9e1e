"""Another optimiser than RLlib's Adam (`training.optimizer`), for algorithms that have one per policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

_ARGUMENTS = {
    "adam": {"epsilon": "eps", "weight_decay": "weight_decay"},
    "adamw": {"epsilon": "eps", "weight_decay": "weight_decay"},
    "rmsprop": {
        "epsilon": "eps",
        "decay": "alpha",
        "momentum": "momentum",
        "weight_decay": "weight_decay",
    },
    "sgd": {"momentum": "momentum", "weight_decay": "weight_decay"},
}
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
    names = _ARGUMENTS[kind]
    arguments = {names[key]: value for key, value in settings.items() if key in names and value is not None}

    def configure_optimizers_for_module(self: Any, module_id: str, config: Any = None) -> None:
        """As RLlib does it, with another class and arguments."""
        parameters = self.get_parameters(self._module[module_id])
        optimizer = _CLASSES[kind](parameters, lr=1e-3, **arguments)  # type: ignore[operator]
        self.register_optimizer(
            module_id=module_id, optimizer=optimizer, params=parameters, lr_or_lr_schedule=config.lr
        )

    # Named and placed as its base, so that messages and checkpoints speak of the same learner.
    return type(base.__name__, (base,), {"configure_optimizers_for_module": configure_optimizers_for_module})
