"""`rayfish rollout`, and the old command lines of rollout and evaluate, as people type them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time

import pandas as pd
import pytest

import rayfish as package
from rayfish.cli.main import main
from tests.helpers import RAYFISH

ROOM = """
import gymnasium as gym
import numpy as np


class Room(gym.Env):
    observation_space = gym.spaces.Box(0, 100, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, size=3, name="", walls=(), pause=0.0):
        self.size, self.pause = size, pause
        self.said = {"name": name, "walls": list(walls)}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        import time

        time.sleep(self.pause)
        self.t += 1
        return np.full(2, self.t, np.float32), 1.0, self.t == self.size, False, self.said
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory, ray_session):
    """A folder with rooms.py, and `runs/room` trained in it."""
    here = tmp_path_factory.mktemp("trained")
    (here / "rooms.py").write_text(ROOM)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        env = "environment.env=rooms.Room"
        package.train(None, "algo.name=DQN", "runtime.name=room", env, *SMALL_DQN, plain=True)
    return here


SMALL_DQN = (
    "training.train_batch_size_per_learner=8",
    "training.num_steps_sampled_before_learning_starts=16",
    "training.model.fcnet_hiddens=[8]",
    "reporting.min_sample_timesteps_per_iteration=20",
    "stop_conditions.training_iteration=1",
)


@pytest.fixture
def typed(trained, monkeypatch, capsys):
    """Types a line; gives the exit code, what was printed, and what went to stderr, in one line each."""
    monkeypatch.chdir(trained)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        seen = capsys.readouterr()
        return ended.value.code, seen.out, seen.err

    return run


def recorded(out):
    """The folder that the command says it wrote."""
    return re.search(r"written to (.*)/", out)[1]


def test_a_rollout_lies_in_its_run_and_says_how_to_read_it(typed, trained):
    code, out, err = typed("rollout", "last", "--episodes", "2")
    assert (code, err) == (0, "")
    (run,) = (trained / "runs" / "room").iterdir()
    folder = recorded(out)
    assert folder.startswith(str(run / "rollouts"))
    assert "2 episodes, 6 steps" in out
    assert re.search(r"return\s+3\s+3 to 3\s+0\s+3\s+3", out)
    assert f'pandas.read_parquet("{folder}/trajectories.parquet")' in out
    assert "6 rows" in out
    assert len(pd.read_parquet(f"{folder}/trajectories.parquet")) == 6


def test_the_old_line_of_rollout_works(typed, trained):
    checkpoint = next(trained.glob("runs/room/*/checkpoints/last"))
    line = "--run DQN --episodes 1 --num-workers 0 --num-gpus 0 --save-info --no-render --local-mode"
    code, out, err = typed("rollout", str(checkpoint), *line.split())
    assert (code, err) == (0, "")
    infos = pd.read_parquet(f"{recorded(out)}/trajectories.parquet")["info"]
    assert json.loads(infos[0]) == {"name": "", "walls": []}


def test_the_old_line_of_evaluate_works(typed):
    code, out, err = typed("evaluate", "last", *["--run", "DQN", "--env", "rooms.Room", "--steps", "100"])
    assert (code, err) == (0, "")
    assert "34 episodes, 102 steps" in out


@pytest.mark.parametrize("verb", ["evaluate", "rollout"])
def test_env_config_in_an_old_config_reaches_the_environment(typed, tmp_path, verb):
    given = {"name": "it's \\'odd", "walls": [1, [2, "x"]]}
    config = {"env_config": {"size": 7, **given}, "num_workers": 3, "lr": 1}
    out_flag = ["--save-info", "--out", str(tmp_path / "here")] if verb == "rollout" else []
    code, out, err = typed(verb, "last", "--episodes", "1", "--config", json.dumps(config), *out_flag)
    assert code == 0
    assert "1 episode, 7 steps" in out
    assert "note: --config: not used: lr, num_workers; a checkpoint plays with its own settings" in err
    if verb == "rollout":
        said = json.loads(pd.read_parquet(tmp_path / "here" / "trajectories.parquet")["info"][0])
        assert said == given


def test_an_old_config_may_be_yaml_and_name_evaluation_settings(typed):
    config = "{evaluation_config: {explore: true, env_config: {size: 4}}, horizon: 2}"
    code, out, err = typed("rollout", "last", "--episodes", "1", "--config", config)
    assert (code, err) == (0, "")
    assert "1 episode, 2 steps" in out
    assert "exploring" in out


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{env_config: ", "--config cannot be read as JSON or YAML"),
        ("[1]", "--config is '[1]', which holds no keys and values"),
        ('{"env_config": 5}', "env_config in --config is 5"),
        ('{"env_config": {"sizzle": 5}}', "sizzle"),
    ],
)
def test_a_config_that_cannot_be_used_is_one_message(typed, config, said):
    code, _, err = typed("rollout", "last", "--episodes", "1", "--config", config)
    assert code in (1, 2)
    assert said in err
    assert "next step:" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("flags", "note"),
    [
        (
            "--num-workers 2 --num-gpus 0.5",
            "--num-workers 2 --num-gpus 0.5: the policy plays",
        ),
        ("--render", "--render: no window is opened"),
        ("--monitor --video-dir films", "--monitor --video-dir films: no video is made"),
        ("--use-shelve", "--use-shelve:"),
    ],
)
@pytest.mark.parametrize("verb", ["evaluate", "rollout"])
def test_an_old_flag_that_does_nothing_says_so_in_one_line(typed, verb, flags, note):
    code, _, err = typed(verb, "last", "--episodes", "1", *flags.split())
    assert code == 0
    assert err.startswith(f"note: {note}")
    assert len(err.splitlines()) == 1


def test_out_of_old_scripts_names_a_file(typed, tmp_path):
    code, _, err = typed("rollout", "last", "--episodes", "1", "--out", str(tmp_path / "rollouts.pkl"))
    assert code == 0
    assert f"the files are written into the folder {tmp_path}/rollouts/" in err
    assert (tmp_path / "rollouts" / "trajectories.parquet").is_file()
    code, _, err = typed("evaluate", "last", "--episodes", "1", "--out", str(tmp_path / "scores.pkl"))
    assert code == 0
    assert "rayfish rollout keeps the episodes" in err
    code, _, err = typed("evaluate", "last", "--episodes", "1", "--out", str(tmp_path / "scores.json"))
    assert (code, err) == (0, "")
    assert json.loads((tmp_path / "scores.json").read_text())["returns"] == [3.0]


@pytest.mark.parametrize("verb", ["evaluate", "rollout"])
def test_an_old_name_of_the_algorithm_is_known_and_another_is_named(typed, verb):
    assert typed(verb, "last", "--episodes", "1", "--run", "DQNTrainer")[0] == 0
    code, _, err = typed(verb, "last", "--algo", "PPO")
    assert code == 1
    assert "was trained with DQN, not PPO" in err


def test_an_old_checkpoint_is_one_sentence(typed, tmp_path):
    (tmp_path / "checkpoint_000010").mkdir()
    file = tmp_path / "checkpoint_000010" / "checkpoint10"
    file.touch()
    code, out, err = typed(
        "evaluate", str(file), *["--run", "DQN", "--env", "rooms.CustomEnv", "--steps", "100"]
    )
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        f"error: {file} is an old checkpoint of RLlib: "
        "its weights belong to networks that RLlib no longer has",
        "  next step: train it again from its old experiment file: rayfish train -f FILE.yaml",
    ]


def test_ctrl_c_on_the_terminal_keeps_what_was_finished(trained, tmp_path):
    slow = ["environment.env_config.pause=0.02", "--episodes", "10000", "--out", str(tmp_path / "mine")]
    process = subprocess.Popen(
        [RAYFISH, "rollout", "last", *slow],
        cwd=trained,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    draft = tmp_path / ".writing-mine" / "trajectories.parquet"
    while not draft.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "finished episodes kept" in out
    rows = pd.read_parquet(tmp_path / "mine" / "trajectories.parquet")
    assert (rows.groupby("episode").size() == 3).all()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
