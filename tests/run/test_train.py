"""A whole run, as a user's command: what it writes, how it ends, how it goes on."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import rayfish
from rayfish.errors import ConfigError, RunFailed
from rayfish.metrics.stop import StopConditions
from rayfish.run.directory import RunDirectory
from rayfish.run.evaluate import evaluate
from tests.helpers import comparable, info_of, metrics_of

SMALL = (
    "rollouts.num_envs_per_env_runner=4",
    "training.train_batch_size_per_learner=256",
    "training.minibatch_size=64",
    "training.num_epochs=1",
    "training.model.fcnet_hiddens=[16]",
    "stop_conditions.episode_reward_mean=null",
)

pytestmark = pytest.mark.usefixtures("ray_session", "workdir")


def train(*overrides: str, **options):
    return rayfish.train("cartpole", *SMALL, *overrides, plain=True, **options)


def test_a_run_folder_holds_everything_the_design_names():
    run = train("stop_conditions.training_iteration=4", "checkpoint.checkpoint_frequency=2")
    info = info_of(run)
    assert info["status"] == "done"
    assert info["runner"]["used"] == "batched"
    assert info["counters"]["run/iteration"] == 4
    for name in ("config.yaml", "overrides.yaml", "command.txt", "provenance.json", "log.txt"):
        assert (run / name).is_file(), name
    assert list((run / "events").glob("events.out.*"))
    lines = metrics_of(run)
    assert [line["run/iteration"] for line in lines] == [1, 2, 3, 4]
    assert all(isinstance(value, int | float) for line in lines for value in line.values())
    with (run / "progress.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["000002", "000004", "best", "last"]
    assert (run / "checkpoints" / "last").resolve().name == "000004"


def test_what_does_not_fit_the_batched_path_runs_on_rllibs_and_says_why(capsys):
    run = train("stop_conditions.training_iteration=1", "rollouts.batch_mode=complete_episodes")
    assert info_of(run)["runner"]["used"] == "rllib"
    assert "samples whole episodes" in info_of(run)["runner"]["why"]
    assert "RLlib's env runner samples: rollouts.batch_mode=complete_episodes" in capsys.readouterr().out


def test_only_the_newest_checkpoints_and_the_best_are_kept():
    run = train(
        "stop_conditions.training_iteration=5",
        "checkpoint.checkpoint_frequency=1",
        "checkpoint.num_to_keep=2",
    )
    numbered = {p.name for p in (run / "checkpoints").iterdir() if p.name.isdigit()}
    best = (run / "checkpoints" / "best").resolve().name
    assert {"000004", "000005"} <= numbered
    assert numbered <= {"000004", "000005", best}


def test_a_finished_run_that_is_extended_equals_one_that_was_meant_to_be_longer():
    often = "checkpoint.checkpoint_frequency=1"
    whole = train("stop_conditions.training_iteration=4", often)
    run = train("stop_conditions.training_iteration=2", often)
    again = rayfish.train(None, "stop_conditions.training_iteration=4", resume=run, plain=True)
    assert again == run
    assert [comparable(line) for line in metrics_of(run)] == [comparable(line) for line in metrics_of(whole)]
    assert [line["run/iteration"] for line in metrics_of(run)] == [1, 2, 3, 4]
    assert info_of(run)["status"] == "done"


def test_resuming_a_finished_run_says_at_once_how_to_extend_it(capsys):
    run = train("stop_conditions.training_iteration=2")
    before = (run / "run.json").read_bytes()
    capsys.readouterr()
    words = ("training.lr=1e-5", "stop_conditions.training_iteration=1")
    assert rayfish.train(None, *words, resume=run, plain=True) == run
    assert capsys.readouterr().out == (
        f"{run} is finished: run/iteration 2 >= 1\n"
        f"  to extend it: rayfish train --resume {run} {words[0]} stop_conditions.training_iteration=4\n"
    )
    assert (run / "run.json").read_bytes() == before
    assert len(metrics_of(run)) == 2


def test_warm_start_takes_weights_and_normaliser_and_nothing_else():
    normalised = "rollouts.observation_filter=MeanStdFilter"
    first = train(normalised, "stop_conditions.training_iteration=2")
    with rayfish.Trainer("cartpole", *SMALL, normalised, "algo.checkpoint_path=last") as trainer:
        warm = trainer.get_weights()["default_policy"]
        statistics = trainer.policy_parts()["normaliser"]["default_policy"]["leaves"][0]
        assert trainer.iteration == 0
    with rayfish.Trainer("cartpole", *SMALL, normalised) as trainer:
        trainer.restore(first)
        saved = trainer.get_weights()["default_policy"]
        expected = trainer.policy_parts()["normaliser"]["default_policy"]["leaves"][0]
    assert set(warm) == set(saved)
    assert all(np.array_equal(warm[name], saved[name]) for name in saved)
    assert np.array_equal(statistics["mean"], expected["mean"])


def test_warm_start_by_last_means_the_run_before_this_one():
    first = train("stop_conditions.training_iteration=1")
    second = train("algo.checkpoint_path=last", "stop_conditions.training_iteration=1")
    assert str(first.resolve()) in (second / "config.yaml").read_text()


def test_warm_start_from_nowhere_writes_nothing(workdir):
    with pytest.raises(rayfish.RayfishError, match="nowhere"):
        train("algo.checkpoint_path=nowhere")
    assert not (workdir / "runs").exists()


def test_a_run_in_training_is_not_resumed_a_second_time():
    run = train("stop_conditions.training_iteration=1")
    RunDirectory.open(run).begin("rllib", "as if this process were training it")
    with pytest.raises(rayfish.RayfishError, match="in training: process"):
        rayfish.train(None, resume=run, plain=True)


def test_a_lost_link_does_not_lose_the_checkpoints():
    run = train("stop_conditions.training_iteration=2", "checkpoint.checkpoint_frequency=1")
    (run / "checkpoints" / "last").unlink()
    rayfish.train(None, "stop_conditions.training_iteration=3", resume=run, plain=True)
    assert [line["run/iteration"] for line in metrics_of(run)] == [1, 2, 3]


def test_a_goal_on_the_command_line_replaces_the_presets_other_spelling():
    experiment = rayfish.Experiment.compose("cartpole", ["stop_conditions.rollout/return_mean=600"])
    assert StopConditions(experiment.section("stop_conditions")).limits["rollout/return_mean"] == 600


def test_an_evaluation_with_a_mistyped_setting_is_refused():
    run = train("stop_conditions.training_iteration=1")
    with pytest.raises(ConfigError, match="env_confg"):
        evaluate(run, "environment.env_confg.wind=3", episodes=1)


def test_warm_start_from_another_network_is_one_clear_error():
    first = train("stop_conditions.training_iteration=1")
    with pytest.raises(rayfish.RayfishError, match="its network has fcnet_hiddens="):
        train(f"algo.checkpoint_path={first}", "training.model.fcnet_hiddens=[32]")


def test_an_env_that_breaks_while_training_names_its_line_and_keeps_what_was_finished(workdir):
    (workdir / "breaks.py").write_text(
        "import gymnasium as gym\n"
        "class Breaks(gym.Env):\n"
        "    observation_space = gym.spaces.Box(-1, 1, (2,))\n"
        "    action_space = gym.spaces.Discrete(2)\n"
        "    steps = 0\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return self.observation_space.sample(), {}\n"
        "    def step(self, action):\n"
        "        Breaks.steps += 1\n"
        "        if Breaks.steps > 600:\n"
        "            raise RuntimeError('the motor is hot')\n"
        "        return self.observation_space.sample(), 1.0, Breaks.steps % 10 == 0, False, {}\n"
    )
    with pytest.raises(RunFailed) as caught:
        train("environment.env=breaks.py:Breaks", "checkpoint.checkpoint_frequency=1")
    assert "the motor is hot" in caught.value.what
    assert "breaks.py:12" in caught.value.what
    (run,) = (workdir / "runs").glob("*/*")
    assert info_of(run)["status"] == "failed"
    assert "the motor is hot" in info_of(run)["reason"]
    assert (run / "checkpoints" / "last" / "rayfish.json").is_file()
    assert "Traceback" in (run / "log.txt").read_text()


def test_nothing_is_written_when_the_experiment_cannot_run(workdir):
    with pytest.raises(ConfigError):
        train("training.lrr=1")
    assert not (workdir / "runs").exists()


def test_evaluation_is_written_beside_the_run_and_repeats_itself():
    run = train("stop_conditions.training_iteration=2")
    first, second = (evaluate(run, episodes=3, seed=7) for _ in range(2))
    assert first.returns == second.returns
    assert len(first.returns) == 3
    assert first.ci_low <= first.return_mean <= first.ci_high
    written = json.loads((run / "evaluations").glob("*.json").__next__().read_text())
    assert written["returns"] == first.returns


def test_evaluation_by_steps_finishes_the_last_episode():
    run = train("stop_conditions.training_iteration=1")
    found = evaluate(run, steps=100)
    assert found.steps >= 100
    assert found.steps - found.lengths[-1] < 100


def test_periodic_evaluation_has_its_own_env_config_and_interval(workdir):
    (workdir / "told.py").write_text(
        "import gymnasium as gym\n"
        "class Told(gym.Env):\n"
        "    observation_space = gym.spaces.Box(-1, 1, (2,))\n"
        "    action_space = gym.spaces.Discrete(2)\n"
        "    def __init__(self, reward=1.0, length=5):\n"
        "        self.reward, self.length = reward, length\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        self.t = 0\n"
        "        return self.observation_space.sample(), {}\n"
        "    def step(self, action):\n"
        "        self.t += 1\n"
        "        done = self.t >= self.length\n"
        "        info = {'metrics': {'seen': self.reward}} if done else {}\n"
        "        return self.observation_space.sample(), self.reward, done, False, info\n"
    )
    run = train(
        "environment.env=told.py:Told",
        "environment.env_config.reward=2.0",
        "evaluation.evaluation_interval=2",
        "evaluation.evaluation_duration=3",
        "evaluation.evaluation_config.env_config.reward=10.0",
        "stop_conditions.training_iteration=4",
    )
    lines = metrics_of(run)
    assert [("eval/return_mean" in line) for line in lines] == [False, True, False, True]
    assert lines[1]["eval/return_mean"] == 50.0
    assert lines[1]["rollout/return_mean"] == 10.0
    assert lines[1]["env/seen"] == 2.0


def test_an_episode_limit_cuts_endless_episodes():
    run = train("rollouts.horizon=7", "stop_conditions.training_iteration=1")
    assert metrics_of(run)[0]["rollout/length_mean"] == 7.0


def test_a_resume_cannot_change_network_or_environment_and_leaves_the_run_as_it_was():
    run = train("stop_conditions.training_iteration=1")
    before = (run / "config.yaml").read_text()
    with pytest.raises(rayfish.RayfishError, match=r"keeps its training\.model"):
        rayfish.train(None, "training.model.fcnet_hiddens=[8]", resume=run, plain=True)
    with pytest.raises(rayfish.RayfishError, match=r"keeps its environment\.env: CartPole-v1, not Acrobot"):
        rayfish.train(None, "environment.env=Acrobot-v1", resume=run, plain=True)
    assert (run / "config.yaml").read_text() == before


def test_what_a_resume_changed_is_kept_with_the_run():
    run = train("stop_conditions.training_iteration=1")
    rayfish.train(None, "stop_conditions.training_iteration=2", "training.lr=1e-5", resume=run, plain=True)
    assert "--resume" in (run / "command.txt").read_text()
    (resume,) = info_of(run)["resumes"]
    assert resume["iteration"] == 1
    assert resume["changed"]["training.lr"][1] == 1e-5
    assert set(resume["changed"]) == {"training.lr", "stop_conditions.training_iteration"}
    assert metrics_of(run)[-1]["learn/default_policy/default_optimizer_learning_rate"] == pytest.approx(1e-5)


@pytest.mark.slow
def test_an_env_that_always_dies_on_its_runner_is_a_failed_run(workdir):
    (workdir / "bursts.py").write_text(
        "import gymnasium as gym\n"
        "class Bursts(gym.Env):\n"
        "    observation_space = gym.spaces.Box(-1, 1, (2,))\n"
        "    action_space = gym.spaces.Discrete(2)\n"
        "    t = 0\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return self.observation_space.sample(), {}\n"
        "    def step(self, action):\n"
        "        self.t += 1\n"
        "        if self.t > 9:\n"
        "            raise RuntimeError('the simulator burst')\n"
        "        return self.observation_space.sample(), 1.0, False, False, {}\n"
    )
    with pytest.raises(RunFailed, match=r"3 times in a row without one complete rollout; .*burst"):
        train(
            "environment.env=bursts.py:Bursts",
            "fault_tolerance.delay_between_env_runner_restarts_s=0.5",
            "rollouts.num_env_runners=1",
            "stop_conditions.training_iteration=2",
        )
    (run,) = (workdir / "runs").glob("*/*")
    assert info_of(run)["status"] == "failed"
    assert "the simulator burst" in (run / "log.txt").read_text()
