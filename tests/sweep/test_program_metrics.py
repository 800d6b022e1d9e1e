"""Metrics of a program, read while they are written."""

from __future__ import annotations

import csv
import glob
import json
import os
import struct
from pathlib import Path

import pytest
from tensorboardX import SummaryWriter

from rayfish.sweep.program import tensorboard
from rayfish.sweep.program.settings import MetricSettings
from rayfish.sweep.program.sources import Metrics, Places, matches, newest
from rayfish.sweep.program.tables import CsvRows, JsonLines, numbers_in
from rayfish.sweep.program.tensorboard import EventFile, Steps


def metrics(
    folder: Path, metric: str = "", start: Path | None = None, owned=set, count: int = 0, **settings
) -> Metrics:
    path = settings.get("path")
    places = Places(folder, start or folder, path, names_trial=False)
    log = folder / "log.txt"
    log.touch()
    return Metrics(MetricSettings(settings), places, (log, 0), metric=metric, count=count, owned=owned)


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


def test_a_csv_that_is_rewritten_with_another_column_goes_on_where_it_was(tmp_path):
    path = tmp_path / "progress.csv"
    path.write_text("loss\n1\n2\n")
    reader = CsvRows(path, "step")
    assert [r["loss"] for r in reader.read(final=False)] == [1, 2]
    path.write_text("loss,reward\n1,\n2,\n3,30\n")
    assert reader.read(final=False) == [{"loss": 3, "reward": 30, "step": 3}]
    path.write_text("loss,reward\n9,90\n")
    assert reader.read(final=False) == [{"loss": 9, "reward": 90, "step": 4}]


def test_a_table_that_is_written_whole_each_time_gives_each_row_once(tmp_path):
    path = tmp_path / "m.csv"
    path.touch()
    reader, found = metrics(tmp_path), []
    for epoch in range(1, 6):
        path.write_text("")  # seen while it is empty, and while half of it is there
        found += reader.read()
        path.write_text("step,score\n1,")
        found += reader.read()
        path.write_text("step,score\n" + "".join(f"{n},{n / 2}\n" for n in range(1, epoch + 1)))
        found += reader.read()
    found += reader.read(final=True)
    assert [(r["step"], r["score"]) for r in found] == [(n, n / 2) for n in range(1, 6)]


def test_rows_whose_numbers_are_written_in_another_form_are_the_same(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("step,score\n1,10\n2,20\n")
    reader = CsvRows(path, "step")
    assert len(reader.read(final=False)) == 2
    path.write_text("step,score\n1,10.0\n2,20.0\n3,nan\n")  # as pandas does when a number is missing
    assert [r["step"] for r in reader.read(final=False)] == [3]
    path.write_text("step,score\n1.0,10.0\n2.0,20.0\n3.0,nan\n4.0,5.0\n")
    assert [r["step"] for r in reader.read(final=False)] == [4]


def test_a_file_that_each_trial_appends_to_gives_a_trial_all_of_its_own_rows(tmp_path):
    trial, path = tmp_path / "trial", tmp_path / "progress.csv"
    trial.mkdir()
    path.write_text("step,score\n1,10\n2,20\n")
    reader = metrics(trial, start=tmp_path, path="progress.csv")
    with path.open("a") as file:  # before the file is looked at for the first time
        file.write("1,30\n2,40\n")
    assert [r["score"] for r in reader.read(final=True)] == [30, 40]


def test_a_file_that_each_trial_rewrites_is_read_though_it_was_longer_before(tmp_path):
    trial, path = tmp_path / "trial", tmp_path / "progress.csv"
    trial.mkdir()
    path.write_text("step,score\n1,10\n2,20\n3,30\n")
    reader = metrics(trial, start=tmp_path, path="progress.csv")
    path.write_text("step,score\n1,40\n")
    assert [r["score"] for r in reader.read(final=True)] == [40]


@pytest.mark.parametrize("count", [0, 2])
def test_rows_that_are_appended_below_a_comment_and_a_header_are_all_new(tmp_path, count):
    path = tmp_path / "monitor.csv"
    path.write_text('#{"t_start": 1.5, "env_id": "CartPole-v1"}\nr,l,t\n10,1,0.5\n20,2,0.6\n')
    reader = metrics(tmp_path, count=count)
    assert reader.read() == []
    with path.open("a") as file:
        file.write("30,3,0.7\n40,4,0.8\n")
    assert [(r["r"], r["step"]) for r in reader.read(final=True)] == [(30, count + 1), (40, count + 2)]


@pytest.mark.parametrize("last", [9.0, 2.0])
@pytest.mark.parametrize("name", ["result.csv", "result.jsonl"])
def test_a_new_attempt_that_writes_as_much_as_the_one_before_is_read(tmp_path, last, name):
    def text(value: float) -> str:
        as_json = f'{{"step": 1, "score": 1.0}}\n{{"step": 2, "score": {value}}}\n'
        return as_json if name.endswith("jsonl") else f"step,score\n1,1.0\n2,{value}\n"

    path = tmp_path / name
    path.write_text(text(2.0))
    os.utime(path, (1, 1))
    reader = metrics(tmp_path, path=name)
    assert reader.read() == []
    path.write_text(text(last))
    assert [r["score"] for r in reader.read(final=True)] == [1.0, last]


def test_an_attempt_that_goes_on_and_writes_everything_again_gives_what_is_new(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("step,score\n1,1\n2,2\n")
    reader = metrics(tmp_path, count=2)
    path.write_text("")
    assert reader.read() == []
    path.write_text("step,score\n1,1\n2,2\n3,3\n")
    assert [r["step"] for r in reader.read(final=True)] == [3]
    reader = metrics(tmp_path, count=3)
    path.write_text("step,other\n4,4\n5,5\n")  # another table, with its own rows only
    assert [r["step"] for r in reader.read(final=True)] == [4, 5]


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("step,score\n7,1\n", encoding="utf-8-sig")
    assert CsvRows(path, "step").read(final=False) == [{"step": 7, "score": 1}]
    path.write_text("#comment\nstep,score\n8,1\n", encoding="utf-8-sig")
    assert CsvRows(path, "step").read(final=False) == [{"step": 8, "score": 1}]


def test_a_line_that_cannot_be_a_report_is_none(tmp_path):
    path = tmp_path / "samples.csv"
    path.write_text("id,text\n1," + "a" * 200_000 + "\n2,b\n")
    assert [r["id"] for r in CsvRows(path, "step").read(final=False)] == [2]
    assert numbers_in('{"a": ' * 100_000 + "1" + "}" * 100_000) == {}
    assert numbers_in('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}") == {}


def test_json_lines_in_colour_are_read():
    assert numbers_in('\x1b[32m{"loss": 0.5, "\x1b[1mstep\x1b[0m": 3}\x1b[0m') == {"loss": 0.5, "step": 3}


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


def test_log_lines_are_left_for_the_source_that_has_the_metric_as_soon_as_there_is_one(tmp_path):
    reader = metrics(tmp_path, metric="eval/score")
    with (tmp_path / "log.txt").open("a") as log:
        log.writelines(json.dumps({"level": 20, "n": n}) + "\n" for n in range(8))
    assert [r["n"] for r in reader.read()] == list(range(8))
    (tmp_path / "other.csv").write_text("step,loss\n1,5\n")
    with SummaryWriter(str(tmp_path / "tb")) as writer:
        for step in range(1, 4):
            writer.add_scalar("loss", 1.0, 10 * step - 5)
            writer.add_scalar("eval/score", step, 10 * step)
    reader._looked = 0.0
    found = reader.read()
    with (tmp_path / "log.txt").open("a") as log:
        log.write('{"level": 20, "n": 8}\n')
    found += reader.read(final=True)
    assert [r["step"] for r in found] == [5, 10, 15, 20, 25, 30]
    assert [r["eval/score"] for r in found if "eval/score" in r] == [1, 2, 3]


def test_a_source_whose_metric_comes_late_gives_each_report_once(tmp_path):
    reader = metrics(tmp_path, metric="score")
    log = tmp_path / "log.txt"
    log.write_text("".join(f'{{"loss": {n}}}\n' for n in range(6)))
    found = reader.read()
    with log.open("a") as file:
        file.write('{"loss": 6}\n{"score": 1, "loss": 7}\n')
    found += reader.read()
    (tmp_path / "score.csv").write_text("score\n5\n")
    assert [r["loss"] for r in found + reader.read(final=True)] == list(range(8))


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


def test_folders_with_the_signs_of_a_pattern_in_their_names_are_taken_as_they_are(tmp_path):
    trial, start = tmp_path / "br[1]", tmp_path / "st*[a]"
    trial.mkdir()
    start.mkdir()
    (trial / "a.zip").touch()
    (start / "b.zip").touch()
    assert newest(Places(trial, start, "*.zip", names_trial=True)) == str(trial / "a.zip")
    assert newest(Places(trial, start, "b.*", names_trial=True)) == str(start / "b.zip")
    pattern = f"{glob.escape(str(trial))}/*.zip"
    assert newest(Places(trial, start, pattern, names_trial=True)) == str(trial / "a.zip")


def test_what_rayfish_keeps_in_the_folder_is_no_checkpoint(tmp_path):
    (tmp_path / "log.txt").touch()
    (tmp_path / "program.json").touch()
    for pattern in ("*", "*.json", str(tmp_path / "*")):
        assert newest(Places(tmp_path, tmp_path, pattern, names_trial=True)) == ""
    own = tmp_path / "step_1" / "program.json"
    own.parent.mkdir()
    own.touch()
    os.utime(own, (1, 1))
    assert newest(Places(tmp_path, tmp_path, "**/*.json", names_trial=True)) == str(own)
    assert newest(Places(tmp_path, tmp_path, "*", names_trial=True)) == str(own.parent)
    assert newest(Places(tmp_path, tmp_path, f"{tmp_path}/**", names_trial=True)) == str(own)


def test_checkpoints_that_were_there_before_count_only_when_they_are_written_again(tmp_path):
    places = Places(tmp_path, tmp_path, "models/*", names_trial=True)
    assert matches(places) == {}
    file, inside = tmp_path / "models" / "a.zip", tmp_path / "models" / "last" / "weights"
    inside.parent.mkdir(parents=True)
    for path, changed in ((file, 2), (inside, 1)):
        path.touch()
        os.utime(path, (changed, changed))
    before = matches(places)
    assert before == {str(file): 2 * 10**9, str(inside.parent): 10**9}
    assert newest(places) == str(file)
    assert newest(places, since=before) == ""
    inside.write_text("new")  # in a folder whose own time does not change by that
    assert newest(places, since=before) == str(inside.parent)
    assert newest(places, lambda: {inside.resolve()}, since=before) == ""
    file.write_text("newer")
    assert newest(places, lambda: {inside.resolve()}, since=before) == str(file)
