"""Old names of RLlib and SimHarness2 in today's words."""

from __future__ import annotations

import pytest

from rayfish import Experiment
from rayfish.experiment import tree
from rayfish.experiment.result_names import STOP_KEYS
from rayfish.experiment.sections import ALGORITHMS, CLOSEST, SECTIONS
from rayfish.legacy.hydra_keys import OLD_KEYS


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("rollouts.num_workers=2", "rollouts.num_env_runners", 2),
        ("training.num_workers=2", "rollouts.num_env_runners", 2),
        ("env_runners.num_env_runners=3", "rollouts.num_env_runners", 3),
        ("training.sgd_minibatch_size=64", "training.minibatch_size", 64),
        ("training.train_batch_size=100", "training.train_batch_size_per_learner", 100),
        ("training.lambda=0.9", "training.lambda_", 0.9),
        ("training.lr_schedule=[[0,1e-3],[10,1e-4]]", "training.lr", [[0, 1e-3], [10, 1e-4]]),
        ("training.lr_schedule=[[5,1e-3],[10,1e-4]]", "training.lr", [[0, 1e-3], [5, 1e-3], [10, 1e-4]]),
        ("training.model.post_fcnet_hiddens=[8]", "training.model.head_fcnet_hiddens", [8]),
        ("training.optimization.actor_learning_rate=1e-4", "training.actor_lr", 1e-4),
        ("training.hiddens=[9]", "training.model.head_fcnet_hiddens", [9]),
        ("environment.horizon=5", "rollouts.horizon", 5),
        ("rollouts.recreate_failed_workers=false", "fault_tolerance.restart_failed_env_runners", False),
        ("evaluation.evaluation_num_workers=1", "evaluation.evaluation_num_env_runners", 1),
        ("evaluation.evaluation_num_episodes=3", "evaluation.evaluation_duration", 3),
        ("evaluation.evaluation_config.num_envs_per_worker=2",
         "evaluation.evaluation_config.num_envs_per_env_runner", 2),
        ("rollouts.remote_worker_envs=true", "rollouts.gym_env_vectorize_mode", "async"),
        ("rollouts.explore=false", "exploration.explore", False),
        ("training.prioritized_replay=false", "training.replay_buffer_config.type", "EpisodeReplayBuffer"),
        ("training.replay_buffer_config.type=MultiAgentPrioritizedReplayBuffer",
         "training.replay_buffer_config.type", "PrioritizedEpisodeReplayBuffer"),
        ("checkpoint.checkpoint_freq=5", "checkpoint.checkpoint_frequency", 5),
        ("checkpoint.checkpoint_score_attr=min-episode_len_mean",
         "checkpoint.checkpoint_score_attribute", "rollout/length_mean"),
        ("checkpoint.checkpoint_score_attribute=episode_reward_mean",
         "checkpoint.checkpoint_score_attribute", "rollout/return_mean"),
        ("stop.episode_reward_mean=9", "stop_conditions.episode_reward_mean", 9),
        ("callbacks=my.mod:Callback", "callbacks.callbacks_class", "my.mod:Callback"),
    ],
)  # fmt: skip
def test_old_key_is_translated(word, key, value):
    experiment = Experiment.compose("cartpole", [word])
    old = word.partition("=")[0]
    assert experiment.get(key) == value
    assert experiment.origin(key) == "command line"
    if old not in (key, "callbacks", "training.replay_buffer_config.type"):
        assert experiment.get(old, tree.MISSING) is tree.MISSING


def test_translation_leaves_a_note_and_defaults_do_not():
    experiment = Experiment.compose("cartpole", ["rollouts.num_workers=2"])
    assert experiment.notes == ("rollouts.num_workers is today's rollouts.num_env_runners (command line)",)
    assert Experiment.compose("cartpole").notes == ()


def test_old_score_order_is_kept():
    experiment = Experiment.compose("cartpole", ["checkpoint.checkpoint_score_attr=min-episode_len_mean"])
    assert experiment.get("checkpoint.checkpoint_score_order") == "min"


def test_old_batch_is_shared_by_learners():
    words = ["training.train_batch_size=100", "learners.num_learners=2"]
    experiment = Experiment.compose("cartpole", words)
    assert experiment.get("training.train_batch_size_per_learner") == 50


def test_todays_name_wins_over_an_old_one_written_in_the_same_place():
    words = ["rollouts.num_workers=2", "rollouts.num_env_runners=3"]
    experiment = Experiment.compose("cartpole", words)
    assert experiment.get("rollouts.num_env_runners") == 3
    assert "left aside" in experiment.notes[0]


def test_old_name_in_a_file_wins_over_shipped_and_loses_to_the_command_line(workdir):
    (workdir / "exp.yaml").write_text("environment: {env: A-v0}\nrollouts:\n  num_workers: 4\n")
    experiment = Experiment.compose("exp.yaml")
    assert experiment.get("rollouts.num_env_runners") == 4
    assert experiment.origin("rollouts.num_env_runners") == "exp.yaml:3"
    assert Experiment.compose("exp.yaml", ["rollouts.num_env_runners=1"]).get("rollouts.num_env_runners") == 1


def test_interpolation_of_an_old_name_still_resolves(workdir):
    (workdir / "exp.yaml").write_text(
        "environment: {env: A-v0, env_config: {n: '${rollouts.num_workers}'}}\nrollouts: {num_workers: 4}\n"
    )
    experiment = Experiment.compose("exp.yaml")
    assert experiment.get("environment.env_config.n") == 4
    assert experiment.get("rollouts.num_env_runners") == 4


def test_targets_of_all_translations_exist():
    from rayfish.algorithm.signatures import entries
    from rayfish.models.options import OPTIONS

    for old, new in OLD_KEYS.items():
        section, _, key = new.partition(".")
        first, _, rest = key.partition(".")
        known = set(SECTIONS[section].own) | set(entries(section))
        assert first in known, (old, new)
        if first == "model":
            assert rest in OPTIONS


def test_gone_algorithms_point_to_living_ones():
    assert set(CLOSEST.values()) <= set(ALGORITHMS)
    assert not set(CLOSEST) & set(ALGORITHMS)


def test_stop_keys_point_to_metric_names():
    assert all("/" in name for name in STOP_KEYS.values())
    assert set(SECTIONS["stop_conditions"].own) <= set(STOP_KEYS)
