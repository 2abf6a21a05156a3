"""Requests to the generator stage, its events, and chunks: raw output of a generator that another machine verifies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_rag.core.answer import AnswerEvent, Citation, FinishReason, NumberConflict, TextDelta, Unsupported, Usage
from edge_rag.core.ids import RequestId
from edge_rag.core.passage import RankedPassage
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import AnswerFormat, AnswerMode, KvReuse, Priority, Sampling, Turn
from edge_rag.errors import EdgeRagError


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A question with its passages, ready for the generator.

    Attributes:
        passages: Best first; without passages the answer is the not-found answer.
        evidence: Evidence that an answer is among the passages, 0 to 1.
        max_sentences: Most sentences quoted in QUOTE mode; None for as many as the answer needs.
        trust_domain: Requests share cached KV only within one trust domain; the collection's name.
        deadline: ``time.monotonic()`` seconds, or None.
        format: Format of the answer in FREE mode, None for any; in EXTRACT mode the schema that is filled, None for
            one value as text.
        epoch: Epoch of the collection when the passages were read; cached KV is shared only within one epoch.
        offload: Which text of the collection may leave the box.
        term_weights: As of ``Retrieved``; empty if they are not known.
    """

    request_id: RequestId
    question: str
    passages: tuple[RankedPassage, ...]
    evidence: float
    mode: AnswerMode
    max_sentences: int | None
    sampling: Sampling
    priority: Priority
    client: str
    trust_domain: str
    deadline: float | None
    format: AnswerFormat | None = None
    epoch: int = 0
    offload: OffloadRule = OffloadRule.NEVER
    kv_reuse: KvReuse = KvReuse.EXACT
    turns: tuple[Turn, ...] = ()
    term_weights: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages to the language model and its answers.

    Attributes:
        system: The system message; empty for none.
        turns: Messages of the user and of the model in turn; the first and the last one are the user's.
    """

    system: str
    turns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the caller that the language model may ask to be called.

    Attributes:
        parameters: JSON Schema of its arguments, JSON text.
    """

    name: str
    description: str
    parameters: str


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """The language model asks for a function to be called.

    Attributes:
        arguments: Its arguments, JSON text that validates under its schema.
    """

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A conversation that the language model continues, without documents.

    Attributes:
        client: Name of the client; cached KV is shared only within its conversations.
        deadline: ``time.monotonic()`` seconds, or None.
        format: Format of the answer; None for any.
        functions: Functions that the model may ask to be called instead; such a request has no format.
    """

    request_id: RequestId
    conversation: Conversation
    sampling: Sampling
    priority: Priority
    client: str
    deadline: float | None
    format: AnswerFormat | None = None
    functions: tuple[Function, ...] = ()
    must_call: bool = False


@dataclass(frozen=True, slots=True)
class Generated:
    """The generator finished a request.

    Attributes:
        queue_s: Waiting time for a slot, seconds.
        compute_s: From the first step to the last, seconds.
        first_token_s: From submission to the first text, seconds; None without text.
        prompt_passages: Passages in the model's prompt, the best ones of the request; None without a prompt.
    """

    reason: FinishReason
    usage: Usage
    queue_s: float
    compute_s: float
    first_token_s: float | None
    prompt_passages: int | None = None
    conflicts: tuple[NumberConflict, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationFailed:
    """A request failed in the generator; no event follows."""

    error: EdgeRagError


CompletionEvent = AnswerEvent | FunctionCall
"""What continues a conversation: text or one call, then ``Finished``."""

GenerationEvent = TextDelta | Citation | Unsupported | Generated | GenerationFailed


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Text of a free answer, before citation markers and sentences are processed."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenChunk:
    """Tokens of a free answer, for a client with the same vocabulary."""

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
        vocabulary: SHA-256 of the tokenizer's definition, lower-case hexadecimal.
    """

    waiting: int
    running: int
    slots: int
    vocabulary: str


GeneratedChunk = TextChunk | TokenChunk | QuoteChunk

ChunkEvent = GeneratedChunk | Generated | GenerationFailed
"""The last event is ``Generated`` or ``GenerationFailed``; there is exactly one of them."""
