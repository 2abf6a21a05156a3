"""Lists of documents: which ones, in which order, and where a page begins; pure values."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.documents.filters import AllOf, AnyOf, BuiltinField, Filter, Negated
from edge_rag.core.ids import DocumentId
from edge_rag.errors import InvalidRequest

MAX_SEARCH_CHARACTERS: Final = 256
"""Longest text that documents are searched for by name."""

MAX_SEARCH_WORDS: Final = 8
"""Most words of such a text."""

MAX_CURSOR_CHARACTERS: Final = 8192
"""Longest name of a place in a list: that of a document with the longest name."""

MAX_SKIPPED: Final = 1_000_000
"""Most documents that a page skips before it begins."""


class ListOrder(Enum):
    """What documents are ordered by. ADDED: When they came first. NAME: Upper and lower case of a to z are the same.
    SIZE: Bytes. STORED: When they came last.
    """

    ADDED = "added"
    NAME = "name"
    SIZE = "size"
    STORED = "stored"

    def key(self, info: DocumentInfo) -> str | int:
        """Returns the sort key of a document, as it is stored; documents with equal keys are in order of their ids."""
        match self:
            case ListOrder.ADDED:
                return info.document_id
            case ListOrder.NAME:
                return info.name
            case ListOrder.SIZE:
                return info.size_bytes
            case ListOrder.STORED:
                return info.ingested_at.isoformat()


@dataclass(frozen=True, slots=True)
class DocumentSelection:
    """Which documents of a collection are listed, and in which order.

    Attributes:
        search: Words that each are part of the name, the title or a text of the metadata, or a number of the metadata;
            upper and lower case are the same. Empty for all documents.
        filter: Condition on name, media type, time and metadata; None for all documents.
        descending: Whether the largest, latest or last one comes first.
    """

    search: str = ""
    filter: Filter | None = None
    order: ListOrder = ListOrder.ADDED
    descending: bool = False


EVERYTHING: Final = DocumentSelection()
"""All documents, in the order in which they came first."""


@dataclass(frozen=True, slots=True)
class ListCursor:
    """A place in a list: after a document that was there, whether or not it still is."""

    key: str | int
    document_id: DocumentId

    @classmethod
    def after(cls, info: DocumentInfo, order: ListOrder) -> ListCursor:
        """Returns the place after a document."""
        return cls(order.key(info), info.document_id)

    def encoded(self, order: ListOrder) -> str:
        """Returns a text that names the place: the document's id where ids are the order."""
        if order is ListOrder.ADDED:
            return self.document_id
        text = json.dumps([self.key, self.document_id], ensure_ascii=False, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decoded(cls, text: str, order: ListOrder, field: str = "after") -> ListCursor:
        """Returns the place that a text of ``encoded`` names."""
        if order is ListOrder.ADDED:
            return cls(text, DocumentId(text))
        with suppress(ValueError, RecursionError):  # also of base64, and of texts that are not Unicode
            match json.loads(base64.b64decode(text, altchars=b"-_", validate=True)):
                case [int() as key, str() as document] if order is ListOrder.SIZE and 0 <= key < 1 << 63:
                    return cls(int(key), DocumentId(document.encode().decode()))
                case [str() as key, str() as document] if order is not ListOrder.SIZE:
                    return cls(key.encode().decode(), DocumentId(document.encode().decode()))
        raise InvalidRequest(field, f"must be what `next` of a page in the order {order.value!r} was")


def check_document_filter(condition: Filter | None, field: str = "filter") -> None:
    """Checks that a filter is on documents alone."""
    match condition:
        case None:
            return
        case AllOf(filters) | AnyOf(filters):
            for each in filters:
                check_document_filter(each, field)
        case Negated(negated):
            check_document_filter(negated, field)
        case _ if condition.field is BuiltinField.PAGE:
            raise InvalidRequest(field, "has a condition on `page`, which passages have and documents have not")
