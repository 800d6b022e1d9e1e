"""What every env runner reports about each finished episode.

RLlib averages an iteration's episodes on each runner and then averages the averages; Rayfish keeps the
episodes themselves, so that a mean over the last hundred is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.env.env_runner import NUM_ENV_STEP_FAILURES_LIFETIME
from ray.rllib.utils.debug import update_global_seed_if_necessary

from rayfish.algorithm.normalise import NormalizeObservations, normaliser_in, normaliser_of
from rayfish.compat import rllib_internals as rllib
from rayfish.envs.restarts import LOST, RESTARTS
from rayfish.envs.rewards import true_returns
from rayfish.envs.vector import figures
from rayfish.experiment.imports import use_paths

use_paths(())  # the next thing a worker unpickles may be the user's, and import old names

REPORT = "rayfish"
_CONNECTORS = ("env_to_module_connector", "module_to_env_connector")


class EpisodeReport(RLlibCallback):
    """Logs return, length, returns per policy and the env's own figures of every episode.

    These are the numbers in the last step's info and in its `info["metrics"]`; they appear as `env/<name>`.
    """

    def on_evaluate_start(self, *, algorithm: Any, **kwargs: Any) -> None:
        """Sends evaluation runners the normaliser of the training just done, and other connector states.

        RLlib merges the statistics of remote training runners only after the evaluation: the first one
        would not be normalised, later ones would lag by an iteration. It also sends states to remote
        evaluation runners only. Evaluation in parallel has the weights of the iteration before, and
        its statistics.
        """
        runner, normaliser = algorithm.env_runner, normaliser_of(algorithm)
        if normaliser is not None:
            _merge(algorithm, normaliser)
        if runner is not None:
            state = runner.get_state(components=_CONNECTORS)
        else:
            state = {_CONNECTORS[0]: algorithm.env_to_module_connector.get_state()}
        if algorithm.eval_env_runner is not None:
            algorithm.eval_env_runner.set_state(state)
        evaluators = algorithm.eval_env_runner_group
        if normaliser is not None and evaluators is not None and evaluators.num_remote_env_runners():
            # RLlib's own broadcast waits for nothing, and drops a state while another is on its way.
            evaluators.foreach_env_runner("set_state", kwargs={"state": state}, local_env_runner=False)

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """Runs before the user's callbacks and notes which keys the result has without them."""
        algorithm.rayfish_result_keys = frozenset(result)

    def on_env_runners_recreated(
        self, *, algorithm: Any, env_runner_group: Any, env_runner_indices: Sequence[int], **kwargs: Any
    ) -> None:
        """New seeds for runners that were restarted: with their old ones they would repeat their episodes."""
        base = algorithm.config.seed
        if base is None:
            return
        seeds = {
            index: int(np.random.SeedSequence([base, index, algorithm.iteration + 1]).generate_state(1)[0])
            for index in env_runner_indices
        }
        env_runner_group.foreach_env_runner(
            partial(_reseed, seeds=seeds),
            remote_worker_ids=list(env_runner_indices),
            local_env_runner=False,
            timeout_seconds=algorithm.config.env_runner_restore_timeout_s,
        )

    def on_episode_end(
        self,
        *,
        episode: Any,
        prev_episode_chunks: Sequence[Any] | None = None,
        metrics_logger: Any = None,
        **kwargs: Any,
    ) -> None:
        """Called by RLlib on the process that stepped the episode."""
        chunks = [*(prev_episode_chunks or ()), episode]
        last = _infos(episode)
        known = [info for info in (*_infos(chunks[0], 0), *last) if isinstance(info, dict)]
        restarts = sum(info.get(RESTARTS, 0) for info in known)
        if restarts:
            metrics_logger.log_value(NUM_ENV_STEP_FAILURES_LIFETIME, restarts, reduce="lifetime_sum")
        if any(info.get(LOST) for info in last if isinstance(info, dict)):
            return

        def log(key: tuple[str, ...], value: float) -> None:
            metrics_logger.log_value((REPORT, *key), value, reduce="item_series")

        true = true_returns(last)
        earned = sum(chunk.get_return() for chunk in chunks) if true is None else sum(true.values())
        log(("returns",), float(earned))
        # Not the sum of the chunks' lengths: RLlib's learner appends a step to chunks it has seen.
        log(("lengths",), int(episode.env_t if hasattr(episode, "env_t") else episode.t))
        for policy, total in _policy_returns(chunks, true).items():
            log(("policy_returns", policy), total)
        for name, value in (figure for info in last for figure in figures(info)):
            log(("env", name), value)


def _merge(algorithm: Any, normaliser: NormalizeObservations) -> None:
    """Merges what remote training runners have seen into the driver's statistics, as RLlib does later."""
    config, group = algorithm.config, algorithm.env_runner_group
    # IMPALA and APPO merge while they train.
    elsewhere = rllib.merges_while_training(config) or config.evaluation_parallel_to_training
    if elsewhere or not config.merge_env_runner_states or not group.num_healthy_remote_env_runners():
        return
    timeout = config.sync_filters_on_rollout_workers_timeout_s
    states = group.foreach_env_runner(_statistics, local_env_runner=False, timeout_seconds=timeout)
    normaliser.merge_states(states)


def _statistics(runner: Any) -> dict[str, Any]:
    """On a runner: what it has seen."""
    piece = normaliser_in(rllib.connectors_of(runner)[0])
    assert piece is not None  # the driver has one
    return piece.get_state()


def _reseed(runner: Any, seeds: dict[int, int]) -> None:
    """On a restarted runner, before its first reset."""
    seed = seeds[runner.worker_index] % 2**31
    rllib.set_seed(runner, seed)
    update_global_seed_if_necessary(framework="torch", seed=seed)


def _policy_returns(chunks: Sequence[Any], true: dict[Any, float] | None) -> dict[str, float]:
    """Sum of the rewards of each policy's agents; empty for a single agent."""
    totals: dict[str, float] = defaultdict(float)
    if true is not None and hasattr(chunks[-1], "agent_episodes"):
        for agent, total in true.items():
            totals[str(chunks[-1].module_for(agent))] += total
        return dict(totals)
    for chunk in chunks:
        for agent, part in getattr(chunk, "agent_episodes", {}).items():
            totals[str(chunk.module_for(agent))] += float(part.get_return())
    return dict(totals)


def _infos(episode: Any, index: int = -1) -> list[Any]:
    """Each agent's info of one step, by default the last."""
    if hasattr(episode, "agent_episodes"):
        return [part.get_infos(index) for part in episode.agent_episodes.values() if len(part)]
    return [episode.get_infos(index)]
