"""Keys that RLlib 2.60 accepts although nothing on its new API stack reads them, with what to do instead.

Found by searching RLlib's new-stack sources and Rayfish's own for a reader of every key, once per algorithm;
`tests/algorithm/test_effects.py` repeats the search. Setting one to its default is harmless and passes;
anything else is reported, never accepted in silence.
"""

from __future__ import annotations

import fnmatch
import functools

from rayfish.experiment.sections import ALGORITHMS, OFFLINE

_TF = "it is for TensorFlow, which RLlib's new stack does not run on; remove it"

_OF_OLD_STACK = {
    "rollouts": "compress_observations sampler_perf_stats_ema_coef",
    "training": "categorical_distribution_temperature minibatch_buffer_size num_multi_gpu_tower_stacks "
    "replay_proportion replay_buffer_num_slots learner_queue_timeout timeout_s_aggregator_manager "
    "target_worker_clipping lagrangian lagrangian_thresh",
    "multi_agent": "policy_map_capacity policy_states_are_swappable",
    "reporting": "metrics_episode_collection_timeout_s",
    "debugging": "fake_sampler",
    "evaluation": "off_policy_estimation_methods ope_split_batch_by_episode",
    "offline_data": "postprocess_inputs shuffle_buffer_size input_config output_config offline_sampling",
    "framework": "torch_compile_worker torch_compile_worker_dynamo_backend torch_compile_worker_dynamo_mode",
}
"""Section -> its keys that only RLlib's old stack reads."""

DEAD_KEYS: dict[str, str] = {
    "environment.disable_env_checking": "`rayfish env check` checks an environment; remove it",
    "environment.render_env": "watch a trained policy with `rayfish view`; remove it",
    "environment.is_atari": "use environment.atari=true",
    "environment.observation_space": "the environment defines its spaces; remove it",
    "environment.action_space": "the environment defines its spaces; remove it",
    "environment.action_mask_key": "the mask is always observation['action_mask']; remove it",
    "rollouts.preprocessor_pref": "preprocess in the environment (gymnasium.ObservationWrapper); remove it",
    "rollouts.exploration_config": "use training.epsilon (DQN), or exploration.exploration_config",
    "rollouts.sample_collector": "use rollouts.env_runner_cls, or a connector; remove it",
    "rollouts.remote_env_batch_wait_ms": "use rollouts.gym_env_vectorize_mode: async; remove it",
    "rollouts.enable_tf1_exec_eagerly": _TF,
    "training.use_gae": "PPO always uses GAE, and APPO V-trace; remove it",
    "training.vtrace": "IMPALA and APPO always use V-trace; remove it",
    "training.store_buffer_in_checkpoints": "use checkpoint.replay_buffer",
    "training.use_curiosity": "RLlib's DreamerV3 builds no curiosity model; remove it",
    "training.intrinsic_rewards_scale": "RLlib's DreamerV3 builds no curiosity model; remove it",
    "training.train_critic": "DreamerV3 always trains its critic; remove it",
    "training.noisy": "noisy networks are gone from RLlib; explore with training.epsilon",
    "training.sigma0": "noisy networks are gone from RLlib; remove it",
    "training.hiddens": "use training.model.head_fcnet_hiddens",
    "training.adam_epsilon": "use training.optimizer.epsilon",
    "training.before_learn_on_batch": "use learners.learner_connector",
    "training.optimization_config": "use training.actor_lr, critic_lr and alpha_lr",
    "training.opt_type": "use training.optimizer.type",
    "training.decay": "use training.optimizer.decay",
    "training.momentum": "use training.optimizer.momentum",
    "multi_agent.observation_fn": "use rollouts.env_to_module_connector; remove it",
    "reporting.custom_stats_cls_lookup": "log with metrics_logger in a callback; remove it",
    "reporting.keep_per_episode_custom_metrics": "log with metrics_logger in a callback; remove it",
    "evaluation.broadcast_offline_eval_runner_states": "nothing reads it; remove it",
    "resources.placement_strategy": "only Ray Tune reads it, and Rayfish places its own workers; remove it",
    "resources.custom_resources_for_main_process": "the main process runs where it was started; remove it",
    "offline_data.output_max_file_size": "use offline_data.output_max_rows_per_file",
    "offline_data.prelearner_module_synch_period": "nothing reads it; remove it",
    "framework.eager_tracing": _TF,
    "framework.eager_max_retraces": _TF,
    "framework.tf_session_args": _TF,
    "framework.local_tf_session_args": _TF,
    "framework.torch_compile_learner_what_to_compile": "PPO's learner compiles its update; remove it",
    "framework.torch_skip_nan_gradients": "RLlib 2.60 steps with the NaNs anyway; use training.grad_clip",
    **{
        f"{section}.{key}": "only RLlib's old stack reads it; remove it"
        for section, keys in _OF_OLD_STACK.items()
        for key in keys.split()
    },
}
"""Dotted key -> what to use instead, or why to remove it."""

_ASYNCHRONOUS = ("APPO", "IMPALA")
_ONLINE = tuple(name for name in ALGORITHMS if name not in OFFLINE)
_REPLAY = ("DQN", "SAC", "TQC")
_FOR_ASYNCHRONOUS = "only APPO and IMPALA read it; remove it"
_FOR_OFFLINE = "only BC, MARWIL, CQL and IQL learn from recorded data; remove it"
_RECORDED = "it learns from recorded data and samples nothing; remove it"
_ONE_UPDATE = "each update takes one batch (training.train_batch_size_per_learner); remove it"
_NO_ADVANTAGES = "it does not weigh actions by their advantage; remove it"
_BY_NETWORK = "use actor_grad_clip_by_global_norm, critic_... and world_model_..."
_EPOCHS = ("minibatch_size", "num_epochs", "shuffle_batch_per_epoch")
_INPUT = (
    *("actions_in_*", "dataset_*", "ignore_*", "input_*", "iter_*", "map_*", "materialize_*"),
    *("offline_data_class", "prelearner_*"),
)
_SYNCHRONOUS = tuple(name for name in ALGORITHMS if name not in _ASYNCHRONOUS)

DEAD_FOR: dict[str, tuple[tuple[str, ...], str]] = {
    **{f"training.{key}": ((*_REPLAY, "DreamerV3", *OFFLINE), _ONE_UPDATE) for key in _EPOCHS},
    "training.epsilon": (_ASYNCHRONOUS, "use training.optimizer.epsilon"),
    "training.lambda_": (("APPO",), "APPO uses V-trace in place of GAE; remove it"),
    "training.twin_q": (("TQC",), "use training.n_critics"),
    "training.grad_clip": (("DreamerV3",), _BY_NETWORK),
    "training.grad_clip_by": (("DreamerV3",), _BY_NETWORK),
    "reporting.log_gradients": (("DreamerV3",), "its learner clips gradients by itself; remove it"),
    "training.train_batch_size_per_learner": (("DreamerV3",), "use training.batch_size_B and batch_length_T"),
    "training.gamma": (("BC",), "BC imitates actions, whatever their rewards; remove it"),
    "training.beta": (("BC",), "BC is MARWIL with beta 0; set algo.name=MARWIL"),
    "training.vf_coeff": (("BC", "IQL"), _NO_ADVANTAGES),
    "training.moving_average_sqd_adv_norm_start": (("BC", "IQL"), _NO_ADVANTAGES),
    "training.moving_average_sqd_adv_norm_update_rate": (("BC", "IQL"), _NO_ADVANTAGES),
    "training.bc_logstd_coeff": (("IQL",), "only BC and MARWIL read it; remove it"),
    "training.replay_buffer_config": (("CQL",), _RECORDED),
    "training.training_intensity": (("CQL",), _RECORDED),
    "training.num_steps_sampled_before_learning_starts": (("CQL",), _RECORDED),
    "rollouts.use_env_runner_state_server": (_SYNCHRONOUS, _FOR_ASYNCHRONOUS),
    "rollouts.env_runner_state_server_max_concurrency": (_SYNCHRONOUS, _FOR_ASYNCHRONOUS),
    "rollouts.sample_timeout_s": ((*_ASYNCHRONOUS, *OFFLINE), "APPO and IMPALA never wait for a slow runner"),
    "rollouts.num_env_runners": (OFFLINE, f"{_RECORDED} (evaluation.evaluation_num_env_runners evaluates)"),
    "rollouts.rollout_fragment_length": (OFFLINE, _RECORDED),
    "rollouts.batch_mode": (OFFLINE, _RECORDED),
    "learners.num_aggregator_actors_per_learner": (_SYNCHRONOUS, _FOR_ASYNCHRONOUS),
    "learners.max_requests_in_flight_per_aggregator_actor": (_SYNCHRONOUS, _FOR_ASYNCHRONOUS),
    "learners.max_requests_in_flight_per_learner": (_SYNCHRONOUS, _FOR_ASYNCHRONOUS),
    **{f"offline_data.{key}": (_ONLINE, _FOR_OFFLINE) for key in _INPUT},
    "evaluation.*offline_*": (_ONLINE, _FOR_OFFLINE),
}
"""Dotted key or pattern of keys -> the algorithms that do not read it, and what to use instead."""


@functools.cache
def unread_by(dotted: str) -> tuple[tuple[str, ...], str]:
    """The algorithms that do not read a key, and what to use instead."""
    patterns = (key for key in DEAD_FOR if key == dotted or ("*" in key and fnmatch.fnmatchcase(dotted, key)))
    return DEAD_FOR.get(next(patterns, ""), ((), ""))


def is_dead(dotted: str, algo: str | None = None) -> bool:
    """Whether nothing reads a key: for one algorithm, or for any when None."""
    return dotted in DEAD_KEYS or algo in unread_by(dotted)[0]


_RUNNERS = "rollouts.num_env_runners|evaluation.evaluation_num_env_runners"
_PRIORITIZED = "training.replay_buffer_config.type=PrioritizedEpisodeReplayBuffer"
NEEDS: dict[str, str] = {
    "training.kl_coeff": "training.use_kl_loss=true",
    "training.kl_target": "training.use_kl_loss=true",
    "training.grad_clip_by": "training.grad_clip",
    "training.v_min": "training.num_atoms>1",
    "training.v_max": "training.num_atoms>1",
    "training.circular_buffer_num_batches": "training.use_circular_buffer=true",
    "training.circular_buffer_iterations_per_batch": "training.use_circular_buffer=true",
    "training.simple_queue_size": "training.use_circular_buffer=false",
    "training.replay_buffer_config.alpha": _PRIORITIZED,
    "training.replay_buffer_config.beta": _PRIORITIZED,
    "framework.torch_compile_learner_dynamo_backend": "framework.torch_compile_learner=true",
    "framework.torch_compile_learner_dynamo_mode": "framework.torch_compile_learner=true",
    "framework.torch_ddp_kwargs": "learners.num_learners",
    "learners.custom_resources_per_learner": "learners.num_learners",
    "learners.num_cpus_per_learner": "learners.num_learners",
    "learners.local_gpu_idx": "learners.num_gpus_per_learner",
    "learners.learner_config_dict": "learners.learner_class",
    "rollouts.num_cpus_per_env_runner": _RUNNERS,
    "rollouts.num_gpus_per_env_runner": _RUNNERS,
    "rollouts.custom_resources_per_env_runner": _RUNNERS,
    "rollouts.max_requests_in_flight_per_env_runner": _RUNNERS,
    "rollouts.validate_env_runners_after_construction": _RUNNERS,
    "rollouts.sample_timeout_s": "rollouts.num_env_runners",
    "fault_tolerance.*env_runner*": _RUNNERS,
    "evaluation.offline_*": "evaluation.offline_evaluation_interval",
    "evaluation.*_offline_*": "evaluation.offline_evaluation_interval",
    "evaluation.*": "evaluation.evaluation_interval",
    "offline_data.output_*": "offline_data.output",
}
"""Key or pattern of keys without effect until another one is set -> that one, or one of several, with the
value it needs."""

FOR_BOX_ACTIONS = ("environment.normalize_actions", "environment.clip_actions")
"""Keys without effect where no action is a Box."""

EVALUATION_SECTIONS = (
    "environment",
    "rollouts",
    "exploration",
    "multi_agent",
    "callbacks",
    "fault_tolerance",
)
"""The sections whose keys may differ while evaluating; the learner has no part in an evaluation."""

NOT_IN_EVALUATION: dict[str, str] = {
    "num_env_runners": "use evaluation.evaluation_num_env_runners",
    "rollout_fragment_length": "use evaluation.evaluation_duration",
    "sample_timeout_s": "use evaluation.evaluation_sample_timeout_s",
}
"""Keys of those sections that an evaluation does not read -> what to use instead."""
