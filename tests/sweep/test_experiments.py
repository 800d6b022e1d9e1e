"""Tuning an experiment: trials are runs like any other, and the best of them is a file to train."""

from __future__ import annotations

import json

import pytest
import yaml

import rayfish
from rayfish.errors import ConfigError, RayfishError
from rayfish.experiment import Experiment
from rayfish.experiment.words import word
from rayfish.run.directory import RunDirectory
from rayfish.sweep.experiment import needed
from rayfish.sweep.records import DONE, FAILED

SMALL = (
    "stop_conditions.training_iteration=3",
    "training.train_batch_size_per_learner=512",
    "training.minibatch_size=128",
    "training.num_epochs=2",
    "rollouts.num_envs_per_env_runner=8",
    "checkpoint.checkpoint_frequency=1",
)


@pytest.fixture(scope="module")
def swept(ray_session, tmp_path_factory):
    """One sweep of four trials, looked at by several tests."""
    folder = tmp_path_factory.mktemp("swept")
    return rayfish.tune(
        "cartpole",
        {"training.lr": "loguniform(1e-4,1e-2)", "training.model": {"fcnet_hiddens": "grid([16],[32,32])"}},
        *SMALL,
        {"runtime.local_dir": str(folder)},
        method="grid",
        num_samples=2,
        max_concurrent=1,
        plain=True,
    )


def test_every_trial_is_a_full_run(swept):
    assert [t.state for t in swept.trials] == [DONE] * 4
    for trial in swept.trials:
        run = RunDirectory.open(swept.folder / "trials" / trial.name)
        assert run.status == "done"
        assert run.data["counters"]["run/iteration"] == 3
        assert [c.name for c in run.list_checkpoints()] == ["000001", "000002", "000003"]
        config = Experiment.load(run.config_file)
        assert config.get("training.lr") == trial.params["training.lr"]
        assert config.get("training.model.fcnet_hiddens") == trial.params["training.model.fcnet_hiddens"]
        assert (run.path / "progress.csv").is_file() and any((run.path / "events").iterdir())


def test_a_trial_in_a_worker_that_served_others_equals_a_run_of_its_own(swept, workdir, ray_session):
    trial = swept.trials[3]  # the last of four in one process
    folder = swept.folder / "trials" / trial.name
    again = rayfish.train(str(folder / "config.yaml"), "runtime.local_dir=runs", plain=True)

    def returns(run):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return [(line["rollout/return_mean"], line["learn/default_policy/total_loss"]) for line in lines]

    assert returns(folder) == returns(again)


def test_the_result_answers_to_the_names_of_ray_tunes(swept):
    assert swept.get_best_trial() == swept.best
    assert swept.get_best_config("episode_reward_mean", "max") == swept.best_config
    worst = swept.get_best_trial(metric="episode_reward_mean", mode="min")
    assert worst.value == min(trial.value for trial in swept.trials)
    assert rayfish.load(swept.get_best_checkpoint()).algo == "PPO"
    assert list(swept.dataframe()["trial"]) == [trial.number for trial in swept.trials]


def test_the_policy_of_the_best_trial_loads(swept):
    agent = rayfish.load(swept.folder / "best")
    assert agent.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)


def test_the_best_point_is_a_ready_experiment_file(swept, workdir, ray_session):
    best = swept.folder / "best.yaml"
    assert yaml.safe_load(best.read_text())["tunables"] == {}
    experiment = Experiment.compose(str(best))
    for key, value in swept.best_config.items():
        assert experiment.get(key) == value
        assert f"tune, trial {swept.best.number}" in best.read_text()
    run = rayfish.train(str(best), "runtime.local_dir=runs", plain=True)
    assert RunDirectory.open(run).data["return_mean"] == pytest.approx(swept.best_value)


def test_the_search_space_of_a_file_is_taken(tune, workdir):
    (workdir / "mine.yaml").write_text(
        "# @package _global_\n"
        "defaults:\n  - /experiment/cartpole\n  - _self_\n"
        "tunables:\n"
        "  training:\n"
        "    lr: {type: loguniform, values: [1e-4, 1e-3]}\n"
        "    gamma: {type: choice, values: [0.9, 0.99]}\n"
        "search: {num_samples: 2, method: random}\n"
    )
    result = tune("mine.yaml", None, *SMALL)
    assert len(result.trials) == 2
    assert all(1e-4 <= t.params["training.lr"] <= 1e-3 for t in result.trials)
    assert {t.params["training.gamma"] for t in result.trials} <= {0.9, 0.99}


def test_the_grid_search_of_an_old_file_is_run_as_a_grid(tune, workdir):
    (workdir / "old.yaml").write_text(
        "cartpole-grid:\n  env: CartPole-v1\n  run: PPO\n"
        "  stop: {training_iteration: 1}\n"
        "  config:\n    lr:\n      grid_search: [0.001, 0.0001]\n"
        "    train_batch_size: 400\n    sgd_minibatch_size: 100\n    num_sgd_iter: 1\n    num_workers: 0\n"
    )
    result = tune("old.yaml")
    assert sorted(t.params["training.lr"] for t in result.trials) == [0.0001, 0.001]
    assert all(t.state == DONE for t in result.trials), [t.error for t in result.trials]


@pytest.mark.slow
def test_a_group_may_vary(tune):
    result = tune(
        "cartpole", {"training/model": "grid(mlp,lstm)"}, *SMALL, "stop_conditions.training_iteration=1"
    )
    assert [t.state for t in result.trials] == [DONE, DONE], [t.error for t in result.trials]
    configs = [Experiment.load(result.folder / "trials" / t.name / "config.yaml") for t in result.trials]
    assert [bool(c.get("training.model.use_lstm")) for c in configs] == [False, True]


def test_a_point_that_cannot_run_is_one_failed_trial(tune):
    space = {"training.minibatch_size": "grid(128,100000)"}
    result = tune("cartpole", space, *SMALL, "training.train_batch_size_per_learner=512")
    states = {t.params["training.minibatch_size"]: t for t in result.trials}
    assert states[128].state == DONE
    assert states[100000].state == FAILED
    assert "minibatch" in states[100000].error


def test_wrong_keys_and_values_are_reported_before_anything_starts(tune):
    space = {
        "training.lrr": "uniform(0,1)",
        "training.gamma": "choice(0.9,high)",
        "trainig.lr": "uniform(0,1)",
    }
    with pytest.raises(ConfigError) as error:
        tune("cartpole", space)
    text = str(error.value)
    assert "training.lrr" in text and "did you mean" in text
    assert "training.gamma" in text
    assert "no section 'trainig'" in text


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("rollout/return_meen", "did you mean rollout/return_mean?"),
        ("score", "there are run/iteration"),
        ("eval/return_mean", "set evaluation.evaluation_interval=1"),
    ],
)
def test_a_metric_that_no_run_reports_is_refused_before_anything_starts(tune, metric, said):
    with pytest.raises(ConfigError) as caught:
        tune("cartpole", {"training.lr": "uniform(0.1,1)"}, metric=metric)
    assert [problem.key for problem in caught.value.problems] == ["search.metric"]
    assert said in caught.value.problems[0].hint


def test_more_runners_than_cpus_are_refused_with_the_arithmetic(tune):
    with pytest.raises(RayfishError) as error:
        tune("cartpole", {"training.lr": "uniform(1e-4,1e-3)"}, "rollouts.num_env_runners=6")
    text = str(error.value)
    assert "each trial needs 7 CPUs (1 for itself, 6 for its workers); this machine has 4 CPUs" in text
    assert "at most 3" in text


def test_a_missing_gpu_is_refused_with_the_key_that_asks_for_it(tune):
    words = ["rollouts.num_env_runners=1", "rollouts.num_gpus_per_env_runner=1"]
    with pytest.raises(RayfishError, match="this machine has 0 GPUs") as error:
        tune("cartpole", {"training.lr": "uniform(1e-4,1e-3)"}, *words)
    assert error.value.hint == "set rollouts.num_gpus_per_env_runner=0, or use a cluster with more GPUs"


def test_remote_runners_are_counted_with_their_trial():
    experiment = Experiment.compose(
        "cartpole", ["rollouts.num_env_runners=2", "rollouts.num_cpus_per_env_runner=0.5"]
    )
    found = needed(experiment)
    assert found.bundles == [{"CPU": 1.0}, {"CPU": 0.5}, {"CPU": 0.5}]
    assert found.total("CPU") == 2.0


@pytest.mark.parametrize(
    ("words", "bundles"),
    [
        (
            ["rollouts.num_env_runners=1", "rollouts.num_gpus_per_env_runner=1"],
            [{"CPU": 1}, {"CPU": 1, "GPU": 1}],
        ),
        (["learners.num_learners=1", "learners.num_gpus_per_learner=1"], [{"CPU": 1}, {"GPU": 1}]),
        (["learners.num_gpus_per_learner=0.5"], [{"CPU": 1, "GPU": 0.5}]),
        (["resources.num_gpus=1"], [{"CPU": 1, "GPU": 1}]),
        (["resources.num_gpus=2"], [{"CPU": 1}, {"GPU": 1}, {"GPU": 1}]),
    ],
)
def test_a_trial_reserves_the_gpus_of_each_of_its_processes(words, bundles):
    assert needed(Experiment.compose("cartpole", words)).bundles == bundles


@pytest.mark.parametrize(
    "value", [3, 1e-5, True, None, "relu", "a b", "it's", [64, 64], {"a": [1, "x"], "b": {"c": 2.5}}, "1e-3x"]
)
def test_any_value_survives_the_way_through_an_override(value):
    experiment = Experiment.compose("cartpole", [word("environment.env_config.thing", value)])
    assert experiment.get("environment.env_config.thing") == value
