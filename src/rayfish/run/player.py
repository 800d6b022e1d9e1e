"""Plays episodes with a saved policy: what `rayfish evaluate`, `rayfish rollout` and `rayfish view` share.

No Ray and no GPU: one episode after the other in this process, episode `i` reset with `seed + i`, so
that it is the same episode on every machine and at every count.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rayfish import threads
from rayfish.algorithm import signatures
from rayfish.envs import build as envs
from rayfish.envs import guard
from rayfish.envs.env_kind import alike, in_short, is_multi_agent
from rayfish.envs.play import ALL, Actions, Player, TimeStep
from rayfish.envs.vector import figures
from rayfish.errors import ConfigError, RayfishError
from rayfish.experiment import Experiment
from rayfish.experiment.words import Override, as_words
from rayfish.files import why_unwritable
from rayfish.run import manifest
from rayfish.run.directory import env_name, find_checkpoint
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
"""How many are played where neither episodes nor steps are given."""

_LONGEST = 100_000  # steps after which an episode without end is given up, with a message

See = Callable[[int, Actions, TimeStep], None]
"""Is shown every step by its number, with the actions that led to it; step 0 is the reset."""


@dataclass(frozen=True)
class EpisodePlan:
    """Which episodes are played.

    :param count: how many; None with `steps`
    :param steps: play until this many steps are done; the last episode is finished
    :param seed: episode `i` is reset with `seed + i`
    :param explore: sample actions as in training, in place of the most likely ones
    """

    count: int | None = None
    steps: int | None = None
    seed: int = 0
    explore: bool = False

    def enough(self, episodes: int, steps: int) -> bool:
        """Whether so many episodes and steps are all there is to play."""
        by_count = self.count is None or episodes >= self.count
        return by_count and (self.steps is None or steps >= self.steps)


@dataclass(frozen=True)
class Episode:
    """What one finished episode came to.

    :param total: its return
    :param figures: what the environment reported of it; of several agents their mean
    :param parts: the return of each policy; empty for a single agent
    """

    total: float
    length: int
    figures: Mapping[str, float]
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PlayedEpisode(Episode):
    """An episode played alone, in more detail.

    :param reset_info: the infos of the reset, by agent
    """

    number: int
    seed: int
    terminated: bool
    truncated: bool
    seconds: float
    reset_info: Mapping[Any, Any]


@dataclass(frozen=True)
class Game:
    """What there is to play: a policy, the environment it plays in, and which episodes."""

    checkpoint: Path
    experiment: Experiment
    agent: Agent
    plan: EpisodePlan

    @property
    def env_name(self) -> str:
        """The environment as the experiment names it, or the class given from Python."""
        return env_name(self.experiment)

    def act(self, now: TimeStep) -> Actions:
        """The actions of the policy."""
        return {
            name: self.agent.act(seen, explore=self.plan.explore, agent_id=name)
            for name, seen in now.acting.items()
        }


def prepare(
    run: str | Path,
    overrides: Sequence[Override],
    plan: EpisodePlan,
    *,
    verb: str,
    env: Any = None,
    trust: bool = False,
) -> Game:
    """Loads the policy and reports all that is wrong, before anything is played.

    :param verb: the calling function of `rayfish`, for the messages
    :param trust: run the code that another user's checkpoint names
    """
    checkpoint = find_checkpoint(str(run))
    experiment = _experiment(checkpoint, overrides, verb=verb, env=env, trust=trust)
    agent = load(checkpoint, trust=trust)
    agent.seed(plan.seed)
    if plan.count is None and plan.steps is None:
        plan = replace(plan, count=EPISODES)
    if (plan.count is not None and plan.count < 1) or (plan.steps is not None and plan.steps < 1):
        asked = f"{plan.count} episodes" if plan.count is not None else f"{plan.steps} steps"
        raise RayfishError(f"{asked} were asked for: nothing to play", "ask for at least 1")
    return Game(checkpoint, experiment, agent, plan)


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
def opened(game: Game, render_mode: str | None = None) -> Iterator[Any]:
    """The environment, checked against the policy and closed at the end."""
    experiment = game.experiment
    spec = envs.from_experiment(experiment, evaluation=True)
    env = envs.make(spec, envs.env_config_of(experiment, evaluation=True), render_mode=render_mode)
    report_progress()
    try:
        _require_spaces(game.agent, env, str(experiment.environment.env))
        with threads.limited_to(1):  # one observation at a time gains nothing from more
            yield env
    finally:
        guard.close(env)


def play(game: Game, env: Any, see: See | None = None) -> Iterator[PlayedEpisode]:
    """The episodes of the plan, each when it is over."""
    number, done = 0, 0
    while not game.plan.enough(number, done):
        game.agent.reset()
        played = _episode(game, env, number, see)
        number, done = number + 1, done + played.length
        yield played


@contextmanager
def writing_to(file: Path, what: str = "", *, out: str = "file") -> Iterator[None]:
    """Turns what an operating system reports of a file, such as a full disk, into plain words.

    :param what: what is written to it; its own name in place of that
    :param out: what `--out` names
    """
    try:
        yield
    except OSError as error:
        reason, remedy = why_unwritable(error, file)
        what = f"{what} cannot be written to {file}" if what else f"{file} cannot be written"
        raise RayfishError(f"{what}: {reason}", f"{remedy}, or name another {out} with --out") from error


def run_of(checkpoint: Path) -> Path | None:
    """The run that a checkpoint lies in; None where it is in no run."""
    run = checkpoint.parent.parent
    return run if checkpoint.parent.name == "checkpoints" and (run / "run.json").is_file() else None


def place(checkpoint: Path, many: str, one: str) -> Path:
    """Where a result of `checkpoint` goes: a new name in `many/` of its run, or next to one outside of a run.

    :param one: what the name begins with where there is no run
    """
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    run = run_of(checkpoint)
    if run is not None:
        target = (run / many).resolve()
        if not target.is_relative_to(run.resolve()):
            what = f"{run / many} is a link to {target}, outside of the run"
            raise RayfishError(what, "name a place to write with --out")
        return run / many / name
    return checkpoint.parent / f"{one}-{name}"


def _episode(game: Game, env: Any, number: int, see: See | None) -> PlayedEpisode:
    started, seed = time.perf_counter(), game.plan.seed + number
    parts: dict[str, float] = {}
    reset_info: Mapping[Any, Any] = {}
    infos: dict[Any, Any] = {}
    for length, (actions, now) in enumerate(Player(env).episode(game.act, seed)):
        report_progress()
        reset_info = reset_info if length else now.infos
        infos |= now.infos
        for name, reward in now.rewards.items():
            policy = game.agent.policy_of(name)
            parts[policy] = parts.get(policy, 0.0) + float(reward)
        if see is not None:
            see(length, actions, now)
        if not now.over:
            check_length(length)
    ends = [now.ended(name) for name in now.rewards or (ALL,)]
    return PlayedEpisode(
        total=float(sum(parts.values())),
        length=length,
        figures=_figures(infos),
        parts=parts if is_multi_agent(env) else {},
        number=number,
        seed=seed,
        terminated=all(end[0] for end in ends),
        truncated=any(end[1] for end in ends),
        seconds=round(time.perf_counter() - started, 6),
        reset_info=reset_info,
    )


def _figures(infos: Mapping[Any, Any]) -> dict[str, float]:
    """The figures in the last info of each agent, as their mean."""
    found: dict[str, list[float]] = {}
    for info in infos.values():
        for name, value in figures(info):
            found.setdefault(name, []).append(value)
    return {name: fmean(values) for name, values in found.items()}


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
