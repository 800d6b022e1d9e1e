"""Stage 7 of 8: takes an experiment (or a function, or a program) and a search space, returns many runs.

    tune       a target -> a plan -> a session -> a result
    space      what varies, and how            searchers   propose points, learn from their scores
    settings   the `search` section            schedulers  which trials continue, and which end early
    records    trials.jsonl, event by event    loop        workers, reports, retries, the end
    worker     one trial inside a worker       live        the display; the page is in `report/`

A function that is tuned reports with `rayfish.sweep.report(score=...)`; it may as well return or yield.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rayfish.sweep.function import checkpoint, report

__all__ = ["checkpoint", "report"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rayfish.sweep' has no attribute {name!r}")
    from rayfish.sweep import function

    return getattr(function, name)
