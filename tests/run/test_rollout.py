"""Recorded episodes: whole transitions in typed columns, statistics, and what an early end leaves."""

from __future__ import annotations

import csv
import json
import os
import signal

import gymnasium as gym
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces
from ray.rllib.env.multi_agent_env import MultiAgentEnv

import rayfish
from rayfish.errors import RayfishError, RunFailed
from rayfish.models.space_json import from_json
from rayfish.run import trajectories

pytestmark = pytest.mark.usefixtures("ray_session", "workdir")

SMALL = (
    "algo.name=PPO",
    "training.train_batch_size_per_learner=64",
    "training.minibatch_size=64",
    "rollouts.num_envs_per_env_runner=1",
    "training.model.fcnet_hiddens=[8]",
)


def saved(env_class, folder, *settings):
    """A checkpoint of a policy for `env_class` that has not learnt anything yet."""
    with rayfish.Trainer(None, *SMALL, *settings, env=env_class) as trainer:
        return trainer.save(folder / "checkpoint")


class Clock(gym.Env):
    """Shows the seed, the step and noise; an episode seeded with `s` lasts `3 + s` steps."""

    observation_space = spaces.Box(-1e6, 1e6, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number, self.t = seed or 0, 0
        return self.observe(), {"began": np.int64(self.number)}

    def step(self, action):
        self.t += 1
        over = self.t == 3 + self.number
        info = {"metrics": {"noise": np.float32(self.number), "name": "no number"}} if over else {}
        return (
            self.observe(),
            0.5 * self.t,
            over and self.number % 2 == 0,
            over and self.number % 2 == 1,
            info,
        )

    def observe(self):
        return np.array([self.number, self.t, self.np_random.normal()], np.float32)


class InPlace(Clock):
    """Gives the same array again and again, changed in place."""

    shown = np.zeros(3, np.float32)

    def observe(self):
        self.shown[:] = super().observe()
        return self.shown


@pytest.fixture(scope="module")
def clock(tmp_path_factory, ray_session):
    return saved(Clock, tmp_path_factory.mktemp("clock"))


def table(found):
    return pd.read_parquet(found.trajectories)


@pytest.mark.parametrize("env_class", [Clock, InPlace])
def test_a_row_is_a_whole_transition_and_the_last_observation_is_kept(clock, env_class):
    found = rayfish.rollout(clock, episodes=3, seed=2, env=env_class)
    rows = table(found)
    assert list(rows.columns) == [
        "episode", "step", "agent", "policy", "observation", "action",
        "reward", "terminated", "truncated", "next_observation",
    ]  # fmt: skip
    assert len(rows) == found.rows == found.steps == 5 + 6 + 7
    for number, episode in rows.groupby("episode"):
        seen, after = np.stack(episode.observation), np.stack(episode.next_observation)
        assert seen.dtype == np.float32
        assert seen[:, 0].tolist() == [2 + number] * len(seen)
        assert seen[:, 1].tolist() == list(range(len(seen)))
        assert np.array_equal(seen[1:], after[:-1])
        assert after[-1, 1] == len(seen), "the observation that ended the episode"
        assert episode.step.tolist() == list(range(len(seen)))
        assert episode.reward.tolist() == [0.5 * (t + 1) for t in range(len(seen))]
        ended = episode.terminated if number % 2 == 0 else episode.truncated
        assert ended.tolist() == [False] * (len(seen) - 1) + [True]
    assert rows.agent.isna().all()
    assert set(rows.policy) == {"default_policy"}
    assert rows.action.dtype == np.int64


def test_the_statistics_of_each_episode_and_of_all(clock):
    found = rayfish.rollout(clock, episodes=3, env=Clock)
    episodes = pd.read_parquet(found.folder + "/episodes.parquet")
    assert episodes["length"].tolist() == [3, 4, 5] == found.lengths
    assert episodes["seed"].tolist() == [0, 1, 2]
    assert episodes["terminated"].tolist() == [True, False, True]
    assert episodes["truncated"].tolist() == [False, True, False]
    assert episodes["env/noise"].tolist() == [0, 1, 2]
    assert "env/name" not in episodes
    sums = table(found).groupby("episode").reward.sum()
    assert episodes["return"].tolist() == sums.tolist() == found.returns == [3.0, 5.0, 7.5]
    rows = list(csv.DictReader((found.trajectories.parent / "episodes.csv").read_text().splitlines()))
    assert list(rows[0]) == list(episodes.columns)
    assert [float(row["return"]) for row in rows] == found.returns
    summary = json.loads((found.trajectories.parent / "summary.json").read_text())
    of_return = summary["statistics"]["return"]
    assert of_return["mean"] == pytest.approx(31 / 6) == found.return_mean
    assert (of_return["min"], of_return["max"]) == (3.0, 7.5)
    assert of_return["std"] == pytest.approx(np.std(found.returns, ddof=1))
    assert of_return["ci_low"] < of_return["mean"] < of_return["ci_high"]
    assert summary["checkpoint"] == str(clock)
    assert (summary["seed"], summary["explore"], summary["stopped"]) == (0, False, False)
    assert summary["versions"]["rayfish"] == rayfish.__version__


def test_the_episodes_are_those_of_evaluate(clock):
    recorded = rayfish.rollout(clock, episodes=4, seed=7, explore=True, env=Clock)
    scored = rayfish.evaluate(clock, episodes=4, seed=7, explore=True, env=Clock)
    assert recorded.returns == scored.returns
    assert recorded.lengths == scored.lengths
    again = rayfish.rollout(clock, episodes=4, seed=7, explore=True, env=Clock)
    assert table(recorded).action.tolist() == table(again).action.tolist()
    assert len(set(table(recorded).action)) == 2


def test_steps_are_played_to_the_end_of_their_episode(clock):
    found = rayfish.rollout(clock, steps=4, env=Clock)
    assert found.lengths == [3, 4]


class Rich(Clock):
    """Every kind of space in one observation, and an action of parts."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (4, 5, 3), np.uint8),
            "mode": spaces.Discrete(4),
            "switches": spaces.MultiBinary(3),
            "pair": spaces.Tuple((spaces.MultiDiscrete([3, 4]), spaces.Box(-1, 1, (), np.float64))),
        }
    )
    action_space = spaces.MultiDiscrete([2, 3])

    def observe(self):
        image = np.arange(60, dtype=np.uint8).reshape(4, 5, 3) + self.t
        pair = (np.array([self.t % 3, 1]), np.array(0.25))
        return {"image": image, "mode": self.t % 4, "switches": np.array([1, 0, 1], np.int8), "pair": pair}


def test_nested_spaces_become_typed_columns_with_their_shapes(tmp_path):
    found = rayfish.rollout(saved(Rich, tmp_path), episodes=1, env=Rich)
    schema = pq.read_schema(found.trajectories)
    types = {name: str(schema.field(name).type) for name in schema.names}
    assert types["observation.mode"] == "int64"
    assert types["observation.switches"] == "fixed_size_list<element: int8>[3]"
    assert types["observation.pair.0"] == "fixed_size_list<element: int64>[2]"
    assert types["next_observation.pair.1"] == "double"
    assert types["action"] == "fixed_size_list<element: int64>[2]"
    image = pq.read_table(found.trajectories)["observation.image"].combine_chunks()
    assert image.to_numpy_ndarray().shape == (3, 4, 5, 3)
    assert image.to_numpy_ndarray().dtype == np.uint8
    expected = np.arange(60, dtype=np.uint8).reshape(4, 5, 3) + 2
    assert np.array_equal(image.to_numpy_ndarray()[2], expected)
    described = json.loads(schema.metadata[b"rayfish"])
    assert described["columns"]["observation.image"] == {"shape": [4, 5, 3], "dtype": "uint8"}
    assert from_json(described["spaces"]["default_policy"]["observation"]) == Rich.observation_space


class Camera(Clock):
    """Noise as a picture: nothing that a codec could make smaller."""

    observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)

    def observe(self):
        return self.np_random.integers(0, 256, (64, 64, 3), dtype=np.uint8)


def test_images_take_a_byte_per_pixel(tmp_path):
    found = rayfish.rollout(
        saved(Camera, tmp_path, "training.model.conv_filters=[[4,8,8]]"), episodes=1, seed=37, env=Camera
    )
    numbers = 2 * found.rows * 64 * 64 * 3
    assert found.rows == 40
    assert found.trajectories.stat().st_size < 1.1 * numbers


def test_the_actions_of_a_recurrent_policy_follow_from_the_recorded_observations(tmp_path):
    settings = (
        "training.model.use_lstm=true",
        "training.model.lstm_cell_size=4",
        "training.model.max_seq_len=4",
    )
    checkpoint = saved(Clock, tmp_path, *settings)
    found = rayfish.rollout(checkpoint, episodes=2, seed=5, env=Clock)
    agent = rayfish.load(checkpoint)
    for _, episode in table(found).groupby("episode"):
        agent.reset()
        assert [agent.act(seen.copy()) for seen in episode.observation] == episode.action.tolist()


class Turns(MultiAgentEnv):
    """A sees two numbers and moves first, B sees three; who does not move is not observed."""

    def __init__(self, config=None):
        super().__init__()
        self.possible_agents = self.agents = ["a", "b"]
        self.observation_spaces = {
            "a": spaces.Box(0, 100, (2,), np.float32),
            "b": spaces.Box(0, 100, (3,), np.float32),
        }
        self.action_spaces = {"a": spaces.Discrete(2), "b": spaces.Discrete(3)}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return {"a": self.see("a")}, {"a": {"turn": 0}}

    def step(self, actions):
        self.t += 1
        whose = "ab"[self.t % 2]
        over = self.t == 5
        seen = {"a": self.see("a"), "b": self.see("b")} if over else {whose: self.see(whose)}
        infos = {name: {"metrics": {"t": self.t}, "turn": self.t} for name in seen}
        return seen, {"a": 1.0, "b": 10.0}, {"__all__": over}, {"__all__": False}, infos

    def see(self, name):
        return np.full(2 if name == "a" else 3, self.t, np.float32)


def test_agents_with_other_spaces_have_columns_of_their_own_and_turns_add_up(tmp_path):
    mapping = "multi_agent.mapping={a: pa, b: pb}"
    checkpoint = saved(Turns, tmp_path, "multi_agent.policies=[pa,pb]", mapping)
    found = rayfish.rollout(checkpoint, episodes=2, save_info=True, env=Turns)
    rows = table(found)
    assert set(rows.columns) >= {"observation.pa", "observation.pb", "next_observation.pb", "action"}
    first = rows[rows.episode == 0]
    a, b = first[first.agent == "a"], first[first.agent == "b"]
    assert set(a.policy) == {"pa"}
    assert a.step.tolist() == [0, 2, 4]
    assert a.reward.tolist() == [2.0, 2.0, 1.0], "what came while the other moved belongs to the last move"
    assert [seen.tolist() for seen in a["next_observation.pa"]] == [[2, 2], [4, 4], [5, 5]]
    assert a["observation.pb"].isna().all()
    assert b.step.tolist() == [1, 3]
    assert b.reward.tolist() == [20.0, 20.0]
    assert [seen.tolist() for seen in b["next_observation.pb"]] == [[3] * 3, [5] * 3]
    assert a.terminated.tolist() == [False, False, True]
    assert b.terminated.tolist() == [False, True]
    assert [json.loads(info)["turn"] for info in b["info"]] == [3, 5]
    episodes = pd.read_parquet(found.folder + "/episodes.parquet")
    assert episodes["return/pa"].tolist() == [5.0, 5.0]
    assert episodes["return/pb"].tolist() == [50.0, 50.0]
    assert episodes["env/t"].tolist() == [5.0, 5.0]
    assert found.statistics["return/pb"]["mean"] == 50.0
    assert episodes["reset_info"].map(json.loads).tolist() == [{"a": {"turn": 0}}] * 2


class Talkative(Clock):
    """Says all sorts of things beside its observations."""

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        itself = []
        itself.append(itself)
        info = {
            "array": np.arange(4).reshape(2, 2),
            "number": np.float32(0.5),
            "flag": np.True_,
            "nothing": None,
            "not finite": float("nan"),
            "object": spaces.Discrete(2),
            3: ("a", b"b"),
        }
        return observation, reward, terminated, truncated, info if self.t < 3 else {"loop": itself}


def test_infos_become_json_whatever_is_in_them(clock):
    found = rayfish.rollout(clock, episodes=1, save_info=True, env=Talkative)
    infos = [json.loads(info) for info in table(found)["info"]]
    assert infos[0] == {
        "array": [[0, 1], [2, 3]],
        "number": 0.5,
        "flag": True,
        "nothing": None,
        "not finite": "nan",
        "object": "Discrete(2)",
        "3": ["a", "b'b'"],
    }
    assert "[...]" in infos[2]
    assert "info" not in table(rayfish.rollout(clock, episodes=1, env=Talkative))


class Interrupted(Clock):
    """Ctrl-C arrives in the fourth step of the third episode."""

    stop_in = 2

    def step(self, action):
        result = super().step(action)
        if self.number == self.stop_in and self.t == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return result


class Broken(Clock):
    """Fails in the fourth step of the third episode."""

    def step(self, action):
        if self.number == 2 and self.t == 3:
            raise ValueError("the simulator fell over")
        return super().step(action)


@pytest.mark.parametrize("group_bytes", [trajectories.GROUP_BYTES, 1], ids=["held", "written already"])
def test_ctrl_c_keeps_the_finished_episodes_and_nothing_of_the_other(clock, group_bytes, monkeypatch):
    monkeypatch.setattr(trajectories, "GROUP_BYTES", group_bytes)
    found = rayfish.rollout(clock, episodes=5, env=Interrupted)
    assert found.stopped
    assert found.episodes == 2
    assert table(found).episode.tolist() == [0] * 3 + [1] * 4
    assert found.rows == 7
    assert json.loads((found.trajectories.parent / "summary.json").read_text())["stopped"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_fault_of_the_environment_keeps_the_finished_episodes_and_says_so(clock, tmp_path):
    with pytest.raises(RunFailed, match=r"fell over.*; 2 finished episodes kept in .*mine"):
        rayfish.rollout(clock, episodes=5, env=Broken, out=tmp_path / "mine")
    assert pd.read_parquet(tmp_path / "mine" / "trajectories.parquet").episode.tolist() == [0] * 3 + [1] * 4


def test_stopping_in_the_first_episode_leaves_nothing(clock, tmp_path):
    class AtOnce(Interrupted):
        stop_in = 5

    with pytest.raises(KeyboardInterrupt):
        rayfish.rollout(clock, episodes=5, seed=5, env=AtOnce, out=tmp_path / "mine")
    assert list(tmp_path.iterdir()) == []


def test_long_recordings_are_written_in_groups(clock, monkeypatch):
    monkeypatch.setattr(trajectories, "GROUP_BYTES", 1000)
    found = rayfish.rollout(clock, episodes=20, env=Clock)
    with pq.ParquetFile(found.trajectories) as file:
        assert file.num_row_groups > 5
    steps = table(found)
    assert steps.groupby("episode").size().tolist() == found.lengths


def test_an_earlier_rollout_is_never_overwritten(clock, tmp_path):
    place = tmp_path / "mine"
    place.mkdir()
    (place / "notes.txt").write_text("keep me")
    found = rayfish.rollout(clock, episodes=1, env=Clock, out=place)
    assert found.trajectories.is_file()
    assert (place / "notes.txt").read_text() == "keep me"
    before = found.trajectories.read_bytes()
    with pytest.raises(RayfishError, match="holds a rollout already"):
        rayfish.rollout(clock, episodes=2, env=Clock, out=place)
    assert found.trajectories.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


def test_an_observation_that_is_not_what_its_space_declares_is_named(clock):
    class Shrinking(Clock):
        def observe(self):
            return super().observe()[: 2 if self.t == 3 else 3]

    with pytest.raises(RayfishError, match=r"observation has shape \(2,\), its space declares \(3,\)"):
        rayfish.rollout(clock, episodes=1, env=Shrinking)
