"""The benchmark's own arithmetic: stopping rule, medians, ratios, search and interval."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path += [str(BENCHMARKS), str(BENCHMARKS / "peers")]

import common  # noqa: E402
import parity  # noqa: E402
import speed  # noqa: E402
import speed_runs  # noqa: E402
import speed_table  # noqa: E402
from speed_runs import Ask, Choice, Log  # noqa: E402


def progress(goal: float | None = 475.0, max_steps: int = 1000) -> common.Progress:
    made = common.Progress(common.TASKS["cartpole"], max_steps, 60.0, goal)
    made.start()
    return made


def test_the_goal_needs_a_full_window():
    made = progress()
    for _ in range(99):
        made.episode(500.0)
    assert not made.over(10)
    made.episode(500.0)
    assert made.over(11)
    assert made.reached


def test_the_window_forgets_old_episodes():
    made = progress()
    for value in [0.0] * 100 + [500.0] * 94:
        made.episode(value)
    assert not made.over(10)
    made.episode(500.0)  # 95 of 100 at 500: exactly 475
    assert made.over(11)


def test_a_limit_ends_a_run_without_the_goal(capsys):
    made = progress(max_steps=100)
    made.episode(9.0)
    assert not made.over(99)
    assert made.over(100)
    made.report(envs=4)
    line = json.loads(capsys.readouterr().out)
    assert (line["reached"], line["steps"], line["return_mean"], line["envs"]) == (False, 100, 9.0, 4)


def test_without_a_goal_only_limits_end_a_run():
    made = progress(goal=None)
    for _ in range(100):
        made.episode(500.0)
    assert not made.over(10)


def test_steady_speed_leaves_out_the_first_quarter():
    assert common.steady([(0, 0.0), (100, 50.0), (400, 53.0)]) == pytest.approx(100.0)
    assert common.steady([(0, 0.0), (100, 2.0)]) == pytest.approx(50.0)


def line(peer: str, seed: int, train_s: float, *, reached: bool = True, threads: int = 1, **more) -> dict:
    return {
        "kind": "run", "task": "cartpole", "peer": peer, "seed": seed,
        "choice": {"threads": threads, "envs": 0, "vectorize": ""}, "only_steps": None, "reached": reached,
        "steps": 1000, "train_s": train_s, "whole_s": train_s + 5, "steps_per_s": 1.0,
        "steady_steps_per_s": 1000 / train_s, "episodes": 100, "return_mean": 480.0, "envs": 8, **more,
    }  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "runs.jsonl")


def test_medians_and_ratios(log):
    log.lines = [line("rayfish", s, t) for s, t in ((1, 2.0), (2, 4.0), (3, 3.0))]
    log.lines += [line("sb3", s, t) for s, t in ((1, 30.0), (2, 20.0), (3, 10.0))]
    rows = speed_table.summary(log, "run")["cartpole"]["peers"]
    assert rows["rayfish"]["train_s"] == 3.0
    assert (rows["sb3"]["train_s_ratio"], rows["sb3"]["whole_s_ratio"]) == (6.67, 3.12)
    assert rows["sb3"]["steps_per_s_ratio"] == pytest.approx(6.67, abs=0.01)


def test_a_peer_that_misses_its_goal_on_most_seeds_shows_how_far_it_was_and_what_it_took_at_least(log):
    log.lines = [
        line("rayfish", 1, 4.0),
        line("sb3", 1, 20.0),
        line("sb3", 2, 20.0, reached=False),
        line("sb3", 3, 20.0, reached=False),
    ]
    peers = speed_table.summary(log, "run")["cartpole"]["peers"]
    row = peers["sb3"]
    assert (row["train_s"], row["reached"]) == (None, 1)
    assert "given up at" in speed_table._steps(row)
    assert speed_table._seconds(row, "train_s") == "> 20"
    assert speed_table._times(row, "train_s", peers["rayfish"]) == "> 5.0"


def test_a_run_made_before_is_not_made_again(log, monkeypatch):
    calls = []

    def fake(ask):
        calls.append(ask)
        return line("sb3", ask.seed, 20.0)

    monkeypatch.setitem(speed_runs.PEERS, "sb3", speed_runs.PEERS["sb3"].__class__(
        **{**vars(speed_runs.PEERS["sb3"]), "run": fake}))  # fmt: skip
    ask = Ask("cartpole", "sb3", 1, Choice(threads=1))
    log.run("run", ask)
    again = Log(log.path)
    again.run("run", ask)
    assert len(calls) == 1
    again.run("run", Ask("cartpole", "sb3", 1, Choice(threads=2)))
    assert len(calls) == 2
    again.forget({"run"}, ["cartpole"], ["sb3"])
    assert Log(log.path).lines == []


def test_a_failed_run_is_tried_again(log, monkeypatch):
    peer = speed_runs.PEERS["sb3"].__class__(
        **{**vars(speed_runs.PEERS["sb3"]), "run": lambda ask: {"error": "no", "whole_s": 1.0}}
    )
    monkeypatch.setitem(speed_runs.PEERS, "sb3", peer)
    log.run("run", Ask("cartpole", "sb3", 1, Choice()))
    assert log.lines == []


def test_a_peers_own_choice_stays_unless_another_is_clearly_faster():
    own, other = Choice(threads=1), Choice(threads=2)
    assert speed._fastest(own, {own: 100.0, other: 104.0}) == own
    assert speed._fastest(own, {own: 100.0, other: 106.0}) == other


def test_stock_gets_the_presets_numbers():
    settings = speed_runs.preset_settings("acrobot")
    assert settings["training"]["num_epochs"] and settings["model"]["fcnet_hiddens"] == [64, 64]


def test_parity_interval_is_welchs():
    def runs(values):
        return [{"curve": [(10, value)]} for value in values]

    same = parity.compare(
        {"batched": runs([480, 490, 500, 495, 485]), "rllib": runs([480, 490, 500, 495, 485])}, 12
    )
    assert same["difference"] == 0
    assert same["high"] == pytest.approx(
        2.306 * 5.0, rel=1e-4
    )  # 8 degrees of freedom, error sqrt(2 * 62.5 / 5)
    assert same["equal"]
    better = parity.compare(
        {"batched": runs([480, 490, 500, 495, 485]), "rllib": runs([470, 480, 490, 485, 475])}, 12
    )
    assert better["difference"] == 10 and not better["equal"]  # the interval reaches beyond what is allowed
    solved = parity.compare({"batched": runs([500, 500]), "rllib": runs([500, 500])}, 45)
    assert solved["equal"] and solved["low"] == solved["high"] == 0


def test_off_policy_tables_say_how_often_each_learns():
    words = speed_table.updates_in_words("cartpole-dqn")
    assert "RLlib 0.5," in words  # 64 of 128 rows per step
    assert "sbx 0.5;" in words  # 128 updates per 256 steps
