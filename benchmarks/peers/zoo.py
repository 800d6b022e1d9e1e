"""The RL Baselines3 Zoo's settings, and one training run with them, for Stable-Baselines3 and sbx alike.

Takes the module that has `PPO`, `DQN` and `SAC` (`stable_baselines3` or `sbx`) and a peer's words; trains to
the goal and prints the line. Settings: `hyperparams/{ppo,dqn,sac}.yml` of DLR-RM/rl-baselines3-zoo, written
out below in its own names; what is left out there is Stable-Baselines3's default here too. The zoo has no
entry for LunarLander-v3, which differs from v2 in a bug fix: v2's is used.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from common import Words

# lin_x is the zoo's word for a value that falls from x to 0 over n_timesteps.
ZOO: dict[str, dict[str, Any]] = {
    "cartpole": {
        "n_envs": 8, "n_timesteps": 100_000, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8,
        "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0, "learning_rate": "lin_0.001", "clip_range": "lin_0.2",
    },
    "acrobot": {
        "normalize": True, "n_envs": 16, "n_timesteps": 1_000_000, "n_steps": 256, "gae_lambda": 0.94,
        "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0,
    },
    "lunarlander": {
        "n_envs": 16, "n_timesteps": 1_000_000, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98,
        "gamma": 0.999, "n_epochs": 4, "ent_coef": 0.01,
    },
    "pendulum-ppo": {
        "n_envs": 4, "n_timesteps": 100_000, "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9,
        "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 1e-3, "clip_range": 0.2,
        "use_sde": True, "sde_sample_freq": 4,
    },
    "cartpole-dqn": {
        "n_envs": 1, "n_timesteps": 50_000, "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000,
        "learning_starts": 1000, "gamma": 0.99, "target_update_interval": 10, "train_freq": 256,
        "gradient_steps": 128, "exploration_fraction": 0.16, "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
    "pendulum-sac": {"n_envs": 1, "n_timesteps": 20_000, "learning_rate": 1e-3},
}  # fmt: skip


def train(library: ModuleType, words: Words, *, without: tuple[str, ...] = ()) -> None:
    """One run of the zoo's settings to the goal.

    :param library: has the algorithm's class
    :param without: settings that this library does not support
    """
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    if words.threads:
        torch.set_num_threads(words.threads)
    settings = {key: value for key, value in ZOO[words.task_name].items() if key not in without}
    envs = words.envs or settings["n_envs"]
    planned, steps = settings.pop("n_timesteps"), words.progress.max_steps
    del settings["n_envs"]
    if any(str(value).startswith("lin_") for value in settings.values()):
        steps = words.progress.max_steps = min(steps, planned)  # past the plan the learning rate is 0
    if "exploration_fraction" in settings:
        settings["exploration_fraction"] *= planned / steps
    env = make_vec_env(words.task.env, n_envs=envs, seed=words.seed)
    if settings.pop("normalize", False):
        env = VecNormalize(env, gamma=settings["gamma"])
    scheduled = {key: _schedule(value, planned, steps) for key, value in settings.items()}
    model = getattr(library, words.task.algo)("MlpPolicy", env, seed=words.seed, device="cpu", **scheduled)
    model.learn(steps + envs, callback=_follow(words))
    words.progress.report(threads=words.threads, envs=envs, settings=ZOO[words.task_name])


def _schedule(value: Any, planned: int, steps: int) -> Any:
    """The zoo's `lin_x` as a function of the share of training that remains; other values as they are."""
    if not (isinstance(value, str) and value.startswith("lin_")):
        return value
    first = float(value.removeprefix("lin_"))

    def linear(remaining: float) -> float:
        return first * max(0.0, 1.0 - (1.0 - remaining) * steps / planned)

    function: Callable[[float], float] = linear
    return function


def _follow(words: Words) -> Any:
    from stable_baselines3.common.callbacks import BaseCallback

    class Follow(BaseCallback):
        """Tells `Progress` about every finished episode and stops at the goal."""

        def _on_training_start(self) -> None:
            words.progress.start()

        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    words.progress.episode(info["episode"]["r"])
            return not words.progress.over(self.num_timesteps)

    return Follow()
