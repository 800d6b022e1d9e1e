"""What is logged or printed anywhere reaches the user once, with its level and who said it."""

from __future__ import annotations

import logging
import os
import pty
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest

from rayfish.supervise import worker_messages as messages
from rayfish.supervise.logs import _Router, capture, setup_worker


@pytest.fixture
def heard(tmp_path):
    """A list of (level, who, text) to be used as a sink, and the log file."""
    said = []
    return (lambda *entry: said.append(entry)), said, tmp_path / "log.txt"


def batch(*text, pid=7, **more):
    """Lines as Ray's log monitor sends them."""
    return {"ip": "10.0.0.1", "pid": pid, "is_err": True, "lines": list(text), "actor_name": "Runner", **more}


@pytest.fixture
def router(heard):
    sink, said, file = heard
    with file.open("ab", buffering=0) as log:
        yield _Router(log, sink, "WARN"), said, file


def test_records_survive_the_journey():
    text = 'two\nlines | with "quotes", \x02, \u2028 and ü'
    line = messages.encode("ERROR", "runner 2", "my.env", text)
    assert len(line.splitlines()) == 1
    assert messages.decode(line.rstrip("\n")) == ("ERROR", "runner 2", "my.env", text)
    assert messages.decode("anything else") is None
    assert messages.decode(messages.MARK + "torn") is None


def test_a_workers_message_arrives_with_its_name_and_level(router):
    route, said, file = router
    route.worker_batch(
        batch(messages.encode("WARNING", "runner 2", "my.env", "too hot\nby far").rstrip("\n"))
    )
    assert said == [("WARNING", "runner 2", "my.env: too hot\nby far")]
    assert "WARNING  runner 2 | my.env: too hot\n    by far\n" in file.read_text()


def test_a_print_is_named_after_its_worker_once_that_is_known(router):
    route, said, _ = router
    route.worker_batch(batch("early"))
    route.worker_batch(batch(messages.encode(messages.HELLO, "runner 3", "7", "").rstrip("\n"), "late"))
    route.worker_batch(batch("another process", pid=8))
    assert said == [
        ("INFO", "Runner 7", "early"),
        ("INFO", "runner 3", "late"),
        ("INFO", "Runner 8", "another process"),
    ]


def test_an_unfinished_print_does_not_swallow_a_record(router):
    route, said, _ = router
    route.worker_batch(batch("50 %" + messages.encode("INFO", "runner 1", "root", "done").rstrip("\n")))
    assert said == [("INFO", "Runner 7", "50 %"), ("INFO", "runner 1", "done")]


@pytest.mark.parametrize(
    "noise",
    [
        "2026-11-15 08:22:03,207\tINFO worker.py:2038 -- Started a local Ray instance.",
        "2026-11-15 08:22:03,207\tWARNING deprecation.py:50 -- DeprecationWarning: `x` is deprecated.",
        "2026-11-15 08:22:03,207\tWARNING config.py:5160 -- You are running DQN on the new API stack!",
        "/a/site-packages/ray/x.py:12: RayDeprecationWarning: use y",
        "[2026-11-15 08:22:03,207 I 12 34] (raylet) node.cc:1: hello",
    ],
)
def test_rays_chatter_goes_to_the_file_only(router, noise):
    route, said, file = router
    route.worker_batch(batch(noise))
    assert said == []
    assert file.read_text()


def test_rays_real_warnings_are_shown(router):
    route, said, _ = router
    route.worker_batch(batch("2026-11-15 08:22:03,207\tERROR actor.py:1 -- The actor died."))
    assert said == [("ERROR", "Runner 7", "actor.py:1 -- The actor died.")]


def test_the_code_under_a_hushed_warning_is_hushed_with_it(router):
    route, said, _ = router
    route.worker_batch(batch("/a/b.py:12: DeprecationWarning: old", "  old_call()", "  mine", "mine"))
    assert said == [("INFO", "Runner 7", "mine")]


def test_the_autoscalers_table_is_left_out_altogether(router):
    route, said, file = router
    route.worker_batch(batch("======== Autoscaler status ========", " 0.0/2.0 CPU", pid="autoscaler"))
    assert (said, file.read_text()) == ([], "")


def test_output_of_the_driver_is_logged_too(heard, caplog):
    sink, said, file = heard
    caplog.set_level(logging.INFO, logger="ray")  # whoever started Ray in this process may have raised it
    with capture(file, sink):
        print("printed")
        print("to stderr", file=sys.stderr)
        logging.getLogger("my.env").info("logged")
        logging.getLogger("my.env").debug("too fine")
        logging.getLogger("ray").info("chatter")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("careful", stacklevel=1)
            warnings.warn("outdated", DeprecationWarning, stacklevel=1)
        print("unfinished", end="")
    assert [(level, text.partition(" (")[0]) for level, _, text in said] == [
        ("INFO", "printed"),
        ("INFO", "to stderr"),
        ("INFO", "my.env: logged"),
        ("WARNING", "UserWarning: careful"),
        ("INFO", "unfinished"),
    ]
    assert {who for _, who, _ in said} == {"driver"}
    assert "chatter" in file.read_text()
    assert "outdated" in file.read_text()


def test_colour_codes_are_taken_out_and_warnings_say_where(router):
    route, said, file = router
    route.worker_batch(
        batch("\x1b[31mred\x1b[0m", "/a/long/path/env.py:12: UserWarning: \x1b[33mcareful\x1b[0m")
    )
    assert [text for _, _, text in said] == ["red", "UserWarning: careful (env.py:12)"]
    assert "\x1b" not in file.read_text()


def test_debug_level_lets_debug_messages_through(heard):
    sink, said, file = heard
    with capture(file, sink, "DEBUG"):
        logging.getLogger("my.env").debug("fine")
    assert ("DEBUG", "driver", "my.env: fine") in said


def test_everything_is_as_before_afterwards(heard):
    sink, said, file = heard
    streams, root = (sys.stdout, sys.stderr), logging.getLogger()
    before = list(root.handlers), root.level, logging.getLogger("ray").propagate
    with pytest.raises(ZeroDivisionError), capture(file, sink):
        kept = sys.stdout
        raise ZeroDivisionError
    assert (sys.stdout, sys.stderr) == streams
    assert (list(root.handlers), root.level, logging.getLogger("ray").propagate) == before
    kept.write("a handler that kept the stream\n")
    assert said == []


def test_a_sink_that_prints_does_not_hear_itself(tmp_path, capsys):
    with capture(tmp_path / "log.txt", lambda level, who, text: print(f"<{text}>")):
        print("once")
    assert capsys.readouterr().out == "<once>\n"


def test_repetitions_are_counted_instead_of_shown(heard):
    sink, said, file = heard
    with capture(file, sink):
        for _ in range(8):
            print("made")
        print("next")
        print("last")
        print("last")
    assert [text for _, _, text in said] == [
        "made",
        "(the same 7 times more)",
        "next",
        "last",  # its repetition would stand below the summary
    ]
    assert file.read_text().count("made") == 8


def test_a_flood_is_cut_but_kept_in_the_file(heard):
    sink, said, file = heard
    with capture(file, sink):
        for number in range(1000):
            print("step", number)
        logging.getLogger("my.env").error("and yet this")
    shown = [text for _, _, text in said]
    assert len(shown) < 100
    assert "my.env: and yet this" in shown
    assert shown[-1].endswith("more lines are in log.txt)")
    assert file.read_text().count("step") == 1000


def test_a_progress_bar_is_one_line(heard):
    sink, said, file = heard
    with capture(file, sink):
        for part in range(100):
            print(f"\r{part} %", end="")
        print()
    assert said == [("INFO", "driver", "99 %")]


def test_threads_may_print_at_the_same_time(heard):
    sink, _, file = heard
    with capture(file, sink):
        threads = [
            threading.Thread(target=lambda: [print("x" * 20, number) for number in range(50)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    whole = [line.partition(" | ")[2] for line in file.read_text().splitlines()]
    assert sorted(whole) == sorted(f"{'x' * 20} {number}" for number in range(50) for _ in range(4))


def test_a_worker_writes_records_to_its_stderr():
    program = """
import logging
import os
import pty
import signal
from rayfish.supervise.logs import setup_worker
setup_worker("runner 4")
setup_worker("runner 4")
logging.getLogger("my.env").info("hello")
logging.getLogger("my.env").debug("hidden")
try:
    1 / 0
except ZeroDivisionError:
    logging.exception("boom")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = [messages.decode(line) for line in done.stderr.splitlines()]
    assert [entry[0] for entry in found] == ["HELLO", "HELLO", "INFO", "ERROR"]
    assert found[2] == ("INFO", "runner 4", "my.env", "hello")
    assert found[3][3].startswith("boom\nTraceback")
    assert messages.decode(done.stdout.splitlines()[0])[:2] == ("HELLO", "runner 4")


def test_the_driver_needs_no_worker_setup():
    before = list(logging.getLogger().handlers)
    setup_worker("driver")
    assert logging.getLogger().handlers == before


def test_output_of_real_workers_is_logged_with_their_names(ray_session, heard):
    sink, said, file = heard

    @ray_session.remote(num_cpus=0)
    class Worker:
        def __init__(self, name):
            setup_worker(name)

        def work(self):
            print("printed")
            logging.getLogger("my.env").warning("two\nlines")
            logging.getLogger("ray.rllib").info("chatter")

    with capture(file, sink):
        workers = [Worker.remote(f"runner {number}") for number in (1, 2)]
        ray_session.get([worker.work.remote() for worker in workers])
        until = time.monotonic() + 10
        while len(said) < 4 and time.monotonic() < until:
            time.sleep(0.1)
    expected = {
        (level, f"runner {n}", text)
        for n in (1, 2)
        for level, text in (("INFO", "printed"), ("WARNING", "my.env: two\nlines"))
    }
    assert set(said) == expected
    for worker in workers:
        ray_session.kill(worker)


def test_what_the_core_writes_straight_to_the_terminal_goes_to_the_file(tmp_path):
    program = """
import os, sys
from rayfish.supervise.logs import capture
with capture(sys.argv[1], lambda *entry: None):
    os.write(2, b"core noise\\n")
os.write(2, b"afterwards\\n")
"""
    terminal, other = pty.openpty()
    file = tmp_path / "log.txt"
    subprocess.run([sys.executable, "-c", program, str(file)], stderr=other, check=True)
    os.close(other)
    seen = os.read(terminal, 1000).decode()
    os.close(terminal)
    assert "afterwards" in seen
    assert "core noise" not in seen
    assert "core noise" in file.read_text()


CRASH = """
import ctypes
from pathlib import Path
from rayfish.supervise.logs import capture

with capture(Path("log.txt"), print):
    ctypes.string_at(0)
"""


def test_a_crash_in_native_code_leaves_its_line_on_the_terminal(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CRASH], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr
    assert 'File "<string>", line 7 in <module>' in done.stderr
