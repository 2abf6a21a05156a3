"""The Generation service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

from edge_rag.api.v1 import generation_pb2, generation_pb2_grpc
from edge_rag.core.generation import Generated, GenerationFailed
from edge_rag.core.identity import Role
from edge_rag.core.said import SaidEvent
from edge_rag.generator.generator import Handle
from edge_rag.pipeline.event_buffer import AnswerChannel
from edge_rag.server.call import Calls, ServicerContext
from edge_rag.server.grpc.said_pacing import paced
from edge_rag.wire.generation import generation_request, load_message, said_message
from edge_rag.wire.requests import RequestLimits

_UNREAD_EVENTS: Final = 64
"""Pieces of an answer that wait for the peer before it is paused."""


class GenerationService(generation_pb2_grpc.GenerationServicer):
    """Lends the generator to peers.

    Args:
        calls: Lets calls in and sees them out.
        limits: What one request may ask for.
    """

    def __init__(self, calls: Calls, limits: RequestLimits) -> None:
        self._calls = calls
        self._limits = limits

    def limit(self, limits: RequestLimits) -> None:
        """Holds requests that come from now on to other limits."""
        self._limits = limits

    async def Generate(  # noqa: N802, D102 - named and described by the proto
        self, request: generation_pb2.GenerateRequest, context: ServicerContext
    ) -> AsyncIterator[generation_pb2.GenerateResponse]:
        async with self._calls.serve(Role.PEER, "Generate", context, request.request_id) as call:
            wanted = generation_request(request, call.request_id, call.identity, call.deadline, self._limits)
            generator = call.backend.generator
            said = AnswerChannel[SaidEvent](asyncio.get_running_loop(), _UNREAD_EVENTS)
            yield load_message(generator.snapshot(), generator.vocabulary)
            submitting = asyncio.ensure_future(asyncio.to_thread(generator.write, wanted, request.vocabulary, said.put))
            try:
                said.admitted(await asyncio.shield(submitting))
                async with aclosing(paced(said.take, time.monotonic)) as events:
                    async for event in events:
                        if isinstance(event, GenerationFailed):
                            raise event.error
                        if isinstance(event, Generated):
                            self._calls.pay(call, event.usage.prompt_tokens + event.usage.generated_tokens)
                        yield said_message(event)
            finally:
                submitting.add_done_callback(_cancel_admitted)


def _cancel_admitted(submitting: asyncio.Future[Handle]) -> None:
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result().cancel()
