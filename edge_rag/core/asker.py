"""For whom a stage computes something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edge_rag.core.ids import RequestId
from edge_rag.core.query import Priority


@dataclass(frozen=True, slots=True)
class Asker:
    """Who waits for what a stage computes.

    Attributes:
        request_id: Whose request it is for; None where it is for nobody's, as of a document that is stored.
        client: Who asked; empty where that is not known.
        priority: Its class; None where there is none.
        deadline: ``time.monotonic()`` seconds after which the answer is worthless, or None.
        collection: What is asked; empty where that does not matter.
    """

    request_id: RequestId | None = None
    client: str = ""
    priority: Priority | None = None
    deadline: float | None = None
    collection: str = ""


NOBODY: Final = Asker()
"""Nobody waits, or who waits is not known."""
