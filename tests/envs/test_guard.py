"""The guard around an environment names what is wrong with it, and stays out of the way otherwise."""

from __future__ import annotations

import logging
import pickle
import threading
import time

import gymnasium as gym
import numpy as np
import pytest

from rayfish.envs.guard import close, guarded
from rayfish.errors import EnvironmentFault
from rayfish.supervise import watchdog

BOX = gym.spaces.Box(-1, 1, (2,), np.float32)


class Told(gym.Env):
    """An environment that returns what it is told to."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, space, observation, reward=0.0):
        self.observation_space, self.observation, self.reward = space, observation, reward

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation, self.reward, False, False, {}


DICT = gym.spaces.Dict({"place": BOX, "mask": gym.spaces.MultiBinary(3)})
GOOD = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("space", "observation", "reward"),
    [
        (BOX, GOOD, 1.0),
        (BOX, [0.0, 1.0], np.float32(1)),
        (BOX, np.full(2, 1e30, np.float32), 1),
        (gym.spaces.Discrete(4, start=2), np.int64(5), 0.5),
        (DICT, {"mask": np.ones(3, np.int8), "place": GOOD}, 0.0),
        (gym.spaces.Tuple([BOX, BOX]), (GOOD, GOOD), 0.0),
        (gym.spaces.Box(0, 255, (4, 4, 3), np.uint8), np.zeros((4, 4, 3), np.uint8), 0.0),
    ],
)
def test_what_is_right_passes(space, observation, reward):
    env = guarded(Told(space, observation, reward), "told")
    env.reset()
    assert env.step(0)[0] is observation


@pytest.mark.parametrize(
    ("space", "observation", "reward", "message"),
    [
        (BOX, np.array([0, np.nan], np.float32), 0.0, r"observation\[1\] is NaN"),
        (BOX, np.zeros((2, 1)), 0.0, r"observation has shape \(2, 1\), its space \(2,\)"),
        (BOX, [0.0, [1.0]], 0.0, "observation is a list, its space wants a NumPy array"),
        (BOX, np.array(["a", "b"]), 0.0, "observation has dtype <U1"),
        (BOX, GOOD, float("nan"), "the reward is nan"),
        (BOX, GOOD, None, "the reward is None"),
        (BOX, GOOD, np.zeros(3), r"the reward is array\(\[0., 0., 0.\]\)"),
        (gym.spaces.Discrete(4), 4, 0.0, "observation is 4, outside 0..3"),
        (DICT, {"place": GOOD}, 0.0, "observation lacks 'mask'"),
        (DICT, [GOOD], 0.0, "observation is a list, its space is a Dict"),
        (gym.spaces.Discrete(4), np.inf, 0.0, "observation is inf .*, its space is Discrete"),
        (BOX, GOOD, 10**400, "the reward is too large for a float"),
        (DICT, {"place": GOOD * np.inf, "mask": np.ones(3)}, 0.0, r"observation\['place'\]\[0\] is NaN"),
        (gym.spaces.Tuple([BOX, BOX]), (GOOD,), 0.0, "observation has 1 parts, its space 2"),
    ],
)
def test_what_is_wrong_is_named(space, observation, reward, message):
    env = guarded(Told(space, observation, reward), "told")
    env.reset()
    with pytest.raises(EnvironmentFault, match=message) as caught:
        env.step(0)
    assert "step() of Told (test_guard.py:" in caught.value.what
    assert "in step 1 of the episode" in caught.value.what
    assert "rayfish env check told" in caught.value.hint


def test_a_dict_with_other_keys_is_an_error_that_names_them():
    observation = {"place": GOOD, "msak": np.ones(3)}
    env = guarded(Told(DICT, observation), "told")
    env.reset()
    with pytest.raises(EnvironmentFault) as caught:
        env.step(0)
    assert "observation lacks 'mask'; observation has 'msak', not in its space" in caught.value.what


def test_what_an_environment_has_is_found_behind_its_guard():
    env = Told(BOX, GOOD)
    env.level, env._secret = 3, 4
    for reached in (guarded(env, "told"), pickle.loads(pickle.dumps(guarded(env, "told")))):
        assert reached.level == 3
        assert not hasattr(reached, "_secret")
        with pytest.raises(AttributeError, match="colour"):
            _ = reached.colour


def test_a_guarded_env_can_be_pickled():
    env = guarded(Told(BOX, GOOD), "told")
    env.reset()
    env.step(0)
    again = pickle.loads(pickle.dumps(env))
    assert again.episode_step == 1
    assert np.array_equal(again.step(0)[0], GOOD)


class Jammed(Told):
    """An environment that cannot be closed."""

    def close(self):
        raise ValueError("no window\nto close")


class JammedVector(gym.vector.VectorEnv):
    """Many that cannot be closed."""

    def close(self, **kwargs):
        raise ValueError("no window")


def test_an_error_in_close_is_one_line_of_the_log(caplog, capsys):
    env = guarded(Jammed(BOX, GOOD), "jammed")
    env.close()
    close(env.unwrapped)
    close(gym.vector.SyncVectorEnv([lambda: guarded(Jammed(BOX, GOOD), "jammed")]))
    close(JammedVector())
    assert [record.getMessage() for record in caplog.records] == [
        "Jammed.close() failed: ValueError: no window",
        "JammedVector.close() failed: ValueError: no window",
    ]
    assert capsys.readouterr().err == "", "nor does its __del__ print a traceback"


def test_an_exception_tells_in_which_step_it_was():
    env = guarded(Told(BOX, GOOD), "told")
    env.reset()
    env.step(0)
    del env.unwrapped.observation
    with pytest.raises(AttributeError) as caught:
        env.step(0)
    assert caught.value.__notes__ == ["in step 2 of the episode"]


def test_a_call_that_hangs_is_found_with_its_line():
    class Slow(Told):
        def step(self, action):
            while not over.is_set():
                time.sleep(0.01)
            return super().step(action)

    over = threading.Event()
    env = guarded(Slow(BOX, GOOD), "slow")
    env.reset()
    thread = threading.Thread(target=env.step, args=(0,))
    thread.start()
    time.sleep(0.2)
    what, hint = watchdog.hanging_call(0.1)
    assert watchdog.hanging_call(60.0) is None
    assert watchdog.hanging_call(None) is None
    assert watchdog.hanging_call(0.1, others=[thread.ident]) is None
    watchdog.notice_pause(time.monotonic() - 60, every=1.0)  # as after Ctrl-Z
    assert watchdog.hanging_call(0.1) is None
    over.set()
    thread.join()
    assert "Slow.step() has been running for 0.1 s (at test_guard.py:" in what
    assert ", in step 1 of the episode)" in what
    assert "fault_tolerance.env_timeout_s" in hint
    assert watchdog.hanging_call(0.0) is None


def test_a_heartbeat_is_sent_whatever_user_code_does_to_logging(monkeypatch):
    said = []

    class Voice(logging.Handler):
        def emit(self, record):
            said.append((record.name, record.getMessage()))

    monkeypatch.setattr(watchdog.activity(), "handlers", [Voice()])
    logging.disable(logging.CRITICAL)
    try:
        watchdog._send(logging.INFO, watchdog.HEARTBEAT, "7 % done")
    finally:
        logging.disable(logging.NOTSET)
    assert said == [(watchdog.HEARTBEAT, "7 % done")]
