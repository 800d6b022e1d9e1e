"""The signing key and the seals made with it."""

from __future__ import annotations

import json
import stat
import subprocess
import sys

import pytest

from rayfish.errors import RayfishError
from rayfish.run import signing

OTHER = "0d" * 32


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No key that another process handed over or that this one made for itself."""
    monkeypatch.setattr(signing, "_handed_over", None)
    monkeypatch.setattr(signing, "_for_now", [])


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user without a key."""
    for name in (signing.VARIABLE, signing.FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def test_processes_that_start_at_once_agree_on_one_key_that_only_the_user_can_read(home):
    script = "from rayfish.run import signing; print(signing.key(make=True).hex())"
    started = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    keys = {process.communicate(timeout=60)[0].strip() for process in started}
    file = home / "config/rayfish/signing.key"
    assert keys == {file.read_text().strip()}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["signing.key"]


def test_reading_makes_no_key(home):
    assert signing.key() is None
    assert not (home / "config").exists()


def test_the_variables_come_before_the_file(home, monkeypatch):
    (home / "secret").write_text(f"{OTHER}\n")
    monkeypatch.setenv(signing.FILE_VARIABLE, "~/secret")
    assert signing.key() == bytes.fromhex(OTHER)
    monkeypatch.setenv(signing.VARIABLE, "ab" * 32)
    assert signing.key() == b"\xab" * 32
    assert signing.child_environment() == {}


@pytest.mark.parametrize("text", ["", "passw0rd", "zz" * 32, "ab" * 31])
def test_a_key_that_is_none_is_said_without_being_shown(home, monkeypatch, text):
    (home / "secret").write_text(text)
    monkeypatch.setenv(signing.FILE_VARIABLE, str(home / "secret"))
    with pytest.raises(RayfishError, match="64 hex digits") as caught:
        signing.key()
    assert not text or text not in str(caught.value)


def test_a_key_file_that_is_not_there_is_an_error(home, monkeypatch):
    monkeypatch.setenv(signing.FILE_VARIABLE, str(home / "no-such-mount"))
    with pytest.raises(RayfishError, match=r"no-such-mount .* cannot be read: No such file"):
        signing.key(make=True)


def test_without_a_place_for_a_key_a_run_is_signed_for_its_own_processes(home, monkeypatch):
    (home / "config").write_text("a file where the folder should be")
    assert "signed for this process only" in signing.note()
    assert not signing.is_lasting()
    data = json.loads(signing.sealed_json("x.json", {"a": 1}))
    assert signing.json_is_own("x.json", data)
    handed = signing.hand_over()
    monkeypatch.setattr(signing, "_handed_over", None)  # a later process
    assert not signing.json_is_own("x.json", data)
    signing.use(handed)  # a worker
    assert signing.json_is_own("x.json", data)


def test_a_seal_is_of_one_content_one_file_and_one_user(monkeypatch):
    data = json.loads(signing.sealed_json("x.json", {"a": (1, 2.5), 3: None}))
    assert signing.json_is_own("x.json", data)
    for changed in ({**data, "a": [1, 2]}, {**data, "seal": {**data["seal"], "hmac": "0" * 64}}):
        with pytest.raises(signing.SealBroken):
            signing.json_is_own("x.json", changed)
    with pytest.raises(signing.SealBroken):
        signing.json_is_own("y.json", data)
    monkeypatch.setenv(signing.VARIABLE, OTHER)
    assert not signing.json_is_own("x.json", data)


def test_a_text_keeps_its_seal_in_a_comment():
    text = signing.sealed_text("config.yaml", "algo: {name: PPO}\n")
    assert text.startswith("algo: {name: PPO}\n# seal: ")
    assert signing.text_is_own("config.yaml", text)
    assert signing.sealed_text("config.yaml", text) == text
    assert not signing.text_is_own("config.yaml", text.replace("PPO", "DQN"))
    assert not signing.text_is_own("config.yaml", "algo: {name: PPO}\n")


def test_a_process_on_another_machine_signs_with_the_key_it_was_handed(home, monkeypatch):
    signing.use(OTHER)
    assert signing.key() == bytes.fromhex(OTHER)
    assert signing.child_environment() == {signing.VARIABLE: OTHER}
