"""Metrics of a program, read while they are written."""

from __future__ import annotations

import csv
import json
import struct
from pathlib import Path

import pytest
from tensorboardX import SummaryWriter

from rayfish.sweep.program import tensorboard
from rayfish.sweep.program.settings import MetricSettings
from rayfish.sweep.program.sources import Metrics, Places
from rayfish.sweep.program.tables import CsvRows, JsonLines, numbers_in
from rayfish.sweep.program.tensorboard import EventFile, Steps


def metrics(folder: Path, metric: str = "", start: Path | None = None, owned=set, **settings) -> Metrics:
    path = settings.get("path")
    places = Places(folder, start or folder, path, names_trial=False)
    log = folder / "log.txt"
    log.touch()
    return Metrics(MetricSettings(**settings), places, (log, 0), metric=metric, owned=owned)


def event_file(folder: Path) -> Path:
    return next(folder.rglob("*tfevents*"))


def test_scalars_are_read_while_the_file_grows_byte_by_byte(tmp_path):
    with SummaryWriter(str(tmp_path / "whole")) as writer:
        for step in range(4):
            writer.add_scalar("loss", step / 2, step)
            writer.add_histogram("weights", [1.0, 2.0, 3.0], step)
            writer.add_text("note", "words", step)
    data = event_file(tmp_path).read_bytes()
    growing = EventFile(tmp_path / "growing.tfevents")
    found = []
    with growing.path.open("ab", buffering=0) as file:
        for byte in data:
            file.write(bytes([byte]))
            found += list(growing.read())
    assert found == [(step, "loss", step / 2) for step in range(4)]


def test_scalars_of_torch_in_the_old_and_the_new_form_and_of_tensorboard_itself(tmp_path):
    torch_writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter
    with torch_writer(str(tmp_path)) as writer:
        writer.add_scalar("old", 1.5, 10)
        writer.add_scalar("new", 2.5, 10, new_style=True)
        writer.add_scalar("double", 2.25, 10, new_style=True, double_precision=True)
        writer.add_hparams({"lr": 0.1}, {})
    found = dict(item[1:] for item in EventFile(event_file(tmp_path)).read())
    assert found == {"old": 1.5, "new": 2.5, "double": 2.25}


def test_scalars_are_those_that_tensorboard_reads(tmp_path):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(200):
            writer.add_scalar(f"tag/{step % 7}", (-1.7) ** (step % 50), step * 1000 - 5)
    theirs = [
        (event.step, value.tag, value.tensor.float_val[0])
        for event in loader.EventFileLoader(str(event_file(tmp_path))).Load()
        for value in event.summary.value
    ]
    assert list(EventFile(event_file(tmp_path)).read()) == theirs
    assert theirs[0][0] == -5 and len(theirs) == 200


def test_tensors_with_their_content_in_bytes_are_scalars_too():
    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    for kind, form, value in ((1, "<f", 0.5), (2, "<d", 0.25), (9, "<q", -3), (3, "<i", 7)):
        tensor = bytes([1 << 3, kind]) + field(2, b"") + field(4, struct.pack(form, value))
        summary = field(1, field(1, b"tag") + field(8, tensor))
        assert list(tensorboard.scalars(bytes([2 << 3, 9]) + field(5, summary))) == [(9, "tag", value)]


def test_a_damaged_event_file_gives_what_stands_before_the_damage(tmp_path):
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", 1.0, 1)
    path = event_file(tmp_path)
    path.write_bytes(path.read_bytes() + b"\x07garbage that is no record" * 3)
    file = EventFile(path)
    assert list(file.read()) == [(1, "loss", 1.0)]
    assert file.damaged and list(file.read()) == []


def test_the_scalars_of_one_step_are_one_report_over_files_and_folders(tmp_path):
    reader = metrics(tmp_path)
    with SummaryWriter(str(tmp_path / "a")) as a, SummaryWriter(str(tmp_path / "b" / "c")) as b:
        for step in (100, 200, 300):
            a.add_scalar("reward", step / 100, step)
            a.add_scalar("fps", 50, step)
            b.add_scalar("loss", -step, step)
    assert reader.read(final=True) == [
        {"reward": step / 100, "fps": 50, "loss": -step, "step": step} for step in (100, 200, 300)
    ]
    assert reader.read(final=True) == []


def test_a_step_waits_until_it_is_complete(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(tensorboard.time, "monotonic", lambda: now[0])
    now = [float(next(clock))]
    steps = Steps("reward")
    steps.add(1, "fps", 50.0)
    assert steps.take(final=False) == []  # more of it may come
    steps.add(1, "reward", 3.0)
    steps.add(2, "fps", 51.0)
    assert steps.take(final=False) == [{"fps": 50.0, "reward": 3.0, "step": 1}]
    now[0] += 1.0
    assert steps.take(final=False) == []  # quiet, but it lacks what the step before had
    steps.add(2, "reward", 4.0)
    now[0] += 1.0
    assert steps.take(final=False) == [{"fps": 51.0, "reward": 4.0, "step": 2}]
    steps.add(3, "fps", 52.0)
    now[0] += 10.0
    assert steps.take(final=False) == [{"fps": 52.0, "step": 3}]  # a report all the same
    steps.add(3, "reward", 5.0)
    now[0] += 1.0
    assert steps.take(final=False) == [{"fps": 52.0, "reward": 5.0, "step": 3}]


def test_values_that_come_late_are_part_of_the_next_report_and_a_new_start_is_one():
    steps = Steps()
    for step in (100, 200):
        steps.add(step, "loss", step)
    assert [r["step"] for r in steps.take(final=False)] == [100]
    steps.add(50, "epoch", 1.0)
    steps.add(300, "loss", 300)
    assert steps.take(final=False) == [{"loss": 200, "epoch": 1.0, "step": 200}]
    assert [r["step"] for r in steps.take(final=True)] == [300]
    steps.add(10, "loss", 1)
    steps.add(20, "loss", 2)
    assert [r["step"] for r in steps.take(final=True)] == [10, 20]


def test_the_same_tag_in_two_folders_keeps_two_names(tmp_path):
    reader = metrics(tmp_path)
    for folder, value in (("train", 1.0), ("eval", 2.0)):
        with SummaryWriter(str(tmp_path / folder)) as writer:
            writer.add_scalar("reward", value, 7)
    assert reader.read(final=True) == [{"reward": 2.0, "train/reward": 1.0, "step": 7}]


def test_what_an_earlier_attempt_wrote_is_not_read_again(tmp_path):
    with SummaryWriter(str(tmp_path / "PPO_1")) as writer:
        writer.add_scalar("reward", 1.0, 1)
    (tmp_path / "progress.csv").write_text("reward\n1\n2\n")
    reader = metrics(tmp_path)
    assert reader.read() == []
    with SummaryWriter(str(tmp_path / "PPO_2")) as writer:
        writer.add_scalar("reward", 2.0, 2)
    assert reader.read(final=True) == [{"reward": 2.0, "step": 2}]


def test_json_lines_are_found_between_other_output(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text(
        'starting {"lr": oops}\n'
        '{"step": 5, "loss": 0.5, "name": "x", "ok": true, "deep": {"a": [1], "b": 2}}\n'
        ' 50%|#### |\r{"loss": 0.25}\nthe set {"loss": 9} is not a report\n[1, 2]\n{}\n{"loss": NaN}\n{"lo'
    )
    reader = JsonLines(log, "step")
    first, second, third = reader.read(final=False)
    assert first == {"step": 5, "loss": 0.5, "deep/b": 2}
    assert second == {"step": 2, "loss": 0.25}
    assert third["step"] == 3 and third["loss"] != third["loss"]
    with log.open("a") as file:
        file.write('ss": 7}')
    assert reader.read(final=False) == []
    assert reader.read(final=True) == [{"step": 4, "loss": 7}]
    assert numbers_in('{"a": "1"}') == {}


def test_csv_rows_appear_as_they_are_written_whole(tmp_path):
    path = tmp_path / "progress.csv"
    reader = CsvRows(path, "global_step")
    assert reader.read(final=False) == []
    path.write_text("#comment\nglobal_step,loss,word\n10,0.5,a\n20,0.")
    assert reader.read(final=False) == [{"global_step": 10, "loss": 0.5, "step": 10}]
    with path.open("a") as file:
        file.write('25,"b, c"\r\n\n30,,\n4')
    assert reader.read(final=False) == [
        {"global_step": 20, "loss": 0.25, "step": 20},
        {"global_step": 30, "step": 30},
    ]
    assert reader.read(final=True) == []  # "4" may be the beginning of 40


def test_a_csv_that_is_written_anew_with_another_column_goes_on_where_it_was(tmp_path):
    path = tmp_path / "progress.csv"
    path.write_text("loss\n1\n2\n")
    reader = CsvRows(path, "step")
    assert [r["loss"] for r in reader.read(final=False)] == [1, 2]
    path.write_text("loss,reward\n1,\n2,\n3,30\n")
    assert reader.read(final=False) == [{"loss": 3, "reward": 30, "step": 3}]
    path.write_text("loss,reward\n9,90\n")
    assert reader.read(final=False) == [{"loss": 9, "reward": 90, "step": 4}]


def test_ten_thousand_reports_written_at_once_arrive_in_order(tmp_path):
    with (tmp_path / "log.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["step", "loss"])
        rows.writerows([n, n / 2] for n in range(10_000))
    reports = CsvRows(tmp_path / "log.csv", "step").read(final=True)
    assert [r["step"] for r in reports] == list(range(10_000))
    reader = metrics(tmp_path)
    with SummaryWriter(str(tmp_path / "tb")) as writer:
        for step in range(10_000):
            writer.add_scalar("loss", step, step)
    found = reader.read(final=True)
    assert [r["step"] for r in found] == list(range(10_000))


def test_the_source_that_has_the_metric_counts_whatever_speaks_first(tmp_path):
    reader = metrics(tmp_path, metric="reward")
    (tmp_path / "log.txt").write_text(json.dumps({"lr": 0.1}) + "\n")
    assert reader.read() == []
    (tmp_path / "monitor.csv").write_text("length\n3\n")
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("reward", 2.0, 1)
    assert reader.read(final=True) == [{"reward": 2.0, "step": 1}]


def test_reports_without_the_metric_are_delivered_when_there_is_nothing_better(tmp_path):
    reader = metrics(tmp_path, metric="rewrad")
    lines = [json.dumps({"reward": n}) for n in range(6)]
    (tmp_path / "log.txt").write_text("\n".join(lines) + "\n")
    assert [r["reward"] for r in reader.read()] == list(range(6))


def test_without_a_metric_the_first_source_that_speaks_is_the_one(tmp_path):
    reader = metrics(tmp_path)
    (tmp_path / "log.txt").write_text('{"loss": 1}\n')
    assert reader.read() == [{"loss": 1, "step": 1}]
    (tmp_path / "other.csv").write_text("loss\n2\n")
    assert reader.read(final=True) == []


def test_names_can_be_changed(tmp_path):
    reader = metrics(tmp_path, metric="score", rename={"rollout/ep_rew_mean": "score"})
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("rollout/ep_rew_mean", 9.0, 1)
    assert reader.read(final=True) == [{"score": 9.0, "step": 1}]


def test_files_where_other_trials_write_too_are_read_only_when_they_are_this_trials_own(tmp_path):
    trial, shared = tmp_path / "trial", tmp_path / "shared"
    trial.mkdir()
    own: set[Path] = set()  # what the program has open

    def write(folder: str, value: float) -> Path:
        with SummaryWriter(str(shared / folder)) as writer:
            writer.add_scalar("reward", value, 1)
        return event_file(shared / folder)

    own.add(write("runs/before", 1.0))
    reader = metrics(trial, start=shared, path="runs/**", owned=own.intersection)
    own.add(write("runs/mine", 2.0))
    write("runs/another", 3.0)
    assert reader.read(final=True) == [{"reward": 2.0, "step": 1}]
    assert "did not have them open" in reader.described()
