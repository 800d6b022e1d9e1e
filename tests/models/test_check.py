"""Wrong model sections and unfitting spaces, in words, before anything is built."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces

from rayfish.models.check import problems, section_problems, space_problems
from rayfish.models.options import GONE, MODEL_RENAMED, OPTIONS, resolve

VECTOR = spaces.Box(-1, 1, (4,), np.float32)
DISCRETE = spaces.Discrete(3)
BOX = spaces.Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"fcnet_hidens": [1]}, "did you mean training.model.fcnet_hiddens"),
        ({"use_attention": True}, "set use_lstm"),
        ({"lstm_use_prev_action": True}, "observe_last_action"),
        ({"fcnet_hiddens": 256}, "list of whole numbers"),
        ({"fcnet_hiddens": [64, 0]}, "list of whole numbers"),
        ({"fcnet_activation": "reul"}, "did you mean relu"),
        ({"conv_filters": [[32, 8]]}, "channels, kernel, stride"),
        ({"use_lstm": "yes"}, "true or false"),
        ({"lstm_cell_size": True}, "whole number"),
        ({"fcnet_hiddens": None}, "list of whole numbers"),
        ({"custom_model": "nowhere_to_be_found"}, "no nowhere_to_be_found.py"),
        ({"custom_model": "no_such_file.py:Model"}, "no_such_file.py"),
        ([1], "not a group of keys"),
    ],
)
def test_a_wrong_key_or_value_is_said(section, says):
    found = section_problems(section, "PPO")
    assert len(found) == 1
    assert says in str(found[0])
    assert found[0].key.startswith("training.model")


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"fcnet_hiddens": [64], "post_fcnet_hiddens": [32], "fcnet_activation": "swish"},
        {"conv_filters": [[16, [8, 4], 4], [32, 4, [2, 1]]], "fcnet_kernel_initializer": "orthogonal"},
        {"use_lstm": True, "max_seq_len": 10, "log_std_clip_param": 2, "conv_filters": None},
    ],
)
def test_right_sections_have_no_problem(section):
    assert problems(section, VECTOR, DISCRETE, "PPO") == []


def test_all_wrong_keys_are_said_at_once():
    assert len(section_problems({"a": 1, "use_lstm": 3, "grayscale": True}, "PPO")) == 3


@pytest.mark.parametrize("algo", ["SAC", "TQC", "CQL", "IQL"])
def test_algorithms_without_memory_refuse_an_lstm(algo):
    assert "recurrent" in section_problems({"use_lstm": True}, algo)[0].what


@pytest.mark.parametrize(
    ("algo", "actions", "says"),
    [
        ("DQN", BOX, "DQN learns Discrete actions"),
        ("TQC", DISCRETE, "TQC learns Box actions"),
        ("SAC", spaces.MultiDiscrete([2, 2]), "algo.name=PPO"),
        ("PPO", spaces.MultiBinary(3), "MultiDiscrete or Box"),
        ("PPO", spaces.Box(-1, 1, (2, 2), np.float32), "shape (2, 2)"),
        ("PPO", spaces.Box(0, 5, (2,), np.int64), "int64"),
        ("PPO", spaces.Discrete(3, start=1), "from 0, not from 1"),
    ],
)
def test_actions_the_algorithm_cannot_learn(algo, actions, says):
    (found,) = space_problems(VECTOR, actions, algo)
    assert says in str(found)


def test_observations_no_model_reads():
    assert "Text" in str(space_problems(spaces.Dict({"t": spaces.Text(3)}), DISCRETE, "PPO")[0])
    assert "nothing in it" in str(space_problems(spaces.Box(0, 1, (0,), np.float32), DISCRETE, "PPO")[0])
    assert space_problems(spaces.Dict({"t": VECTOR}), BOX, "CQL")


@pytest.mark.parametrize(
    ("mask", "actions", "algo", "says"),
    [
        (spaces.MultiBinary(4), DISCRETE, "PPO", "need (3,)"),
        (spaces.MultiBinary(2), BOX, "PPO", "cannot be masked"),
        (spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]), "PPO", "need (5,)"),
    ],
)
def test_masks_that_do_not_fit(mask, actions, algo, says):
    space = spaces.Dict({"observations": VECTOR, "action_mask": mask})
    (found,) = space_problems(space, actions, algo)
    assert says in str(found)


def test_fitting_masks_have_no_problem():
    space = spaces.Dict({"observations": VECTOR, "action_mask": spaces.MultiBinary(5)})
    assert space_problems(space, spaces.MultiDiscrete([2, 3]), "PPO") == []


def test_every_option_is_documented_and_its_default_is_right():
    for key, option in OPTIONS.items():
        assert option.doc.endswith(".") or option.doc.endswith("torch's own."), key
        assert section_problems({key: option.default}, "PPO") == [], key
    assert set(MODEL_RENAMED.values()) <= set(OPTIONS)
    assert not set(GONE) & set(OPTIONS)


def test_todays_name_wins_over_its_old_one_and_defaults_are_not_shared():
    assert resolve({"post_fcnet_hiddens": [3]})["head_fcnet_hiddens"] == [3]
    assert resolve({"post_fcnet_hiddens": [3], "head_fcnet_hiddens": [4]})["head_fcnet_hiddens"] == [4]
    resolve({})["fcnet_hiddens"].append(1)
    assert resolve({})["fcnet_hiddens"] == [256, 256]


def test_checking_needs_neither_torch_nor_ray():
    code = "import sys, rayfish.models.check; print(sorted({'torch', 'ray'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
