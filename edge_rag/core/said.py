"""What was said of an answer, in a form that whoever holds the passages can check and go on from."""

from __future__ import annotations

from dataclasses import dataclass

from edge_rag.core.generation import Generated, GenerationFailed


@dataclass(frozen=True, slots=True)
class SaidText:
    """The next text of an answer that is written freely, before markers and sentences are looked at.

    Attributes:
        text: Whole characters, at least one.
    """

    text: str


@dataclass(frozen=True, slots=True)
class SaidTokens:
    """The next tokens of such an answer; for those who have the same vocabulary.

    Attributes:
        tokens: Token ids, at least one.
    """

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SaidSentence:
    """The next sentence of an answer that quotes.

    Attributes:
        passage: 0-based position of its passage.
        sentence: 0-based position in the passage's sentences.
    """

    passage: int
    sentence: int


Said = SaidText | SaidTokens | SaidSentence

SaidEvent = Said | Generated | GenerationFailed
"""The last event is ``Generated`` or ``GenerationFailed``, exactly one of them, exactly once."""
