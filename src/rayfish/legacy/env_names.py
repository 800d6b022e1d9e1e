"""Environment names of the time of Ray 1.9 to 2.9, and what answers to them today.

Only names that today's Gymnasium (1.2), ale-py and RLlib do not know are here; `CartPole-v0`,
`MountainCar-v0` or `PongNoFrameskip-v4` still are what they were. Imports neither Gymnasium nor Ray.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rayfish.legacy import simharness

OLD_EXAMPLES = "ray.rllib.examples.env"
"""The package that held RLlib's example environments until Ray 2.9."""

_CLASSES = "ray.rllib.examples.envs.classes"
_OURS = "rayfish.legacy.examples"


@dataclass(frozen=True)
class Today:
    """What an old name means now.

    :param env: what to write as `environment.env`
    :param remark: what differs, in a few words; "" when nothing does
    :param env_config: keys the environment needs besides those that the experiment gives
    """

    env: str
    remark: str = ""
    env_config: Mapping[str, Any] = field(default_factory=dict)


_ENERGY = "energy costs reward, and there may be wind"
_LAP = "a finished lap ends the episode"
_LIDAR = "the lidar was fixed since"
_LAKE = "its rewards were fixed since"
_WIND = "wind begins again with each episode"
_GYM: dict[str, tuple[str, str]] = {
    "Pendulum-v0": ("Pendulum-v1", "the same physics"),
    "Acrobot-v0": ("Acrobot-v1", "500 steps in place of 200, and sines and cosines in place of the angles"),
    "FrozenLake-v0": ("FrozenLake-v1", _LAKE),
    "FrozenLake8x8-v0": ("FrozenLake8x8-v1", _LAKE),
    "CliffWalking-v0": ("CliffWalking-v1", "the same cliff"),
    "Blackjack-v0": ("Blackjack-v1", "how a natural counts was fixed since"),
    "Taxi-v1": ("Taxi-v3", "the map was fixed, and a ride never starts at its goal"),
    "Taxi-v2": ("Taxi-v3", "the map was fixed since"),
    "LunarLander-v1": ("LunarLander-v3", _ENERGY),
    "LunarLander-v2": ("LunarLander-v3", _WIND),
    "LunarLanderContinuous-v1": ("LunarLanderContinuous-v3", _ENERGY),
    "LunarLanderContinuous-v2": ("LunarLanderContinuous-v3", _WIND),
    "BipedalWalker-v1": ("BipedalWalker-v3", f"energy costs reward, and {_LIDAR}"),
    "BipedalWalker-v2": ("BipedalWalker-v3", _LIDAR),
    "BipedalWalkerHardcore-v2": ("BipedalWalkerHardcore-v3", _LIDAR),
    "CarRacing-v0": ("CarRacing-v3", "when a lap counts as finished has changed, and it ends the episode"),
    "CarRacing-v1": ("CarRacing-v3", _LAP),
    "CarRacing-v2": ("CarRacing-v3", _LAP),
}
"""Old name -> today's, and what differs."""

# v4 keeps the rewards and sizes that v2 and v3 had; v5 changed both. Pusher-v4 needs mujoco below 3.
_MUJOCO: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "Walker2d", "Swimmer", "Reacher"), ("v4", "")
    ),
    **dict.fromkeys(("InvertedPendulum", "InvertedDoublePendulum"), ("v4", "")),
    "Ant": ("v4", "27 observations: without the contact forces, which MuJoCo 2 left at zero"),
    "Pusher": ("v5", "the density of the pushed object was fixed since"),
}
_MUJOCO_ID = re.compile(rf"^({'|'.join(_MUJOCO)})-v[0123]$")

ATARI_GAMES: tuple[str, ...] = (
    "Adventure", "AirRaid", "Alien", "Amidar", "Assault", "Asterix", "Asteroids", "Atlantis", "BankHeist",
    "BattleZone", "BeamRider", "Berzerk", "Bowling", "Boxing", "Breakout", "Carnival", "Centipede",
    "ChopperCommand", "CrazyClimber", "Defender", "DemonAttack", "DoubleDunk", "ElevatorAction", "Enduro",
    "FishingDerby", "Freeway", "Frostbite", "Gopher", "Gravitar", "Hero", "IceHockey", "Jamesbond",
    "JourneyEscape", "Kangaroo", "Krull", "KungFuMaster", "MontezumaRevenge", "MsPacman", "NameThisGame",
    "Phoenix", "Pitfall", "Pong", "Pooyan", "PrivateEye", "Qbert", "Riverraid", "RoadRunner", "Robotank",
    "Seaquest", "Skiing", "Solaris", "SpaceInvaders", "StarGunner", "Tennis", "TimePilot", "Tutankham",
    "UpNDown", "Venture", "VideoPinball", "WizardOfWor", "YarsRevenge", "Zaxxon",
)  # fmt: skip
"""The games that gym had; ale-py registers `Pong-v0`, `Pong-v4` and `PongNoFrameskip-v0|v4` of each."""

_ATARI_ID = re.compile(rf"^({'|'.join(ATARI_GAMES)})(-ram)?(Deterministic|NoFrameskip)?-v([04])$")

_OTHER_SIMULATORS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^(?:pybullet_envs:)?(\w+?)(?:Mujoco)?BulletEnv-v\d+$"), "PyBullet"),
    (re.compile(r"^(?:roboschool:)?Roboschool(\w+?)(?:MuJoCo)?-v\d+$"), "Roboschool"),
)
_GONE_ROBOTS = {"Striker": "Pusher", "Thrower": "Pusher", "InvertedPendulumSwingup": "InvertedPendulum"}

MOVED: dict[str, str] = {
    **{
        name: f"{_CLASSES}.{name}"
        for name in (
            "action_mask_env", "cartpole_crashing", "cartpole_sparse_rewards",
            "cartpole_with_dict_observation_space", "cliff_walking_wall_env", "correlated_actions_env",
            "d4rl_env", "debug_counter_env", "deterministic_envs", "dm_control_suite",
            "env_using_remote_actor", "env_with_subprocess", "fast_image_env", "gpu_requiring_env",
            "look_and_push", "memory_leaking_env", "mock_env", "nested_space_repeat_after_me_env",
            "parametric_actions_cartpole", "random_env", "recommender_system_envs_with_recsim",
            "repeat_after_me_env", "repeat_initial_obs_env", "simple_corridor", "simple_rpg",
            "stateless_cartpole", "stateless_pendulum", "transformed_action_space_env", "windy_maze_env",
        )
    },
    **{
        name: f"{_CLASSES}.multi_agent.{name}"
        for name in (
            "bandit_envs_discrete", "bandit_envs_recommender_system", "pettingzoo_chess",
            "pettingzoo_connect4", "rock_paper_scissors", "two_step_game",
        )
    },
    **{
        name: f"{_OURS}.{name}"
        for name in (
            "ant_rand_goal", "cartpole_mass", "curriculum_capable_env", "halfcheetah_rand_direc",
            "pendulum_mass",
        )
    },
    "multi_agent": f"{_CLASSES}.multi_agent",
    "cartpole_stateless_env": f"{_CLASSES}.stateless_cartpole",
    "curriculum_env": f"{_OURS}.curriculum_capable_env",
    "recsim_recommender_system_envs": f"{_CLASSES}.recommender_system_envs_with_recsim",
}  # fmt: skip
"""Modules of `OLD_EXAMPLES` -> where the same classes are today: in RLlib, else in Rayfish."""

_SAME_AS: dict[str, Today] = {
    f"{OLD_EXAMPLES}.mbmpo_env.{name}": Today(env, "without the reward() that model-based learning called")
    for name, env in (
        ("CartPoleWrapper", "CartPole-v1"),
        ("PendulumWrapper", "Pendulum-v1"),
        ("HopperWrapper", "Hopper-v4"),
        ("HalfCheetahWrapper", "HalfCheetah-v4"),
    )
}


def todays_env(name: str) -> Today | None:
    """What an environment's old name means now; None when it means what it meant, or nothing is known."""
    name = name.strip()
    if name in _GYM:
        return Today(*_GYM[name])
    mujoco = _MUJOCO_ID.match(name)
    if mujoco is not None:
        version, remark = _MUJOCO[mujoco[1]]
        return Today(f"{mujoco[1]}-{version}", remark or "the same task on today's MuJoCo")
    if simharness.is_harness(name):
        return Today(simharness.todays_name(name), "SimHarness's environment")
    return _atari(name) or _example(name)


def closest_env(name: str) -> Today | None:
    """The nearest environment to one whose simulator is gone; it is another task, so a person must choose."""
    for pattern, simulator in _OTHER_SIMULATORS:
        found = pattern.match(name.strip())
        if found is not None:
            robot = _GONE_ROBOTS.get(found[1], found[1])
            if robot in _MUJOCO:
                env = f"{robot}-{_MUJOCO[robot][0]}"
                return Today(env, f"{simulator} is no longer maintained; {env} is the same robot in MuJoCo")
    gone = re.match(r"^(Striker|Thrower)-v\d+$", name.strip())
    if gone is not None:
        return Today("Pusher-v5", f"{gone[1]} is gone from Gymnasium; Pusher-v5 has the same arm")
    return None


_UNITY = re.compile(r"(ray\.rllib\.env\.(wrappers\.)?unity3d_env([.:]Unity3DEnv)?)|unity_?3d(_?env)?", re.I)


def gone_env(name: str) -> tuple[str, str] | None:
    """What happened to an environment that RLlib has dropped, and the next step; None for every other."""
    if _UNITY.fullmatch(name.strip()) is None:
        return None
    return (
        f"{name!r} is gone: RLlib dropped its Unity wrapper, and Ray 2.60 ships no Unity3DEnv",
        "pip install mlagents-envs, copy rllib/env/wrappers/unity3d_env.py of Ray 2.50 next to the "
        "experiment, and write environment.env=unity3d_env.py:Unity3DEnv (docs/old-files.md)",
    )


def needs_ale(name: str) -> bool:
    """Whether a name is an Atari id, of any time: ale-py registers them once it is imported."""
    return name.startswith("ALE/") or _ATARI_ID.match(name) is not None


def _atari(name: str) -> Today | None:
    """The two spellings that ale-py no longer registers: `-ram` and `Deterministic`."""
    found = _ATARI_ID.match(name)
    if found is None or not (found[2] or found[3] == "Deterministic"):
        return None
    game, ram, kind, version = found.groups()
    env = f"{game}{'NoFrameskip' if kind == 'NoFrameskip' else ''}-v{version}"
    config: dict[str, Any] = {"obs_type": "ram"} if ram else {}
    if kind == "Deterministic":
        config["frameskip"] = 3 if game == "SpaceInvaders" else 4
    settings = ", ".join(f"{key}={value}" for key, value in config.items())
    return Today(env, f"the same game, by env_config {settings}", config)


def _example(name: str) -> Today | None:
    if name in _SAME_AS:
        return _SAME_AS[name]
    place = name.replace(":", ".")
    if not place.startswith(f"{OLD_EXAMPLES}."):
        return None
    module, _, rest = place.removeprefix(f"{OLD_EXAMPLES}.").partition(".")
    if module not in MOVED or not rest:
        return None
    remark = "written again" if MOVED[module].startswith(_OURS) else "where Ray keeps it now"
    return Today(f"{MOVED[module]}.{rest}", remark)
