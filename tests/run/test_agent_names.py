"""The loaded agent by the names of RLlib and Stable-Baselines3; no Ray."""

from __future__ import annotations

import numpy as np
import pytest

from rayfish.errors import RayfishError
from tests.models.test_module import module
from tests.models.test_networks import MASK3
from tests.run.test_policy import LSTM, saved

OBSERVATIONS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


def test_rllibs_names_give_what_act_gives_and_explore_by_default(tmp_path):
    agent = saved(tmp_path)
    best = [agent.act(observation) for observation in OBSERVATIONS]
    assert [agent.compute_single_action(one, explore=False) for one in OBSERVATIONS] == best
    named = dict(zip("abcdef", OBSERVATIONS, strict=True))
    assert list(agent.compute_actions(named, explore=False).values()) == best
    drawn = {agent.compute_single_action(OBSERVATIONS[0]) for _ in range(100)}
    assert len(drawn) > 1, "as RLlib does unless it is given explore=False"
    assert agent.compute_single_action(OBSERVATIONS[0], full_fetch=True, explore=False) == (best[0], [], {})
    assert agent.get_policy().compute_single_action(OBSERVATIONS[0], explore=False)[0] == best[0]


def test_predict_takes_one_observation_or_many(tmp_path):
    agent = saved(tmp_path)
    actions, state = agent.predict(OBSERVATIONS)
    assert state is None
    assert actions.tolist() == agent.act_batch(OBSERVATIONS).tolist()
    assert [agent.predict(one)[0].item() for one in OBSERVATIONS] == actions.tolist()
    assert len({agent.predict(OBSERVATIONS[0], deterministic=False)[0].item() for _ in range(100)}) > 1
    assert len({agent.act(OBSERVATIONS[0], deterministic=False) for _ in range(100)}) > 1
    assert agent.act(OBSERVATIONS[0], explore=True, deterministic=True) == actions[0]


def test_predict_knows_a_batch_of_dicts_from_one(tmp_path):
    agent = saved(tmp_path, built=module("PPO", space=MASK3))
    one = {"observations": np.zeros(4, np.float32), "action_mask": np.array([0, 1, 0], np.int8)}
    assert agent.predict(one)[0] == 1
    many = {key: np.stack([value] * 3) for key, value in one.items()}
    assert agent.predict(many)[0].tolist() == [1, 1, 1]


def test_recurrent_state_travels_in_the_callers_hands(tmp_path):
    agent = saved(tmp_path, built=module("PPO", section=LSTM))
    policy = agent.get_policy()
    assert policy.is_recurrent()
    kept = []
    for observation in OBSERVATIONS:
        agent.act(observation)
        kept.append(agent._states[None])
    state = policy.get_initial_state()
    for observation in OBSERVATIONS:
        _, state, _ = agent.compute_single_action(observation, state=state, explore=False)
    last = [array[0] for array in _arrays(kept[-1])]
    assert all(np.allclose(mine, theirs, atol=1e-6) for mine, theirs in zip(state, last, strict=True))
    _, memory = agent.predict(OBSERVATIONS[:2])
    _, later = agent.predict(OBSERVATIONS[2:4], memory, episode_start=[False, True])
    _, fresh = agent.predict(OBSERVATIONS[2:4])
    assert np.allclose(later[0][1], fresh[0][1])
    assert not np.allclose(later[0][0], fresh[0][0])
    zeros = [np.zeros(4), np.zeros(4)]
    assert len(agent.compute_single_action(OBSERVATIONS[0], state=zeros)[1]) == len(state)
    with pytest.raises(RayfishError, match="the state has 1 arrays, the network keeps"):
        agent.compute_single_action(OBSERVATIONS[0], state=[np.ones(4)])


def _arrays(tree):
    if isinstance(tree, dict):
        return [array for inner in tree.values() for array in _arrays(inner)]
    return [tree.numpy()]


def test_a_policys_weights_can_be_set_and_its_model_prints_itself(tmp_path, capsys):
    agent = saved(tmp_path)
    policy = agent.get_policy("default_policy")
    weights = policy.get_weights()
    policy.set_weights({name: np.zeros_like(value) for name, value in weights.items()})
    assert not any(value.any() for value in agent.weights().values())
    with pytest.raises(RayfishError, match="do not fit policy"):
        policy.set_weights({"a": np.zeros(1)})
    policy.model.base_model.summary()
    assert capsys.readouterr().out.strip() == agent.summary()
    assert sum(p.numel() for p in policy.model.parameters()) == sum(v.size for v in weights.values())
