"""A question on its way to be embedded."""

from __future__ import annotations

from dataclasses import dataclass

from edge_rag.core.asker import Asker
from edge_rag.core.offload import OffloadRule


@dataclass(frozen=True, slots=True)
class Question:
    """A question of somebody.

    Attributes:
        text: The question.
        rule: What of the collection that is asked may leave this box, the question included.
        asker: Who asks.
    """

    text: str
    rule: OffloadRule
    asker: Asker
