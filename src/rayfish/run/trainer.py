"""`Trainer`: an experiment held open, one iteration at a time, for notebooks and for `run/train`.

with rayfish.Trainer("cartpole", "training.lr=3e-4") as trainer:
    for _ in range(10):
        metrics = trainer.step()
    checkpoint = trainer.save()
    print(trainer.evaluate())
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfish import threads
from rayfish.algorithm import from_rllib
from rayfish.algorithm.batched.eligibility import fit
from rayfish.algorithm.from_rllib import is_config
from rayfish.algorithm.keys import without_unread
from rayfish.compat.preload import import_ahead
from rayfish.compat.rllib_internals import discount_iteration
from rayfish.envs.build import EnvInfo
from rayfish.errors import ConfigError, Problem, RayfishError
from rayfish.experiment import Experiment
from rayfish.experiment.legacy_door import with_old_config
from rayfish.experiment.words import Override
from rayfish.generators import undisturbed
from rayfish.metrics.collect import WINDOW, Collector
from rayfish.run import autotune, checkpoint, manifest, preflight, resources
from rayfish.run.choose import with_fitting_algorithm
from rayfish.run.directory import RunDirectory, find_checkpoint
from rayfish.run.engine import RayOptions, repeatable_kernels, running_ray
from rayfish.run.trainer_names import TrainerNames, as_evaluation
from rayfish.run.trust import require_checkpoint
from rayfish.run.worker_failures import Losses, require_finite
from rayfish.supervise.error_messages import explained
from rayfish.supervise.logs import settle, setup_worker, worker_output_to
from rayfish.supervise.watchdog import Patience, Watch
from rayfish.text import printable

_STOP_S, _BUSY_STOP_S = 60.0, 5.0
"""How long workers have to close their environments: at the end of a run, and in an interrupted iteration."""

if TYPE_CHECKING:
    from rayfish.run.policy import Agent


class Trainer(TrainerNames):
    """One algorithm being trained; a context manager, or call `close()` yourself.

    It answers to the names of RLlib's trainers as well (`train()`, `compute_single_action`, ...).

    Parameters of the same names mean what they mean for `train`.

    :param config: settings by the keys of old RLlib (`{"num_workers": 2, "lr": 1e-3}`), laid upon the rest
    :param ray_options: how to start Ray; a Ray that is already running is used as it is
    :param info: what `preflight.require` returned for this experiment, where it was called before
    :param trust: start from and restore what another user made, which runs the code in it
    """

    def __init__(
        self,
        experiment: Any = None,
        *overrides: Override,
        env: Any = None,
        config: Mapping[str, Any] | None = None,
        config_dir: str | Path | None = None,
        ray_options: RayOptions | None = None,
        info: EnvInfo | None = None,
        trust: bool = False,
    ) -> None:
        self._trust = trust
        made = as_experiment(experiment, *overrides, env=env, config=config, config_dir=config_dir)
        self.experiment = with_fitting_algorithm(with_warm_start(made, trust=trust))
        options = ray_options or RayOptions()
        if info is None:
            self._fit(options)
        self.info = info or preflight.require(self.experiment, options)
        self.experiment, tried = autotune.tuned(self.experiment, self.info, options)
        print(*tried, sep="\n", end="\n" if tried else "")
        self.collector = self._collector()
        self.metrics: dict[str, float] = {}
        self.result: dict[str, Any] = {}
        self.losses = Losses(self.experiment)
        self.saved: Path | None = None
        self.threads: dict[str, int] = {}
        self._algorithm: Any = None
        self._interrupted = False
        self._agent: Agent | None = None
        self._open = ExitStack()
        self.watch = Watch(self.experiment)
        try:
            self._open.enter_context(self.watch)
            name, paths = self.experiment.algo.name, self.experiment.paths
            workers = resources.remote_workers(self.experiment)
            self._open.enter_context(running_ray(options, paths, workers, partial(import_ahead, name)))
            self._open.enter_context(worker_output_to(_print, self.experiment.debugging.log_level))
            if self.experiment.debugging.deterministic:
                self._open.enter_context(repeatable_kernels())
            self._scratch = self._open.enter_context(
                tempfile.TemporaryDirectory(prefix="rayfish-", ignore_cleanup_errors=True)
            )
            from rayfish.algorithm.build import build_config  # RLlib, imported while Ray starts

            settle()
            self.config = build_config(self.experiment, self.info, worker_setup=self._setup_worker)
            self._begin()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def algorithm(self) -> Any:
        """The RLlib algorithm itself, for everything Rayfish has no word for."""
        if self._algorithm is None:
            raise RayfishError("this Trainer is closed", "make a new one: rayfish.Trainer(experiment)")
        return self._algorithm

    @property
    def iteration(self) -> int:
        """Iterations done so far, over all sessions of the run."""
        return int(self.metrics.get("run/iteration", 0))

    def step(self) -> dict[str, float]:
        """One training iteration; returns the flat metrics (RLlib's own result is in `.result`)."""
        self._agent = None
        with self._watched(), self.losses.of_learners(self), self.watch.expecting_progress():
            self.result = self.algorithm.train()
            while self.losses.cost_the_iteration(self):
                discount_iteration(self.algorithm)
                self.result = self.algorithm.train()
            there = getattr(self.algorithm, "rayfish_result_keys", frozenset(self.result))
            own = {key: value for key, value in self.result.items() if key not in there}
            self.metrics = self.collector.update(self.result, time.monotonic(), own)
            require_finite(self)
            self.losses.after(self)
        return self.metrics

    def save(self, folder: str | Path | None = None) -> Path:
        """Writes a checkpoint and returns its folder; without a name, into a new run folder."""
        if folder is None:
            folder = self._own_folder / "checkpoints" / f"{self.iteration:06d}"
        with self._watched(), self.losses.of_learners(self):
            Path(folder).parent.mkdir(parents=True, exist_ok=True)
            self.saved = checkpoint.write(Path(folder), self)
        return self.saved

    def restore(self, folder: str | Path | None = None) -> list[str]:
        """Continues from a checkpoint (a folder, a run, `last`), on a freshly built algorithm.

        Without a name, from what this trainer saved last. Returns what, if anything, keeps it from
        going on exactly as it would have.
        """
        folder = folder or self.saved
        if folder is None:
            raise RayfishError("this Trainer has saved nothing yet", "trainer.restore(folder)")
        path = find_checkpoint(str(folder), order=("last", "best"))
        header = checkpoint.read_header(path)
        checkpoint.require_fitting(path, header, self)
        checkpoint.require_whole(path, header)
        require_checkpoint(path, trust=self._trust)
        if self.collector.iteration:
            self.algorithm.stop()
            self._algorithm = self._build()
        with self._watched():
            notes = checkpoint.restore(path, self)
        self.threads.update(header.get("threads") or {})  # with other numbers the last bits differ
        threads.use(self.threads["acting"])
        self._agent = None
        self.collector = self._collector()
        self.collector.load_state(header["collector"])
        self.metrics = dict(header["metrics"])
        self.losses.restored(self.algorithm)
        if self.experiment.environment.env_task_fn:
            from rayfish.algorithm.curriculum import reapply

            reapply(self.algorithm)  # to environments that a checkpoint does not bring back with them
        return notes

    def rebuild(self) -> None:
        """The algorithm ended by force and built again, as at the beginning of the run."""
        from rayfish.algorithm.workers import end_all

        end_all(self.algorithm)
        self._agent = None
        self._begin()
        self.collector, self.metrics = self._collector(), {}

    def evaluate(self, saved: str | Path | None = None) -> dict[str, Any]:
        """Plays the `evaluation` section's episodes without exploration; returns `eval/...`.

        :param saved: a checkpoint or run to play, in place of the policies as they are now
        """
        from rayfish.metrics.collect import evaluation_metrics

        if saved is not None:
            return as_evaluation(self._play(saved, trust=self._trust))
        if self.algorithm.eval_env_runner_group is None:
            with self._saved_policy() as place, self.watch.expecting_progress():
                return as_evaluation(self._play(place, trust=True))
        with self._watched(), self.watch.expecting_progress(), undisturbed():
            return as_evaluation(evaluation_metrics(self.algorithm.evaluate()))

    @contextmanager
    def _saved_policy(self) -> Iterator[Path]:
        """A checkpoint of the policies as they are now, to play with in this process."""
        with tempfile.TemporaryDirectory() as folder, self._watched():
            yield checkpoint.write(Path(folder) / "checkpoint", self, to_play=True)

    def _play(self, saved: str | Path, *, trust: bool) -> dict[str, float]:
        """Episodes of a checkpoint in this process, which leaves the training as it is."""
        from rayfish.run.evaluate import evaluate

        episodes = self.experiment.get("evaluation.evaluation_duration")
        count = episodes if isinstance(episodes, int) else 10
        with undisturbed():
            found = evaluate(saved, episodes=count, env=self.experiment.env, trust=trust)
        names = ("return_mean", "ci_low", "ci_high", "length_mean", "episodes")
        return {f"eval/{name}": getattr(found, name) for name in names}

    @property
    def agent(self) -> Agent:
        """The policies as they are now, to act with, as `rayfish.load` would load them after `save()`."""
        if self._agent is None:
            from rayfish.run.policy import load

            with self._saved_policy() as place, undisturbed():
                self._agent = load(place, trust=True)
            self._agent.seed(int(self.experiment.debugging.seed or 0))
        return self._agent

    def foreach_runner(self, function: Callable[[Any], Any]) -> list[Any]:
        """Calls `function(env_runner)` on every env runner, remote ones included."""
        group = self.algorithm.env_runner_group
        if group is None:
            raise RayfishError(
                f"{self.experiment.get('algo.name')} learns from recorded data and has no env runners"
            )
        from rayfish.algorithm.workers import answers, call

        return answers(group.foreach_env_runner(partial(call, function=function)))

    def get_weights(self) -> dict[str, Any]:
        """The policies' weights as NumPy arrays: policy -> name -> array."""
        return self.algorithm.learner_group.get_weights()

    def set_weights(self, weights: dict[str, Any]) -> None:
        """Puts weights (as `get_weights` returns them) into learner and env runners."""
        from rayfish.algorithm.weights import sync_runners

        self._agent = None
        self.algorithm.learner_group.set_state({"learner": {"rl_module": weights}})
        sync_runners(self.algorithm)

    def policy_parts(self) -> dict[str, Any]:
        """What `policy.save_policy` needs to write the policy by itself."""
        from rayfish.algorithm.weights import policy_parts

        return policy_parts(self.algorithm, self.experiment, self.info)

    def close(self) -> None:
        """Stops the algorithm, and Ray if this Trainer started it. Safe to call twice."""
        self.watch.closing = True
        algorithm, self._algorithm = self._algorithm, None
        if algorithm is not None:
            self._end(algorithm)
            if self.experiment.rollouts.num_env_runners:
                time.sleep(0.5)  # the workers' last messages are still on their way through Ray
        self._open.close()

    def _fit(self, options: RayOptions) -> None:
        """Shrinks an old RLlib experiment, made for another machine, to this one; prints all notes."""
        notes = list(self.experiment.notes)
        if self.experiment.fit:
            self.experiment, changes = resources.fit(self.experiment, options)
            notes += changes
        print(*(f"note: {note}" for note in notes), sep="\n", end="\n" if notes else "")

    def _collector(self) -> Collector:
        runners = int(self.experiment.rollouts.num_env_runners or 0)
        envs = int(self.experiment.rollouts.num_envs_per_env_runner or 1)
        window = self.experiment.get("reporting.metrics_num_episodes_for_smoothing") or WINDOW
        trained, parallel = self._trained_counter(), envs * max(runners, 1)
        return Collector(runners=runners, parallel_envs=parallel, trained=trained, window=window)

    def _trained_counter(self) -> str:
        """RLlib's counter of the steps learnt from; its own PPO has none that is right."""
        name = self.experiment.algo.name
        if name == "PPO" and not fit(self.experiment, self.info).batched:
            return ""
        return f"num_{'env' if name in ('PPO', 'DQN', 'SAC', 'TQC') else 'module'}_steps_trained"

    @property
    def _setup_worker(self) -> Callable[[str], None]:
        return partial(setup_worker, level=self.experiment.debugging.log_level)

    def _build(self) -> Any:
        from rayfish.algorithm.build import build_algorithm
        from rayfish.algorithm.workers import follow_learners, share_threads, thread_counts

        threads.use(1)  # initial weights may depend on it
        with self._watched():
            # In a folder of its own: Ray lets every user write there.
            logdir = str(Path(self._scratch) / "results")
            algorithm = build_algorithm(self.config.copy(copy_frozen=False), logdir)
            follow_learners(algorithm, self._setup_worker, Patience.of(self.experiment))
        self.threads = thread_counts(algorithm, self.info)
        share_threads(algorithm, self.threads)
        self.losses.rebuilt(algorithm)
        return algorithm

    def _begin(self) -> None:
        """The algorithm as the run begins with it: a warm start has another run's weights."""
        self._algorithm = self._build()
        if self.experiment.algo.checkpoint_path:
            self._warm_start(self.experiment.algo.checkpoint_path)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            with explained(self.experiment, self.watch):
                yield
        except KeyboardInterrupt:
            self._interrupted = True
            raise

    def _end(self, algorithm: Any) -> None:
        """Stops the algorithm; after a fault without asking its processes, which may hang or be gone."""
        from rayfish.algorithm.workers import end_all, stop

        if self.watch.reason is None:
            stop(algorithm, _BUSY_STOP_S if self._interrupted else _STOP_S)
        elif not self.watch.ray_is_lost:
            end_all(algorithm)

    def _warm_start(self, folder: str) -> None:
        """Weights and normaliser of another run's checkpoint; counters and optimizers start again."""
        from rayfish.algorithm.weights import load_normaliser, load_weights, sync_runners

        manifest.require_files(Path(folder), "algorithm/")
        load_weights(self.algorithm, Path(folder) / "algorithm")
        load_normaliser(self.algorithm, Path(folder) / "algorithm")
        sync_runners(self.algorithm)

    @cached_property
    def _own_folder(self) -> Path:
        return RunDirectory.create(self.experiment, command="rayfish.Trainer").path


def extended(saved: Experiment, overrides: Sequence[Override]) -> Experiment:
    """A run's experiment with more words, for its continuation.

    :raises RayfishError: they change what the checkpoint's weights belong to
    """
    saved = without_unread(saved)
    changed = saved.with_overrides(overrides)
    changed = replace(changed, notes=tuple(dict.fromkeys([*saved.notes, *changed.notes])))
    for key in ("algo.name", "environment.env", "training.model"):
        if changed.get(key) != saved.get(key):
            raise RayfishError(
                f"a resumed run keeps its {key}: {saved.get(key)}, not {changed.get(key)}",
                "start a new run; algo.checkpoint_path=RUN takes over the weights where they fit",
            )
    return changed


def with_warm_start(experiment: Experiment, *, trust: bool = False) -> Experiment:
    """`algo.checkpoint_path` as the folder it means now; `last` must not come to mean the new run.

    :raises RayfishError: there is no such run or checkpoint, or it is not trusted
    """
    named = experiment.algo.checkpoint_path
    if not named:
        return experiment
    where = experiment.origin("algo.checkpoint_path")
    try:
        folder = find_checkpoint(str(named))
        require_checkpoint(folder, trust=trust)
    except RayfishError as error:
        raise ConfigError([Problem("algo.checkpoint_path", error.what, error.hint, where)]) from error
    return experiment.with_values({"algo.checkpoint_path": str(folder)}, where)


def _print(level: str, who: str, text: str) -> None:
    """A worker's message in a notebook."""
    text = printable(text)
    print(f"({who}) {text}" if level == "INFO" else f"({who}) {level.lower()}: {text}")


def as_experiment(
    experiment: Any,
    *overrides: Override,
    env: Any = None,
    config: Mapping[str, Any] | None = None,
    config_dir: str | Path | None = None,
) -> Experiment:
    """An `Experiment` from whatever names one: itself, a preset, a file, settings, or RLlib's config.

    :param config: settings by the keys of old RLlib, laid upon it
    """
    if config is not None:
        rest = {key: value for key, value in config.items() if key != "env"}
        env = config.get("env") if env is None else env
        return with_old_config(as_experiment(experiment, *overrides, env=env, config_dir=config_dir), rest)
    if isinstance(env, str):
        overrides, env = ({"environment.env": env}, *overrides), None
    if isinstance(experiment, Experiment):
        if overrides or env is not None or config_dir is not None:
            raise RayfishError(
                "overrides, env and config_dir belong to the making of an Experiment, which is made already",
                "Experiment.compose(name, overrides, env=..., config_dir=...)",
            )
        return experiment
    if is_config(experiment):
        read = from_rllib.read(experiment)
        given = read.env if env is None else env
        made = Experiment.compose(None, (*read.words, *overrides), env=given, config_dir=config_dir)
        return replace(made, notes=(*made.notes, *read.notes))
    if isinstance(experiment, Path):
        experiment = str(experiment)
    if isinstance(experiment, Mapping) or (
        experiment is not None and "=" in experiment and not Path(experiment).is_file()
    ):
        return Experiment.compose(None, (experiment, *overrides), env=env, config_dir=config_dir)
    return Experiment.compose(experiment, overrides, env=env, config_dir=config_dir)
