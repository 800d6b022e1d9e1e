"""Ray's token is made for its user alone, also where there is no home to keep it in."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rayfish.run.engine import join_with_token, make_token


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that it is put back, whatever `make` does
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_token_can_be_read_by_its_user_alone(home):
    make_token()
    file = home / ".ray" / "auth_token"
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    assert len(file.read_text()) == 64
    assert [path.name for path in file.parent.iterdir()] == ["auth_token"]


def test_a_token_that_others_could_read_is_kept_and_closed_to_them(home):
    file = home / ".ray" / "auth_token"
    file.parent.mkdir(mode=0o755)
    file.write_text("kept")
    file.chmod(0o644)
    make_token()
    assert (file.read_text(), mode(file), mode(file.parent)) == ("kept", 0o600, 0o700)


def test_a_token_named_by_its_path_is_left_as_it_is(home, monkeypatch):
    file = home / "secret"
    file.write_text("kept")
    file.chmod(0o440)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    make_token()
    assert (file.read_text(), mode(file)) == ("kept", 0o440)


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null"])
def test_without_a_home_to_write_to_the_token_is_kept_elsewhere(home, monkeypatch, place):
    monkeypatch.setenv("HOME", place)
    make_token()
    file = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    make_token()
    assert Path(os.environ["RAY_AUTH_TOKEN_PATH"]) == file


@pytest.mark.parametrize("given", [{"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_TOKEN": "x"}])
def test_no_token_is_made_where_none_is_needed(home, monkeypatch, given):
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    make_token()
    assert not list(home.iterdir())


def test_a_cluster_is_shown_the_token_that_is_there(home):
    join_with_token()
    assert "RAY_AUTH_MODE" not in os.environ
    make_token()
    join_with_token()
    assert os.environ["RAY_AUTH_MODE"] == "token"
