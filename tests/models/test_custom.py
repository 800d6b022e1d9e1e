"""A user's own model: each form it may have, each way to name it, each way it may be wrong."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rayfish.errors import ModelError, RayfishError
from rayfish.models.build import build_network
from rayfish.models.options import resolve

VECTOR = spaces.Box(-1, 1, (4,), np.float32)
ACTIONS = spaces.Discrete(3)

MODELS = """
import torch
from torch import nn

class Both(nn.Module):
    def __init__(self, obs_space, action_space, num_outputs, model_config, name, width=8):
        super().__init__()
        self.given = (obs_space, action_space, num_outputs, model_config, name, width)
        self.body = nn.Linear(obs_space.shape[0], width)
        self.policy = nn.Linear(width, num_outputs)
        self.critic = nn.Linear(width, 1)
    def forward(self, obs):
        hidden = torch.tanh(self.body(obs))
        return self.policy(hidden), self.critic(hidden)

class Logits(nn.Module):
    def __init__(self, observation_space, num_outputs, **kwargs):
        super().__init__()
        self.kwargs = kwargs
        self.policy = nn.Linear(observation_space.shape[0], num_outputs)
    def forward(self, obs):
        return self.policy(obs)

class Memory(nn.Module):
    def __init__(self, obs_space, num_outputs):
        super().__init__()
        self.cell = nn.GRU(obs_space.shape[0], 6, batch_first=True)
        self.policy, self.critic = nn.Linear(6, num_outputs), nn.Linear(6, 1)
    def initial_state(self):
        return torch.zeros(6)
    def forward(self, obs, state):
        out, after = self.cell(obs, state.unsqueeze(0).contiguous())
        return self.policy(out), self.critic(out), after.squeeze(0)

class Pair(nn.Module):
    def __init__(self, obs_space, num_outputs):
        super().__init__()
        self.cell = nn.LSTM(obs_space.shape[0], 6, batch_first=True)
        self.policy = nn.Linear(6, num_outputs)
    def initial_state(self):
        return torch.zeros(6), torch.zeros(6)
    def forward(self, obs, state):
        out, (h, c) = self.cell(obs, tuple(part.unsqueeze(0).contiguous() for part in state))
        return self.policy(out), (h.squeeze(0), c.squeeze(0))

class Structured(nn.Module):
    def __init__(self, obs_space, num_outputs):
        super().__init__()
        self.seen = obs_space
        self.policy = nn.Linear(4, num_outputs)
        self.names = nn.Embedding(3, 4)
    def forward(self, obs):
        return self.policy(obs["v"] + self.names(obs["d"]))

class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, obs):
        return self.layer(obs)

class Crashes(nn.Module):
    def forward(self, obs):
        raise ValueError("boom")

class Plain:
    pass

def function(obs):
    return obs
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("code")
    (place / "rf_user_models.py").write_text(MODELS)
    (place / "models").mkdir()
    (place / "models" / "rf_customnet.py").write_text(MODELS + "\nclass CustomModel(Both):\n    pass\n")
    return place


def model(folder, name, **config):
    section = {"custom_model": name, "custom_model_config": config, "fcnet_hiddens": [8]}
    return {**resolve(section), "paths": [str(folder)]}


def network(folder, name, algo="PPO", space=VECTOR, actions=ACTIONS, **config):
    return build_network(algo, space, actions, model(folder, name, **config))


@pytest.mark.parametrize(
    "name", ["rf_user_models:Both", "rf_user_models.Both", "rf_user_models.py:Both", "rf_customnet"]
)
def test_a_model_is_found_by_every_form_of_its_name(folder, name):
    logits, state = network(folder, name)(torch.randn(5, 4))
    assert logits.shape == (5, 3)
    assert state == {}


def test_the_constructor_gets_what_it_asks_for(folder):
    net = network(folder, "rf_user_models:Both", width=4)
    obs_space, action_space, outputs, config, name, width = net.model.given
    assert (obs_space, action_space, outputs, name, width) == (VECTOR, ACTIONS, 3, "Both", 4)
    assert config["custom_model_config"] == {"width": 4}
    assert network(folder, "rf_user_models:Logits", free=1).model.kwargs == {"free": 1}


def test_logits_alone_get_a_critic_of_ours(folder):
    net = network(folder, "rf_user_models:Logits")
    observation = torch.randn(5, 4)
    _, _, reuse = net.policy(observation)
    assert reuse is None
    value = net.value(observation, None, reuse)
    assert value.shape == (5,)
    value.sum().backward()
    assert net.model.policy.weight.grad is None


def test_a_model_with_a_value_is_run_once(folder):
    net = network(folder, "rf_user_models:Both")
    observation = torch.randn(5, 4)
    _, _, reuse = net.policy(observation)
    assert net.critic_encoder is None
    assert torch.equal(net.value(observation, None, reuse), net.value(observation))


@pytest.mark.parametrize("name", ["rf_user_models:Memory", "rf_user_models:Pair"])
def test_recurrent_models_step_by_step_equal_the_sequence(folder, name):
    net = network(folder, name)
    sequence = torch.randn(2, 5, 4)
    state = {key: part.expand(2, -1) for key, part in net.initial_state().items()}
    whole, _ = net(sequence, state)
    steps = []
    for t in range(5):
        logits, state = net(sequence[:, t : t + 1], state)
        steps.append(logits)
    assert torch.allclose(torch.cat(steps, 1), whole, atol=1e-6)


def test_the_model_sees_the_observation_without_its_mask_and_typed(folder):
    inner = spaces.Dict({"v": spaces.Box(0, 9, (4,), np.uint8), "d": spaces.Discrete(3)})
    space = spaces.Dict({**inner.spaces, "action_mask": spaces.MultiBinary(3)})
    net = network(folder, "rf_user_models:Structured", space=space)
    assert set(net.model.seen.spaces) == {"v", "d"}
    batch = {
        "v": torch.ones(2, 4, dtype=torch.uint8),
        "d": torch.tensor([0, 2], dtype=torch.int32),
        "action_mask": torch.tensor([[0, 1, 1], [1, 0, 0]]),
    }
    logits, _ = net(batch)
    assert (logits < -1e8).tolist() == [[True, False, False], [False, True, True]]


@pytest.mark.parametrize("algo", ["DQN", "SAC", "BC"])
def test_a_model_serves_other_families_too(folder, algo):
    logits, _ = network(folder, "rf_user_models:Logits", algo=algo)(torch.randn(5, 4))
    assert logits.shape == (5, 3)


@pytest.mark.parametrize(
    ("name", "config", "says"),
    [
        ("rf_customnot", {}, "did you mean 'rf_customnet'"),
        ("rf_user_models:Narrow", {}, r"shape \(2, 2\) .* needs \(2, 3\)"),
        ("rf_user_models:Crashes", {}, "ValueError: boom"),
        ("rf_user_models:Plain", {}, "not a torch.nn.Module"),
        ("rf_user_models:function", {}, "is a function, not a class"),
        ("rf_user_models:Both", {"widht": 3}, "did you mean 'width'"),
        ("rf_user_models:Both", {"width": "x"}, "could not be built"),
        ("rf_user_models:Bohth", {}, "Both"),
    ],
)
def test_mistakes_are_distinguished(folder, name, config, says):
    with pytest.raises(RayfishError) as error:
        network(folder, name, **config)
    import re

    assert re.search(says, str(error.value), re.DOTALL), str(error.value)


def test_an_import_error_in_the_users_file_is_his(folder):
    (folder / "rf_broken.py").write_text(textwrap.dedent("import no_such_package_here\n"))
    with pytest.raises(RayfishError, match="no_such_package_here"):
        network(folder, "rf_broken:Model")


def test_weights_survive_the_state_dict(folder):
    first, second = network(folder, "rf_user_models:Logits"), network(folder, "rf_user_models:Logits")
    observation = torch.randn(3, 4)
    assert not torch.equal(first(observation)[0], second(observation)[0])
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(observation)[0], second(observation)[0])


def test_custom_error_is_a_model_error(folder):
    with pytest.raises(ModelError):
        network(folder, "rf_user_models:Narrow")
