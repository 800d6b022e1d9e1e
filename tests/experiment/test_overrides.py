"""Words on the command line."""

from __future__ import annotations

import pytest

from rayfish import Experiment
from rayfish.errors import ConfigError, RayfishError
from rayfish.experiment import expand
from rayfish.experiment.overrides import split_words


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("training.lr=3e-4", "training.lr", 3e-4),
        ("environment.env=my_env.py:MyEnv", "environment.env", "my_env.py:MyEnv"),
        ("environment.env=ALE/Pong-v5", "environment.env", "ALE/Pong-v5"),
        ("environment.env_config.new=1", "environment.env_config.new", 1),
        ("+environment.env_config.new=1", "environment.env_config.new", 1),
        ("++training.lr=2", "training.lr", 2),
        ("environment.env_config.deep.er={a: [1, 2]}", "environment.env_config.deep.er.a", [1, 2]),
        ("training.model.fcnet_hiddens=[8,8]", "training.model.fcnet_hiddens", [8, 8]),
        ("runtime.name='a b'", "runtime.name", "a b"),
        ("training.grad_clip=null", "training.grad_clip", None),
        ("stop_conditions.rollout/return_mean=5", "stop_conditions.rollout/return_mean", 5),
        ("multi_agent.mapping.scout_*=scouts", "multi_agent.mapping.scout_*", "scouts"),
        ("training={lr: 7}", "training.lr", 7),
        ('multi_agent.mapping={"*":a,"red":b}', "multi_agent.mapping", {"*": "a", "red": "b"}),
        ('environment.env_config={"size": 8}', "environment.env_config.size", 8),
        ('environment.env_config.sizes=[{"a b": 1e-3}, "x#"]', "environment.env_config.sizes",
         [{"a b": 1e-3}, "x#"]),
        ('environment.env_config={"1": "true", "text": "it\'s, {a}: \\"b\\""}', "environment.env_config",
         {"1": "true", "text": 'it\'s, {a}: "b"'}),
        ('stop_conditions.env/error={"below": 0.2}', "stop_conditions.env/error", {"below": 0.2}),
        ('++environment.env_config.new={"n": null}', "environment.env_config.new", {"n": None}),
    ],
)  # fmt: skip
def test_value_is_set_and_its_origin_known(word, key, value, tmp_path):
    experiment = Experiment.compose("cartpole", [word])
    assert experiment.get(key, "absent") == value
    leaf = f"{key}.{next(iter(value))}" if isinstance(value, dict) else key
    assert experiment.origin(leaf) == "command line"
    experiment.save(tmp_path / "config.yaml")
    assert Experiment.load(tmp_path).get(key) == value
    assert Experiment.load(tmp_path).with_overrides([word]).get(key) == value


def test_a_value_in_json_is_one_value_of_a_multirun():
    words = ['environment.env_config={"size": 8}', "training.lr=1,2"]
    runs = expand(words, multirun=True, seeds=None)
    assert runs == [(words[0], "training.lr=1"), (words[0], "training.lr=2")]


@pytest.mark.parametrize("value", ['{"a": f(1,2)}', "[(1,2),(3,4)]", '{"a": 1', '{"a": 1, "a": 2}'])
def test_what_neither_hydra_nor_yaml_reads_as_it_is_meant_stays_a_mistake(value):
    with pytest.raises(ConfigError, match=r"environment\.env_config"):
        Experiment.compose("cartpole", [f"environment.env_config={value}"])


def test_dictionary_override_merges():
    experiment = Experiment.compose("cartpole", ["training={lr: 7}"])
    assert experiment.get("training.minibatch_size") == 1024


def test_later_word_wins():
    assert Experiment.compose("cartpole", ["training.lr=1", "training.lr=2"]).get("training.lr") == 2


def test_tilde_removes_a_key():
    experiment = Experiment.compose("cartpole", ["~training.vf_clip_param"])
    assert "vf_clip_param" not in experiment.section("training")
    assert "training.vf_clip_param" not in experiment.origins


def test_removing_what_is_not_there_is_a_mistake():
    with pytest.raises(ConfigError, match=r"training\.nothing"):
        Experiment.compose("cartpole", ["~training.nothing"])


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ('stop_conditions."env/final"={below: 0.2}', "'stop_conditions.env/final={below: 0.2}'"),
        ("multi_agent.mapping.'red_*'=red", "'multi_agent.mapping.red_*=red'"),
        ('"training.lr=0.1"', "training.lr=0.1"),
    ],
)
def test_quotes_in_a_key_are_refused_with_the_word_without_them(word, meant):
    with pytest.raises(ConfigError) as error:
        Experiment.compose("cartpole", [word])
    assert error.value.problems[0].hint == f"drop the quotes: {meant}"


def test_every_unreadable_word_is_reported_at_once():
    with pytest.raises(ConfigError) as error:
        Experiment.compose("cartpole", ["training.lr=[1", "a=(b", "training.gamma=0.9"])
    assert len(error.value.problems) == 2


def test_unreadable_words_are_explained_without_grammar_talk():
    with pytest.raises(ConfigError) as error:
        Experiment.compose("cartpole", ["training.lr==3", "a b=3"])
    text = str(error.value)
    assert "expecting" not in text and "Exception" not in text
    assert "has no readable key" in text


@pytest.mark.parametrize("depth", [41, 100, 300, 3000])
def test_a_dotted_key_goes_no_deeper_than_a_file(depth):
    key = f"environment.env_config.{'.'.join(['k'] * (depth - 2))}"
    for word in (f"{key}.k=1", f"{key}={{k: 1}}", f"~{key}.k"):
        with pytest.raises(ConfigError) as caught:
            Experiment.compose("cartpole", [word])
        (problem,) = caught.value.problems
        assert problem.what == "values are nested more than 40 deep"
        assert len(problem.key) < 100


def test_a_key_may_be_longer_than_a_file_name():
    key = f"environment.env_config.{'k' * 300}"
    assert Experiment.compose("cartpole", [f"{key}=1"]).get(key) == 1


def test_distribution_is_sent_to_tune():
    with pytest.raises(ConfigError, match="rayfish tune"):
        Experiment.compose("cartpole", ["training.lr=loguniform(1e-5,1e-2)"])


def test_several_values_need_multirun():
    with pytest.raises(ConfigError, match="--multirun"):
        Experiment.compose("cartpole", ["training.lr=1e-3,1e-4"])


def test_words_are_split_into_name_and_overrides():
    assert split_words(["cartpole", "a=1", "~b"]) == ("cartpole", ["a=1", "~b"])
    assert split_words([]) == (None, [])
    with pytest.raises(RayfishError, match="two experiments"):
        split_words(["cartpole", "pendulum"])


def test_without_sweep_there_is_one_run():
    assert expand(["a=1"], multirun=False, seeds=None) == [("a=1",)]
    assert expand([], multirun=False, seeds=None) == [()]


def test_multirun_makes_every_combination():
    runs = expand(["training.lr=1e-3,1e-4", "b=2", "c=range(0,2)"], multirun=True, seeds=None)
    assert len(runs) == 4
    assert runs[0] == ("training.lr=0.001", "b=2", "c=0")
    assert len(set(runs)) == 4


def test_multirun_over_presets_and_groups():
    runs = expand(["training/model=mlp,lstm"], multirun=True, seeds=None)
    assert runs == [("training/model=mlp",), ("training/model=lstm",)]


def test_seeds_count_up_from_the_base():
    assert expand([], multirun=False, seeds=2) == [("debugging.seed=2000",), ("debugging.seed=2001",)]
    runs = expand(["debugging.seed=7"], multirun=False, seeds=2)
    assert [run[-1] for run in runs] == ["debugging.seed=7", "debugging.seed=8"]
    assert Experiment.compose("cartpole", runs[1]).get("debugging.seed") == 8


def test_seeds_multiply_a_sweep():
    assert len(expand(["a=1,2"], multirun=True, seeds=3)) == 6


def test_sweep_without_multirun_names_every_word():
    with pytest.raises(ConfigError) as error:
        expand(["a=1,2", "b=3,4"], multirun=False, seeds=None)
    assert len(error.value.problems) == 2
    assert "a=[1,2]" in str(error.value)


def test_continuous_range_cannot_be_enumerated():
    with pytest.raises(ConfigError, match="rayfish tune"):
        expand(["a=interval(0,1)"], multirun=True, seeds=None)


def test_swept_seed_and_seeds_contradict():
    with pytest.raises(ConfigError, match="--seeds"):
        expand(["debugging.seed=1,2"], multirun=True, seeds=2)
