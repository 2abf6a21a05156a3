"""Prompt profiles: what system text, passage layout and answer format a family of models was trained with.

``CHAT`` suits any instruct model. ``OCC_RAG`` is the format of OCC-RAG 0.6B and 1.7B (Savkin et al. 2026, arXiv
2606.00683), as their repository and its examples publish it (github.com/optimal-cognitive-core/OCC-RAG, "Input /
Output Format"): the question between ``query`` tokens, each source between ``source`` tokens after its ``source_id``,
no system message, greedy decoding; the answer is a trace of five sections, each between two tokens of its own, of which
the chat template writes the first start token. How a quote is written inside a section is not published.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge_rag.core.query import PromptProfileName
from edge_rag.errors import ModelFolderInvalid

_SLOTS: Final = re.compile(r"(<\|\w+\|>|\{number\}|\{text\}|\{question\})")


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A special token of a layout. The same text in a document or a question is plain text."""

    text: str


Piece = str | SpecialToken
"""A part of a laid out message."""


class TraceSection(Enum):
    """A section of an OCC-RAG answer, by the name in its tokens."""

    QUERY = "query_analysis"
    SOURCES = "source_analysis"
    REASONING = "reasoning"
    STATUS = "status"
    ANSWER = "answer"

    @property
    def start(self) -> str:
        """The token before it."""
        return f"<|{self.value}_start|>"

    @property
    def end(self) -> str:
        """The token after it."""
        return f"<|{self.value}_end|>"


SOURCE_ID: Final = "<|source_id|>"
"""The token before the number of a source."""


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """An answer that is a trace of sections.

    Attributes:
        tokens: Tokens for the sections before the answer, in addition to the answer's. Traces were seen to have 200 to
            600.
    """

    answerable: str = "ANSWERABLE"
    refusal: str = "Not enough information"
    tokens: int = 1024


@dataclass(frozen=True, slots=True)
class PromptProfile:
    """How prompts are laid out and answers are read.

    Attributes:
        system: The system message; empty for none.
        passage: Layout of a passage, with ``{number}``, from 1, and ``{text}``.
        trace: Format of the answer; None for text with ``[n]`` markers.
    """

    name: PromptProfileName
    system: str
    passage: str
    question: str
    question_first: bool = False
    trace: TraceFormat | None = None

    def lay_out(self, passages: Sequence[str], question: str) -> list[Piece]:
        asked = self._filled(self.question, question=question)
        shown = [piece for number, text in enumerate(passages, 1) for piece in self.lay_out_passage(number, text)]
        return [*asked, *shown] if self.question_first else [*shown, *asked]

    def lay_out_passage(self, number: int, text: str) -> list[Piece]:
        """Returns one passage; ``number`` counts from 1."""
        return self._filled(self.passage, number=str(number), text=text)

    @property
    def special_tokens(self) -> frozenset[str]:
        """The special tokens of its layouts and of its answers."""
        layouts = _SLOTS.findall(self.passage + self.question)
        sections = [token for each in TraceSection for token in (each.start, each.end)] if self.trace else []
        return frozenset(token for token in (*layouts, *sections) if token[0] == "<")

    @staticmethod
    def _filled(layout: str, **values: str) -> list[Piece]:
        return [
            values[piece[1:-1]] if piece[:1] == "{" else SpecialToken(piece) if index % 2 else piece
            for index, piece in enumerate(_SLOTS.split(layout))
            if piece
        ]


CHAT: Final = PromptProfile(
    PromptProfileName.CHAT,
    system="Answer with a sentence from the passages and cite it.",
    passage="[{number}] {text}\n\n",
    question="Question: {question}",
)
"""Numbered passages, then the question; what the quoting model was trained with."""

OCC_RAG: Final = PromptProfile(
    PromptProfileName.OCC_RAG,
    system="",
    passage=f"<|source_start|>{SOURCE_ID}{{number}} {{text}}<|source_end|>\n",
    question="<|query_start|>{question}<|query_end|>\n",
    question_first=True,
    trace=TraceFormat(),
)
"""OCC-RAG's own."""

PROFILES: Final = {profile.name: profile for profile in (CHAT, OCC_RAG)}


def profile_for(wanted: PromptProfileName, special_id: Callable[[str], int | None]) -> PromptProfile:
    """Returns the profile of a model: the wanted one, or the one whose tokens its vocabulary has.

    A family is recognized by its tokens: names of files are chosen by whoever converts them, and OCC-RAG's architecture
    is Qwen3's.

    Args:
        special_id: Returns the id of a special token, or None.

    Raises:
        ModelFolderInvalid: The model lacks a token of the wanted profile.
    """
    if wanted is not PromptProfileName.AUTO:
        profile = PROFILES[wanted]
        missing = sorted(token for token in profile.special_tokens if special_id(token) is None)
        if missing:
            raise ModelFolderInvalid(
                f"generator.prompt_profile {wanted.value}: the model's tokenizer has no {', '.join(missing)}; "
                "set it to auto"
            )
        return profile
    if all(special_id(token) is not None for token in OCC_RAG.special_tokens):
        return OCC_RAG
    return CHAT
