"""The trainer as a notebook uses it."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import rayfish
from tests.helpers import comparable
from tests.run.test_train import SMALL

pytestmark = pytest.mark.usefixtures("ray_session", "workdir")
TRAINED = "num_env_steps_trained_lifetime"


def test_step_save_restore_evaluate_weights_and_runners():
    with rayfish.Trainer(
        "cartpole", *SMALL, "evaluation.evaluation_interval=100", "evaluation.evaluation_duration=2"
    ) as trainer:
        first = trainer.step()
        assert first["run/iteration"] == 1
        assert trainer.result["training_iteration"] == 1
        checkpoint = trainer.save()
        saved = trainer.get_weights()
        trainer.step()
        assert not _equal(trainer.get_weights(), saved)
        trainer.restore(checkpoint)
        assert trainer.iteration == 1
        assert _equal(trainer.get_weights(), saved)
        assert trainer.step()["run/iteration"] == 2
        trainer.set_weights(saved)
        assert _equal(trainer.get_weights(), saved)
        assert trainer.evaluate()["eval/return_mean"] > 0
        assert trainer.foreach_runner(lambda runner: runner.num_envs) == [4]
    with pytest.raises(rayfish.RayfishError, match="closed"):
        trainer.step()


def test_no_folder_is_left_in_rays_results(monkeypatch, tmp_path):
    from ray.tune.trainable import trainable

    monkeypatch.setattr(trainable, "DEFAULT_STORAGE_PATH", str(tmp_path / "ray_results"))
    with rayfish.Trainer("cartpole", *SMALL) as trainer:
        logdir = Path(trainer.algorithm.logdir)
        assert logdir.is_dir()
        scratch = logdir.parent.parent
        assert (scratch.name[:8], scratch.stat().st_mode & 0o777) == ("rayfish-", 0o700)
    assert not scratch.exists()
    assert not (tmp_path / "ray_results").exists()


def _equal(a, b) -> bool:
    return all(np.array_equal(a[p][k], b[p][k]) for p in b for k in b[p])


def test_an_env_class_of_the_notebook_trains_on_remote_runners_too(capsys):
    class Here(gym.Env):
        def __init__(self):
            print("made")

        observation_space = gym.spaces.Box(-1, 1, (2,))
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.t = 0
            return self.observation_space.sample(), {}

        def step(self, action):
            self.t += 1
            return self.observation_space.sample(), float(action), self.t == 10, False, {}

    with rayfish.Trainer("cartpole", *SMALL, "rollouts.num_env_runners=2", env=Here) as trainer:
        assert trainer.step()["rollout/length_mean"] == 10.0
        assert len(trainer.foreach_runner(lambda runner: 1)) == 3
        checkpoint = trainer.save()
    assert rayfish.evaluate(checkpoint, episodes=2, env=Here).lengths == [10, 10]
    out = capsys.readouterr().out
    assert "(runner 1) made" in out
    assert "\x02" not in out


REPLAY = (
    "rollouts.num_envs_per_env_runner=2",
    "training.num_steps_sampled_before_learning_starts=50",
    "reporting.min_sample_timesteps_per_iteration=150",
)


@pytest.mark.parametrize(
    ("preset", "settings"),
    [
        ("cartpole", (*SMALL, "debugging.deterministic=true")),
        ("cartpole", (*SMALL, "rollouts.num_env_runners=2")),
        ("cartpole-dqn", REPLAY),
    ],
    ids=["PPO", "PPO on two runners", "DQN"],
)
def test_two_trainers_with_the_same_seed_learn_the_same(preset, settings):
    def trained():
        with rayfish.Trainer(preset, *settings) as trainer:
            lines = [comparable(trainer.step()) for _ in range(2)]
            return lines, trainer.get_weights()

    (lines, weights), (lines_again, weights_again) = trained(), trained()
    assert lines == lines_again
    assert _equal(weights, weights_again)


def test_a_broken_experiment_leaves_no_ray_and_no_folder_behind(workdir):
    with pytest.raises(rayfish.RayfishError):
        rayfish.Trainer("cartpole", "environment.env=Nope-v0")
    assert not (workdir / "runs").exists()


DOTTED = """
import gymnasium as gym
import numpy as np

class World(gym.Env):
    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.reward = float(config.worker_index)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(2, self.t / 10, np.float32), self.reward, self.t == 10, False, {}
"""


@pytest.mark.parametrize("runners", [0, 1])
def test_environments_in_processes_of_a_dotted_name_train_on_rllibs_runner(workdir, runners):
    package = workdir / f"dotted_{runners}"
    package.mkdir()
    (package / "world.py").write_text(DOTTED)
    words = (
        "rollouts.runner=rllib",
        "rollouts.remote_worker_envs=true",
        "rollouts.num_envs_per_env_runner=2",
    )
    named = (f"environment.env={package.name}.world.World", f"rollouts.num_env_runners={runners}")
    with rayfish.Trainer("cartpole", *SMALL, *words, *named) as trainer:
        metrics = trainer.step()
        assert (metrics["rollout/length_mean"], metrics["rollout/return_mean"]) == (10, 10 * runners)
        kinds = trainer.foreach_runner(lambda runner: runner.env and type(runner.env.unwrapped).__name__)
    assert kinds[-1] == "ProcessVector"  # not forked from a process in which Ray's threads run


ASSETS = """
import json
import gymnasium as gym
import numpy as np

class Mapped(gym.Env):
    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, map_file, split):
        with open(map_file) as file:
            self.size = json.load(file)["size"]
        assert split == "maps"  # a word, though a folder is called so

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {"resets": 1}

    def step(self, action):
        self.t += 1
        over = self.t == self.size
        last = {"is_success": np.True_, "left": 7, "note": "none", "metrics": {"left": 3.0}}
        return np.full(2, 0.5, np.float32), 1.0, over, False, last if over else {"t": 1}
"""


@pytest.mark.parametrize("runner", ["batched", "rllib"])
def test_numbers_of_the_last_info_are_metrics_and_files_are_found_from_another_folder(
    workdir, monkeypatch, runner
):
    (workdir / "maps").mkdir()
    (workdir / "maps" / "one.json").write_text('{"size": 10}')
    (workdir / f"mapped_{runner}.py").write_text(ASSETS)
    config = ("+environment.env_config.map_file=maps/one.json", "+environment.env_config.split=maps")
    words = (f"environment.env=mapped_{runner}.py:Mapped", *config, f"rollouts.runner={runner}")
    with rayfish.Trainer("cartpole", *SMALL, *words) as trainer:
        metrics = trainer.step()
        checkpoint = trainer.save().resolve()
    own = {name: value for name, value in metrics.items() if name.startswith("env/")}
    assert own == {"env/is_success": 1.0, "env/left": 3.0}
    (workdir / "elsewhere").mkdir()
    monkeypatch.chdir(workdir / "elsewhere")
    assert rayfish.evaluate(checkpoint, episodes=2).return_mean == 10
    (workdir / "maps" / "one.json").unlink()
    with pytest.raises(rayfish.RayfishError, match=r"there is no maps/one.json in .*elsewhere, "):
        rayfish.evaluate(checkpoint, episodes=2)


def test_trained_steps_are_those_of_train_batches():
    """RLlib's own counter has the whole batch for every minibatch of PPO; DQN's steps are replayed."""
    dqn = ("training.train_batch_size=16", "training.num_steps_sampled_before_learning_starts=50")
    dqn = (*dqn, "reporting.min_sample_timesteps_per_iteration=60", "evaluation.evaluation_interval=null")
    with rayfish.Trainer("cartpole-dqn", *dqn) as trainer:
        steps, trained = (trainer.step()[name] for name in ("run/env_steps", "run/trained_steps"))
        assert trained % 16 == 0 and trained == trainer.result["learners"]["__all_modules__"][TRAINED]
        checkpoint = trainer.save()
        later = trainer.step()["run/trained_steps"]
        assert later - trained > trainer.metrics["run/env_steps"] - steps
        trainer.restore(checkpoint)
        assert trainer.step()["run/trained_steps"] == later
    with rayfish.Trainer("cartpole", *SMALL, "rollouts.runner=rllib") as trainer:
        metrics = trainer.step()
        assert metrics["run/trained_steps"] == metrics["run/env_steps"] > 0
