"""Proximal policy optimisation with Stable-Baselines3: a program that knows nothing of Rayfish.

    pip install stable-baselines3 tensorboard
    python sb3_ppo.py --lr 1e-3 --total-steps 20000 --out /tmp/one

It writes TensorBoard logs to OUT/logs and models to OUT/models, as such scripts do, and goes on from
a model with --load.
"""

import argparse
from pathlib import Path

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.env_util import make_vec_env


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--lr", type=float, default=3e-4, help="learning rate")
    parser.add_argument("--n-envs", type=int, default=8, help="environments side by side")
    parser.add_argument("--n-steps", type=int, default=32, help="of each environment between two updates")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--n-epochs", type=int, default=10)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--clip-range", type=float, default=0.2)
    parser.add_argument("--ent-coef", type=float, default=0.0)
    parser.add_argument("--width", type=int, default=32, help="units of each of two layers")
    parser.add_argument("--total-steps", type=int, default=20_000)
    parser.add_argument("--save-every", type=int, default=2_000, help="steps between two models")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", type=Path, help="go on from this model")
    parser.add_argument("--out", type=Path, default=Path())
    return parser.parse_args()


def main() -> None:
    given = arguments()
    torch.set_num_threads(1)
    env = make_vec_env(given.env, given.n_envs, seed=given.seed)
    settings = {
        "learning_rate": given.lr,
        "n_steps": given.n_steps,
        "batch_size": min(given.batch_size, given.n_steps * given.n_envs),
        "n_epochs": given.n_epochs,
        "gamma": given.gamma,
        "gae_lambda": given.gae_lambda,
        "clip_range": given.clip_range,
        "ent_coef": given.ent_coef,
        "tensorboard_log": str(given.out / "logs"),
        "seed": given.seed,
        "device": "cpu",
    }
    if given.load:
        model = PPO.load(given.load, env=env, **settings)
    else:
        model = PPO("MlpPolicy", env, policy_kwargs={"net_arch": [given.width, given.width]}, **settings)
    models = CheckpointCallback(max(1, given.save_every // given.n_envs), str(given.out / "models"), "ppo")
    left = max(0, given.total_steps - model.num_timesteps)
    model.learn(left, callback=models, log_interval=1, reset_num_timesteps=not given.load)
    model.save(given.out / "models" / f"ppo_{model.num_timesteps}_steps.zip")


if __name__ == "__main__":
    main()
