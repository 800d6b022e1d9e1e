"""`rayfish env list` and `rayfish env check` as people see them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rayfish.cli.env import app
from rayfish.errors import RayfishError
from tests.envs.user_code import GOOD

runner = CliRunner(env={"COLUMNS": "100"})


def test_check_of_a_file_passes_its_config_and_says_how_to_train(folder, monkeypatch):
    folder.write("grid.py", GOOD)
    monkeypatch.chdir(folder.path)
    result = runner.invoke(app, ["check", "grid.py:GridEnv", "size=5"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "Box(5,)" in result.output
    assert "rayfish train algo.name=PPO environment.env=grid.py:GridEnv" in result.output
    assert "environment.env_config.size=5" in result.output


def test_check_of_a_broken_environment_exits_with_one_and_the_remedy(folder, monkeypatch):
    folder.write("grid.py", GOOD)
    folder.write(
        "old.py", "from grid import GridEnv\nclass Old(GridEnv):\n    def step(self, a): return 1, 2, {}\n"
    )
    monkeypatch.chdir(folder.path)
    result = runner.invoke(app, ["check", "old.py:Old"], catch_exceptions=False)
    assert result.exit_code == 1
    assert "3 values instead of five" in result.output
    assert "1 error to fix" in result.output


def test_check_takes_nested_values_and_refuses_other_words(folder, monkeypatch):
    folder.write(
        "nested.py", GOOD + "\ndef nested(env_config):\n    return GridEnv(env_config['map']['size'])\n"
    )
    monkeypatch.chdir(folder.path)
    result = runner.invoke(
        app, ["check", "nested.py:nested", "env_config.map.size=2"], catch_exceptions=False
    )
    assert "Box(2,)" in result.output
    with pytest.raises(RayfishError, match="is not KEY=VALUE"):
        runner.invoke(app, ["check", "CartPole-v1", "size"], catch_exceptions=False)


def test_an_unknown_environment_reaches_the_command_line_as_an_error_with_its_next_step():
    with pytest.raises(RayfishError, match="did you mean CartPole-v1"):
        runner.invoke(app, ["check", "CartPol-v1"], catch_exceptions=False)


def test_list_shows_the_newest_versions_and_what_to_install():
    output = runner.invoke(app, ["list"], catch_exceptions=False).output
    assert "CartPole-v1" in output
    assert "CartPole-v0" not in output.replace("phys2d/CartPole-v0", "")
    assert "HalfCheetah-v5" in output and "HalfCheetah-v4" not in output
    assert "CartPole-v1" not in runner.invoke(app, ["list", "lunar"], catch_exceptions=False).output


def test_the_command_module_imports_no_heavy_package():
    code = (
        "import sys, rayfish.cli.env; print([m for m in ('numpy', 'gymnasium', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
