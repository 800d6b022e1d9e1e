"""Makes the README's picture from a real run: `python docs/pictures/make.py RUN`.

Replays the run's metrics into the live display and writes what the terminal showed as SVG.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from rayfish.experiment import Experiment
from rayfish.metrics.panel import View, draw
from rayfish.metrics.sinks import read_jsonl
from rayfish.metrics.stop import StopConditions
from rayfish.run.directory import RunDirectory, find_run

WIDTH = 96


def main(run: str, target: Path) -> None:
    """Draws the display as it stood when three quarters of the run were done."""
    directory = RunDirectory.open(find_run(run))
    experiment = Experiment.load(directory.config_file)
    view = View(directory.title, StopConditions(experiment.section("stop_conditions")), directory.path)
    lines = read_jsonl(directory.metrics_file)
    for line in lines[: max(1, 3 * len(lines) // 4)]:
        view.update(line)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(f"$ rayfish train {directory.data['name']}", highlight=False)
    console.print(draw(view, WIDTH, 40))
    svg = console.export_svg(title="rayfish", theme=MONOKAI)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)  # no fonts from afar
    target.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(__file__).with_name("train.svg"))
