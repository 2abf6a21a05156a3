"""A question and how it is to be answered. Legal by construction: the door (``server/wire``) refuses anything else.

A question on its way to be embedded.

For whom a stage computes something.

In which order a prompt holds its passages.

How much of the work on passages that other prompts had before is done again.

Where on the curve between quick answers and many answers the generator works.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from edge_rag.core.documents.filters import Filter
from edge_rag.core.ids import RequestId
from edge_rag.core.placement import OffloadRule


class Priority(IntEnum):
    """Scheduling class; a smaller number goes first."""

    INTERACTIVE = 0
    NORMAL = 1
    BATCH = 2


class AnswerMode(Enum):
    """How much freedom the generator has.

    QUOTE: every word is a sentence of a passage, and the citation follows from where it is from.
    CITE: any text, each sentence of which is checked against the passages; citations point at the sentences that
        support it, and what is unsupported is marked or left out.
    FREE: any text; ``[n]`` markers that the model writes are turned into citations of passage n.
    """

    QUOTE = "quote"
    CITE = "cite"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        max_tokens: Most tokens to generate, at least 1.
        temperature: 0 is greedy; up to 2.
        top_k: Keep the k most likely tokens; 0 keeps all.
        top_p: Keep the smallest set of tokens whose probability reaches this, in (0, 1]; 1 keeps all.
        repetition_penalty: Divides positive and multiplies negative logits of tokens already in the sequence, at
            least 1; 1 is off (Keskar et al., CTRL, 2019).
        seed: Makes sampling repeatable; None draws a fresh seed.
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
    """The answer is one JSON value that validates under a schema.

    Attributes:
        schema: The schema, JSON text.
    """

    schema: str


@dataclass(frozen=True, slots=True)
class Regex:
    """The whole answer matches a regular expression.

    Attributes:
        pattern: The expression.
    """

    pattern: str


AnswerFormat = JsonSchema | Regex


@dataclass(frozen=True, slots=True)
class Query:
    """A valid question.

    Attributes:
        request_id: Identifies the request in logs, audit and traces.
        question: 1 to ``limits.question_characters`` characters after trimming.
        collection: Where to look.
        mode: How much freedom the generator has.
        max_sentences: Most sentences quoted in QUOTE mode, 1 to 8.
        passages: Most passages to put into the prompt, 1 to 32.
        sampling: How tokens are chosen.
        priority: Scheduling class.
        client: Who asks; fair shares and metering are per client.
        deadline: ``time.monotonic()`` seconds after which the answer is worthless, or None.
        format: What the answer must look like; None in QUOTE mode, and where it is free in FREE mode.
        filter: Which passages may be used; all if None.
    """

    request_id: RequestId
    question: str
    collection: str
    mode: AnswerMode
    max_sentences: int
    passages: int
    sampling: Sampling
    priority: Priority
    client: str
    deadline: float | None
    format: AnswerFormat | None = None
    filter: Filter | None = None


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A valid search.

    Attributes:
        request_id: Identifies the request in logs, audit and traces.
        query: Non-empty text.
        collection: Where to look.
        limit: Most hits, 1 to 100.
        rerank: Whether the reranker orders the hits; otherwise fusion does.
        deadline: ``time.monotonic()`` seconds, or None.
        filter: Which passages may be found; all if None.
        explain: Whether to say how each hit got its place.
    """

    request_id: RequestId
    query: str
    collection: str
    limit: int
    rerank: bool
    deadline: float | None
    filter: Filter | None = None
    explain: bool = False


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who waits for what a stage computes.

    Attributes:
        request_id: Whose request it is for; None where it is for nobody's, as of a document that is stored.
        client: Who asked; empty where that is not known.
        priority: Its class; None where there is none.
        deadline: ``time.monotonic()`` seconds after which the answer is worthless, or None.
        collection: What is asked; empty where that does not matter.
    """

    request_id: RequestId | None = None
    client: str = ""
    priority: Priority | None = None
    deadline: float | None = None
    collection: str = ""


NO_CONTEXT: Final = RequestContext()
"""Nobody waits, or who waits is not known."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of somebody.

    Attributes:
        text: The question.
        rule: What of the collection that is asked may leave this box, the question included.
        context: Who asks.
    """

    text: str
    rule: OffloadRule
    context: RequestContext


class PassageOrder(Enum):
    """What decides.

    HOT: a list of what is asked for often, then the place in the documents. What is asked for often stands first and so
    in the same place in many prompts, whose common beginning is computed once. The list is renewed rarely; between two
    renewals equal questions over equal passages make equal prompts.
    DOCUMENT: the place in the documents only; equal questions over equal passages always make equal prompts.
    RANK: best first, as the reranker has them.
    """

    HOT = "hot"
    DOCUMENT = "document"
    RANK = "rank"


class KvReuse(Enum):
    """Which keys and values of other prompts a prompt takes over.

    EXACT: those of an equal beginning; the answer is the same as without. PASSAGE: those of each passage, computed
    alone and moved to where it stands, but for its first tokens; the answer is an approximation and says so.
    """

    EXACT = "exact"
    PASSAGE = "passage"


class SchedulingPreset(Enum):
    """Trade-off between the latency of one answer and the throughput of all.

    LATENCY: fewer at once, each one quicker. BALANCED: what the device profile says. THROUGHPUT: more at once, each one
    slower.
    """

    LATENCY = "latency"
    BALANCED = "balanced"
    THROUGHPUT = "throughput"
