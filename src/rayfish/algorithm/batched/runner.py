"""The env runner of the batched path: RLlib starts, synchronises and stops it; `sampler.Sampler` samples."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import ray
import torch
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES, INPUT_ENV_SPACES
from ray.rllib.env.env_context import EnvContext
from ray.rllib.env.env_runner import NUM_ENV_STEP_FAILURES_LIFETIME
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.utils.metrics import (
    ENV_RUNNER_STATE_SERVER_PULL_TIMER,
    EPISODE_LEN_MAX,
    EPISODE_LEN_MEAN,
    EPISODE_LEN_MIN,
    EPISODE_RETURN_MAX,
    EPISODE_RETURN_MEAN,
    EPISODE_RETURN_MIN,
    SAMPLE_TIMER,
    WEIGHTS_SEQ_NO,
)

from rayfish.algorithm.batched.actors import ActorCriticActor, DQNActor, SACActor
from rayfish.algorithm.batched.episodes import as_episodes
from rayfish.algorithm.batched.gpu_sampler import ResidentSampler, ResidentVector, TensorEnv
from rayfish.algorithm.batched.rollout import Rollout
from rayfish.algorithm.batched.sampler import Actor, Normalise, Sampler
from rayfish.algorithm.callbacks import REPORT
from rayfish.algorithm.module import ActorCriticModule, DQNModule
from rayfish.algorithm.normalise import normaliser_in
from rayfish.compat import rllib_internals as rllib
from rayfish.compat.ray_node import registered_creator
from rayfish.compat.rllib_internals import metric_of
from rayfish.envs import restarts as env_restarts
from rayfish.envs import state as env_state
from rayfish.envs.agents import AgentsVector
from rayfish.envs.env_kind import layers
from rayfish.envs.restarts import RESTARTS_IN_A_ROW, RestartingVector, RestartsExhausted
from rayfish.envs.rewards import clipped
from rayfish.envs.state import FRESH
from rayfish.envs.vector import Finished, GymVector, Vector

logger = logging.getLogger("ray.rllib")


@dataclass(frozen=True)
class SampledSteps:
    """The lengths of episodes, which is all that RLlib's evaluation reads of them."""

    steps: int

    def env_steps(self) -> int:
        """Environment steps."""
        return self.steps

    agent_steps = env_steps


class BatchedEnvRunner(SingleAgentEnvRunner):
    """Steps a `Vector` of environments, with one pass of the policy for all of them."""

    vector: Vector | None = None
    _sampler: Sampler | ResidentSampler | None = None
    _weights_seq_no: int

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        on_gpu = config.num_gpus_per_learner and not config.num_learners and not self.worker_index
        if on_gpu and torch.cuda.is_available():
            # The learner is in this process: what is sampled stays where it will be learnt from.
            self._device = torch.device("cuda", torch.cuda.current_device())
            self.module.to(self._device)
        if self.vector is not None:
            self._sampler = self._new_sampler()

    def make_env(self) -> None:
        """The vector of this runner, in place of RLlib's list of environments."""
        finished = Finished()
        if self.vector is not None:
            finished = self.vector.finished
            try:
                self.vector.close()
            except Exception as error:
                logger.warning("closing the environments before making new ones failed: %s", error)
        context = EnvContext(
            self.config.env_config, worker_index=self.worker_index, num_workers=self.num_workers
        )
        creator: Any = registered_creator(self.config.env)
        self.vector = creator.many(context, self.config.num_envs_per_env_runner)
        self.env = self.vector.env
        self.num_envs = self.config.num_envs_per_env_runner
        self._needs_initial_reset = True
        if self._sampler is not None:
            self._sampler = self._new_sampler()
        self.vector.finished = finished
        make_callback(
            "on_environment_created",
            callbacks_objects=self._callbacks,
            callbacks_functions=self.config.callbacks_on_environment_created,
            kwargs={
                "env_runner": self,
                "metrics_logger": self.metrics,
                "env": self.env.unwrapped,
                "env_context": context,
            },
        )

    def make_module(self) -> None:
        """The policy; of several agents, the one they share."""
        if not self.config.is_multi_agent:
            super().make_module()
            return
        self.module = self.config.get_multi_rl_module_spec(
            spaces=self.get_spaces(), inference_only=True
        ).build()
        self.module.foreach_module(lambda _, module: module.to(self._device))

    @property
    def policy_id(self) -> str:
        """The name of the one policy."""
        return next(iter(self.config.policies)) if self.config.is_multi_agent else DEFAULT_MODULE_ID

    @property
    def policy(self) -> Any:
        """The module that acts."""
        return self.module[self.policy_id] if self.config.is_multi_agent else self.module

    def get_spaces(self) -> dict[str, Any]:
        """As RLlib asks for them: of the vector, of one slot, and of the policy."""
        if self.vector is None:
            return self.spaces
        seen = self.vector.observation_space
        pipeline = getattr(self, "_env_to_module", None)  # made after the first call
        if pipeline is not None:
            seen = pipeline.observation_space
            seen = seen[self.policy_id] if self.config.is_multi_agent else seen
        return {
            INPUT_ENV_SPACES: (self.env.observation_space, self.env.action_space),
            INPUT_ENV_SINGLE_SPACES: (self.env.single_observation_space, self.env.single_action_space),
            self.policy_id: (seen, self.vector.action_space),
        }

    def sample_rollout(self, steps: int | None = None, least: int = 0) -> Rollout:
        """So many steps of every slot (by default the configured fragment), in reused memory.

        :param least: of single agents, steps that must be real ones; slots that only reset take no step
        """
        steps = steps or self.config.get_rollout_fragment_length(self.worker_index)
        assert self._sampler is not None and self.vector is not None
        lost = self.vector.lost_steps
        try:
            if self._needs_initial_reset:
                self._sampler.reset(self._own_seed())
                self._needs_initial_reset = False
            least = 0 if self.config.is_multi_agent else least
            rollout = self._sampler.collect(steps, self.num_env_steps_sampled_lifetime, least)
        except Exception as error:
            self._failed(error)
        rollout.stream = self.worker_index or 0
        taken = len(rollout)
        if self.config.is_multi_agent:  # each environment's step counts once, however many agents act in it
            taken = steps * self.num_envs - (self.vector.lost_steps - lost)
        self.num_env_steps_sampled_lifetime += taken * (self.config.num_env_runners or 1)
        self._sampled_steps += taken
        rollout.env_steps = taken
        return rollout

    @torch.no_grad()
    def load_weights(self, weights: Sequence[np.ndarray], weights_seq_no: int) -> None:
        """Copies newer weights into the policy, in the order of its state."""
        if weights_seq_no > self._weights_seq_no:
            for own, new in zip(self.policy.state_dict().values(), weights, strict=True):
                own.copy_(torch.from_numpy(new))
            self._weights_seq_no = weights_seq_no

    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[Any]:
        """RLlib's own call: episodes to learn from, or (evaluating) their lengths alone."""
        assert self._sampler is not None and self.vector is not None
        self._pull_state()
        self.metrics.log_value(WEIGHTS_SEQ_NO, self._weights_seq_no, window=1)
        self._needs_initial_reset |= force_reset
        self._sampler.actor.explore = self.config.explore if explore is None else explore
        with self.metrics.log_time(SAMPLE_TIMER):
            if num_episodes is not None:
                samples: list[Any] = self._play(num_episodes)
            elif self.config.in_evaluation:
                steps = -(-(num_timesteps or 1) // self.num_envs)
                samples = [SampledSteps(self.sample_rollout(steps).env_steps)]
            else:
                fragment = -(-num_timesteps // self.vector.num_slots) if num_timesteps else None
                rollout = self.sample_rollout(fragment)
                spaces = self.get_spaces()[self.policy_id]
                samples = as_episodes(rollout, spaces, self._weights_seq_no)
        self.sampled(samples)
        return samples

    def _pull_state(self) -> None:
        """Fetch newer weights; IMPALA and APPO do not send them to their runners."""
        server = self._env_runner_state_server
        if server is None:
            return
        try:
            with self.metrics.log_time(ENV_RUNNER_STATE_SERVER_PULL_TIMER):
                state = ray.get(server.pull_if_newer.remote(self._weights_seq_no))
        except ray.exceptions.RayError as error:  # Ray restarts it, or the run ends
            logger.warning("newer weights could not be fetched, sampling continues with the old: %s", error)
            return
        if state is not None:
            self.set_state(state)

    def sampled(self, samples: Sequence[Any]) -> None:
        """Run on_sample_end callbacks."""
        make_callback(
            "on_sample_end",
            callbacks_objects=self._callbacks,
            callbacks_functions=self.config.callbacks_on_sample_end,
            kwargs={"env_runner": self, "metrics_logger": self.metrics, "samples": samples},
        )
        self._time_after_sampling = time.perf_counter()

    def get_metrics(self) -> Any:
        """What happened since the last call: steps, finished episodes, and where the time went."""
        finished = self.vector.take_finished() if self.vector is not None else Finished()
        self._increase_sampled_metrics(self._sampled_steps, len(finished.returns))
        self._sampled_steps = 0
        restarts = self.vector.take_restarts() if self.vector is not None else 0
        if restarts:
            self.metrics.log_value(NUM_ENV_STEP_FAILURES_LIFETIME, restarts, reduce="lifetime_sum")
        if finished.returns:
            self._log_finished(finished)
        if self._sampler is not None:
            clock = self._sampler.clock
            self.metrics.log_value((REPORT, "env_s"), clock.env, reduce="sum")
            self.metrics.log_value((REPORT, "policy_s"), clock.policy, reduce="sum")
            clock.env = clock.policy = 0.0
        return self.metrics.reduce()

    def assert_healthy(self) -> None:
        """RLlib's health check."""
        assert self.vector is not None and self.module is not None

    def stop(self) -> None:
        """Close the environments."""
        if self.vector is not None:
            self.vector.close()

    def running_state(self, way: str) -> dict[str, Any] | None:
        """What a snapshot keeps of the sampling itself; None where the environments cannot be saved."""
        assert self.vector is not None and self._sampler is not None
        envs = None if way == FRESH else self._env_state(way)
        if envs is None:
            return None
        return {
            "envs": envs,
            "vector": self.vector.state(),
            "obs": self._sampler.obs,
            "state": self._sampler.state,
        }

    def set_running_state(self, way: str, state: dict[str, Any]) -> None:
        """Continue from what `running_state` returned."""
        assert self.vector is not None and self._sampler is not None
        inner = self.env.unwrapped
        if hasattr(inner, "envs"):
            inner.envs = env_state.load(inner.envs, way, state["envs"]["envs"])
            env_restarts.set_counters(inner.envs, state["envs"].get("restarts"))
        else:
            env_restarts.set_counters([self.env], state["envs"].get("restarts"))
            [again] = env_state.load([inner], way, state["envs"]["envs"])
            vars(inner).update(vars(again))
        vars(inner).update(state["envs"]["more"])
        for layer, sums in zip(_wrappers(self.env), state["envs"].get("around", ()), strict=False):
            vars(layer).update(sums)
        self.vector.set_state(state["vector"])
        self._sampler.restore(state["obs"], state["state"])

    def _env_state(self, way: str) -> dict[str, Any] | None:
        inner = self.env.unwrapped
        if hasattr(inner, "envs"):
            more = {} if isinstance(inner, AgentsVector) else rllib.vector_state(inner)
            counts = env_restarts.counters(inner.envs)
            return {"envs": env_state.dump(inner.envs, way), "more": more, "restarts": counts}
        if isinstance(inner, Vector) or hasattr(inner, "processes"):
            return None
        return {
            "envs": env_state.dump([inner], env_state.PICKLE),
            "more": {},
            # The sums that wrappers of a vector keep (of clipped rewards).
            "around": [
                {name: value for name, value in vars(layer).items() if isinstance(value, np.ndarray)}
                for layer in _wrappers(self.env)
            ],
            "restarts": env_restarts.counters([self.env]),
        }

    _sampled_steps = 0

    def _new_sampler(self) -> Sampler | ResidentSampler:
        assert self.vector is not None
        self.policy.eval()  # a runner's copy never learns: dropout and the like are off
        actor = actor_for(self.policy, self.vector.action_space, explore=bool(self.config.explore))
        normaliser = normaliser_in(self._env_to_module)

        def normalise(obs: Any, new: Any) -> Any:
            """Observations through the runner's normaliser; it learns from them unless evaluating."""
            assert normaliser is not None
            return normaliser.batch(self.policy_id, obs, None if self.config.in_evaluation else new)

        sampler = sampler_for(
            self.vector,
            actor,
            self._device,
            normalise=None if normaliser is None else normalise,
            scale=bool(self.config.normalize_actions),
            clip=bool(self.config.clip_actions),
        )
        self.vector = sampler.vector
        sampler.pace = self.num_envs * (self.config.num_env_runners or 1)
        return sampler

    def _own_seed(self) -> int | None:
        """The seed of the first copy, the next one's is one higher: no two runners have a copy in common.

        RLlib's own is the experiment's and the runner's number, so that neighbours would share all but one.
        """
        if self._seed is None:
            return None
        return int(self._seed + (self.worker_index or 0) * (self.num_envs - 1))

    def _failed(self, error: Exception) -> NoReturn:
        """Logs RLlib's message, which the driver looks for; environments that are remade do not raise."""
        self.metrics.log_value(NUM_ENV_STEP_FAILURES_LIFETIME, 1, reduce="lifetime_sum")
        logger.exception(
            "RLlib %s: Environment step failed. The original error type: %s. %s",
            type(self).__name__,
            type(error),
            error,
        )
        raise RuntimeError from error

    def _play(self, episodes: int) -> list[SampledSteps]:
        """Play so many episodes, each environment's share fixed before: short ones are not favoured."""
        assert self.vector is not None
        self._needs_initial_reset = True
        envs = self.num_envs
        share = [episodes // envs + (index < episodes % envs) for index in range(envs)]
        kept, lost = Finished(), self.vector.lost_episodes
        self.vector.take_finished()
        while any(share):
            self.sample_rollout(1)
            if self.vector.lost_episodes - lost > RESTARTS_IN_A_ROW * episodes:
                raise RestartsExhausted(
                    f"an evaluation finished {len(kept.returns)} of {episodes} episodes; in "
                    f"{self.vector.lost_episodes - lost} more the environment failed",
                    "fix it, or set a shorter evaluation.evaluation_config.horizon",
                )
            new = self.vector.take_finished()
            for place, env in enumerate(new.slots):
                if share[env] > 0:
                    share[env] -= 1
                    kept.add(new, place)
        self.vector.finished = kept
        self._needs_initial_reset = True
        self._sampled_steps = sum(kept.lengths)
        return [SampledSteps(length) for length in kept.lengths]

    def _log_finished(self, finished: Finished) -> None:
        series: dict[tuple[str, ...], list[Any]] = {
            ("returns",): finished.returns,
            ("lengths",): finished.lengths,
        }
        series |= {("policy_returns", name): values for name, values in finished.policy.items()}
        series |= {("env", name): values for name, values in finished.env.items()}
        for key, values in series.items():
            self.metrics.log_value((REPORT, *key), values[0], reduce="item_series")
            metric_of(self.metrics, (REPORT, *key)).items.extend(values[1:])
        # RLlib's own metrics of this sample, for callbacks and searchers that read them.
        for names, values in (
            ((EPISODE_RETURN_MEAN, EPISODE_RETURN_MIN, EPISODE_RETURN_MAX), finished.earned),
            ((EPISODE_LEN_MEAN, EPISODE_LEN_MIN, EPISODE_LEN_MAX), series["lengths",]),
        ):
            self.metrics.log_value(names[0], float(np.mean(values)), window=1)
            self.metrics.log_value(names[1], float(min(values)), reduce="min", window=1)
            self.metrics.log_value(names[2], float(max(values)), reduce="max", window=1)
        self.metrics.log_value(
            ("module_episode_return_mean", self.policy_id), float(np.mean(finished.earned)), window=1
        )


def _wrappers(env: Any) -> list[Any]:
    """What is wrapped around a vector, the outermost first; restarts are saved by themselves."""
    return [layer for layer in layers(env)[:-1] if not isinstance(layer, RestartingVector)]


def sampler_for(
    vector: Vector,
    actor: Actor,
    device: torch.device,
    *,
    normalise: Normalise | None,
    scale: bool,
    clip: bool,
) -> Sampler | ResidentSampler:
    """The sampler of a vector; one of tensors stays on its device unless its values are needed here."""
    if isinstance(vector, ResidentVector):
        if vector.device == torch.device(device) and normalise is None and actor.initial_state() is None:
            return ResidentSampler(vector, actor, scale=scale, clip=clip)
        vector = GymVector(clipped(TensorEnv(vector.env, vector.device), vector.clip))
    sampler = Sampler(vector, actor, device=device, scale=scale, clip=clip)
    sampler.normalise = normalise
    return sampler


def actor_for(module: Any, action_space: Any, *, explore: bool) -> Actor:
    """The way to act of a policy's module."""
    if isinstance(module, ActorCriticModule):
        return ActorCriticActor(module.net, action_space, explore=explore)
    actor = DQNActor if isinstance(module, DQNModule) else SACActor
    return actor(module, explore=explore)
