"""Builds the request that is sent to a remote, as the collection's offload rule allows. There is no other way out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Protocol

from edge_rag.core.generation import GeneratedChunk, GenerationRequest, QuoteChunk, TextChunk
from edge_rag.core.ids import RequestId
from edge_rag.core.passage import RankedPassage, Sentence
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import AnswerFormat, AnswerMode, Priority, Sampling
from edge_rag.errors import PermissionDenied, RemoteFailed
from edge_rag.offload.generation.redaction import Redactor, Restorer

_MAX_REQUEST_ID: Final = 128


class PromptText(Protocol):
    """A prompt as the local generator renders it."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """Its tokens."""
        ...

    @property
    def system(self) -> str:
        """The system's turn."""
        ...

    @property
    def user(self) -> str:
        """The user's turn."""
        ...

    @property
    def passages(self) -> tuple[RankedPassage, ...]:
        """Its passages, best first."""
        ...

    @property
    def numbering(self) -> tuple[int, ...]:
        """Indices of the passages, in the order of the prompt."""
        ...


@dataclass(frozen=True, slots=True)
class SentPassage:
    """A passage without its source.

    Attributes:
        text: Its text.
        sentences: Spans of its sentences in the text.
    """

    text: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    """A request to a remote.

    Attributes:
        request_id: For the logs of both sides.
        question: The question.
        passages: In the order of the local prompt, which numbers them.
        system: The system message, for remotes that take messages.
        user: The user message: passages and question.
        mode: QUOTE or FREE; in CITE mode, citations are found locally.
        max_sentences: Most sentences quoted.
        sampling: Sampling parameters.
        priority: Scheduling class.
        format: Required form of the answer, or None.
        vocabulary: Identity of the local vocabulary; empty if text is wanted instead of tokens.
        sharing: Requests with the same value may share cached KV; a salted hash that hides the collection's name.
    """

    request_id: RequestId
    question: str
    passages: tuple[SentPassage, ...]
    system: str
    user: str
    mode: AnswerMode
    max_sentences: int
    sampling: Sampling
    priority: Priority
    format: AnswerFormat | None
    vocabulary: str
    sharing: str


class ReplyMapping:
    """Maps the reply to one request back: passage and sentence indices, and redacted values.

    Args:
        restorer: Restores redacted values; None if nothing was redacted.
        passages: Local index of each passage sent.
        sentences: Local index of each sentence sent, by passage.
    """

    def __init__(
        self, restorer: Restorer | None, passages: tuple[int, ...], sentences: tuple[tuple[int, ...], ...]
    ) -> None:
        self._restorer = restorer
        self._passages = passages
        self._sentences = sentences

    def map(self, chunk: GeneratedChunk) -> GeneratedChunk | None:
        """Returns the local chunk, or None if its text may be the beginning of a placeholder.

        Raises:
            RemoteFailed: It refers to a sentence that was not sent.
        """
        match chunk:
            case QuoteChunk():
                try:
                    return QuoteChunk(self._passages[chunk.passage], self._sentences[chunk.passage][chunk.sentence])
                except IndexError:
                    raise RemoteFailed("the remote quoted a sentence that it was not sent") from None
            case TextChunk() if self._restorer is not None:
                text = self._restorer.feed(chunk.text)
                return TextChunk(text) if text else None
            case _:
                return chunk

    def flush(self) -> GeneratedChunk | None:
        """Returns the text held back, at the end of the stream."""
        text = "" if self._restorer is None else self._restorer.flush()
        return TextChunk(text) if text else None


def build(
    request: GenerationRequest,
    prompt: PromptText,
    vocabulary: str,
    salt: bytes,
    redactor: Redactor,
) -> tuple[OutboundRequest, ReplyMapping]:
    """Builds an outbound request as the collection's rule allows, and the mapping of its reply.

    Args:
        request: The request.
        prompt: Its prompt, as rendered locally.
        vocabulary: Identity of the local vocabulary.
        salt: Keeps the collection's name from being guessed.
        redactor: Applied if the rule is REDACTED.

    Raises:
        PermissionDenied: The rule forbids sending it.
    """
    sharing = hashlib.sha256(salt + f"{request.trust_domain} {request.epoch}".encode()).hexdigest()[:32]
    mode = AnswerMode.QUOTE if request.mode is AnswerMode.QUOTE else AnswerMode.FREE
    restorer: Restorer | None = None
    question, user, stop, request_id = request.question, prompt.user, request.sampling.stop, request.request_id
    passages = tuple(prompt.passages[index] for index in prompt.numbering)
    sent_passages = tuple(SentPassage(ranked.passage.text, ranked.sentences) for ranked in passages)
    numbers = tuple(tuple(range(len(ranked.sentences))) for ranked in passages)
    if request.offload is OffloadRule.REDACTED and redactor:
        redaction = redactor.begin((user, question, request_id, *stop, *(passage.text for passage in sent_passages)))
        question, user = redaction.redact(question)[0], redaction.redact(user)[0]
        stop = tuple(redaction.redact(text)[0] for text in stop)
        request_id = RequestId(redaction.redact(request_id)[0][:_MAX_REQUEST_ID])
        sent, kept_numbers = [], []
        for passage in sent_passages:
            ends = [at for sentence in passage.sentences for at in (sentence.start, sentence.end)]
            text, new_ends = redaction.redact(passage.text, ends)
            kept = [
                (number, Sentence(start, end, sentence.evidence))
                for number, (sentence, start, end) in enumerate(
                    zip(passage.sentences, new_ends[::2], new_ends[1::2], strict=True)
                )
                if start < end
            ]
            sent.append(SentPassage(text, tuple(sentence for _, sentence in kept)))
            kept_numbers.append(tuple(number for number, _ in kept))
        sent_passages, numbers, restorer, vocabulary = tuple(sent), tuple(kept_numbers), redaction.restorer(), ""
    elif request.offload is not OffloadRule.ALLOWED:
        raise PermissionDenied("the collection does not allow offload")
    sampling = Sampling(
        max_tokens=request.sampling.max_tokens,
        temperature=request.sampling.temperature,
        top_k=request.sampling.top_k,
        top_p=request.sampling.top_p,
        repetition_penalty=request.sampling.repetition_penalty,
        seed=request.sampling.seed,
        stop=stop,
    )
    outbound = OutboundRequest(
        request_id=request_id,
        question=question,
        passages=sent_passages,
        system=prompt.system,
        user=user,
        mode=mode,
        max_sentences=request.max_sentences,
        sampling=sampling,
        priority=request.priority,
        format=request.format,
        vocabulary=vocabulary,
        sharing=sharing,
    )
    return outbound, ReplyMapping(restorer, prompt.numbering, numbers)
