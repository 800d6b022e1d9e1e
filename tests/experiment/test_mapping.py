"""Mapping functions of every time, called as they want to be."""

from __future__ import annotations

import pytest

from rayfish.experiment.mapping import PolicyMapping, load_mapping

FUNCTIONS = """
def agent_alone(agent_id):
    return f"p{agent_id}"

def with_episode(agent_id, episode):
    return f"p{agent_id}"

def of_ray_1(agent_id, episode, worker, **kwargs):
    assert worker is None
    return f"p{agent_id}"

def of_today(agent_id, episode, **kwargs):
    return f"p{agent_id}"

def open_handed(*args, **kwargs):
    return f"p{args[0]}"

class Callable:
    def __call__(self, agent_id, episode, worker, **kwargs):
        return f"p{agent_id}"
"""


@pytest.mark.parametrize(
    "name", ["agent_alone", "with_episode", "of_ray_1", "of_today", "open_handed", "Callable"]
)
def test_a_mapping_is_called_with_what_it_takes(name, tmp_path):
    file = tmp_path / f"mapping_by_{name.lower()}.py"
    file.write_text(FUNCTIONS)
    mapping = load_mapping(f"{file}:{name}", [tmp_path])
    assert mapping(3, None, something="new") == "p3"


def test_the_class_that_old_files_name_is_found():
    path = "ray.rllib.examples.multi_agent_and_self_play.policy_mapping_fn.PolicyMappingFn"
    assert load_mapping(path, [])(1, None) == "p1"


@pytest.mark.parametrize(
    ("globs", "agent", "policy"),
    [
        ({"*": "a", "red": "b"}, "red", "b"),
        ({"*": "a", "red": "b"}, "blue", "a"),
        ({"red_*": "b", "*": "a"}, "red_1", "b"),
        ({"x[1]": "b", "*": "a"}, "x[1]", "b"),
        ({}, "b", "b"),
        ({}, "c", "a"),
    ],
)
def test_an_agents_own_id_counts_before_patterns(globs, agent, policy):
    assert PolicyMapping(["a", "b"], globs)(agent) == policy


def test_one_policy_is_every_agents_whatever_the_mapping_says():
    assert PolicyMapping(["a"], {"*": "b"}, function="no_such_module:f")("red") == "a"
