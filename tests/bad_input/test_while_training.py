"""Faults that strike while a run trains end in one message, a final status and good checkpoints."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest

from rayfish.run.checkpoint import read_header, require_whole
from tests.bad_input.faults import (
    CALLBACKS,
    MODEL,
    REMOTE,
    Fault,
    kill,
    remove_folder,
    run,
    steady,
    train,
)
from tests.bad_input.harness import Case, slug, text_of
from tests.helpers import info_of, only_run, small_disk

pytestmark = pytest.mark.slow

HANG = "fault_tolerance.env_timeout_s=2"
LIMIT = "fault_tolerance.max_num_env_runner_restarts"
ANEW = "fault_tolerance.restart_failed_sub_environments=true"
FAULTS = [
    Fault("env raises", train("breaks"), "the motor is hot (world.py:29 in breaks, in step", here=True),
    Fault("env returns nan", train("not_a_number"), "observation[0] is NaN"),
    Fault("env returns another shape", train("grows"), "observation has shape (3,)", here=True),
    Fault("env pays an infinite reward", train("pays_too_much"), "the reward is inf", here=True),
    Fault("env hangs", train("hangs", HANG), "(at world.py:42 in hangs"),
    Fault("env hangs in c code", train("hangs_in_c", HANG), "(at world.py:47 in hangs_in_c"),
    Fault("env runs out of memory", train("takes_all_memory"), "MemoryError"),
    Fault(
        "env raises on its runner up to the limit",
        train("breaks", f"{REMOTE} {LIMIT}=1"),
        "no runner is left",
    ),
    Fault(
        "env never fills a rollout on its runner",
        train("breaks", f"{REMOTE} environment.env_config.after=30"),
        "runners died 3 times in a row",
        kept=False,
    ),
    Fault(
        "env fails again whenever it is remade",
        train("breaks", f"environment.env_config.after=5 {ANEW}"),
        "was remade 10 times in a row and failed again within 10 steps each time",
        kept=False,
        here=True,
    ),
    Fault(
        "evaluation env raises",
        train("", "evaluation.evaluation_interval=3 evaluation.evaluation_duration=2 "
              "evaluation.evaluation_config.env_config.fault=breaks "
              "evaluation.evaluation_config.env_config.after=15"),
        "the motor is hot",
        here=True,
    ),
    Fault(
        "callback raises",
        train("", "callbacks.callbacks_class=mine:Breaks"),
        "KeyError: 'colour' (mine.py:9 in on_train_result)",
        files={"mine.py": CALLBACKS},
        here=True,
    ),
    Fault(
        "callback hangs",
        train("", "callbacks.callbacks_class=mine:Hangs fault_tolerance.no_progress_timeout_s=4"),
        "no environment step and no update was made for 4 s (the main process is at",
        files={"mine.py": CALLBACKS},
    ),
    Fault(
        "model raises",
        train("", "training.model.custom_model=model:Breaks"),
        "the cable is loose (model.py:13 in forward)",
        files={"model.py": MODEL},
        here=True,
    ),
    Fault(
        "learning rate becomes far too high",
        train("", "training.lr=[[0,1e-3],[400,1e-3],[401,1e30]]"),
        "learning broke down",
        here=True,
    ),
    Fault("run folder is removed", train(""), "was removed", strike=remove_folder, kept=False),
    Fault("head of ray is killed", train(""), "Ray's head (gcs_server", strike=kill("gcs_server")),
    Fault("node manager of ray is killed", train(""), "Ray's node manager", strike=kill("raylet")),
    Fault(
        "learner is killed more often than allowed",
        train("", "learners.num_learners=1 --ray-num-cpus 3 fault_tolerance.max_learner_restarts=0"),
        "the learner died",
        strike=kill("_WrappedExecutable"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: slug(fault.name))
def test_the_message_when(fault, tmp_path, snapshot, monkeypatch, ray_session):
    check(fault, tmp_path, snapshot, monkeypatch)


def check(fault, folder, snapshot, monkeypatch):
    seen = run(fault, folder, monkeypatch)
    text = seen.stdout + seen.stderr
    assert seen.code == 1, text
    assert fault.said in seen.stderr, text
    assert "Traceback" not in text
    assert "next step:" in seen.stderr
    if fault.kept:
        place = only_run(folder)
        assert info_of(place)["status"] == "failed"
        assert fault.said in info_of(place)["reason"]
        last = place / "checkpoints" / "last"
        require_whole(last.resolve(), read_header(last))
    steadied = replace(seen, stdout=steady(seen.stdout), stderr=steady(seen.stderr))
    assert text_of(Case(fault.name, fault.line), steadied, folder) == snapshot


def test_the_message_when_ray_ends_a_runner_for_its_memory(tmp_path, snapshot, monkeypatch):
    memory = psutil.virtual_memory()
    threshold = (memory.total - memory.available + 4.5e9) / memory.total
    if threshold > 0.9:
        pytest.skip("too little memory is free here")
    fault = Fault(
        "runner takes too much memory",
        train("hoards", f"{REMOTE} {LIMIT}=0 environment.env_config.after=150"),
        "the machine ran low on memory, and Ray ended it",
        environment={
            "RAY_memory_usage_threshold": f"{threshold:.3f}", "RAY_memory_monitor_refresh_ms": "100",
        },
    )  # fmt: skip
    check(fault, tmp_path, snapshot, monkeypatch)


def test_the_message_when_the_disk_fills_up(tmp_path, snapshot, monkeypatch):
    with small_disk(tmp_path / "runs", "1m"):
        check(Fault("disk fills up", train(""), "No space left on device"), tmp_path, snapshot, monkeypatch)
