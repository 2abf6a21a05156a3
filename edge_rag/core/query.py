"""Questions, searches and how they are answered. Values are valid by construction: ``wire/requests`` rejects others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from edge_rag.core.documents.filters import Filter
from edge_rag.core.ids import RequestId


class Priority(IntEnum):
    """Scheduling class; a smaller number is scheduled first."""

    INTERACTIVE = 0
    NORMAL = 1
    BATCH = 2


class AnswerMode(Enum):
    """How freely the answer is written.

    QUOTE: sentences of the passages, word for word, each with its citation.
    CITE: any text. Each sentence is checked against the passages; citations point at the sentences that support it, and
        unsupported sentences are marked or left out.
    FREE: any text, which nothing checks; it has no citations, and ``[n]`` markers written by the model are removed.
    EXTRACT: a value of the passages, or the fields of a JSON schema filled with such values, each with its citation.
    """

    QUOTE = "quote"
    CITE = "cite"
    FREE = "free"
    EXTRACT = "extract"

    @property
    def needs_model(self) -> bool:
        """Whether a language model writes the answer."""
        return self in (AnswerMode.CITE, AnswerMode.FREE)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        max_tokens: Most tokens to generate, at least 1.
        temperature: 0 is greedy; at most 2.
        top_k: Keeps the k most likely tokens; 0 keeps all.
        top_p: Keeps the smallest set of tokens whose probability reaches this, in (0, 1]; 1 keeps all.
        repetition_penalty: Divides positive and multiplies negative logits of tokens already in the sequence, at
            least 1; 1 is off (Keskar et al., CTRL, 2019).
        seed: Makes sampling repeatable; None uses a random seed.
        stop: Strings that end the answer; the answer does not include them.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The answer is one JSON value that validates under a schema."""

    schema: str


@dataclass(frozen=True, slots=True)
class Regex:
    """The whole answer matches a regular expression."""

    pattern: str


AnswerFormat = JsonSchema | Regex


@dataclass(frozen=True, slots=True)
class TurnSource:
    """A source that an earlier answer cited.

    Attributes:
        document: Name of the document.
        section: Headings above the cited text, outermost first.
        text: The cited text.
    """

    document: str
    section: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """An earlier question of a conversation and its answer, as the client remembers them.

    Attributes:
        question: The original question.
        answer: Its answer; may be empty.
        sources: The sources that the answer cited.
    """

    question: str
    answer: str = ""
    sources: tuple[TurnSource, ...] = ()

    def texts(self) -> tuple[str, ...]:
        """Returns every text of the turn."""
        cited = (text for source in self.sources for text in (source.document, *source.section, source.text))
        return self.question, self.answer, *cited


@dataclass(frozen=True, slots=True)
class Wordings:
    """A question in its original wording, and the other wordings that are searched for as well.

    Attributes:
        standalone: The question, completed from earlier turns; None if it is complete.
        corrected: ``standalone``, or else ``asked``, with its words spelled as the collection spells them; None if
            nothing is misspelled.
        substituted: The most complete of these with phrases that the collection does not have replaced by synonyms that
            it has; None without any.
    """

    asked: str
    standalone: str | None = None
    corrected: str | None = None
    substituted: str | None = None
    expanded: tuple[str, ...] = ()

    @property
    def main(self) -> str:
        """The most complete wording: passages are judged and answers written by it."""
        return self.substituted or self.corrected or self.standalone or self.asked

    @property
    def distinct(self) -> tuple[str, ...]:
        """All wordings, the original one first, without duplicates."""
        given = (self.asked, self.standalone, self.corrected, self.substituted, *self.expanded)
        return tuple(dict.fromkeys(text for text in given if text is not None))


@dataclass(frozen=True, slots=True)
class Query:
    """A valid question.

    Attributes:
        question: 1 to ``limits.question_characters`` characters after trimming.
        max_sentences: Most sentences quoted in QUOTE mode, 1 to 8; None for as many as the answer needs.
        passages: Most passages in the prompt, 1 to 32.
        client: Name of the client; fair shares and usage are counted by it.
        deadline: ``time.monotonic()`` seconds after which the answer is not needed any more, or None.
        format: Format of the answer in FREE mode, None for any; in EXTRACT mode the schema that is filled, None for
            one value as text; None in the other modes.
        allow_truncated: Whether an answer that is cut before it is complete in its format is an answer; otherwise it is
            an error.
        filter: Which passages may be used; all if None.
    """

    request_id: RequestId
    question: str
    collection: str
    mode: AnswerMode
    max_sentences: int | None
    passages: int
    sampling: Sampling
    priority: Priority
    client: str
    deadline: float | None
    format: AnswerFormat | None = None
    allow_truncated: bool = False
    filter: Filter | None = None
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A valid search.

    Attributes:
        limit: Most hits, 1 to 100.
        rerank: Whether the reranker orders the hits; otherwise fusion does.
        deadline: ``time.monotonic()`` seconds, or None.
        filter: Which passages may be found; all if None.
        explain: Whether hits carry an explanation of their rank.
        priority: Order among the client's own searches; None for NORMAL.
    """

    request_id: RequestId
    query: str
    collection: str
    limit: int
    rerank: bool
    client: str
    deadline: float | None
    filter: Filter | None = None
    explain: bool = False
    priority: Priority | None = None
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The request that a stage computes something for.

    Attributes:
        request_id: Id of the request; None if there is none, as when a document is ingested.
        deadline: ``time.monotonic()`` seconds after which the result is not needed any more, or None.
    """

    request_id: RequestId | None = None
    client: str = ""
    priority: Priority | None = None
    deadline: float | None = None


NO_CONTEXT: Final = RequestContext()
"""No request waits for the result, or it is not known which."""


class KvReuse(Enum):
    """Which KV of other prompts a prompt reuses.

    EXACT: KV of an equal prefix; the answer is the same as without reuse. PASSAGE: KV of each passage that was computed
        alone and is moved to its position, except its first tokens; the answer is an approximation and is marked as
        one.
    """

    EXACT = "exact"
    PASSAGE = "passage"


class SchedulingPreset(Enum):
    """A trade-off between latency and throughput.

    LATENCY: fewer requests at once, each one faster. BALANCED: as in the device profile. THROUGHPUT: more requests at
        once, each one slower.
    """

    LATENCY = "latency"
    BALANCED = "balanced"
    THROUGHPUT = "throughput"
