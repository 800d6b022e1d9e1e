"""SimHarness's own configuration tree, as its users have it on disk."""

from __future__ import annotations

import pytest
from tests.helpers import ROOT

from rayfish import Experiment
from rayfish.errors import RayfishError
from rayfish.legacy import simharness
from rayfish.run import preflight, resources
from rayfish.run.engine import RayOptions

TREE = ROOT.parent / "shared" / "simharness-conf"
needs_tree = pytest.mark.skipif(not TREE.is_dir(), reason="SimHarness's files are not here")
SEED = "simulation.fire_start_seed=1"
SMALL = (
    SEED,
    "simulation.screen_size=16",
    "training.model.conv_filters=[[16,[4,4],4],[32,[4,4],1]]",
    "training.train_batch_size=16",
    "training.replay_buffer_config.capacity=500",
    "training.num_steps_sampled_before_learning_starts=16",
    "reporting.min_sample_timesteps_per_iteration=24",
    "rollouts.num_rollout_workers=0",
    "evaluation.evaluation_num_workers=0",
    "evaluation.evaluation_duration_unit=timesteps",
    "evaluation.evaluation_duration=20",
    "debugging.log_level=WARN",
)


def composed(*words: str, main: str = "config") -> Experiment:
    return Experiment.compose(None, words, config_dir=TREE, config_name=main)


@needs_tree
@pytest.mark.parametrize("main", ["config", "marl_config", "debug_marl"])
def test_every_main_config_of_the_tree_checks_as_it_is(workdir, main):
    experiment, changes = resources.fit(composed(SEED, main=main), RayOptions())
    assert preflight.check(experiment) == []
    assert "resources.num_gpus 0.4 -> 0" in changes[0]
    several = main == "debug_marl"
    assert experiment.get("environment.env") == (simharness.PARALLEL if several else simharness.SINGLE)
    assert experiment.get("environment.env_config.simulation.area.screen_size") == [128, 128]
    assert experiment.get("environment.env_config.agent_speed") == (4 if several else 9)
    assert experiment.get("evaluation.evaluation_config.env_config.simulation.display.rescale_factor") == 2


@needs_tree
def test_each_key_without_effect_is_named_in_one_line(workdir):
    notes = [note for note in composed(SEED).notes if "ignored" in note or "not fetched" in note]
    for name in (
        *("aim:", "runtime.log_to_file:", "debugging.logger_config:", "framework.eager_tracing:"),
        *("evaluation.enable_async_evaluation:", "hydra.job_logging, hydra.output_subdir:"),
        *("env_config.harness_analytics_partial:", "env_config.in_evaluation:"),
        *("simulation.fire_initial_position:", "terrain.topography.type=operational"),
    ):
        assert sum(note.startswith(name) for note in notes) == 1, name
    assert len(notes) == 10


@needs_tree
def test_evaluation_follows_what_it_refers_to(workdir):
    """`env_config: ${environment.env_config}` with a group laid upon it, as OmegaConf merges it."""
    experiment = composed(
        SEED, "environment.env_config.agent_speed=2", "environment.env_config.physics=behave"
    )
    key = "evaluation.evaluation_config.env_config"
    assert experiment.get(f"{key}.agent_speed") == 2 and experiment.get(f"{key}.physics") == "behave"
    assert experiment.get(f"{key}.simulation.area.pixel_scale") == 50
    assert experiment.origin(f"{key}.attributes").endswith("environment/env_config/reactive.yaml:8")


@needs_tree
def test_runs_go_where_the_tree_says(workdir):
    experiment = composed(SEED, "cli.data_dir=/data", "hydra=group_by_day-time")
    assert experiment.get("runtime.local_dir").rpartition("/")[0].endswith("/experiments")
    assert not experiment.get("runtime.local_dir").startswith("/data")
    default = composed(SEED, "cli.data_dir=/data").get("runtime.local_dir")
    assert default.startswith("/data/simharness/experiments/20")


@needs_tree
@pytest.mark.parametrize(
    ("main", "positions"), [("config", "[[5,5]]"), ("debug_marl", "[[0,5],[15,5],[5,15]]")]
)
def test_the_tree_trains(workdir, ray_session, main, positions):
    from rayfish.run.train import train

    words = (*SMALL, f"environment.env_config.initial_agent_positions={positions}", "cli.data_dir=data")
    words = (*words, "stop_conditions.training_iteration=2", "rollouts.batch_mode=truncate_episodes")
    folder = train(composed(*words, main=main), plain=True)
    assert folder.is_relative_to("data/simharness/experiments")
    assert '"status": "done"' in (folder / "run.json").read_text()


def test_warm_up_steps_keep_the_first_epsilon(ray_session):
    from rayfish.algorithm.build import build_config
    from rayfish.envs.build import describe as info_of
    from rayfish.envs.build import env_config_of, from_experiment

    greedy = "{type: EpsilonGreedy, final_epsilon: 0.05, warmup_timesteps: 100, epsilon_timesteps: 1000}"
    experiment = Experiment.compose("cartpole-dqn", [f"exploration.exploration_config={greedy}"])
    info = info_of(from_experiment(experiment), env_config_of(experiment))
    assert build_config(experiment, info).epsilon == [[0, 1.0], [100, 1.0], [1100, 0.05]]


@pytest.mark.parametrize("form", ["simharness2.environments.{}", "simharness2.environments.fire_harness:{}"])
def test_class_paths_resolve_without_the_package(form):
    from rayfish.envs.build import describe
    from rayfish.envs.spec import EnvSpec

    given = {
        "sim": {
            "_target_": "simfire.sim.simulation.FireSimulation",
            "config": {"config_dict": {"area": {"screen_size": [16, 16]}}},
        },
        "attributes": ["fire_map", "elevation"],
        "action_space_cls": {"_target_": "hydra.utils.get_class", "path": "gymnasium.spaces.MultiDiscrete"},
        "reward_cls_partial": {"_target_": "simharness2.rewards.base_reward.SimpleReward", "_partial_": True},
    }
    info = describe(EnvSpec(form.format("ReactiveHarness")), given)
    assert info.observation_space.shape == (16, 16, 2) and list(info.action_space.nvec) == [5, 2]
    with pytest.raises(RayfishError, match="DamageAwareReactiveHarness"):
        describe(EnvSpec(form.format("DamageAwareReactivHarness")))
