"""Any program as what is tuned: its settings, its command, its reports, its end."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rayfish.errors import ConfigError, RayfishError
from rayfish.sweep.amounts import amount
from rayfish.sweep.program import Program
from rayfish.sweep.program.command import filled, words_of
from rayfish.sweep.program.settings import FIELDS, METRIC_FIELDS, read
from rayfish.sweep.task import DONE, PAUSED, STOPPED, Resources, Task
from tests.sweep.test_program_process import FAMILY, alive, family, gone_within

ROOT = Path(__file__).resolve().parents[2]
COUNTS = """
import json, sys, time
for n in range(1, 4):
    print(json.dumps({"score": n * float(sys.argv[1])}), flush=True)
    time.sleep(0.05)
"""
WRITES_EVENTS = """
import os, sys, time
from tensorboardX import SummaryWriter
writer = SummaryWriter(os.environ["RAYFISH_TRIAL_DIR"] + "/logs", flush_secs=0.2)
for step in range(0, 3000, 1000):
    writer.add_scalar("rollout/ep_rew_mean", step / 10, step)
    writer.add_scalar("time/fps", 99, step)
writer.close()
"""


def script(tmp_path: Path, text: str, name: str = "train.py") -> str:
    (tmp_path / name).write_text(text)
    return f"python {tmp_path / name}"


def task(tmp_path: Path, params: dict[str, Any] | None = None, **more: Any) -> Task:
    return Task(7, "trial-007", params or {}, tmp_path / "trial-007", **more)


def begin(tmp_path: Path, values: dict[str, Any], params: dict[str, Any] | None = None, **more: Any) -> Any:
    return Program(values, metric=more.pop("metric", None)).begin(task(tmp_path, params, **more))


def report(work: Any) -> dict[str, float] | None:
    """The next one; an empty one says that there is nothing yet."""
    while (found := work.step()) == {}:
        pass
    return found


def reports(work: Any) -> list[dict[str, float]]:
    found = []
    while (one := report(work)) is not None:
        found.append(dict(one))
    work.end(DONE, "")
    return found


def record(tmp_path: Path) -> dict[str, Any]:
    return json.loads((tmp_path / "trial-007" / "program.json").read_text())


class TestSettings:
    def test_everything_wrong_is_reported_at_once_with_what_was_meant(self):
        with pytest.raises(ConfigError) as refused:
            Program(
                {
                    "comand": "x",
                    "arguments": "hydro",
                    "silence_s": -1,
                    "env": 3,
                    "metrics": {"sourc": "json", "step": 4},
                    "resume": "--load it",
                },
                {"cpus": -1, "gpu": "two", "num_gpus": 1},
            )
        text = str(refused.value)
        for part in (
            "did you mean command?",
            "did you mean hydra?",
            "program.silence_s: is -1",
            "program.env: takes dict, not 3",
            "did you mean source?",
            "program.metrics.step: takes str | null, not 4",
            "program.command: there is no command",
            "does not name {checkpoint}",
            "has no checkpoints to go on from",
            "search.resources.cpus: is -1",
            "search.resources.num_gpus: is gpu once more",
            "search.resources.gpu: cannot be 'two'",
        ):
            assert part in text

    @pytest.mark.parametrize(
        ("command", "told"),
        [
            ("python a.py | tee b", "bash -c 'python a.py"),
            ("CUDA_VISIBLE_DEVICES=0 python a.py", "put CUDA_VISIBLE_DEVICES into program.env"),
            ("python a.py --load {checkpoint}", "program.resume"),
            ("python 'a.py", "close the quotation"),
        ],
    )
    def test_a_command_for_a_shell_is_refused_with_the_way_to_write_it(self, command, told):
        with pytest.raises(ConfigError) as refused:
            Program({"command": command})
        assert told in str(refused.value)

    def test_how_arguments_are_given_follows_from_the_command(self):
        assert read({"command": "python a.py --lr {lr}"}).arguments == "template"
        assert read({"command": "python a.py --seed {seed} --out {folder}"}).arguments == "hydra"
        assert read({"command": ["python", "a.py"], "arguments": "flags"}).arguments == "flags"

    def test_every_key_is_documented(self):
        for field in (*FIELDS.values(), *METRIC_FIELDS.values()):
            assert field.doc.endswith((".", "}."))

    def test_amounts_may_be_arithmetic_and_nothing_else(self):
        problems: list[Any] = []
        assert amount("10*1024**3", "memory", problems) == 10 * 1024**3
        assert amount("2*2 + 1", "cpu", problems) == 5 and not problems
        for text in ("__import__('os')", "9**9**9", "1 if 1 else 2", "", None, True):
            amount(text, "memory", problems)
        assert len(problems) == 6

    def test_resources_are_what_a_trial_holds(self):
        program = Program({"command": "x"}, {"CPU": 2, "num_gpus": 0.5, "memory": "2**30", "license": 1})
        assert program.resources({}) == Resources(2.0, 0.5, memory=2.0**30, custom=(("license", 1.0),))

    def test_a_program_travels_to_workers(self):
        program = pickle.loads(pickle.dumps(Program({"command": "python a.py {lr}"}, metric="score")))
        assert program.settings.command == ("python", "a.py", "{lr}") and program.metric == "score"
        assert not program.can_resume


class TestCommand:
    def test_a_value_stays_one_word_whatever_is_in_it(self):
        words = words_of(
            ["x", "{a b}", "--n={n}", "{{lit}}"], "template", {"a b": "c d; rm -rf", "n": 1e-05}, {}
        )
        assert words == ["x", "c d; rm -rf", "--n=1e-05", "{lit}"]

    def test_parameters_are_appended_for_hydra_in_its_grammar(self):
        params = {
            "a.b": 0.1,
            "layers": [64, 64],
            "on": True,
            "none": None,
            "text": "it's, so",
            "path": "a/b.c",
        }
        assert words_of(["x"], "hydra", params, {}) == [
            "x", "a.b=0.1", "layers=[64,64]", "on=true", "none=null", "text='it\\'s, so'", "path=a/b.c",
        ]  # fmt: skip
        hydra = pytest.importorskip("hydra.core.override_parser.overrides_parser").OverridesParser.create()
        for word in words_of([], "hydra", params, {}):
            override = hydra.parse_override(word)
            assert override.value() == params[override.key_or_group]

    def test_parameters_are_appended_as_flags_and_false_ones_are_left_out(self):
        params = {
            "lr": 0.1,
            "--num_envs": 8,
            "headless": True,
            "video": False,
            "none": None,
            "layers": [64, 32],
        }
        assert words_of(["x"], "flags", params, {}) == [
            "x", "--lr", "0.1", "--num_envs", "8", "--headless", "--layers", "64", "32",
        ]  # fmt: skip

    def test_a_name_without_a_value_is_an_error_of_its_own(self):
        with pytest.raises(RayfishError, match=r"\{b\} in 'a \{b\}' has no value"):
            filled("a {b}", {"c": 1})

    def test_the_command_at_a_point_can_be_run_by_hand(self):
        program = Program({"command": "python a.py --lr {lr} --out {folder}"})
        assert program.command_line({"lr": 0.1}) == "python a.py --lr 0.1 --out best"


class TestBeforeTheStart:
    def test_names_and_parameters_that_do_not_meet_are_reported(self, workdir):
        (workdir / "train.py").touch()
        values = {
            "command": "python train.py --lr {training.rl}",
            "env": {"A": "{nothing}"},
            "checkpoints": "{x}",
        }
        problems = Program(values).problems(["training.lr", "gamma"])
        text = "\n".join(map(str, problems))
        assert "did you mean {training.lr}?" in text
        assert "program.env.A: names {nothing}" in text and "program.checkpoints: names {x}" in text
        assert "tunables.gamma: nothing uses this parameter" in text
        assert Program({"command": "python train.py"}).problems(["training.lr"]) == []

    def test_commands_scripts_and_folders_that_do_not_exist_are_reported(self, workdir):
        (workdir / "train.py").touch()
        assert "no-such was not found" in str(Program({"command": "no-such"}).problems([])[0])
        assert "did you mean train.py?" in str(Program({"command": "python trian.py"}).problems([])[0])
        found = Program({"command": "python train.py", "folder": "gone"}).problems([])
        assert "gone does not exist" in str(found[0])


class TestReports:
    def test_json_lines_on_the_output_arrive_while_the_program_runs(self, tmp_path):
        work = begin(tmp_path, {"command": script(tmp_path, COUNTS) + " {x}"}, {"x": 2.0})
        first = report(work)
        assert first == {"score": 2.0, "step": 1, "reports": 1}
        assert record(tmp_path)["state"] == "running"
        assert reports(work) == [
            {"score": 4.0, "step": 2, "reports": 2},
            {"score": 6.0, "step": 3, "reports": 3},
        ]
        kept = record(tmp_path)
        assert (kept["state"], kept["exit_code"], kept["reports"]) == ("done", 0, 3)
        assert kept["command"][-1] == "2.0" and kept["seconds"] > 0 and len(kept["last_lines"]) == 3

    def test_tags_of_one_step_in_an_event_file_are_one_report(self, tmp_path):
        work = begin(tmp_path, {"command": script(tmp_path, WRITES_EVENTS)}, metric="rollout/ep_rew_mean")
        assert reports(work) == [
            {"rollout/ep_rew_mean": pytest.approx(step / 10), "time/fps": 99, "step": step, "reports": count}
            for count, step in enumerate((0, 1000, 2000), 1)
        ]

    def test_a_slow_writers_newest_step_is_not_held_back_until_its_end(self, tmp_path):
        writer = WRITES_EVENTS.replace("writer.close()", "print('written', flush=True); time.sleep(600)")
        work = begin(tmp_path, {"command": script(tmp_path, writer)}, metric="rollout/ep_rew_mean")
        assert [report(work)["step"] for _ in range(3)] == [0, 1000, 2000]
        work.end(STOPPED, "enough")
        assert record(tmp_path)["why"] == "enough"

    def test_csv_where_the_program_was_started_is_found_by_a_pattern_with_the_trials_number(self, tmp_path):
        text = "import sys\nopen(f'out-{sys.argv[1]}.csv', 'w').write('epoch,loss\\n10,0.5\\n20,0.25\\n')"
        values = {
            "command": script(tmp_path, text) + " {trial}",
            "folder": str(tmp_path),
            "metrics": {"source": "csv", "path": "out-{trial}.csv", "step": "epoch"},
        }
        assert reports(begin(tmp_path, values)) == [
            {"epoch": 10, "loss": 0.5, "step": 10, "reports": 1},
            {"epoch": 20, "loss": 0.25, "step": 20, "reports": 2},
        ]

    @pytest.mark.slow
    def test_event_files_of_a_shared_folder_are_distinguished_by_who_has_them_open(self, tmp_path):
        text = (
            "import sys, time\nfrom tensorboardX import SummaryWriter\n"
            "w = SummaryWriter('runs/' + sys.argv[1], flush_secs=0.1)\n"
            "for n in range(3):\n    w.add_scalar('score', n + 100 * int(sys.argv[1]), n); time.sleep(0.4)\n"
        )
        values = {
            "command": script(tmp_path, text) + " {x}",
            "folder": str(tmp_path),
            "metrics": {"path": "runs/**"},
        }
        program = Program(values, metric="score")
        works = [program.begin(Task(x, f"t{x}", {"x": x}, tmp_path / f"t{x}")) for x in (1, 2)]
        with ThreadPoolExecutor() as threads:
            found = [[report["score"] for report in some] for some in threads.map(reports, works)]
        assert found == [[100, 101, 102], [200, 201, 202]]

    def test_a_program_gets_its_folder_threads_and_variables(self, tmp_path):
        text = (
            "import json, os\nnames = ('RAYFISH_TRIAL_DIR', 'OMP_NUM_THREADS', 'OWN', 'RAYFISH_SEED')\n"
            "print(os.getcwd(), *[os.environ[name] for name in names], sep='|'); print(json.dumps({'x': 1}))"
        )
        values = {
            "command": script(tmp_path, text),
            "folder": "{folder}",
            "env": {"OWN": "lr={lr}"},
            "arguments": "hydra",
        }
        work = Program(values, {"cpu": 3}).begin(task(tmp_path, {"lr": 0.5}, seed=11))
        reports(work)
        place = str(tmp_path / "trial-007")
        assert record(tmp_path)["last_lines"][0] == f"{place}|{place}|3|lr=0.5|11"


class TestEnds:
    def test_a_failing_program_fails_with_its_code_and_last_lines(self, tmp_path):
        text = "print('{\"score\": 1}', flush=True)\nraise SystemExit('no such dataset: cats')"
        work = begin(tmp_path, {"command": script(tmp_path, text)})
        assert report(work)["score"] == 1  # what it said before counts
        with pytest.raises(RayfishError) as failed:
            report(work)
        assert "ended with exit code 1" in failed.value.what
        assert "| no such dataset: cats" in failed.value.what and "train.py" in failed.value.what
        assert record(tmp_path)["exit_code"] == 1 and record(tmp_path)["state"] == "failed"

    def test_a_program_ended_by_a_signal_is_reported_with_the_signals_name(self, tmp_path):
        work = begin(tmp_path, {"command": ["bash", "-c", "kill -9 $$"]})
        with pytest.raises(RayfishError, match="was ended by SIGKILL") as failed:
            report(work)
        assert "memory" in failed.value.hint

    def test_silence_is_a_failure(self, tmp_path):
        text = "import os, time\nprint('waiting for the licence', os.getpid(), flush=True)\ntime.sleep(600)"
        work = begin(tmp_path, {"command": script(tmp_path, text), "silence_s": 0.5})
        with pytest.raises(RayfishError, match="neither output nor metrics for") as failed:
            report(work)
        assert "waiting for the licence" in failed.value.what and "program.silence_s" in failed.value.hint
        assert not alive([int(record(tmp_path)["last_lines"][-1].split()[-1])])

    def test_output_that_is_no_metric_is_a_sign_of_life(self, tmp_path):
        text = (
            "import time\nfor n in range(8):\n    print(n, flush=True); time.sleep(0.2)\nprint('{\"x\": 1}')"
        )
        work = begin(tmp_path, {"command": script(tmp_path, text), "silence_s": 0.9})
        assert reports(work) == [{"x": 1, "step": 1, "reports": 1}]

    def test_a_program_without_metrics_fails_with_the_sources_that_were_tried(self, tmp_path):
        text = "import os\nopen(os.environ['RAYFISH_TRIAL_DIR'] + '/model.bin', 'w'); print('loss 0.5')"
        with pytest.raises(RayfishError, match="reported nothing") as failed:
            report(begin(tmp_path, {"command": script(tmp_path, text)}))
        assert "model.bin" in failed.value.what and "none of 1 lines" in failed.value.what
        assert "RAYFISH_TRIAL_DIR" in failed.value.hint

    def test_stopping_ends_the_whole_family(self, tmp_path):
        (tmp_path / "trial-007").mkdir()
        command = script(tmp_path, FAMILY) + f" {tmp_path / 'pids'} 600"
        work = begin(tmp_path, {"command": command, "stop_grace_s": 0.3})
        pids = family(tmp_path)
        work.end(STOPPED, "a better one is there")
        assert not alive(pids)
        assert record(tmp_path)["state"] == "stopped"

    def test_a_program_that_cannot_be_started_is_reported(self, tmp_path):
        with pytest.raises(RayfishError, match="no-such-program was not found"):
            begin(tmp_path, {"command": "no-such-program"})
        with pytest.raises(RayfishError, match="gone does not exist"):
            begin(tmp_path, {"command": "true", "folder": str(tmp_path / "gone")})


SAVES = """
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["RAYFISH_TRIAL_DIR"], "models")
folder.mkdir(exist_ok=True)
start = int(pathlib.Path(sys.argv[sys.argv.index("--load") + 1]).read_text()) if "--load" in sys.argv else 0
for n in range(start + 1, start + 4):
    (folder / f"{n}.txt").write_text(str(n))
    print(json.dumps({"at": n, "x": float(sys.argv[1])}), flush=True)
    time.sleep(0.05)
unfinished = open(folder / "9999.txt", "w")
time.sleep(600 if start == 0 else 0)
"""


class TestCheckpoints:
    @pytest.fixture
    def values(self, tmp_path):
        command = script(tmp_path, SAVES) + " {x}"
        return {"command": command, "checkpoints": "models/*.txt", "resume": "--load {checkpoint}"}

    def test_the_newest_checkpoint_that_is_whole_is_the_trials(self, tmp_path, values):
        work = begin(tmp_path, values, {"x": 1})
        assert [report(work)["at"] for _ in range(3)] == [1, 2, 3]
        until = time.monotonic() + 5
        while not (tmp_path / "trial-007/models/9999.txt").exists() and time.monotonic() < until:
            time.sleep(0.02)
        assert work.save() == str(tmp_path / "trial-007" / "models" / "3.txt")
        work.end(PAUSED, "")

    def test_a_trial_goes_on_from_its_own_or_from_anothers(self, tmp_path, values):
        assert Program(values).can_resume
        work = begin(tmp_path, values, {"x": 1})
        assert [report(work)["step"] for _ in range(3)] == [1, 2, 3]
        saved = work.save()
        work.end(PAUSED, "")
        (tmp_path / "trial-007/models/9999.txt").unlink(missing_ok=True)
        again = begin(tmp_path, values, {"x": 1}, resume=True)
        assert [(r["at"], r["step"]) for r in reports(again)] == [(4, 4), (5, 5), (6, 6)]
        assert "--load" in record(tmp_path)["command"]
        other = Program(values).begin(Task(8, "b", {"x": 2}, tmp_path / "b", donor=saved))
        assert [(r["at"], r["x"]) for r in reports(other)] == [(4, 2), (5, 2), (6, 2)]

    def test_a_trial_that_goes_on_and_has_nothing_left_to_do_is_done(self, tmp_path, values):
        (tmp_path / "at-the-end.txt").write_text("12")
        nothing = {**values, "command": ["true", "{x}"]}
        assert reports(begin(tmp_path, nothing, {"x": 1}, donor=str(tmp_path / "at-the-end.txt"))) == []

    def test_a_trial_without_a_checkpoint_restarts(self, tmp_path, values):
        work = begin(tmp_path, values, {"x": 1}, resume=True)
        assert report(work)["at"] == 1
        work.end(STOPPED, "")
        assert "--load" not in record(tmp_path)["command"]

    def test_a_trial_goes_on_counting_from_the_last_report(self, tmp_path, values):
        work = begin(tmp_path, values, {"x": 1})
        assert [report(work)["reports"] for _ in range(3)] == [1, 2, 3]
        work._process.stop()  # as when the worker is killed: program.json knows of the first report only
        (tmp_path / "trial-007/models/9999.txt").unlink(missing_ok=True)
        again = begin(tmp_path, values, {"x": 1}, resume=True, known_until=("reports", 3.0))
        assert [r["reports"] for r in reports(again)] == [4, 5, 6]

    def test_checkpoints_of_an_earlier_sweep_are_not_the_trials(self, tmp_path, values):
        pattern = str(tmp_path / "models-{trial}" / "*.txt")
        earlier = tmp_path / "models-7" / "1.txt"
        earlier.parent.mkdir()
        earlier.write_text("1")
        values = {**values, "checkpoints": pattern}
        work = begin(tmp_path, values, {"x": 1})
        assert work.save() == ""
        work.end(PAUSED, "")
        again = begin(tmp_path, values, {"x": 1}, resume=True)
        assert "--load" not in record(tmp_path)["command"]
        (earlier.parent / "2.txt").write_text("2")
        assert again.save() == str(earlier.parent / "2.txt")
        again.end(STOPPED, "")

    def test_a_folder_with_brackets_in_its_name_is_no_pattern(self, tmp_path):
        here = tmp_path / "br[1]"
        here.mkdir()
        values = {"command": "sleep 600", "checkpoints": "{folder}/*.txt"}
        work = begin(here, values)
        (here / "trial-007" / "a.txt").write_text("")
        assert work.save() == str(here / "trial-007" / "a.txt")
        work.end(STOPPED, "")

    def test_a_donor_that_is_gone_is_reported(self, tmp_path, values):
        with pytest.raises(RayfishError, match="is gone"):
            begin(tmp_path, values, {"x": 1}, donor=str(tmp_path / "gone.txt"))


@pytest.mark.slow
def test_a_real_script_of_stable_baselines3_reports_saves_and_goes_on(tmp_path):
    values = {
        "command": f"python {ROOT}/examples/tune_program/sb3_ppo.py --lr {{lr}} --total-steps 3000 "
        "--save-every 1000 --out {folder}",
        "checkpoints": "models/*.zip",
        "resume": "--load {checkpoint}",
    }
    found = reports(begin(tmp_path, values, {"lr": 1e-3}, metric="rollout/ep_rew_mean"))
    assert [report["step"] for report in found] == list(range(256, 3073, 256))
    assert all("rollout/ep_rew_mean" in report and "time/fps" in report for report in found[1:])
    longer = {**values, "command": values["command"].replace("3000", "5000")}
    again = reports(begin(tmp_path, longer, {"lr": 1e-3}, resume=True, metric="rollout/ep_rew_mean"))
    assert again[0]["step"] > 3072 and again[-1]["step"] >= 5000


DRIVER = """
import sys
import rayfish
from rayfish.run.engine import RayOptions
if __name__ == "__main__":
    rayfish.tune({"command": f"python {sys.argv[1]} pids 600 {{x}}"}, {"x": "grid(1,2)"}, metric="score",
                 plain=True, ray_options=RayOptions(num_cpus=2))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_all_programs_of_a_sweep_end_with_it(workdir, number):
    (workdir / "driver.py").write_text(DRIVER)
    (workdir / "family.py").write_text(FAMILY)
    driver = subprocess.Popen([sys.executable, "driver.py", str(workdir / "family.py")])
    try:
        pids = family(workdir, members=10, within_s=60)
        driver.send_signal(number)
        if number == signal.SIGINT:  # the first one lets trials come to their next report
            time.sleep(1.0)
            driver.send_signal(number)
        driver.wait(60)
        assert gone_within(pids, 5.0), f"{alive(pids)} of {pids} still run"
    finally:
        driver.kill()
