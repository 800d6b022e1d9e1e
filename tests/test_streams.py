"""Output that has nowhere to go any more fails nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rayfish.streams import SteadyStream, steady
from tests.helpers import RAYFISH, info_of, only_run

SHORT = (
    "training.train_batch_size_per_learner=200", "training.minibatch_size=50", "training.num_epochs=1",
    "training.model.fcnet_hiddens=[8]", "stop_conditions.training_iteration=5",
)  # fmt: skip


def broken_pipe():
    ends = os.pipe()
    os.close(ends[0])
    return open(ends[1], "w", encoding="utf-8", buffering=1)  # noqa: PTH123


def test_a_pipe_without_a_reader_takes_everything():
    pipe = broken_pipe()
    stream = steady(pipe)
    for _ in range(3):
        assert stream.write("a line\n") == 7
        stream.flush()
    pipe.close()


def test_a_full_disk_behind_stdout_drops_lines_and_keeps_the_file():
    with open("/dev/full", "w", encoding="utf-8", buffering=1) as full:  # noqa: PTH123
        stream = steady(full)
        stream.write("a line\n")
        stream.flush()
        assert os.path.samestat(os.fstat(full.fileno()), os.stat("/dev/full"))  # noqa: PTH116
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


def test_a_steady_stream_answers_for_the_real_one(capsys):
    stream = steady(sys.stdout)
    assert isinstance(stream, SteadyStream)
    assert steady(stream) is stream
    assert (stream.encoding, stream.isatty()) == (sys.stdout.encoding, False)
    print("seen", file=stream)
    assert capsys.readouterr().out == "seen\n"


def test_a_missing_stdout_is_one_that_shows_nothing():
    steady(None).write("nothing")


@pytest.mark.parametrize("words", ["--help", "config show cartpole", "doctor"])
def test_a_command_with_all_three_streams_closed_succeeds(tmp_path, words):
    assert (
        subprocess.run(
            ["bash", "-c", f"{RAYFISH} {words} <&- >&- 2>&-"], cwd=tmp_path, check=False
        ).returncode
        == 0
    )


def test_what_a_command_opens_takes_no_closed_standard_stream():
    code = "from rayfish.streams import open_closed; import os, sys; open_closed(); "
    code += "sys.exit(os.open('/dev/null', os.O_RDONLY) if os.get_inheritable(0) else 1)"
    done = subprocess.run(["bash", "-c", f'{sys.executable} -c "{code}" <&- >&- 2>&-'], check=False)
    assert done.returncode == 3


@pytest.mark.parametrize("redirected", ["| head -1", ">&- 2>&-", ">&- 2>&- <&-"])
def test_a_run_whose_output_is_cut_off_goes_on_to_its_end(tmp_path, redirected):
    line = f"set -o pipefail; {RAYFISH} train cartpole {' '.join(SHORT)} 2>&1 {redirected}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stdout + done.stderr) == (0, False)
    run = only_run(tmp_path)
    assert info_of(run)["status"] == "done"
    assert (run / "checkpoints/last").exists()
    assert ("<stdout> is gone (Broken pipe)" in (run / "log.txt").read_text()) == ("head" in redirected)
