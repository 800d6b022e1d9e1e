"""Rayfish's own keys as typed attributes: one declaration for values, defaults, types and documentation."""

import pickle
from typing import Any, Literal

from rayfish import Experiment
from rayfish.experiment.sections import SECTIONS, Field, ImportPath, Keys, Section, Sections, defaults, key


class ShapeKeys(Keys):
    """What a section
    looks like.
    """

    size: int = key(3, "How large.", unit="cells")
    mode: Literal["fast", "slow"] | None = key(None, "How.")
    creator: ImportPath | None = key(None, "What makes it.")
    extras: dict[str, Any] = key({}, "Anything.")


class Shaped(Sections):
    shape = Section(ShapeKeys, open_keys=("extras",))

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config


def test_a_key_reads_the_value_of_its_section_and_else_its_default() -> None:
    assert Shaped({"shape": {"size": 5}}).shape.size == 5
    assert Shaped({"shape": {"size": None}}).shape.size is None
    assert Shaped({"shape": {}}).shape.size == Shaped({}).shape.size == 3


def test_a_default_cannot_be_changed_through_a_view() -> None:
    Shaped({}).shape.extras["color"] = "red"
    assert Shaped({}).shape.extras == {}


def test_annotations_give_the_types_and_choices_of_the_reference() -> None:
    assert Shaped.shape.doc == "What a section looks like."
    assert Shaped.shape.own == {
        "size": Field("int", 3, "How large.", "cells"),
        "mode": Field("str | null", None, "How.", choices=("fast", "slow")),
        "creator": Field("path | null", None, "What makes it."),
        "extras": Field("dict", {}, "Anything."),
    }


def test_every_own_key_of_an_experiment_is_an_attribute_with_its_value() -> None:
    experiment = Experiment.compose("cartpole")
    for dotted, default in defaults().items():
        section, name = dotted.split(".")
        assert getattr(getattr(experiment, section), name) == experiment.get(dotted, default), dotted


def test_a_run_written_before_a_key_existed_has_its_default() -> None:
    old = Experiment({"algo": {"name": "PPO"}, "debugging": {"seed": 7}})
    assert (old.algo.name, old.debugging.seed, old.debugging.deterministic) == ("PPO", 7, False)
    assert old.rollouts.runner == SECTIONS["rollouts"].own["runner"].default


def test_an_experiment_with_its_sections_survives_pickling() -> None:
    experiment = Experiment.compose("cartpole")
    assert experiment.rollouts.runner == "auto"
    assert pickle.loads(pickle.dumps(experiment)) == experiment
