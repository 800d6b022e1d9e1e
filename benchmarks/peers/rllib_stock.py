"""Peer: RLlib as it comes, with the hyper-parameters of Rayfish's preset.

    python benchmarks/peers/rllib_stock.py --task cartpole --envs 64 --settings '{"training": {"lr": 2e-3}}'

`speed.py` hands over the preset's `training` and `model` sections, so that both learn with the same numbers.
Nothing of Rayfish is imported. What a careful user would do is done: no dashboard, no remote runner, RLlib's
deprecation notices off. The window of returns is kept in a callback, because RLlib's own
`episode_return_mean` is that of one iteration.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any

from common import read_words

words = read_words(__doc__ or "")
warnings.filterwarnings("ignore")

import gymnasium as gym  # noqa: E402  (threads are set before the libraries are loaded)
import ray  # noqa: E402
import torch  # noqa: E402
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig  # noqa: E402


def config_class(name: str) -> type[AlgorithmConfig]:
    """RLlib's config class, imported by itself: the registry would import every algorithm."""
    if name == "PPO":
        from ray.rllib.algorithms.ppo import PPOConfig as Config
    elif name == "DQN":
        from ray.rllib.algorithms.dqn import DQNConfig as Config
    else:
        from ray.rllib.algorithms.sac import SACConfig as Config
    return Config


def build_config(envs: int, vectorize: str) -> AlgorithmConfig:
    """The algorithm's config with the settings handed over."""
    returns: dict[str, float] = {}

    def on_sample_end(*, samples: list[Any], **_: Any) -> None:
        """Episodes come in pieces, cut where a sample ends: a return is the sum over them."""
        for piece in samples:
            returns[piece.id_] = returns.get(piece.id_, 0.0) + piece.get_return()
            if piece.is_done:
                words.progress.episode(returns.pop(piece.id_))

    config = config_class(words.task.algo)()
    if words.task.algo == "SAC":
        config.lr = None
    config.environment(words.task.env)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=envs, gym_env_vectorize_mode=vectorize)
    config.training(**words.settings.get("training", {}))
    config.rl_module(model_config=dict(words.settings.get("model", {})))
    config.reporting(**words.settings.get("reporting", {}))
    config.callbacks(on_sample_end=on_sample_end)
    config.debugging(seed=words.seed, log_level="ERROR")
    return config


def main() -> None:
    """Trains to the goal and prints the line."""
    logging.getLogger("ray").setLevel(logging.ERROR)
    if words.threads:
        torch.set_num_threads(words.threads)
    envs = words.envs or int(words.settings.get("envs", 1))
    native = gym.spec(words.task.env).vector_entry_point is not None
    vectorize = words.settings.get("vectorize") or ("vector_entry_point" if native else "sync")
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    algorithm = build_config(envs, vectorize).build_algo()
    words.progress.start()
    steps = 0
    while not words.progress.over(steps):
        result = algorithm.train()
        steps = int(result["num_env_steps_sampled_lifetime"])
    words.progress.report(threads=words.threads, envs=envs, vectorize=vectorize, settings=words.settings)
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
