"""Requests to the generator stage, its events, and chunks: raw output of a generator that another machine verifies."""

from __future__ import annotations

from dataclasses import dataclass

from edge_rag.core.answer import Citation, FinishReason, TextDelta, Unsupported, Usage
from edge_rag.core.ids import RequestId
from edge_rag.core.passage import RankedPassage
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import AnswerFormat, AnswerMode, KvReuse, Priority, Sampling
from edge_rag.errors import EdgeRagError


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A question with its evidence, ready to be answered.

    Attributes:
        request_id: Identifies the request.
        question: The question.
        passages: Best first; may be empty, then the answer is the not-found answer.
        evidence: How much speaks for an answer being among them, 0 to 1.
        mode: How much freedom the model has.
        max_sentences: Most sentences quoted in QUOTE mode.
        sampling: How tokens are chosen.
        priority: Scheduling class.
        client: Who asks.
        trust_domain: Requests share cached KV only within one trust domain; the collection's name.
        deadline: ``time.monotonic()`` seconds, or None.
        format: What the answer must look like in FREE mode; None where it may look like anything.
        epoch: Epoch of the collection that the passages are from; cached KV is shared only inside one.
        offload: What of the passages may leave the box.
        kv_reuse: What of other prompts' KV it takes over.
    """

    request_id: RequestId
    question: str
    passages: tuple[RankedPassage, ...]
    evidence: float
    mode: AnswerMode
    max_sentences: int
    sampling: Sampling
    priority: Priority
    client: str
    trust_domain: str
    deadline: float | None
    format: AnswerFormat | None = None
    epoch: int = 0
    offload: OffloadRule = OffloadRule.NEVER
    kv_reuse: KvReuse = KvReuse.EXACT


@dataclass(frozen=True, slots=True)
class Generated:
    """The generator is done with a request.

    Attributes:
        reason: Why it ended.
        usage: What it used.
        queue_s: Waiting for a slot, seconds.
        compute_s: From the first step to the last, seconds.
        first_token_s: From submission to the first text, seconds; None where there was none.
    """

    reason: FinishReason
    usage: Usage
    queue_s: float
    compute_s: float
    first_token_s: float | None


@dataclass(frozen=True, slots=True)
class GenerationFailed:
    """The generator gave up on a request; nothing follows.

    Attributes:
        error: Why, fit to be raised to the caller.
    """

    error: EdgeRagError


GenerationEvent = TextDelta | Citation | Unsupported | Generated | GenerationFailed


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Text of a free answer, before citation markers and sentences are processed.

    Attributes:
        text: Complete characters, at least one.
    """

    text: str


@dataclass(frozen=True, slots=True)
class TokenChunk:
    """Tokens of a free answer, for a client with the same vocabulary.

    Attributes:
        tokens: Token ids, at least one.
    """

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QuoteChunk:
    """A sentence quoted in QUOTE mode.

    Attributes:
        passage: 0-based position of its passage.
        sentence: 0-based position in the passage's sentences.
    """

    passage: int
    sentence: int


@dataclass(frozen=True, slots=True)
class GeneratorLoad:
    """The load of a machine's generator when a request arrives.

    Attributes:
        waiting: Requests that wait for a slot.
        running: Slots in use.
        slots: Slots there are.
        vocabulary: SHA-256 of the tokenizer's definition, lower-case hexadecimal.
    """

    waiting: int
    running: int
    slots: int
    vocabulary: str


GeneratedChunk = TextChunk | TokenChunk | QuoteChunk

ChunkEvent = GeneratedChunk | Generated | GenerationFailed
"""The last event is ``Generated`` or ``GenerationFailed``, exactly one of them, exactly once."""
