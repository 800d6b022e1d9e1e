"""Population based training: checkpoints that trials go on from, though they are another trial's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rayfish.files import link_or_copy, remove


def keep(sweep: Path, trial: str, saved: Path, wanted: Iterable[str]) -> str:
    """A checkpoint that others may go on from, kept from being tidied away by its own trial.

    :param wanted: those that somebody is about to go on from; other older ones of the trial are removed
    """
    kept = sweep / "handed-over" / trial
    target = kept / saved.name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = kept / f".{target.name}"
        link_or_copy(saved, draft)
        draft.rename(target)
    still = {*wanted, str(target)}
    for old in kept.iterdir():
        if str(old) not in still:
            remove(old)
    return str(target)


def taken_last(events: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Trials that were about to go on from another's checkpoint, and had not reported since."""
    donors: dict[int, str] = {}
    for event in events:
        if event["event"] == "move":
            donors[event["trial"]] = event.get("donor", "")
        elif event["event"] == "report":
            donors.pop(event["trial"], None)
    return donors


def saved_before(events: Sequence[Mapping[str, Any]]) -> dict[int, tuple[str, float]]:
    """The newest checkpoint of each trial that others may go on from, where it is still there."""
    saved = {e["trial"]: (e["saved"], e["step"]) for e in events if e["event"] == "save"}
    return {number: found for number, found in saved.items() if Path(found[0]).exists()}
