"""Trails of decisions in tests: keeping them, and telling legal ones from others."""

from __future__ import annotations

import re
from collections.abc import Iterable

from edge_rag.core.monitoring.event import Decision, DecisionKind

LETTERS = {
    DecisionKind.QUEUED: "Q",
    DecisionKind.ADMITTED: "A",
    DecisionKind.DEFERRED: "D",
    DecisionKind.PREEMPTED: "P",
    DecisionKind.PAUSED: "H",
    DecisionKind.RESUMED: "R",
    DecisionKind.FINISHED: "E",
    DecisionKind.CANCELLED: "E",
    DecisionKind.EXPIRED: "E",
    DecisionKind.FAILED: "E",
}


class Trail:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []

    def record(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def of(self, request_id: str) -> list[Decision]:
        return [decision for decision in self.decisions if decision.request_id == request_id]


def assert_legal(kinds: Iterable[DecisionKind], ended: bool) -> None:
    """Checks what was decided about one request, in order.

    Args:
        kinds: Kinds of decisions; an engine's begin with QUEUED and end with one ending, a scheduler's have neither.
        ended: Whether the request is over.
    """
    letters = "".join(LETTERS[kind] for kind in kinds)
    form = "QW*(A(OW*R)*(OW*)?)?E" if ended else "W*(A(OW*R)*(OW*)?)?"
    form = form.replace("W", "[DH]").replace("O", "[PH]")
    assert re.fullmatch(form, letters), letters
