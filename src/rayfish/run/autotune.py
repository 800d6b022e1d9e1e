"""`rollouts.autotune`: measured on this machine, then chosen, how a run steps its environments.

Takes an experiment and its environment's description; returns the experiment with
`rollouts.gym_env_vectorize_mode` and `rollouts.num_envs_per_env_runner` settled (of a slow environment
that cannot be stepped in processes, `rollouts.num_env_runners` too), and lines that say what was tried.
A key that the user wrote is kept. The run's config.yaml holds the choice with autotune off, so
that a resumed run steps its environments in the same way.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rayfish import text, threads
from rayfish.algorithm import signatures
from rayfish.algorithm.batched.eligibility import AGENTS, NATIVE, PROCESSES, STACKED, fit
from rayfish.algorithm.contradictions import ASYNCHRONOUS
from rayfish.envs import state
from rayfish.experiment.compose import LEFT_OPEN
from rayfish.experiment.files import SHIPPED
from rayfish.run import resources
from rayfish.run.engine import RayOptions, offered

if TYPE_CHECKING:
    from rayfish.algorithm.batched.stepping_benchmark import Bench, Measurement
    from rayfish.envs.build import EnvInfo
    from rayfish.experiment import Experiment
    from rayfish.run.train import Run

KEY = "rollouts.autotune"
MODE, ENVS, RUNNERS = (
    f"rollouts.{name}" for name in ("gym_env_vectorize_mode", "num_envs_per_env_runner", "num_env_runners")
)
MODES = {STACKED: "sync", PROCESSES: "async", NATIVE: "vector_entry_point"}

BUDGET_S = 20.0
"""Seconds that all measuring may take."""

_ONE_TRIAL_S = 0.3
_SHORTEST_FRAGMENT = 16
_MOST_ENVS, _MOST_PROCESSES = 512, 64
_CLOSE = 0.9  # of the best: fewer environments are then preferred
_WORTH_PROCESSES = 1.3  # times faster than in this process, for the memory and the state they cost
_WORTH_RUNNERS = 1.5  # the same of runners, whose speed is estimated
_STEP_FOR_PROCESSES_S = 50e-6  # a message there and back costs as much as such a step
_SLOW_STEP_S = 1e-3


@dataclass
class Choice:
    """What was tried, and what came of it.

    :param values: the keys to set
    :param best: the one that was chosen; None when nothing was
    :param runners: remote runners, where an estimate speaks for them
    :param remarks: what the numbers do not say
    """

    values: dict[str, Any] = field(default_factory=dict)
    trials: list[Measurement] = field(default_factory=list)
    best: Measurement | None = None
    runners: int = 0
    remarks: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """A small table, and the choice as settings."""
        if self.best is None:
            return [f"{KEY}: {remark}" for remark in self.remarks]
        rows = [f"  {'way':<10} {'envs':>5} {'steps/s':>9}"]
        for trial in self.trials:
            mark = "   <- chosen" if trial is self.best and not self.runners else ""
            rows.append(f"  {trial.way:<10} {trial.envs:>5} {text.rate(trial.steps_per_s):>9}{mark}")
        if self.runners:
            about = f"~{text.rate(self.runners * self.best.steps_per_s)}"
            rows.append(
                f"  {f'{self.runners} runners':<10} {self.best.envs:>5} {about:>9}   <- chosen (estimate)"
            )
        words = ", ".join(f"{key}={value}" for key, value in self.values.items())
        chosen = f"{KEY}: {words}" if words else f"{KEY}: all was kept as it is written"
        return [f"{KEY}: ways to step the environment, measured here:", *rows, chosen, *self.remarks]


def tuned(
    experiment: Experiment,
    info: EnvInfo,
    options: RayOptions | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> tuple[Experiment, list[str]]:
    """The experiment with the choice in place of the wish, and lines that say what was tried."""
    if not experiment.get(KEY):
        return experiment, []
    fitting = fit(experiment, info)
    if not fitting.batched:
        choice = Choice(remarks=[f"nothing to choose, RLlib's env runner samples: {fitting.why}"])
    else:
        known = _signature(experiment, info)
        if known not in _MEASURED:
            tell("measuring how to step the environment")
            _MEASURED[known] = _measured(experiment, info, options or RayOptions())
        choice = _MEASURED[known]
    return experiment.with_values({**choice.values, KEY: False}, KEY), choice.lines()


def tune(run: Run) -> None:
    """For a run that begins: console and log.txt say what was tried, its config.yaml what came of it."""
    if not run.experiment.get(KEY):
        return
    if run.resumed and run.checkpoints.any():
        run.experiment = run.experiment.with_values({KEY: False}, KEY)
        run.console.note(f"{KEY}: a resumed run goes on stepping its environments as it did")
        return
    run.experiment, lines = tuned(run.experiment, run.info, run.options, run.console.status)
    run.directory.save_config(run.experiment)
    for line in lines:
        run.console.note(line)
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    with run.directory.log_file.open("a", encoding="utf-8") as log:
        log.write(f"{stamp} {'INFO':<8} driver | " + "\n    ".join(lines) + "\n")


def why_this_way(experiment: Experiment, why: str) -> str:
    """Why a runner steps as it does; where it was measured, that too."""
    keys = [key for key in (MODE, ENVS, RUNNERS) if experiment.origins.get(key) == KEY]
    names = " and ".join(", ".join(key.rpartition(".")[2] for key in keys).rsplit(", ", 1))
    return f"{why}; {KEY} measured and chose {names}" if keys else why


_MEASURED: dict[str, Choice] = {}
"""By experiment: runs that differ in their seeds alone must not differ in how they sample."""


def _signature(experiment: Experiment, info: EnvInfo) -> str:
    sections = ("algo", "environment", "rollouts", "training", "learners")
    parts = [experiment.section(name) for name in sections]
    open_keys = [left_open(experiment, key) for key in (MODE, ENVS, RUNNERS)]
    known = [parts, open_keys, experiment.paths, id(experiment.env), info.class_name]
    return json.dumps(known, default=str, sort_keys=True)


def _measured(experiment: Experiment, info: EnvInfo, options: RayOptions) -> Choice:
    """Measures and chooses; what cannot be measured leaves all as it is, and says so."""
    threads.use(1)
    try:
        from rayfish.algorithm.batched.stepping_benchmark import Bench

        search = SteppingSearch(ways(experiment, info), counts(experiment), Bench(experiment, info))
        search.run()
    except Exception as error:
        return Choice(remarks=[f"could not measure, all stays as it is: {_first_line(error)}"])
    return _chosen(experiment, info, options, search)


@dataclass
class SteppingSearch:
    """Tries each way with more and more environments, as long as that makes it faster.

    :param ways: in the order in which they are tried
    :param counts: numbers of environments, from the smallest
    """

    ways: Sequence[str]
    counts: Sequence[int]
    bench: Bench
    budget_s: float = BUDGET_S
    trials: list[Measurement] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    step_s: float = 0.0
    """Of one environment alone."""

    def run(self) -> None:
        """Fills `trials`."""
        self._until = time.monotonic() + self.budget_s
        self._try_alone()
        for way in self.ways:
            too_fast = self.step_s < _STEP_FOR_PROCESSES_S or self.counts[-1] == 1
            if way == PROCESSES and len(self.ways) > 1 and too_fast:
                continue
            self._climb(way)
        self._again()

    def _try_alone(self) -> None:
        """One environment in this process: how slow it is decides what else can be tried in time."""
        way = AGENTS if AGENTS in self.ways else STACKED
        alone = self._alone = self.bench.trial(way, 1, _ONE_TRIAL_S)
        self.step_s = alone.env_share / alone.steps_per_s
        if way in self.ways and 1 in self.counts:
            self.trials.append(alone)

    def _climb(self, way: str) -> None:
        best = 0.0
        for envs in self.counts:
            if any((trial.way, trial.envs) == (way, envs) for trial in self.trials):
                continue
            if way == PROCESSES and envs > min(_MOST_PROCESSES, max(16, 2 * threads.machine_cpus())):
                self.remarks.append(f"  not tried: {envs} processes, more than fit this machine well")
                return
            if self._needs_s(way, envs) > self._until - time.monotonic():
                self.remarks.append(f"  not tried: {way} with {envs}, which takes too long to measure")
                return
            try:
                trial = self.bench.trial(way, envs, _ONE_TRIAL_S)
            except Exception as error:
                if len(self.ways) == 1:
                    raise
                self.remarks.append(f"  not possible: {way} with {envs}: {_first_line(error)}")
                return
            self.trials.append(trial)
            if trial.steps_per_s < 1.05 * best:
                return
            best = max(best, trial.steps_per_s)

    def _again(self) -> None:
        """The fastest of each way once more, so that one busy moment of the machine decides nothing."""
        finalists = {trial.way: trial for trial in sorted(self.trials, key=lambda trial: trial.steps_per_s)}
        for way, trial in finalists.items() if len(finalists) > 1 else ():
            if self._needs_s(way, trial.envs) < self._until - time.monotonic():
                again = self.bench.trial(way, trial.envs, _ONE_TRIAL_S)
                self.trials[self.trials.index(trial)] = max(trial, again, key=lambda one: one.steps_per_s)

    def _needs_s(self, way: str, envs: int) -> float:
        """A guess at how long a trial takes."""
        at_once = 1
        if way == NATIVE:
            at_once = envs
        elif way == PROCESSES:
            at_once = max(1, min(envs, threads.machine_cpus()))
        return (self._alone.ready_s + 3 / self._alone.steps_per_s) * envs / at_once + _ONE_TRIAL_S


def ways(experiment: Experiment, info: EnvInfo) -> list[str]:
    """How the environment could be stepped; only in the written way where there is one."""
    if info.kind == "multi":
        return [AGENTS]
    if experiment.get(MODE) is not None:
        return [fit(experiment, info).vector]
    if experiment.environment.env_task_fn:  # a curriculum has to reach the environments
        return [STACKED]
    return [*([NATIVE] if info.native else []), STACKED, PROCESSES]


def counts(experiment: Experiment) -> list[int]:
    """Numbers of environments to try: the written one, else powers of two that leave a batch as it is."""
    now = int(experiment.get(ENVS) or 1)
    if not left_open(experiment, ENVS):
        return [now]
    most = min(most_envs(experiment), _MOST_ENVS)
    powers = [2**power for power in range(10) if now < 2**power <= most]
    changed = {n: experiment.with_values({ENVS: n, KEY: False}, KEY) for n in powers}
    return [now, *(n for n, one in changed.items() if not signatures.problems(one))]


def most_envs(experiment: Experiment) -> int:
    """As many environments as leave the algorithm what it learns from as it is."""
    name = str(experiment.algo.name)
    now = int(experiment.get(ENVS) or 1)
    if name not in ("PPO", *ASYNCHRONOUS):
        # A round is one step of each environment, then updates: more environments mean fewer updates
        # per step, unless `training_intensity` says how many there are to be.
        return 8 if experiment.get("training.training_intensity") else now
    batch = _effective(experiment, "training.train_batch_size_per_learner")
    batch *= max(1, int(experiment.get("learners.num_learners") or 0))
    length = _effective(experiment, "rollouts.rollout_fragment_length")
    shortest = int(length) if isinstance(length, int) and name in ASYNCHRONOUS else _SHORTEST_FRAGMENT
    return max(now, int(batch) // (shortest * max(1, int(experiment.get(RUNNERS) or 0))))


def left_open(experiment: Experiment, key: str) -> bool:
    """Whether no one wrote a key: it has the value of the shipped groups, or was asked to be `auto`."""
    origin = experiment.origin(key)
    shipped = origin.startswith(SHIPPED) and "/experiment/" not in origin
    return shipped or not origin or origin.endswith(LEFT_OPEN)


def _chosen(experiment: Experiment, info: EnvInfo, options: RayOptions, search: SteppingSearch) -> Choice:
    choice = Choice(trials=search.trials, remarks=search.remarks)
    if not search.trials:
        choice.remarks.insert(0, "nothing could be measured in time, all stays as it is")
        return choice
    best = choice.best = best_of(search.trials)
    if info.kind != "multi" and experiment.get(MODE) is None:
        choice.values[MODE] = MODES[best.way]
    if left_open(experiment, ENVS):
        choice.values[ENVS] = best.envs
        if len(search.counts) == 1:
            choice.remarks.append(f"  {ENVS} stays {best.envs}: {_why_one(experiment)}")
    else:
        choice.remarks.append(
            f"  {ENVS}={best.envs} is kept ({experiment.origin(ENVS)}); auto has it measured too"
        )
    choice.runners = _runners(experiment, options, search, best)
    if choice.runners:
        choice.best = next(trial for trial in search.trials if trial.way in (STACKED, AGENTS))
        of_here = {ENVS: choice.best.envs, MODE: MODES.get(choice.best.way)}
        choice.values |= {key: value for key, value in of_here.items() if key in choice.values}
        choice.values[RUNNERS] = choice.runners
    if MODES.get(choice.best.way) == "async":
        choice.remarks.append("  " + state.note(info, "async"))
    return choice


def best_of(trials: Sequence[Measurement]) -> Measurement:
    """The fewest environments that come close to the fastest; processes where they gain enough."""
    here = [trial for trial in trials if trial.way != PROCESSES]
    apart = [trial for trial in trials if trial.way == PROCESSES]
    enough = apart and (not here or _fastest(apart) > _WORTH_PROCESSES * _fastest(here))
    among = apart if enough else here
    close = [trial for trial in among if trial.steps_per_s >= _CLOSE * _fastest(among)]
    return min(close, key=lambda trial: trial.envs)


def _runners(experiment: Experiment, options: RayOptions, search: SteppingSearch, best: Measurement) -> int:
    """Remote runners for a slow environment that has gained nothing from processes; 0 for none.

    Not measured: each is taken to be as fast as this process, which leaves out what travels between.
    """
    here = [trial for trial in search.trials if trial.way in (STACKED, AGENTS)]
    if experiment.algo.name != "PPO" or not left_open(experiment, RUNNERS) or not here:
        return 0
    if search.step_s < _SLOW_STEP_S or here[0].env_share < 0.8 or experiment.get(RUNNERS):
        return 0
    cpus, _ = offered(options)
    batch = _effective(experiment, "training.train_batch_size_per_learner")
    most = int(batch) // (_SHORTEST_FRAGMENT * here[0].envs)
    runners = min(resources.fitting_runners(experiment, cpus), most)
    gain = runners * here[0].steps_per_s / best.steps_per_s
    return runners if runners > 1 and gain > _WORTH_RUNNERS else 0


def _why_one(experiment: Experiment) -> str:
    name = experiment.algo.name
    if name in ("PPO", *ASYNCHRONOUS):
        return "more would leave fragments of a few steps in a batch of this size"
    fewer = "more environments mean fewer updates per step"
    return f"with {name} {fewer} (training.training_intensity fixes that)"


def _effective(experiment: Experiment, dotted: str) -> Any:
    value = experiment.get(dotted)
    return signatures.default_at(dotted, str(experiment.algo.name)) if value is None else value


def _fastest(trials: Iterable[Measurement]) -> float:
    return max(trial.steps_per_s for trial in trials)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip(": ").splitlines()[0]
