"""Values on a program's command line: what programs read, and what Hydra's own parser makes of them."""

from __future__ import annotations

import random
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from rayfish.sweep.program.command import for_hydra, words_of

HYDRA = OverridesParser.create()
ODD = "ab1.0e-+:/\\'\"%@$*?|=,~#!&;(){}[]<> \tünïN_"


def read_by_hydra(value: Any) -> Any:
    (override,) = HYDRA.parse_overrides([f"x={for_hydra(value)}"])
    return override.value()


def test_numpys_numbers_are_written_like_pythons():
    params = {
        "lr": np.float64(0.1),
        "half": np.float32(0.5),
        "n": np.int64(3),
        "on": np.bool_(True),
        "off": np.bool_(False),
        "sizes": np.array([64, 32]),
        "mixed": [np.int64(1), np.float64(0.25), np.bool_(True)],
    }
    template = [f"{{{key}}}" for key in params]
    assert words_of(template, "template", params, {}) == [
        "0.1", "0.5", "3", "true", "false", "[64,32]", "[1,0.25,true]",
    ]  # fmt: skip
    assert words_of([], "hydra", params, {}) == [
        "lr=0.1", "half=0.5", "n=3", "on=true", "off=false", "sizes=[64,32]", "mixed=[1,0.25,true]",
    ]  # fmt: skip
    assert words_of([], "flags", params, {}) == [
        "--lr", "0.1", "--half", "0.5", "--n", "3", "--on", "--sizes", "64", "32", "--mixed", "1", "0.25",
        "true",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["C:\\new dir", "dir\\", "two\\\\", "it\\'s", "'", "\\", "", " ", "ünï", "a b", "a,b", "a=b", "${x}"],
)
def test_a_text_reaches_hydra_as_it_is(text):
    assert read_by_hydra(text) == text
    assert read_by_hydra([text, {"key": text}]) == [text, {"key": text}]


@pytest.mark.parametrize(
    "text", ["true", "False", "null", "NULL", "1e-3", "1", "-1", "+.5", "1_0", "nan", "Inf"]
)
def test_a_text_that_looks_like_something_else_stays_a_text(text):
    assert read_by_hydra(text) == text and type(read_by_hydra(text)) is str


@pytest.mark.parametrize(
    "value", [True, None, 0, -3, 1e-05, 1e16, -0.5, float("inf"), [1, [2.5, None]], {"a": 1}]
)
def test_a_value_that_is_no_text_stays_what_it_is(value):
    assert read_by_hydra(value) == value and type(read_by_hydra(value)) is type(value)


@pytest.mark.parametrize("text", ["relu", "a/b.c", "/tmp/x-1.zip", "_hidden", "mod:func", "runs/50%@a+b"])
def test_a_plain_text_needs_no_quotation_marks(text):
    assert for_hydra(text) == text and read_by_hydra(text) == text


def test_any_text_reaches_hydra_as_it_is():
    rng = random.Random(0)
    for _ in range(1500):
        text = "".join(rng.choices(ODD, k=rng.randint(1, 7)))
        assert read_by_hydra(text) == text and type(read_by_hydra(text)) is str, text


def test_a_path_is_a_text():
    assert read_by_hydra(PurePosixPath("/my runs/a")) == "/my runs/a"
