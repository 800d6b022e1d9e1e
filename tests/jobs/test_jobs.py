"""Lists of jobs: how they are read, and how they run."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from rich.console import Console

import rayfish
from rayfish.errors import ConfigError, RayfishError
from rayfish.jobs import Job, JobList, from_words, read_jobs, run_jobs
from rayfish.jobs.run import _Runner
from rayfish.run.engine import RayOptions
from rayfish.sweep.amounts import resources_of
from rayfish.sweep.directory import SweepDirectory
from rayfish.sweep.records import read_events
from tests.sweep.test_program_process import gone_within

ISAAC_LAB = """
pip: []
py_modules: ["lib/mine"]
concurrent: true
tasks:
  - name: "Isaac Cartpole"
    py_args: "-m torch.distributed.run --nproc_per_node=2 train.py --task='A B' --headless"
    num_gpus: 2
    num_cpus: "2*5"
    memory: 10*1024*1024*1024
    node:
      specific: "hostname"
      hostname: "worker-3"
  - name: "Isaac Cartpole"
    command: [bash, -c, "echo hi"]
    memory: 10737418240
    node: {specific: any}
"""
STAMPS = "import time; print('from', time.time(), flush=True); time.sleep(0.8); print('to', time.time())"


def run(jobs: JobList, folder: Path, **more) -> tuple[dict, str]:
    text = io.StringIO()
    results = run_jobs(jobs, folder, RayOptions(), Console(file=text, width=200), **more)
    return {result.name: result for result in results}, text.getvalue()


def python(name: str, code: str, cpus: float = 1.0, **more) -> Job:
    return Job(name, ("python", "-c", code), cpus, **more)


class TestReading:
    def test_a_file_of_isaac_labs_task_runner_is_read(self, workdir):
        (workdir / "lib/mine").mkdir(parents=True)
        (workdir / "lib/mine/__init__.py").touch()
        (workdir / "tasks.yaml").write_text(ISAAC_LAB)
        jobs = read_jobs("tasks.yaml")
        first, second = jobs.jobs
        assert first.command[:4] == ("python", "-m", "torch.distributed.run", "--nproc_per_node=2")
        assert first.command[-2:] == ("--task=A B", "--headless")
        assert (first.name, first.cpus, first.gpus, first.memory) == ("Isaac-Cartpole", 10, 2, 10 * 1024**3)
        assert (first.node, second.node) == ("worker-3", "")
        assert second.name == "Isaac-Cartpole-2" and second.command == ("bash", "-c", "echo hi")
        assert (second.cpus, second.gpus) == (1, 0)
        assert jobs.together and jobs.pythonpath == [str(workdir / "lib")]

    def test_everything_wrong_is_reported_at_once(self, workdir):
        with pytest.raises(ConfigError) as refused:
            read_jobs(
                {
                    "task": [],
                    "concurrent": "yes",
                    "py_modules": ["gone"],
                    "tasks": [
                        {"name": "a"},
                        {"py_args": "x", "command": "y"},
                        {"command": "x", "num_gpu": 1, "memory": "lots", "num_cpus": -1},
                        {"command": "x", "node": {"specific": "hostname"}},
                        "x",
                    ],
                }
            )
        text = str(refused.value)
        for part in (
            "did you mean tasks?",
            "concurrent: takes bool, not 'yes'",
            "gone does not exist",
            "tasks[0]: has no command",
            "tasks[1]: has both command and py_args",
            "did you mean num_gpus",
            "tasks[2].memory: cannot be 'lots'",
            "tasks[2].num_cpus: is -1",
            "says specific: hostname, but not which",
            "tasks[4]: is 'x'",
        ):
            assert part in text

    def test_a_job_without_a_command_is_reported(self):
        tasks = [{"command": ""}, {"command": []}, {"command": None}, {"command": [" "]}, {"py_args": ""}]
        with pytest.raises(ConfigError) as refused:
            read_jobs({"tasks": [*tasks, {"command": "echo fine"}]})
        assert [problem.key for problem in refused.value.problems] == [f"tasks[{n}]" for n in range(5)]
        assert {problem.what for problem in refused.value.problems} == {"its command is empty"}
        with pytest.raises(ConfigError, match="job 2: its command is empty"):
            from_words(["echo a", "+", ""])

    def test_amounts_that_ray_cannot_give_are_reported(self):
        nan, inf = float("nan"), float("inf")
        amounts = {"num_cpus": nan, "num_gpus": 1.5, "memory": inf}
        with pytest.raises(ConfigError) as refused:
            read_jobs({"tasks": [{"command": "a", **amounts}, {"command": "b", "num_cpus": 1e-5}]})
        text = str(refused.value)
        for part in (
            "tasks[0].num_cpus: cannot be nan",
            "tasks[0].num_gpus: is 1.5, and Ray gives a part of one GPU, or whole ones",
            "next step: give 1 or 2, or less than 1",
            "tasks[0].memory: cannot be inf",
            "tasks[1].num_cpus: is 1e-05, and Ray counts in steps of 0.0001",
        ):
            assert part in text
        for name, value in (("gpu", 1.5), ("gpu", nan), ("cpu", inf), ("ram_gb", nan), ("cpu", [1, -1])):
            with pytest.raises(ConfigError, match=f"{name}_per_worker: ") as refused:
                from_words(["a", "+", "b"], **{f"{name}_per_worker": value})
            assert len(refused.value.problems) == 1
        for resources in ({"cpu": nan}, {"num_gpus": "1.5"}, {"license": inf}, {"memory": "1e999"}):
            with pytest.raises(ConfigError, match=f"search.resources.{next(iter(resources))}: "):
                resources_of(resources)
        assert resources_of({"gpu": 0.5, "cpu": 1.5, "license": 1.5}).gpus == 0.5

    def test_files_that_are_no_lists_are_reported(self, workdir):
        (workdir / "a.yaml").write_text("- 1\n")
        (workdir / "b.yaml").write_text("tasks: [\n")
        with pytest.raises(RayfishError, match="cannot be read"):
            read_jobs("gone.yaml")
        with pytest.raises(ConfigError, match="begins with `tasks:`"):
            read_jobs("a.yaml")
        with pytest.raises(ConfigError, match="is not valid YAML"):
            read_jobs("b.yaml")
        with pytest.raises(ConfigError, match="there is no job"):
            read_jobs({"tasks": []})

    def test_words_with_plus_between_them_are_jobs(self):
        jobs = from_words(
            ["python a.py --x 1", "+", "python", "b.py", "1+1"], cpu_per_worker=2, gpu_per_worker=[1, 0.5]
        )
        assert [job.command for job in jobs.jobs] == [
            ("python", "a.py", "--x", "1"),
            ("python", "b.py", "1+1"),
        ]
        assert [(job.cpus, job.gpus) for job in jobs.jobs] == [(2, 1), (2, 0.5)]
        assert from_words(["a"]).share == 1 and from_words(["a", "+", "b"], num_workers=2).share == 2
        assert from_words(["a"], ram_gb_per_worker=2).jobs[0].memory == 2 * 1024**3

    def test_words_that_make_no_jobs_are_reported(self):
        with pytest.raises(ConfigError, match="no command before or after"):
            from_words(["a", "+"])
        with pytest.raises(ConfigError, match="give one of the two"):
            from_words(["a"], num_workers=2, gpu_per_worker=1)
        with pytest.raises(ConfigError, match="3 values for 2 jobs"):
            from_words(["a", "+", "b"], cpu_per_worker=[1, 2, 3])


@pytest.mark.usefixtures("ray_session")
class TestRunning:
    def test_a_failing_job_is_one_failing_job_and_only_it_runs_again(self, workdir):
        (workdir / "lib").mkdir()
        (workdir / "lib/mine.py").write_text("WORD = 'imported'\n")
        fixed = "import os; print('trying'); raise SystemExit(0 if os.path.exists('fixed') else 3)"
        jobs = JobList(
            (
                python("good", "import mine, os; print(mine.WORD, os.environ['OMP_NUM_THREADS'])", 2),
                python("bad", fixed),
                Job("missing", ("no-such-program",)),
            ),
            modules=(str(workdir / "lib"),),
        )
        found, text = run(jobs, workdir / "out")
        assert [found[name].state for name in ("good", "bad", "missing")] == ["done", "failed", "failed"]
        assert (found["good"].code, found["bad"].code, found["missing"].code) == (0, 3, None)
        assert "exit code 3" in found["bad"].error and "| trying" in found["bad"].error
        assert "no-such-program was not found" in found["missing"].error
        assert (workdir / "out/good/log.txt").read_text() == "imported 2\n"
        assert "good    │ imported 2" in text and "bad     │ trying" in text
        (workdir / "fixed").touch()
        again, text = run(jobs, workdir / "out", resume=True)
        assert [again[name].state for name in ("good", "bad", "missing")] == ["done", "done", "failed"]
        assert again["good"].earlier and not again["bad"].earlier
        assert "imported" not in text and "bad     │ trying" in text
        events = [json.loads(line) for line in (workdir / "out/jobs.jsonl").read_text().splitlines()]
        assert [e["job"] for e in events if e["event"] == "end"].count("bad") == 2

    def test_a_resumed_list_starts_its_jobs_where_it_began(self, workdir, monkeypatch):
        (workdir / "out").mkdir()
        (workdir / "elsewhere").mkdir()
        JobList((python("a", "import os; print(os.getcwd())"),)).keep(workdir / "out")
        monkeypatch.chdir(workdir / "elsewhere")
        run(read_jobs(workdir / "out"), workdir / "out")
        assert (workdir / "out/a/log.txt").read_text() == f"{workdir}\n"
        kept = json.loads((workdir / "out/jobs.json").read_text())
        del kept["start"]  # a list of an earlier version
        (workdir / "out/jobs.json").write_text(json.dumps(kept))
        run(read_jobs(workdir / "out"), workdir / "out")
        assert (workdir / "out/a/log.txt").read_text() == f"{workdir}\n{workdir / 'elsewhere'}\n"

    def test_ctrl_c_loses_no_answer_and_jobs_ended_by_it_are_not_said_to_be_out_of_memory(
        self, workdir, monkeypatch
    ):
        stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True)"
        jobs = JobList((python("stubborn", f"{stubborn}; time.sleep(600)"), python("quick", "print('ok')")))
        heard, log = _Runner._receive, workdir / "out/stubborn/log.txt"

        def heard_with_ctrl_c(self, name, news):
            if name == "quick" and news.over:
                while "up" not in (log.read_text() if log.exists() else ""):
                    time.sleep(0.05)
                signal.raise_signal(signal.SIGINT)  # its answer is taken from the list, and not noted yet
            heard(self, name, news)

        monkeypatch.setattr(_Runner, "_receive", heard_with_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            run(jobs, workdir / "out")
        events = [json.loads(line) for line in (workdir / "out/jobs.jsonl").read_text().splitlines()]
        ends = {event["job"]: event for event in events if event["event"] == "end"}
        assert {name: (end["state"], end["code"]) for name, end in ends.items()} == {
            "quick": ("done", 0),
            "stubborn": ("stopped", -signal.SIGKILL),
        }
        assert "was ended by SIGKILL" in ends["stubborn"]["error"]
        assert "out of memory" not in ends["stubborn"]["error"]

    def test_a_second_ctrl_c_ends_jobs_at_once(self, workdir, monkeypatch):
        stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True)"
        jobs = JobList((python("stubborn", f"{stubborn}; time.sleep(600)"),))
        listen, begun = _Runner._listen, []

        def listen_with_ctrl_c(self, seconds):
            listen(self, seconds)
            if (workdir / "out/stubborn/log.txt").exists() and len(begun) < 2:
                begun.append(time.monotonic())
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(_Runner, "_listen", listen_with_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            run(jobs, workdir / "out")
        assert time.monotonic() - begun[0] < 4.0  # its grace alone is five seconds
        (end,) = [e for e in read_events(workdir / "out/jobs.jsonl") if e["event"] == "end"]
        assert end["state"] == "stopped"

    def test_jobs_wait_for_room(self, workdir):
        jobs = JobList((python("a", STAMPS, 3), python("b", STAMPS, 3)))
        run(jobs, workdir / "out")
        first, second = sorted(self.spans(workdir))
        assert second[0] >= first[1]

    def test_jobs_that_belong_together_run_at_the_same_time(self, workdir):
        waits = (
            "import pathlib, time; pathlib.Path('{}').touch()\n"
            "while not pathlib.Path('{}').exists(): time.sleep(0.05)"
        )
        jobs = JobList(
            (python("a", waits.format("a", "b"), 2), python("b", waits.format("b", "a"), 2)), together=True
        )
        found, _ = run(jobs, workdir / "out")  # one alone would wait for ever
        assert {result.state for result in found.values()} == {"done"}

    def test_jobs_that_cannot_all_run_at_once_are_refused_with_the_arithmetic(self, workdir):
        jobs = JobList(tuple(python(name, "open('ran', 'w')", 2) for name in "abc"), together=True)
        with pytest.raises(RayfishError, match=r"3 jobs at once need 6 CPUs \(2 \+ 2 \+ 2\), there are 4"):
            run(jobs, workdir / "out")
        assert not (workdir / "ran").exists()

    def test_a_job_that_nothing_can_hold_is_refused_before_anything_starts(self, workdir):
        jobs = JobList(
            (python("small", "open('ran', 'w')"), python("large", "", 99), python("there", "", node="gone"))
        )
        with pytest.raises(ConfigError) as refused:
            run(jobs, workdir / "out")
        assert "large: it needs 99 CPUs" in str(refused.value) and "has 4 CPUs" in str(refused.value)
        assert "there: no machine is called gone" in str(refused.value)
        assert not (workdir / "ran").exists()

    def test_a_machine_can_be_named_and_shared(self, workdir, ray_session):
        name = ray_session.nodes()[0]["NodeManagerHostname"]
        one = python("a", "import os; print(os.environ['OMP_NUM_THREADS'])", node=name)
        for together in (False, True):
            found, _ = run(JobList((one,), together=together), workdir / f"out-{together}")
            assert found["a"].state == "done"
        found, _ = run(JobList((one,), share=2), workdir / "shared")
        assert (workdir / "shared/a/log.txt").read_text() == "2\n"

    def test_a_job_whose_worker_is_killed_fails_alone_and_leaves_nothing_behind(self, workdir):
        waits = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
        jobs = JobList((python("lost", waits), python("other", "print(1)")))
        with ThreadPoolExecutor() as thread:
            running = thread.submit(run, jobs, workdir / "out")
            until = time.monotonic() + 30
            table = workdir / "out/jobs.jsonl"
            while not (workdir / "pid").exists() or '"end"' not in table.read_text():  # of the other one
                assert time.monotonic() < until and not running.done()
                time.sleep(0.05)
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if "JobWorker" in "".join(process.cmdline()):
                        process.kill()
            found, _ = running.result(timeout=60)
        assert "worker process was lost" in found["lost"].error
        assert (found["lost"].state, found["other"].state) == ("failed", "done")
        assert gone_within([int((workdir / "pid").read_text())], 2.0)

    def spans(self, workdir: Path) -> list[tuple[float, float]]:
        found = []
        for log in (workdir / "out").glob("*/log.txt"):
            words = log.read_text().split()
            found.append((float(words[1]), float(words[3])))
        return found


def test_a_list_of_jobs_is_no_sweep_for_python(workdir):
    folder = SweepDirectory.create("runs", "jobs", {"kind": "jobs"})
    folder.release()
    with pytest.raises(RayfishError, match="is a list of jobs") as error:
        rayfish.tune(resume=folder.path)
    assert f"rayfish tune --resume {folder.path}" in error.value.hint


SCRIPT = """
import sys
from rayfish.run.engine import RayOptions
from rayfish.jobs import read_jobs, run_and_tell
if __name__ == "__main__":
    sys.exit(run_and_tell(read_jobs(sys.argv[1]), "waiting", RayOptions(num_cpus=2), root="runs"))
"""


@pytest.mark.slow
def test_ctrl_c_ends_all_jobs_and_the_list_can_go_on(workdir):
    waits = (
        "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid()));"
        "time.sleep(0 if os.path.exists('go') else 600)"
    )
    tasks = [{"name": name, "command": ["python", "-c", waits, name]} for name in ("a", "b", "c")]
    (workdir / "tasks.yaml").write_text(json.dumps({"tasks": tasks}))
    (workdir / "run.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "run.py", "tasks.yaml"], stdout=subprocess.PIPE, text=True, env=environment
    )
    until = time.monotonic() + 60
    while not all((workdir / n).exists() and (workdir / n).read_text() for n in "ab"):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    pids = [int((workdir / name).read_text()) for name in "ab"]
    process.send_signal(signal.SIGINT)
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 130 and "--resume" in text
    assert gone_within(pids, 2.0) and not (workdir / "c").exists()
    assert text.count("stopped") == 3
    (workdir / "go").touch()
    folder = next((workdir / "runs/waiting").iterdir())
    again = subprocess.run(
        [sys.executable, "run.py", str(folder)], check=False, capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0 and again.stdout.count("done") == 3, again.stderr
