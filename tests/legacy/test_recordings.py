"""Recordings of old RLlib: JSON lines of fragments, packed or not, zipped or not, become episodes."""

from __future__ import annotations

import json
import zipfile

import msgpack
import msgpack_numpy
import numpy as np
import pandas as pd
import pytest
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.offline.json_writer import _to_json
from ray.rllib.policy.sample_batch import SampleBatch

import rayfish
from rayfish.errors import RayfishError
from rayfish.legacy.recordings import converted, old_files

LENGTHS = (5, 3, 7)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def steps():
    """Three episodes, step after step; the last one has no end."""
    for episode, length in enumerate(LENGTHS):
        for t in range(length):
            over = t == length - 1 and episode < 2
            here, there = np.array([episode, t], np.float32), np.array([episode, t + 1], np.float32)
            yield {"obs": here, "new_obs": there, "actions": t % 2, "rewards": 1.0, "dones": over,
                   "eps_id": 10 + episode}  # fmt: skip


def write(path, *, packed, columns=("obs", "new_obs", "actions", "rewards", "dones", "eps_id"), size=4):
    """As RLlib's old writer did it: every `size` steps are a line, whatever episode they are of."""
    rows = list(steps())
    lines = []
    for start in range(0, len(rows), size):
        part = {key: np.array([row[key] for row in rows[start : start + size]]) for key in columns}
        lines.append(_to_json(SampleBatch(part), ["obs", "new_obs"] if packed else []))
    path.write_text("\n".join(lines) + "\n")
    return path


def episodes(folder):
    table = pd.read_parquet(folder)
    return [
        SingleAgentEpisode.from_state(msgpack.unpackb(item, object_hook=msgpack_numpy.decode))
        for item in table["item"]
    ]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("suffix", [".json", ".zip"])
def test_fragments_become_the_episodes_they_are_of(tmp_path, packed, suffix):
    file = write(tmp_path / "out.json", packed=packed)
    if suffix == ".zip":
        with zipfile.ZipFile(tmp_path / "out.zip", "w") as archive:
            archive.write(file, "out.json")
        file = tmp_path / "out.zip"
    found = episodes(converted(old_files([str(file)])))
    assert tuple(len(episode) for episode in found) == LENGTHS
    assert [episode.is_terminated for episode in found] == [True, True, False]
    assert found[2].is_truncated, "an episode without an end is cut off, not lost"
    for number, episode in enumerate(found):
        seen = np.stack(episode.get_observations())
        assert seen[:, 0].tolist() == [number] * (LENGTHS[number] + 1)
        assert seen[:, 1].tolist() == list(range(LENGTHS[number] + 1))


def test_without_ids_and_next_observations_the_ends_tell_episodes_apart(tmp_path):
    file = write(tmp_path / "x.json", packed=False, columns=("obs", "actions", "rewards", "dones"), size=15)
    assert tuple(len(episode) for episode in episodes(converted([file]))) == LENGTHS


def test_a_recording_is_converted_once_until_it_changes(tmp_path):
    file = write(tmp_path / "out.json", packed=False)
    first = converted([file])
    assert converted([file]) == first
    write(file, packed=False, size=3)
    assert converted([file]) != first


@pytest.mark.parametrize("text", ["not json\n", '{"obs": [1]}\n', "[1, 2]\n"])
def test_another_file_is_reported_by_its_line(tmp_path, text):
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(RayfishError, match=r"other.json, line 1, is no SampleBatch"):
        converted([file])


def test_folders_and_patterns_are_searched_and_todays_files_left_alone(tmp_path):
    for name in ("a.json", "b.json", "c.parquet"):
        (tmp_path / name).write_text(json.dumps({}))
    assert [file.name for file in old_files([str(tmp_path)])] == ["a.json", "b.json"]
    assert [file.name for file in old_files([f"{tmp_path}/b*.json"])] == ["b.json"]
    assert old_files([f"{tmp_path}/c.parquet"]) == []


@pytest.mark.slow
def test_behaviour_is_cloned_from_an_old_recording(workdir, ray_session):
    import gymnasium as gym

    env, rows = gym.make("CartPole-v1"), []
    observation, _ = env.reset(seed=0)
    for _ in range(600):
        action = int(observation[2] + 0.5 * observation[3] > 0)
        after, reward, terminated, truncated, _ = env.step(action)
        rows.append((observation, after, action, reward, terminated or truncated))
        observation = env.reset()[0] if terminated or truncated else after
    columns = zip(("obs", "new_obs", "actions", "rewards", "dones"), zip(*rows, strict=True), strict=True)
    batch = SampleBatch({key: np.array(values) for key, values in columns})
    (workdir / "old.json").write_text(_to_json(batch, ["obs", "new_obs"]) + "\n")
    (workdir / "bc.yaml").write_text(
        "bc:\n  env: CartPole-v1\n  run: BC\n  stop: {timesteps_total: 40000}\n"
        "  config: {input: old.json, train_batch_size: 500, lr: 0.01, model: {fcnet_hiddens: [16]}}\n"
    )
    run = rayfish.train("bc.yaml", plain=True)
    assert rayfish.evaluate(run, episodes=3).return_mean > 50, "random play earns 22"
