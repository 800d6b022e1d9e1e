"""What is wrong with an environment and how to fix it: the work of `rayfish env check`.

The checks run in order, each on what the earlier ones have proved: spaces, then what reset and step
return, then the values over random episodes, then repeatability, endings, speed and pickling.
"""

from __future__ import annotations

import copy
import random
import re
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, get_args

import cloudpickle
import gymnasium as gym
import numpy as np

from rayfish.envs import contract, old_environments, space_check
from rayfish.envs.env_kind import (
    DEFAULT_AGENT,
    agents_and_spaces,
    in_short,
    is_multi_agent,
    is_parallel,
    max_steps,
)
from rayfish.envs.play import ALL, Player, TimeStep, random_actions
from rayfish.errors import EnvironmentFault
from rayfish.experiment.imports import user_frame
from rayfish.generators import undisturbed

_EPISODES = 3
_STEPS_LOOKED_AT = 1000
_LONG = 10_000
_SPEED_SECONDS = 0.4


Level = Literal["error", "warning", "note", "ok"]


@dataclass(frozen=True)
class Finding:
    """One result of a check.

    :param level: "error" stops training, "warning" may spoil it, "note" is good to know, "ok" is fine
    :param topic: what was checked ("reset", "observations", "speed")
    """

    level: Level
    topic: str
    what: str
    hint: str = ""


class Report:
    """Findings so far; a topic's errors are kept once each, however often they occur."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def add(self, level: Level, topic: str, what: str, hint: str = "") -> None:
        """Keep a finding unless the same topic already has one with the same remedy."""
        known = ((seen.level, seen.topic, seen.hint) for seen in self.findings)
        if not hint or (level, topic, hint) not in known:
            self.findings.append(Finding(level, topic, what, hint))

    def has(self, *topics: str) -> bool:
        """Whether there is an error or warning under one of the topics."""
        return any(seen.topic in topics and seen.level in ("error", "warning") for seen in self.findings)

    def sorted(self) -> list[Finding]:
        """The worst first; a topic with an error or warning is not also called fine."""
        kept = [seen for seen in self.findings if seen.level != "ok" or not self.has(seen.topic)]
        return sorted(kept, key=lambda seen: get_args(Level).index(seen.level))

    @property
    def broken(self) -> bool:
        """Whether any error was found."""
        return any(seen.level == "error" for seen in self.findings)


class _Stop(Exception):
    """A fault that leaves the later checks nothing to stand on."""


def check(env: Any, *, seed: int = 0) -> list[Finding]:
    """Look at an environment as training will use it; errors first, each with its remedy."""
    report = Report()
    try:
        _spaces(env, report)
        _contract(env, report)
        _episodes(env, seed, report)
        _repeatable(env, seed, report)
        _endings(env, seed, report)
        if not report.broken:
            _speed(env, seed, report)
        _pickle(env, report)
        if not is_multi_agent(env) and not report.broken and old_environments.adapter(env) is None:
            _gymnasium_opinion(env, report)
    except _Stop:
        pass
    return report.sorted()


def _spaces(env: Any, report: Report) -> None:
    try:
        agents, observations, actions = agents_and_spaces(env)
    except EnvironmentFault as fault:
        report.add("error", "spaces", fault.what, fault.hint)
        raise _Stop from fault
    for agent in agents:
        whose, space = _of(agent), actions[agent]
        if isinstance(space, gym.spaces.Box) and not space.is_bounded():
            what = f"the action space{whose} has no bounds: {in_short(space)}"
            hint = "give it low and high, so that actions can be scaled to what the environment understands"
            report.add("warning", "spaces", what, hint)
        seen = observations[agent]
        image = isinstance(seen, gym.spaces.Box) and len(seen.shape) == 3 and seen.dtype != np.uint8
        if image and np.all(seen.high == 255):  # type: ignore[attr-defined]
            hint = "declare dtype=np.uint8: four times less memory, and models scale it by themselves"
            report.add("note", "spaces", f"images{whose} are {seen.dtype}, 0 to 255", hint)
    kinds = {f"observations {in_short(observations[a])}, actions {in_short(actions[a])}" for a in agents}
    said = kinds.pop() if len(kinds) == 1 else f"{len(kinds)} kinds of observations and actions"
    if agents != (DEFAULT_AGENT,):
        said = f"{len(agents)} agents ({', '.join(map(str, agents[:6]))}); {said}"
    report.add("ok", "spaces", said)


def _contract(env: Any, report: Report) -> None:
    """What reset and step take and return, on the innermost environment (wrappers hide the cause)."""
    inner = getattr(env, "unwrapped", env)
    _, observations, actions = agents_and_spaces(inner)
    for topic, probe in (("reset", contract.reset), ("step", contract.step)):
        try:
            seen = probe(env)
        except contract.ValueBroken:
            continue  # the episodes below say which values, and all of them
        except contract.ContractBroken as fault:
            report.add("error", topic, fault.what, fault.hint)
            raise _Stop from fault
        except Exception as error:
            report.add("error", topic, _raised(f"{topic}()", error), "fix that line")
            raise _Stop from error
        for agent, observation in seen.items():
            for what, hint in space_check.mask_faults(observation, observations[agent], actions[agent]):
                report.add("error", "action mask", what, hint)
        if report.broken:
            raise _Stop
    adapted = old_environments.notice(env)
    if adapted:
        report.add("note", "step", adapted, "it trains as it is; today's form tells ended from cut off")
    report.add("ok", "reset", "takes seed and options, returns (observation, info)")
    report.add("ok", "step", "returns (observation, reward, terminated, truncated, info)")


def _episodes(env: Any, seed: int, report: Report) -> None:
    """Every value of a few random episodes against what was declared."""
    _, observations, actions = agents_and_spaces(env)
    steps, masked = 0, False

    def look(now: TimeStep) -> None:
        nonlocal steps, masked
        steps += 1
        for agent, observation in now.observations.items():
            for what, hint in space_check.faults(
                observation, observations[agent], f"observation{_of(agent)}"
            ):
                report.add("error", "observations", what, hint)
            for what, hint in space_check.mask_faults(observation, observations[agent], actions[agent]):
                report.add("error", "action mask", what, hint)
            masked |= isinstance(observation, dict) and space_check.MASK in observation
        _look_at_ends(now, report)

    for number in range(_EPISODES):
        try:
            for now in _random_episode(env, seed + number, _STEPS_LOOKED_AT):
                look(now)
        except Exception as error:
            report.add("error", "step", _raised("an episode", error), "fix that line")
            raise _Stop from error
        if is_parallel(env) and now.over and env.agents:
            what = f"all agents are done, but env.agents is still {list(env.agents)}"
            hint = "remove an agent from self.agents in the step in which it is terminated or truncated"
            report.add("error", "agents", what, hint)
    report.add("ok", "observations", f"in their space over {steps:,} steps")
    report.add("ok", "reward", "a finite number at every step")
    if masked:
        report.add("ok", "action mask", "always leaves an action, and fits the action space")


def _random_episode(env: Any, seed: int, steps: int) -> Iterator[TimeStep]:
    """The reset and up to `steps` steps of a seeded episode."""
    act = random_actions(agents_and_spaces(env)[2], seed)
    return (now for _, now in islice(Player(env).episode(act, seed), steps + 1))


def _look_at_ends(now: TimeStep, report: Report) -> None:
    for agent, reward in now.rewards.items():
        for what, hint in space_check.reward_faults(reward, f"the reward{_of(agent)}"):
            report.add("error", "reward", what, hint)
    for name, flags in (("terminated", now.terminated), ("truncated", now.truncated)):
        for agent, flag in flags.items():
            if not isinstance(flag, bool | np.bool_):
                what = f"{name}{_of(agent)} is {flag!r} ({type(flag).__name__})"
                report.add("error", "step", what, f"return bool({name})")


def _repeatable(env: Any, seed: int, report: Report) -> None:
    """The same seed and the same actions must give the same episode."""
    difference = _difference(env, seed)
    if not difference:
        report.add("ok", "seed", "the same seed gives the same episode")
        return
    with undisturbed():
        globally = not _difference(env, seed, reseed=True)
    cause = "it draws from a generator that reset() does not seed, or keeps state between episodes"
    if globally:
        cause = "it draws from the global `random` or `np.random`"
    what = f"the same seed gives different episodes: {difference}; {cause}"
    report.add("warning", "seed", what, "call super().reset(seed=seed) and draw only from self.np_random")


def _difference(env: Any, seed: int, *, reseed: bool = False) -> str:
    """Where two episodes with one seed part; "" when they do not. `reseed` seeds the global generators."""
    runs: list[list[tuple[Any, Any]]] = []
    for _ in range(2):
        if reseed:
            random.seed(seed)
            np.random.seed(seed)
        # Copied at once: an environment may write every observation into the same array.
        runs.append(
            [copy.deepcopy((now.observations, now.rewards)) for now in _random_episode(env, seed, 200)]
        )
    for index, (one, two) in enumerate(zip(*runs, strict=False)):
        when = "the first observation" if index == 0 else f"step {index}"
        if not space_check.same(one[0], two[0]):
            return f"{when} differs" if index == 0 else f"the observation of {when} differs"
        if not space_check.same(one[1], two[1]):
            return f"the reward of {when} differs"
    return "" if len(runs[0]) == len(runs[1]) else f"{len(runs[0]) - 1} and {len(runs[1]) - 1} steps long"


def _endings(env: Any, seed: int, report: Report) -> None:
    """How long random episodes are, and whether they end at all."""
    player, act = Player(env), random_actions(agents_and_spaces(env)[2])
    limit = max_steps(env)
    lengths: list[int] = []
    steps, total, until = 0, 0, time.perf_counter() + 2.0
    while len(lengths) < 20 and total < _LONG and time.perf_counter() < until:
        now, steps = player.reset(seed + len(lengths)), 0
        while not now.over and total < _LONG and time.perf_counter() < until:
            now, steps, total = player.step(act(now)), steps + 1, total + 1
        if now.over:
            lengths.append(steps)
    said = f"at most {limit:,} steps" if limit else "no limit that can be seen"
    if limit is None and not lengths:
        what = f"no episode of random actions ended within {steps:,} steps, and there is no time limit"
        hint = "set rollouts.horizon=1000 (or what suits the task): returns are only known once episodes end"
        report.add("warning", "episode end", what, hint)
    elif lengths and max(lengths) <= 1:
        what = f"all {len(lengths)} episodes ended after one step"
        hint = "look at what sets terminated, unless the task is a bandit"
        report.add("warning", "episode end", what, hint)
    else:
        shortest, longest = min(lengths, default=0), max(lengths, default=0)
        span = f"{longest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
        played = f"random ones took {span} steps" if lengths else ""
        report.add("ok", "episode end", "; ".join(filter(None, (said, played))))


def _speed(env: Any, seed: int, report: Report) -> None:
    player, act = Player(env), random_actions(agents_and_spaces(env)[2])
    now = player.reset(seed)
    steps, took, in_reset = 0, 0.0, 0.0
    while took < _SPEED_SECONDS:
        over, actions = now.over, act(now)  # choosing is not the environment's time
        started = time.perf_counter()
        now = player.reset() if over else player.step(actions)
        elapsed = time.perf_counter() - started
        took += elapsed
        in_reset += elapsed * over
        steps += not over
    share = f", {in_reset / took:.0%} of the time in reset" if in_reset / took > 0.2 else ""
    what = f"{steps / took:,.0f} steps/s on one core{share}"
    if steps / took < 200:
        hint = "let rollouts.num_env_runners share the work, or profile step()"
        report.add("note", "speed", what, hint)
    else:
        report.add("ok", "speed", what)


def _pickle(env: Any, report: Report) -> None:
    """A checkpoint keeps the running episodes of environments that pickle."""
    try:
        report.add("ok", "pickling", f"a copy takes {len(cloudpickle.dumps(env)) / 1024:,.0f} kB")
    except Exception as error:
        what = f"it cannot be pickled ({type(error).__name__}: {error})"
        hint = "fine for training; a resumed run starts new episodes. Keep open files and windows out of self"
        report.add("note", "pickling", what, hint)


def _gymnasium_opinion(env: Any, report: Report) -> None:
    """What Gymnasium's own checker adds; it ignores action masks, so masked environments are spared."""
    space = env.observation_space
    if report.has("seed") or (isinstance(space, gym.spaces.Dict) and space_check.MASK in space.spaces):
        return
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env.unwrapped, skip_render_check=True, skip_close_check=True)
        except Exception as error:
            text = " ".join(str(error).split())
            report.add("warning", "gymnasium", f"its own checker says: {text}")
    for entry in caught:
        text = " ".join(_plain(str(entry.message)).split())
        # Unbounded observations are ordinary, and a spec is not needed here.
        if "WARN" in str(entry.message) and not re.search("infinity|spec", text):
            report.add("note", "gymnasium", text)
    report.add("ok", "gymnasium", "its own checker agrees")


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[\d+m", "", text).removeprefix("WARN: ")


def _raised(place: str, error: BaseException) -> str:
    frame = user_frame(error)
    frames = traceback.extract_tb(error.__traceback__)
    frame = frame or (frames[-1] if frames else None)
    where = f" at {frame.filename}:{frame.lineno}" if frame else ""
    return f"{place} raised {type(error).__name__}{where}: {error}".rstrip(": ")


def _of(agent: Any) -> str:
    return "" if agent == DEFAULT_AGENT else " of the episode" if agent == ALL else f" of {agent!r}"
