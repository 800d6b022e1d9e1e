"""Networks for every kind of observation and action, masks, and memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rayfish.errors import ModelError
from rayfish.models.actions import MASKED, mask_logits, mask_values
from rayfish.models.build import build_network
from rayfish.models.encoder import ActionEncoder, Encoder, OnehotLeaf
from rayfish.models.layers import activation, convolutions, initialise
from rayfish.models.networks import q_values
from rayfish.models.options import resolve
from rayfish.models.spaces import leaves
from rayfish.nested import map_nested

SMALL = {"fcnet_hiddens": [16, 8]}
VECTOR = spaces.Box(-1, 1, (4,), np.float32)
MASK3 = spaces.Dict({"observations": VECTOR, "action_mask": spaces.Box(0, 1, (3,), np.int8)})

OBSERVATIONS = [
    VECTOR,
    spaces.Box(-1, 1, (2, 3), np.float64),
    spaces.Box(0, 1, (), np.float32),
    spaces.Box(0, 255, (84, 84, 4), np.uint8),
    spaces.Box(0, 1, (3, 20, 30), np.float32),
    spaces.Box(0, 1, (9, 12), np.float32),
    spaces.Discrete(5, start=2),
    spaces.MultiDiscrete([3, 4]),
    spaces.MultiBinary((2, 2)),
    spaces.Tuple([spaces.Discrete(2), VECTOR]),
    spaces.Dict(
        {"image": spaces.Box(0, 255, (16, 16, 3), np.uint8), "deep": spaces.Dict({"n": spaces.Discrete(3)})}
    ),
    MASK3,
]
ACTIONS = [spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.Box(-2, 2, (2,), np.float32)]


def batch_of(space, *lead, seed=0):
    """Tensors of random observations with leading axes."""
    space.seed(seed)
    flat = [space.sample() for _ in range(int(np.prod(lead)))]
    stacked = map_nested(lambda *parts: np.stack([np.asarray(p) for p in parts]), *flat)
    return map_nested(lambda a: torch.as_tensor(a.reshape(*lead, *a.shape[1:])), stacked)


@pytest.mark.parametrize("space", OBSERVATIONS, ids=lambda s: f"{type(s).__name__}{s.shape or ''}")
def test_every_observation_is_encoded_alike_with_one_and_two_leading_axes(space):
    encoder = Encoder(space, resolve(SMALL))
    flat, _ = encoder.encode(batch_of(space, 6))
    deep, _ = encoder.encode(batch_of(space, 2, 3))
    assert flat.shape == (6, 8)
    assert torch.allclose(deep.reshape(6, 8), flat, atol=1e-6)
    assert flat.std() > 0


@pytest.mark.parametrize(
    ("algo", "actions"),
    [("PPO", space) for space in ACTIONS] + [("SAC", ACTIONS[0]), ("SAC", ACTIONS[2])],
    ids=str,
)
def test_actor_gives_the_numbers_of_the_action_distribution(algo, actions):
    network = build_network(algo, VECTOR, actions, resolve(SMALL))
    numbers, state = network(batch_of(VECTOR, 7))
    wanted = {spaces.Discrete: 3, spaces.MultiDiscrete: 5, spaces.Box: 4}[type(actions)]
    assert numbers.shape == (7, wanted)
    assert state == {}


def test_bytes_are_scaled_and_small_whole_numbers_are_not():
    model = resolve({**SMALL, "fcnet_hiddens": []})
    pixels = Encoder(spaces.Box(0, 255, (3,), np.uint8), model)
    grid = Encoder(spaces.Box(0, 1, (3,), np.uint8), model)
    ones = torch.full((1, 3), 255, dtype=torch.uint8)
    assert torch.allclose(pixels.encode(ones)[0], torch.ones(1, 3))
    assert torch.equal(grid.encode(torch.ones((1, 3), dtype=torch.uint8))[0], torch.ones(1, 3))


def test_onehot_respects_start_and_survives_padding():
    (leaf,) = leaves(spaces.Discrete(3, start=5))
    layer = OnehotLeaf(leaf)
    assert layer(torch.tensor([5, 7])).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert layer(torch.tensor([0])).sum() == 1  # a padded step


def test_multi_discrete_onehot_is_one_block_per_component():
    (leaf,) = leaves(spaces.MultiDiscrete([2, 3]))
    assert OnehotLeaf(leaf)(torch.tensor([[1, 2]])).tolist() == [[0, 1, 0, 0, 1]]


def test_masked_actions_have_probability_zero_and_finite_statistics():
    logits = torch.zeros(1, 3, requires_grad=True)
    masked = mask_logits(logits, torch.tensor([[1, 0, 1]]))
    distribution = torch.distributions.Categorical(logits=masked)
    assert distribution.probs[0, 1] == 0
    assert torch.isfinite(distribution.entropy()).all()
    kl = torch.distributions.kl_divergence(distribution, torch.distributions.Categorical(logits=masked * 1.0))
    (distribution.entropy().sum() + kl.sum()).backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("algo", ["PPO", "DQN", "SAC"])
def test_no_masked_action_is_ever_the_choice(algo):
    network = build_network(algo, MASK3, spaces.Discrete(3), resolve(SMALL))
    observation = batch_of(MASK3, 500)
    observation["action_mask"][torch.arange(500), torch.arange(500) % 3] = 1
    numbers, _ = network(observation)
    allowed = observation["action_mask"] > 0
    assert (numbers[~allowed] == MASKED).all()
    assert allowed.gather(1, numbers.argmax(-1, keepdim=True)).all()


def test_values_under_an_empty_mask_stay_values():
    values = torch.tensor([[1.0, 2.0]])
    assert torch.equal(mask_values(values, torch.zeros(1, 2)), values)


@pytest.mark.parametrize("share", [True, False])
def test_lstm_step_by_step_equals_the_sequence(share):
    torch.manual_seed(0)
    model = resolve({**SMALL, "use_lstm": True, "lstm_cell_size": 5, "vf_share_layers": share})
    network = build_network("PPO", VECTOR, spaces.Discrete(3), model)
    sequence = torch.randn(2, 6, 4)
    start = map_nested(lambda leaf: leaf.expand(2, -1), network.initial_state())
    whole, after = network(sequence, start)
    state = start
    steps = []
    for t in range(6):
        logits, state = network(sequence[:, t : t + 1], state)
        steps.append(logits)
    assert torch.allclose(torch.cat(steps, dim=1), whole, atol=1e-6)
    map_nested(torch.testing.assert_close, state, after)
    assert network.value(sequence, start).shape == (2, 6)
    assert not torch.allclose(whole[:, 0], network(sequence[:, :1], after)[0][:, 0])  # the state matters


def test_value_reuses_the_shared_features():
    network = build_network("PPO", VECTOR, spaces.Discrete(3), resolve({**SMALL, "vf_share_layers": True}))
    observation = batch_of(VECTOR, 3)
    _, _, features = network.policy(observation)
    assert torch.equal(network.value(observation, None, features), network.value(observation))
    separate = build_network("PPO", VECTOR, spaces.Discrete(3), resolve(SMALL))
    assert separate.policy(observation)[2] is None


def test_dueling_q_values_are_value_plus_centred_advantage():
    q, _, _ = q_values(torch.tensor([[1.0, 3.0]]), torch.tensor([[10.0]]), 1, (0.0, 0.0))
    assert q.tolist() == [[9.0, 11.0]]


def test_distributional_q_values_use_both_streams():
    advantages = torch.zeros(1, 6)
    towards_high = torch.tensor([[-50.0, -50.0, 50.0]])
    q, logits, probabilities = q_values(advantages, towards_high, 3, (-1.0, 1.0))
    assert torch.allclose(q, torch.ones(1, 2))
    assert logits.shape == probabilities.shape == (1, 2, 3)


def test_free_log_std_is_one_parameter_and_log_std_is_clipped():
    model = resolve({**SMALL, "free_log_std": True, "log_std_clip_param": 0.5})
    network = build_network("PPO", VECTOR, spaces.Box(-1, 1, (2,), np.float32), model)
    network.pi.log_std.data.fill_(3.0)
    numbers, _ = network(batch_of(VECTOR, 4))
    assert (numbers[:, 2:] == 0.5).all()


def test_options_reach_the_layers():
    model = resolve(
        {
            "fcnet_hiddens": [5],
            "fcnet_activation": "elu",
            "fcnet_use_layernorm": True,
            "post_fcnet_hiddens": [7],
            "fcnet_kernel_initializer": "zeros_",
        }
    )
    network = build_network("PPO", VECTOR, spaces.Discrete(3), model)
    kinds = [type(layer).__name__ for layer in network.encoder.mlp]
    assert kinds == ["Linear", "LayerNorm", "ELU"]
    assert (network.encoder.mlp[0].weight == 0).all()
    assert [layer.out_features for layer in network.pi if hasattr(layer, "out_features")] == [7, 3]


def test_convolutions_keep_ceil_of_size_over_stride():
    net, size = convolutions(85, 43, 3, [[4, 8, 4], [6, [3, 2], [2, 1]]], resolve({}))
    assert net(torch.zeros(2, 3, 85, 43)).shape == (2, size) == (2, 6 * 11 * 11)


def test_fusion_changes_where_the_action_meets_the_observation():
    early = ActionEncoder(VECTOR, 2, resolve(SMALL))
    late = ActionEncoder(VECTOR, 2, resolve({**SMALL, "fusionnet_hiddens": [6]}))
    assert early.mlp[0].in_features == 6
    assert (late.before[0].in_features, late.mlp[0].in_features) == (4, 10)
    assert late.encode(torch.zeros(3, 4), torch.zeros(3, 2)).shape == (3, 6)


def test_a_wrong_activation_or_initialiser_says_what_exists():
    with pytest.raises(ModelError, match="did you mean 'relu'"):
        activation("rellu")
    with pytest.raises(ModelError, match="no function 'glorot'"):
        initialise(torch.nn.Linear(1, 1), {"fcnet_kernel_initializer": "glorot"}, "fcnet")


def test_dqn_refuses_box_actions():
    with pytest.raises(ModelError, match="DQN needs Discrete"):
        build_network("DQN", VECTOR, spaces.Box(-1, 1, (2,), np.float32), resolve(SMALL))
