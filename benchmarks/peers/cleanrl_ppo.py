"""Peer: CleanRL-style PPO in one file, with CleanRL's published defaults.

    python benchmarks/peers/cleanrl_ppo.py --task cartpole --seed 1 --threads 1

Reading order is run order. The numbers are those of CleanRL's `ppo.py` (discrete actions) and
`ppo_continuous_action.py` (Pendulum, with its observation and reward normalisation). Left out, in this peer's
favour: TensorBoard, tracking, videos, printing.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

from common import Progress, Words, read_words

words = read_words(__doc__ or "")

import gymnasium as gym  # noqa: E402  (threads are set before the libraries are loaded)
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn, optim  # noqa: E402
from torch.distributions import Categorical, Normal  # noqa: E402


@dataclass
class Args:
    """CleanRL's defaults of `ppo.py`."""

    total_timesteps: int = 500_000
    learning_rate: float = 2.5e-4
    num_envs: int = 4
    num_steps: int = 128
    gamma: float = 0.99
    gae_lambda: float = 0.95
    num_minibatches: int = 4
    update_epochs: int = 4
    clip_coef: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5


# `ppo_continuous_action.py`
CONTINUOUS: dict[str, Any] = {
    "total_timesteps": 1_000_000, "learning_rate": 3e-4, "num_envs": 1, "num_steps": 2048,
    "num_minibatches": 32, "update_epochs": 10, "ent_coef": 0.0,
}  # fmt: skip
# CleanRL publishes no numbers for LunarLander: half a million steps, its default, are too few there.
LONGER: dict[str, dict[str, Any]] = {"lunarlander": {"total_timesteps": 2_000_000}}


def make_env(env_id: str, gamma: float) -> Any:
    """One environment, wrapped as CleanRL wraps it."""
    env = gym.wrappers.RecordEpisodeStatistics(gym.make(env_id))
    if isinstance(env.action_space, gym.spaces.Box):
        env = gym.wrappers.ClipAction(env)
        env = gym.wrappers.NormalizeObservation(env)
        env = gym.wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), env.observation_space)
        env = gym.wrappers.NormalizeReward(env, gamma=gamma)
        env = gym.wrappers.TransformReward(env, lambda reward: np.clip(reward, -10, 10))
    return env


def layer(inputs: int, outputs: int, std: float = 2**0.5) -> nn.Linear:
    """A linear layer with orthogonal weights."""
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, std)
    nn.init.constant_(linear.bias, 0.0)
    return linear


class Agent(nn.Module):
    """Two separate 64x64 tanh networks; a state-independent deviation for continuous actions."""

    def __init__(self, envs: gym.vector.VectorEnv) -> None:
        super().__init__()
        size = int(np.prod(envs.single_observation_space.shape))
        self.discrete = isinstance(envs.single_action_space, gym.spaces.Discrete)
        outputs = int(envs.single_action_space.n if self.discrete else envs.single_action_space.shape[0])
        self.critic = nn.Sequential(
            layer(size, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, std=1.0)
        )
        self.actor = nn.Sequential(
            layer(size, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, outputs, std=0.01)
        )
        self.log_std = nn.Parameter(torch.zeros(1, outputs), requires_grad=not self.discrete)

    def forward(self, obs: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Action (drawn if none is given), its log-probability, entropy and value."""
        out = self.actor(obs)
        if self.discrete:
            draw = Categorical(logits=out)
            action = draw.sample() if action is None else action
            return action, draw.log_prob(action), draw.entropy(), self.critic(obs)
        normal = Normal(out, self.log_std.exp().expand_as(out))
        action = normal.sample() if action is None else action
        return action, normal.log_prob(action).sum(1), normal.entropy().sum(1), self.critic(obs)


class Storage:
    """What one rollout leaves behind: [num_steps, num_envs, ...]."""

    def __init__(self, args: Args, envs: gym.vector.VectorEnv) -> None:
        shape = (args.num_steps, args.num_envs)
        self.obs = torch.zeros(shape + envs.single_observation_space.shape)
        kind = torch.long if isinstance(envs.single_action_space, gym.spaces.Discrete) else torch.float32
        self.actions = torch.zeros(shape + envs.single_action_space.shape, dtype=kind)
        self.logprobs, self.rewards, self.dones, self.values = (torch.zeros(shape) for _ in range(4))


def collect(  # noqa: PLR0917
    agent: Agent, envs: gym.vector.VectorEnv, store: Storage, obs: Tensor, done: Tensor, progress: Progress
) -> tuple[Tensor, Tensor, bool]:
    """Fills the storage; gives the next observation, its done flags and whether to stop."""
    for step in range(len(store.rewards)):
        store.obs[step], store.dones[step] = obs, done
        with torch.no_grad():
            action, logprob, _, value = agent(obs)
        store.actions[step], store.logprobs[step], store.values[step] = action, logprob, value.flatten()
        next_obs, reward, terminated, truncated, info = envs.step(action.numpy())
        store.rewards[step] = torch.as_tensor(reward, dtype=torch.float32)
        obs = torch.as_tensor(next_obs, dtype=torch.float32)
        done = torch.as_tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
        if "final_info" in info:
            ended = np.nonzero(info["final_info"]["_episode"])[0]
            for value in info["final_info"]["episode"]["r"][ended]:
                progress.episode(value)
        if progress.over(progress.steps + envs.num_envs):
            return obs, done, True
    return obs, done, False


def advantages_of(agent: Agent, store: Storage, obs: Tensor, done: Tensor, args: Args) -> Tensor:
    """Generalised advantage estimation, backwards through the rollout."""
    advantages = torch.zeros_like(store.rewards)
    last = torch.zeros(args.num_envs)
    with torch.no_grad():
        values, alive = agent.critic(obs).flatten(), 1.0 - done
    for t in reversed(range(args.num_steps)):
        delta = store.rewards[t] + args.gamma * values * alive - store.values[t]
        last = delta + args.gamma * args.gae_lambda * alive * last
        advantages[t] = last
        values, alive = store.values[t], 1.0 - store.dones[t]
    return advantages


def update(agent: Agent, optimizer: optim.Optimizer, store: Storage, advantages: Tensor, args: Args) -> None:
    """Some epochs of minibatches."""
    size = args.num_envs * args.num_steps
    obs, actions = store.obs.flatten(0, 1), store.actions.flatten(0, 1)
    logprobs, values, gains = store.logprobs.flatten(), store.values.flatten(), advantages.flatten()
    returns = gains + values
    order = np.arange(size)
    for _ in range(args.update_epochs):
        np.random.shuffle(order)
        for start in range(0, size, size // args.num_minibatches):
            rows = order[start : start + size // args.num_minibatches]
            _, logprob, entropy, value = agent(obs[rows], actions[rows])
            ratio = (logprob - logprobs[rows]).exp()
            gain = gains[rows]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            policy = torch.max(-gain * ratio, -gain * ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef))
            value, old = value.view(-1), values[rows]
            clipped = old + (value - old).clamp(-args.clip_coef, args.clip_coef)
            error = torch.max((value - returns[rows]) ** 2, (clipped - returns[rows]) ** 2)
            loss = policy.mean() - args.ent_coef * entropy.mean() + args.vf_coef * 0.5 * error.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
            optimizer.step()


def main(given: Words) -> None:
    """Trains to the goal and prints the line."""
    continuous = given.task.env == "Pendulum-v1"
    args = Args(**{**(CONTINUOUS if continuous else {}), **LONGER.get(given.task_name, {})})
    args.num_envs = given.envs or args.num_envs
    given.progress.max_steps = min(given.progress.max_steps, args.total_timesteps)
    if given.threads:
        torch.set_num_threads(given.threads)
    random.seed(given.seed)
    np.random.seed(given.seed)
    torch.manual_seed(given.seed)
    makers = [lambda: make_env(given.task.env, args.gamma)] * args.num_envs
    envs = gym.vector.SyncVectorEnv(makers, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    agent = Agent(envs)
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    store = Storage(args, envs)
    updates = args.total_timesteps // (args.num_envs * args.num_steps)
    first, _ = envs.reset(seed=given.seed)
    obs, done, over = torch.as_tensor(first, dtype=torch.float32), torch.zeros(args.num_envs), False
    given.progress.start()
    for number in range(updates + 1):  # the limits end the run, the last update never has a rate of 0
        optimizer.param_groups[0]["lr"] = max(0.0, 1.0 - number / updates) * args.learning_rate
        obs, done, over = collect(agent, envs, store, obs, done, given.progress)
        if over:
            break
        update(agent, optimizer, store, advantages_of(agent, store, obs, done, args), args)
    given.progress.report(threads=given.threads, envs=args.num_envs, settings=asdict(args))


if __name__ == "__main__":
    main(words)
