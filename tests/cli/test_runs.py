"""`rayfish runs list|show`."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from rayfish.cli.runs import app
from rayfish.errors import RunNotFound
from rayfish.experiment import Experiment
from rayfish.metrics import names
from rayfish.metrics.sinks import open_sinks
from rayfish.run.directory import RunDirectory


@pytest.fixture
def run(workdir):
    experiment = Experiment.compose("cartpole", ["training.lr=0.0007", "trackers.tensorboard=false"])
    run = RunDirectory.create(experiment, command="rayfish train cartpole")
    run.begin("rllib", "asked for")
    with open_sinks(run.path, experiment) as sinks:
        for i in range(1, 31):
            line = {
                names.ITERATION: i,
                names.ENV_STEPS: 4096 * i,
                names.EPISODES: i,
                names.TIME_TOTAL: 2.0 * i,
            }
            line |= {names.RETURN_MEAN: 10.0 * i, names.RETURN_MIN: 1.0, names.RETURN_MAX: 400.0}
            if i == 20:
                line |= {names.EVAL_RETURN_MEAN: 222.0, names.EVAL_CI_LOW: 200.0, names.EVAL_CI_HIGH: 250.0}
            sinks.write(line)
    run.checkpoint_path(20).mkdir()
    run.progress(line, {"metric": names.RETURN_MEAN, "value": 200.0, "checkpoint": "000020"})
    run.finish("done", "rollout/return_mean 300 >= 300")
    return run


def invoke(*words, width=120):
    return CliRunner().invoke(app, list(words), env={"COLUMNS": str(width)}, catch_exceptions=False)


def test_the_list_shows_each_run_on_one_line(run):
    output = invoke("list").output
    (row,) = [line for line in output.splitlines() if run.data["id"] in line]
    for part in ("cartpole", "PPO", "CartPole-v1", "done", "122,880", "200", "1:00"):
        assert part in row


def test_figures_stay_whole_on_a_narrow_terminal(run):
    output = invoke("list", width=80).output
    assert max(map(len, output.splitlines())) <= 80
    for part in (run.data["id"], "122,880", "1:00", "done"):
        assert part in output


def test_the_list_can_be_narrowed_by_name(run):
    assert run.data["id"] in invoke("list", "cartp").output
    assert "no run under runs/ has 'pendulum'" in invoke("list", "pendulum").output


def test_an_empty_folder_says_how_to_begin(workdir):
    assert "no runs under runs/ yet" in invoke("list").output


def test_show_tells_how_a_run_went_and_what_to_do_next(run):
    output = invoke("show", "last").output
    for part in (
        "done",
        "rollout/return_mean 300 >= 300",
        "█",
        "200  in checkpoint 000020",
        "222  95 % in 200 to 250",
        "122,880 steps",
        "training.lr=0.0007",
        "0.0007",
        "metrics.jsonl",
        f"rayfish evaluate {run.path}",
        f"rayfish train --resume {run.path}",
    ):
        assert part in output, part


def test_show_of_a_run_that_has_not_measured_anything_yet(workdir):
    RunDirectory.create(Experiment.compose("cartpole"), command="x")
    output = invoke("show", "last").output
    assert "no episode has ended yet" in output
    assert "rayfish evaluate" not in output


def test_an_unknown_run_is_a_plain_error(workdir):
    with pytest.raises(RunNotFound):
        invoke("show", "nothing")
