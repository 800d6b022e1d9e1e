"""What a model sees of a space, and spaces that survive JSON."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rayfish.errors import ModelError
from rayfish.models.space_json import from_json, to_json
from rayfish.models.spaces import (
    action_outputs,
    default_filters,
    image_layout,
    leaves,
    split_mask,
    without_mask,
)

MASKED = spaces.Dict(
    {"observations": spaces.Box(-1, 1, (4,), np.float32), "action_mask": spaces.Box(0, 1, (3,), np.int8)}
)


def test_mask_is_taken_out_and_the_rest_is_what_the_model_sees():
    seen, mask = split_mask(MASKED)
    assert seen == MASKED["observations"]
    assert mask == MASKED["action_mask"]
    assert without_mask({"observations": 1, "action_mask": 2}, MASKED) == 1


def test_mask_beside_other_keys_leaves_a_dict():
    space = spaces.Dict(
        {"a": spaces.Discrete(2), "b": spaces.Discrete(3), "action_mask": spaces.MultiBinary(2)}
    )
    seen, _ = split_mask(space)
    assert set(seen.spaces) == {"a", "b"}
    assert without_mask({"a": 1, "b": 2, "action_mask": 3}, space) == {"a": 1, "b": 2}


def test_mask_alone_is_refused():
    with pytest.raises(ModelError, match="nothing but 'action_mask'"):
        split_mask(spaces.Dict({"action_mask": spaces.MultiBinary(2)}))


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((84, 84, 3), (84, 84, 3, False)),
        ((4, 84, 84), (84, 84, 4, True)),
        ((30, 40), (30, 40, 1, True)),
        ((64, 64, 64), (64, 64, 64, False)),
    ],
)
def test_channels_are_found(shape, layout):
    assert image_layout(spaces.Box(0, 1, shape, np.float32)) == layout


def test_small_boxes_are_vectors_until_filters_are_written():
    small = spaces.Box(0, 1, (5, 5, 3), np.float32)
    assert leaves(small)[0].kind == "vector"
    assert leaves(small, convolve=True)[0].kind == "image"


@pytest.mark.parametrize("size", [(8, 8), (10, 31), (42, 42), (84, 84), (128, 128), (210, 160), (512, 8)])
def test_default_filters_shrink_any_image_to_a_few_pixels(size):
    height, width = size
    for _, _, stride in default_filters(height, width):
        height, width = -(-height // stride), -(-width // stride)
    assert max(height, width) <= 6


def test_unknown_kind_of_observation_names_its_place():
    space = spaces.Dict({"words": spaces.Text(5)})
    with pytest.raises(ModelError, match="Text at 'words'"):
        leaves(space)


@pytest.mark.parametrize(
    ("space", "size"),
    [(spaces.Discrete(5), 5), (spaces.MultiDiscrete([2, 3]), 5), (spaces.Box(-1, 1, (3,), np.float32), 6)],
)
def test_action_outputs(space, size):
    assert action_outputs(space) == size


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (3,), np.float32),
        spaces.Box(np.array([-4.8, -np.inf], np.float32), np.array([4.8, np.inf], np.float32)),
        spaces.Box(0, 255, (8, 8, 3), np.uint8),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 5], start=[1, 0]),
        spaces.MultiBinary((2, 3)),
        spaces.Tuple([spaces.Discrete(2), spaces.Dict({"x": spaces.MultiBinary(4)})]),
        MASKED,
        gym.make("CartPole-v1").observation_space,
    ],
    ids=str,
)
def test_spaces_survive_json(space):
    import json

    again = from_json(json.loads(json.dumps(to_json(space), allow_nan=False)))
    assert again == space
    assert again.dtype == space.dtype
