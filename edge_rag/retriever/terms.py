"""The words of a question: which of them a search can use; pure."""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"[^\W_]+")
_MOST_TERMS = 64
_FUNCTION_WORDS = """
a about above after again all also am an and any are as at be because been before being below between both but by can
could d did do does doing down during each few for from further had has have having he her here hers herself him himself
his how i if in into is it its itself just ll m me more most my myself no nor not now of off on once only or other our
ours ourselves out over own please re s same she should so some such t tell than that the their theirs them themselves
then there these they this those through to too under until up ve very was we were what when where which while who whom
whose why will with would you your yours yourself yourselves
"""
_STOP_WORDS = frozenset(_FUNCTION_WORDS.split())


def content_terms(question: str) -> tuple[str, ...]:
    """The distinct content words of a question, lower case and in order; at most 64.

    Function words of English are left out, unless there is nothing else.
    """
    words = dict.fromkeys(word.lower() for word in _WORD.findall(unicodedata.normalize("NFC", question)))
    content = [word for word in words if word not in _STOP_WORDS] or list(words)
    return tuple(content[:_MOST_TERMS])


def match_expression(terms: tuple[str, ...]) -> str:
    """An FTS5 query for any of the terms.

    Each is a quoted string of letters and digits, so nothing a user writes can be an operator.
    """
    return " OR ".join(f'"{term}"' for term in terms)
