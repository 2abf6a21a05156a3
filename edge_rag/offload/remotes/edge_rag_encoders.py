"""The encoders of another edge-rag, over gRPC."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeVar

from edge_rag.api.v1 import encoding_pb2
from edge_rag.offload.encoding.encoding_desk import Encoders
from edge_rag.offload.encoding.messages import SentCandidates, SentTexts
from edge_rag.offload.encoding.replies import Embedded, Rank, Ranks
from edge_rag.offload.remotes.connection import Connection

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


def _seconds(given: float) -> float:
    """Returns a time that a remote states, seconds, where it is one."""
    return given if math.isfinite(given) and given >= 0 else 0.0
