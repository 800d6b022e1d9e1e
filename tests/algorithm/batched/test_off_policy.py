"""DQN and SAC on the batched path: rounds as RLlib's, checkpoints for both paths, acting as modules say."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core.columns import Columns

import rayfish
from rayfish.algorithm.batched.algorithms import BatchedDQN, BatchedSAC
from rayfish.algorithm.batched.replay.buffer import PrioritizedReplayBuffer, ReplayBuffer
from rayfish.algorithm.batched.runner import actor_for
from rayfish.algorithm.module import module_spec
from tests.algorithm.batched.off_policy_parity import BOX, MASKED, PICTURE

POLICY = "default_policy"
SMALL = ("training.model.fcnet_hiddens=[16]", "training.train_batch_size_per_learner=32")
DQN = (
    "cartpole-dqn", *SMALL, "rollouts.num_envs_per_env_runner=2", "training.target_network_update_freq=50",
    "training.training_intensity=null", "training.n_step=1",
    "training.replay_buffer_config.type=PrioritizedEpisodeReplayBuffer",
    "training.num_steps_sampled_before_learning_starts=40",
    "reporting.min_sample_timesteps_per_iteration=60", "debugging.seed=3",
)  # fmt: skip
SAC = (
    "pendulum", *SMALL, "rollouts.num_envs_per_env_runner=2", "training.n_step=1",
    "training.num_steps_sampled_before_learning_starts=40",
    "reporting.min_sample_timesteps_per_iteration=60", "debugging.seed=3",
)  # fmt: skip
CASES = {"DQN": (DQN, BatchedDQN), "SAC": (SAC, BatchedSAC)}


def steps(trainer, count: int) -> list[dict]:
    return [trainer.step() for _ in range(count)]


def module_for(algo: str, space: gym.Space, actions: gym.Space, *, model=None, temperature=None, **more):
    spec = module_spec(algo, {"fcnet_hiddens": [16], **(model or {})}, temperature=temperature)
    settings = {
        "dueling": True, "double_q": True, "num_atoms": 1, "v_min": -5.0, "v_max": 5.0, "epsilon": 0.0,
        "twin_q": True, **more,
    }  # fmt: skip
    return spec.module_class(
        observation_space=space, action_space=actions, inference_only=True,
        model_config={**spec.model_config, **settings}, catalog_class=spec.catalog_class,
    )  # fmt: skip


def observations(space: gym.Space, count: int = 64):
    space.seed(0)
    seen = [space.sample() for _ in range(count)]
    if not isinstance(space, gym.spaces.Dict):
        return torch.from_numpy(np.stack(seen))
    for one in seen:
        one["action_mask"][1] = 1
    return {key: torch.from_numpy(np.stack([one[key] for one in seen])) for key in space.spaces}


@pytest.mark.usefixtures("ray_session", "workdir")
class TestTraining:
    @pytest.mark.parametrize("name", CASES)
    def test_rounds_updates_and_targets_are_those_of_rllib(self, name):
        words, cls = CASES[name]
        counts = {}
        for runner in ("batched", "rllib"):
            with rayfish.Trainer(*words, f"rollouts.runner={runner}") as trainer:
                assert isinstance(trainer.algorithm, cls) == (runner == "batched")
                lines = steps(trainer, 2)
                learner = trainer.algorithm.learner_group._learner
                metrics = trainer.algorithm.metrics.peek(("learners", POLICY))
                counts[runner] = {
                    "sampled": trainer.algorithm.metrics.peek(
                        ("env_runners", "num_env_steps_sampled_lifetime")
                    ),
                    "trained": metrics["num_module_steps_trained_lifetime"],
                    "updates": learner._weights_seq_no,
                    "target updates": metrics["num_target_updates"],
                    "last target update": learner.last_update_ts_by_mid[POLICY],
                    "optimizer steps": {
                        name: float(next(iter(one.state.values()))["step"])
                        for name, one in learner._named_optimizers.items()
                    },
                }
                # RLlib's environments reset in a step that is none: its counts of steps may be a few less.
                names = {key for key in lines[-1] if key.startswith("learn/")}
                counts[runner]["figures"] = names
        ours, theirs = counts["batched"], counts["rllib"]
        assert ours["figures"] >= theirs["figures"]
        assert abs(ours["sampled"] - theirs["sampled"]) <= 4
        assert ours["trained"] == 32 * ours["updates"]
        assert abs(ours["updates"] - theirs["updates"]) <= 2 + 0.1 * theirs["updates"]
        assert abs(ours["target updates"] - theirs["target updates"]) <= 2 + 0.1 * theirs["target updates"]
        assert ours["last target update"] <= ours["sampled"]
        assert all(count == ours["updates"] for count in ours["optimizer steps"].values())

    def test_an_iteration_is_one_step_of_rllib_even_where_a_round_only_restarts(self):
        with rayfish.Trainer(*DQN, "rollouts.num_envs_per_env_runner=1") as trainer:
            steps(trainer, 2)  # CartPole's own vector resets in a step that is none
            assert trainer.result["num_training_step_calls_per_iteration"] == 1
            assert trainer.algorithm.learner_group._learner._weights_seq_no == 120 - 39

    def test_training_intensity_sets_the_updates_of_a_round(self):
        with rayfish.Trainer(*DQN, "training.training_intensity=64") as trainer:
            steps(trainer, 1)
            before = trainer.algorithm.learner_group._learner._weights_seq_no
            line = steps(trainer, 1)[0]
            updates = trainer.algorithm.learner_group._learner._weights_seq_no - before
            taken = line["run/env_steps"] - 60
            # 64 steps learnt from for each of the 2 that a round takes, 32 at a time: 4 updates a round.
            assert updates == pytest.approx(4 * taken / 2, rel=0.1)

    def test_the_same_seed_trains_the_same_and_another_does_not(self):
        def weights(*words: str) -> bytes:
            with rayfish.Trainer(*DQN, *words) as trainer:
                steps(trainer, 2)
                state = trainer.get_weights()[POLICY]
                return b"".join(np.ascontiguousarray(value).tobytes() for value in state.values())

        assert weights() == weights() != weights("debugging.seed=4")

    @pytest.mark.parametrize("name", CASES)
    def test_a_checkpoint_of_one_path_goes_on_in_the_other(self, name, tmp_path):
        words, _ = CASES[name]
        for first, second in (("batched", "rllib"), ("rllib", "batched")):
            with rayfish.Trainer(*words, f"rollouts.runner={first}") as trainer:
                steps(trainer, 2)
                folder = trainer.save(tmp_path / f"{name}-{first}")
                saved, held = _everything(trainer), _stored(trainer)
            with rayfish.Trainer(*words, f"rollouts.runner={second}") as trainer:
                trainer.restore(folder)
                for key, value in _everything(trainer).items():
                    assert np.array_equal(value, saved[key]), key
                assert abs(_stored(trainer) - held) <= 2  # a step may have waited for its end
                line = steps(trainer, 2)[-1]
                assert np.isfinite(line[f"learn/{POLICY}/qf_loss"])

    def test_a_remote_runner_collects_ahead_and_trains_as_often_as_a_local_one(self):
        updates, weights = {}, []
        for runners in (0, 1, 1):
            words = (*DQN, f"rollouts.num_env_runners={runners}", "training.training_intensity=64")
            with rayfish.Trainer(*words) as trainer:
                steps(trainer, 1)
                learner, group = trainer.algorithm.learner_group._learner, trainer.algorithm.env_runner_group
                requested, request = [], group.foreach_env_runner_async
                group.foreach_env_runner_async = lambda *args, ask=request, calls=requested, **kwargs: (
                    calls.append(args[0].__name__) or ask(*args, **kwargs)
                )
                before = learner._weights_seq_no, trainer.metrics["run/env_steps"]
                line = steps(trainer, 1)[0]
                updates[runners] = (learner._weights_seq_no - before[0]) / (line["run/env_steps"] - before[1])
                if not runners:
                    continue
                # Calls of at least 16 steps each, however short a round is; none is left in flight.
                assert requested.count("_fragments") == 4
                assert group._worker_manager.num_outstanding_async_reqs("rayfish_fragments") == 0
                expected = learner.module[POLICY].state_dict()
                [acting] = group.foreach_env_runner(_runner_weights, local_env_runner=False)
                for key, value in acting.items():
                    assert np.array_equal(value, expected[key].numpy()), key
                weights.append(b"".join(expected[key].numpy().tobytes() for key in sorted(expected)))
        assert updates[1] == pytest.approx(updates[0], rel=0.1) == pytest.approx(2.0, rel=0.1)
        assert weights[0] == weights[1]  # the same seed trains the same

    @pytest.mark.slow
    def test_runners_of_their_own_fill_one_buffer_each_with_its_stream(self):
        with rayfish.Trainer(*DQN, "rollouts.num_env_runners=2") as trainer:
            steps(trainer, 2)
            replay = trainer.algorithm.local_replay_buffer
            assert sorted(replay._streams) == [1, 2]
            assert replay.steps_added == trainer.algorithm.metrics.peek(
                ("env_runners", "num_env_steps_sampled_lifetime")
            )
            learner = trainer.algorithm.learner_group._learner
            expected = learner.module[POLICY].state_dict()
            for weights in trainer.algorithm.env_runner_group.foreach_env_runner(
                _runner_weights, local_env_runner=False
            ):
                for key, value in weights.items():
                    assert np.array_equal(value, expected[key].numpy()), key

    def test_the_buffer_is_the_one_that_was_asked_for(self):
        words = (
            "training.replay_buffer_config.type=EpisodeReplayBuffer",
            "training.replay_buffer_config.capacity=100",
            "rollouts.observation_filter=MeanStdFilter",
        )
        with rayfish.Trainer(*DQN, *words) as trainer:
            steps(trainer, 3)
            replay = trainer.algorithm.local_replay_buffer
            assert type(replay) is ReplayBuffer and len(replay) == 100
            figures = trainer.result["replay_buffer"]
            assert figures["num_env_steps_stored"] == 100
            assert figures["num_env_steps_added_lifetime"] == replay.steps_added
            both = replay.sample(64)["both"]
            assert float(both.abs().max()) <= 10.0  # what is stored is what the network saw: normalised
        with rayfish.Trainer(*DQN) as trainer:
            assert isinstance(trainer.algorithm.local_replay_buffer, PrioritizedReplayBuffer)
            assert trainer.algorithm.local_replay_buffer.alpha == 0.6


class TestActing:
    @pytest.mark.parametrize(
        ("space", "model", "more"),
        [
            (BOX, {}, {}),
            (MASKED, {}, {}),
            (BOX, {}, {"num_atoms": 5}),
            (PICTURE, {"conv_filters": [[4, 4, 2]]}, {}),
        ],
        ids=["plain", "masked", "atoms", "picture"],
    )
    def test_the_best_action_is_the_modules(self, space, model, more):
        torch.manual_seed(0)
        module = module_for("DQN", space, gym.spaces.Discrete(4), model=model, **more)
        seen = observations(space)
        with torch.no_grad():
            expected = module.forward_inference({Columns.OBS: seen})[Columns.ACTIONS]
            assert torch.equal(actor_for(module, None, explore=False).act(seen, None, 0).actions, expected)
            # With an epsilon of 0, exploring is the same.
            assert torch.equal(actor_for(module, None, explore=True).act(seen, None, 0).actions, expected)

    def test_epsilon_follows_its_schedule_over_the_allowed_actions(self):
        torch.manual_seed(0)
        module = module_for(
            "DQN", MASKED, gym.spaces.Discrete(4), epsilon=[[0, 1.0], [1000, 0.2]], dueling=False
        )
        seen = observations(MASKED, 4000)
        actor = actor_for(module, None, explore=True)
        allowed = seen["action_mask"].bool()
        best = actor_for(module, None, explore=False).act(seen, None).actions
        several = allowed.sum(dim=-1) == 2
        for t, epsilon in ((0, 1.0), (500, 0.6), (5000, 0.2)):
            chosen = actor.act(seen, None, t).actions
            assert bool(allowed.gather(1, chosen[:, None]).all())
            other = (chosen != best)[several].float().mean()
            assert float(other) == pytest.approx(epsilon / 2, abs=0.04)

    def test_soft_q_draws_by_how_good_an_action_is(self):
        torch.manual_seed(0)
        module = module_for("DQN", BOX, gym.spaces.Discrete(4), temperature=0.05)
        one = observations(BOX, 1).repeat(20_000, 1)
        drawn = actor_for(module, None, explore=True).act(one, None, 0).actions
        with torch.no_grad():
            expected = (module.compute_q_values({Columns.OBS: one[:1]})["qf_preds"] / 0.05).softmax(-1)[0]
        shares = torch.bincount(drawn, minlength=4) / len(drawn)
        assert torch.allclose(shares, expected, atol=0.02)

    @pytest.mark.parametrize("model", [{}, {"free_log_std": True}], ids=["plain", "free deviation"])
    def test_movements_are_drawn_from_the_modules_distribution(self, model):
        torch.manual_seed(0)
        actions = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        module = module_for("SAC", BOX, actions, model=model)
        one = observations(BOX, 1).repeat(20_000, 1)
        with torch.no_grad():
            inputs = module.forward_inference({Columns.OBS: one})[Columns.ACTION_DIST_INPUTS]
            dist = module.get_exploration_action_dist_cls().from_logits(inputs)
            drawn = actor_for(module, actions, explore=True).act(one, None, 0).actions
            theirs = dist.sample()
            assert torch.allclose(drawn.mean(0), theirs.mean(0), atol=0.02)
            assert torch.allclose(drawn.std(0), theirs.std(0), atol=0.02)
            mode = actor_for(module, actions, explore=False).act(one[:1], None, 0).actions
            assert torch.allclose(mode, dist.to_deterministic().sample()[:1], atol=1e-6)

    def test_forbidden_choices_of_sac_are_never_drawn(self):
        torch.manual_seed(0)
        module = module_for("SAC", MASKED, gym.spaces.Discrete(4))
        seen = observations(MASKED, 2000)
        for explore in (True, False):
            chosen = actor_for(module, None, explore=explore).act(seen, None, 0).actions
            assert bool(seen["action_mask"].bool().gather(1, chosen[:, None]).all())


def _everything(trainer) -> dict[str, np.ndarray]:
    """Weights, target weights, optimizer moments and adaptive values of a learner."""
    learner = trainer.algorithm.learner_group._learner
    found = {f"weights/{k}": v.numpy().copy() for k, v in learner.module[POLICY].state_dict().items()}
    for name, optimizer in learner._named_optimizers.items():
        for index, state in optimizer.state_dict()["state"].items():
            found |= {f"{name}/{index}/{key}": np.array(value.detach()) for key, value in state.items()}
    found["last target update"] = np.array(learner.last_update_ts_by_mid[POLICY])
    if hasattr(learner, "curr_log_alpha"):
        found["log alpha"] = learner.curr_log_alpha[POLICY].detach().numpy().copy()
    return found


def _stored(trainer) -> int:
    replay = trainer.algorithm.local_replay_buffer
    return len(replay) if isinstance(replay, ReplayBuffer) else replay.get_num_timesteps()


def _runner_weights(runner) -> dict[str, np.ndarray]:
    return {key: value.numpy() for key, value in runner.module.state_dict().items()}
