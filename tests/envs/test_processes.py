"""Environments in processes of their own: what they say, how their faults are told, how they end."""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
import sys
import time

import gymnasium as gym
import numpy as np
import psutil
import pytest

from rayfish.envs.processes import in_processes
from rayfish.envs.spec import EnvSpec
from rayfish.errors import EnvironmentFault
from rayfish.supervise.error_messages import explain
from rayfish.supervise.watchdog import Patience

WORLD = """
import logging, os, time
import gymnasium as gym
import gymnasium as gym
import numpy as np

class World(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.fault, self.index = config.get("fault", ""), config.worker_index
        if self.fault == "unmade" and os.getpid() != config["maker"]:
            raise ValueError("no licence left")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.full(2, self.np_random.random(), np.float32), {}

    def step(self, action):
        self.t += 1
        if self.t == 3 and self.fault:
            getattr(self, self.fault, lambda: None)()
        seen = np.full(2, np.nan if self.fault == "not_a_number" and self.t == 3 else 0.5, np.float32)
        return seen, float(self.index), self.t >= 5, False, {}

    def breaks(self):
        raise ValueError("the motor is hot")

    def no_file(self):
        open("/nowhere/at/all")

    def dies(self):
        os.kill(os.getpid(), 9)

    def hangs(self):
        time.sleep(100)

    def speaks(self):
        print("here I am")
        logging.getLogger("world").warning("mind the gap")
"""


@pytest.fixture
def make(workdir):
    """Makes two `World`s with a fault; they are closed at the end."""
    file = workdir / f"world_{secrets.token_hex(4)}.py"  # a module of that name is imported once
    file.write_text(WORLD)
    made = []

    def make(fault="", seconds=30.0):
        spec = EnvSpec(f"{file.name}:World", paths=(str(workdir),))
        config = {"fault": fault, "maker": os.getpid()}
        made.append(in_processes(spec, config, 2, Patience(seconds, seconds)))
        return made[-1]

    yield make
    for vector in made:
        vector.close()


def stepped(vector, steps=4):
    vector.reset(seed=1)
    for _ in range(steps):
        vector.step(np.zeros(2, int))


def test_episodes_restart_in_the_step_that_ends_them_with_seeds_of_their_own(make):
    vector = make()
    first, _ = vector.reset(seed=1)
    assert first[0, 0] != first[1, 0]
    *_, (obs, _, over, _, infos) = [vector.step(np.zeros(2, int)) for _ in range(5)]
    assert over.all()
    assert [last[0] for last in infos["final_obs"]] == [0.5, 0.5]
    assert not (obs == 0.5).any()


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ("breaks", ValueError, "ValueError: the motor is hot (world_"),
        ("no_file", FileNotFoundError, "No such file or directory: '/nowhere/at/all' (world_"),
        ("not_a_number", EnvironmentFault, "observation[0] is NaN"),
    ],
)
def test_a_fault_is_raised_as_if_it_had_happened_here(make, fault, kind, said):
    vector = make(fault)
    with pytest.raises(kind) as caught:
        stepped(vector)
    reason = explain(caught.value, "world.py:World")
    assert said in reason.what
    assert "in step 3 of the episode" in reason.what
    assert "fix" in reason.hint and "world_" in reason.hint


def test_an_environment_that_cannot_be_made_in_its_process_says_why(make):
    with pytest.raises(EnvironmentFault, match="no licence left"):
        make("unmade")


def test_a_process_that_is_killed_is_named(make):
    with pytest.raises(
        EnvironmentFault, match=r"the process of environment 0 \(\d+\) was killed \(SIGKILL\)"
    ):
        stepped(make("dies"))


def test_a_call_that_hangs_ends_the_process_and_says_where_it_stands(make):
    with pytest.raises(EnvironmentFault, match=r"World.step\(\) has been running for .* \(at world_"):
        stepped(make("hangs", 0.5))


def test_what_is_printed_and_logged_there_reaches_this_process(make, capsys, caplog):
    vector = make("speaks")
    with caplog.at_level(logging.INFO):
        stepped(vector)
        vector.close()
        until, out = time.monotonic() + 5, ""
        while ("here I am" not in out or "mind the gap" not in caplog.text) and time.monotonic() < until:
            time.sleep(0.02)
            out += capsys.readouterr().out
    assert out.count("here I am") == 2
    assert caplog.messages.count("mind the gap") == 2


def test_closing_ends_every_process_also_in_the_midst_of_a_step(make):
    vector = make("hangs")
    vector.reset(seed=1)
    for _ in range(2):
        vector.step(np.zeros(2, int))
    vector.step_async(np.zeros(2, int))
    processes = [process.pid for process in vector.processes]
    vector.close(terminate=True)
    assert not any(psutil.pid_exists(pid) for pid in processes)


SCRIPT = """
import os, sys
sys.path.insert(0, ".")
print("begun", flush=True)
import world
import gymnasium as gym
import numpy as np
from rayfish.envs.processes import in_processes
from rayfish.supervise.watchdog import Patience
from rayfish.envs.spec import EnvSpec
vector = in_processes(EnvSpec("World", object=world.World), {"fault": "hangs"}, 2, Patience())
vector.reset(seed=1)
print(*[process.pid for process in vector.processes], flush=True)
vector.step(np.zeros(2, int)); vector.step(np.zeros(2, int)); vector.step(np.zeros(2, int))
"""


def test_a_script_without_a_guard_runs_once_and_leaves_no_process_when_it_is_killed(workdir):
    (workdir / "world.py").write_text(WORLD)
    (workdir / "script.py").write_text(SCRIPT)
    script = subprocess.Popen([sys.executable, "script.py"], stdout=subprocess.PIPE, text=True)
    assert script.stdout.readline() == "begun\n"
    processes = [int(word) for word in script.stdout.readline().split()]
    assert len(processes) == 2  # not "begun" again
    time.sleep(0.5)  # both now sleep in a step, which takes 100 s
    script.kill()
    script.wait()
    until = time.monotonic() + 15
    while any(psutil.pid_exists(pid) for pid in processes) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(psutil.pid_exists(pid) for pid in processes)


def test_a_name_registered_with_ray_is_made_in_processes_that_know_nothing_of_ray(workdir):
    from ray.tune import register_env

    register_env("processes-cartpole", lambda config: gym.make("CartPole-v1"))
    vector = in_processes(EnvSpec("processes-cartpole"), {}, 2, Patience())
    assert vector.reset(seed=1)[0].shape == (2, 4)
    vector.close()
