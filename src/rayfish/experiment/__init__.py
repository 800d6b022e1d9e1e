"""Stage 1 of 8: takes files and overrides, gives one resolved Experiment."""

from __future__ import annotations

from rayfish.experiment.experiment import Experiment
from rayfish.experiment.overrides import expand

__all__ = ["Experiment", "expand"]
