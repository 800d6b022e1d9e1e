"""YAML that is too large, too deep or contains itself ends in one message, at once; all else is read."""

from __future__ import annotations

import time

import pytest
import yaml

from rayfish import Experiment
from rayfish.cli.main import main
from rayfish.errors import ConfigError
from rayfish.experiment import yaml_reader

HEAD = "environment:\n  env: CartPole-v1\n  env_config:\n"
_TEN = range(10)
_QUOTE = '"'


def _below(*lines: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in lines)


def _to(number: int, quote: str = "") -> str:
    return f"{quote}${{environment.env_config.a{number}}}{quote}"


BOMBS = {
    "aliases of lists": (
        _below("a0: &a0 [1, 1]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12))),
        "more than 100,000 values",
    ),
    "aliases of mappings": (
        _below(
            "a0: &a0 {x: 1}",
            *(f"a{i}: &a{i} {{{', '.join(f'k{j}: *a{i - 1}' for j in _TEN)}}}" for i in range(1, 12)),
        ),
        "more than 100,000 values",
    ),
    "merged mappings": (
        _below("a: &a", "  b: 1", "c:", "  <<: *a", "  d: &d [*d]"),
        "*d stands inside &d, so that it contains itself",
    ),
    "a list in itself": (_below("a: &a [*a]"), "*a stands inside &a"),
    "a mapping in itself": (
        HEAD.replace("env_config:", "env_config: &a") + "    b: *a\n",
        "*a stands inside &a",
    ),
    "brackets": (_below(f"a: {'[' * 100_000}{']' * 100_000}"), "nested more than 40 deep"),
    "open brackets": (_below(f"a: {'[' * 100_000}"), "nested more than 40 deep"),
    "braces": (_below(f"a: {'{a: ' * 5000}1{'}' * 5000}"), "nested more than 40 deep"),
    "dashes": (_below("a:", f"  {'- ' * 5000}x"), "nested more than 40 deep"),
    "a value of 20 MB": (_below(f"a: {'x' * 20_000_000}"), "20 MB long"),
    "interpolations": (
        _below("a0: [1, 1]", *(f"a{i}: [{', '.join([_to(i - 1, _QUOTE)] * 10)}]" for i in range(1, 9))),
        "refer to each other many times over",
    ),
    "interpolations in texts": (
        _below("a0: xx", *(f"a{i}: '{_to(i - 1) * 10}'" for i in range(1, 9))),
        "refer to each other many times over",
    ),
    "an interpolation of itself": (_below("a: ${.b}", "b: ${.a}"), "leads back to itself"),
    "an interpolation of what it is in": (_below("a: ${environment}"), "leads back to itself"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_would_not_end_is_one_message_at_once(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, said = BOMBS[name]
    (tmp_path / "bomb.yaml").write_text(text)
    Experiment.compose("cartpole")  # imports
    begun = time.thread_time()
    with pytest.raises(ConfigError) as error:
        Experiment.compose("bomb.yaml")
    assert time.thread_time() - begun < 1
    assert said in str(error.value)
    assert "next step:" in str(error.value)


def test_every_reader_of_files_and_flags_has_the_limits(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "deep.yaml").write_text(f"a: {'[' * 999}{']' * 999}\n")
    (tmp_path / "old.yaml").write_text("mine:\n  run: PPO\n  env: CartPole-v1\n  config: &a {b: *a}\n")
    (tmp_path / "jobs.yaml").write_text("tasks: &a [*a]\n")
    (tmp_path / "fire.yaml").write_text("area: &a [*a]\n")
    deep = "[" * 999 + "]" * 999
    for words in (
        ["config", "show", "cartpole", "--config-dir", ".", "training=deep"],
        ["config", "show", "old.yaml"],
        ["config", "migrate", "old.yaml"],
        ["tune", "jobs.yaml"],
        ["config", "show", "cartpole", f"environment.env_config.a={deep}"],
        ["train", "--run", "PPO", "--env", "CartPole-v1", "--stop", deep],
        ["env", "check", "CartPole-v1", f"a={deep}"],
        ["config", "check", "wildfire", "environment.env_config.simulation=fire.yaml"],
    ):
        with pytest.raises(SystemExit) as left:
            main(words)
        text = " ".join("".join(capsys.readouterr()).split())
        assert left.value.code in (1, 2), words
        assert "more than 40 deep" in text or "contains itself" in text, (words, text)
        assert "next step:" in text, words


def test_eight_thousand_keys_take_less_than_a_second(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys.yaml").write_text(_below(*(f"key{i}: {i}" for i in range(8000))))
    Experiment.compose("cartpole")  # imports
    begun = time.thread_time()  # not the other threads of the process: a Ray of other tests has many
    found = Experiment.compose("keys.yaml")
    assert time.thread_time() - begun < 1
    assert found.get("environment.env_config.key7999") == 7999
    assert found.origin("environment.env_config.key7999") == "keys.yaml:8003"


def test_anchors_and_aliases_in_their_right_use_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(
        "environment:\n  env: CartPole-v1\n  env_config: &world {sizes: [1, 2], wind: 3}\n"
        "evaluation:\n  evaluation_config:\n    env_config:\n      <<: *world\n      wind: 5\n"
    )
    found = Experiment.compose("mine.yaml")
    assert found.get("evaluation.evaluation_config.env_config") == {"sizes": [1, 2], "wind": 5}


def test_numbers_are_omegaconfs_or_pyyamls_as_before():
    assert yaml_reader.load("a: 1e-3") == {"a": 1e-3}
    assert yaml_reader.safe_load("a: 1e-3") == yaml.safe_load("a: 1e-3") == {"a": "1e-3"}
    with pytest.raises(yaml.YAMLError, match="duplicate key"):
        yaml_reader.load("a: 1\na: 2")
    assert yaml_reader.safe_load("") is None


def test_a_flag_with_bad_json_is_answered_with_an_example_of_its_own(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--run", "PPO", "--env", "CartPole-v1", "--stop", '{"training_iteration": 1'])
    text = capsys.readouterr().err
    assert "is not closed" in text
    assert """write it as --stop '{"training_iteration": 100}'""" in text
