"""The Generation service.

Has what is said to a peer go in fewer messages: what comes close together is joined.

A message costs both sides about as much as a token's work besides the model, and a small board that borrows a fast
machine pays it for every token of every answer.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Final

from edge_rag.api.v1 import generation_pb2, generation_pb2_grpc
from edge_rag.core.generation import ChunkEvent, Generated, GenerationFailed, GeneratorLoad, TextChunk, TokenChunk
from edge_rag.core.identity import Role
from edge_rag.generator.generator import AnswerHandle
from edge_rag.pipeline.event_buffer import EventBuffer
from edge_rag.server.call import CallContext, ServicerContext
from edge_rag.wire.generation import chunk_to_message, load_to_message, parse_generate_request
from edge_rag.wire.requests import RequestLimits

TOGETHER_S: Final = 0.05
"""Time between two messages of words, seconds: words of one answer that come within it go together."""


async def paced(
    take: Callable[[], Coroutine[None, None, ChunkEvent | None]],
    clock: Callable[[], float],
    together_s: float = TOGETHER_S,
) -> AsyncGenerator[ChunkEvent, None]:
    """Yields what is said, to its end: the first words and whatever is no word at once, further words at most so often.

    Args:
        take: Waits for what is said next.
        clock: Monotonic seconds.
        together_s: Shortest time between two messages of words, seconds.
    """
    next_at = -math.inf
    held: ChunkEvent | None = None
    coming = asyncio.ensure_future(take())
    try:
        while True:
            done, _ = await asyncio.wait({coming}, timeout=None if held is None else max(0.0, next_at - clock()))
            said = coming.result() if done else None
            joined = None if held is None or said is None else _joined(held, said)
            if held is not None and joined is None:
                yield held
                next_at, held = clock() + together_s, None
            if not done:
                continue
            if said is None:
                return
            if isinstance(said, TokenChunk | TextChunk):
                held = joined or said
            else:
                yield said
                if isinstance(said, Generated | GenerationFailed):
                    return
            coming = asyncio.ensure_future(take())
            if held is not None and clock() >= next_at:
                yield held
                next_at, held = clock() + together_s, None
    finally:
        coming.cancel()


def _joined(held: ChunkEvent, said: ChunkEvent) -> ChunkEvent | None:
    """Returns both as one; None where they are of different kinds."""
    match held, said:
        case TokenChunk(), TokenChunk():
            return TokenChunk(held.tokens + said.tokens)
        case TextChunk(), TextChunk():
            return TextChunk(held.text + said.text)
        case _:
            return None


_UNREAD_EVENTS: Final = 64
"""Pieces of an answer that wait for the peer before it is paused."""


class GenerationService(generation_pb2_grpc.GenerationServicer):
    """Lends the generator to peers.

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

    async def Generate(  # noqa: N802, D102 - named and described by the proto
        self, request: generation_pb2.GenerateRequest, context: ServicerContext
    ) -> AsyncIterator[generation_pb2.GenerateResponse]:
        async with self._calls.serve(Role.PEER, "Generate", context, request.request_id) as call:
            wanted = parse_generate_request(request, call.request_id, call.identity, call.deadline, self._limits)
            generator = call.backend.generator
            said = EventBuffer[ChunkEvent](asyncio.get_running_loop(), _UNREAD_EVENTS)
            engine = generator.stats()
            yield load_to_message(GeneratorLoad(engine.waiting, engine.slots_busy, engine.slots, generator.vocabulary))
            submitting = asyncio.ensure_future(
                asyncio.to_thread(generator.submit_chunks, wanted, request.vocabulary, said.put)
            )
            try:
                said.attach(await asyncio.shield(submitting))
                async with aclosing(paced(said.get, time.monotonic)) as events:
                    async for event in events:
                        if isinstance(event, GenerationFailed):
                            raise event.error
                        if isinstance(event, Generated):
                            self._calls.pay(call, event.usage.prompt_tokens + event.usage.generated_tokens)
                        yield chunk_to_message(event)
            finally:
                submitting.add_done_callback(_cancel_admitted)


def _cancel_admitted(submitting: asyncio.Future[AnswerHandle]) -> None:
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result().cancel()
