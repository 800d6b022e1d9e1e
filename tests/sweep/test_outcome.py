"""What remains of a sweep, as a table."""

from __future__ import annotations

import csv
import io
import json

from rich.console import Console

from rayfish.sweep.live_table import final_table
from rayfish.sweep.outcome import rows_of, table_of
from tests.sweep.fake_sweep import sweep


def test_the_table_has_a_row_per_trial_and_a_column_per_parameter():
    view = sweep(count=20, repeat=2, failed=2)
    rows = list(csv.DictReader(io.StringIO(table_of(view))))
    assert [int(row["trial"]) for row in rows] == list(range(1, 21))
    assert [int(row["point"]) for row in rows[:4]] == [1, 1, 2, 2]
    for row, trial in zip(rows, view.trials.values(), strict=True):
        assert row["state"] == trial.state
        assert float(row["training.lr"]) == trial.params["training.lr"]
        assert json.loads(row["training.model.fcnet_hiddens"]) == trial.params["training.model.fcnet_hiddens"]
        assert row["training.model.lstm_cell_size"] == str(
            trial.params.get("training.model.lstm_cell_size", "")
        )
        assert row["rollout/return_mean"] == ("" if trial.value is None else str(trial.value))
    assert rows[-1]["error"].startswith("ValueError: The parameter loc")
    assert len(list(rows_of(view))) == 20


def test_a_parameter_or_metric_with_the_name_of_a_column_has_a_column_of_its_own():
    names = ("seed", "trial", "state", "folder", "score", "step", "error", "x")
    view = sweep(count=3, failed=0, space=dict.fromkeys(names, "uniform(0,1)"))
    view.metric = "score"
    for row, trial in zip(rows_of(view), view.trials.values(), strict=True):
        assert [row[f"param/{name}"] for name in names[:-1]] == [trial.params[name] for name in names[:-1]]
        assert row["x"] == trial.params["x"]
        assert (row["trial"], row["score"], row["step"]) == (trial.number, trial.value, trial.step)
    (line, *_) = csv.DictReader(io.StringIO(table_of(view)))
    assert (line["seed"], float(line["param/seed"])) == ("", view.trials[1].params["seed"])
    view.metric = "seconds"
    (row, *_) = rows_of(view)
    assert (row["metric/seconds"], row["seconds"]) == (view.trials[1].value, view.trials[1].seconds)


def test_a_trial_that_moved_and_has_not_reported_since_is_shown_with_the_point_of_its_score():
    view = sweep(count=2, failed=0, space={"x": "uniform(0,1)"}, scheduler="pbt")
    trial, before = view.trials[1], view.trials[1].params
    trial.state, trial.unearned, trial.params = "paused", True, {"x": 777.0}
    trial.moves = [(3, 2, {"x": 5.0}), (6, 2, before)]
    rows = list(rows_of(view))
    assert [row["x"] for row in rows] == [before["x"], view.trials[2].params["x"]]
    assert [row["moves"] for row in rows] == [1, 0]
    assert {point.number: point.params for point in view.points()}[1] == before
    console = Console(file=io.StringIO(), width=120)
    console.print(final_table(view, console))
    shown = console.file.getvalue()
    assert "777" not in shown and f"{before['x']:.4g}" in shown
