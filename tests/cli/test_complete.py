"""Tab completion of presets, keys and values."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rayfish.cli.complete import complete_sections, complete_words


@pytest.fixture(autouse=True)
def no_shell(monkeypatch):
    for name in ("COMP_WORDS", "COMP_CWORD", "_TYPER_COMPLETE_ARGS"):
        monkeypatch.delenv(name, raising=False)


def words(incomplete):
    return [word for word, _ in complete_words(incomplete)]


def test_presets_come_with_what_they_are():
    assert (
        "cartpole-dqn",
        "DQN solves CartPole-v1: a mean return of 475 after about 80,000 steps,",
    ) in complete_words("cart")
    assert "pendulum" in words("")


def test_sections_then_keys():
    assert set(words("tra")) == {"trackers.", "training."}
    assert "training.lr=" in words("training.l")
    assert "training.clip_param=" in words("training.clip")
    assert "training.model.fcnet_hiddens=" in words("training.model.fc")


def test_one_section_left_goes_on_to_its_keys():
    assert "rollouts.horizon=" in words("roll")


def test_key_is_offered_twice_so_that_no_space_follows():
    assert words("rollouts.num_env_r") == ["rollouts.num_env_runners=", "rollouts.num_env_runners=0"]


@pytest.mark.parametrize(
    ("incomplete", "expected"),
    [
        ("algo.name=", "algo.name=PPO"),
        ("rollouts.runner=", "rollouts.runner=batched"),
        ("training.use_gae=", "training.use_gae=false"),
        ("training/model=", "training/model=lstm"),
        ("experiment=", "experiment=pendulum"),
        ("training.clip_param=", "training.clip_param=0.3"),
    ],
)
def test_values(incomplete, expected):
    assert expected in words(incomplete)


def test_bash_hands_over_words_split_at_the_equals_sign(monkeypatch):
    monkeypatch.setenv("COMP_WORDS", "rayfish\ntrain\nalgo.name\n=\nP")
    monkeypatch.setenv("COMP_CWORD", "4")
    assert words("P") == ["PPO"]
    monkeypatch.setenv("COMP_WORDS", "rayfish\ntrain\nalgo.name\n=")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert "DQN" in words("=")


def test_presets_of_the_named_config_folder(tmp_path, monkeypatch):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\n# My task.\n")
    monkeypatch.setenv("COMP_WORDS", f"rayfish\ntrain\n--config-dir\n{tmp_path}\nmi")
    monkeypatch.setenv("COMP_CWORD", "4")
    assert complete_words("mi") == [("mine", "My task.")]


def test_nonsense_completes_to_nothing():
    assert words("zzz") == []
    assert words("zzz.a") == []
    assert words("zzz.a=") == []


def test_sections_for_config_keys():
    assert ("training.model", "The network.") in complete_sections("training")


def test_completion_imports_nothing_heavy():
    code = (
        "import sys; from rayfish.cli.complete import complete_words as c;"
        "c(''); c('training.'); c('algo.name=');"
        "print([m for m in ('ray', 'torch', 'numpy', 'hydra', 'omegaconf', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
