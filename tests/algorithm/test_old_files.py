"""Old files build the `AlgorithmConfig` that a person who knows both versions would write by hand."""

from __future__ import annotations

from typing import Any

import pytest
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig

from rayfish import Experiment
from rayfish.algorithm.build import NormalizeFirst, build_config
from rayfish.algorithm.offline_data import RecordedData
from rayfish.run import preflight

ALWAYS_OTHER = ("env", "callbacks", "_rl_module_spec", "rl_module_spec", "_env_to_module_connector")


def ours(config: Any, *, workers: int = 0, envs: int = 8) -> Any:
    """What Rayfish sets for every experiment that says nothing else, whatever file it came from."""
    config.env_runners(num_env_runners=workers, num_envs_per_env_runner=envs, sample_timeout_s=None)
    config.fault_tolerance(delay_between_env_runner_restarts_s=5.0, max_num_env_runner_restarts=100)
    config.environment(disable_env_checking=True)
    config.debugging(log_sys_usage=False, seed=2000)
    config.learners(num_learners=0)
    config.simple_optimizer = False  # RLlib's own validation writes it
    return config


def evaluating(config: Any, **more: Any) -> Any:
    """How Rayfish evaluates: one copy of the environment per runner, the best actions."""
    overrides = {"env_config": {}, "explore": False, "num_envs_per_env_runner": 1}
    return config.evaluation(evaluation_config={**overrides, **more})


def ppo(**training: Any) -> Any:
    return ours(PPOConfig()).training(**training)


CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "cartpole-ppo of Ray 1.9": (
        """
        env: CartPole-v0
        run: PPO
        stop: {episode_reward_mean: 150, timesteps_total: 100000}
        config:
            framework: tf
            gamma: 0.99
            lr: 0.0003
            num_workers: 1
            observation_filter: MeanStdFilter
            num_sgd_iter: 6
            vf_loss_coeff: 0.01
            model: {fcnet_hiddens: [32], fcnet_activation: linear, vf_share_layers: true}
        """,
        lambda: ours(PPOConfig(), workers=1).training(
            gamma=0.99, lr=0.0003, num_epochs=6, vf_loss_coeff=0.01
        ),
        {"fcnet_hiddens": [32], "fcnet_activation": "linear", "vf_share_layers": True},
    ),
    "pendulum-ppo with every name of the time": (
        """
        env: Pendulum-v0
        run: PPO
        config:
            train_batch_size: 512
            vf_clip_param: 10.0
            num_envs_per_worker: 20
            lambda: 0.1
            gamma: 0.95
            lr: 0.0003
            sgd_minibatch_size: 64
            num_sgd_iter: 6
            batch_mode: truncate_episodes
            rollout_fragment_length: 200
            shuffle_sequences: true
            kl_coeff: 0.5
            clip_actions: true
            normalize_actions: false
        """,
        lambda: (
            ours(PPOConfig(), envs=20)
            .environment(clip_actions=True, normalize_actions=False)
            .training(
                train_batch_size_per_learner=512, vf_clip_param=10.0, lambda_=0.1, gamma=0.95, lr=0.0003,
                minibatch_size=64, num_epochs=6, shuffle_batch_per_epoch=True, kl_coeff=0.5,
            )
            .env_runners(batch_mode="truncate_episodes", rollout_fragment_length="auto")
        ),
        {},
    ),
    "ppo with schedules": (
        """
        env: CartPole-v1
        run: PPO
        config:
            lr_schedule: [[0, 0.001], [100000, 0.0001]]
            entropy_coeff: 0.01
            entropy_coeff_schedule: [[0, 0.01], [50000, 0.0]]
            grad_clip: 40.0
            explore: true
        """,
        lambda: ppo(
            lr=[[0, 0.001], [100000, 0.0001]], entropy_coeff=[[0, 0.01], [50000, 0.0]], grad_clip=40.0
        ),
        {},
    ),
    "repeat-after-me with an LSTM, seed 001's block": (
        """
        env: ray.rllib.examples.env.repeat_after_me_env.RepeatAfterMeEnv
        run: PPO
        config:
            env_config: {config: {repeat_delay: 2}}
            gamma: 0.9
            lr: 0.0003
            num_workers: 0
            num_envs_per_worker: 20
            num_sgd_iter: 5
            entropy_coeff: 0.00001
            model:
                use_lstm: true
                lstm_cell_size: 64
                max_seq_len: 20
                fcnet_hiddens: [64]
                vf_share_layers: true
        """,
        lambda: evaluating(
            ours(PPOConfig(), envs=20)
            .environment(env_config={"config": {"repeat_delay": 2}})
            .training(gamma=0.9, lr=0.0003, num_epochs=5, entropy_coeff=0.00001),
            env_config={"config": {"repeat_delay": 2}},
        ),
        {"use_lstm": True, "lstm_cell_size": 64, "max_seq_len": 20, "fcnet_hiddens": [64],
         "vf_share_layers": True},
    ),
    "ppo with evaluation and faults, Ray 2.x": (
        """
        env: CartPole-v1
        run: PPO
        config:
            num_rollout_workers: 2
            evaluation_interval: 2
            evaluation_num_workers: 1
            evaluation_duration: 5
            evaluation_duration_unit: episodes
            evaluation_parallel_to_training: true
            evaluation_config: {explore: false, env_config: {}}
            recreate_failed_workers: true
            ignore_worker_failures: false
            num_consecutive_worker_failures_tolerance: 10
            worker_health_probe_timeout_s: 20
            min_time_s_per_iteration: 2
            metrics_smoothing_episodes: 20
        """,
        lambda: (
            ours(PPOConfig(), workers=2)
            .evaluation(
                evaluation_interval=2, evaluation_num_env_runners=1, evaluation_duration=5,
                evaluation_parallel_to_training=True,
            )
            .fault_tolerance(
                restart_failed_env_runners=True, num_consecutive_env_runner_failures_tolerance=10,
                env_runner_health_probe_timeout_s=20,
            )
            .reporting(min_time_s_per_iteration=2, metrics_num_episodes_for_smoothing=20)
        ),
        {},
    ),
    "cartpole-dqn of Ray 1.9": (
        """
        env: CartPole-v0
        run: DQN
        config:
            framework: torch
            model: {fcnet_hiddens: [64], fcnet_activation: linear}
            hiddens: []
            n_step: 3
            buffer_size: 20000
            prioritized_replay: true
            prioritized_replay_alpha: 0.5
            learning_starts: 500
            target_network_update_freq: 100
            timesteps_per_iteration: 800
            exploration_config: {epsilon_timesteps: 5000, final_epsilon: 0.05}
        """,
        lambda: ours(DQNConfig(), envs=1)
        .training(
            n_step=3, target_network_update_freq=100, epsilon=[[0, 1.0], [5000, 0.05]],
            num_steps_sampled_before_learning_starts=500,
            replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", "capacity": 20000, "alpha": 0.5},
        )
        .env_runners(rollout_fragment_length=4)  # DQN's default of the time
        .reporting(min_sample_timesteps_per_iteration=800),
        {"fcnet_hiddens": [64], "fcnet_activation": "linear", "head_fcnet_hiddens": []},
    ),
    "dqn of Ray 2.x": (
        """
        env: CartPole-v1
        run: DQN
        config:
            lr: 0.0005
            double_q: true
            dueling: false
            num_atoms: 10
            v_min: 0.0
            v_max: 200.0
            train_batch_size: 64
            rollout_fragment_length: 1
            grad_clip: 10
            hiddens: [128]
            replay_buffer_config: {type: MultiAgentReplayBuffer, capacity: 10000}
            num_steps_sampled_before_learning_starts: 200
            exploration_config:
                type: EpsilonGreedy
                initial_epsilon: 0.8
                final_epsilon: 0.1
                warmup_timesteps: 100
                epsilon_timesteps: 900
        """,
        lambda: ours(DQNConfig(), envs=1)
        .training(
            lr=0.0005, double_q=True, dueling=False, num_atoms=10, v_min=0.0, v_max=200.0,
            train_batch_size_per_learner=64, grad_clip=10, num_steps_sampled_before_learning_starts=200,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 10000},
            epsilon=[[0, 0.8], [100, 0.8], [1000, 0.1]],
        )
        .env_runners(rollout_fragment_length=1),
        {"head_fcnet_hiddens": [128]},
    ),
    "pendulum-sac": (
        """
        env: Pendulum-v1
        run: SAC
        config:
            framework: tf2
            q_model_config: {fcnet_activation: relu, fcnet_hiddens: [128, 128]}
            policy_model_config: {fcnet_activation: relu, fcnet_hiddens: [128, 128]}
            tau: 0.005
            target_entropy: auto
            n_step: 1
            rollout_fragment_length: 1
            train_batch_size: 128
            target_network_update_freq: 1
            min_sample_timesteps_per_iteration: 1000
            num_steps_sampled_before_learning_starts: 256
            replay_buffer_config: {type: MultiAgentPrioritizedReplayBuffer}
            optimization:
                actor_learning_rate: 0.0003
                critic_learning_rate: 0.0004
                entropy_learning_rate: 0.0005
            clip_actions: false
            normalize_actions: true
        """,
        lambda: ours(SACConfig(), envs=1)
        .environment(clip_actions=False, normalize_actions=True)
        .training(
            tau=0.005, target_entropy="auto", n_step=1, train_batch_size_per_learner=128,
            target_network_update_freq=1, num_steps_sampled_before_learning_starts=256,
            replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer"},
            actor_lr=0.0003, critic_lr=0.0004, alpha_lr=0.0005,
        )
        .env_runners(rollout_fragment_length=1)
        .reporting(min_sample_timesteps_per_iteration=1000, min_time_s_per_iteration=None),
        {"fcnet_hiddens": [128, 128], "fcnet_activation": "relu"},
    ),
    "cartpole-impala": (
        """
        env: CartPole-v1
        run: IMPALA
        config:
            num_workers: 2
            num_gpus: 0
            num_envs_per_worker: 5
            rollout_fragment_length: 50
            train_batch_size: 500
            num_sgd_iter: 2
            broadcast_interval: 5
            vf_loss_coeff: 0.5
            entropy_coeff: 0.01
            num_aggregation_workers: 1
            lr_schedule: [[0, 0.0005], [20000, 0.0001]]
        """,
        lambda: ours(IMPALAConfig(), workers=2, envs=5)
        .training(
            train_batch_size_per_learner=500, num_epochs=2, broadcast_interval=5, vf_loss_coeff=0.5,
            entropy_coeff=0.01, lr=[[0, 0.0005], [20000, 0.0001]],
        )
        .env_runners(rollout_fragment_length=50)
        .learners(num_aggregator_actors_per_learner=1)
        .reporting(min_sample_timesteps_per_iteration=500),  # an iteration without a step is none
        {},
    ),
    "cartpole-appo": (
        """
        env: CartPole-v1
        run: APPO
        config:
            num_workers: 1
            vtrace: true
            use_kl_loss: true
            kl_coeff: 1.0
            clip_param: 0.4
            lambda: 0.98
            tau: 0.5
            grad_clip: 30.0
            min_iter_time_s: 5
            model: {fcnet_hiddens: [32]}
        """,
        lambda: ours(APPOConfig(), workers=1)
        .training(
            vtrace=True, use_kl_loss=True, kl_coeff=1.0, clip_param=0.4, tau=0.5, grad_clip=30.0
        )
        .training(use_circular_buffer=False)  # which APPO of the time had not got
        .reporting(min_time_s_per_iteration=5, min_sample_timesteps_per_iteration=500),
        {"fcnet_hiddens": [32]},
    ),
    "cartpole-bc": (
        """
        env: CartPole-v0
        run: BC
        config: {input: data/recorded, train_batch_size: 1000, lr: 0.001, grad_clip: 5.0}
        """,
        lambda: ours(BCConfig(), envs=1)
        .training(train_batch_size_per_learner=1000, lr=0.001, grad_clip=5.0)
        .offline_data(
            input_="data/recorded", dataset_num_iters_per_learner=1, offline_data_class=RecordedData
        ),
        {},
    ),
    "cartpole-marwil": (
        """
        env: CartPole-v0
        run: MARWIL
        config: {input: data/recorded, beta: 0.5, vf_coeff: 0.8, bc_logstd_coeff: 0.1}
        """,
        lambda: ours(MARWILConfig(), envs=1)
        .training(beta=0.5, vf_coeff=0.8, bc_logstd_coeff=0.1)
        .offline_data(
            input_="data/recorded", dataset_num_iters_per_learner=1, offline_data_class=RecordedData
        ),
        {},
    ),
    "remote environments and a time limit": (
        """
        env: CartPole-v1
        run: PPO
        config: {remote_worker_envs: true, horizon: 100, num_cpus_for_driver: 2, log_level: ERROR, seed: 7}
        """,
        lambda: ours(PPOConfig())
        .env_runners(gym_env_vectorize_mode="vector_entry_point")  # processes of ours, which are not forked
        .resources(num_cpus_for_main_process=2)
        .debugging(log_level="ERROR", seed=7),
        {},
    ),
}  # fmt: skip


def built(text: str, tmp_path: Any) -> tuple[Any, Any]:
    file = tmp_path / "old.yaml"
    file.write_text(f"experiment:{text}")
    experiment = Experiment.compose(str(file), ["rollouts.runner=rllib"])  # the config alone is looked at
    problems, info = preflight.inspect(experiment)
    assert [p for p in problems if p.key not in ("resources", "offline_data.input_")] == []
    return build_config(experiment, info), info


@pytest.mark.parametrize("name", CASES)
def test_an_old_file_builds_the_config_written_by_hand(name, tmp_path):
    text, by_hand, model = CASES[name]
    config, info = built(text, tmp_path)
    expected = by_hand()
    if not expected.evaluation_config or "env_config" not in expected.evaluation_config:
        evaluating(expected)
    if expected.is_offline:
        (agent,) = info.agents
        expected.environment(
            observation_space=info.observation_spaces[agent], action_space=info.action_spaces[agent]
        )
    found, wanted = config.to_dict(), expected.to_dict()
    found["evaluation_config"].pop("env")
    for key in sorted(found.keys() | wanted.keys()):
        if key not in ALWAYS_OTHER:
            assert found.get(key) == wanted.get(key), key
    assert {key: config.rl_module_spec.model_config[key] for key in model} == model
    normalised = isinstance(config._env_to_module_connector, NormalizeFirst)
    assert normalised == ("MeanStdFilter" in text)
