"""Old files of every kind: each key ends in one of three classes, and nothing is lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from omegaconf._utils import get_yaml_loader

from rayfish import Experiment
from rayfish.algorithm.signatures import entries
from rayfish.algorithm.unused_keys import is_dead
from rayfish.errors import ConfigError
from rayfish.experiment import tree
from rayfish.experiment.compose import experiments_in
from rayfish.experiment.result_names import todays_metric, why_gone
from rayfish.experiment.sections import ALGORITHMS, CLOSEST, METHODS, SECTIONS
from rayfish.legacy.file_format import OldExperiment, read_old
from rayfish.legacy.key_tables import SAME, TRAINING
from rayfish.legacy.migration import migrate
from rayfish.legacy.outcome import FATES
from rayfish.legacy.rules import outcomes
from rayfish.legacy.training_keys import placed
from rayfish.legacy.translate import Context, translate
from rayfish.metrics import names
from rayfish.models.options import OPTIONS

FOLDER = Path(__file__).parents[1] / "old_files"
CORPUS = sorted((FOLDER / "corpus").glob("*.y*ml"))
KNOWN = json.loads((FOLDER / "known_keys.json").read_text())
ALIVE = ("PPO", "APPO", "IMPALA", "DQN", "SAC", "CQL", "MARWIL", "BC", "DreamerV3")


def test_the_corpus_is_wide():
    assert len(CORPUS) > 150
    runs = {str(old.values.get("run")) for file in CORPUS for old in read_old(file) or ()}
    assert set(ALIVE) <= runs
    assert len(runs & set(CLOSEST)) > 15, "every family that is gone has a file"


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_an_old_file_ends_in_the_class_it_should(file):
    expected = file.read_text().splitlines()[0].removeprefix("# expect:").split()
    translations = [translate(old) for old in read_old(file) or ()]
    assert max((found.fate for found in translations), key=FATES.index) == expected[0]
    refusals = [entry for found in translations for entry in found.of("refused")]
    for name in expected[1:]:
        assert any(name in f"{entry.old} {entry.outcome.why}" for entry in refusals)
    for entry in refusals:
        assert ": " in entry.outcome.why, "a refusal says what is wrong, and what to do"
    for found in translations:
        assert all(entry.outcome.why for entry in found.of("ignored")), "ignored only with a reason"


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_no_key_of_an_old_file_is_dropped_in_silence(file):
    for old in read_old(file) or ():
        told = {entry.old for entry in translate(old).entries}
        written = {f"config.{key}" for key in old.values.get("config") or {}}
        written |= {key for key in old.values if key != "config"}
        for key in written:
            assert any(name == key or name.startswith(f"{key}.") for name in told), key


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_the_migrated_file_is_the_same_experiment(file, tmp_path):
    for translation, path in migrate(str(file), tmp_path):
        written = yaml.load(path.read_text(), Loader=get_yaml_loader())
        if translation.fate != "refused":
            assert written == {name: values for name, values in translation.config.items() if values}


@pytest.mark.parametrize("file", CORPUS[::12], ids=lambda file: file.stem)
def test_both_files_compose_to_one_experiment(file, tmp_path):
    migrated = migrate(str(file), tmp_path)
    for (translation, path), name in zip(migrated, experiments_in(str(file)), strict=True):
        if translation.fate == "refused":
            with pytest.raises(ConfigError):
                Experiment.compose(name)
            continue
        old, new = Experiment.compose(name), Experiment.compose(str(path))
        assert new.config == old.config
        assert old.fit and not new.fit


def known_config_keys(algo):
    return {**KNOWN["common"], **KNOWN.get(algo, {})}


@pytest.mark.parametrize("algo", ALIVE)
def test_every_key_of_old_rllib_is_understood(algo):
    context = Context(algo)
    for key, default in known_config_keys(algo).items():
        for value in (default, None):
            for outcome in outcomes(key, value, context):
                assert "no Ray from" not in outcome.why, f"{algo}: {key} is not in any table"


@pytest.mark.parametrize("algo", ALIVE)
def test_old_defaults_are_never_refused(algo):
    """A file that writes out what RLlib did anyway, as many do, runs."""
    for key, default in known_config_keys(algo).items():
        found = outcomes(key, default, Context(algo, config={key: default}))
        assert [outcome for outcome in found if outcome.fate == "refused"] == [], f"{key}: {default}"


def test_every_key_beside_config_is_understood():
    for key, default in KNOWN["experiment"].items():
        old = OldExperiment("x", {"run": "PPO", "env": "CartPole-v1", key: default or None})
        assert not [e for e in translate(old).of("refused") if "has no key" in e.outcome.why], key


def test_every_model_key_is_understood():
    values = {key: value for key, value in KNOWN["model"].items() if value != -1}
    found = outcomes("model", values, Context("PPO"))
    assert [outcome.why for outcome in found if outcome.fate == "refused"] == []


@pytest.mark.parametrize("kind", sorted(KNOWN["exploration_config"]))
@pytest.mark.parametrize("algo", ["DQN", "PPO", "SAC"])
def test_every_exploration_is_translated_ignored_or_refused_with_a_way_out(kind, algo):
    (found,) = outcomes("exploration_config", {"type": kind}, Context(algo))
    assert found.fate in FATES
    assert found.why or found.values


@pytest.mark.parametrize("key", KNOWN["stop"])
def test_every_old_stop_condition_is_mapped_or_named_as_gone(key):
    metric = todays_metric(key)
    assert names.is_known(metric) if metric else why_gone(key)


def seed_keys():
    text = (FOLDER / "result_keys.txt").read_text()
    return text.split()


def test_every_result_simharness_lists_is_mapped_or_named_as_gone():
    keys = seed_keys()
    assert len(keys) > 250
    for key in keys:
        metric = todays_metric(key)
        assert (metric and names.is_known(metric)) or why_gone(key), key


def targets(algo):
    """Today's keys that the tables lead to, for an algorithm."""
    same = [f"{section}.{key}" for key, section in SAME.items()]
    for dotted in [*(f"training.{key}" for key in TRAINING), *same]:
        yield from placed(dotted, 1, Context(algo)).values
    for key, default in known_config_keys(algo).items():
        for outcome in outcomes(key, default if default not in (None, -1) else 1, Context(algo)):
            yield from outcome.values


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_what_is_translated_has_an_effect_today(algo):
    for dotted in targets(algo):
        section, _, key = dotted.partition(".")
        key = key.partition(".")[0]
        if dotted.startswith("training.model."):
            assert dotted.removeprefix("training.model.") in OPTIONS, dotted
        elif not SECTIONS[section].is_open:
            known = {*SECTIONS[section].own, *(entries(section, algo) if section in METHODS else ())}
            assert key in known, f"{algo}: {dotted}"
            assert not is_dead(f"{section}.{key}", algo), f"{algo}: {dotted} has no effect"


def test_algorithms_that_are_gone_lead_to_one_that_is_not():
    assert set(CLOSEST.values()) <= set(ALGORITHMS)
    for names_ in KNOWN["algorithm_names"].values():
        for name in names_:
            found = translate(OldExperiment("x", {"run": name, "env": "CartPole-v1"}), closest=True)
            assert tree.get(found.config, "algo.name") in ALGORITHMS, name


@pytest.mark.parametrize("run", ["A3C", "DDPG", "APEX", "R2D2", "ES"])
def test_a_gone_algorithm_names_the_closest_and_closest_takes_it(run, tmp_path):
    file = tmp_path / "old.yaml"
    file.write_text(yaml.safe_dump({"x": {"run": run, "env": "CartPole-v1", "config": {"gamma": 0.9}}}))
    with pytest.raises(ConfigError, match="--closest"):
        Experiment.compose(str(file))
    assert Experiment.compose(str(file), closest=True).get("algo.name") == CLOSEST[run]
