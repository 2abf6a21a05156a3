"""What leaves this box for one answer, and the only way to make it: by the collection's rule."""

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

_LONGEST_REQUEST_ID: Final = 128


class PromptText(Protocol):
    """A prompt as the local generator lays it out."""

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
        """The passages in it, best first."""
        ...

    @property
    def numbering(self) -> tuple[int, ...]:
        """Their indices, in the order in which it has them."""
        ...


@dataclass(frozen=True, slots=True)
class SentPassage:
    """A passage as it leaves: text and sentences; where it is from stays here.

    Attributes:
        text: Its text.
        sentences: Its sentences in that text.
    """

    text: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """What a remote is asked.

    Attributes:
        request_id: The request's, for both sides' logs.
        question: The question.
        passages: In the order of the prompt here, by which what is said may number them.
        system: The system's turn, for remotes that are given messages.
        user: The user's turn: the passages and the question laid out.
        mode: QUOTE or FREE; what is cited in CITE mode is found here.
        max_sentences: Most sentences quoted.
        sampling: How tokens are chosen.
        priority: Scheduling class.
        format: What the answer must look like, or None.
        vocabulary: What tokens here are of; empty where text is wanted.
        sharing: Requests with the same value may share cached KV; says nothing of the collection's name.
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
    """Makes what comes back into what was meant here. For one answer.

    Args:
        restorer: Puts values back where they were redacted; None where nothing was.
        passages: Index here of each passage that was sent.
        sentences: Index here of each sentence that was sent, by passage.
    """

    def __init__(
        self, restorer: Restorer | None, passages: tuple[int, ...], sentences: tuple[tuple[int, ...], ...]
    ) -> None:
        self._restorer = restorer
        self._passages = passages
        self._sentences = sentences

    def welcome(self, said: GeneratedChunk) -> GeneratedChunk | None:
        """Takes what was said; returns what it means here, or None where that is not clear yet.

        Raises:
            RemoteFailed: It means nothing here.
        """
        match said:
            case QuoteChunk():
                try:
                    return QuoteChunk(self._passages[said.passage], self._sentences[said.passage][said.sentence])
                except IndexError:
                    raise RemoteFailed("it quoted what was not there to be quoted") from None
            case TextChunk() if self._restorer is not None:
                text = self._restorer.feed(said.text)
                return TextChunk(text) if text else None
            case _:
                return said

    def rest(self) -> GeneratedChunk | None:
        """Returns what was held back, now that nothing more comes."""
        text = "" if self._restorer is None else self._restorer.flush()
        return TextChunk(text) if text else None


def release(
    request: GenerationRequest,
    prompt: PromptText,
    vocabulary: str,
    salt: bytes,
    redactor: Redactor,
) -> tuple[Order, ReplyMapping]:
    """Lets a request leave as its collection's rule allows. Nothing else makes an order of a request.

    Args:
        request: What is asked.
        prompt: As it is laid out here.
        vocabulary: What tokens here are of.
        salt: Keeps the collection's name from being guessed.
        redactor: Knows what must not leave where the rule is REDACTED.

    Raises:
        PermissionDenied: Nothing of the collection may leave.
    """
    sharing = hashlib.sha256(salt + f"{request.trust_domain} {request.epoch}".encode()).hexdigest()[:32]
    mode = AnswerMode.QUOTE if request.mode is AnswerMode.QUOTE else AnswerMode.FREE
    restorer: Restorer | None = None
    question, user, stop, request_id = request.question, prompt.user, request.sampling.stop, request.request_id
    passages = tuple(prompt.passages[index] for index in prompt.numbering)
    whole = tuple(SentPassage(ranked.passage.text, ranked.sentences) for ranked in passages)
    numbers = tuple(tuple(range(len(ranked.sentences))) for ranked in passages)
    if request.offload is OffloadRule.REDACTED and redactor:
        redaction = redactor.begin((user, question, request_id, *stop, *(passage.text for passage in whole)))
        question, user = redaction.redact(question)[0], redaction.redact(user)[0]
        stop = tuple(redaction.redact(text)[0] for text in stop)
        request_id = RequestId(redaction.redact(request_id)[0][:_LONGEST_REQUEST_ID])
        sent, numbered = [], []
        for passage in whole:
            ends = [at for sentence in passage.sentences for at in (sentence.start, sentence.end)]
            text, moved = redaction.redact(passage.text, ends)
            kept = [
                (number, Sentence(start, end, sentence.evidence))
                for number, (sentence, start, end) in enumerate(
                    zip(passage.sentences, moved[::2], moved[1::2], strict=True)
                )
                if start < end
            ]
            sent.append(SentPassage(text, tuple(sentence for _, sentence in kept)))
            numbered.append(tuple(number for number, _ in kept))
        whole, numbers, restorer, vocabulary = tuple(sent), tuple(numbered), redaction.restorer(), ""
    elif request.offload is not OffloadRule.ALLOWED:
        raise PermissionDenied("nothing of the collection may leave this box")
    sampling = Sampling(
        max_tokens=request.sampling.max_tokens,
        temperature=request.sampling.temperature,
        top_k=request.sampling.top_k,
        top_p=request.sampling.top_p,
        repetition_penalty=request.sampling.repetition_penalty,
        seed=request.sampling.seed,
        stop=stop,
    )
    order = Order(
        request_id=request_id,
        question=question,
        passages=whole,
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
    return order, ReplyMapping(restorer, prompt.numbering, numbers)
