"""Environment names of old experiment files, and what answers to them today."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys

import gymnasium as gym
import pytest

from rayfish.envs.build import EnvSpec, describe, make
from rayfish.errors import CodeError, EnvironmentFault
from rayfish.legacy.env_names import MOVED, OLD_EXAMPLES, closest_env, needs_ale, todays_env

CLASSIC = [
    ("Pendulum-v0", "Pendulum-v1"),
    ("Acrobot-v0", "Acrobot-v1"),
    ("FrozenLake-v0", "FrozenLake-v1"),
    ("FrozenLake8x8-v0", "FrozenLake8x8-v1"),
    ("CliffWalking-v0", "CliffWalking-v1"),
    ("Blackjack-v0", "Blackjack-v1"),
    ("Taxi-v2", "Taxi-v3"),
]
BOX2D = [
    ("LunarLander-v2", "LunarLander-v3"),
    ("LunarLanderContinuous-v2", "LunarLanderContinuous-v3"),
    ("BipedalWalker-v2", "BipedalWalker-v3"),
    ("CarRacing-v0", "CarRacing-v3"),
]
MUJOCO = [
    ("Ant-v2", "Ant-v4"),
    ("HalfCheetah-v1", "HalfCheetah-v4"),
    ("HalfCheetah-v2", "HalfCheetah-v4"),
    ("Hopper-v3", "Hopper-v4"),
    ("Humanoid-v2", "Humanoid-v4"),
    ("HumanoidStandup-v2", "HumanoidStandup-v4"),
    ("Walker2d-v2", "Walker2d-v4"),
    ("Swimmer-v2", "Swimmer-v4"),
    ("Reacher-v2", "Reacher-v4"),
    ("Pusher-v2", "Pusher-v5"),
    ("InvertedPendulum-v2", "InvertedPendulum-v4"),
    ("InvertedDoublePendulum-v2", "InvertedDoublePendulum-v4"),
]
ATARI = [
    ("PongDeterministic-v4", "Pong-v4"),
    ("Pong-ram-v4", "Pong-v4"),
    ("Pong-ramNoFrameskip-v4", "PongNoFrameskip-v4"),
]
EXAMPLES = [
    ("repeat_after_me_env.RepeatAfterMeEnv", "RepeatAfterMeEnv"),
    ("stateless_cartpole.StatelessCartPole", "StatelessCartPole"),
    ("random_env.RandomEnv", "RandomEnv"),
    ("simple_corridor.SimpleCorridor", "SimpleCorridor"),
    ("two_step_game:TwoStepGame", "TwoStepGame"),
    ("multi_agent.MultiAgentCartPole", "MultiEnv"),
    ("cartpole_mass.CartPoleMassEnv", "CartPoleMassEnv"),
    ("pendulum_mass.PendulumMassEnv", "PendulumMassEnv"),
    ("curriculum_capable_env.CurriculumCapableEnv", "CurriculumCapableEnv"),
    ("halfcheetah_rand_direc.HalfCheetahRandDirecEnv", "HalfCheetahRandDirecEnv"),
    ("ant_rand_goal.AntRandGoalEnv", "AntRandGoalEnv"),
    ("mbmpo_env.CartPoleWrapper", "CartPoleEnv"),
]


@pytest.mark.parametrize(("old", "today"), CLASSIC + BOX2D + MUJOCO + ATARI)
def test_an_old_id_is_made_under_todays_with_one_notice(workdir, old, today):
    env = make(EnvSpec(old))
    try:
        assert env.spec.id == today
        env.reset(seed=0)
        assert len(env.step(env.action_space.sample())) == 5
    finally:
        env.close()
    (notice,) = [line for line in describe(EnvSpec(old)).notices if old in line]
    assert f"{old} is today's {today}" in notice


def test_the_settings_that_an_id_held_are_given_and_can_be_changed():
    assert describe(EnvSpec("Pong-ram-v4")).observation_space.shape == (128,)
    assert make(EnvSpec("PongDeterministic-v4")).unwrapped._frameskip == 4
    assert make(EnvSpec("SpaceInvadersDeterministic-v4")).unwrapped._frameskip == 3
    assert make(EnvSpec("PongDeterministic-v4"), {"frameskip": 2}).unwrapped._frameskip == 2


@pytest.mark.parametrize(
    "name", ["CartPole-v0", "MountainCar-v0", "Pong-v0", "PongNoFrameskip-v4", "ALE/Pong-v5", "Ant-v5"]
)
def test_an_id_that_still_exists_keeps_its_name(workdir, name):
    assert todays_env(name) is None
    info = describe(EnvSpec(name))
    assert not any(name in notice for notice in info.notices)


def test_an_old_id_that_the_user_registers_is_the_users():
    gym.register("Pendulum-v0", "gymnasium.envs.classic_control.cartpole:CartPoleEnv")
    try:
        info = describe(EnvSpec("Pendulum-v0"))
    finally:
        del gym.registry["Pendulum-v0"]
    assert info.class_name == "CartPoleEnv"
    assert not any("Pendulum-v0" in notice for notice in info.notices)


@pytest.mark.parametrize(
    ("name", "robot"),
    [
        ("HopperBulletEnv-v0", "Hopper-v4"),
        ("RoboschoolHalfCheetah-v1", "HalfCheetah-v4"),
        ("pybullet_envs:AntBulletEnv-v0", "Ant-v4"),
        ("Striker-v2", "Pusher-v5"),
    ],
)
def test_another_simulator_is_a_hint_and_never_taken_in_silence(name, robot):
    assert todays_env(name) is None
    assert closest_env(name).env == robot
    if ":" not in name:
        with pytest.raises(EnvironmentFault, match=f"environment.env={robot}"):
            make(EnvSpec(name))


@pytest.mark.parametrize(("path", "cls"), EXAMPLES)
def test_an_example_environment_of_old_rllib_is_found_by_its_old_path(workdir, path, cls):
    spec = EnvSpec(f"{OLD_EXAMPLES}.{path}")
    config = {"corridor_length": 5} if "corridor" in path else {}
    info = describe(spec, config)
    assert info.class_name == cls
    assert any(path in notice for notice in info.notices)
    env = make(spec, config)
    env.reset(seed=0)
    env.close()


def test_an_example_that_ray_no_longer_has_says_what_to_do():
    with pytest.raises(EnvironmentFault, match="no longer has") as caught:
        make(EnvSpec(f"{OLD_EXAMPLES}.coin_game_vectorized_env.CoinGame"))
    assert "my_env.py:MyEnv" in caught.value.hint


def test_every_module_that_is_said_to_have_moved_is_there():
    missing = [name for name, place in MOVED.items() if importlib.util.find_spec(place) is None]
    assert missing == []


@pytest.mark.parametrize(
    ("module", "cls"),
    [
        ("cartpole_mass", "CartPoleMassEnv"),
        ("pendulum_mass", "PendulumMassEnv"),
        ("curriculum_capable_env", "CurriculumCapableEnv"),
    ],
)
def test_a_task_that_is_set_is_the_task_it_has(module, cls):
    env = getattr(importlib.import_module(MOVED[module]), cls)()
    env.reset(seed=3)
    task = next(task for task in env.sample_tasks(20) if task != env.get_task())
    env.set_task(task)
    assert env.get_task() == task


def test_a_heavier_pole_falls_otherwise():
    env = importlib.import_module(MOVED["cartpole_mass"]).CartPoleMassEnv()
    env.reset(seed=3)
    light, *_ = env.step(1)
    env.set_task((2.0, 0.2))
    env.reset(seed=3)
    heavy, *_ = env.step(1)
    assert abs(heavy[1]) < abs(light[1])  # the same push moves a heavier cart less


def test_a_higher_level_of_the_lake_is_further_away():
    module = importlib.import_module(MOVED["curriculum_capable_env"])
    env = module.CurriculumCapableEnv({"start_level": 1})
    env.reset(seed=0)
    *_, reward, ended, _, _ = [env.step(1) for _ in range(3)][-1]
    assert (reward, ended) == (10.0, True)
    env.set_task(6)
    assert env.step(1)[3]  # the running episode ends, the next one has the new level
    env.reset()
    steps = [env.step(1) for _ in range(7)] + [env.step(2)]
    assert [step[2] for step in steps] == [False] * 7 + [True]
    assert steps[-1][1] == 60.0


def test_atari_ids_of_any_time_are_known_to_need_ale():
    assert all(map(needs_ale, ["Pong-v0", "BreakoutNoFrameskip-v4", "ALE/Pong-v5", "Qbert-ram-v0"]))
    assert not any(map(needs_ale, ["CartPole-v0", "Pong", "PongNoFrameskip-v5"]))


def test_the_table_is_read_without_gymnasium_or_ray():
    code = "import sys, rayfish.legacy.env_names\nprint({'gymnasium', 'ray'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    "name",
    [
        "ray.rllib.env.wrappers.unity3d_env.Unity3DEnv",
        "ray.rllib.env.wrappers.unity3d_env:Unity3DEnv",
        "ray.rllib.env.unity3d_env.Unity3DEnv",
        "Unity3DEnv",
        "unity3d",
    ],
)
def test_unitys_wrapper_gets_a_sentence_that_says_where_it_went(name):
    assert importlib.util.find_spec("ray.rllib.env.wrappers.unity3d_env") is None, "Ray ships it again"
    with pytest.raises(EnvironmentFault, match="RLlib dropped its Unity wrapper") as told:
        make(EnvSpec(name))
    assert "mlagents-envs" in told.value.hint


def test_a_file_that_imports_unitys_wrapper_gets_the_same_next_step(tmp_path):
    (tmp_path / "my_unity.py").write_text(
        "from ray.rllib.env.wrappers.unity3d_env import Unity3DEnv\nclass Mine(Unity3DEnv): ...\n"
    )
    with pytest.raises(CodeError) as told:
        make(EnvSpec("my_unity.py:Mine", (str(tmp_path),)))
    assert "mlagents-envs" in told.value.hint
