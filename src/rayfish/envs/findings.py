"""What a look at an environment found: findings, and the report that gathers them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "note", "ok"]


@dataclass(frozen=True)
class Finding:
    """One thing seen in an environment.

    :param level: "error" stops training, "warning" may spoil it, "note" is good to know, "ok" is fine
    :param topic: what was looked at ("reset", "observations", "speed")
    :param what: what was seen, with the values
    :param hint: how to fix it
    """

    level: Level
    topic: str
    what: str
    hint: str = ""


class Report:
    """Findings so far; a topic's errors are kept once each, however often they occur."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def add(self, level: Level, topic: str, what: str, hint: str = "") -> None:
        """Keep a finding unless the same topic already has one with the same remedy."""
        if not any(
            (seen.topic, seen.hint, seen.level) == (topic, hint, level) for seen in self.findings if hint
        ):
            self.findings.append(Finding(level, topic, what, hint))

    def fine(self, topic: str, what: str) -> None:
        """Say that a topic is in order, when nothing was found against it."""
        if not self.has(topic):
            self.findings.append(Finding("ok", topic, what))

    def has(self, *topics: str) -> bool:
        """Whether there is an error or warning under one of the topics."""
        return any(seen.topic in topics and seen.level in ("error", "warning") for seen in self.findings)

    def sorted(self) -> list[Finding]:
        """The worst first; a topic that turned out bad is not also called fine."""
        order = {"error": 0, "warning": 1, "note": 2, "ok": 3}
        kept = [seen for seen in self.findings if seen.level != "ok" or not self.has(seen.topic)]
        return sorted(kept, key=lambda seen: order[seen.level])

    @property
    def broken(self) -> bool:
        """Whether any error was found."""
        return any(seen.level == "error" for seen in self.findings)
