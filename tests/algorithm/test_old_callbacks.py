"""Callbacks with the hooks of older RLlib: adapted where their meaning carries over, refused where not."""

from __future__ import annotations

import secrets

import pytest

import rayfish
from rayfish.errors import ConfigError
from rayfish.metrics.sinks import read_jsonl
from rayfish.run import preflight
from tests.run.test_train import SMALL

OLD = """
from ray.rllib.algorithms.callbacks import DefaultCallbacks

class Old(DefaultCallbacks):
    def on_episode_start(self, *, worker, base_env, policies, episode, env_index=None, **kwargs):
        episode.user_data["angles"] = []
        episode.hist_data["all"] = []

    def on_episode_step(self, *, worker, base_env, episode, **kwargs):
        episode.user_data["angles"].append(abs(episode.last_observation_for()[2]))

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        assert len(episode.user_data["angles"]) == episode.length == episode.total_reward
        env = base_env.get_sub_environments()[env_index]
        episode.custom_metrics["pole_angle"] = max(episode.user_data["angles"])
        episode.custom_metrics["length"] = episode.length
        episode.custom_metrics["gravity"] = env.unwrapped.gravity
        episode.custom_metrics["workers"] = worker.worker_index + len(policies)

    def on_train_result(self, *, algorithm, result, **kwargs):
        result["mine"] = 42
        result["deep"] = {"er": 7.0, "word": "no"}
"""

GONE = """
from ray.rllib.agents.callbacks import DefaultCallbacks

class Gone(DefaultCallbacks):
    def {hook}(self, *, worker, samples=None, **kwargs):
        pass
"""


@pytest.fixture
def written(workdir):
    def write(code):
        file = workdir / f"old_{secrets.token_hex(4)}.py"
        file.write_text(code)
        return file.name

    return write


def test_old_hooks_run_and_what_they_report_are_metrics_of_the_same_iteration(ray_session, written):
    words = [f"callbacks={written(OLD)}:Old", "+stop_conditions.env/mine=42"]
    words += ["rollouts.rollout_fragment_length=8", "rollouts.num_envs_per_env_runner=2"]
    experiment = rayfish.Experiment.compose("cartpole", [*SMALL, *words])
    assert not preflight.check(experiment)
    run = rayfish.train(experiment, plain=True)
    metrics = read_jsonl(run / "metrics.jsonl")
    assert len(metrics) == 1  # stopped by its own number
    [line] = metrics
    own = [line[f"env/{name}"] for name in ("mine", "deep/er", "gravity", "workers")]
    assert own == pytest.approx([42, 7, 9.8, 1])
    assert line["env/length"] == line["rollout/length_mean"]
    assert 0 < line["env/pole_angle"] < 0.5


@pytest.mark.parametrize(
    ("hook", "instead"),
    [
        ("on_sample_end", "on_sample_end(self, *, env_runner, metrics_logger, samples, **kwargs)"),
        ("on_postprocess_trajectory", "learners.learner_connector"),
        ("on_sub_environment_created", "on_environment_created(self, *, env_runner, env"),
    ],
)
def test_hooks_without_a_meaning_today_are_refused_by_check_and_by_migrate(written, workdir, hook, instead):
    name = f"{written(GONE.format(hook=hook))}:Gone"
    [problem] = preflight.check(rayfish.Experiment.compose("cartpole", [f"callbacks={name}"]))
    assert problem.key == "callbacks.callbacks_class"
    assert hook in problem.what and instead in problem.hint
    (workdir / "old.yaml").write_text(
        f"x:\n  run: PPO\n  env: CartPole-v1\n  config: {{callbacks: '{name}'}}\n"
    )
    with pytest.raises(ConfigError) as refused:
        rayfish.Experiment.compose("old.yaml")
    assert instead in str(refused.value)
