"""The command as people type it: help, both ways of naming a verb, errors without tracebacks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
import yaml

from rayfish.cli.main import main
from tests.helpers import RAYFISH, info_of, metrics_of, only_run, rayfish

SMALL = (
    "training.train_batch_size_per_learner=256",
    "training.minibatch_size=64",
    "training.num_epochs=1",
    "rollouts.num_envs_per_env_runner=4",
    "training.model.fcnet_hiddens=[16]",
    "stop_conditions.training_iteration=2",
)


def test_help_and_import_bring_in_neither_ray_nor_torch(tmp_path):
    code = (
        "import sys, rayfish, rayfish.cli.main as m\n"
        "try: m.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'ray', 'torch', 'hydra', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"
    for verb in ("train", "evaluate", "config", "env", "runs", "doctor"):
        assert verb in done.stdout


@pytest.mark.parametrize("experiment", ["cartpole", "wildfire_marl"])
def test_config_check_imports_neither_rllib_nor_torch(experiment, tmp_path):
    code = (
        "import sys, rayfish.cli.main as m\n"
        f"try: m.main(['config', 'check', '{experiment}'])\n"
        "except SystemExit as e: assert not e.code, e.code\n"
        "print(sorted({'ray.rllib', 'torch'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_no_arguments_print_the_help(tmp_path):
    done = rayfish(cwd=tmp_path, ok=False)
    assert "Usage: rayfish" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cartpole train", "next step: `rayfish train cartpole`;"),
        ("CartPole-v1 ppo", "next step: `rayfish train CartPole-v1 ppo`;"),
        ("cartpole config show training.lr=1", "`rayfish config show cartpole training.lr=1`;"),
        ("config show --algo ppo --env CartPole-v1", "algo.name=ppo environment.env=CartPole-v1;"),
        ("train CartPole-v1 -n 1000", "no option -n\n  next step: settings have no dashes: stop_conditions."),
        ("train --env-id CartPole-v1", "settings have no dashes: environment.env=CartPole-v1;"),
        ("tune cartpole --n-trials 3", "settings have no dashes: search.num_samples=3;"),
        ("train ppo --seed=1 --gae-lambda 0.9 --plan", "there are no options --seed, --gae-lambda, --plan"),
        (
            "train ppo --seed=1 --gae-lambda 0.9 --plan",
            "no dashes: debugging.seed=1 training.lambda_=0.9; did you mean --plain?",
        ),
        ("tune --n-trials 3 --sub-jobs python a.py --seed 1", "there is no option --n-trials"),
    ],
)
def test_a_line_of_another_tool_gets_the_words_to_write(line, said, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_hydras_way_without_a_verb_trains(tmp_path):
    rayfish("cli.mode=train", "experiment=cartpole", *SMALL, "--plain", cwd=tmp_path)
    run = only_run(tmp_path)
    assert info_of(run)["status"] == "done"
    assert len(metrics_of(run)) == 2
    assert (run / "command.txt").read_text().startswith("rayfish cli.mode=train experiment=cartpole")


@pytest.mark.parametrize(
    ("mode", "step"), [("view", "algo.checkpoint_path=RUN_OR_CHECKPOINT"), ("fly", "train, tune, view")]
)
def test_a_mode_that_cannot_be_is_one_line(mode, step, tmp_path):
    done = rayfish(f"cli.mode={mode}", cwd=tmp_path, ok=False)
    assert done.returncode
    assert f"cli.mode={mode}" in done.stderr and step in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", [["train", "cartpole"], ["cli.mode=tune", "experiment=cartpole"]])
def test_cfg_prints_the_composed_experiment_and_does_nothing_else(verb, workdir, capsys):
    def printed(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(
                [*verb, "training.gamma=0.5", "runtime.local_dir=${runtime.name}/x", "runtime.name=a", *words]
            )
        assert not ended.value.code
        return capsys.readouterr().out

    job = yaml.safe_load(printed("--cfg", "job"))
    assert job["training"]["gamma"] == 0.5 and job["environment"]["env"] == "CartPole-v1"
    assert job["runtime"]["local_dir"] == "${runtime.name}/x" and "hydra" not in job
    part = printed("-c", "job", "--package", "runtime", "--resolve")
    assert part == "# @package runtime\nname: a\nlocal_dir: a/x\ntags: []\n"
    assert list(yaml.safe_load(printed("--cfg", "hydra"))) == ["hydra"]
    assert {"hydra", "training"} < yaml.safe_load(printed("--cfg", "all", "--resolve")).keys()
    assert not list(workdir.iterdir())


def test_mistakes_get_a_message_and_an_exit_code_but_no_traceback(tmp_path):
    done = rayfish("train", "cartpole", "training.lrr=1e-3", "algo.name=PPOO", cwd=tmp_path, ok=False)
    assert done.returncode == 2
    assert "training.lrr" in done.stderr
    assert "did you mean" in done.stderr
    assert "PPOO" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert not (tmp_path / "runs").exists()


def test_debug_shows_the_traceback(tmp_path):
    done = rayfish("train", "cartpole", "training.lrr=1e-3", "--debug", cwd=tmp_path, ok=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_resume_of_a_run_that_is_not_there(tmp_path):
    done = rayfish("train", "--resume", "last", cwd=tmp_path, ok=False)
    assert done.returncode == 1
    assert "no run answers to 'last'" in done.stderr


@pytest.mark.slow
def test_a_sweep_over_values_and_seeds_makes_one_run_each(tmp_path):
    sweep = ("--multirun", "training.lr=1e-3,1e-4", "--seeds", "2", "--plain")
    done = rayfish("train", "cartpole", *SMALL, *sweep, cwd=tmp_path)
    runs = sorted(tmp_path.glob("runs/cartpole/*"))
    assert len(runs) == 4
    seeds = {info_of(run)["seed"] for run in runs}
    assert seeds == {2000, 2001}
    assert "All runs" in done.stdout
    assert "over 4 runs" not in done.stdout, "different settings have no common mean"


def test_commas_without_multirun_are_explained(tmp_path):
    done = rayfish("train", "cartpole", "training.lr=1e-3,1e-4", cwd=tmp_path, ok=False)
    assert done.returncode == 2
    assert "--multirun" in done.stderr


def test_evaluate_accepts_the_old_habit_and_names_a_wrong_algorithm(tmp_path):
    rayfish("train", "cartpole", *SMALL, "--plain", cwd=tmp_path)
    done = rayfish(
        "evaluate", "last", "--run", "PPO", "--env", "CartPole-v1", "--episodes", "3", cwd=tmp_path
    )
    assert "95 % interval" in done.stdout
    (written,) = only_run(tmp_path).glob("evaluations/*.json")
    assert json.loads(written.read_text())["episodes"] == 3
    wrong = rayfish("evaluate", "last", "--run", "DQN", cwd=tmp_path, ok=False)
    assert "was trained with PPO, not DQN" in wrong.stderr


@pytest.mark.parametrize(
    "words", ["config show cartpole", "config show cartpole --yaml", "env list", "--help"]
)
def test_a_reader_that_stops_early_is_no_error(tmp_path, words):
    line = f"set -o pipefail; {RAYFISH} {words} | true"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", ["config show cartpole", "config show cartpole --yaml", "--help"])
def test_a_full_disk_behind_stdout_is_named_as_such(tmp_path, words):
    line = f"{RAYFISH} {words} > /dev/full"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "error: standard output cannot be written: No space left on device\n"
        "  next step: free space on the disk that it is redirected to\n"
    )


@pytest.mark.parametrize(
    "words", ["train PPO seg.py:Env", "env check seg.py:Env", "config check PPO seg.py:Env"]
)
def test_a_crash_in_native_code_names_its_line(tmp_path, words):
    (tmp_path / "seg.py").write_text(
        "import ctypes\nimport gymnasium as gym\n\n\n"
        "class Env(gym.Env):\n"
        "    observation_space = gym.spaces.Box(0, 1, (2,))\n"
        "    action_space = gym.spaces.Discrete(2)\n\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return ctypes.string_at(0), {}\n"
    )
    done = rayfish(*words.split(), cwd=tmp_path, ok=False)
    assert done.returncode == -signal.SIGSEGV
    assert 'seg.py", line 10 in reset' in done.stderr


@pytest.mark.slow
def test_a_project_outside_the_clone_trains_with_its_own_env_model_and_callback_on_two_runners(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "hill.py").write_text(
        "import logging\n"
        "import gymnasium as gym\n"
        "log = logging.getLogger('hill')\n"
        "class Hill(gym.Env):\n"
        "    observation_space = gym.spaces.MultiDiscrete([3, 4])\n"
        "    action_space = gym.spaces.MultiDiscrete([2, 3])\n"
        "    def __init__(self, height):\n"
        "        log.info('a hill of %d', height)\n"
        "        log.debug('too much detail')\n"
        "        print('printed by the env')\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        self.t = 0\n"
        "        return self.observation_space.sample(), {}\n"
        "    def step(self, action):\n"
        "        self.t += 1\n"
        "        return self.observation_space.sample(), float(action[0]), self.t == 9, False, {}\n"
    )
    (tmp_path / "model" / "customnet.py").write_text(
        "from torch import nn\n"
        "class CustomModel(nn.Module):\n"
        "    def __init__(self, obs_space, action_space, num_outputs, model_config, name, width):\n"
        "        super().__init__()\n"
        "        self.body = nn.Linear(2, width)\n"
        "        self.pi, self.v = nn.Linear(width, num_outputs), nn.Linear(width, 1)\n"
        "    def forward(self, obs):\n"
        "        hidden = self.body(obs.float()).tanh()\n"
        "        return self.pi(hidden), self.v(hidden)\n"
    )
    (tmp_path / "watch.py").write_text(
        "import logging\n"
        "from ray.rllib.callbacks.callbacks import RLlibCallback\n"
        "class Watch(RLlibCallback):\n"
        "    def on_episode_end(self, *, env_runner, metrics_logger, **kwargs):\n"
        "        logging.getLogger('watch').warning('over on %d', env_runner.worker_index)\n"
        "        metrics_logger.log_value('seen', 1.0, reduce='sum')\n"
    )
    done = rayfish(
        "train", "algo.name=PPO", "environment.env=hill.py:Hill", "environment.env_config.height=7",
        "training.model.custom_model=customnet", "training.model.custom_model_config.width=8",
        "callbacks.callbacks_class=watch.py:Watch", "rollouts.num_env_runners=2", "--ray-num-cpus", "3",
        "training.train_batch_size_per_learner=256", "training.minibatch_size=64",
        "stop_conditions.training_iteration=2", "--plain", cwd=tmp_path,
    )  # fmt: skip
    run = only_run(tmp_path)
    log = (run / "log.txt").read_text()
    for name in ("runner 1", "runner 2"):
        assert f"{name} | hill: a hill of 7" in log
        assert f"{name} | printed by the env" in log
        assert f"{name} hill: a hill of 7" in done.stdout
    assert "WARNING  runner 1 | watch: over on 1" in log
    assert "runner 2 warning watch: over on 2" in done.stdout
    assert "too much detail" not in done.stdout
    assert metrics_of(run)[-1]["env/seen"] > 0
    assert metrics_of(run)[-1]["rollout/length_mean"] == 9.0
    assert "core_worker" not in done.stdout + done.stderr


LEAVING = """
import atexit, threading
from pathlib import Path
from gymnasium.envs.classic_control import CartPoleEnv

class Leaving(CartPoleEnv):
    pass

def late():
    threading.main_thread().join()
    Path("thread").touch()

atexit.register(Path("exit").touch)
threading.Thread(target=late).start()
"""


def test_the_end_of_a_training_waits_for_threads_and_calls_exit_functions(tmp_path):
    (tmp_path / "mine.py").write_text(LEAVING)
    rayfish("train", "cartpole", "environment.env=mine:Leaving", *SMALL, cwd=tmp_path)
    assert (tmp_path / "exit").exists()
    assert (tmp_path / "thread").exists()
