"""`rllib train`'s words after `rayfish train`, and `rayfish config migrate`, as people type them."""

from __future__ import annotations

import pytest
import yaml

from rayfish import Experiment
from rayfish.cli.main import main
from rayfish.errors import RayfishError
from rayfish.legacy.file_format import OldExperiment
from rayfish.legacy.train_flags import take
from rayfish.legacy.translate import translate

OLD = """# A tuned example.
cartpole-ppo:
    env: CartPole-v0  # 200 steps long
    run: PPO
    stop:
        # Solved.
        episode_reward_mean: 150
        timesteps_total: 1e5
    config:
        # Works for both torch and tf.
        framework: tf
        lr: {grid_search: [0.001, 0.0001]}
        num_workers: 32     # a large machine
        num_gpus: 4
        simple_optimizer: true
        model:
            # One layer is enough: "#" in text is no comment.
            fcnet_hiddens: [32]
cartpole-a2c:
    env: CartPole-v0
    run: A2C
    config: {lr: 0.001}
"""


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return ended.value.code or 0


@pytest.fixture
def old(workdir):
    (workdir / "old.yaml").write_text(OLD)
    return workdir


def test_migrate_writes_a_file_for_each_experiment_and_tells_every_keys_fate(old, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    assert run("config", "migrate", "old.yaml") == 1, "A2C is to decide"
    said = capsys.readouterr().out
    for word in ("Translated", "Changed in meaning", "Dropped", "To decide", "num_env_runners", "--closest"):
        assert word in said, word
    text = (old / "migrated/cartpole-ppo.yaml").read_text()
    values = yaml.safe_load(text)
    assert values["algo"]["name"] == "PPO"
    assert values["tunables"]["training"]["lr"] == {"type": "grid", "values": [0.001, 0.0001]}
    assert values["stop_conditions"] == {"episode_reward_mean": 150, "timesteps_total": 100_000}
    for comment in ("# 200 steps long", "# Solved.", "# a large machine", "# Works for both", "# One layer"):
        assert comment in text, comment
    assert "simple_optimizer: true  (" in text, "what is left out is said in the file too"
    a2c = (old / "migrated/cartpole-a2c.yaml").read_text()
    assert yaml.safe_load(a2c)["algo"]["name"] == "???", "it must not train something else by accident"


def test_closest_settles_what_is_to_decide(old, capsys):
    assert run("config", "migrate", "old.yaml", "--out", "new", "--closest") == 0
    assert yaml.safe_load((old / "new/cartpole-a2c.yaml").read_text())["algo"]["name"] == "PPO"


def test_a_file_of_today_is_not_migrated(old, capsys):
    (old / "today.yaml").write_text("environment: {env: CartPole-v1}\n")
    assert run("config", "migrate", "today.yaml") == 1
    assert "is no old RLlib file" in capsys.readouterr().err


def test_one_of_several_experiments_is_named_after_the_file(old, capsys):
    assert run("config", "show", "-f", "old.yaml") == 2
    assert "name one: old.yaml:cartpole-ppo" in capsys.readouterr().err
    assert run("config", "show", "-f", "old.yaml:cartpole-ppo", "--yaml") == 0
    assert "num_env_runners: 32" in capsys.readouterr().out


@pytest.mark.slow
def test_an_old_file_is_shrunk_to_the_machine_in_one_line(old, capsys, ray_session):
    words = ("training.train_batch_size_per_learner=100", "training.minibatch_size=50")
    code = run(
        "train", "-f", "old.yaml:cartpole-ppo", *words, "stop_conditions.training_iteration=1", "--plain"
    )
    said = capsys.readouterr().out
    assert code == 0, said
    (line,) = [line for line in said.splitlines() if line.startswith("shrunk to what there is")]
    assert "rollouts.num_env_runners 32 -> " in line
    assert "resources.num_gpus 4 -> 0" in line
    assert "training.lr has a search space" in said


def test_the_flags_of_rllib_train_describe_an_experiment():
    words = ["--run", "PPO", "--env=CartPole-v1", "--stop", '{"training_iteration": 5}', "--torch"]
    rest, line = take([*words, "--config", '{"lr": 1e-4, "num_workers": 1}', "--checkpoint-freq", "2", "-v"])
    assert rest == ["--checkpoint-freq", "2"], "today's flags stay on the line"
    found = translate(line.experiment())
    assert found.fate != "refused"
    assert found.config["algo"]["name"] == "PPO"
    assert found.config["environment"]["env"] == "CartPole-v1"
    assert found.config["training"]["lr"] == 1e-4
    assert found.config["stop_conditions"] == {"training_iteration": 5}


@pytest.mark.parametrize("flags", [["--algo", "ppo"], ["--run", "PPO", "--torch", "--config", "{lr: 1e-4}"]])
def test_an_algorithm_and_an_environment_by_flags_end_like_those_by_words(flags):
    made = Experiment.compose(take([*flags, "--env", "CartPole-v1"])[1].experiment())
    words = Experiment.compose(None, ["PPO", "CartPole-v1"])
    assert made.section("stop_conditions") == words.section("stop_conditions")
    assert made.get("runtime.name") is None, "so the run is named PPO-CartPole-v1"
    assert any("the run ends after 100,000 steps" in note for note in made.notes)


def test_flags_with_a_stop_or_a_name_keep_them():
    words = ["--run", "PPO", "--env", "CartPole-v1", "--stop", "{timesteps_total: 5}"]
    made = Experiment.compose(take([*words, "--experiment-name", "mine"])[1].experiment())
    assert made.get("stop_conditions.timesteps_total") == 5
    assert made.get("runtime.name") == "mine"


def test_ray_2s_train_file_means_the_file():
    assert take(["file", "x.yaml"])[0] == ["x.yaml"]
    assert take(["--ray-address", "host:6379"])[0] == ["--on", "host:6379"]
    assert take(["--config-file", "x.yaml", "--type", "yaml"])[0] == ["-f", "x.yaml"]


def test_num_samples_repeats_the_run_with_seeds_and_is_never_dropped_in_silence():
    rest, line = take(["--run", "PPO", "--num-samples", "3"])
    assert rest == ["--seeds", "3"]
    assert "3 runs in turn" in line.notes[0]
    assert take(["--num-samples=1"])[0] == []
    old = OldExperiment("x", {"run": "PPO", "env": "CartPole-v1", "num_samples": 4})
    assert any("--seeds 4" in note for note in translate(old).notes()), "a file says it too"


def test_tunes_schedulers_and_searchers_have_todays_names_or_are_refused():
    values = {"run": "PPO", "scheduler": "PopulationBasedTraining", "search_alg": "HyperOptSearch"}
    found = translate(OldExperiment("x", values))
    assert found.config["search"] == {"scheduler": "pbt", "method": "hyperopt"}
    assert sum("`rayfish train` does not" in note for note in found.notes()) == 2
    assert translate(OldExperiment("x", {"run": "PPO", "scheduler": "mine"})).fate == "refused"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--env", "CartPole-v1", "--stop", "{a: 1}"], "without an algorithm"),
        (["--run"], "--run needs a value"),
        (["--run", "PPO", "--config", "{lr: "], "cannot be read as JSON or YAML"),
        (["--run", "PPO", "--config", "[1]"], "holds no keys and values"),
        (["--run", "PPO", "--num-samples", "many"], "takes a whole number"),
        (["--run", "PPO", "--num-samples", "0"], "1 or more"),
        (["--run", "PPO", "--resume"], "does not say which run"),
        (["file", "x.py", "--type", "python"], "a file of code"),
    ],
)
def test_flags_that_say_nothing_sensible_get_a_sentence(words, said):
    with pytest.raises(RayfishError, match=said):
        take(words)[1].experiment()


def test_flags_beside_a_file_change_it_or_are_refused(old, capsys):
    assert run("train", "-f", "old.yaml", "--stop", '{"training_iteration": 1}') == 1
    assert "describes another" in capsys.readouterr().err


@pytest.mark.slow
def test_of_several_experiments_those_that_can_are_trained_and_the_others_reported(old, capsys, ray_session):
    words = ("training.train_batch_size_per_learner=100", "training.minibatch_size=50")
    code = run("train", "-f", "old.yaml", *words, "stop_conditions.training_iteration=1", "--plain")
    said = capsys.readouterr().out
    assert code == 1, "one of the two is left out"
    assert "left out: old.yaml:cartpole-a2c" in said
    assert "A2C is no longer in RLlib" in said
    assert len(list((old / "runs/cartpole-ppo").iterdir())) == 1
    assert "run 1 of 1: cartpole-ppo" in said
