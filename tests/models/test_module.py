"""Rayfish's networks as RLlib modules: what learners and env runners ask of them, without Ray running."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule

from rayfish.algorithm.module import MODULES, module_spec
from rayfish.models.build import build_network
from rayfish.models.networks import FAMILIES
from rayfish.nested import map_nested
from tests.models.test_networks import MASK3, VECTOR, batch_of

SMALL = {"fcnet_hiddens": [16, 16]}
BOX = spaces.Box(-2, 2, (2,), np.float32)
EXTRAS = {
    "DQN": {"double_q": True, "dueling": True, "epsilon": 0.5, "num_atoms": 1, "v_min": -5.0, "v_max": 5.0},
    "SAC": {"twin_q": True},
    "IQL": {"twin_q": True},
    "CQL": {"twin_q": True, "num_actions": 3},
    "TQC": {"twin_q": True, "n_quantiles": 5, "n_critics": 2, "top_quantiles_to_drop_per_net": 1},
}


def module(algo, space=VECTOR, actions=None, section=SMALL, inference_only=False, **extra):
    """A module with repeatable weights; one a learner builds, unless `inference_only`."""
    torch.manual_seed(0)
    spec = module_spec(algo, section)
    spec.observation_space = space
    spec.action_space = actions or (BOX if algo in ("TQC", "CQL", "IQL", "SAC") else spaces.Discrete(3))
    spec.inference_only = inference_only
    spec.model_config = {**EXTRAS.get(algo, {}), **spec.model_config, **extra}
    return spec.build()


def train_batch(space, actions, size=6):
    actions.seed(0)
    taken = torch.as_tensor(np.stack([np.asarray(actions.sample()) for _ in range(size)]))
    return {
        Columns.OBS: batch_of(space, size),
        Columns.NEXT_OBS: batch_of(space, size, seed=1),
        Columns.ACTIONS: taken,
    }


def all_finite(out):
    return all(torch.isfinite(v).all() for v in out.values() if isinstance(v, torch.Tensor))


@pytest.mark.parametrize("algo", list(MODULES))
def test_every_algorithm_trains_and_acts_over_our_networks(algo):
    built = module(algo)
    if hasattr(built, "make_target_networks"):
        built.make_target_networks()
    out = built.forward_train(train_batch(VECTOR, built.action_space))
    assert all_finite(out)
    acted = built.forward_inference({Columns.OBS: batch_of(VECTOR, 4)})
    assert (Columns.ACTIONS in acted) or (Columns.ACTION_DIST_INPUTS in acted)
    assert not any(v.requires_grad for v in acted.values() if isinstance(v, torch.Tensor))


@pytest.mark.parametrize("algo", [a for a in MODULES if FAMILIES[a] != "actor_critic" or a in ("PPO", "BC")])
def test_the_saved_network_gives_what_the_module_gives(algo):
    built = module(algo)
    network = build_network(algo, VECTOR, built.action_space, built.model_config)
    network.load_state_dict(built.network_state())
    observation = batch_of(VECTOR, 9)
    mine, _ = network(observation)
    theirs = built.forward_inference({Columns.OBS: observation})
    if algo == "DQN":
        assert torch.equal(mine.argmax(-1), theirs[Columns.ACTIONS])
    else:
        assert torch.equal(mine, theirs[Columns.ACTION_DIST_INPUTS])


@pytest.mark.parametrize(
    ("algo", "section"),
    [
        ("PPO", SMALL),
        ("PPO", {**SMALL, "vf_share_layers": True}),
        ("PPO", {**SMALL, "use_lstm": True}),
        ("APPO", SMALL),
        ("DQN", SMALL),
        ("SAC", SMALL),
        ("TQC", SMALL),
    ],
)
def test_env_runners_take_the_learners_weights(algo, section):
    learner, runner = module(algo, section=section), module(algo, section=section, inference_only=True)
    if hasattr(learner, "make_target_networks"):
        learner.make_target_networks()
    runner.set_state(learner.get_state(inference_only=True))
    sent = learner.get_state(inference_only=True)
    assert set(sent) == set(runner.get_state())
    for name, value in runner.get_state().items():
        assert np.array_equal(value, sent[name]), name


def test_env_runners_carry_no_critic():
    names = set(module("PPO", inference_only=True).get_state())
    assert names
    assert not any("vf" in name or "critic" in name for name in names)


def test_a_recurrent_critic_keeps_its_memory_on_env_runners():
    runner = module("PPO", section={**SMALL, "use_lstm": True, "lstm_cell_size": 4}, inference_only=True)
    state = map_nested(lambda leaf: leaf.unsqueeze(0), runner.get_initial_state())
    assert set(state) == {"actor", "critic"}
    batch = {Columns.OBS: batch_of(VECTOR, 1, 1), Columns.STATE_IN: state}
    after = runner.forward_exploration(batch)[Columns.STATE_OUT]
    assert after["critic"]["h"].abs().sum() > 0


def test_values_of_a_sequence_equal_those_of_its_steps():
    built = module("PPO", section={**SMALL, "use_lstm": True, "lstm_cell_size": 4})
    sequence = batch_of(VECTOR, 2, 5)
    start = map_nested(lambda leaf: leaf.expand(2, -1), built.get_initial_state())
    whole = built.compute_values({Columns.OBS: sequence, Columns.STATE_IN: start})
    state, values = start, []
    for t in range(5):
        batch = {Columns.OBS: sequence[:, t : t + 1], Columns.STATE_IN: state}
        values.append(built.compute_values(batch))
        state = built.forward_exploration(batch)[Columns.STATE_OUT]
    assert torch.allclose(torch.cat(values, 1), whole, atol=1e-6)


def test_dqn_explores_every_allowed_action_and_no_other():
    built = module("DQN", space=MASK3, actions=spaces.Discrete(3), epsilon=1.0)
    for parameter in built.parameters():  # all Q values 0: RLlib's own exploration would fail here
        parameter.data.zero_()
    observation = batch_of(MASK3, 3000)
    mask = torch.tensor([1, 0, 1]).repeat(3000, 1)
    batch = {Columns.OBS: {**observation, "action_mask": mask}}
    counts = torch.bincount(built.forward_exploration(batch, t=0)[Columns.ACTIONS], minlength=3)
    assert counts[1] == 0
    assert abs(counts[0] - counts[2]) < 300


def test_dqn_epsilon_is_the_share_of_random_actions():
    built = module("DQN", epsilon=0.3, actions=spaces.Discrete(3))
    observation = batch_of(VECTOR, 1).expand(6000, -1)
    greedy = built.forward_inference({Columns.OBS: observation[:1]})[Columns.ACTIONS]
    taken = built.forward_exploration({Columns.OBS: observation}, t=0)[Columns.ACTIONS]
    assert abs((taken != greedy).float().mean() - 0.3 * 2 / 3) < 0.03


def test_dqn_exploration_keeps_the_shape_of_recurrent_batches():
    built = module(
        "DQN", section={**SMALL, "use_lstm": True, "lstm_cell_size": 4}, actions=spaces.Discrete(3)
    )
    state = map_nested(lambda leaf: leaf.expand(5, -1), built.get_initial_state())
    out = built.forward_exploration({Columns.OBS: batch_of(VECTOR, 5, 1), Columns.STATE_IN: state}, t=0)
    assert out[Columns.ACTIONS].shape == (5, 1)
    assert set(out[Columns.STATE_OUT]) == {"h", "c"}


@pytest.mark.parametrize("atoms", [1, 5])
def test_dqn_targets_never_choose_a_masked_action(atoms):
    built = module("DQN", space=MASK3, actions=spaces.Discrete(3), num_atoms=atoms)
    built.make_target_networks()
    batch = train_batch(MASK3, spaces.Discrete(3), size=200)
    mask = torch.zeros(200, 3)
    mask[:, 1] = 1
    batch[Columns.NEXT_OBS] = {**batch[Columns.NEXT_OBS], "action_mask": mask}
    out = built.forward_train(batch)
    assert (out["qf_next_preds"].argmax(-1) == 1).all()
    assert (out["qf_target_next_preds"].argmax(-1) == 1).all()


def test_discrete_sac_with_masks_has_finite_losses_and_gradients():
    built = module("SAC", space=MASK3, actions=spaces.Discrete(3))
    built.make_target_networks()
    out = built.forward_train(train_batch(MASK3, spaces.Discrete(3), size=50))
    assert all_finite(out)
    probs, logs = out["action_probs"], out["action_log_probs"]
    (probs * (logs - out["qf_preds"].detach())).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in built.pi.parameters())
    mask = train_batch(MASK3, spaces.Discrete(3), size=50)[Columns.OBS]["action_mask"]
    forbidden = (mask == 0) & mask.any(dim=-1, keepdim=True)
    assert forbidden.any()
    assert (probs[forbidden] == 0).all()


def test_the_greedy_action_of_sac_is_squashed():
    built = module("SAC")
    distribution = built.get_inference_action_dist_cls().from_logits(torch.tensor([[0.7, -3.0, 0.0, 0.0]]))
    assert torch.allclose(distribution.to_deterministic().sample(), torch.tanh(torch.tensor([[0.7, -3.0]])))


def test_appo_keeps_an_older_policy():
    built = module("APPO")
    built.make_target_networks()
    batch = {Columns.OBS: batch_of(VECTOR, 3)}
    before = built.forward_target(batch)
    now = built.forward_train(batch)[Columns.ACTION_DIST_INPUTS]
    (old,) = before.values()
    assert torch.equal(old, now)
    next(iter(built.net.pi.parameters())).data.add_(1.0)
    assert torch.equal(next(iter(built.forward_target(batch).values())), old)


def test_an_rlmodule_is_taken_as_it_is(tmp_path):
    (tmp_path / "rf_own_rlmodule.py").write_text(
        "from ray.rllib.core.rl_module.torch import TorchRLModule\nclass Own(TorchRLModule):\n    pass\n"
    )
    spec = module_spec(
        "PPO", {"custom_model": "rf_own_rlmodule:Own", "custom_model_config": {"a": 1}}, [str(tmp_path)]
    )
    assert spec.module_class.__name__ == "Own"
    assert issubclass(spec.module_class, RLModule)
    assert spec.model_config["a"] == 1
    assert spec.catalog_class is None


def test_dreamer_keeps_rllibs_module():
    assert module_spec("DreamerV3", {}) is None


def test_what_travels_to_runners_is_plain():
    import json

    json.dumps(module_spec("PPO", {"fcnet_hiddens": (3, 4)}, ["/x"]).model_config)


def test_multi_discrete_actions_sample_within_bounds():
    built = module("PPO", actions=spaces.MultiDiscrete([2, 3]))
    logits = built.forward_exploration({Columns.OBS: batch_of(VECTOR, 100)})[Columns.ACTION_DIST_INPUTS]
    actions = built.get_exploration_action_dist_cls().from_logits(logits).sample()
    assert actions.shape == (100, 2)
    assert actions.max(0).values.tolist() == [1, 2]


def test_images_go_through_convolutions():
    built = module("PPO", space=spaces.Box(0, 255, (20, 20, 3), np.uint8))
    assert any(isinstance(part, torch.nn.Conv2d) for part in built.modules())
