"""The array replay buffer gives back exactly what was added, and draws it in the right proportions."""

from __future__ import annotations

import errno
import io
import itertools
import pickle
import re
from dataclasses import replace

import cloudpickle
import gymnasium as gym
import numpy as np
import psutil
import pytest
import torch
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from rayfish.algorithm.batched.replay import transitions
from rayfish.algorithm.batched.replay.buffer import PrioritizedReplayBuffer, ReplayBuffer
from rayfish.algorithm.batched.replay.priorities import Priorities
from rayfish.algorithm.batched.rollout import Rollout
from rayfish.algorithm.batched.sampler import Decision, Sampler
from rayfish.envs.agents import AgentsVector
from rayfish.envs.vector import GymVector
from rayfish.errors import RayfishError

GAMMA = 0.9
KINDS = (ReplayBuffer, PrioritizedReplayBuffer)


class Play:
    """Slots whose observations are numbered: number -> (action, reward, terminated, done, next number)."""

    def __init__(self, slots: int, stream: int = 0, seed: int = 0, away: float = 0.0) -> None:
        self.random = np.random.default_rng([seed, stream])
        self.slots, self.stream, self.away = slots, stream, away
        self.steps: dict[int, tuple[int, float, bool, bool, int]] = {}
        self.number = stream * 1_000_000
        self.now = [self.new() for _ in range(slots)]
        self.order: list[list[int]] = [[] for _ in range(slots)]

    def new(self) -> int:
        self.number += 1
        return self.number

    def rollout(self, length: int) -> Rollout:
        shape = (length, self.slots)
        obs, actions, rewards = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape)
        terminated, done, valid = (np.zeros(shape, bool) for _ in range(3))
        final_index, final_obs = [], []
        for t in range(length):
            for n in range(self.slots):
                obs[t, n] = self.now[n]
                valid[t, n] = self.random.random() >= self.away
                if not valid[t, n]:
                    obs[t, n] = -1
                    continue
                actions[t, n], rewards[t, n] = self.random.integers(5), self.random.normal()
                over = self.random.random()
                terminated[t, n], done[t, n] = over < 0.1, over < 0.2
                before, after = self.now[n], self.new()
                self.now[n] = self.new() if done[t, n] else after
                if done[t, n]:
                    final_index.append(t * self.slots + n)
                    final_obs.append(after)
                self.steps[before] = (
                    int(actions[t, n]), float(rewards[t, n]), bool(terminated[t, n]), bool(done[t, n]), after,
                )  # fmt: skip
                self.order[n].append(before)
        return Rollout(
            obs=self.tree(obs),
            actions=torch.from_numpy(actions),
            rewards=torch.from_numpy(rewards).float(),
            terminated=torch.from_numpy(terminated),
            done=torch.from_numpy(done),
            valid=torch.from_numpy(valid) if self.away else None,
            last_obs=self.tree(np.array(self.now)),
            final_index=torch.tensor(final_index, dtype=torch.int64),
            final_obs=self.tree(np.array(final_obs)),
            stream=self.stream,
        )

    def tree(self, numbers: np.ndarray) -> dict:
        """A nested observation: the number, and an image of bytes that shows it."""
        number = torch.from_numpy(numbers).float()
        image = (number.long() % 251).to(torch.uint8)[..., None, None].expand(*numbers.shape, 2, 3)
        return {"number": number, "more": (image.contiguous(), torch.ones(numbers.shape))}

    def expected(self, start: int, n_step: int, stored: set[int]) -> tuple[float, int, bool, int]:
        """(discounted rewards, last observation, terminated, steps) from an observation on."""
        total, used, current, terminated = 0.0, 0, start, False
        while used < n_step and current in stored:
            _, reward, terminated, done, after = self.steps[current]
            total += GAMMA**used * reward
            used += 1
            current = after
            if done:
                break
        return total, current, terminated, used


def numbers(tree) -> list[int]:
    return [int(value) for value in tree["number"]]


def newest(play: Play, rows: int) -> set[int]:
    """The steps that a buffer with rings of so many rows still holds."""
    return {number for column in play.order for number in column[-rows:]}


def check(buffer: ReplayBuffer, plays: list[Play], n_step: int, stored: set[int]) -> None:
    batch = buffer.sample(512, n_step=n_step, gamma=GAMMA)
    steps = {number: play for play in plays for number in play.steps}
    for i, number in enumerate(numbers(batch["obs"])):
        assert number in stored
        total, after, terminated, used = steps[number].expected(number, n_step, stored)
        assert batch["actions"][i] == steps[number].steps[number][0]
        assert float(batch["rewards"][i]) == pytest.approx(total, abs=1e-5)
        assert int(batch["next_obs"]["number"][i]) == after
        assert int(batch["next_obs"]["more"][0][i, 0, 0]) == after % 251
        assert bool(batch["terminateds"][i]) == terminated
        assert int(batch["n_step"][i]) == used
    assert batch["obs"]["more"][0].dtype == torch.uint8
    assert {number for _ in range(8) for number in numbers(buffer.sample(512)["obs"])} == stored


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_step", [1, 3])
def test_transitions_are_those_of_the_episodes_before_and_after_rings_are_full(kind, n_step):
    play, buffer = Play(4), kind(100, seed=0)
    for length, rows in ((5, 25), (7, 25), (3, 25), (30, 25), (11, 25), (1, 25)):
        buffer.add(play.rollout(length))
        stored = newest(play, rows)
        assert len(buffer) == len(stored)
        check(buffer, [play], n_step, stored)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_that_only_waited_are_left_out_and_a_step_is_drawn_once_its_end_is_known(kind):
    play, buffer = Play(3, away=0.3), kind(60, seed=1)
    waits = [False] * 3  # what an absent agent will see next is not known
    for length in (1, 1, 4, 1, 9, 2, 1, 17):
        rollout = play.rollout(length)
        buffer.add(rollout)
        stored = newest(play, 20)
        for n in range(3):
            if rollout.valid[:, n].any():
                waits[n] = not rollout.valid[-1, n] and not play.steps[play.order[n][-1]][3]
            if waits[n]:
                stored.discard(play.order[n][-1])
        assert len(buffer) == len(stored)
        if stored:
            check(buffer, [play], 3, stored)


@pytest.mark.parametrize("kind", KINDS)
def test_streams_come_one_after_the_other_and_share_the_capacity(kind):
    one, two, buffer = Play(2, stream=0), Play(2, stream=5), kind(40, seed=0)
    buffer.add(one.rollout(15))
    check(buffer, [one], 2, newest(one, 20))
    buffer.add(two.rollout(6))
    check(buffer, [one, two], 2, newest(one, 10) | newest(two, 10))
    buffer.add(one.rollout(3))
    buffer.add(two.rollout(3))
    check(buffer, [one, two], 2, newest(one, 10) | newest(two, 10))
    assert len(buffer) == 20 + 18


def test_an_episode_that_does_not_go_on_ends_at_what_was_seen_last():
    play, buffer = Play(2, seed=3), ReplayBuffer(50, seed=0)
    buffer.add(play.rollout(4))
    open_ends = [column[-1] for column in play.order if not play.steps[column[-1]][3]]
    assert open_ends
    play.now = [play.new() for _ in range(2)]  # the runner began again
    buffer.add(play.rollout(4))
    batch = buffer.sample(1000, n_step=6, gamma=GAMMA)
    found = numbers(batch["obs"])
    for number in open_ends:
        row = found.index(number)
        assert int(batch["next_obs"]["number"][row]) == play.steps[number][4]
        assert int(batch["n_step"][row]) == 1 and not batch["terminateds"][row]


EPISODES = itertools.count(1)
SEEN, CHOICES = gym.spaces.Box(-1e9, 1e9, (2,), np.float32), gym.spaces.Discrete(2)


class Alone(gym.Env):
    """Shows the number of its episode and of the step."""

    observation_space, action_space = SEEN, CHOICES
    metadata = {"render_modes": []}  # noqa: RUF012  (a vector writes into it)

    def reset(self, *, seed=None, options=None):
        self.episode, self.steps = next(EPISODES), 0
        return np.array([self.episode, 0], np.float32), {}

    def step(self, action):
        self.steps += 1
        over = self.steps >= 2 + self.episode % 5
        return np.array([self.episode, self.steps], np.float32), 1.0, over, False, {}


class Latecomers(MultiAgentEnv):
    """Three agents that come and go, and often miss a reset."""

    def __init__(self):
        self.possible_agents = self.agents = ["a", "b", "c"]
        self.observation_spaces, self.action_spaces = (
            dict.fromkeys("abc", SEEN),
            dict.fromkeys("abc", CHOICES),
        )
        self.random = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        self.episode, self.steps = next(EPISODES), 0
        self.here = {agent for agent in "abc" if self.random.random() < 0.5} or {"a"}
        return self.seen(), {}

    def step(self, actions):
        self.steps += 1
        changed = {agent for agent in "abc" if self.random.random() < 0.2}
        self.here = (self.here ^ changed) or {"a"}
        over = bool(self.random.random() < 0.15)
        return self.seen(), dict.fromkeys(self.here, 1.0), {"__all__": over}, {"__all__": False}, {}

    def seen(self):
        return {agent: np.array([self.episode, self.steps], np.float32) for agent in sorted(self.here)}


class Idle:
    """Chooses the first action for everyone."""

    def act(self, obs, state, t):
        return Decision(torch.zeros(len(obs), dtype=torch.int64))

    def initial_state(self):
        return None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("make", "lengths", "resets"),
    [
        (lambda: AgentsVector([Latecomers() for _ in range(4)], "policy"), [3] * 40, 2),
        (lambda: GymVector(gym.vector.SyncVectorEnv([Alone] * 4)), [3, 25, 26, 60, 5] * 6, 99),
    ],
    ids=["agents-miss-resets", "next-step-autoreset-and-long-rollouts"],
)
def test_no_transition_joins_two_episodes(kind, make, lengths, resets):
    buffer, sampler = kind(100, seed=0), Sampler(make(), Idle())
    sampler.reset(seed=0)
    for index, length in enumerate(lengths):
        if index % resets == 1:
            sampler.reset(seed=index)  # as a restarted runner does
        buffer.add(sampler.collect(length))
        for slot in buffer.rollouts():
            episodes, steps = (slot.final_obs - slot.obs)[:, 0].numpy().T
            assert not episodes.any(), f"{np.count_nonzero(episodes)} of {len(episodes)} join two episodes"
            assert set(steps) <= {0, 1}, "an agent that is gone without a word saw nothing more"
        batch = buffer.sample(64, n_step=3)
        assert torch.equal(batch["obs"][:, 0], batch["next_obs"][:, 0])


def test_what_an_absent_agent_sees_after_a_long_rollout_is_not_joined_to_its_last_step():
    play, buffer = Play(3, away=0.3), ReplayBuffer(60, seed=1)
    for length in (3, 1, 25, 1, 30, 2, 1, 40):
        buffer.add(play.rollout(length))
        for slot in buffer.rollouts():
            found = [play.steps[number][4] for number in numbers(slot.obs)]
            assert numbers(slot.final_obs) == found


def test_another_number_of_slots_keeps_what_fits():
    play, buffer = Play(3), ReplayBuffer(60, seed=0)
    buffer.add(play.rollout(8))
    wider = Play(4, seed=9)
    wider.number = 5000
    wider.now = [wider.new() for _ in range(4)]
    buffer.add(wider.rollout(5))
    seen = {number for _ in range(8) for number in numbers(buffer.sample(512)["obs"])}
    assert seen == newest(play, 15) | newest(wider, 15)


def test_a_drawn_span_lies_between_both_ends():
    play, buffer = Play(2), ReplayBuffer(2000, seed=0)
    buffer.add(play.rollout(900))
    spans = [int(n) for n in buffer.sample(3000, n_step=(2, 4), gamma=GAMMA)["n_step"]]
    assert set(spans) == {1, 2, 3, 4}  # 1 only where an episode ends
    assert spans.count(1) < spans.count(2)
    assert min(spans.count(2), spans.count(3), spans.count(4)) > 300


def test_draws_are_even_over_slots_and_ages():
    play, buffer = Play(5), ReplayBuffer(50, seed=0)
    for _ in range(7):
        buffer.add(play.rollout(3))
    counts = np.bincount(
        np.unique(
            np.concatenate([numbers(buffer.sample(5000)["obs"]) for _ in range(4)]), return_inverse=True
        )[1]
    )
    assert len(counts) == 50 and counts.sum() == 20_000
    assert ((counts - 400) ** 2 / 400).sum() < 95  # chi-square with 49 degrees of freedom, p < 1e-4


def test_priorities_and_weights_are_those_of_rllib():
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer

    episode = SingleAgentEpisode(
        observations=[np.float32(i) for i in range(21)], actions=[0] * 20, rewards=[1.0] * 20,
        terminated=True, len_lookback_buffer=0,
    )  # fmt: skip
    theirs = PrioritizedEpisodeReplayBuffer(capacity=32, alpha=0.6)
    theirs.rng = np.random.default_rng(0)
    theirs.add(episode)
    ours = PrioritizedReplayBuffer(20, alpha=0.6, seed=0)
    zeros = torch.zeros(20, 1)
    done = zeros.bool().clone()
    done[-1] = True
    ours.add(
        Rollout(torch.arange(20.0)[:, None], zeros.long(), zeros + 1, done, done, None, torch.zeros(1),
                torch.tensor([19]), torch.tensor([20.0]))
    )  # fmt: skip
    errors = np.random.default_rng(1).uniform(0.0, 3.0, 20)
    errors[4] = 0.0
    theirs._last_sampled_indices = list(range(20))
    theirs.update_priorities(errors)
    ours.update_priorities(torch.arange(20), torch.from_numpy(errors))
    drawn = theirs.sample(num_items=300, n_step=1, beta=0.4, gamma=GAMMA)
    weights = {int(e.get_observations(0)): e.get_extra_model_outputs("weights", 0) for e in drawn}
    batch = ours.sample(20_000, beta=0.4)
    seen = [int(number) for number in batch["obs"]]
    for number, weight in zip(seen, batch["weights"].tolist(), strict=True):
        if number in weights:
            assert weight == pytest.approx(weights[number], rel=1e-5)
    shares = np.bincount(seen, minlength=20) / len(seen)
    expected = np.maximum(errors, 1e-12) ** 0.6
    assert np.abs(shares - expected / expected.sum()).max() < 0.01
    ours.add(
        Rollout(torch.full((1, 1), 99.0), zeros[:1].long(), zeros[:1], zeros[:1].bool(), zeros[:1].bool(),
                None, torch.full((1,), 100.0), torch.zeros(0, dtype=torch.int64), torch.zeros(0))
    )  # fmt: skip
    shares = (ours.sample(20_000)["obs"] == 99.0).float().mean()
    expected[0] = errors.max() ** 0.6  # the new step took the place of the oldest, with the highest priority
    assert float(shares) == pytest.approx(expected[0] / expected.sum(), abs=0.01)


@pytest.mark.parametrize("size", [3, 64, 1000])
def test_nothing_without_a_priority_is_ever_drawn(size):
    generator = torch.Generator().manual_seed(0)
    priorities = Priorities(size)
    chosen = torch.randperm(size, generator=generator)[: max(1, size // 3)]
    priorities.put(chosen, torch.rand(chosen.numel(), generator=generator) * 1e-9)
    places, values = priorities.draw(5000, generator)
    assert set(places.tolist()) <= set(chosen.tolist()) and bool((values > 0).all())


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_buffer_draws_and_takes_what_the_original_does(kind):
    play, buffer = Play(3, away=0.2), kind(90, seed=0)
    for _ in range(3):
        buffer.add(play.rollout(14))
    batch = buffer.sample(32, n_step=(1, 3), gamma=GAMMA, beta=0.5)
    buffer.update_priorities(batch["indices"], torch.rand(32, generator=torch.Generator().manual_seed(0)))
    copy = pickle.loads(cloudpickle.dumps(buffer))
    for _ in range(6):
        rollout = play.rollout(5)
        buffer.add(rollout)
        copy.add(rollout)
        left, right = (one.sample(64, n_step=(1, 3), gamma=GAMMA, beta=0.5) for one in (buffer, copy))
        for name in ("actions", "rewards", "terminateds", "n_step", "weights", "indices"):
            assert torch.equal(left[name], right[name]), name
        assert torch.equal(left["both"]["number"], right["both"]["number"])
        errors = torch.rand(64, generator=torch.Generator().manual_seed(1))
        buffer.update_priorities(left["indices"], errors)
        copy.update_priorities(right["indices"], errors)
    assert buffer.counts() == copy.counts()


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_filled_part_is_written(kind):
    play, buffer = Play(2), kind(500_000, seed=0)
    assert len(pickle.loads(cloudpickle.dumps(buffer))) == 0
    buffer.add(play.rollout(10))
    assert len(cloudpickle.dumps(buffer)) < 200_000


def test_last_observations_may_come_for_every_step():
    play, buffer, other = Play(2), ReplayBuffer(100, seed=0), ReplayBuffer(100, seed=0)
    for _ in range(3):
        rollout = play.rollout(9)
        led_to = np.array([[play.steps[int(n)][4] for n in row] for row in rollout.obs["number"]])
        buffer.add(rollout)
        other.add(replace(rollout, final_index=None, final_obs=play.tree(led_to)))
    left, right = buffer.sample(300), other.sample(300)
    assert torch.equal(left["next_obs"]["number"], right["next_obs"]["number"])
    assert torch.equal(left["both"]["more"][0], right["both"]["more"][0])


def test_an_empty_buffer_says_so():
    with pytest.raises(IndexError, match="empty"):
        ReplayBuffer(10).sample(1)


def test_episodes_shorter_than_expected_find_room():
    buffer = ReplayBuffer(3000, seed=0)
    for start in range(0, 9000, 1000):
        ids = torch.arange(start, start + 1000.0)[:, None]
        done = torch.ones(1000, 1, dtype=torch.bool)
        buffer.add(
            Rollout(ids, ids.long(), ids, done, done, None, ids[0], torch.arange(1000), ids[:, 0] + 0.5)
        )
    batch = buffer.sample(500)
    assert torch.equal(batch["next_obs"], batch["obs"] + 0.5)
    assert buffer.episodes == 3000 and float(batch["obs"].min()) >= 6000


@pytest.mark.parametrize("kind", KINDS)
def test_steps_survive_the_way_to_episodes_and_back(kind):
    from rayfish.algorithm.batched.replay.exchange import fill, to_episodes

    play, buffer = Play(3), kind(300, seed=0)
    for _ in range(4):
        buffer.add(play.rollout(20))
    episodes = to_episodes(buffer)
    assert sum(len(episode) for episode in episodes) == 240
    back = kind(600, seed=0)  # short episodes side by side leave gaps of no steps, not of room
    fill(back, episodes, {0: 2, 4: 2})
    assert len(back) == 240 and sorted(back._streams) == [0, 4]
    check(back, [play], 1, newest(play, 80))
    ends = {column[-1] for column in play.order}
    batch = back.sample(2000)
    for number, done in zip(numbers(batch["obs"]), batch["terminateds"], strict=True):
        assert bool(done) == play.steps[number][2]
    long = back.sample(2000, n_step=5, gamma=GAMMA)  # the open ends run out of time, and nothing goes beyond
    for i, number in enumerate(numbers(long["obs"])):
        _, after, _, used = play.expected(number, 5, newest(play, 80))
        assert int(long["next_obs"]["number"][i]) == after and int(long["n_step"][i]) == used
    assert ends <= set(numbers(batch["obs"]))


def test_memory_is_taken_as_the_buffer_fills_in_a_seeded_run_too():
    """Deterministic algorithms make torch.empty fill its memory: a buffer of images took 20 GB at once."""
    before = psutil.Process().memory_info().rss
    rollout = Play(2).rollout(8)
    wide = {"obs": torch.zeros(8, 2, 2000), "last_obs": torch.zeros(2, 2000)}
    wide["final_obs"] = torch.zeros(len(rollout.final_index), 2000)
    torch.use_deterministic_algorithms(True)
    try:
        replay = ReplayBuffer(200_000)
        replay.add(replace(rollout, **wide))  # has room for 1.7 GB
        assert torch.utils.deterministic.fill_uninitialized_memory
        replay._grow_finals(1)
    finally:
        torch.use_deterministic_algorithms(False)
    assert psutil.Process().memory_info().rss - before < 200e6


def test_a_buffer_larger_than_the_memory_takes_only_what_it_holds():
    total = psutil.virtual_memory().total
    rollout, width = Play(2).rollout(8), 100_000
    wide = {"obs": torch.ones(8, 2, width), "last_obs": torch.ones(2, width)}
    wide["final_obs"] = torch.ones(len(rollout.final_index), width)
    replay = ReplayBuffer(2 * total // (4 * width))
    replay.add(replace(rollout, **wide))
    assert replay._arrays["obs"].nbytes > 1.5 * total
    assert bool((replay.sample(4)["obs"] == 1).all())
    copy = pickle.loads(pickle.dumps(replay))
    assert len(copy) == len(replay)


def test_a_buffer_for_which_there_is_no_memory_says_which_capacity_fits(monkeypatch):
    def refuse(*arguments, **options):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(transitions.mmap, "mmap", refuse)
    with pytest.raises(RayfishError, match="no memory for a replay buffer of 50,000 steps") as caught:
        ReplayBuffer(50_000).add(Play(2).rollout(8))
    assert re.fullmatch(r"set training\.replay_buffer_config\.capacity=\d+", caught.value.hint)


def test_a_buffer_is_saved_in_pieces_so_that_no_second_copy_of_it_is_held():
    from rayfish.algorithm import snapshot

    class File(io.BytesIO):
        largest = 0

        def write(self, data) -> int:
            self.largest = max(self.largest, len(data))
            return super().write(data)

    file, held = File(), np.arange(6 * 2**20, dtype=np.float64)
    pickle.dump(held, snapshot._InPieces(file), protocol=5)
    assert file.largest <= 16 * 2**20 < held.nbytes
    assert np.array_equal(pickle.loads(file.getvalue()), held)
