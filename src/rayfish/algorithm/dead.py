"""Keys that RLlib 2.60 accepts although nothing on its new API stack reads them, with what to do instead.

Found by searching RLlib's new-stack sources for a reader of every key in the table. Setting one to its
default is harmless and passes; anything else is reported, never accepted in silence.
"""

from __future__ import annotations

_OLD_STACK = "only RLlib's old stack reads it; remove it"
_TF = "it is for TensorFlow, which RLlib's new stack does not run on; remove it"

DEAD_KEYS: dict[str, str] = {
    "environment.render_env": "watch a trained policy with `rayfish view`; remove it",
    "environment.is_atari": "use environment.atari=true",
    "environment.observation_space": "the environment tells its spaces; remove it",
    "environment.action_space": "the environment tells its spaces; remove it",
    "environment.action_mask_key": "the mask is always observation['action_mask']; remove it",
    "rollouts.compress_observations": _OLD_STACK,
    "rollouts.preprocessor_pref": "preprocess in the environment (gymnasium.ObservationWrapper); remove it",
    "rollouts.exploration_config": "use training.epsilon (DQN), or exploration.exploration_config",
    "rollouts.sample_collector": "use rollouts.env_runner_cls, or a connector; remove it",
    "rollouts.remote_env_batch_wait_ms": "use rollouts.gym_env_vectorize_mode: async; remove it",
    "rollouts.sampler_perf_stats_ema_coef": _OLD_STACK,
    "rollouts.enable_tf1_exec_eagerly": _TF,
    "training.noisy": "noisy networks are gone from RLlib; explore with training.epsilon",
    "training.sigma0": "noisy networks are gone from RLlib; remove it",
    "training.hiddens": "use training.model.head_fcnet_hiddens",
    "training.adam_epsilon": "use training.optimizer.epsilon",
    "training.before_learn_on_batch": "use learners.learner_connector",
    "training.categorical_distribution_temperature": _OLD_STACK,
    "training.optimization_config": "use training.actor_lr, critic_lr and alpha_lr",
    "training.opt_type": "use training.optimizer.type",
    "training.decay": "use training.optimizer.decay",
    "training.momentum": "use training.optimizer.momentum",
    "training.minibatch_buffer_size": _OLD_STACK,
    "training.num_multi_gpu_tower_stacks": _OLD_STACK,
    "training.replay_proportion": _OLD_STACK,
    "training.replay_buffer_num_slots": _OLD_STACK,
    "training.learner_queue_timeout": _OLD_STACK,
    "training.timeout_s_aggregator_manager": _OLD_STACK,
    "training.target_worker_clipping": _OLD_STACK,
    "training.lagrangian": _OLD_STACK,
    "training.lagrangian_thresh": _OLD_STACK,
    "multi_agent.observation_fn": "use rollouts.env_to_module_connector; remove it",
    "multi_agent.policy_map_capacity": _OLD_STACK,
    "multi_agent.policy_states_are_swappable": _OLD_STACK,
    "reporting.keep_per_episode_custom_metrics": "log with metrics_logger in a callback; remove it",
    "debugging.fake_sampler": _OLD_STACK,
    "evaluation.off_policy_estimation_methods": _OLD_STACK,
    "evaluation.ope_split_batch_by_episode": _OLD_STACK,
    "evaluation.broadcast_offline_eval_runner_states": "nothing reads it; remove it",
    "offline_data.shuffle_buffer_size": _OLD_STACK,
    "offline_data.input_config": _OLD_STACK,
    "offline_data.output_config": _OLD_STACK,
    "offline_data.output_max_file_size": "use offline_data.output_max_rows_per_file",
    "offline_data.offline_sampling": _OLD_STACK,
    "offline_data.prelearner_module_synch_period": "nothing reads it; remove it",
    "framework.eager_tracing": _TF,
    "framework.eager_max_retraces": _TF,
    "framework.tf_session_args": _TF,
    "framework.local_tf_session_args": _TF,
    "framework.torch_compile_worker": "only RLlib's old stack reads it; remove it",
    "framework.torch_skip_nan_gradients": "RLlib 2.60 steps with the NaNs anyway; use training.grad_clip",
}
"""Dotted key -> what to use instead, or why to remove it."""
