"""Another edge-rag as a remote, over gRPC: its ``Generation`` and ``Encoding`` services."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from typing import Final, TypeVar

import grpc

from edge_rag.api.v1 import encoding_pb2, generation_pb2, rag_pb2
from edge_rag.core.answer import FinishReason, StageTime
from edge_rag.core.generation import QuoteChunk, TextChunk, TokenChunk
from edge_rag.core.placement import OffloadUse
from edge_rag.core.query import AnswerFormat, JsonSchema, Regex
from edge_rag.errors import RemoteFailed
from edge_rag.offload.ports import (
    EncoderModels,
    OutboundRequest,
    OutboundTexts,
    RemoteEvent,
    RemoteFinished,
    RemoteLoad,
    RemoteVectors,
)
from edge_rag.offload.remotes.connection import Connection
from edge_rag.offload.remotes.tls_trust import Trust
from edge_rag.wire.answers import finished_from_message
from edge_rag.wire.codec import Codec

_METHOD: Final = "/edge_rag.v1.Generation/Generate"
_SERVICE: Final = "/edge_rag.v1.Encoding/"

_REQUEST: Final = Codec(OutboundRequest, generation_pb2.GenerateRequest, omit=("system", "user", "format"))
_QUOTE: Final = Codec(QuoteChunk, generation_pb2.QuotedSentence)
_MODELS: Final = Codec(EncoderModels, encoding_pb2.DescribeEncodersResponse)

_Call = grpc.aio.UnaryStreamCall[bytes, generation_pb2.GenerateResponse]


class EdgeRagRemote:
    """Implements ``Remote`` with the ``Generation`` service of another edge-rag.

    Attributes:
        connection: The connection, which other clients of the same remote may share.
    """

    kind = "edge-rag"

    def __init__(
        self, name: str, address: str, trust: Trust, uses: frozenset[OffloadUse] = frozenset({OffloadUse.GENERATE})
    ) -> None:
        self.name = name
        self.address = address
        self.uses = uses
        self.connection = Connection(address, trust)

    def supports(self, form: AnswerFormat | None, redacted: bool) -> bool:
        """Whether it can generate such an answer: any, except formatted answers of redacted requests, since a format is
        checked on tokens, and those are tokens of the redacted text."""
        return form is None or not redacted

    def serialize(self, outbound: OutboundRequest) -> bytes:
        """Returns the serialized request."""
        request = _REQUEST.to_message(outbound)
        request.mode = rag_pb2.ANSWER_MODE_FREE
        match outbound.format:
            case JsonSchema():
                request.json_schema = outbound.format.schema
            case Regex():
                request.regex = outbound.format.pattern
            case None:
                pass
        return request.SerializeToString()

    async def send(self, body: bytes, timeout_s: float | None) -> AsyncGenerator[RemoteEvent, None]:
        """Sends a request and yields its events; see ``Remote``."""
        call: _Call | None = None
        try:
            with self.connection.translate_errors():
                channel = await self.connection.channel(timeout_s)
                method = channel.unary_stream(
                    _METHOD, request_serializer=bytes, response_deserializer=generation_pb2.GenerateResponse.FromString
                )
                call = method(body, timeout=timeout_s, metadata=self.connection.metadata())
                async for message in call:
                    event = _event(message)
                    if event is not None:
                        yield event
                    if isinstance(event, RemoteFinished):
                        return
                raise RemoteFailed("the remote ended the stream without a finish reason")
        finally:
            if call is not None:
                call.cancel()

    async def close(self) -> None:
        await self.connection.close()


def _event(message: generation_pb2.GenerateResponse) -> RemoteEvent | None:
    """Parses a message; None if its kind is unknown or it is empty."""
    match message.WhichOneof("event"):
        case "load":
            load = message.load
            return RemoteLoad(load.waiting, load.running, max(1, load.slots))
        case "text":
            return TextChunk(message.text) if message.text else None
        case "tokens":
            return TokenChunk(tuple(message.tokens.ids)) if message.tokens.ids else None
        case "quoted":
            return _QUOTE.from_message(message.quoted)
        case "finished":
            return _finished(message.finished)
        case _:
            return None


def _finished(message: rag_pb2.Finished) -> RemoteFinished:
    finished = finished_from_message(message)
    if finished.reason not in (FinishReason.STOP, FinishReason.LENGTH):
        raise RemoteFailed("the remote sent an unknown finish reason")
    stage = finished.stages[0] if finished.stages else StageTime("", 0.0, 0.0)
    return RemoteFinished(finished.reason, finished.usage, _seconds(stage.queue_s), _seconds(stage.compute_s))


def _seconds(reported: float) -> float:
    """Returns a reported time, or 0 if it is not a valid one."""
    return reported if math.isfinite(reported) and reported >= 0 else 0.0


_Reply = TypeVar("_Reply")


class EdgeRagEncoders:
    """The ``Encoding`` service of another edge-rag. Calls raise RemoteFailed and nothing else."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def serialize_texts(self, outbound: OutboundTexts) -> bytes:
        request = encoding_pb2.EmbedRequest(embedder=outbound.embedder, texts=outbound.texts)
        request.purpose = encoding_pb2.EMBED_PURPOSE_PASSAGE
        return request.SerializeToString()

    async def describe(self, timeout_s: float) -> EncoderModels:
        reply = await self._call("DescribeEncoders", b"", encoding_pb2.DescribeEncodersResponse.FromString, timeout_s)
        return _MODELS.from_message(reply)

    async def embed(self, body: bytes, timeout_s: float) -> RemoteVectors:
        reply = await self._call("Embed", body, encoding_pb2.EmbedResponse.FromString, timeout_s)
        return RemoteVectors(reply.vectors, _seconds(reply.queue_seconds), _seconds(reply.compute_seconds))

    async def _call(self, method: str, body: bytes, parse: Callable[[bytes], _Reply], timeout_s: float) -> _Reply:
        with self._connection.translate_errors():
            channel = await self._connection.channel(timeout_s)
            call = channel.unary_unary(_SERVICE + method, request_serializer=bytes, response_deserializer=parse)
            reply: _Reply = await call(body, timeout=timeout_s, metadata=self._connection.metadata())
            return reply
