"""A sweep on a cluster of two nodes: a node dies, the driver dies, and nothing finished is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from rayfish.sweep.records import DONE, fold
from tests.helpers import events_of, start_tune, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.alone]

CLUSTER = """
import sys, time
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=2)
cluster.wait_for_nodes()
print("ADDRESS", cluster.address, flush=True)
for line in sys.stdin:
    if line.strip() == "kill":
        cluster.remove_node(second, allow_graceful=False)
        print("KILLED", flush=True)
    else:
        break
cluster.shutdown()
"""
FUNCTION = """
import time
from rayfish import sweep

def train(config):
    for step in range(8):
        time.sleep(0.4)
        sweep.report(score=config["x"] * step)
"""


@pytest.fixture
def cluster():
    """Real GCS and raylets, in a process of their own: their address, and how to kill the second node.

    Ray calls a machine dead after some 15 s; calls to it fail before.
    """
    env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**env, "RAY_TMPDIR": "/tmp/rf-cluster"},
    )
    lines = iter(process.stdout.readline, "")
    address = next(line.split()[1] for line in lines if line.startswith("ADDRESS"))

    def kill_second_node() -> None:
        process.stdin.write("kill\n")
        process.stdin.flush()
        assert any(line.startswith("KILLED") for line in lines)

    yield address, kill_second_node
    process.stdin.write("end\n")
    process.stdin.flush()
    process.wait(30)


def test_a_sweep_survives_the_death_of_a_node_and_then_of_its_driver(cluster, tmp_path):
    address, kill_second_node = cluster
    (tmp_path / "mine.py").write_text(FUNCTION)
    words = ("--on", address, "--function", "mine.py:train", "x=uniform(0,1)", "search.num_samples=10")
    process = start_tune(tmp_path, *words, RAY_AUTH_MODE="disabled")
    wait_for(tmp_path, process, "end", 2)
    wait_for(tmp_path, process, "report", 20)
    kill_second_node()
    wait_for(tmp_path, process, "lost", 1)
    wait_for(tmp_path, process, "end", 5)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = events_of(tmp_path)
    assert not [e for e in before if e["event"] == "lost" and e["failures"]], before
    done = start_tune(tmp_path, "--on", address, "--resume", "last", RAY_AUTH_MODE="disabled")
    out, _ = done.communicate(timeout=240)
    assert done.returncode == 0, out
    trials = fold(events_of(tmp_path))
    assert len(trials) == 10
    assert all(t.state == DONE for t in trials.values()), [t.error for t in trials.values()]
    finished = {e["trial"] for e in before if e["event"] == "end"}
    again = {e["trial"] for e in events_of(tmp_path)[len(before) :] if e["event"] == "start"}
    assert not finished & again
