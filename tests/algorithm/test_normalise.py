"""Observation normalisation: exact statistics, merged over runners, masks and images untouched."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rayfish.algorithm.normalise import NormalizeObservations, combine


def connector(space: gym.Space) -> NormalizeObservations:
    return NormalizeObservations(space, gym.spaces.Discrete(2))


def feed(piece: NormalizeObservations, observations, explore=True):
    """Runs the connector on one vector step; gives the normalised observations."""
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    episodes = []
    for observation in observations:
        episode = SingleAgentEpisode(observation_space=piece.input_observation_space)
        episode.add_env_reset(observation)
        episodes.append(episode)
    piece(rl_module=None, batch={}, episodes=episodes, explore=explore)
    return [episode.get_observations(-1) for episode in episodes]


def moments(piece: NormalizeObservations):
    (leaf,) = piece.statistics()["default_policy"]["leaves"]
    return leaf["mean"], leaf["std"]


BOX = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)


def test_statistics_equal_those_of_all_data_at_once():
    data = np.random.default_rng(0).normal([1, -5, 100], [1, 2, 30], (500, 3)).astype(np.float32)
    piece = connector(BOX)
    for start in range(0, 500, 20):
        feed(piece, data[start : start + 20])
    mean, std = moments(piece)
    np.testing.assert_allclose(mean, data.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(std, data.std(axis=0, ddof=1), rtol=1e-4)


def test_evaluation_normalises_without_learning():
    piece = connector(BOX)
    feed(piece, np.random.default_rng(0).normal(3, 2, (50, 3)).astype(np.float32))
    before = moments(piece)
    seen = feed(piece, [np.full(3, 3, np.float32)], explore=False)
    np.testing.assert_array_equal(moments(piece)[0], before[0])
    assert np.abs(seen[0]).max() < 1


def test_merging_runners_counts_every_observation_once_however_often_they_report():
    data = np.random.default_rng(1).normal(2, 3, (300, 3)).astype(np.float32)
    driver, one, two = connector(BOX), connector(BOX), connector(BOX)
    feed(one, data[:100])
    driver.merge_states([one.get_state(), two.get_state()])
    feed(two, data[100:200])
    merged = driver.merge_states([one.get_state(), two.get_state()])
    merged = driver.merge_states([one.get_state(), two.get_state()])
    for runner in (one, two):
        runner.set_state(merged)
    feed(one, data[200:])
    driver.merge_states([one.get_state(), two.get_state()])
    mean, std = moments(driver)
    np.testing.assert_allclose(mean, data.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(std, data.std(axis=0, ddof=1), rtol=1e-4)


def test_restored_statistics_go_on_growing():
    data = np.random.default_rng(2).normal(0, 1, (200, 3)).astype(np.float32)
    before, after, runner = connector(BOX), connector(BOX), connector(BOX)
    feed(before, data[:100])
    after.merge_states([runner.get_state()])  # a sync with fresh runners comes first
    after.set_state(before.get_state())
    feed(runner, data[100:])
    after.merge_states([runner.get_state()])
    np.testing.assert_allclose(moments(after)[0], data.mean(axis=0), atol=1e-6)


def test_masks_images_and_integers_are_left_alone():
    space = gym.spaces.Dict(
        {
            "observations": gym.spaces.Box(-1, 1, (2,), np.float32),
            "action_mask": gym.spaces.Box(0, 1, (2,), np.float32),
            "camera": gym.spaces.Box(0, 1, (8, 8, 3), np.float32),
            "gear": gym.spaces.Discrete(4),
        }
    )
    rng = np.random.default_rng(0)
    rows = [
        {
            "observations": rng.normal(5, 2, 2).astype(np.float32),
            "action_mask": np.array([1, 0], np.float32),
            "camera": np.full((8, 8, 3), 0.5, np.float32),
            "gear": 3,
        }
        for _ in range(30)
    ]
    piece = connector(space)
    out = feed(piece, rows)
    np.testing.assert_array_equal(out[0]["action_mask"], [1, 0])
    np.testing.assert_array_equal(out[0]["camera"], rows[0]["camera"])
    assert out[0]["gear"] == 3
    assert abs(np.mean([row["observations"] for row in out])) < 0.1
    assert piece.observation_space["observations"].high.max() == 10


@pytest.mark.parametrize("sizes", [(1, 1), (1, 50), (50, 1)])
def test_combining_moments_is_exact_for_any_sizes(sizes):
    rng = np.random.default_rng(3)
    a, b = (rng.normal(1e3, 1, size) for size in sizes)

    def of(x):
        return float(len(x)), x.mean(), np.square(x - x.mean()).sum()

    count, mean, squares = combine(of(a), of(b))
    both = np.concatenate([a, b])
    assert count == len(both)
    assert mean == pytest.approx(both.mean())
    assert squares == pytest.approx(np.square(both - both.mean()).sum(), rel=1e-9)
