"""The table of RLlib's settings: shipped, complete, and true to the installed Ray."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rayfish.algorithm import signatures
from rayfish.algorithm.unused_keys import DEAD_KEYS
from rayfish.experiment.sections import ALGORITHMS, METHODS


def test_shipped_table_is_that_of_the_installed_ray(tmp_path):
    """Made in a process of its own, as for another Ray."""
    made = tmp_path / "signatures.json"
    signatures._make(made)
    assert json.loads(made.read_text()) == json.loads(signatures.SHIPPED_TABLE.read_text()), (
        "run python -m rayfish.algorithm.signatures"
    )


def test_table_covers_every_section_and_algorithm():
    table = signatures.table()
    assert set(table["sections"]) == set(METHODS) - {"training"}
    assert set(table["algorithms"]) == set(ALGORITHMS)


@pytest.mark.parametrize(
    ("section", "algo", "key", "type_", "default"),
    [
        ("training", "PPO", "clip_param", "float | null", 0.3),
        ("training", "PPO", "lr", "float | list | null", 5e-5),
        ("training", "CQL", "tau", "float | null", 0.005),
        ("training", "DQN", "n_step", "int | list | null", 1),
        ("rollouts", "PPO", "rollout_fragment_length", "int | str | null", "auto"),
        ("rollouts", "APPO", "num_env_runners", "int | null", 2),
        ("callbacks", "PPO", "on_episode_end", "path | list | null", None),
    ],
)
def test_keys_have_type_default_and_meaning(section, algo, key, type_, default):
    entry = signatures.entries(section, algo)[key]
    assert entry["type"] == type_
    assert signatures.default_of(section, key, algo) == default
    assert entry["doc"]


def test_entries_leave_deprecated_and_private_ones_out():
    assert "num_rollout_workers" not in signatures.entries("rollouts", "PPO")
    assert "_fake_gpus" not in signatures.entries("resources", "PPO")
    assert "num_env_runners" in signatures.entries("rollouts", "PPO")
    assert "learner_class" not in signatures.entries("training", "PPO")
    assert "learner_class" in signatures.entries("learners", "PPO")
    assert signatures.entries("nowhere", "PPO") == {}


def test_every_dead_key_is_one_that_rllib_accepts():
    for dotted in DEAD_KEYS:
        section, _, key = dotted.partition(".")
        assert key in signatures.entries(section), dotted


def test_another_ray_gets_a_table_of_its_own_once(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(signatures, "_ray_version", lambda: "9.9.9")
    monkeypatch.setattr(signatures, "_cache_folder", lambda: tmp_path)

    def make(target):
        made.append(target)
        target.write_text(json.dumps({"ray": "9.9.9"}))

    monkeypatch.setattr(signatures, "_make", make)
    signatures.table.cache_clear()
    try:
        assert signatures.table() == {"ray": "9.9.9"}
        signatures.table.cache_clear()
        assert signatures.table() == {"ray": "9.9.9"}
        assert len(made) == 1
    finally:
        monkeypatch.undo()
        signatures.table.cache_clear()


def test_checking_imports_neither_ray_nor_torch():
    code = (
        "import sys; from rayfish import Experiment; from rayfish.algorithm import signatures;"
        "assert signatures.problems(Experiment.compose('cartpole')) == [];"
        "print([m for m in ('ray', 'torch', 'numpy', 'gymnasium') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
