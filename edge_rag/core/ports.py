"""Ports that several rooms share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from edge_rag.core.monitoring.event import AuditEvent
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import Question

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class AuditSink(Protocol):
    """Keeps audit events. Called on any thread."""

    def record(self, event: AuditEvent) -> None:
        """Takes an event; returns at once and does not raise. Events of one request arrive in their order."""
        ...


class Embedder(Protocol):
    """Turns text into vectors. Methods may be called from several threads."""

    @property
    def name(self) -> str:
        """Identity of the model; two embedders of one name give the same vectors."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """Longest text the model reads, in tokens; the rest of a longer one is ignored."""
        ...

    def count_tokens(self, text: str) -> int:
        """Number of tokens of a text."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds passages of documents: float32 [n, dimension], each row of length 1.

        Raises:
            InferenceFailed: The model could not be run.
        """
        ...

    def embed_questions(self, questions: Sequence[str]) -> NDArray[np.float32]:
        """Embeds questions: float32 [n, dimension], each row of length 1. Some models read them in another way.

        Raises:
            InferenceFailed: The model could not be run.
        """
        ...


class Embedding(Protocol):
    """Where vectors come from: this box's embedder, or for text that may leave, another box's that is the same."""

    def questions(self, questions: Sequence[Question]) -> NDArray[np.float32]:
        """Embeds questions: float32 [n, dimension], each row of length 1. Called by one thread at a time.

        Raises:
            InferenceFailed: The model could not be run.
        """
        ...

    def passages(
        self,
        texts: Sequence[str],
        rule: Callable[[], OffloadRule],
        here: Callable[[Sequence[str]], NDArray[np.float32]],
        yield_to_queries: Callable[[float], None],
        told: Callable[[int], None],
    ) -> NDArray[np.float32]:
        """Embeds the passages of a document: float32 [texts, dimension], each row of length 1. Any thread.

        Args:
            texts: The passages.
            rule: Returns what of their collection may leave this box, as it is at that moment; any thread.
            here: Embeds a few of them on this box, on the caller's thread.
            yield_to_queries: Called after that with the seconds it took; returns when the next may begin.
            told: Told how many are done.

        Raises:
            InferenceFailed: The model could not be run.
        """
        ...
