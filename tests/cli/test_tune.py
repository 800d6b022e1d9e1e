"""`rayfish tune` on the command line: what it says when something is wrong, and the ways in."""

from __future__ import annotations

import pytest

from rayfish.cli.main import main
from rayfish.run.directory import find_run
from rayfish.sweep.records import DONE, fold, read_events
from tests.helpers import rayfish

WRONG = {
    ("cartpole",): ("nothing to search", "loguniform"),
    ("cartpole", "training.lr=loguniform(1,0)"): ("1 is not below 0", "lower number first"),
    ("cartpole", "training.lr=lguniform(1e-5,1e-2)"): ("no type 'lguniform'", "did you mean loguniform"),
    ("cartpole", "training.lr=uniform(0,1"): ("not closed", "write uniform(0,1)"),
    ("cartpole", "training.lr=loguniform"): ("loguniform has no values", "write loguniform("),
    ("cartpole", "training.lr=uniform(0,1)", "search.num_samples=abc"): ("search.num_samples", "takes int"),
    ("cartpole", "training.lr=uniform(0,1) if training.gama=1"): ("training.gama is None", "for example"),
    ("cartpole", "training.lr=uniform(0,1)", "search.start_from=[nosuch]"): (
        "neither a sweep nor a run",
        "next",
    ),
    ("cartpole", "training.lr=uniform(0,1)", "--on", "127.0.0.1:9"): (
        "no Ray answers at 127.0.0.1:9",
        "next",
    ),
    ("cartpole", "training.lr=uniform(0,1)", "search.metod=grid"): ("search.metod", "did you mean"),
    ("cartpole", "training.lr=uniform(0,1)", "search.method=optunna"): ("optunna", "did you mean optuna?"),
    ("cartpole", "training.lr=uniform(0,1)", "search.scheduler=ahsa"): ("ahsa", "did you mean asha?"),
    ("cartpole", "training.lr=uniform(0,1)", "search.method=hebo"): ("HEBO does not run here", "optuna"),
    ("cartpole", "training.lr=sample_from(nothere.py:x)"): ("no file 'nothere.py'", "check the path"),
    ("cartpole", "training.lr=uniform(0,1)", "search.num_samples=0"): ("search.num_samples", "1 or more"),
    ("cartpole", "training.lr=uniform(0,1)", "search.repeat=2", "search.scheduler=pbt"): ("pbt", "leave one"),
    ("cartpol", "training.lr=uniform(0,1)"): ("cartpol", "did you mean"),
    ("--resume", "nothing"): ("no sweep answers to 'nothing'", "rayfish tune begins one"),
    ("--function", "missing.py:train", "x=uniform(0,1)"): ("missing.py", "next step"),
    ("--program", "no-such-program {x}", "x=uniform(0,1)", "search.metric=loss"): (
        "no-such-program",
        "next step",
    ),
    ("--program", "python -c 1 {y}", "x=uniform(0,1)", "search.metric=loss"): (
        "{y}",
        "name it in program.command as {x}",
    ),
    ("--program", "python -c 1 {x}", "x=uniform(0,1)"): ("search.metric", "name one that it writes"),
    ("--function", "a:b", "--program", "c", "x=uniform(0,1)"): ("exclude each other", "give one"),
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_mistakes_are_told_before_anything_starts(words, workdir, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main(["tune", *words])
    told = capsys.readouterr().err
    assert ended.value.code in (1, 2)
    for said in WRONG[words]:
        assert said in told
    assert "Traceback" not in told
    assert not list(workdir.glob("runs/*/*/sweep.json"))


WRITTEN = """\
environment: {env: CartPole-v1}
tunables:
  training:
    gama: uniform(0,1)
  rollouts:
    num_envs_per_env_runer: {type: choice, values: [1, 2]}
search:
  scheduler: ahsa
"""


def test_mistakes_in_a_file_are_told_with_its_lines(workdir, capsys):
    (workdir / "mine.yaml").write_text(WRITTEN)
    with pytest.raises(SystemExit):
        main(["tune", "mine.yaml", "training.lrr=uniform(0,1)"])
    assert "search.scheduler: cannot be 'ahsa'\n    written in: mine.yaml:8" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["tune", "mine.yaml", "training.lrr=uniform(0,1)", "search.scheduler=asha"])
    told = capsys.readouterr().err
    for key, where in (
        ("training.gama", "mine.yaml:4"),
        ("rollouts.num_envs_per_env_runer", "mine.yaml:6"),
        ("training.lrr", "command line"),
    ):
        assert f"{key}: there is no such key\n    written in: {where}" in told


@pytest.mark.slow
def test_hydras_way_in_a_sweep_in_the_list_of_runs_and_its_best_by_its_folder(tmp_path):
    words = ("training.gamma=0.9,0.99", "stop_conditions.training_iteration=1", "runtime.name=swept")
    rayfish("cli.mode=tune", "experiment=cartpole", *words, "--plain", cwd=tmp_path)
    (table,) = tmp_path.glob("runs/swept/*/trials.jsonl")
    trials = fold(read_events(table))
    assert [t.state for t in trials.values()] == [DONE, DONE]
    listed = rayfish("runs", "list", cwd=tmp_path).stdout
    assert "swept" in listed and "2 of 2" in listed
    assert find_run(table.parent).name.startswith("000")
    told = rayfish("evaluate", str(table.parent), "--episodes", "2", cwd=tmp_path).stdout
    assert "2 episodes" in told


def test_help_shows_an_example_of_each_kind(tmp_path):
    text = rayfish("tune", "--help", cwd=tmp_path).stdout
    for word in ("loguniform", "--function", "--program", "--resume", "--on", "--sub-jobs"):
        assert word in text
