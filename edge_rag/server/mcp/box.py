"""The part of a daemon that the tools need (``Box``), and the values it gives them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from edge_rag.core.answer import Citation, Finished, TextDelta, Unsupported
from edge_rag.core.documents.collection import CollectionInfo
from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.documents.filters import Filter
from edge_rag.core.passage import FoundPassage
from edge_rag.core.query import AnswerMode, Turn


@dataclass(frozen=True, slots=True)
class Passages:
    """The passages that an answer is based on, which its citations refer to by position.

    Attributes:
        found: Best first.
        evidence: Evidence that an answer is among them, 0 to 1.
        model: Name of the box's language model; None if the mode needs none.
        standalone_question: The question, completed from earlier turns; None if it is complete.
        did_you_mean: The question with misspelled words as the documents spell them; None if nothing is misspelled.
    """

    found: tuple[FoundPassage, ...]
    evidence: float
    model: str | None = None
    standalone_question: str | None = None
    did_you_mean: str | None = None


@dataclass(frozen=True, slots=True)
class Hits:
    """The result of a search.

    Attributes:
        found: Best first.
        did_you_mean: As in ``Passages``.
    """

    found: tuple[FoundPassage, ...]
    did_you_mean: str | None = None


AnswerPart = Passages | TextDelta | Citation | Unsupported | Finished
"""A part of an answer: the passages first, the end last."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question for ``Box.ask``; without ``passages`` or ``max_sentences`` the daemon decides."""

    text: str
    collection: str
    mode: AnswerMode
    max_sentences: int | None
    passages: int | None
    filter: Filter | None
    turns: tuple[Turn, ...]


class Box(Protocol):
    """What tools need of a daemon. Its errors are those of the caller, who reports them."""

    def url(self, collection: str, document_id: str, start: int, end: int, page: int | None = None) -> str:
        """Returns where a range of a document's text can be looked up."""
        ...

    async def search(self, collection: str, query: str, limit: int, condition: Filter | None) -> Hits:
        """Returns at most ``limit`` passages that fulfil a condition, best first."""
        ...

    def ask(self, question: Question) -> AbstractAsyncContextManager[AsyncIterator[AnswerPart]]:
        """Answers a question; leaving the block cancels an unfinished answer."""
        ...

    async def document(self, collection: str, document: str, start: int, end: int) -> tuple[DocumentInfo, str]:
        """Returns a document, by id or by name, and a range of its text."""
        ...

    async def documents(self, collection: str, cursor: str, size: int) -> tuple[Sequence[DocumentInfo], str]:
        """Returns a page of at most ``size`` documents, and the cursor of the next page; empty at the end.

        Args:
            cursor: That of the page; empty for the first one.
        """
        ...

    async def collections(self) -> Sequence[CollectionInfo]:
        """Returns the collections that exist for the caller, by name."""
        ...
