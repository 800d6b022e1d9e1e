"""How good an agent is: fixed seeds, no exploration, a mean with its interval.

Runs the saved policy by itself (no Ray, no GPU), one episode after the other, so that episode
`i` of the same checkpoint and seed is the same episode on every machine and at every count.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rayfish.algorithm import signatures
from rayfish.envs import build as envs
from rayfish.envs.kinds import alike, in_short, is_multi_agent
from rayfish.envs.pulse import alive
from rayfish.errors import ConfigError, RayfishError
from rayfish.experiment import Experiment
from rayfish.metrics.stats import bootstrap_ci
from rayfish.run.directory import atomic_write, find_checkpoint
from rayfish.run.faults import explained
from rayfish.run.policy import Agent, load

_LONGEST = 100_000  # steps after which an episode without end is given up, with a message


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found; `file` is its JSON on disk."""

    checkpoint: str
    env: str
    episodes: int
    steps: int
    return_mean: float
    ci_low: float
    ci_high: float
    length_mean: float
    seconds: float
    seed: int
    returns: list[float]
    lengths: list[int]
    policy_returns: dict[str, float]
    file: str = ""


def evaluate(
    run: str | Path,
    *overrides: str,
    episodes: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    explore: bool = False,
    env: Any = None,
    progress: Callable[[int, float], None] | None = None,
) -> Evaluation:
    """Plays episodes with a run's best (else last) checkpoint, or with the checkpoint named.

    :param run: a run (path, name, id, `last`) or a checkpoint folder
    :param overrides: `key=value` changes of the experiment, such as `environment.env_config.wind=3`
    :param episodes: how many episodes to play (20 when neither is given)
    :param steps: play until this many steps are done; the last episode is finished
    :param seed: episode `i` is reset with `seed + i`
    :param explore: sample actions as in training, in place of the most likely ones
    :param env: an environment class or creator, for runs that were trained on one given from Python
    :param progress: called after each episode with how many are done and the last return
    """
    checkpoint = find_checkpoint(str(run))
    experiment = _changed(Experiment.load(checkpoint / "config.yaml"), overrides, env)
    agent = load(checkpoint)
    agent.seed(seed)
    if episodes is None and steps is None:
        episodes = 20
    if (episodes is not None and episodes < 1) or (steps is not None and steps < 1):
        asked = f"{episodes} episodes" if episodes is not None else f"{steps} steps"
        raise RayfishError(f"{asked} were asked for: nothing to play", "ask for at least 1")
    begun = time.perf_counter()
    with explained(experiment), _one_thread():
        played = _play(
            agent, experiment, episodes=episodes, steps=steps, seed=seed, explore=explore, progress=progress
        )
    returns, lengths, by_policy = played
    mean, low, high = bootstrap_ci(returns, seed=0)
    found = Evaluation(
        checkpoint=str(checkpoint),
        env=str(experiment.get("environment.env") or getattr(env, "__name__", env)),
        episodes=len(returns),
        steps=sum(lengths),
        return_mean=mean,
        ci_low=low,
        ci_high=high,
        length_mean=sum(lengths) / len(lengths),
        seconds=round(time.perf_counter() - begun, 3),
        seed=seed,
        returns=returns,
        lengths=lengths,
        policy_returns=by_policy,
        file=str(_place(checkpoint)),
    )
    Path(found.file).parent.mkdir(exist_ok=True)
    atomic_write(Path(found.file), json.dumps(asdict(found), indent=2) + "\n")
    return found


@contextmanager
def _one_thread() -> Iterator[None]:
    """One observation at a time gains nothing from threads, and loses much where others use the cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _changed(trained: Experiment, overrides: Sequence[str], env: Any) -> Experiment:
    """The experiment with overrides; a typo among them must not score another environment in silence."""
    changed = trained.with_overrides(overrides)
    if overrides:
        before = {problem.key for problem in signatures.problems(trained)}
        problems = [p for p in signatures.problems(changed) if p.key not in before]
        if problems:
            raise ConfigError(problems)
    if env is None and not changed.get("environment.env"):
        raise RayfishError(
            "this policy was trained on an environment given from Python, which no file names",
            "from Python: rayfish.evaluate(run, env=TheClass); else add environment.env=file.py:TheClass",
        )
    return changed if env is None else replace(changed, env=env)


def _play(
    agent: Agent,
    experiment: Experiment,
    *,
    episodes: int | None,
    steps: int | None,
    seed: int,
    explore: bool,
    progress: Callable[[int, float], None] | None,
) -> tuple[list[float], list[int], dict[str, float]]:
    env = envs.make(
        envs.from_experiment(experiment, evaluation=True), envs.env_config_of(experiment, evaluation=True)
    )
    alive()
    episode = _multi_episode if is_multi_agent(env) else _single_episode
    _require_spaces(agent, env, str(experiment.get("environment.env")))
    returns: list[float] = []
    lengths: list[int] = []
    totals: dict[str, float] = {}
    try:
        while (episodes is not None and len(returns) < episodes) or (
            steps is not None and sum(lengths) < steps
        ):
            agent.reset()
            total, length, parts = episode(agent, env, seed + len(returns), explore)
            returns.append(total)
            lengths.append(length)
            for policy, value in parts.items():
                totals[policy] = totals.get(policy, 0.0) + value
            if progress is not None:
                progress(len(returns), total)
    finally:
        env.close()
    return returns, lengths, {policy: value / len(returns) for policy, value in totals.items()}


def _require_spaces(agent: Agent, env: Any, name: str) -> None:
    """Refuses an environment whose observations or actions the policy was not trained on."""
    if is_multi_agent(env) or len(agent.policies) != 1:
        return
    for what, trained, here in (
        ("observations", agent.observation_space, env.observation_space),
        ("actions", agent.action_space, env.action_space),
    ):
        if trained is not None and not alike(trained, here):
            raise RayfishError(
                f"the policy was trained on the {what} {in_short(trained)}; {name} has {in_short(here)}",
                "evaluate it on the environment it was trained on, or with the env_config it had there",
            )


def _single_episode(agent: Agent, env: Any, seed: int, explore: bool) -> tuple[float, int, dict[str, float]]:
    observation, _ = env.reset(seed=seed)
    total, length = 0.0, 0
    while True:
        observation, reward, terminated, truncated, _ = env.step(agent.act(observation, explore=explore))
        alive()
        total, length = total + float(reward), length + 1
        if terminated or truncated:
            return total, length, {}
        _check_length(length)


def _multi_episode(agent: Agent, env: Any, seed: int, explore: bool) -> tuple[float, int, dict[str, float]]:
    observations, _ = env.reset(seed=seed)
    parts: dict[str, float] = {}
    length = 0
    while observations:
        actions = {
            name: agent.act(observation, explore=explore, agent_id=name)
            for name, observation in observations.items()
        }
        observations, rewards, terminated, truncated, _ = env.step(actions)
        alive()
        length += 1
        for name, reward in rewards.items():
            policy = agent.policy_of(name)
            parts[policy] = parts.get(policy, 0.0) + float(reward)
        if _all_done(terminated, truncated, rewards):
            break
        observations = {
            name: obs
            for name, obs in observations.items()
            if not (terminated.get(name) or truncated.get(name))
        }
        _check_length(length)
    return sum(parts.values()), length, parts


def _all_done(terminated: dict[Any, bool], truncated: dict[Any, bool], rewards: dict[Any, float]) -> bool:
    """RLlib's multi-agent envs say `__all__`; PettingZoo's are done when every agent is."""
    if "__all__" in terminated:
        return bool(terminated["__all__"] or truncated.get("__all__"))
    names: Sequence[Any] = list(rewards)
    return all(terminated.get(n) or truncated.get(n) for n in names)


def _check_length(length: int) -> None:
    if length >= _LONGEST:
        raise RayfishError(
            f"an episode did not end within {_LONGEST:,} steps",
            "give it a limit, for example rollouts.horizon=1000",
        )


def _place(checkpoint: Path) -> Path:
    """`evaluations/` of the run, or beside a checkpoint that stands alone."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name = f"{stamp}-{secrets.token_hex(2)}-{checkpoint.name}.json"
    run = checkpoint.parent.parent
    if checkpoint.parent.name == "checkpoints" and (run / "run.json").is_file():
        return run / "evaluations" / name
    return checkpoint.parent / f"evaluation-{name}"
