"""The events of an answer, in the order in which they are streamed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from edge_rag.core.ids import Unrecognized
from edge_rag.core.passage import RankedPassage
from edge_rag.core.query import AnswerMode


class FinishReason(Enum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class PassagesFound:
    """The passages that the answer is based on; in FREE mode those that the model is given, as far as they fit.

    Attributes:
        passages: Best first; citations refer to them by position.
        evidence: Evidence that an answer is among them, 0 to 1.
        mode: How the answer is written, and so which promises it keeps.
        question_language: Language of the question, a BCP 47 tag; None if it is not sure.
        standalone_question: The question, completed from earlier turns, which was searched for as well; None if it is
            complete.
        did_you_mean: The question with misspelled words as the documents spell them, which was searched for as well;
            None if nothing is misspelled.
        model: Name of the box's language model, where the mode needs one. Where the collection may leave the box, a
            remote may write in its place.
    """

    passages: tuple[RankedPassage, ...]
    evidence: float
    mode: AnswerMode
    question_language: str | None = None
    standalone_question: str | None = None
    did_you_mean: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next part of the answer, whole characters only. The answer is the concatenation of all deltas."""

    text: str


@dataclass(frozen=True, slots=True)
class Citation:
    """The source of a part of the answer.

    Attributes:
        passage: 0-based position in ``PassagesFound.passages``.
        document: Name of the document.
        page: 1-based page, or None.
        start: First character in the document's stored text.
        end: One past the last character.
        text: Exactly the stored text in that range.
        answer_start: First character of the answer that this supports.
        answer_end: One past the last.
        language: Language of the text, a BCP 47 tag; None if it is not sure.
        section: Headings above the place, outermost first.
        context: Whether it is quoted only to introduce the next quote.
        field: In EXTRACT mode with a schema, JSON pointer (RFC 6901) to the field of the answer that this supports.
        line: 1-based line of the source on which it starts, for text, Markdown and tables as text; None for other
            formats, where it is unknown, and for documents stored by a version without lines.
    """

    passage: int
    document: str
    page: int | None
    start: int
    end: int
    text: str
    answer_start: int
    answer_end: int
    language: str | None = None
    section: tuple[str, ...] = ()
    context: bool = False
    field: str | None = None
    line: int | None = None


class UnsupportedReason(Enum):
    """Why a part of an answer is not cited.

    NO_SOURCE: no passage says so. OTHER_NUMBER: a passage says the same with another number, which
        ``Finished.conflicts`` names.
    """

    NO_SOURCE = "no_source"
    OTHER_NUMBER = "other_number"


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A part of the answer that no passage supports; a later citation of the same part takes this back.

    Attributes:
        answer_start: First character of the part.
        answer_end: One past the last.
        reason: Why it is not cited.
    """

    answer_start: int
    answer_end: int
    reason: UnsupportedReason | Unrecognized = UnsupportedReason.NO_SOURCE


def still_unsupported(unsupported: Iterable[Unsupported], citations: Iterable[Citation]) -> tuple[Unsupported, ...]:
    """Returns the parts of a whole answer that stayed without a citation."""
    cited = {(each.answer_start, each.answer_end) for each in citations}
    return tuple(each for each in unsupported if (each.answer_start, each.answer_end) not in cited)


@dataclass(frozen=True, slots=True)
class NumberConflict:
    """A number of the answer that a passage contradicts: of a part without support, or beside the passage it cites.

    Attributes:
        answer_start: First character of the part of the answer.
        answer_end: One past the last.
        claimed: The number in the answer, with its unit: ``64 days``.
        stated: The number in the passage: ``46 days``.
        passage: 0-based position in ``PassagesFound.passages``.
        document: Name of the document.
        page: 1-based page, or None.
        start: First character of the passage's sentence in the document's stored text.
        end: One past the last character.
        text: The sentence, exactly the stored text in that range.
    """

    answer_start: int
    answer_end: int
    claimed: str
    stated: str
    passage: int
    document: str
    page: int | None
    start: int
    end: int
    text: str


class UnsupportedText(Enum):
    """What happens to sentences in CITE mode that no passage supports."""

    MARK = "mark"
    OMIT = "omit"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and steps that a request used, in tokens of the generator's vocabulary.

    Attributes:
        prompt_tokens: Length of the prompt.
        cached_prompt_tokens: Prompt tokens found in the prefix cache.
        generated_tokens: Sampled and forced tokens.
        forced_tokens: Generated tokens for which a constraint allowed one choice only.
        model_steps: Model runs that the request took part in.
        copied_prompt_tokens: Prompt tokens copied from a passage that was computed alone; if there are any, the answer
            is an approximation.
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
        queue_s: Waiting time, seconds.
        compute_s: Processing time, seconds; the time of a shared step counts in full for each request in it.
    """

    stage: str
    queue_s: float
    compute_s: float


class NearestReason(Enum):
    """Why a passage was not taken for an answer.

    LACKS_WORDS: words of the question are not in it. NOT_SIMILAR: it has them all, but no sentence is close enough to
        the question. OTHER_LANGUAGE: it is in another language than the question, and no sentence is close enough.
        NOT_SUPPORTED: it does not support what the language model wrote.
    """

    LACKS_WORDS = "lacks_words"
    NOT_SIMILAR = "not_similar"
    OTHER_LANGUAGE = "other_language"
    NOT_SUPPORTED = "not_supported"


@dataclass(frozen=True, slots=True)
class NearestPassage:
    """A passage that is near to a question and was not taken for an answer.

    Attributes:
        passage: 0-based position in ``PassagesFound.passages``.
        document: Name of the document.
        page: 1-based page, or None.
        start: First character of its closest sentence in the document's stored text.
        end: One past the last character.
        text: The closest sentence, exactly the stored text in that range.
        score: How likely it answers the question, 0 to 1; comparable between questions.
        reason: Why it was not taken for an answer.
        lacks: Words of the question that it and its headings lack, the rarest in the collection first; in scripts
            without spaces runs of two or three characters.
        share: Share of the weight of the question's words that it and its headings hold, 0 to 1; the weight of a word
            is its inverse document frequency.
        similarity: Max-sim of its closest sentence to the question, -1 to 1; None if it is not known.
    """

    passage: int
    document: str
    page: int | None
    start: int
    end: int
    text: str
    score: float
    reason: NearestReason | Unrecognized
    lacks: tuple[str, ...]
    share: float
    similarity: float | None


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an answer.

    Attributes:
        first_token_s: From submission to the first text, seconds; None without text.
        nearest: If no answer was found, the best passages and the words that they lack.
        prompt_passages: How many of the passages, the best ones, were in the model's prompt: those that fit its
            context. None if no model was asked.
        conflicts: In CITE mode, numbers of the answer that a passage contradicts, at most 16.
    """

    reason: FinishReason | Unrecognized
    usage: Usage
    stages: tuple[StageTime, ...]
    first_token_s: float | None
    nearest: tuple[NearestPassage, ...] = ()
    prompt_passages: int | None = None
    conflicts: tuple[NumberConflict, ...] = ()


AnswerEvent = PassagesFound | TextDelta | Citation | Unsupported | Finished
