"""What remains of a sweep, as a table."""

from __future__ import annotations

import csv
import io
import json

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
