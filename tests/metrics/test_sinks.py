"""What the sinks write can be read back, grows new columns, and rolls back on a resume."""

from __future__ import annotations

import csv
import json
import time

import pytest

from rayfish.metrics import names
from rayfish.metrics.sinks import open_sinks, read_jsonl


class Trackers:
    """The one question the sinks ask an experiment."""

    def __init__(self, tensorboard=True):
        self.tensorboard = tensorboard

    def get(self, key, default=None):
        return {"trackers.tensorboard": self.tensorboard}.get(key, default)


def line(iteration, **extra):
    return {names.ITERATION: iteration, names.ENV_STEPS: 100 * iteration, names.TIME_TOTAL: 0.5} | extra


def rows(folder):
    with (folder / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def scalars(folder, tag):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "events"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_every_sink_has_every_line(tmp_path):
    with open_sinks(tmp_path, Trackers()) as sinks:
        for iteration in (1, 2, 3):
            sinks.write(line(iteration, **{names.RETURN_MEAN: 10.0 * iteration}))
    assert read_jsonl(tmp_path / "metrics.jsonl")[2] == line(3, **{names.RETURN_MEAN: 30.0})
    assert [row[names.RETURN_MEAN] for row in rows(tmp_path)] == ["10.0", "20.0", "30.0"]
    assert scalars(tmp_path, names.RETURN_MEAN) == [(100, 10.0), (200, 20.0), (300, 30.0)]


def test_lines_can_be_followed_while_the_run_goes_on(tmp_path):
    sinks = open_sinks(tmp_path, Trackers(False))
    sinks.write(line(1))
    assert len(read_jsonl(tmp_path / "metrics.jsonl")) == len(rows(tmp_path)) == 1
    sinks.close()


def test_what_was_flushed_is_there_for_another_process(tmp_path):
    sinks = open_sinks(tmp_path, Trackers())
    for iteration in range(1, 6):
        sinks.write(line(iteration, **{names.RETURN_MEAN: float(iteration)}))
        sinks.flush()
        assert scalars(tmp_path, names.RETURN_MEAN)[-1] == (100 * iteration, float(iteration))
    sinks.close()


def test_tensorboard_can_be_switched_off(tmp_path):
    with open_sinks(tmp_path, Trackers(False)) as sinks:
        sinks.write(line(1))
    assert not (tmp_path / "events").exists()


def test_a_metric_that_appears_later_adds_a_column(tmp_path):
    with open_sinks(tmp_path, Trackers(False)) as sinks:
        sinks.write(line(1))
        sinks.write(line(2, **{names.EVAL_RETURN_MEAN: 7.0}))
        sinks.write(line(3))
    assert [row[names.EVAL_RETURN_MEAN] for row in rows(tmp_path)] == ["", "7.0", ""]
    assert [row[names.ITERATION] for row in rows(tmp_path)] == ["1", "2", "3"]


def test_a_resume_drops_what_came_after_the_checkpoint(tmp_path):
    with open_sinks(tmp_path, Trackers()) as sinks:
        for iteration in range(1, 6):
            sinks.write(line(iteration, **{names.RETURN_MEAN: float(iteration)}))
    time.sleep(1.1)  # TensorBoard reads its files in the order of their names, which are in seconds
    with open_sinks(tmp_path, Trackers(), resume_at=3) as sinks:
        sinks.write(line(4, **{names.RETURN_MEAN: 40.0}))
    kept = [entry[names.RETURN_MEAN] for entry in read_jsonl(tmp_path / "metrics.jsonl")]
    assert kept == [1.0, 2.0, 3.0, 40.0]
    assert [row[names.RETURN_MEAN] for row in rows(tmp_path)] == ["1.0", "2.0", "3.0", "40.0"]
    assert scalars(tmp_path, names.RETURN_MEAN) == [(100, 1.0), (200, 2.0), (300, 3.0), (400, 40.0)]


def test_a_resume_at_zero_starts_the_files_anew(tmp_path):
    with open_sinks(tmp_path, Trackers(False)) as sinks:
        sinks.write(line(1))
    with open_sinks(tmp_path, Trackers(False), resume_at=0) as sinks:
        sinks.write(line(1))
    assert len(read_jsonl(tmp_path / "metrics.jsonl")) == len(rows(tmp_path)) == 1


def test_a_line_torn_by_a_crash_does_not_spoil_the_next(tmp_path):
    with open_sinks(tmp_path, Trackers(False)) as sinks:
        sinks.write(line(1))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"run/iteration": 2, "run/en')
    with (tmp_path / "progress.csv").open("a") as file:
        file.write("2,20")
    with open_sinks(tmp_path, Trackers(False), resume_at=1) as sinks:
        sinks.write(line(2))
    written = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(text)[names.ITERATION] for text in written] == [1, 2]
    assert [row[names.ITERATION] for row in rows(tmp_path)] == ["1", "2"]


def test_writing_a_line_is_cheap(tmp_path):
    wide = line(1, **{f"learn/default_policy/x{i}": 1.0 for i in range(40)})
    with open_sinks(tmp_path, Trackers()) as sinks:
        sinks.write(wide)
        begun = time.process_time()
        for _ in range(50):
            sinks.write(wide)
        each = (time.process_time() - begun) / 50
    assert each < 0.005
