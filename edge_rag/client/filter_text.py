"""Filters as text, with the client's errors."""

from __future__ import annotations

from edge_rag.client.errors import CallStatus, ClientError
from edge_rag.core.documents import filter_text
from edge_rag.core.documents.filters import Filter
from edge_rag.errors import InvalidRequest


def parse_filter(text: str) -> Filter:
    """Parses a filter such as ``year >= 2020 and tag in ("a", "b") and name ~ "pump*"``.

    A condition is ``FIELD = VALUE`` (or ``!= < <= > >=``), ``FIELD in (VALUE, ...)``, ``FIELD not in (...)``,
    ``FIELD ~ "beginning*"`` or ``has FIELD``; ``and``, ``or``, ``not`` and parentheses combine them.

    Raises:
        InvalidArgument: The message names the expected syntax and the character.
    """
    try:
        return filter_text.parse_filter(text)
    except InvalidRequest as error:
        raise ClientError(CallStatus.INVALID_ARGUMENT, f"{error.field}, {error.problem}") from error
