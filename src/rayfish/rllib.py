"""RLlib's trainers by their names: `DQNTrainer(env=MyEnv, config={"num_workers": 4})`, `PPO(config=...)`.

    import rayfish.rllib                                   # one line more in an old script
    from ray.rllib.agents.dqn import DQNTrainer            # then works, and is the same as
    from rayfish.rllib import DQNTrainer

Importing this module lets old import paths (`ray.rllib.agents.*`, `gym` where it is not installed) be found.
Every class is a `rayfish.Trainer`; its settings are those of RLlib 1.9 to 2.9, translated as in old files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rayfish.experiment.sections import ALGORITHMS, CLOSEST, spelled
from rayfish.legacy import import_paths
from rayfish.run.engine import RayOptions
from rayfish.run.trainer import Trainer

__all__ = ["DEFAULT_CONFIG", "RLlibTrainer", "Trainer"]

DEFAULT_CONFIG: dict[str, Any] = {}
"""What old scripts copy and change (`ppo.DEFAULT_CONFIG.copy()`); what is not in it has its default."""

import_paths.install()


class RLlibTrainer(Trainer):
    """A trainer of one algorithm, made as RLlib's are.

    :param config: RLlib's old settings, or one of its config objects
    :param env: an environment class, a creator, or a name
    :param closest: an algorithm that RLlib has dropped becomes the closest one it has
    """

    algo = ""

    def __init__(
        self,
        config: Any = None,
        env: Any = None,
        logger_creator: Callable[..., Any] | None = None,
        *,
        closest: bool = False,
        ray_options: RayOptions | None = None,
    ) -> None:
        from rayfish.legacy.python_config import experiment_of

        if logger_creator is not None:
            print("note: logger_creator is left out: trainer.save() makes a run folder under runs/")
        if isinstance(config, Mapping | None):
            experiment = experiment_of(self.algo, config, env, closest=closest)
            super().__init__(experiment, ray_options=ray_options)
        else:
            super().__init__(config, env=env, ray_options=ray_options)


_made: dict[str, type[RLlibTrainer]] = {}


def __getattr__(name: str) -> Any:
    known = {**ALGORITHMS, **CLOSEST}
    algo = spelled(name.removesuffix("Trainer"), known)
    if algo is None or name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _made.setdefault(algo, type(algo, (RLlibTrainer,), {"algo": algo, "__module__": __name__}))


def __dir__() -> list[str]:
    return sorted([*__all__, *ALGORITHMS, *(f"{name}Trainer" for name in ALGORITHMS)])
