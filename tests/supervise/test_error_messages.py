"""Workers that die or hang while a run trains: it goes on, counted and told, or ends with its reason."""

from __future__ import annotations

import os
import signal
from itertools import pairwise

import numpy as np
import pytest

import rayfish
from rayfish.algorithm.workers import census
from rayfish.errors import RunFailed
from rayfish.supervise.error_messages import explain_exit, explain_text
from tests.helpers import comparable, info_of, metrics_of, small_disk

SMALL = (
    "rollouts.num_envs_per_env_runner=2",
    "training.train_batch_size_per_learner=200",
    "training.minibatch_size=50",
    "training.num_epochs=1",
    "training.model.fcnet_hiddens=[8]",
    "stop_conditions.episode_reward_mean=null",
    "fault_tolerance.delay_between_env_runner_restarts_s=0.2",
)
WORLD = """import time
import gymnasium as gym
import numpy as np


class World(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault="", after=150):
        self.fault, self.left = fault, after

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.random(2).astype(np.float32), {"metrics": {}}

    def step(self, action):
        self.t += 1
        self.left -= 1
        if self.left < 0 and self.fault == "breaks":
            raise ValueError("the motor is hot")
        if self.left < 0 and self.fault == "hangs":
            time.sleep(3600)
        if self.left == 0 and self.fault.startswith("fills"):
            try:
                with open("disk/filler", "wb", buffering=0) as filler:
                    while True:
                        filler.write(bytes(4096))
            except OSError:
                pass
        if self.left < 0 and self.fault == "fills and prints":
            print("step", self.t, "of an environment that prints what it does")
        if self.fault == "now and then" and self.np_random.random() < 0.02:
            raise ValueError("the motor is hot")
        return self.np_random.random(2).astype(np.float32), 1.0, self.t >= 10, False, {}
"""

pytestmark = pytest.mark.usefixtures("ray_session")


@pytest.fixture
def words(workdir):
    """The words that train in a world of this test's own."""
    file = workdir / f"{workdir.name}.py"  # two tests' modules of one name would be taken for each other
    file.write_text(WORLD)
    return lambda *more: (f"environment.env={file.name}:World", *SMALL, *more)


def test_a_killed_runner_comes_back_with_another_seed_and_the_normaliser(words):
    told = []
    more = words("rollouts.num_env_runners=1", "rollouts.observation_filter=MeanStdFilter")
    with rayfish.Trainer("cartpole", *more) as trainer:
        trainer.losses.tell = told.append
        trainer.step()
        group = trainer.algorithm.env_runner_group
        (before,) = group.foreach_env_runner(lambda runner: runner._seed, local_env_runner=False)
        os.kill(census(trainer.algorithm)[0].pid, signal.SIGKILL)
        for _ in range(5):
            metrics = trainer.step()
            if metrics["run/worker_restarts"] and not metrics["run/workers_lost"]:
                break
        (after,) = group.foreach_env_runner(lambda runner: runner._seed, local_env_runner=False)
        (seen,) = group.foreach_env_runner(
            lambda runner: runner._env_to_module.connectors[0].statistics(), local_env_runner=False
        )
        expected = trainer.policy_parts()["normaliser"]["default_policy"]["leaves"][0]["mean"]
    assert metrics["run/worker_restarts"] == 1
    assert metrics["run/workers_lost"] == 0
    (line,) = told
    assert line.startswith("runner 1 died: its process was killed or crashed")
    assert line.endswith("restarted (1 of 100)")
    assert after != before
    assert np.allclose(seen["default_policy"]["leaves"][0]["mean"], expected, atol=0.1)


def test_a_killed_runner_costs_no_iteration_and_no_steps(words):
    more = words(
        "rollouts.num_env_runners=2", "rollouts.num_envs_per_env_runner=8",
        "training.train_batch_size_per_learner=1000",
    )  # fmt: skip
    with rayfish.Trainer("cartpole", *more) as trainer:
        steps, killed = [trainer.step()["run/env_steps"]], census(trainer.algorithm)
        os.kill(killed[0].pid, signal.SIGKILL)
        steps += [trainer.step()["run/env_steps"] for _ in range(2)]
        for row in census(trainer.algorithm):
            os.kill(row.pid, signal.SIGKILL)
        steps += [trainer.step()["run/env_steps"] for _ in range(2)]
        metrics = trainer.metrics
    assert [after - before for before, after in pairwise([0, *steps])] == [1000] * 5
    assert metrics["run/iteration"] == trainer.result["training_iteration"] == 5
    assert metrics["run/worker_restarts"] >= 2


@pytest.mark.slow
def test_a_runner_that_hangs_is_restarted_and_its_line_is_reported(words, capsys):
    run = rayfish.train(
        "cartpole",
        *words("rollouts.num_env_runners=1", "environment.env_config.fault=hangs"),
        "fault_tolerance.env_timeout_s=1",
        "stop_conditions.training_iteration=3",
        plain=True,
    )
    assert "World.step() has been running for 1 s" in capsys.readouterr().out
    assert info_of(run)["counters"]["run/worker_restarts"] >= 1
    assert metrics_of(run)[-1]["run/env_steps"] >= 400


@pytest.mark.slow
def test_restarts_end_at_their_limit_with_the_reason(words, capsys):
    with pytest.raises(
        RunFailed, match=r"max_num_env_runner_restarts=1\); runner 1 died last: ValueError"
    ) as end:
        rayfish.train(
            "cartpole",
            *words("rollouts.num_env_runners=1", "environment.env_config.fault=breaks"),
            "fault_tolerance.max_num_env_runner_restarts=1",
            plain=True,
        )
    assert ".py:22 in step" in end.value.what
    out = capsys.readouterr().out
    assert "runner 1 died: ValueError: the motor is hot" in out
    assert "Traceback" not in out


@pytest.mark.parametrize("runner", ["batched", "rllib"])
def test_a_simulator_that_fails_now_and_then_is_trained_with_and_the_run_repeats(words, workdir, runner):
    more = words(
        "environment.env_config.fault=now and then",
        "fault_tolerance.restart_failed_sub_environments=true",
        f"rollouts.runner={runner}",
    )
    told = []
    with rayfish.Trainer("cartpole", *more) as trainer:
        trainer.losses.tell = told.append
        whole = [comparable(trainer.step()) for _ in range(4)]
    with rayfish.Trainer("cartpole", *more) as trainer:
        first = [comparable(trainer.step()) for _ in range(2)]
        saved = trainer.save(workdir / "saved")
        counters = {"run/env_restarts": first[-1]["run/env_restarts"]}
    with rayfish.Trainer("cartpole", *more) as trainer:
        assert trainer.restore(saved) == []
        trainer.losses.load_state(counters)
        rest = [comparable(trainer.step()) for _ in range(2)]
    assert [*first, *rest] == whole
    assert whole[-1]["run/env_restarts"] >= 8
    assert all(after["run/env_steps"] - before["run/env_steps"] >= 190 for before, after in pairwise(whole))
    assert whole[-1]["rollout/length_mean"] == 10, "a lost episode was counted"
    assert told[0].endswith(f"remade with new seeds ({whole[0]['run/env_restarts']} so far)")


@pytest.mark.parametrize("fault", ["fills", "fills and prints"])
def test_a_disk_that_fills_up_between_checkpoints_fails_the_run_with_one_message(
    words, workdir, fault, capsys
):
    with small_disk(workdir / "disk", "3m") as disk:
        more = ("runtime.local_dir=disk/runs", f"environment.env_config.fault={fault}")
        with pytest.raises(RunFailed, match=r"^the disk is full: disk/runs/\S+ cannot be written") as end:
            rayfish.train("cartpole", *words(*more), "checkpoint.checkpoint_frequency=100", plain=True)
        (run,) = disk.glob("runs/*/*")
        assert end.value.hint.startswith(f"free space under {disk}, then rayfish train --resume disk/runs/")
        info = info_of(run)
        assert (info["status"], info["reason"]) == ("failed", end.value.what)
        assert not [path for path in run.rglob(".*") if path.name != ".lock"]
    assert "Traceback" not in "".join(capsys.readouterr())


def test_environments_that_were_remade_are_counted_and_reported(words, capsys):
    run = rayfish.train(
        "cartpole",
        *words("environment.env_config.fault=breaks", "fault_tolerance.restart_failed_sub_environments=true"),
        "stop_conditions.training_iteration=3",
        plain=True,
    )
    assert info_of(run)["counters"]["run/env_restarts"] >= 1
    out = capsys.readouterr().out
    assert "failed: ValueError: the motor is hot (" in out
    assert "Traceback" not in out


def test_environments_remade_before_a_checkpoint_are_not_reported_again_after_it(words, workdir):
    more = words(
        "environment.env_config.fault=breaks",
        "environment.env_config.after=300",
        "fault_tolerance.restart_failed_sub_environments=true",
    )
    with rayfish.Trainer("cartpole", *more) as trainer:
        while not trainer.losses.env_restarts:
            trainer.step()
        saved, before = trainer.save(workdir / "saved"), trainer.losses.env_restarts
    told = []
    with rayfish.Trainer("cartpole", *more) as trainer:
        trainer.losses.tell = told.append
        trainer.restore(saved)
        trainer.step()
    assert before > 0
    assert told == []


def test_a_learner_that_dies_before_the_first_checkpoint_begins_from_the_warm_start(words, workdir):
    def same(one, other):
        return all(np.array_equal(one["default_policy"][k], v) for k, v in other["default_policy"].items())

    with rayfish.Trainer("cartpole", *words()) as trainer:
        trainer.step()
        saved, weights = trainer.save(workdir / "saved"), trainer.get_weights()
    with rayfish.Trainer("cartpole", *words(f"algo.checkpoint_path={saved}")) as trainer:
        assert same(weights, trainer.get_weights())
        trainer.step()
        assert not same(weights, trainer.get_weights())
        trainer.rebuild()
        assert same(weights, trainer.get_weights())


def test_a_dead_runner_is_not_taken_for_the_learner(words):
    more = words(
        "rollouts.num_env_runners=1", "learners.num_learners=1",
        "fault_tolerance.restart_failed_env_runners=false",
    )  # fmt: skip
    with rayfish.Trainer("cartpole", *more) as trainer:
        trainer.step()
        os.kill(census(trainer.algorithm)[0].pid, signal.SIGKILL)
        with pytest.raises(RunFailed) as end:
            for _ in range(5):
                trainer.step()
    assert "learner died" not in end.value.what


def test_weights_that_are_no_numbers_are_never_saved(words):
    with rayfish.Trainer("cartpole", *words()) as trainer:
        trainer.step()
        weights = trainer.get_weights()
        broken = {policy: {k: v * np.nan for k, v in w.items()} for policy, w in weights.items()}
        trainer.set_weights(broken)
        with pytest.raises(RunFailed, match="learning broke down"):
            trainer.step()


def test_a_logged_traceback_becomes_one_line():
    text = (
        "Worker exception caught during `apply()`: \n"
        "Traceback (most recent call last):\n"
        '  File "/x/lib/python3.11/site-packages/ray/a.py", line 2, in sample\n'
        "    go()\n"
        '  File "/home/me/env.py", line 12, in step\n'
        "    boom()\n"
        "ValueError: boom\n"
        "in step 7 of the episode\n"
        "\n"
        "The above exception was the direct cause of the following exception:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "/x/lib/python3.11/site-packages/ray/b.py", line 3, in apply\n'
        "RuntimeError\n"
    )
    reason = explain_text(text, "me.py:Env")
    assert reason.what == "ValueError: boom (env.py:12 in step, in step 7 of the episode)"
    assert reason.hint.startswith("fix /home/me/env.py:12; rayfish env check me.py:Env")
    assert explain_text("nothing of the kind", "env") is None


@pytest.mark.parametrize(
    ("said", "means"),
    [
        (
            "Worker exit type: SYSTEM_ERROR Worker unexpectedly exits with a connection error code 2.",
            "killed",
        ),
        ("1 worker(s) were killed due to the node running low on memory.", "out of memory"),
        ("Worker exits with an exit code 3.", "exit code 3"),
        ("", "killed or crashed"),
    ],
)
def test_what_ray_says_of_an_exit_is_put_into_words(said, means):
    assert means in explain_exit(said).what
