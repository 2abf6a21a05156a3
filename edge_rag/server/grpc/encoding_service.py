"""The Encoding service."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from edge_rag.api.v1 import encoding_pb2, encoding_pb2_grpc
from edge_rag.core.identity import Role
from edge_rag.errors import ConfigurationError
from edge_rag.reranker.candidate import model_text
from edge_rag.server.call import Call, CallContext, ServicerContext
from edge_rag.wire.encoding import parse_embed_request, parse_rerank_request, ranks_to_message, vectors_to_message
from edge_rag.wire.requests import RequestLimits


class EncodingService(encoding_pb2_grpc.EncodingServicer):
    """Lends embedder and reranker to peers.

    Args:
        calls: Lets calls in and sees them out.
        limits: What one request may ask for.
    """

    def __init__(self, calls: CallContext, limits: RequestLimits) -> None:
        self._calls = calls
        self._limits = limits

    def limit(self, limits: RequestLimits) -> None:
        """Holds requests that come from now on to other limits."""
        self._limits = limits

    async def DescribeEncoders(  # noqa: N802, D102 - named and described by the proto
        self, request: encoding_pb2.DescribeEncodersRequest, context: ServicerContext
    ) -> encoding_pb2.DescribeEncodersResponse:
        async with self._calls.serve(Role.PEER, "DescribeEncoders", context) as call:
            lending = call.backend.lending
            return encoding_pb2.DescribeEncodersResponse(
                embedder=lending.embedder, dimension=lending.dimension, reranker=lending.reranker
            )

    async def Embed(  # noqa: N802, D102 - named and described by the proto
        self, request: encoding_pb2.EmbedRequest, context: ServicerContext
    ) -> encoding_pb2.EmbedResponse:
        async with self._calls.serve(Role.PEER, "Embed", context, request.request_id) as call:
            texts, questions = parse_embed_request(request)
            lending = call.backend.lending
            _agree("embedder", request.embedder, lending.embedder)
            embed = lending.embed_questions if questions else lending.embed_passages
            embedded = await embed(texts, call.deadline)
            await self._pay(call, texts)
            return vectors_to_message(lending.embedder, embedded.value, embedded.queue_s, embedded.compute_s)

    async def Rerank(  # noqa: N802, D102 - named and described by the proto
        self, request: encoding_pb2.RerankRequest, context: ServicerContext
    ) -> encoding_pb2.RerankResponse:
        async with self._calls.serve(Role.PEER, "Rerank", context, request.request_id) as call:
            wanted = parse_rerank_request(request, call.identity, self._limits)
            lending = call.backend.lending
            _agree("reranker", request.reranker, lending.reranker)
            ranked = await lending.rerank(wanted, call.deadline)
            texts = [wanted.question, *(model_text(hit.passage) for hit in wanted.retrieved.hits)]
            await self._pay(call, texts)
            return ranks_to_message(lending.reranker, ranked.value, ranked.queue_s, ranked.compute_s)

    async def _pay(self, call: Call, texts: Sequence[str]) -> None:
        """Takes what was read off the caller's quota, if it has one."""
        if call.identity.quota.tokens_per_minute is not None:
            self._calls.pay(call, await asyncio.to_thread(call.backend.lending.count_tokens, texts))


def _agree(role: str, wanted: str, here: str) -> None:
    if wanted != here:
        raise ConfigurationError(
            f"the {role} here is {here}, not {wanted[:200]!r}: what it computes means nothing there"
        )
