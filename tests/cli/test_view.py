"""`rayfish view` and `rayfish evaluate --baselines` as people type them."""

from __future__ import annotations

import json

import pytest

import rayfish as package
from rayfish.cli.evaluate import with_baselines
from tests.helpers import rayfish


@pytest.fixture(scope="module")
def trained(tmp_path_factory, ray_session):
    """A folder with `runs/fire`, trained for a moment."""
    here = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        package.train(
            None,
            "algo.name=PPO",
            "runtime.name=fire",
            "environment.env=rayfish/Wildfire-v0",
            "environment.env_config.simulation=small",
            "environment.env_config.max_steps=12",
            "training.train_batch_size_per_learner=64",
            "training.minibatch_size=64",
            "rollouts.num_env_runners=0",
            "rollouts.num_envs_per_env_runner=4",
            "training.model.fcnet_hiddens=[8]",
            "stop_conditions.training_iteration=1",
            plain=True,
        )
    return here


def test_view_writes_a_gif_into_the_run_and_says_where(trained):
    done = rayfish("view", "last", cwd=trained)
    (gif,) = trained.glob("runs/fire/*/view.gif")
    assert gif.read_bytes().startswith(b"GIF8")
    assert str(gif) in done.stdout
    assert "12 steps" in done.stdout
    assert "saved_share" in done.stdout


def test_the_mode_view_shows_the_checkpoint_that_is_named(trained):
    (run,) = trained.glob("runs/fire/2*")
    words = ("algo.checkpoint_path=" + str(run), "environment.env_config.max_steps=5", "--out", "mode.gif")
    assert "5 steps" in rayfish("cli.mode=view", *words, cwd=trained).stdout
    assert (trained / "mode.gif").read_bytes().startswith(b"GIF8")


def test_the_help_of_view_says_that_it_writes_a_gif(tmp_path):
    assert "GIF" in rayfish("view", "--help", cwd=tmp_path).stdout


def test_the_agent_stands_beside_all_baselines(trained):
    out = trained / "found.json"
    done = rayfish("evaluate", "last", "--baselines", "--episodes", "4", "--out", str(out), cwd=trained)
    for name in ("agent", "nothing", "random", "line_ahead", "encircle", "difference"):
        assert name in done.stdout
    assert list(json.loads(out.read_text())["baselines"]) == ["nothing", "random", "line_ahead", "encircle"]


def test_a_misspelt_baseline_is_one_message(trained):
    done = rayfish("evaluate", "last", "--baselines", "encirle", cwd=trained, ok=False)
    assert done.returncode == 1
    assert "did you mean encircle?" in done.stderr


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["evaluate", "last", "--baselines"], ["evaluate", "last", "--baselines=all"]),
        (["evaluate", "last", "--baselines", "--seed", "1"], ["--baselines=all", "--seed", "1"]),
        (["evaluate", "last", "--baselines", "a.b=1"], ["--baselines=all", "a.b=1"]),
        (["evaluate", "last", "--baselines", "random"], ["--baselines", "random"]),
    ],
)
def test_baselines_without_names_are_all(words, read):
    assert with_baselines(words)[-len(read) :] == read
