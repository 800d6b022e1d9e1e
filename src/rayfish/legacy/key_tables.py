"""The keys of Ray 1.9 to 2.9 whose fate needs no thought: renamed, the same, without meaning, or gone.

Keys that depend on their value are in `rules`, `training_keys` and `nested_keys`. A test holds every key of
those versions against these tables, and every target against today's RLlib.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from rayfish.experiment.sections import ALGORITHMS

T = TypeVar("T")


def names(text: str) -> tuple[str, ...]:
    """Names written in one text, with spaces between them."""
    return tuple(text.split())


def each(rows: Mapping[str, T]) -> dict[str, T]:
    """A table with one row per name: {"a b": x} becomes {"a": x, "b": x}."""
    return {name: value for text, value in rows.items() for name in names(text)}


_POLICY_GRADIENT = ("PPO", "APPO", "IMPALA")
_VTRACE = ("APPO", "IMPALA")
_ONLINE_REPLAY = ("DQN", "SAC", "TQC")
_REPLAY = (*_ONLINE_REPLAY, "CQL")
_SAC = ("SAC", "TQC", "CQL")
_IMITATION = ("BC", "MARWIL", "IQL")

TRAINING: dict[str, tuple[str, ...]] = each({
    "gamma grad_clip grad_clip_by minibatch_size num_epochs shuffle_batch_per_epoch "
    "train_batch_size_per_learner": tuple(ALGORITHMS),
    "use_critic vf_clip_param": ("PPO",),
    "lambda_ use_kl_loss kl_coeff kl_target clip_param": ("PPO", "APPO"),
    "vf_loss_coeff entropy_coeff": _POLICY_GRADIENT,
    "vtrace_clip_rho_threshold vtrace_clip_pg_rho_threshold broadcast_interval learner_queue_size "
    "num_gpu_loader_threads timeout_s_sampler_manager": _VTRACE,
    "epsilon double_q dueling num_atoms v_min v_max td_error_loss_fn": ("DQN",),
    "n_step": _REPLAY,
    "training_intensity num_steps_sampled_before_learning_starts": _ONLINE_REPLAY,
    "replay_buffer_config": (*_ONLINE_REPLAY, "DreamerV3"),
    "target_network_update_freq tau": (*_REPLAY, "APPO", "IQL"),
    "twin_q": (*_SAC, "IQL"),
    "initial_alpha target_entropy alpha_lr": _SAC,
    "actor_lr critic_lr": (*_SAC, "IQL", "DreamerV3"),
    "bc_iters temperature num_actions min_q_weight deterministic_backup": ("CQL",),
    "beta bc_logstd_coeff vf_coeff moving_average_sqd_adv_norm_start "
    "moving_average_sqd_adv_norm_update_rate": _IMITATION,
    "model_size training_ratio batch_size_B batch_length_T horizon_H gae_lambda entropy_scale "
    "return_normalization_decay train_critic train_actor world_model_lr "
    "world_model_grad_clip_by_global_norm critic_grad_clip_by_global_norm actor_grad_clip_by_global_norm "
    "symlog_obs use_float16": ("DreamerV3",),
})  # fmt: skip
"""Settings of an algorithm as they are called today -> the algorithms that read them."""

SAME: dict[str, str] = each({
    "normalize_actions clip_actions": "environment",
    "batch_mode num_env_runners num_envs_per_env_runner num_cpus_per_env_runner num_gpus_per_env_runner "
    "custom_resources_per_env_runner create_env_on_local_worker create_local_env_runner "
    "validate_env_runners_after_construction sample_timeout_s max_requests_in_flight_per_env_runner "
    "update_worker_filter_stats use_worker_filter_stats": "rollouts",
    "num_learners num_gpus_per_learner num_cpus_per_learner local_gpu_idx learner_config_dict": "learners",
    "num_cpus_for_main_process": "resources",
    "evaluation_duration evaluation_duration_unit evaluation_num_env_runners evaluation_sample_timeout_s "
    "evaluation_force_reset_envs_before_iteration": "evaluation",
    "ignore_env_runner_failures restart_failed_env_runners restart_failed_sub_environments "
    "max_num_env_runner_restarts delay_between_env_runner_restarts_s "
    "num_consecutive_env_runner_failures_tolerance env_runner_health_probe_timeout_s "
    "env_runner_restore_timeout_s": "fault_tolerance",
    "output_compress_columns actions_in_input_normalized": "offline_data",
    "metrics_num_episodes_for_smoothing min_sample_timesteps_per_iteration "
    "min_train_timesteps_per_iteration min_time_s_per_iteration": "reporting",
    "seed log_sys_usage": "debugging",
})  # fmt: skip
"""Keys outside `training` that are called the same today -> their section."""

_TF = "TensorFlow only; RLlib's new stack runs on torch"
_SWITCH = "a switch between RLlib's old stacks, of which none is left"
_SPEED = "it changed the speed of the old stack, not what is learnt"
_RAY_GIVES = "Ray hands out memory by itself"
_LOGS = "every run writes metrics.jsonl, progress.csv and TensorBoard's events into its folder"
_WATCH = "record a trained policy with `rayfish rollout`"
_TRIAL = "Tune's bookkeeping; a run's resources follow from its runners and learners"
_OWN_STACK = "a queue of the old stack; today's learner has none such"

IGNORED: dict[str, str] = each({
    "eager eager_tracing eager_max_retraces tf_session_args local_tf_session_args enable_tf1_exec_eagerly "
    "tf_single_threaded export_native_model_files": _TF,
    "use_pytorch enable_connectors enable_rl_module_and_learner enable_env_runner_and_connector_v2 "
    "api_stack simple_optimizer in_evaluation algo_class": _SWITCH,
    "sample_async compress_observations remote_env_batch_wait_ms sampler_perf_stats_ema_coef "
    "num_multi_gpu_tower_stacks shuffle_buffer_size num_data_loader_buffers num_data_load_threads "
    "policy_map_capacity policy_map_cache policy_states_are_swappable torch_compile_learner "
    "torch_compile_learner_what_to_compile torch_compile_learner_dynamo_backend "
    "torch_compile_learner_dynamo_mode torch_compile_worker torch_compile_worker_dynamo_backend "
    "torch_compile_worker_dynamo_mode collect_metrics_timeout metrics_episode_collection_timeout_s": _SPEED,
    "placement_strategy custom_resources_for_main_process": _TRIAL,
    "postprocess_inputs": "MARWIL computes its returns by itself today, BC needs none",
    "memory object_store_memory memory_per_worker object_store_memory_per_worker": _RAY_GIVES,
    "logger_config logger_creator": _LOGS,
    "render_env record_env monitor video_dir": _WATCH,
    "minibatch_buffer_size learner_queue_timeout max_requests_in_flight_per_aggregator_worker "
    "timeout_s_aggregator_manager replay_buffer_num_slots target_worker_clipping": _OWN_STACK,
    "vtrace_drop_last_ts": "V-trace looks at the step after the last one today",
    "huber_threshold": "it belongs to use_huber: true",
    "observation_space action_space": "the environment declares its spaces",
    "action_mask_key": "the mask is always observation['action_mask']",
    "disable_env_checking": "every environment is checked once, before anything starts",
    "auto_wrap_old_gym_envs": "old gym environments are always wrapped",
    "fake_sampler": "it was for RLlib's own tests",
    "synchronize_filters synchronize_filter sync_filters_on_rollout_workers_timeout_s": (
        "normalisers are always kept in step"
    ),
    "keep_per_episode_custom_metrics": "metrics are means over episodes; log others in a callback",
    "always_attach_evaluation_results": "an evaluation is reported in the iteration it belongs to",
    "checkpoint_trainable_policies_only": "a checkpoint holds every policy",
    "worker_side_prioritization": "priorities are worked out by the learner",
    "prioritized_replay_eps": "today's prioritised buffer needs no such constant",
    "prioritized_replay_beta_annealing_timesteps final_prioritized_replay_beta": (
        "today's buffer keeps beta as it is"
    ),
    "sigma0": "it belongs to noisy networks (noisy: true)",
    "categorical_distribution_temperature": "it scaled the logits of SoftQ exploration only",
    "replay_sequence_length": "the length of sequences is training.model.max_seq_len",
    "replay_batch_size": "a replayed batch has train_batch_size steps",
    "replay_buffer_size": "recorded data is read from its files; there is no buffer beside it",
    "use_state_preprocessor": "the model section decides the layers before the heads",
    "no_done_at_end": "an episode cut off at the horizon is truncated, not terminated, today",
    "input_evaluation off_policy_estimation_methods": (
        "off-policy estimators are gone; they measured, and changed nothing in training"
    ),
    "ope_split_batch_by_episode": "off-policy estimators are gone",
    "offline_sampling": "the algorithm decides it",
    "output_max_file_size": "files are cut by rows (offline_data.output_max_rows_per_file)",
    "output_config": "offline_data.output is the folder",
    "lagrangian_thresh": "it belongs to lagrangian: true",
    "intrinsic_rewards": "off by default today (training.use_curiosity)",
    "report_individual_batch_item_stats report_dream_data report_images_and_videos": (
        "a report of DreamerV3 that is gone"
    ),
    "gc_frequency_train_steps": "it was for TensorFlow's memory",
    "keep_local_weights_in_sync": "weights are always in step",
    "torch_distributed_backend": "Ray chooses it",
})  # fmt: skip
"""Keys without meaning today, whatever their value -> why they may go."""

_OFF = "off, as always today"
_NOISE = "remove it and explore by exploration_config (EpsilonGreedy)"
_CONNECTOR = "write a connector and name it in rollouts.env_to_module_connector"
OFF_ONLY: dict[str, tuple[str, str]] = each({
    "soft_horizon": (
        _OFF, "episodes are reset at the horizon today: remove it, or let the environment go on after its end"
    ),
    "noisy": (_OFF, f"noisy networks are gone from RLlib: {_NOISE}"),
    "parameter_noise": (_OFF, f"parameter noise is gone from RLlib: {_NOISE}"),
    "sample_collector": ("today's is always taken", _CONNECTOR),
    "before_learn_on_batch": ("none given", "write a connector and name it in learners.learner_connector"),
    "after_train_step": ("none given", "use a callback: on_train_result"),
    "observation_fn": ("none given", _CONNECTOR),
    "replay_proportion": (
        _OFF, "IMPALA learns from each batch once: remove it, or run APPO, which keeps a buffer of batches"
    ),
    "lagrangian": (_OFF, "RLlib's CQL has no Lagrangian any more: tune min_q_weight"),
    "_use_beta_distribution": (_OFF, "SAC has a squashed Gaussian only: remove it"),
    "extra_python_environs_for_driver extra_python_environs_for_worker": (
        "none given", "export them in the shell before `rayfish train`"
    ),
    "worker_cls env_runner_cls": (
        "today's is always taken", "write an EnvRunner and name it in rollouts.env_runner_cls"
    ),
    "rl_module_spec _rl_module_spec": ("none given", "name the module in model.custom_model"),
    "enable_async_evaluation": ("off", "use evaluation_parallel_to_training: true"),
    "use_huber": (_OFF, "SAC's critics learn by squared errors: remove it"),
})  # fmt: skip
"""Keys that may go when they are off -> why, and what to do when they are on."""

_ANCIENT = "it is older than Ray 1.0: write exploration_config: {type: EpsilonGreedy, epsilon_timesteps: ...}"
REFUSED: dict[str, str] = each({
    "schedule_max_timesteps exploration_fraction exploration_final_eps exploration_initial_eps softmax_temp "
    "per_worker_exploration": _ANCIENT,
})  # fmt: skip
"""Keys a person must decide about, whatever their value -> what to do."""

EXPERIMENT_IGNORED: dict[str, str] = each({
    "upload_dir sync_config sync_to_driver sync_to_cloud sync_function sync_on_checkpoint "
    "remote_checkpoint_dir": "runs are written to runtime.local_dir; copy or mount that",
    "resources_per_trial trial_resources queue_trials reuse_actors max_concurrent_trials "
    "raise_on_failed_trial server_port trial_name_creator trial_dirname_creator log_to_file": _TRIAL,
    "loggers callbacks verbose progress_reporter": _LOGS,
    "checkpoint_keep_all_ranks": "a run has one checkpoint folder",
    "export_formats": "a checkpoint holds the policy as safetensors; `rayfish.load` opens it without Ray",
    "max_failures fail_fast failure_config": "a failed run is continued with `rayfish train --resume last`",
    "scheduler_config": "`rayfish tune` has schedulers of its own",
    "resume": "a run is continued with `rayfish train --resume last`",
    "description": "it describes the file",
})  # fmt: skip
"""Keys beside `config` that have no meaning for a run -> why."""

CHECKPOINT: dict[str, str] = {
    "checkpoint_freq": "checkpoint_frequency",
    "checkpoint_frequency": "checkpoint_frequency",
    "checkpoint_at_end": "checkpoint_at_end",
    "keep_checkpoints_num": "num_to_keep",
    "num_to_keep": "num_to_keep",
    "checkpoint_score_order": "checkpoint_score_order",
}
"""Keys about checkpoints -> today's, in the section `checkpoint`."""

OPTIMIZATION = {"actor": "actor_lr", "critic": "critic_lr", "entropy": "alpha_lr"}
"""Whose `_learning_rate` in `optimization` -> today's key, in the section `training`."""

_SCHEDULERS = each({
    "fifo": "none",
    "asha asynchyperband async_hyperband": "asha",
    "hyperband hb_bohb hyperbandforbohb": "hyperband",
    "medianstopping medianstoppingrule median_stopping_rule": "median",
    "populationbasedtraining pbt": "pbt",
    "pb2": "pb2",
})  # fmt: skip
_METHODS = each({
    **{name: name for name in names("random optuna hyperopt bayesopt nevergrad ax hebo")},
    "variant_generator basicvariantgenerator": "random",
    "bohb tunebohb": "bohb",
})  # fmt: skip
SEARCH: dict[str, tuple[str, dict[str, str]]] = {
    "scheduler": ("scheduler", _SCHEDULERS),
    "search_alg": ("method", _METHODS),
}
"""Tune's keys -> today's key in `search`, and the names and classes of the time with today's names."""

_SAC_THEN: dict[str, Any] = {
    "training.actor_lr": 3e-4,
    "training.critic_lr": 3e-4,
    "training.alpha_lr": 3e-4,
    "training.model.fcnet_activation": "relu",
}
_ONE_BATCH = {"reporting.min_sample_timesteps_per_iteration": 500}
THEN: dict[str, dict[str, Any]] = {
    "DQN": {
        "rollouts.rollout_fragment_length": 4,
        "training.epsilon": [[0, 1.0], [10_000, 0.02]],
        "training.model.head_fcnet_hiddens": [256],
    },
    "SAC": {**_SAC_THEN, "training.replay_buffer_config.type": "EpisodeReplayBuffer"},
    "IMPALA": _ONE_BATCH,
    "APPO": {**_ONE_BATCH, "training.use_circular_buffer": False},
    "CQL": {**_SAC_THEN, "offline_data.dataset_num_iters_per_learner": 10},
    "BC": {"offline_data.dataset_num_iters_per_learner": 1},
    "MARWIL": {"offline_data.dataset_num_iters_per_learner": 1},
}
"""Defaults of the time that are others today and change what is learnt; a file that is silent gets them."""

GONE_WITH_IT = names(
    "_deterministic_loss action_noise_std actor_feature_reg adv_policy advantage_type agent_id attn_pdrop "
    "batch_length batch_size burn_in burn_in_len custom_vector_env dreamer_model dreamer_train_iters "
    "dynamics_model embed_dim embed_pdrop episodes_per_batch eval_prob exploration_gauss_act_noise "
    "exploration_noise_type exploration_ou_noise_scale exploration_ou_sigma exploration_ou_theta "
    "exploration_should_anneal explore_noise fcnet_hiddens_per_candidate free_nats good_policy "
    "grad_norm_clipping h_function_epsilon imagine_horizon inner_adaptation_steps inner_lr l2_coeff l2_reg "
    "league_builder_config learn_wait_timeout loss_coef_actions loss_coef_obs loss_coef_returns_to_go "
    "lr_choice_model lr_q_model maml_optimizer_steps max_num_policies_to_train "
    "max_replay_requests_in_flight_per_worker max_requests_in_flight_per_replay_worker max_weight "
    "mcts_config microbatch_size mixer mixing_embed_dim n_action_sample no_local_replay_buffer noise_size "
    "noise_stdev num_heads num_layers num_maml_steps num_rollouts offset optim_alpha optim_eps "
    "optimizer_config policy_delay policy_type prefill_timesteps pure_exploration_steps ranked_rewards "
    "recsim_embedding_size replay_buffer_capacity replay_buffer_replay_ratio "
    "replay_buffer_shards_colocated_with_driver report_length resid_pdrop return_proc_mode rmsprop_epsilon "
    "rollouts_per_iteration rollouts_used sample_wait_timeout sgd_stepsize slateq_strategy "
    "smooth_target_policy stepsize target_noise target_noise_clip target_return td_model_lr "
    "timeout_s_replay_manager use_h_function use_local_critic use_meta_env use_obs_output use_return_output "
    "weight_type zero_init_states"
)
"""Settings that only algorithms had which RLlib has dropped."""

REPLAY_IGNORED = names(
    "storage_unit replay_sequence_length replay_burn_in replay_zero_init_states replay_sequence_override "
    "replay_batch_size replay_mode num_shards prioritized_replay_eps worker_side_prioritization "
    "underlying_buffer_config replay_ratio no_local_replay_buffer "
    "replay_buffer_shards_colocated_with_driver _enable_replay_buffer_api num_replay_buffer_shards "
    "metrics_num_episodes_for_smoothing batch_size_B batch_length_T prioritized_replay alpha beta"
)
"""Keys of `replay_buffer_config` that today's buffers, which keep whole episodes, have no use for."""

WHOLE = names(
    "num_env_runners num_envs_per_env_runner num_learners num_epochs minibatch_size "
    "train_batch_size_per_learner rollout_fragment_length horizon n_step num_atoms capacity "
    "num_steps_sampled_before_learning_starts target_network_update_freq evaluation_interval "
    "evaluation_duration evaluation_num_env_runners min_sample_timesteps_per_iteration "
    "min_train_timesteps_per_iteration metrics_num_episodes_for_smoothing checkpoint_frequency num_to_keep "
    "lstm_cell_size max_seq_len seed training_iteration timesteps_total episodes_total"
)
"""Today's keys that take whole numbers; old RLlib let 4000.0 pass."""

MODEL_SAME = names(
    "fcnet_hiddens fcnet_activation fcnet_bias_initializer conv_filters conv_activation "
    "conv_kernel_initializer conv_bias_initializer free_log_std log_std_clip_param vf_share_layers use_lstm "
    "lstm_cell_size lstm_bias_initializer max_seq_len head_fcnet_hiddens head_fcnet_activation "
    "fcnet_kernel_initializer fcnet_use_layernorm custom_model_config"
)
"""Keys of `model` that are called the same today."""

_DECODER = "only DreamerV3 decodes images, by its own layers"
MODEL_IGNORED: dict[str, str] = each({
    "_use_default_native_models _disable_preprocessor_api _disable_action_flattening": _SWITCH,
    "_time_major": "sequences are always batch first",
    "always_check_shapes": "shapes are checked once, before anything starts",
    "encoder_latent_dim": "the last number of fcnet_hiddens is the latent size",
    "squash_to_range": "actions are squashed or clipped by normalize_actions and clip_actions",
    "state_shape": "it belonged to a model of MAML",
    "conv_transpose_kernel_initializer conv_transpose_kernel_initializer_config "
    "conv_transpose_bias_initializer conv_transpose_bias_initializer_config": _DECODER,
})  # fmt: skip
"""Keys of `model` without meaning today -> why."""

MODEL_OFF_ONLY: dict[str, tuple[str, str]] = {
    "no_final_linear": (_OFF, "every head ends in one linear layer: remove it"),
    "custom_action_dist": ("none given", "write an RLModule with its distribution, name it in custom_model"),
    "custom_preprocessor": ("none given", "wrap the environment, or encode observations in a custom_model"),
}
"""Keys of `model` that may go when they are off -> why, and what to do when they are on."""

OLD_BUFFERS = names(
    "ReplayBuffer PrioritizedReplayBuffer ReservoirReplayBuffer FifoReplayBuffer SimpleReplayBuffer "
    "LocalReplayBuffer MultiAgentReplayBuffer MultiAgentPrioritizedReplayBuffer MultiAgentMixInReplayBuffer "
    "ReplayActor"
)
"""Classes of replay buffers that RLlib had."""

EPISODE_BUFFERS = ("EpisodeReplayBuffer", "PrioritizedEpisodeReplayBuffer")
"""Those of today: the uniform one, and the prioritised one."""

EXPLORATION = names(
    "type initial_epsilon final_epsilon warmup_timesteps epsilon_timesteps epsilon_schedule random_timesteps "
    "temperature stddev initial_scale final_scale scale_timesteps scale_schedule ou_theta ou_sigma "
    "ou_base_scale initial_stddev sub_exploration feature_dim feature_net_config inverse_net_hiddens "
    "inverse_net_activation forward_net_hiddens forward_net_activation beta eta lr embeds_dim "
    "encoder_net_config beta_schedule rho k_nn framework num_workers worker_index"
)
"""Keys of all kinds of exploration that old RLlib had."""

_ENTROPY = "SAC explores by its own entropy; remove exploration_config"
_INTRINSIC = "write a callback or connector that adds the intrinsic reward, or use DreamerV3"
EXPLORATION_GONE: dict[str, str] = each({
    "Random": "an agent that acts at random needs no training: `rayfish env check` plays one",
    "ParameterNoise": "for DQN write {type: EpsilonGreedy, epsilon_timesteps: 10000}",
    "Curiosity RE3": _INTRINSIC,
    "GaussianNoise OrnsteinUhlenbeckNoise": _ENTROPY,
})  # fmt: skip
"""Kinds of exploration that are gone -> what to do instead."""
