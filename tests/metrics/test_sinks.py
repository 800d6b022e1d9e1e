"""What the sinks write can be read back, grows new columns, and rolls back on a resume."""

from __future__ import annotations

import csv
import itertools
import json
import os
import time
import tracemalloc

import pytest

from rayfish.experiment import Experiment
from rayfish.metrics import names
from rayfish.metrics.sinks import (
    last_with,
    lines,
    newest_first,
    open_sinks,
    read_jsonl,
    sample_jsonl,
)


def tracked(tensorboard=True):
    """An experiment with no more than what the sinks read."""
    return Experiment({"trackers": {"tensorboard": tensorboard}})


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
    with open_sinks(tmp_path, tracked()) as sinks:
        for iteration in (1, 2, 3):
            sinks.write(line(iteration, **{names.RETURN_MEAN: 10.0 * iteration}))
    assert read_jsonl(tmp_path / "metrics.jsonl")[2] == line(3, **{names.RETURN_MEAN: 30.0})
    assert [row[names.RETURN_MEAN] for row in rows(tmp_path)] == ["10.0", "20.0", "30.0"]
    assert scalars(tmp_path, names.RETURN_MEAN) == [(100, 10.0), (200, 20.0), (300, 30.0)]


def test_lines_can_be_followed_while_the_run_goes_on(tmp_path):
    sinks = open_sinks(tmp_path, tracked(False))
    sinks.write(line(1))
    assert len(read_jsonl(tmp_path / "metrics.jsonl")) == len(rows(tmp_path)) == 1
    sinks.close()


def test_what_was_flushed_is_there_for_another_process(tmp_path):
    sinks = open_sinks(tmp_path, tracked())
    for iteration in range(1, 6):
        sinks.write(line(iteration, **{names.RETURN_MEAN: float(iteration)}))
        sinks.flush()
        assert scalars(tmp_path, names.RETURN_MEAN)[-1] == (100 * iteration, float(iteration))
    sinks.close()


def test_tensorboard_can_be_switched_off(tmp_path):
    with open_sinks(tmp_path, tracked(False)) as sinks:
        sinks.write(line(1))
    assert not (tmp_path / "events").exists()


def test_a_metric_that_appears_later_adds_a_column(tmp_path):
    with open_sinks(tmp_path, tracked(False)) as sinks:
        sinks.write(line(1))
        sinks.write(line(2, **{names.EVAL_RETURN_MEAN: 7.0}))
        sinks.write(line(3))
    assert [row[names.EVAL_RETURN_MEAN] for row in rows(tmp_path)] == ["", "7.0", ""]
    assert [row[names.ITERATION] for row in rows(tmp_path)] == ["1", "2", "3"]


def test_a_resume_drops_what_came_after_the_checkpoint(tmp_path):
    with open_sinks(tmp_path, tracked()) as sinks:
        for iteration in range(1, 6):
            sinks.write(line(iteration, **{names.RETURN_MEAN: float(iteration)}))
    time.sleep(1.1)  # TensorBoard reads its files in the order of their names, which are in seconds
    with open_sinks(tmp_path, tracked(), resume_at=3) as sinks:
        sinks.write(line(4, **{names.RETURN_MEAN: 40.0}))
    kept = [entry[names.RETURN_MEAN] for entry in read_jsonl(tmp_path / "metrics.jsonl")]
    assert kept == [1.0, 2.0, 3.0, 40.0]
    assert [row[names.RETURN_MEAN] for row in rows(tmp_path)] == ["1.0", "2.0", "3.0", "40.0"]
    assert scalars(tmp_path, names.RETURN_MEAN) == [(100, 1.0), (200, 2.0), (300, 3.0), (400, 40.0)]


def test_a_resume_at_zero_restarts_the_files(tmp_path):
    with open_sinks(tmp_path, tracked(False)) as sinks:
        sinks.write(line(1))
    with open_sinks(tmp_path, tracked(False), resume_at=0) as sinks:
        sinks.write(line(1))
    assert len(read_jsonl(tmp_path / "metrics.jsonl")) == len(rows(tmp_path)) == 1


def test_a_line_torn_by_a_crash_does_not_spoil_the_next(tmp_path):
    with open_sinks(tmp_path, tracked(False)) as sinks:
        sinks.write(line(1))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"run/iteration": 2, "run/en')
    with (tmp_path / "progress.csv").open("a") as file:
        file.write("2,20")
    with open_sinks(tmp_path, tracked(False), resume_at=1) as sinks:
        sinks.write(line(2))
    written = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(text)[names.ITERATION] for text in written] == [1, 2]
    assert [row[names.ITERATION] for row in rows(tmp_path)] == ["1", "2"]


def test_writing_a_line_is_cheap(tmp_path):
    wide = line(1, **{f"learn/default_policy/x{i}": 1.0 for i in range(40)})
    with open_sinks(tmp_path, tracked()) as sinks:
        sinks.write(wide)
        begun = time.process_time()
        for _ in range(50):
            sinks.write(wide)
        each = (time.process_time() - begun) / 50
    assert each < 0.005


DAMAGE = {
    "replaced": b"garbage\n",
    "not UTF-8": b'{"run/iteration": 5, "run/env_steps": \xff\xfe}\n',
    "cut": b'{"run/iteration": 5, "run/en\n',
    "no object": b"5\n",
    "blank": b"\n",
}


def twenty(folder, **more):
    with open_sinks(folder, tracked(False)) as sinks:
        for iteration in range(1, 21):
            sinks.write(line(iteration, **more))


def damage(file, number, by):
    rows = file.read_bytes().splitlines(keepends=True)
    rows[number - 1] = by
    file.write_bytes(b"".join(rows))
    return file.read_bytes()


def iterations(folder):
    written = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(text)[names.ITERATION] for text in written]


@pytest.mark.parametrize("by", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_line_costs_that_line_and_the_original_is_kept(tmp_path, by):
    twenty(tmp_path)
    before = damage(tmp_path / "metrics.jsonl", 5, by)
    with open_sinks(tmp_path, tracked(False), resume_at=18) as sinks:
        sinks.write(line(19))
    assert iterations(tmp_path) == [*range(1, 5), *range(6, 20)]
    assert (tmp_path / "metrics.jsonl.damaged").read_bytes() == before
    assert sinks.notes == [
        "metrics.jsonl: line 5 is damaged and was left out; the original is kept as metrics.jsonl.damaged"
    ]


def test_a_second_repair_keeps_the_first_original(tmp_path):
    twenty(tmp_path)
    first = damage(tmp_path / "metrics.jsonl", 5, b"garbage\n")
    open_sinks(tmp_path, tracked(False), resume_at=20).close()
    second = damage(tmp_path / "metrics.jsonl", 2, b"garbage\n")
    open_sinks(tmp_path, tracked(False), resume_at=20).close()
    assert (tmp_path / "metrics.jsonl.damaged").read_bytes() == first
    assert (tmp_path / "metrics.jsonl.damaged-2").read_bytes() == second


def test_a_damaged_line_of_the_checkpoint_itself_is_reported(tmp_path):
    twenty(tmp_path)
    damage(tmp_path / "metrics.jsonl", 20, b'{"run/iteration": 2')
    with open_sinks(tmp_path, tracked(False), resume_at=20) as sinks:
        assert "line 20 is damaged" in sinks.notes[0]
    assert iterations(tmp_path) == [*range(1, 20)]


def test_damage_after_the_checkpoint_is_no_loss(tmp_path):
    twenty(tmp_path)
    damage(tmp_path / "metrics.jsonl", 15, b"garbage\n")
    with open_sinks(tmp_path, tracked(False), resume_at=10) as sinks:
        assert sinks.notes == []
    assert iterations(tmp_path) == [*range(1, 11)]


@pytest.mark.parametrize("by", [b"5,garbage\n", b"5,500,0.5,9\n", b"x,500,0.5\n", b"5,\xff\xfe,0.5\n"])
def test_a_damaged_row_of_the_table_costs_that_row(tmp_path, by):
    twenty(tmp_path)
    before = damage(tmp_path / "progress.csv", 6, by)
    with open_sinks(tmp_path, tracked(False), resume_at=18) as sinks:
        sinks.write(line(19, more=1.0))
    assert [int(row[names.ITERATION]) for row in rows(tmp_path)] == [*range(1, 5), *range(6, 20)]
    assert (tmp_path / "progress.csv.damaged").read_bytes() == before
    assert "progress.csv: line 6 is damaged" in sinks.notes[0]


def test_a_table_with_a_damaged_header_is_made_again(tmp_path):
    twenty(tmp_path)
    whole = (tmp_path / "progress.csv").read_bytes()
    before = damage(tmp_path / "progress.csv", 1, b"\xff\xfe\n")
    with open_sinks(tmp_path, tracked(False), resume_at=20) as sinks:
        assert (tmp_path / "progress.csv").read_bytes() == whole
        sinks.write(line(21))
    assert [row[names.ITERATION] for row in rows(tmp_path)] == [str(i) for i in range(1, 22)]
    assert (tmp_path / "progress.csv.damaged").read_bytes() == before
    assert "the header is damaged, and the table is made again" in sinks.notes[0]


@pytest.mark.parametrize("at", [20, None])
def test_bytes_at_the_end_that_are_no_line_are_reported(tmp_path, at):
    twenty(tmp_path)
    file = tmp_path / "metrics.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + bytes(7))
    with open_sinks(tmp_path, tracked(False), resume_at=at) as sinks:
        assert sinks.notes == [
            "metrics.jsonl: 7 bytes at its end are no line and were left out; "
            "the original is kept as metrics.jsonl.damaged"
        ]
    assert file.read_bytes() == whole
    assert (tmp_path / "metrics.jsonl.damaged").read_bytes() == whole + bytes(7)


def test_an_object_without_an_iteration_is_a_damaged_line(tmp_path):
    twenty(tmp_path)
    damage(tmp_path / "metrics.jsonl", 5, b"{}\n")
    with open_sinks(tmp_path, tracked(False), resume_at=20) as sinks:
        assert sinks.notes[0].startswith("metrics.jsonl: line 5 is damaged")


def test_files_that_are_gone_at_a_resume_are_reported(tmp_path):
    twenty(tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    with open_sinks(tmp_path, tracked(False), resume_at=20) as sinks:
        assert sinks.notes == ["metrics.jsonl is gone: it starts again after iteration 20"]
    with open_sinks(tmp_path, tracked(False), resume_at=0) as sinks:
        assert not sinks.notes


def long_files(folder, count):
    """Files as `count` iterations with 40 metrics leave them."""
    width = {f"learn/default_policy/loss_{i}": 0.123456789012345 + i for i in range(38)}
    body, cells = json.dumps(width)[1:], ",".join(map(repr, width.values()))
    with (folder / "metrics.jsonl").open("w") as file:
        for i in range(1, count + 1):
            file.write(f'{{"{names.ITERATION}": {i}, "{names.ENV_STEPS}": {100 * i}, {body}\n')
    with (folder / "progress.csv").open("w") as file:
        file.write(",".join([names.ITERATION, names.ENV_STEPS, *width]) + "\n")
        file.writelines(f"{i},{100 * i},{cells}\n" for i in range(1, count + 1))


def resume_and_look(folder, count):
    with open_sinks(folder, tracked(False), resume_at=count - 10) as sinks:
        sample_jsonl(folder / "metrics.jsonl")
        last_with(folder / "metrics.jsonl", names.EVAL_RETURN_MEAN)
        sinks.write(line(count - 9, late=1.0))
    return sinks.notes


@pytest.mark.parametrize("count", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_long_run_resumes_fast_and_in_little_memory(tmp_path, count):
    long_files(tmp_path, count)
    begun = time.process_time()
    resume_and_look(tmp_path, count)
    took = time.process_time() - begun
    assert took < 0.5 + 5e-6 * count
    tracemalloc.start()
    sample_jsonl(tmp_path / "metrics.jsonl")
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.reset_peak()
    open_sinks(tmp_path, tracked(False), resume_at=count - 20).close()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
    assert next(newest_first(tmp_path / "metrics.jsonl"))[names.ITERATION] == count - 20
    with (tmp_path / "progress.csv").open("rb") as file:
        file.seek(-1000, os.SEEK_END)
        assert file.read().splitlines()[-1].startswith(f"{count - 20},".encode())
    for file in tmp_path.iterdir():  # pytest keeps the folder
        file.unlink()


def test_damage_in_a_long_file_is_found_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "EXACT", 0)
    for name, by in DAMAGE.items():
        folder = tmp_path / name
        folder.mkdir()
        long_files(folder, 200)
        damage(folder / "metrics.jsonl", 50, by)
        assert "line 50 is damaged" in open_sinks(folder, tracked(False), resume_at=200).notes[0], name


def test_a_sample_spans_the_whole_file_and_has_its_last_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("rayfish.metrics.sinks.jsonl._WHOLE", 0)
    monkeypatch.setattr(lines, "BLOCK", 1000)
    long_files(tmp_path, 3000)
    found = [entry[names.ITERATION] for entry in sample_jsonl(tmp_path / "metrics.jsonl", 100, 10)]
    assert found == sorted(set(found))
    assert found[0] == 1
    assert found[-10:] == list(range(2991, 3001))
    assert 100 <= len(found) <= 110
    assert max(b - a for a, b in itertools.pairwise(found)) <= 60
    backwards = [entry[names.ITERATION] for entry in newest_first(tmp_path / "metrics.jsonl")]
    assert backwards == list(range(3000, 0, -1))


def test_the_last_line_with_a_metric_is_found(tmp_path):
    twenty(tmp_path)
    with open_sinks(tmp_path, tracked(False), resume_at=20) as sinks:
        sinks.write(line(21, **{names.EVAL_RETURN_MEAN: 3.0}))
        sinks.write(line(22))
    assert last_with(tmp_path / "metrics.jsonl", names.EVAL_RETURN_MEAN)[names.ITERATION] == 21
    assert last_with(tmp_path / "metrics.jsonl", names.GPU) is None
    assert last_with(tmp_path / "none", names.GPU) is None
