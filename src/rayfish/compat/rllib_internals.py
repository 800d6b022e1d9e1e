"""Private names of RLlib's env runners, learners and groups of processes; each says what breaks without it.

RLlib's checkpoints hold weights, optimizers, connectors and counters; no public name reads or sets the rest.
"""

from __future__ import annotations

from typing import Any

_COUNTERS = ("_needs_initial_reset", "_seed", "num_env_steps_sampled_lifetime")
_EPISODES = (
    "_ongoing_episodes",
    "_ongoing_episodes_for_metrics",
    "_done_episodes_for_metrics",
    "_cached_to_module",
    "_shared_data",
)
_VECTOR = (
    *("_autoreset_envs", "_env_obs", "_observations"),
    *("_rewards", "_terminations", "_truncations", "_infos"),
)


def sampler_state(runner: Any, *, episodes: bool) -> dict[str, Any]:
    """What an env runner keeps between two calls of `sample()`; without it a resumed run resets its envs.

    :param episodes: those that are not over, too; the batched runner has none of RLlib's
    """
    names = (*_EPISODES, *_COUNTERS) if episodes else _COUNTERS
    return {name: getattr(runner, name) for name in names}


def vector_state(vector: Any) -> dict[str, Any]:
    """What Gymnasium's `SyncVectorEnv` keeps besides its environments.

    Without it an environment whose episode is over is not reset in the first step after a resume.
    """
    return {name: getattr(vector, name) for name in _VECTOR if hasattr(vector, name)}


def put_back(target: Any, state: dict[str, Any]) -> None:
    """Puts back what `sampler_state` or `vector_state` returned."""
    vars(target).update(state)


def needs_reset(runner: Any) -> bool:
    """Whether the next `sample()` resets all environments. Without it a snapshot holds finished episodes."""
    return runner._needs_initial_reset


def reset_at_next_sample(runner: Any) -> None:
    """Drops the episodes of a runner. Without it, environments that cannot be saved differ after a resume."""
    runner._needs_initial_reset = True
    runner._ongoing_episodes = [None for _ in range(runner.num_envs)]
    runner._ongoing_episodes_for_metrics.clear()
    runner._cached_to_module = None


def seed_of(runner: Any) -> int | None:
    """The seed of a runner's next reset; see `set_seed`."""
    return runner._seed


def set_seed(runner: Any, seed: int) -> None:
    """The seed of a runner's next reset. Without it a restarted runner repeats the episodes it began with."""
    runner._seed = seed


def weights_version(runner: Any) -> int:
    """The number of the weights that a runner has; see `set_weights_version`."""
    return runner._weights_seq_no


def set_weights_version(runner: Any, version: int) -> None:
    """RLlib ignores weights with a lower number. Without it a restored runner keeps its initial weights."""
    runner._weights_seq_no = version


def connectors_of(runner: Any) -> tuple[Any, Any]:
    """The pipelines (environment to module, module to environment) of a runner.

    `get_state()` copies less than what a snapshot needs. Without it observations are normalised otherwise
    after a resume.
    """
    return runner._env_to_module, runner._module_to_env


def callbacks_of(runner: Any) -> list[Any]:
    """The callback objects of a runner. Without it their attributes are lost at a resume."""
    return runner._callbacks


def device_of(runner: Any) -> Any:
    """Where a runner's module is. Without it a restored batch stays on the CPU."""
    return runner._device


def earlier_pieces(runner: Any, episode: Any) -> tuple[Any, ...]:
    """The pieces that rollouts cut from a running episode.

    RLlib hands them to `on_episode_end` only. Without it old callbacks see returns of a part of the episode.
    """
    return tuple(getattr(runner, "_ongoing_episodes_for_metrics", {}).get(episode.id_, ()))


def env_to_module_factory(config: Any) -> Any:
    """What `env_runners(env_to_module_connector=...)` set. Without it, normalisation drops the user's own."""
    return config._env_to_module_connector


def merges_while_training(config: Any) -> bool:
    """Whether the algorithm merges connector states by itself, as IMPALA does.

    Without it evaluations of the others use statistics that lag by an iteration.
    """
    return config._dont_auto_sync_env_runner_states


def learner_index(learner: Any) -> int:
    """The number of a remote learner. Without it all learners have one name in the log."""
    return learner._learner_index or 0


def apply_fixed_rates(learner: Any) -> None:
    """Sets the learning rates that follow no schedule to those of the config.

    A restored optimizer brings its rate along. Without this a changed `training.lr` has no effect.
    """
    for optimizer, schedule in learner._optimizer_lr_schedules.items():
        if schedule is not None and not schedule.use_schedule:
            learner._set_optimizer_lr(optimizer, lr=schedule.get_current_value())


def share_module(prelearner: Any, module: Any) -> None:
    """Lets RLlib's step from recorded rows to batches use a module itself, not a copy.

    Without it returns are estimated with the value function that the run began with.
    """
    prelearner._module = module


def actors_of(group: Any) -> dict[int, Any]:
    """The remote actors of a group (of env runners or learners) by number.

    RLlib has `foreach_...` only, which waits for each. Without it a hanging worker cannot be killed.
    """
    return group._worker_manager.actors()


def has_lost_actors(group: Any) -> bool:
    """Whether a remote actor of a group is down; without it a dead learner ends the run."""
    manager = group._worker_manager
    return manager.num_healthy_actors() < manager.num_actors()


def metric_of(logger: Any, key: tuple[str, ...]) -> Any:
    """The values that a `MetricsLogger` has of a metric.

    Its public `log_value` takes one at a time. Without it thousands of short episodes are logged one by one.
    """
    return logger._get_key(key)


def discount_iteration(algorithm: Any) -> None:
    """Takes back RLlib's last iteration. Without it one in which all workers were lost counts."""
    algorithm._iteration -= 1
