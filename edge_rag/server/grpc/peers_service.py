"""The Generation and Encoding services over gRPC, which peers offload to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from edge_rag.api.v1 import encoding_pb2, encoding_pb2_grpc, generation_pb2, generation_pb2_grpc
from edge_rag.core.generation import GeneratorLoad
from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.server.grpc.call import GrpcCalls, ServicerContext, serves
from edge_rag.service.inference import peers
from edge_rag.wire.encoding import parse_embed_request, vectors_to_message
from edge_rag.wire.generation import chunk_to_message, load_to_message, parse_generate_request


class GenerationService(generation_pb2_grpc.GenerationServicer):
    """Generates answers about passages that a peer sends."""

    def __init__(self, calls: GrpcCalls, limits: RequestLimits) -> None:
        self._calls = calls
        self.limits = limits

    @serves(peers.GENERATE)
    async def Generate(  # noqa: N802 - named and described by the proto
        self, request: generation_pb2.GenerateRequest, context: ServicerContext
    ) -> AsyncIterator[generation_pb2.GenerateResponse]:
        async with self._calls.handle(context, request.request_id) as call:
            parsed = parse_generate_request(request, call.asker(self.limits))
            async with aclosing(peers.generate(call, parsed, request.vocabulary)) as events:
                async for event in events:
                    if isinstance(event, GeneratorLoad):
                        yield load_to_message(event)
                    else:
                        yield chunk_to_message(event)


class EncodingService(encoding_pb2_grpc.EncodingServicer):
    """Embeds texts that a peer sends."""

    def __init__(self, calls: GrpcCalls) -> None:
        self._calls = calls

    @serves(peers.DESCRIBE_ENCODERS)
    async def DescribeEncoders(  # noqa: N802 - named and described by the proto
        self, request: encoding_pb2.DescribeEncodersRequest, context: ServicerContext
    ) -> encoding_pb2.DescribeEncodersResponse:
        async with self._calls.handle(context) as call:
            encoders = call.backend.encoders
            return encoding_pb2.DescribeEncodersResponse(embedder=encoders.embedder, dimension=encoders.dimension)

    @serves(peers.EMBED)
    async def Embed(  # noqa: N802 - named and described by the proto
        self, request: encoding_pb2.EmbedRequest, context: ServicerContext
    ) -> encoding_pb2.EmbedResponse:
        async with self._calls.handle(context) as call:
            vectors = await peers.embed(call, request.embedder, parse_embed_request(request))
            return vectors_to_message(request.embedder, vectors.value, vectors.queue_s, vectors.compute_s)
