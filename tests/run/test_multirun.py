"""Several runs: one table of them all, whatever the settings and errors look like."""

from __future__ import annotations

import io
import json

from rich.console import Console

from rayfish.run.train import _table


def test_the_table_keeps_brackets_and_whole_words_at_80_columns(tmp_path):
    folder = tmp_path / "a-name-of-some-length" / "20261118-063435-8e34a7"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(
        json.dumps({"rollout/return_mean": 12.5, "run/env_steps": 4000}) + "\n"
    )
    label = "training.lr=0.001 training.model.fcnet_hiddens=[relu]"
    out = io.StringIO()
    rows = [(label, folder, ""), ("algo.name=SAC", None, "failed, see above")]
    Console(file=out, width=80).print(_table(rows))
    shown = out.getvalue()
    for words in (*label.split(), "8e34a7", "4,000", "failed,"):
        assert words in shown, shown
