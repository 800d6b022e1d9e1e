"""Single decisions of the translation that people would notice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rayfish import Experiment
from rayfish.errors import RayfishError
from rayfish.experiment import tree
from rayfish.legacy.file_format import OldExperiment, read_old
from rayfish.legacy.migration import migrate
from rayfish.legacy.outcome import Context
from rayfish.legacy.rules import outcomes
from rayfish.legacy.translate import translate

KNOWN = json.loads((Path(__file__).parents[1] / "old_files/known_keys.json").read_text())
ODD = (None, -1, True, "x", "", [], [1], [[0, 1]], {}, {"a": 1}, {5: 6}, 1e6, float("inf"), -2.5)


def old(run="PPO", env="CartPole-v1", stop=None, **config):
    return translate(OldExperiment("x", {"run": run, "env": env, "stop": stop, "config": config}))


def value(found, dotted):
    return tree.get(found.config, dotted)


def entry(found, name):
    return next(entry for entry in found.entries if entry.old == name)


@pytest.mark.parametrize("algo", ["PPO", "IMPALA", "DQN", "SAC", "BC", "DreamerV3"])
@pytest.mark.parametrize("closest", [False, True])
def test_no_value_of_any_key_crashes(algo, closest):
    keys = {**KNOWN["common"], **KNOWN.get(algo, {})}
    for key in keys:
        for odd in ODD:
            found = outcomes(key, odd, Context(algo, "PongNoFrameskip-v4", {key: odd}, closest))
            assert found, f"{key}: {odd!r} vanished"
            for outcome in found:
                what = (key, odd, outcome)
                assert not outcome.values or outcome.fate == "translated", what
                assert outcome.values or outcome.why, f"{what}: neither a value nor a reason"


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("key", sorted(set(KNOWN["experiment"]) - {"config"}))
def test_no_value_beside_config_crashes(key, odd):
    found = translate(OldExperiment("x", {"run": "BC", "env": "CartPole-v1", key: odd}))
    assert any(entry.old.startswith(key) for entry in found.entries)


def test_the_environment_beside_config_wins_as_it_did():
    found = translate(
        OldExperiment("x", {"run": "PPO", "env": "CartPole-v1", "config": {"env": "Pendulum-v0"}})
    )
    assert value(found, "environment.env") == "CartPole-v1"
    assert entry(found, "config.env").outcome.fate == "ignored"


def test_of_two_conditions_on_one_metric_the_nearer_one_stops():
    found = old(stop={"episode_reward_mean": 150, "sampler_results/episode_reward_mean": 100})
    assert value(found, "stop_conditions.episode_reward_mean") == 100
    assert found.fate != "refused"


def test_two_old_keys_that_say_different_things_are_refused():
    for config in (
        {"num_workers": 1, "num_rollout_workers": 2},
        {"sgd_minibatch_size": 64, "minibatch_size": 32},
        {"lambda": 0.9, "lambda_": 0.8},
    ):
        assert "keep one of the two" in old(**config).problems[0].hint
        same = dict.fromkeys(config, next(iter(config.values())))
        assert old(**same).problems == []


def test_a_stop_condition_on_evaluations_has_evaluations_to_look_at():
    found = old(stop={"evaluation/episode_reward_mean": 100})
    assert value(found, "evaluation.evaluation_interval") == 1
    assert value(old(stop={"evaluation/episode_reward_mean": 1}, evaluation_interval=5),
                 "evaluation.evaluation_interval") == 5  # fmt: skip


def test_defaults_of_the_time_hold_where_a_file_is_silent():
    dqn, sac = old("DQN"), old("SAC", "Pendulum-v1")
    assert value(dqn, "training.epsilon") == [[0, 1.0], [10_000, 0.02]]
    assert value(sac, "training.actor_lr") == 3e-4
    assert value(sac, "training.replay_buffer_config.type") == "EpisodeReplayBuffer"
    assert (
        value(old("SAC", "Pendulum-v1", optimization={"actor_learning_rate": 1e-3}), "training.actor_lr")
        == 1e-3
    )


def test_a_batch_is_shared_by_as_many_learners_as_there_are_gpus():
    found = old(num_gpus=4, train_batch_size=4000, sgd_minibatch_size=2000)
    assert value(found, "training.train_batch_size_per_learner") == 1000
    assert value(found, "training.minibatch_size") == 1000, "no larger than its batch"


def test_what_is_the_users_own_is_no_search_space():
    found = old(env_config={"goals": {"choice": ["a", "b"]}, "size": {"grid_search": [1, 2]}})
    assert value(found, "environment.env_config") == {"goals": {"choice": ["a", "b"]}, "size": 1}
    assert found.tunables == ["environment.env_config"]


def test_a_search_space_whose_values_are_refused_is_refused():
    assert old("DQN", noisy={"grid_search": [False, True]}).problems
    assert old(lr={"sample_from": "lambda spec: 1"}).problems


def test_a_key_written_twice_counts_once_and_is_reported(tmp_path):
    file = tmp_path / "old.yaml"
    file.write_text("x:\n  env: CartPole-v1\n  run: PPO\n  config:\n    lr: 0.1\n    lr: 0.2\n")
    (found,) = [translate(one) for one in read_old(file)]
    assert value(found, "training.lr") == 0.2
    assert any("written twice" in entry.outcome.why for entry in found.of("ignored"))
    assert Experiment.compose(str(file)).get("training.lr") == 0.2


@pytest.mark.parametrize(
    "text",
    [
        "run: PPO\nconfig: {env: CartPole-v1}\n",
        "run: PPO\nenv: CartPole-v1\n",
        "x: {algorithm: PPO, env: CartPole-v1}\n",
        "reporting: {run: PPO, env: CartPole-v1}\n",
        "defaults: &d {lr: 0.1}\nx: {run: PPO, env: CartPole-v1, config: {<<: *d}}\n",
        "version: 1\nx: {run: PPO, env: CartPole-v1}\n",
    ],
)
def test_old_files_are_recognised_in_every_form(tmp_path, text):
    file = tmp_path / "old.yaml"
    file.write_text(text)
    assert Experiment.compose(str(file)).get("algo.name") == "PPO"


@pytest.mark.parametrize(
    "text", ["environment: {env: CartPole-v1}\n", "algo: {name: PPO}\n", "training: {lr: 1}\n"]
)
def test_files_of_today_are_not_taken_for_old_ones(tmp_path, text):
    file = tmp_path / "new.yaml"
    file.write_text(text)
    assert read_old(file) is None


def test_migrating_never_overwrites_what_it_did_not_write(tmp_path):
    file = tmp_path / "old.yaml"
    file.write_text("a b: {run: PPO, env: CartPole-v1}\na-b: {run: DQN, env: CartPole-v1}\n")
    paths = [path for _, path in migrate(str(file), tmp_path / "out")]
    assert [path.name for path in paths] == ["a-b.yaml", "a-b-2.yaml"]
    migrate(str(file), tmp_path / "out")  # its own files may be written again
    paths[0].write_text("mine\n")
    with pytest.raises(RayfishError, match="not written by this command"):
        migrate(str(file), tmp_path / "out")
    assert paths[0].read_text() == "mine\n"


def test_the_name_of_a_run_comes_from_its_line_in_the_old_file(tmp_path):
    file = tmp_path / "old.yaml"
    file.write_text("mine:\n  run: PPO\n  env: CartPole-v1\n")
    assert Experiment.compose(str(file)).origin("runtime.name") == f"{file}:1"
