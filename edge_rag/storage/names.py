"""Validation of document and collection names."""

from __future__ import annotations

import re
import unicodedata

from edge_rag.errors import InvalidRequest

_COLLECTION = re.compile(r"[a-z0-9_-]{1,64}")
_MAX_DOCUMENT_CHARACTERS = 1024
_FORBIDDEN_CATEGORIES = frozenset(("Cc", "Cs", "Zl", "Zp"))
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Bidirectional controls of Unicode: they make a name look like another one."""


def require_collection_name(name: str) -> None:
    """Checks the name of a collection."""
    if not _COLLECTION.fullmatch(name):
        raise InvalidRequest("collection", "must be 1 to 64 characters of a-z, 0-9, _ and -")


def require_document_name(name: str) -> None:
    """Checks the name of a document."""
    if not 1 <= len(name) <= _MAX_DOCUMENT_CHARACTERS:
        raise InvalidRequest("name", f"must have 1 to {_MAX_DOCUMENT_CHARACTERS:,} characters, has {len(name):,}")
    if any(unicodedata.category(character) in _FORBIDDEN_CATEGORIES for character in name):
        raise InvalidRequest("name", "must not have control characters or line breaks")
    if not _BIDI_CONTROLS.isdisjoint(name):
        raise InvalidRequest("name", "must not have characters that change the direction of text")
    if ".." in name.replace("\\", "/").split("/"):
        raise InvalidRequest("name", "must not have the path component ..")
