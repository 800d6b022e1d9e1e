"""Settings from Python: dictionaries in place of words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rayfish import Experiment
from rayfish.errors import RayfishError
from rayfish.experiment.words import as_words, word


@pytest.mark.parametrize(
    "value",
    [
        "true", "null", "1e-3", "a b", "it's", "C:\\", "a\\'b", "x=1,y", "", "ALE/Pong-v5", "file.py:Name",
        True, None, 3, 1e-7, [1, [2.5, "x"]], {"a": {"b": [1]}},
    ],
)  # fmt: skip
def test_every_value_comes_back_as_it_was(value):
    found = Experiment.compose("cartpole", [word("environment.env_config.thing", value)])
    assert found.get("environment.env_config.thing") == value


@pytest.mark.parametrize(
    "overrides",
    [
        {"training.lr": 0.25, "training.model.fcnet_hiddens": [8]},
        {"training": {"lr": 0.25, "model": {"fcnet_hiddens": (8,)}}},
        [{"training": {"lr": np.float64(0.25)}}, "training.model.fcnet_hiddens=[8]"],
    ],
)
def test_dictionaries_dotted_or_nested_are_overrides(overrides):
    found = Experiment.compose("cartpole", overrides)
    assert found.get("training.lr") == 0.25
    assert found.get("training.model.fcnet_hiddens") == [8]
    assert found.get("training.minibatch_size") == 1024, "its neighbours stay"
    assert Experiment.compose("cartpole").with_overrides(overrides).get("training.lr") == 0.25


def test_classes_become_import_paths_and_what_has_none_is_refused():
    assert as_words({"a.b": Experiment, "c": Path("x/y")}) == [
        "a.b='rayfish.experiment.experiment:Experiment'",
        "c=x/y",
    ]
    with pytest.raises(RayfishError, match=r"training\.td_error_loss_fn is a lambda"):
        as_words({"training": {"td_error_loss_fn": lambda x: x}})
    with pytest.raises(RayfishError, match="an object that an experiment cannot hold"):
        as_words({"environment.env_config": {"rng": np.random.default_rng(0)}})
    with pytest.raises(RayfishError, match="5 is not an override"):
        as_words([5])
