"""The words of a question: which of them a search can use; pure."""

from __future__ import annotations

import re
import unicodedata

from edge_rag.core.function_words import FUNCTION_WORDS

_WORD = re.compile(r"[^\W_]+")
_MOST_TERMS = 64


def content_terms(question: str) -> tuple[str, ...]:
    """The distinct content words of a question, lower case and in order; at most 64.

    Function words of English are left out, unless there is nothing else.
    """
    words = dict.fromkeys(word.lower() for word in _WORD.findall(unicodedata.normalize("NFC", question)))
    content = [word for word in words if word not in FUNCTION_WORDS] or list(words)
    return tuple(content[:_MOST_TERMS])


def match_expression(terms: tuple[str, ...]) -> str:
    """An FTS5 query for any of the terms.

    Each is a quoted string of letters and digits, so nothing a user writes can be an operator.
    """
    return " OR ".join(f'"{term}"' for term in terms)
