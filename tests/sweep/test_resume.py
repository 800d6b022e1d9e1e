"""A sweep that was killed goes on: nothing finished is run again, nothing that was learnt is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from rayfish import sweep
from rayfish.errors import RayfishError
from rayfish.sweep.directory import SweepDirectory, find_sweep
from rayfish.sweep.outcome import load_sweep
from rayfish.sweep.records import DONE, damage_in, fold, read_events
from tests.helpers import events_of, rayfish, small_disk, start_tune, wait_for

SLOW_FUNCTION = """
import pathlib, time
from rayfish import sweep

def train(config):
    calls = pathlib.Path(__file__).parent / "calls.txt"
    with calls.open("a") as file:
        file.write(f"{config['x']:.6f}\\n")
    begun = 0
    if sweep.checkpoint() is not None:
        begun = int((sweep.checkpoint() / "step.txt").read_text())
    here = pathlib.Path(__file__).parent / f"state-{config['x']:.6f}"
    for step in range(begun + 1, 5):
        time.sleep(0.15)
        here.mkdir(exist_ok=True)
        (here / "step.txt").write_text(str(step))
        sweep.report({"score": -(config["x"] - 0.3) ** 2 + 0.001 * step, "reached": step}, checkpoint=here)
"""


def _half_done(events: list[dict]) -> bool:
    """Whether a trial that runs has reported, and is not at its end."""
    counts = dict.fromkeys((e["trial"] for e in events if e["event"] == "start"), 0)
    for event in events:
        if event["event"] == "report":
            counts[event["trial"]] += 1
    ended = {e["trial"] for e in events if e["event"] == "end"}
    return any(2 <= count <= 3 and number not in ended for number, count in counts.items())


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A sweep of twelve trials, its driver killed without warning when four were done, then resumed."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "mine.py").write_text(SLOW_FUNCTION)
    words = ("--function", "mine.py:train", "x=uniform(0,1)", "search.num_samples=12", "search.seed=5")
    process = start_tune(folder, *words)
    wait_for(folder, process, "end", 4)
    while not _half_done(events_of(folder)):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = events_of(folder)
    table = next((folder / "runs").glob("*/*/trials.jsonl"))
    with table.open("ab") as file:
        file.write(b'{"event": "report", "tri')  # a line that the kill cut short
    done = rayfish("tune", "--resume", "last", "--plain", cwd=folder)
    return folder, before, done


def test_finished_trials_are_not_run_again(interrupted):
    folder, before, done = interrupted
    finished = {e["trial"] for e in before if e["event"] == "end"}
    assert len(finished) >= 4
    assert f"resumed: {len(finished)} trials finished before" in done.stdout
    assert not [n for n in finished if f"trial {n} done" in done.stdout], done.stdout
    after = events_of(folder)[len(before) :]
    assert not finished & {e["trial"] for e in after if e["event"] == "start"}
    trials = fold(events_of(folder))
    assert len(trials) == 12
    assert all(t.state == DONE for t in trials.values())


def test_interrupted_trials_continue_from_their_checkpoint(interrupted):
    folder, before, _ = interrupted
    finished = {e["trial"] for e in before if e["event"] == "end"}
    begun = {e["trial"] for e in before if e["event"] == "start"} - finished
    reached = {
        t: max((e["step"] for e in before if e["event"] == "report" and e["trial"] == t), default=0)
        for t in begun
    }
    assert any(reached.values())
    for number, trial in fold(events_of(folder)).items():
        file = find_sweep("last", folder / "runs") / "trials" / trial.name / "metrics.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert [line["reached"] for line in lines] == [1, 2, 3, 4], number
        assert [step for step, _ in trial.curve] == [1, 2, 3, 4]


def test_the_table_that_was_cut_short_is_whole_again(interrupted):
    folder, before, done = interrupted
    table = next((folder / "runs").glob("*/*/trials.jsonl"))
    assert "is damaged and left out" in done.stdout
    lines = table.read_text().splitlines()
    broken = [line for line in lines if not line.startswith("{") or not line.endswith("}")]
    assert broken == ['{"event": "report", "tri']
    assert len(events_of(folder)) > len(before) + 8


def test_the_searcher_goes_on_with_what_it_learnt(interrupted, tmp_path):
    """Its later points are those of a sweep that was never killed, up to who finished first."""
    folder, before, _ = interrupted
    trials = fold(events_of(folder))
    chosen_after = [
        t.params["x"] for n, t in trials.items() if n > len({e["trial"] for e in before if "trial" in e})
    ]
    assert len(set(chosen_after)) == len(chosen_after) >= 4
    assert not {round(x, 6) for x in chosen_after} & {
        round(e["params"]["x"], 6) for e in before if e["event"] == "new"
    }


def test_a_sweep_that_is_done_says_so_and_can_be_extended(interrupted):
    folder, _, _ = interrupted
    rayfish("tune", "--resume", "last", "--plain", cwd=folder)
    assert len(fold(events_of(folder))) == 12
    rayfish("tune", "--resume", "last", "--plain", "search.num_samples=14", cwd=folder)
    assert len(fold(events_of(folder))) == 14
    changed = rayfish("tune", "--resume", "last", "training.lr=3", cwd=folder, ok=False)
    assert changed.returncode == 1
    assert "a resumed sweep keeps its experiment" in changed.stderr


def test_ctrl_c_saves_what_runs_and_says_how_to_go_on(tmp_path):
    (tmp_path / "mine.py").write_text(SLOW_FUNCTION)
    process = start_tune(tmp_path, "--function", "mine.py:train", "x=grid(0.1,0.2,0.3,0.4,0.5,0.6)")
    wait_for(tmp_path, process, "report", 3)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert "rayfish tune --resume" in out
    states = {t.state for t in fold(events_of(tmp_path)).values()}
    assert "paused" in states and "running" not in states
    rayfish("tune", "--resume", "last", "--plain", cwd=tmp_path)
    assert {t.state for t in fold(events_of(tmp_path)).values()} == {DONE}


def test_a_sweep_is_found_by_path_name_id_and_last(interrupted, monkeypatch):
    folder, _, _ = interrupted
    monkeypatch.chdir(folder)
    path = find_sweep("last")
    sweep = SweepDirectory.open(path)
    assert find_sweep(sweep.data["id"][:4]) == path
    assert find_sweep(sweep.data["name"]) == path
    assert find_sweep(path / "trials") == path
    with pytest.raises(RayfishError, match="no sweep under"):
        find_sweep("nothing-like-it")


def test_two_processes_do_not_resume_the_same_sweep(tmp_path):
    (tmp_path / "mine.py").write_text(SLOW_FUNCTION)
    process = start_tune(tmp_path, "--function", "mine.py:train", "x=uniform(0,1)", "search.num_samples=40")
    wait_for(tmp_path, process, "end", 1)
    second = rayfish("tune", "--resume", "last", cwd=tmp_path, ok=False)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert second.returncode == 1
    assert f"is running: process {process.pid}" in second.stderr


@pytest.mark.parametrize("scheduler", ["none", "asha", "hyperband", "pbt"])
def test_failed_trials_have_another_try_when_more_failures_are_allowed(tune, tmp_path, scheduler):
    fixed, calls = tmp_path / "fixed", tmp_path / "calls"

    def train(config):
        from rayfish import sweep

        kept = sweep.checkpoint()
        begun = int((kept / "step").read_text()) if kept else 0
        with calls.open("a") as file:
            file.write(f"{config['x']:.4f} from {begun}\n")
        for step in range(begun + 1, 4):
            if config["x"] > 0.5 and step == 3 and not fixed.exists():
                raise RuntimeError("the licence server is gone")
            here = tmp_path / f"state-{config['x']}"
            here.mkdir(exist_ok=True)
            (here / "step").write_text(str(step))
            sweep.report(score=config["x"] * step, checkpoint=here)

    settings = {"num_samples": 6, "seed": 3, "scheduler": scheduler, "method": "random"}
    first = tune(train, {"x": "uniform(0,1)"}, **settings)
    failed = {t.number for t in first.trials if t.state == "failed"}
    assert failed
    assert len(failed) < 6
    fixed.touch()
    calls.unlink()
    same = tune(resume=first.folder)
    assert {t.number for t in same.trials if t.state == "failed"} == failed
    assert not calls.exists()
    again = tune(resume=first.folder, max_failures=1)
    assert all(t.state in ("done", "stopped") for t in again.trials), [t.error for t in again.trials]
    assert sorted(calls.read_text().splitlines()) == sorted(
        f"{t.params['x']:.4f} from 2" for t in again.trials if t.number in failed
    )
    calls.unlink()
    assert [t.value for t in tune(resume=first.folder).trials] == [t.value for t in again.trials]
    assert not calls.exists()


def test_a_mistyped_metric_is_corrected_with_the_command_that_the_sweep_prints(tune, tmp_path, capsys):
    calls = tmp_path / "calls"

    def train(config):
        with calls.open("a") as file:
            file.write(f"{config['x']}\n")
        for step in (1, 2):
            yield {"accuracy": config["x"] * step, "loss": 1.0}

    first = tune(train, {"x": "grid(1,2,3)"}, metric="acuracy", max_concurrent=1)
    assert [t.state for t in first.trials] == ["failed"]
    told = capsys.readouterr().out
    assert "search.metric=accuracy   score the trials" in told
    assert "search.max_failures" not in told
    again = tune(resume=first.folder, metric="accuracy")
    assert [(t.state, t.value, t.error) for t in again.trials] == [
        (DONE, 2, ""),
        (DONE, 4, ""),
        (DONE, 6, ""),
    ]
    assert [t.curve for t in again.trials] == [[(1, x), (2, 2 * x)] for x in (1, 2, 3)]
    assert calls.read_text().split() == ["1", "2", "3"]
    stored = load_sweep(first.folder)
    assert (stored.metric, stored.best_value, stored.best_config) == ("accuracy", 6, {"x": 3})


def test_a_trial_that_was_stopped_for_want_of_the_metric_goes_on_with_another(tune, tmp_path):
    def train(config):
        from rayfish import sweep

        kept = sweep.checkpoint()
        for step in range(int((kept / "step").read_text()) + 1 if kept else 1, 8):
            while config["x"] == 2 and step == 4 and not (tmp_path / "first").exists():
                time.sleep(0.05)
            here = tmp_path / f"state-{config['x']}"
            here.mkdir(exist_ok=True)
            (here / "step").write_text(str(step))
            sweep.report({"accuracy": config["x"] * step}, checkpoint=here)
            if config["x"] == 1 and step == 3:
                break
        if config["x"] == 1:
            (tmp_path / "first").touch()

    first = tune(train, {"x": "grid(1,2)"}, metric="acuracy", max_concurrent=2, resources={"cpu": 0.5})
    assert [t.state for t in first.trials] == ["failed", "stopped"]
    again = tune(resume=first.folder, metric="accuracy")
    assert [(t.state, t.value) for t in again.trials] == [(DONE, 3), (DONE, 14)]
    assert again.trials[1].curve == [(step, 2 * step) for step in range(1, 8)]


@pytest.mark.parametrize("scheduler", ["none", "asha", "hyperband", "pbt"])
def test_another_metric_scores_all_trials_and_runs_those_that_lack_it(tune, tmp_path, scheduler):
    calls, fixed = tmp_path / "calls", tmp_path / "fixed"

    def train(config):
        from rayfish import sweep

        with calls.open("a") as file:
            file.write(f"{config['x']}\n")
        for step in range(1, 4):
            cost = {"cost": -config["x"] * step} if config["x"] < 3 or fixed.exists() else {}
            sweep.report({"score": config["x"] * step, **cost})

    settings = {"scheduler": scheduler, "method": "random", "num_samples": 4, "max_concurrent": 1}
    first = tune(train, {"x": "randint(1,6)"}, metric="score", seed=4, **settings)
    lack = [t.params["x"] for t in first.trials if t.params["x"] >= 3]
    assert lack and len(lack) < 4
    fixed.touch()
    calls.unlink()
    again = tune(resume=first.folder, metric="cost")
    assert sorted(map(int, calls.read_text().split())) == sorted(lack)
    assert all(t.value == -t.params["x"] * t.curve[-1][0] for t in again.trials), again.trials
    assert [t.value for t in tune(resume=first.folder).trials] == [t.value for t in again.trials]


def test_the_score_of_a_trial_that_restarted_is_of_its_last_attempt(tune, tmp_path):
    def train(config):
        from rayfish import sweep

        first = not (tmp_path / "tried").exists()
        (tmp_path / "tried").touch()
        sweep.report(score=1 if first else 9)
        if first:
            raise RuntimeError("not this time")

    result = tune(train, {"x": "grid(1)"}, max_failures=1, scheduler="asha")
    assert [(t.state, t.value, t.curve) for t in result.trials] == [(DONE, 9, [(1, 9)])]
    assert tune(resume=result.folder).best_value == 9


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", "1m") as disk:
        yield disk


def test_a_full_disk_ends_a_sweep_with_one_message_and_costs_no_trial(tune, disk):
    filler = disk / "filler"

    def train(config):
        if config["x"] == 2 and not (disk / "fixed").exists():
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))
        return config["x"]

    with pytest.raises(RayfishError, match=r"cannot be written: No space left on device") as full:
        tune(train, {"x": "grid(1,2,3,4)"}, root=disk / "runs", max_concurrent=1)
    folder = full.value.hint.split()[-1]
    assert f"free space under {disk}" in full.value.hint
    assert json.loads((Path(folder) / "sweep.json").read_text())["status"] == "failed"
    with pytest.raises(RayfishError, match=r"cannot be written: No space left on device"):
        tune(resume=folder)
    filler.unlink()
    (disk / "fixed").touch()
    result = tune(resume=folder)
    assert [(t.state, t.value) for t in result.trials] == [(DONE, x) for x in (1, 2, 3, 4)]


def cut(result, keep) -> None:
    """The table as a kill would have left it: only the first lines."""
    table = result.folder / "trials.jsonl"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[: keep if isinstance(keep, int) else keep(lines)]))


def test_a_population_killed_before_a_comparison_is_compared_at_the_same_step(tune, capsys):
    def train(config):
        kept = sweep.checkpoint()
        for step in range(int((kept / "step").read_text()) + 1 if kept else 1, 7):
            folder = Path(tempfile.mkdtemp())
            (folder / "step").write_text(str(step))
            sweep.report(score=config["x"] * step, checkpoint=folder if step == 4 else None)

    settings = {"perturbation_interval": 4}
    result = tune(train, {"x": "grid(1,9,2,8)"}, scheduler="pbt", scheduler_config=settings, max_concurrent=1)
    table = result.folder / "trials.jsonl"
    events = list(read_events(table))
    last = [i for i, e in enumerate(events) if e["event"] == "report" and e["step"] == 4][3]
    assert events[last]["trial"] != 1
    kept = [e for e in events[:last] if e.get("trial") != 1 or e["event"] not in ("pause", "save")]
    table.write_text("".join(json.dumps(event) + "\n" for event in kept))
    capsys.readouterr()
    again = tune(train, resume=result.folder)
    assert "pbt: 4 trials take turns, 1 at a time" in capsys.readouterr().out
    assert any("take turns" in note for note in again.view.notes)
    assert json.loads((result.folder / "sweep.json").read_text())["total"] == 4
    since = list(read_events(table))[len(kept) :]
    assert next(e["event"] for e in since if e.get("trial") == 1) == "move"
    assert [trial.state for trial in again.trials] == [DONE] * 4


def after_end(number):
    def place(lines):
        return next(i for i, line in enumerate(lines) if f'"trial": {number}' in line and '"end"' in line) + 1

    return place


def test_values_from_python_are_the_same_after_a_resume(tune):
    import numpy as np

    def train(config):
        assert isinstance(config["data"], np.ndarray)
        assert isinstance(config["shape"], tuple)
        return float(config["data"].sum()) + sum(config["shape"]) + config["activation"](2.0)

    space = {"shape": {"grid_search": [(1, 2), (3, 4)]}, "activation": {"choice": [np.sqrt, np.square]}}
    first = tune(train, space, config={"data": np.array([1.0, 2.0])}, num_samples=2, max_concurrent=1)
    assert all(t.state == DONE for t in first.trials)
    cut(first, after_end(1))
    again = tune(resume=first.folder)
    assert [t.state for t in again.trials] == [DONE] * 4, [t.error for t in again.trials]
    assert [t.value for t in again.trials] == [t.value for t in first.trials]


@pytest.mark.slow
def test_an_environment_from_python_is_the_same_after_a_resume(tune):
    import gymnasium as gym

    class Short(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (2,))
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.count = 0
            return self.observation_space.sample(), {}

        def step(self, action):
            self.count += 1
            return self.observation_space.sample(), 100.0, self.count >= 5, False, {}

    words = ("stop_conditions.training_iteration=1", "training.train_batch_size_per_learner=256")
    small = (*words, "training.minibatch_size=64", "rollouts.num_envs_per_env_runner=4")
    first = tune("cartpole", {"training.gamma": "grid(0.9,0.99)"}, *small, env=Short, max_concurrent=1)
    assert [t.value for t in first.trials] == [500.0, 500.0]
    cut(first, after_end(1))
    again = tune(resume=first.folder)
    assert [t.value for t in again.trials] == [500.0, 500.0]
    assert "given from Python" in (first.folder / "best.yaml").read_text()


def test_starting_points_stay_what_they_were_at_the_start(tune):
    def train(config):
        return config["x"]

    tune(train, {"x": "grid(1,2,3)"})
    second = tune(train, {"x": "grid(1,2,3,4)"}, start_from=["last"], max_concurrent=1)
    order = [t.params["x"] for t in second.trials]
    assert order[:3] == [3, 2, 1]
    cut(second, after_end(1))
    again = tune(resume=second.folder)
    assert [t.params["x"] for t in again.trials] == order


def test_repetitions_that_a_cut_table_lost_are_made_up_for(tune):
    def train(config):
        return config["x"] + config["seed"]

    first = tune(train, {"x": "grid(0,10)"}, repeat=3, max_concurrent=1)

    def second_of_point_two(lines):
        return next(i for i, line in enumerate(lines) if '"new"' in line and '"trial": 5' in line)

    cut(first, second_of_point_two)
    again = tune(resume=first.folder)
    assert sorted(p.value for p in again.view.points()) == [1.0, 11.0]
    assert len(again.trials) == 6


def test_a_spent_budget_and_a_reached_goal_start_nothing_more(tune):
    def train(config):
        for step in range(50):
            time.sleep(0.02)
            from rayfish import sweep

            sweep.report(score=step)

    spent = tune(train, {"x": "uniform(0,1)"}, num_samples=9, time_budget_s=1, max_concurrent=1)
    again = tune(resume=spent.folder)
    assert len(again.trials) == len(spent.trials)
    reached = tune(train, {"x": "uniform(0,1)"}, num_samples=9, goal=3, max_concurrent=1)
    assert len(tune(resume=reached.folder).trials) == len(reached.trials) == 1


def test_damaged_lines_of_the_table_are_reported(tmp_path):
    table = tmp_path / "trials.jsonl"
    table.write_bytes(b'{"event": "stop"}\ngarbage\n{"event": "x\xff"}\n5\n{"event": "resume"}\n')
    damaged = []
    assert [event["event"] for event in read_events(table, damaged)] == ["stop", "resume"]
    assert damage_in(table, damaged) == "trials.jsonl: lines 2, 3, 4 are damaged and left out"
    assert damage_in(table, []) == ""
