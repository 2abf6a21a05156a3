"""What an answer is made of, in the order in which it is streamed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from edge_rag.core.ids import Unrecognized
from edge_rag.core.passage import RankedPassage


class FinishReason(Enum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class PassagesFound:
    """The passages the answer is drawn from.

    Attributes:
        passages: Best first; citations refer to them by position.
        evidence: How much speaks for an answer being among them, 0 to 1.
    """

    passages: tuple[RankedPassage, ...]
    evidence: float


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer; whole characters only. The answer is the concatenation of all deltas."""

    text: str


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a part of the answer is from.

    Attributes:
        passage: 0-based position in ``PassagesFound.passages``.
        document: Name of the document.
        page: 1-based page, or None.
        start: First character in the document's stored text.
        end: One past the last character.
        text: Exactly the stored text in that range.
        answer_start: First character of the answer that this supports.
        answer_end: One past the last.
    """

    passage: int
    document: str
    page: int | None
    start: int
    end: int
    text: str
    answer_start: int
    answer_end: int


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A part of the answer that no passage supports.

    Attributes:
        answer_start: First character of the answer that this is about.
        answer_end: One past the last.
    """

    answer_start: int
    answer_end: int


class UnsupportedText(Enum):
    """What becomes of sentences in CITE mode that no passage supports."""

    MARK = "mark"
    OMIT = "omit"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request used, in tokens of the generator's vocabulary.

    Attributes:
        prompt_tokens: Length of the prompt.
        cached_prompt_tokens: How many of those were found in the cache, computed in a text that begins alike.
        copied_prompt_tokens: How many were copied from where their passage was computed alone; where there are any, the
            answer is an approximation.
        generated_tokens: Sampled and forced tokens.
        forced_tokens: Those of them that a constraint left no choice about.
        model_steps: Model runs the request took part in.
    """

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    generated_tokens: int = 0
    forced_tokens: int = 0
    model_steps: int = 0
    copied_prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class StageTime:
    """Time spent in one stage.

    Attributes:
        stage: ``retriever``, ``reranker`` or ``generator``.
        queue_s: Waiting, seconds.
        compute_s: Being worked on, seconds; shared steps count in full for everyone in them.
    """

    stage: str
    queue_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an answer.

    Attributes:
        reason: Why it ended.
        usage: What it used.
        stages: Time per stage, in pipeline order.
        first_token_s: From submission to the first text, seconds; None where there was none.
    """

    reason: FinishReason | Unrecognized
    usage: Usage
    stages: tuple[StageTime, ...]
    first_token_s: float | None


AnswerEvent = PassagesFound | TextDelta | Citation | Unsupported | Finished
