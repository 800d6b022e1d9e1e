"""Plays episodes with a saved policy: the player that `rayfish evaluate` and `rayfish rollout` share.

No Ray and no GPU: one episode after the other in this process, episode `i` reset with `seed + i`, so
that it is the same episode on every machine and at every count. A recorder may look on.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from rayfish import threads
from rayfish.algorithm import signatures
from rayfish.envs import build as envs
from rayfish.envs import guard
from rayfish.envs.env_kind import alike, in_short, is_multi_agent
from rayfish.errors import ConfigError, RayfishError
from rayfish.experiment import Experiment
from rayfish.experiment.words import Override, as_words
from rayfish.run import manifest
from rayfish.run.directory import find_checkpoint
from rayfish.run.policy import Agent, load
from rayfish.run.policy_files import read_policies
from rayfish.run.trust import code_in_env, code_in_policies, is_trusted, own_paths, require
from rayfish.supervise.watchdog import report_progress

_OF_TRAINING = (
    *("algo", "training", "learners", "resources", "stop_conditions", "checkpoint"),
    *("reporting", "search", "tunables", "trackers"),
)
"""Sections that have no part in playing."""

EPISODES = 20
"""How many are played where neither episodes nor steps are asked for."""

_LONGEST = 100_000  # steps after which an episode without end is given up, with a message
_ALL = "__all__"


@dataclass(frozen=True)
class PlayedStep:
    """What one reset or step gave, by agent; the one agent of a Gymnasium environment is None."""

    observations: Mapping[Any, Any]
    infos: Mapping[Any, Any]
    rewards: Mapping[Any, Any] = field(default_factory=dict)
    terminated: Mapping[Any, Any] = field(default_factory=dict)
    truncated: Mapping[Any, Any] = field(default_factory=dict)

    def ended(self, agent: Any) -> tuple[bool, bool]:
        """Whether this moment terminated and whether it truncated the episode of an agent."""
        return (
            bool(self.terminated.get(agent) or self.terminated.get(_ALL)),
            bool(self.truncated.get(agent) or self.truncated.get(_ALL)),
        )

    @property
    def over(self) -> bool:
        """RLlib's multi-agent envs say `__all__`; others are done when every agent is."""
        if _ALL in self.terminated:
            return bool(self.terminated[_ALL] or self.truncated.get(_ALL))
        return all(any(self.ended(agent)) for agent in self.rewards)


class Recorder(Protocol):
    """Sees everything that is played."""

    def begin(self, episode: int, now: PlayedStep) -> None:
        """An episode was reset."""

    def step(self, actions: Mapping[Any, Any], now: PlayedStep) -> None:
        """The agents acted, and this is what it led to."""

    def end(self) -> None:
        """The episode is over."""


@dataclass(frozen=True)
class Played:
    """One finished episode.

    :param parts: the return of each policy; empty for a single agent
    :param reset_info: what the reset said beside the observation, by agent
    :param infos: the last info of every agent
    """

    number: int
    seed: int
    total: float
    length: int
    terminated: bool
    truncated: bool
    seconds: float
    parts: dict[str, float]
    reset_info: Mapping[Any, Any]
    infos: dict[Any, Any]


@dataclass(frozen=True)
class Game:
    """What there is to play: a policy, the environment it plays in, and how much of it."""

    checkpoint: Path
    experiment: Experiment
    agent: Agent
    episodes: int | None
    steps: int | None
    seed: int
    explore: bool

    @property
    def env_name(self) -> str:
        """The environment as the experiment names it, or the class given from Python."""
        given = self.experiment.env
        return str(self.experiment.environment.env or getattr(given, "__name__", given))


def prepare(
    run: str | Path,
    overrides: Sequence[Override],
    *,
    verb: str,
    episodes: int | None,
    steps: int | None,
    seed: int,
    explore: bool,
    env: Any = None,
    trust: bool = False,
) -> Game:
    """Everything that can be wrong with what was asked is told here, before anything is played.

    :param verb: the function of `rayfish` that asks, for the messages
    :param trust: run the code that another user's checkpoint names
    """
    checkpoint = find_checkpoint(str(run))
    experiment = _experiment(checkpoint, overrides, verb=verb, env=env, trust=trust)
    agent = load(checkpoint, trust=trust)
    agent.seed(seed)
    if episodes is None and steps is None:
        episodes = EPISODES
    if (episodes is not None and episodes < 1) or (steps is not None and steps < 1):
        asked = f"{episodes} episodes" if episodes is not None else f"{steps} steps"
        raise RayfishError(f"{asked} were asked for: nothing to play", "ask for at least 1")
    return Game(checkpoint, experiment, agent, episodes, steps, seed, explore)


def agree(run: str | Path, overrides: Sequence[Override], *, verb: str, trust: bool) -> None:
    """Asks whether another user's run may run code; a command does so before it draws on the terminal.

    :raises NotTrusted: it may not
    """
    checkpoint = find_checkpoint(str(run))
    if not is_trusted(checkpoint):
        _experiment(checkpoint, overrides, verb=verb, env=None, trust=trust)


def _experiment(
    checkpoint: Path, overrides: Sequence[Override], *, verb: str, env: Any, trust: bool
) -> Experiment:
    """What a checkpoint was trained with, changed by the overrides; the user agrees to code it names."""
    manifest.require_files(checkpoint, "config.yaml")
    saved = Experiment.load(checkpoint / "config.yaml")
    experiment = _changed(saved, overrides, env, verb)
    if is_trusted(checkpoint):
        return experiment
    words = as_words(overrides)
    without_paths = replace(experiment, paths=own_paths(words))
    code = code_in_env(without_paths, words)
    code += code_in_policies(read_policies(checkpoint / "policy", weights=False))
    if code or trust:
        require(checkpoint, code, trust=trust)
        return experiment
    return without_paths


@contextmanager
def opened(game: Game) -> Iterator[Any]:
    """The environment, checked against the policy and closed at the end."""
    experiment = game.experiment
    env = envs.make(
        envs.from_experiment(experiment, evaluation=True), envs.env_config_of(experiment, evaluation=True)
    )
    report_progress()
    try:
        _require_spaces(game.agent, env, str(experiment.environment.env))
        with threads.limited_to(1):  # one observation at a time gains nothing from more
            yield env
    finally:
        guard.close(env)


def play(
    game: Game, env: Any, recorder: Recorder | None = None, each_step: Callable[[], None] | None = None
) -> Iterator[Played]:
    """The episodes, each when it is over; with `steps`, until that many are done and the last has ended.

    :param each_step: called after every step of the environment
    """
    number, done = 0, 0
    while (game.episodes is not None and number < game.episodes) or (
        game.steps is not None and done < game.steps
    ):
        game.agent.reset()
        played = _episode(game, env, number, recorder, each_step)
        number, done = number + 1, done + played.length
        yield played


def policy_of(agent: Agent, name: Any) -> str:
    """The policy that plays for an agent; None is the one agent of a Gymnasium environment."""
    return next(iter(agent.policies)) if name is None else agent.policy_of(name)


def place(checkpoint: Path, many: str, one: str) -> Path:
    """Where a result of `checkpoint` goes: a new name in `many/` of its run, or beside one that stands alone.

    :param one: what the name begins with where there is no run
    """
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    run = checkpoint.parent.parent
    if checkpoint.parent.name == "checkpoints" and (run / "run.json").is_file():
        target = (run / many).resolve()
        if not target.is_relative_to(run.resolve()):
            what = f"{run / many} is a link to {target}, outside of the run"
            raise RayfishError(what, "name a place to write with --out")
        return run / many / name
    return checkpoint.parent / f"{one}-{name}"


def _episode(
    game: Game, env: Any, number: int, recorder: Recorder | None, each_step: Callable[[], None] | None
) -> Played:
    begun, multi = time.perf_counter(), is_multi_agent(env)
    seed, agent = game.seed + number, game.agent
    now = _moment(env.reset(seed=seed), multi)
    reset_info, infos = now.infos, dict(now.infos)
    if recorder is not None:
        recorder.begin(number, now)
    parts: dict[str, float] = {}
    length, to_act = 0, now.observations
    while to_act:
        actions = {
            name: agent.act(observation, explore=game.explore, agent_id=name)
            for name, observation in to_act.items()
        }
        now = _moment(env.step(actions if multi else actions[None]), multi)
        report_progress()
        length += 1
        infos |= now.infos
        for name, reward in now.rewards.items():
            policy = policy_of(agent, name)
            parts[policy] = parts.get(policy, 0.0) + float(reward)
        if recorder is not None:
            recorder.step(actions, now)
        if each_step is not None:
            each_step()
        if now.over:
            break
        to_act = {name: seen for name, seen in now.observations.items() if not any(now.ended(name))}
        check_length(length)
    if recorder is not None:
        recorder.end()
    ends = [now.ended(name) for name in now.rewards or (_ALL,)]
    return Played(
        number=number,
        seed=seed,
        total=float(sum(parts.values())),
        length=length,
        terminated=all(end[0] for end in ends),
        truncated=any(end[1] for end in ends),
        seconds=round(time.perf_counter() - begun, 6),
        parts=parts if multi else {},
        reset_info=reset_info,
        infos=infos,
    )


def _moment(given: Sequence[Any], multi: bool) -> PlayedStep:
    """What reset or step returned, in one form for one agent and for several."""
    by_agent = [dict(value or {}) if multi else {None: value} for value in given]
    if len(by_agent) == 2:
        return PlayedStep(by_agent[0], by_agent[1])
    observations, rewards, terminated, truncated, infos = by_agent
    return PlayedStep(observations, infos, rewards, terminated, truncated)


def check_length(length: int) -> None:
    """An episode without an end is an error at some point."""
    if length >= _LONGEST:
        raise RayfishError(
            f"an episode did not end within {_LONGEST:,} steps",
            "give it a limit, for example rollouts.horizon=1000",
        )


def _changed(trained: Experiment, overrides: Sequence[Override], env: Any, verb: str) -> Experiment:
    """The experiment with overrides; a typo among them must not play another environment in silence."""
    for key in (word.lstrip("+~").partition("=")[0] for word in as_words(overrides)):
        if key.partition(".")[0] in _OF_TRAINING:
            raise RayfishError(
                f"{key} is a setting of the training: it changes nothing in how a trained policy plays",
                "leave it out; settings of the environment do: environment.env_config.KEY=VALUE",
            )
    changed = trained.with_overrides(overrides)
    if overrides:
        before = {problem.key for problem in signatures.problems(trained)}
        problems = [p for p in signatures.problems(changed) if p.key not in before]
        if problems:
            raise ConfigError(problems)
    if env is None and not changed.environment.env:
        raise RayfishError(
            "this policy was trained on an environment given from Python, which no file names",
            f"from Python: rayfish.{verb}(run, env=TheClass); else add environment.env=file.py:TheClass",
        )
    return changed if env is None else replace(changed, env=env)


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
