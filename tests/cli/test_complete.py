"""Tab completion of presets, keys and values."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rayfish.cli.complete import complete_runs, complete_sections, complete_sweeps, complete_words
from tests.helpers import RAYFISH


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
        ("training.use_critic=", "training.use_critic=false"),
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
        "import sys; from rayfish.cli.complete import complete_runs, complete_words as c;"
        "c(''); c('training.'); c('algo.name='); complete_runs('');"
        "print([m for m in ('ray', 'torch', 'numpy', 'hydra', 'omegaconf', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def runs(workdir):
    """Two runs of one name and a sweep, in files alone; the last one is damaged."""
    about = {
        "cartpole/20260101-000000-aaa111/run.json": '{"algo": "PPO", "env": "CartPole-v1", "status": "done"}',
        "cartpole/20260102-000000-bbb222/run.json": '{"algo": "DQN", "env": "CartPole-v1", "status": "lost"}',
        "tuned/20260103-000000-ccc333/sweep.json": '{"title": "tuned \\u001b[2J", "status": "done"}',
        "other/20260104-000000-ddd444/run.json": "{",
    }
    for name, text in about.items():
        (workdir / "runs" / name).parent.mkdir(parents=True)
        (workdir / "runs" / name).write_text(text)
    return workdir


def test_runs_and_sweeps_by_name_and_id(runs):
    assert complete_runs("") == [
        ("last", "the newest"),
        ("other", "damaged"),
        ("tuned", "tuned , done"),
        ("cartpole", "DQN on CartPole-v1, lost"),
    ]
    assert complete_runs("aa") == [("aaa111", "PPO on CartPole-v1, done")]
    assert [word for word, _ in complete_runs("c")] == ["cartpole", "ccc333"]
    assert [word for word, _ in complete_sweeps("")] == ["last", "tuned"]
    assert complete_runs("runs/") == []


def test_runs_of_the_named_folder(runs, monkeypatch):
    (runs / "runs").rename(runs / "kept")
    assert complete_runs("") == []
    monkeypatch.setenv("COMP_WORDS", "rayfish\nruns\nshow\n--local-dir\nkept\nca")
    assert [word for word, _ in complete_runs("ca")] == ["cartpole"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rayfish evaluate ca", ["cartpole"]),
        ("rayfish view tu", ["tuned"]),
        ("rayfish rollout bb", ["bbb222"]),
        ("rayfish runs show ca", ["cartpole"]),
        ("rayfish runs rm cartpole tu", ["tuned"]),
        ("rayfish train --resume ca", ["cartpole"]),
        ("rayfish tune --resume t", ["tuned"]),
    ],
)
def test_the_shell_is_offered_runs_where_a_verb_takes_one(runs, line, expected):
    words = line.split()
    script = f"""
        eval "$(env _RAYFISH_COMPLETE=source_bash {RAYFISH})"
        COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}
        _rayfish_completion {RAYFISH}
        echo "${{COMPREPLY[*]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, cwd=runs)
    assert done.stdout.split() == expected
