"""The doctor finds what is wrong and says how to fix it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from rayfish.algorithm import signatures
from rayfish.run import doctor


def test_every_topic_is_looked_at_and_every_warning_has_a_fix(workdir, monkeypatch):
    """On a machine with little memory, a full disk and no authentication."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1e9, total=4e9))
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=1e8, total=1e11, used=1e11))
    found = list(doctor.checks(start_ray=False))
    topics = {check.topic for check in found}
    assert {"python", "packages", "cores", "memory", "gpu", "display", "threads", "disk", "tokens"} <= topics
    warned = [check for check in found if check.level != doctor.OK]
    assert {"memory", "shared memory", "disk", "tokens"} <= {check.topic for check in warned}
    assert all(check.fix for check in warned)
    assert all(check.what for check in found)


def test_a_token_others_can_read_is_a_warning(tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o644)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    check = doctor.token()
    assert (check.level, check.fix) == (doctor.WARN, f"chmod 600 {token}")
    assert "secret" not in check.what
    token.chmod(0o600)
    assert doctor.token().level == doctor.OK


def test_authentication_switched_off_is_a_warning(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert doctor.token().level == doctor.WARN


def test_more_threads_than_cores_is_a_warning(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "100000")
    check = doctor.threads()
    assert (check.level, check.fix) == (doctor.WARN, "unset OMP_NUM_THREADS")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert doctor.threads().level == doctor.OK


def test_a_temp_folder_too_long_for_sockets_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 100)))
    assert doctor.temp_dir().level == doctor.FAIL


def test_a_ray_of_another_version_fails(monkeypatch):
    versions = doctor.provenance.versions()
    monkeypatch.setattr(doctor.provenance, "versions", lambda: versions | {"ray": "2.9.0"})
    check = doctor.packages()
    assert check.level == doctor.FAIL
    assert "2.9.0" in check.what


@pytest.mark.parametrize(
    ("probe", "level", "words"),
    [
        ("", doctor.OK, "starts, runs a task"),
        ("raise SystemExit('no route to localhost')", doctor.FAIL, "no route to localhost"),
        ("import time; time.sleep(60)", doctor.FAIL, "did not start within"),
    ],
)
def test_a_ray_that_fails_or_hangs_is_reported(monkeypatch, probe, level, words):
    monkeypatch.setattr(doctor, "_RAY_PROBE", probe)
    monkeypatch.setattr(doctor, "_RAY_TIMEOUT_S", 1)
    check = doctor.ray_starts()
    assert check.level == level
    assert words in check.what


def test_modules_in_the_current_folder_are_not_run(monkeypatch, workdir):
    for name in ("ray", "yaml", "numpy", "psutil", "rayfish"):
        Path(f"{name}.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    assert doctor.ray_starts().level == doctor.OK
    signatures._make(workdir / "table.json")
    assert not Path("ran").exists()


def test_the_command_prints_findings_and_fails_when_something_must_be_fixed(monkeypatch, workdir):
    from typer import Typer

    from rayfish.cli.doctor import doctor as command

    app = Typer()
    app.command()(command)
    fine = CliRunner().invoke(app, ["--no-ray"])
    assert fine.exit_code == 0, fine.output
    assert "memory" in fine.output
    monkeypatch.setenv("RAY_TMPDIR", "/nowhere/" + "x" * 100)
    broken = CliRunner().invoke(app, ["--no-ray"])
    assert broken.exit_code == 1
    assert "to fix" in broken.output
