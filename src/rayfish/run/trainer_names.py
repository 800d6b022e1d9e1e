"""`Trainer` by the names of RLlib's trainers: `train()`, `compute_single_action`, `workers`, ...

Each of them calls what `Trainer` does anyway; nothing is implemented twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfish.algorithm.keys import home_of, without_unread
from rayfish.experiment import Experiment
from rayfish.experiment.result_names import old_results
from rayfish.metrics.collect import EPISODE_KEY
from rayfish.run import manifest
from rayfish.run.directory import find_checkpoint
from rayfish.run.trust import require_checkpoint

if TYPE_CHECKING:
    from rayfish.models.summary import Model


class TrainerNames:
    """Further names for what `Trainer` does."""

    @classmethod
    def from_checkpoint(cls: Any, checkpoint: str | Path, *, env: Any = None, trust: bool = False) -> Any:
        """RLlib's name: a trainer that goes on from a checkpoint, with the experiment that is kept in it.

        :param env: the environment class, where it was given from Python
        :param trust: run the code in what another user made
        """
        folder = find_checkpoint(str(checkpoint), order=("last", "best"))
        manifest.require_files(folder, "config.yaml")
        require_checkpoint(folder, trust=trust)
        experiment = replace(without_unread(Experiment.load(folder / "config.yaml")), env=env)
        trainer = cls(experiment.with_values({"algo.checkpoint_path": None}, "resumed"), trust=trust)
        trainer.restore(folder)
        return trainer

    def train(self: Any) -> dict[str, Any]:
        """RLlib's name for `step`: one iteration.

        Returns RLlib's result with old names (`episode_reward_mean`, `info/learner/...`, nested as they
        were) and today's metrics (`rollout/return_mean`) in it.
        """
        metrics = self.step()
        return as_result(metrics, self.result)

    def get_config(self: Any) -> ConfigNames:
        """RLlib's name: the settings of the algorithm, flat; old names (`num_workers`) answer as well."""
        known = ConfigNames(self.config.to_dict())
        known["env"] = self.experiment.env or self.experiment.environment.env
        if not hasattr(self.config, "batch_length_T"):  # DreamerV3 has no train batch
            known["train_batch_size"] = self.config.total_train_batch_size
            known["train_batch_size_per_learner"] = self.config.train_batch_size_per_learner
        known["model"] = self.experiment.training.model
        return known

    def compute_single_action(
        self: Any, observation: Any, state: Any = None, *, explore: bool | None = None, **options: Any
    ) -> Any:
        """RLlib's name: the action for one observation, by the weights of now; see `Agent`.

        :param explore: sample as in training; None does as the experiment says, which is yes by default
        """
        explore = self._explores(explore)
        return self.agent.compute_single_action(observation, state, explore=explore, **options)

    def compute_actions(
        self: Any, observations: Any, state: Any = None, *, explore: bool | None = None, **options: Any
    ) -> Any:
        """RLlib's name: a dictionary of observations gives a dictionary of actions; see `Agent`."""
        return self.agent.compute_actions(observations, state, explore=self._explores(explore), **options)

    def predict(self: Any, observation: Any, *arguments: Any, **options: Any) -> Any:
        """Stable-Baselines3's name: (action, state) for one observation or a batch; see `Agent`."""
        return self.agent.predict(observation, *arguments, **options)

    def get_policy(self: Any, policy_id: str | None = None) -> Any:
        """RLlib's name: one policy, with `get_weights()`, `set_weights(...)` and `model`."""
        from rayfish.run.policy import PolicyNames

        class TrainedPolicy(PolicyNames):
            """The policy that is being trained."""

            def get_weights(own) -> dict[str, Any]:
                """The learner's weights by name."""
                return self.get_weights()[own.name]

            def set_weights(own, weights: Mapping[str, Any]) -> None:
                """Puts weights into learner and env runners."""
                self.set_weights({**self.get_weights(), own.name: dict(weights)})
                own.agent = self.agent

            @property
            def model(own) -> Model:
                """The network that is trained, with `model.base_model.summary()`."""
                from rayfish.models.summary import Model

                module = self.policy_parts()["modules"][own.name]
                title = f"{own.name}: {own.observation_space} -> {own.action_space}"
                return Model(module.unwrapped() if hasattr(module, "unwrapped") else module, title)

        agent = self.agent
        return TrainedPolicy(agent, agent.get_policy(policy_id).name)

    @property
    def workers(self: Any) -> Workers:
        """RLlib's name: the env runners, with `foreach_worker(function)`."""
        return Workers(self)

    @property
    def env_runner_group(self: Any) -> Any:
        """RLlib's own group of env runners."""
        return self.algorithm.env_runner_group

    def foreach_worker(self: Any, function: Callable[[Any], Any]) -> list[Any]:
        """RLlib's name: `function(worker)` on every env runner, the main process's first."""
        return self.workers.foreach_worker(function)

    def stop(self: Any) -> None:
        """RLlib's name for `close`."""
        self.close()

    cleanup = stop

    def _explores(self: Any, explore: bool | None) -> bool:
        choices = (explore, self.experiment.exploration.explore, self.experiment.get("rollouts.explore"))
        return next((bool(value) for value in choices if value is not None), True)


class Workers:
    """The env runners of a trainer, under the names of old RLlib's worker set."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def foreach_worker(self, function: Callable[[Any], Any]) -> list[Any]:
        """`function(worker)` on every env runner; `worker.get_policy()` and `worker.foreach_env` work."""
        from rayfish.algorithm.old_callbacks import RolloutWorker

        return self._trainer.foreach_runner(lambda runner: function(RolloutWorker(runner)))

    def foreach_env(self, function: Callable[[Any], Any]) -> list[list[Any]]:
        """`function(env)` on every environment, in a list for each env runner."""
        return self.foreach_worker(lambda worker: worker.foreach_env(function))

    def foreach_policy(self, function: Callable[[Any, str], Any]) -> list[list[Any]]:
        """`function(policy, name)` of every policy, in a list for each env runner."""
        return self.foreach_worker(lambda worker: worker.foreach_policy(function))

    def local_worker(self) -> Any:
        """The env runner of the main process."""
        from rayfish.algorithm.old_callbacks import RolloutWorker

        return RolloutWorker(self._trainer.algorithm.env_runner)

    def num_remote_workers(self) -> int:
        """How many env runners are processes of their own."""
        return self._trainer.env_runner_group.num_remote_env_runners()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer.env_runner_group, name)


class ConfigNames(dict[str, Any]):
    """RLlib's settings by name, which old names find as well."""

    def __missing__(self, key: str) -> Any:
        """The value of an old name."""
        today = home_of(key).rpartition(".")[2]
        if not super().__contains__(today):
            raise KeyError(key)
        return self[today]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or super().__contains__(home_of(str(key)).rpartition(".")[2])

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a name, old or new; else `default`."""
        try:
            return self[key]
        except KeyError:
            return default


def as_result(metrics: Mapping[str, float], result: Mapping[str, Any]) -> dict[str, Any]:
    """RLlib's result with old names and today's metrics in it; the true means replace RLlib's."""
    runners = {key: value for key, value in (result.get("env_runners") or {}).items() if key != EPISODE_KEY}
    ended = (result.get("env_runners") or {}).get(EPISODE_KEY) or {}
    returns, lengths = list(ended.get("returns") or []), list(ended.get("lengths") or [])
    own = old_results(metrics)
    return {
        **{key: value for key, value in result.items() if key != "evaluation"},
        **own,
        "env_runners": {**runners, **own.get("env_runners", {})},
        "timesteps_this_iter": runners.get("num_env_steps_sampled", 0),
        "episodes_this_iter": len(returns),
        "hist_stats": {"episode_reward": returns, "episode_lengths": lengths},
        **metrics,
    }


def as_evaluation(metrics: Mapping[str, float]) -> dict[str, Any]:
    """`eval/...` metrics, with what old code reads: `["evaluation"]["episode_reward_mean"]`."""
    return {**metrics, "evaluation": old_results(metrics).get("evaluation", {})}
