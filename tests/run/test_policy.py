"""The saved policy: what is written, what is read back, and how it acts, without Ray."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rayfish.errors import CheckpointError, RayfishError
from rayfish.run import manifest
from rayfish.run.policy import load
from rayfish.run.policy_files import save_policy
from tests.models.test_module import module
from tests.models.test_networks import MASK3, VECTOR

LSTM = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 4}


def saved(tmp_path, algo="PPO", modules=None, **options):
    built = modules or {"default_policy": options.pop("built", None) or module(algo)}
    save_policy(tmp_path / "policy", modules=built, algo=algo, **options)
    return load(tmp_path, trust=True)


def test_act_and_act_batch_agree(tmp_path):
    agent = saved(tmp_path)
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    batch = agent.act_batch(observations)
    assert batch.shape == (20,)
    assert [agent.act(observation) for observation in observations] == batch.tolist()
    assert len(set(batch.tolist())) > 1
    assert isinstance(agent.act(observations[0]), int)


def test_arrays_lists_and_float64_are_taken(tmp_path):
    agent = saved(tmp_path)
    assert agent.act([0.1, 0.2, 0.3, 0.4]) == agent.act(np.array([0.1, 0.2, 0.3, 0.4]))


def test_named_observations_give_named_actions(tmp_path):
    agent = saved(tmp_path)
    rng = np.random.default_rng(0)
    named = {name: rng.normal(size=4) for name in "abc"}
    assert agent.act_batch(named) == {name: agent.act(value) for name, value in named.items()}


def test_a_batch_of_dict_observations_is_not_taken_for_names(tmp_path):
    agent = saved(tmp_path, built=module("PPO", space=MASK3))
    batch = {"observations": np.zeros((5, 4)), "action_mask": np.tile([0, 0, 1], (5, 1))}
    assert agent.act_batch(batch).tolist() == [2] * 5
    one = {"observations": np.zeros(4), "action_mask": np.array([0, 1, 0])}
    assert agent.act_batch({"x": one, "y": one}) == {"x": 1, "y": 1}


@pytest.mark.parametrize("algo", ["PPO", "DQN", "SAC"])
def test_masked_actions_are_never_taken(tmp_path, algo):
    built = module(
        algo, space=MASK3, actions=spaces.Discrete(3), **({"epsilon": 1.0} if algo == "DQN" else {})
    )
    agent = saved(tmp_path, algo, built=built)
    rng = np.random.default_rng(0)
    mask = rng.integers(0, 2, (2000, 3))
    mask[np.arange(2000), rng.integers(0, 3, 2000)] = 1
    batch = {"observations": rng.normal(size=(2000, 4)), "action_mask": mask}
    for explore in (False, True):
        taken = agent.act_batch(batch, explore=explore)
        assert (mask[np.arange(2000), taken] == 1).all()
        assert set(taken.tolist()) == {0, 1, 2}


def test_box_actions_are_scaled_or_clipped_as_in_training(tmp_path):
    box = spaces.Box(np.array([0, -5], np.float32), np.array([10, 5], np.float32))
    built = module("PPO", actions=box)
    for parameter in built.net.pi.parameters():
        parameter.data.zero_()
    last = built.net.pi.net[-1]
    last.bias.data[:2] = torch.tensor([0.5, -3.0])  # means
    observation = np.zeros(4)
    scaled = saved(tmp_path / "a", built=built).act(observation)
    assert scaled.tolist() == [7.5, -5.0]
    assert scaled.dtype == np.float32
    clipped = saved(tmp_path / "b", built=built, normalize_actions=False, clip_actions=True).act(observation)
    assert clipped.tolist() == [0.5, -3.0]
    raw = saved(tmp_path / "c", built=built, normalize_actions=False).act(observation)
    assert raw.tolist() == [0.5, -3.0]


def test_normalisation_is_applied_to_its_leaves_only(tmp_path):
    built = module("PPO")
    leaf = {"path": [], "mean": np.array([1.0, 2, 3, 4]), "std": np.array([2.0, 2, 2, 1e-4]), "clip": 10.0}
    agent = saved(tmp_path, built=built, normaliser={"default_policy": {"leaves": [leaf]}})
    plain = saved(tmp_path / "plain", built=built)
    observation = np.random.default_rng(1).normal(size=(50, 4)) * 3
    by_hand = np.clip((observation - leaf["mean"]) / leaf["std"], -10, 10)
    assert agent.act_batch(observation).tolist() == plain.act_batch(by_hand).tolist()
    assert agent.act_batch(observation).tolist() != plain.act_batch(observation).tolist()


def test_nested_leaves_are_normalised_by_path(tmp_path):
    space = spaces.Dict({"a": VECTOR, "b": spaces.Tuple([VECTOR, spaces.Discrete(2)])})
    built = module("PPO", space=space)
    leaf = {"path": ["b", 0], "mean": np.ones(4), "std": np.full(4, 2.0), "clip": 10.0}
    agent = saved(tmp_path, built=built, normaliser={"default_policy": {"leaves": [leaf]}})
    plain = saved(tmp_path / "plain", built=built)
    rng = np.random.default_rng(0)
    a, b, d = rng.normal(size=(30, 4)), rng.normal(size=(30, 4)), rng.integers(0, 2, 30)
    given = {"a": a, "b": (b.copy(), d)}
    assert agent.act_batch(given).tolist() == plain.act_batch({"a": a, "b": ((b - 1) / 2, d)}).tolist()
    assert np.array_equal(given["b"][0], b)  # the caller's arrays are left alone


def test_memory_is_kept_between_calls_and_forgotten_on_reset(tmp_path):
    torch.manual_seed(0)
    built = module("PPO", section=LSTM)
    for parameter in built.parameters():
        parameter.data.mul_(4)
    agent = saved(tmp_path, built=built)
    observation = np.array([0.1, -0.2, 0.3, 0.1])
    agent.act(observation)
    first = {k: v.clone() for k, v in agent._states[None]["actor"].items()}
    agent.act(observation)
    assert not torch.equal(first["h"], agent._states[None]["actor"]["h"])
    agent.reset()
    agent.act(observation)
    assert torch.equal(first["h"], agent._states[None]["actor"]["h"])
    assert agent.policies["default_policy"].recurrent


def test_memories_of_agents_and_batches_are_kept_apart(tmp_path):
    agent = saved(tmp_path, built=module("PPO", section=LSTM))
    rng = np.random.default_rng(0)
    sequence = rng.normal(size=(6, 3, 4))
    alone = []
    for column in range(3):
        agent.reset()
        alone.append([agent.act(sequence[t, column]) for t in range(6)])
        states = agent._states[None]["actor"]["h"].clone()
    agent.reset()
    together = [agent.act_batch(sequence[t]).tolist() for t in range(6)]
    assert np.array(together).T.tolist() == alone
    assert torch.allclose(agent._states[("batch", "default_policy")]["actor"]["h"][2], states[0], atol=1e-6)
    agent.reset()
    named = [agent.act_batch({str(c): sequence[t, c] for c in range(3)}) for t in range(6)]
    assert [[step[str(c)] for step in named] for c in range(3)] == alone


def test_finished_rows_of_a_batch_restart(tmp_path):
    agent = saved(tmp_path, built=module("PPO", section=LSTM))
    agent.act_batch(np.ones((3, 4)))
    once = agent._states[("batch", "default_policy")]["actor"]["h"].clone()
    agent.reset(rows=np.array([False, True, False]))
    agent.act_batch(np.ones((3, 4)))
    twice = agent._states[("batch", "default_policy")]["actor"]["h"]
    assert torch.allclose(twice[1], once[1], atol=1e-6)
    assert not torch.allclose(twice[0], once[0], atol=1e-6)
    with pytest.raises(RayfishError, match="memory of 3 episodes"):
        agent.act_batch(np.ones((2, 4)))


def test_exploration_is_repeatable_with_a_seed(tmp_path):
    agent = saved(tmp_path, "SAC")
    observation = np.zeros(4)
    agent.seed(1)
    first = [agent.act(observation, explore=True).tolist() for _ in range(3)]
    agent.seed(1)
    assert [agent.act(observation, explore=True).tolist() for _ in range(3)] == first
    assert len({str(action) for action in first}) == 3
    assert agent.act(observation).tolist() == agent.act(observation).tolist()


def test_several_policies_by_glob_name_and_function(tmp_path):
    modules = {"red": module("PPO"), "blue": module("PPO", actions=spaces.Discrete(5))}
    agent = saved(tmp_path, modules=modules, mapping={"r_*": "red", "*": "blue"})
    assert (agent.policy_of("r_1"), agent.policy_of("x")) == ("red", "blue")
    assert set(agent.act_batch({"r_1": np.zeros(4), "x": np.zeros(4)})) == {"r_1", "x"}
    assert any(name.startswith("blue/") for name in agent.weights())
    assert set(agent.module) == {"red", "blue"}
    with pytest.raises(RayfishError, match="did you mean 'red'"):
        agent.act(np.zeros(4), policy="redd")
    (tmp_path / "rf_mapper.py").write_text("def which(agent_id, episode, **kw):\n    return 'red'\n")
    mapped = saved(tmp_path / "f", modules=modules, mapping_function="rf_mapper:which", paths=[str(tmp_path)])
    assert mapped.policy_of("x") == "red"


def test_weights_are_copies_and_summary_counts_them(tmp_path):
    agent = saved(tmp_path)
    weights = agent.weights()
    total = sum(array.size for array in weights.values())
    assert f"{total:,}" in agent.summary()
    assert "Linear" in agent.summary()
    name = next(iter(weights))
    weights[name][:] = 99
    assert not np.array_equal(agent.weights()[name], weights[name])


@pytest.mark.parametrize("bad", [np.zeros(5), np.zeros((2, 4)), {"a": 1}])
def test_a_wrong_shape_is_said_with_both_shapes(tmp_path, bad):
    agent = saved(tmp_path)
    with pytest.raises(RayfishError, match=r"trained on \(4,\)"):
        agent.act(bad)


def test_a_damaged_or_newer_policy_says_so(tmp_path):
    saved(tmp_path)
    file = tmp_path / "policy" / "policy.json"
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "layout": 99}))
    with pytest.raises(CheckpointError, match="layout 99"):
        load(tmp_path)
    file.write_text("{")
    with pytest.raises(CheckpointError, match="cut short or damaged"):
        load(tmp_path)
    file.write_text(json.dumps(data))
    (tmp_path / "policy" / "default_policy.safetensors").write_bytes(b"x")
    with pytest.raises(CheckpointError, match="weights"):
        load(tmp_path)


def test_changed_model_code_is_said(tmp_path):
    saved(tmp_path)
    file = tmp_path / "policy" / "policy.json"
    data = json.loads(file.read_text())
    data["policies"]["default_policy"]["model"]["fcnet_hiddens"] = [3]
    file.write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="do not fit"):
        load(tmp_path)


def test_loading_needs_no_ray_and_little_time(tmp_path):
    saved(tmp_path, built=module("PPO", section=LSTM))
    code = (
        f"import sys, rayfish; a = rayfish.load({str(tmp_path)!r}); a.act([0, 0, 0, 0]); "
        "print(sorted({'ray', 'hydra'} & set(sys.modules)))"
    )
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert time.perf_counter() - begun < 30  # 3 s on an idle machine; tests share theirs


def test_an_agent_plays_a_gymnasium_environment(tmp_path):
    env = gym.make("CartPole-v1")
    built = module("PPO", space=env.observation_space, actions=env.action_space)
    agent = saved(tmp_path, built=built)
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        observation, *_ = env.step(agent.act(observation))
    assert agent.observation_space == env.observation_space
    assert agent.action_space == env.action_space


OWN_RLMODULE = """
import torch
from ray.rllib.core.rl_module.torch import TorchRLModule

class Own(TorchRLModule):
    def setup(self):
        self.layer = torch.nn.Linear(self.observation_space.shape[0], self.action_space.n)
    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.layer(batch["obs"])}

class Remembers(Own):
    def get_initial_state(self):
        return {"sum": torch.zeros(self.action_space.n)}
    def _forward(self, batch, **kwargs):
        logits = self.layer(batch["obs"]) + batch["state_in"]["sum"].unsqueeze(1)
        return {"action_dist_inputs": logits, "state_out": {"sum": logits[:, -1]}}
"""


@pytest.mark.parametrize("name", ["Own", "Remembers"])
def test_an_rlmodule_of_the_users_acts_through_rllib(tmp_path, name):
    from rayfish.algorithm.module import module_spec

    (tmp_path / "rf_policy_rlmodule.py").write_text(OWN_RLMODULE)
    spec = module_spec("PPO", {"custom_model": f"rf_policy_rlmodule:{name}"}, [str(tmp_path)])
    spec.observation_space, spec.action_space = VECTOR, spaces.Discrete(3)
    built = spec.build()
    built.save_to_path(str(tmp_path / "algorithm/learner_group/learner/rl_module/default_policy"))
    save_policy(tmp_path / "policy", modules={"default_policy": built}, algo="PPO", paths=[str(tmp_path)])
    manifest.write_header(tmp_path, {})
    agent = load(tmp_path)
    observations = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    logits = built.layer(torch.as_tensor(observations))
    if name == "Own":
        assert agent.act_batch(observations).tolist() == logits.argmax(-1).tolist()
    else:
        wanted = logits.cumsum(0).argmax(-1).tolist()
        assert [agent.act(observation) for observation in observations] == wanted
    assert agent.act(observations[0], explore=True) in range(3)
    assert agent.policies["default_policy"].observation_space == VECTOR


def test_a_policy_of_rllibs_without_its_tree_says_so(tmp_path):
    built = torch.nn.Linear(1, 1)
    built.observation_space, built.action_space, built.model_config = VECTOR, spaces.Discrete(3), {}
    with pytest.raises(CheckpointError, match="no module"):
        saved(tmp_path, built=built)
