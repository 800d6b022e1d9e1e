"""Everything wrong with an experiment is found before any compute, with the next step."""

from __future__ import annotations

import pytest

from rayfish import Experiment
from rayfish.algorithm import keys, signatures
from rayfish.algorithm.keys import without_unread
from rayfish.errors import ConfigError


def problems(*words, name="cartpole"):
    return signatures.problems(Experiment.compose(name, words))


def only(*words, name="cartpole"):
    found = problems(*words, name=name)
    assert len(found) == 1, [str(problem) for problem in found]
    return found[0]


@pytest.mark.parametrize("name", ["acrobot", "cartpole", "cartpole-dqn", "lunarlander", "pendulum"])
def test_presets_have_no_problem(name):
    assert problems(name=name) == []


@pytest.mark.parametrize(("config_name", "env"), [("dqn", "CartPole-v1"), ("ppo", "CartPole-v1")])
def test_main_configs_have_no_problem(config_name, env):
    experiment = Experiment.compose(config_name=config_name)
    assert experiment.get("environment.env") == env
    assert signatures.problems(experiment) == []


@pytest.mark.parametrize(
    ("word", "key", "hint"),
    [
        ("training.lrr=1", "training.lrr", "did you mean training.lr?"),
        ("rollouts.num_env_runer=1", "rollouts.num_env_runer", "rollouts.num_env_runners"),
        ("training.num_env_runners=1", "training.num_env_runners", "rollouts.num_env_runners"),
        ("trainning.lr=1", "trainning", "did you mean training?"),
        ("gamma=0.9", "gamma", "training.gamma"),
        ("algo.nam=PPO", "algo.nam", "did you mean algo.name?"),
        ("checkpoint.frequency=1", "checkpoint.frequency", "checkpoint.checkpoint_frequency"),
        ("evaluation.evaluation_config.explor=true", "evaluation.evaluation_config.explor", "explore"),
        ("debugging.whatever=1", "debugging.whatever", "rayfish config keys"),
    ],
)
def test_unknown_key_is_named_with_what_was_meant(word, key, hint):
    problem = only(word)
    assert problem.key == key
    assert hint in problem.hint
    assert problem.where == "command line"


def test_unknown_key_in_a_file_is_named_with_its_line(workdir):
    (workdir / "exp.yaml").write_text("environment:\n  env: CartPole-v1\ntraining:\n  lrr: 1\n")
    problem = only(name="exp.yaml")
    assert (problem.key, problem.where) == ("training.lrr", "exp.yaml:4")


def test_key_of_another_algorithm_names_its_owners():
    problem = only("training.clip_param=0.2", name="cartpole-dqn")
    assert "DQN has no such setting; PPO and APPO have" in problem.what


def test_preset_of_another_algorithm_is_explained():
    found = problems("algo.name=DQN")
    without_effect = {"training.minibatch_size", "training.num_epochs"}
    assert {p.key for p in found} == {"training.lambda_", "training.vf_clip_param", *without_effect}
    assert all("tuned for PPO" in p.hint and "cartpole.yaml:" in p.where for p in found)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("environment.render_env=true", "watch a trained policy"),
        ("debugging.fake_sampler=true", "old stack"),
        ("rollouts.compress_observations=true", "old stack"),
    ],
)
def test_dead_key_is_refused_with_what_to_use(word, said):
    problem = only(word)
    assert "no effect" in problem.what
    assert said in problem.hint


def test_dead_key_at_its_default_is_harmless():
    assert problems("environment.clip_rewards=null", "environment.render_env=false") == []


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("training.soft_horizon=true", "remove it"),
        ("training.memory=1", "remove it: Ray hands out memory by itself"),
    ],
)
def test_gone_key_is_refused(word, said):
    problem = only(word)
    assert "gone from RLlib" in problem.what
    assert said in problem.hint


def test_key_that_lives_in_another_section_is_not_gone():
    assert "framework.torch_compile_learner" in only("training.torch_compile_learner=true").hint


@pytest.mark.parametrize(
    ("word", "said", "hint"),
    [
        ("rollouts.num_env_runners=two", "is 'two', but takes a whole number", "rollouts.num_env_runners=4"),
        ("training.lr='3e-4'", "takes a number", "training.lr=0.0003"),
        ("training.minibatch_size=2.56e2", "takes a whole number", "training.minibatch_size=256"),
        ("training.use_kl_loss=1", "takes true or false", "true"),
        ("training.num_epochs=true", "takes a whole number", "4"),
        ("environment.env_config=3", "takes keys and values", "{key: value}"),
        ("stop_conditions.env/score=high", "takes a number", "stop_conditions.env/score=0.001"),
        ("checkpoint.checkpoint_at_end=1", "takes true or false", "true"),
        ("rollouts.runner=fast", "not one of auto, batched, rllib", "rollouts.runner=auto"),
        ("rollouts.batch_mode=complete_episode", "not one of", "did you mean complete_episodes?"),
        ("framework.framework=tf2", "not one of torch", "framework.framework=torch"),
        ("cli.mode=trian", "not one of", "did you mean train?"),
    ],
)
def test_wrong_type_or_word_is_refused_with_an_example(word, said, hint):
    problem = only(word)
    assert said in problem.what
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("A3C", "IMPALA"),
        ("ddpg", "SAC"),
        ("TD3", "TQC"),
        ("Dreamer", "DreamerV3"),
        ("PPOO", "did you mean PPO"),
    ],
)
def test_algorithm_that_is_not_there_names_the_closest(name, hint):
    found = problems(f"algo.name={name}", "environment.env=CartPole-v1", name=None)
    assert [p.key for p in found] == ["algo.name"]
    assert hint in found[0].hint


@pytest.mark.parametrize(
    ("words", "key", "said"),
    [
        (["training.minibatch_size=9000"], "training.minibatch_size",
         "9000 does not fit into a train batch of 8192"),
        (["training.gamma=1.5"], "training.gamma", "from 0 to 1"),
        (["rollouts.num_envs_per_env_runner=0"], "rollouts.num_envs_per_env_runner", "at least 1"),
        (["rollouts.rollout_fragment_length=300", "rollouts.batch_mode=complete_episodes"],
         "rollouts.rollout_fragment_length", "does not add up to a batch"),
        (["rollouts.rollout_fragment_length=300"], "rollouts.rollout_fragment_length",
         "256 environments x 300"),
        (["evaluation.evaluation_interval=1", "evaluation.evaluation_duration=null"],
         "evaluation.evaluation_duration", "evaluation is on"),
        (["evaluation.evaluation_interval=1", "evaluation.evaluation_duration=auto"],
         "evaluation.evaluation_duration", "in parallel"),
        (["evaluation.evaluation_interval=1", "evaluation.evaluation_parallel_to_training=true"],
         "evaluation.evaluation_parallel_to_training", "runners of its own"),
        (["training.lr=[[10,1e-3],[20,1e-4]]"], "training.lr", "begins at step 0"),
        (["training.lr=[1,2]"], "training.lr", "no schedule"),
        (["exploration.exploration_config={type: EpsilonGreedy}"],
         "exploration.exploration_config", "is for DQN"),
        (["exploration.exploration_config={type: ParameterNoise}"],
         "exploration.exploration_config", "gone from RLlib"),
        (["multi_agent.mapping={x: a}", "multi_agent.policies_to_train=[b]"],
         "multi_agent.policies_to_train", "no policy 'b'"),
        (["resources.num_gpus=1", "learners.num_gpus_per_learner=0.5"], "resources.num_gpus", "asks for 1"),
        (["debugging.deterministic=true", "debugging.seed=null"], "debugging.seed", "nothing repeats"),
        (["debugging.deterministic=true", "stop_conditions.time_total_s=60"],
         "stop_conditions.time_total_s", "the clock ends the run"),
        (["debugging.deterministic=true", "reporting.min_time_s_per_iteration=5"],
         "reporting.min_time_s_per_iteration", "how long an iteration is"),
        (["debugging.deterministic=true", "rollouts.autotune=true"], "rollouts.autotune", "a measurement"),
    ],
)  # fmt: skip
def test_contradiction_is_found_with_its_numbers(words, key, said):
    problem = only(*words)
    assert problem.key == key
    assert said in problem.what
    assert problem.hint


def test_smaller_batch_than_the_default_minibatch_is_found():
    words = ["algo.name=PPO", "environment.env=CartPole-v1", "training.train_batch_size_per_learner=64"]
    problem = only(*words, name=None)
    assert "128 does not fit into a train batch of 64" in problem.what


def test_common_learning_rate_is_refused_where_each_network_has_its_own():
    problem = only("training.lr=1e-3", name="pendulum")
    assert "training.actor_lr" in problem.hint


def test_unknown_replay_buffer_is_refused():
    assert "no replay buffer" in only("training.replay_buffer_config.type=Ring", name="cartpole-dqn").what


def test_asynchronous_algorithm_is_refused_when_it_must_repeat():
    problem = only("algo.name=IMPALA", "debugging.deterministic=true", name=None)
    assert problem.key == "algo.name"
    assert "IMPALA never repeats" in problem.what


def test_value_that_must_be_set_is_reported(workdir):
    (workdir / "exp.yaml").write_text("environment:\n  env: A-v0\ntraining:\n  lr: ???\n")
    problem = only(name="exp.yaml")
    assert (problem.key, problem.hint) == ("training.lr", "add training.lr=VALUE")


def test_all_problems_are_reported_at_once():
    found = problems("training.lrr=1", "rollouts.num_env_runners=x", "environment.render_env=1.0", "nope.a=1")
    assert len(found) == 4


def test_sections_of_ones_own_begin_with_an_underscore():
    assert problems("_mine.a=1") == []


def test_open_keys_take_anything():
    assert (
        problems("environment.env_config.any.thing=1", "simulation.b=2", "stop_conditions.env/score=3") == []
    )


@pytest.mark.parametrize("name", ["hidden_layers", "hidden_sizes", "net_arch", "layers", "hidden_layer_size"])
def test_a_habit_from_another_library_leads_to_the_hidden_layers(name):
    from rayfish.models.check import section_problems

    (problem,) = section_problems({name: [64]}, "PPO")
    assert problem.hint == "did you mean training.model.fcnet_hiddens?"
    assert "did you mean training.model.fcnet_hiddens?" in only(f"training.{name}=[64]").hint


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("training.batch_size=32", "training.train_batch_size_per_learner"),
        ("training.n_steps=32", "rollouts.rollout_fragment_length"),
        ("training.update_epochs=4", "training.num_epochs"),
        ("training.clip_coef=0.2", "training.clip_param"),
        ("training.num_envs=8", "rollouts.num_envs_per_env_runner"),
        ("training.learning_rate=0.1", "training.lr"),
    ],
)
def test_a_habit_from_another_library_leads_to_its_key(word, key):
    assert only(word).hint == f"did you mean {key}?"


@pytest.mark.parametrize("old", ["hidden_layer_sizes", "hidden_activation"])
def test_an_old_model_name_outranks_a_preset(old):
    value = {"hidden_layer_sizes": [8], "hidden_activation": "relu"}[old]
    written = str(value).replace(" ", "")
    experiment = Experiment.compose("cartpole", [f"training.model.{old}={written}"])
    today = {"hidden_layer_sizes": "fcnet_hiddens", "hidden_activation": "fcnet_activation"}[old]
    assert experiment.get(f"training.model.{today}") == value
    assert experiment.get(f"training.model.{old}") is None
    assert any(today in note for note in experiment.notes)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("lr=0.1", "remove it"),
        ("num_env_runners=2", "use evaluation.evaluation_num_env_runners"),
        ("log_gradients=true", "remove it"),
    ],
)
def test_what_an_evaluation_does_not_read_is_refused(key, hint):
    problem = only(f"evaluation.evaluation_config.{key}", "evaluation.evaluation_interval=1")
    assert "has no effect" in problem.what and hint in problem.hint


@pytest.mark.parametrize("key", ["explore=true", "num_envs_per_env_runner=2", "seed=3", "horizon=10"])
def test_what_may_differ_while_evaluating_is_accepted(key):
    assert problems(f"evaluation.evaluation_config.{key}", "evaluation.evaluation_interval=1") == []


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("evaluation.interval=3", "did you mean evaluation.evaluation_interval?"),
        ("evaluation.duration=3", "did you mean evaluation.evaluation_duration?"),
        ("checkpoint.save_freq=3", "did you mean checkpoint.checkpoint_frequency?"),
    ],
)
def test_a_key_without_its_sections_name_is_found(word, hint):
    assert hint in only(word).hint


def test_a_saved_experiment_loses_keys_that_are_refused_today(tmp_path):
    """An earlier version accepted them in silence: its runs go on."""
    from rayfish.run.trainer import extended

    old = {"training.num_epochs": 5, "training.model.vf_share_layers": True, "training.lr": 0.25}
    words = ["algo.name=DQN", "environment.env=CartPole-v1"]
    Experiment.compose(None, words).with_values(old, "command line").save(tmp_path / "config.yaml")
    saved = Experiment.load(tmp_path / "config.yaml")
    assert [problem.key for problem in signatures.problems(saved)] == ["training.num_epochs"]
    kept = without_unread(saved)
    assert signatures.problems(kept) == []
    assert kept.get("training.num_epochs") is kept.get("training.model.vf_share_layers") is None
    assert kept.get("training.lr") == 0.25
    assert [note.split("=")[0] for note in kept.notes] == [
        "training.num_epochs",
        "training.model.vf_share_layers",
    ]
    assert without_unread(kept) is kept
    assert extended(saved, ["stop_conditions.training_iteration=3"]).notes[:2] == kept.notes


@pytest.mark.parametrize("section", ["training", "evaluation.evaluation_config", ""])
def test_thousands_of_unknown_keys_get_twenty_suggestions_and_twenty_lines(section, monkeypatch):
    compared = []
    monkeypatch.setattr(keys, "did_you_mean", lambda *a, **options: compared.append(a) or [])
    unknown = {f"{section}.key_{i}".lstrip("."): i for i in range(1000)}
    found = keys.all_problems(Experiment.compose("cartpole").with_values(unknown, "test"))
    assert len(found) == 1000
    assert len(compared) < 20 * 30
    lines = str(ConfigError(found)).splitlines()
    assert (lines[0], lines[-1]) == ("1,000 problems in the experiment:", "  and 980 more")
    assert len(lines) == 2 + 20 * 3
