"""Which sentences need the one before them, by the words of their language in ``words.toml``; pure."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from typing import Final

from edge_rag.analysis.questions import BEFORE_WORDS

_STARTS: Final = {
    language: re.compile(pattern, re.IGNORECASE)
    for language, pattern in tomllib.loads((files(__package__) / "words.toml").read_text("utf-8")).items()
}


def refers_back(sentence: str, language: str) -> bool:
    """Whether a sentence begins with a pronoun or a connective of a language, so that it needs the previous one."""
    starts = _STARTS.get(language)
    return starts is not None and starts.match(sentence.lstrip(BEFORE_WORDS)) is not None
