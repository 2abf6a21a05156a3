"""Another edge-rag, over gRPC.

The encoders of another edge-rag, over gRPC.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from typing import Final, TypeVar

import grpc

from edge_rag.api.v1 import encoding_pb2, generation_pb2, rag_pb2
from edge_rag.core.answer import FinishReason, Usage
from edge_rag.core.generation import QuoteChunk, TextChunk, TokenChunk
from edge_rag.core.placement import OffloadUse
from edge_rag.core.query import AnswerFormat, AnswerMode, JsonSchema, Priority, Regex
from edge_rag.errors import RemoteFailed
from edge_rag.offload.encoding.client import Encoders
from edge_rag.offload.encoding.messages import Embedded, Rank, Ranks, SentCandidates, SentTexts
from edge_rag.offload.generation.request_builder import Order, SentPassage
from edge_rag.offload.ports import Busy, Ended, Heard
from edge_rag.offload.remotes.connection import Connection
from edge_rag.offload.remotes.tls_trust import Trust

_METHOD: Final = "/edge_rag.v1.Generation/Generate"
_MODES: Final = {AnswerMode.QUOTE: rag_pb2.ANSWER_MODE_QUOTE, AnswerMode.FREE: rag_pb2.ANSWER_MODE_FREE}
_PRIORITIES: Final = {
    Priority.INTERACTIVE: rag_pb2.PRIORITY_INTERACTIVE,
    Priority.NORMAL: rag_pb2.PRIORITY_NORMAL,
    Priority.BATCH: rag_pb2.PRIORITY_BATCH,
}
_REASONS: Final = {
    rag_pb2.FINISH_REASON_STOP: FinishReason.STOP,
    rag_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
}

_Call = grpc.aio.UnaryStreamCall[bytes, generation_pb2.GenerateResponse]


class EdgeRagRemote:
    """Implements ``Remote`` with the ``Generation`` service of another edge-rag.

    Args:
        name: What it is called.
        address: HOST:PORT, or ``box:`` and the name that a box announces.
        trust: What it has to show, and is shown.
        uses: What it is used for.

    Attributes:
        connection: What is said to it goes over; may be shared with what else it is asked.
    """

    kind = "edge-rag"

    def __init__(
        self, name: str, address: str, trust: Trust, uses: frozenset[OffloadUse] = frozenset({OffloadUse.GENERATE})
    ) -> None:
        self.name = name
        self.address = address
        self.uses = uses
        self.connection = Connection(address, trust)

    def able(self, mode: AnswerMode, form: AnswerFormat | None, redacted: bool) -> bool:
        """Whether it can write such an answer: any, but one in a format is checked by its tokens, which are of the text
        that was sent."""
        return form is None or not redacted

    def seal(self, order: Order) -> bytes:
        """Returns the request message."""
        sampling = order.sampling
        request = generation_pb2.GenerateRequest(
            question=order.question,
            passages=[_passage(passage) for passage in order.passages],
            mode=_MODES[order.mode],
            max_sentences=order.max_sentences,
            sampling=rag_pb2.Sampling(
                max_tokens=sampling.max_tokens,
                temperature=sampling.temperature,
                top_k=sampling.top_k,
                top_p=sampling.top_p,
                repetition_penalty=sampling.repetition_penalty,
                seed=sampling.seed,
                stop=sampling.stop,
            ),
            priority=_PRIORITIES[order.priority],
            request_id=order.request_id,
            vocabulary=order.vocabulary,
            sharing=order.sharing,
        )
        match order.format:
            case JsonSchema():
                request.json_schema = order.format.schema
            case Regex():
                request.regex = order.format.pattern
            case None:
                pass
        return request.SerializeToString()

    async def send(self, sealed: bytes, within_s: float | None) -> AsyncGenerator[Heard, None]:
        """Sends a request and yields what comes back; see ``Remote``."""
        call: _Call | None = None
        try:
            with self.connection.told():
                channel = await self.connection.channel(within_s)
                method = channel.unary_stream(
                    _METHOD, request_serializer=bytes, response_deserializer=generation_pb2.GenerateResponse.FromString
                )
                call = method(sealed, timeout=within_s, metadata=self.connection.metadata())
                async for message in call:
                    heard = _heard(message)
                    if heard is not None:
                        yield heard
                    if isinstance(heard, Ended):
                        return
                raise RemoteFailed("it stopped without an end")
        finally:
            if call is not None:
                call.cancel()

    async def close(self) -> None:
        """Lets the connection go."""
        await self.connection.close()


def _passage(passage: SentPassage) -> generation_pb2.SourcePassage:
    sentences = [
        generation_pb2.SourceSentence(start=sentence.start, end=sentence.end, evidence=sentence.evidence)
        for sentence in passage.sentences
    ]
    return generation_pb2.SourcePassage(text=passage.text, sentences=sentences)


def _heard(message: generation_pb2.GenerateResponse) -> Heard | None:
    """Reads a message; None for a kind of event that is not known here, or one that says nothing."""
    match message.WhichOneof("event"):
        case "load":
            load = message.load
            return Busy(load.waiting, load.running, max(1, load.slots))
        case "text":
            return TextChunk(message.text) if message.text else None
        case "tokens":
            return TokenChunk(tuple(message.tokens.ids)) if message.tokens.ids else None
        case "quoted":
            return QuoteChunk(message.quoted.passage, message.quoted.sentence)
        case "finished":
            return _ended(message.finished)
        case _:
            return None


def _ended(message: rag_pb2.Finished) -> Ended:
    if message.reason not in _REASONS:
        raise RemoteFailed("it ended for a reason that is none")
    usage, stage = message.usage, message.stages[0] if message.stages else rag_pb2.StageTime()
    used = Usage(
        usage.prompt_tokens,
        usage.cached_prompt_tokens,
        usage.generated_tokens,
        usage.forced_tokens,
        usage.model_steps,
    )
    return Ended(_REASONS[message.reason], used, _seconds(stage.queue_seconds), _seconds(stage.compute_seconds))


def _seconds(given: float) -> float:
    """Returns a time that a remote states, seconds, where it is one."""
    return given if math.isfinite(given) and given >= 0 else 0.0


_SERVICE: Final = "/edge_rag.v1.Encoding/"
_Reply = TypeVar("_Reply")


class EdgeRagEncoders:
    """Implements ``EncodingRemote`` with the ``Encoding`` service of another edge-rag.

    Args:
        connection: The connection to it; its owner closes it.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def seal_texts(self, sent: SentTexts) -> bytes:
        """Returns the request message."""
        purpose = encoding_pb2.EMBED_PURPOSE_QUESTION if sent.questions else encoding_pb2.EMBED_PURPOSE_PASSAGE
        return encoding_pb2.EmbedRequest(
            embedder=sent.embedder, texts=sent.texts, purpose=purpose, request_id=sent.request_id
        ).SerializeToString()

    def seal_candidates(self, sent: SentCandidates) -> bytes:
        """Returns the request message."""
        return encoding_pb2.RerankRequest(
            reranker=sent.reranker,
            question=sent.question,
            passages=[
                encoding_pb2.Candidate(text=each.text, headings=each.headings, boost=each.boost)
                for each in sent.passages
            ],
            terms=[encoding_pb2.TermWeight(word=word, weight=weight) for word, weight in sent.terms],
            limit=sent.limit,
            request_id=sent.request_id,
            sharing=sent.sharing,
        ).SerializeToString()

    async def describe(self, within_s: float) -> Encoders:
        """Asks which models it has."""
        reply = await self._call("DescribeEncoders", b"", encoding_pb2.DescribeEncodersResponse.FromString, within_s)
        return Encoders(reply.embedder, reply.dimension, reply.reranker)

    async def embed(self, sealed: bytes, within_s: float) -> Embedded:
        """Has texts embedded."""
        reply = await self._call("Embed", sealed, encoding_pb2.EmbedResponse.FromString, within_s)
        return Embedded(reply.vectors, _seconds(reply.queue_seconds), _seconds(reply.compute_seconds))

    async def rerank(self, sealed: bytes, within_s: float) -> Ranks:
        """Has passages ranked."""
        reply = await self._call("Rerank", sealed, encoding_pb2.RerankResponse.FromString, within_s)
        ranked = tuple(Rank(each.passage, each.score, tuple(each.evidence)) for each in reply.ranked)
        return Ranks(ranked, reply.evidence, _seconds(reply.queue_seconds), _seconds(reply.compute_seconds))

    async def _call(self, method: str, sealed: bytes, read: Callable[[bytes], _Reply], within_s: float) -> _Reply:
        with self._connection.told():
            channel = await self._connection.channel(within_s)
            ask = channel.unary_unary(_SERVICE + method, request_serializer=bytes, response_deserializer=read)
            reply: _Reply = await ask(sealed, timeout=within_s, metadata=self._connection.metadata())
            return reply
