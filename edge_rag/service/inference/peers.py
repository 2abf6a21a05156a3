"""This box's models as a service for peers: generation, and embedding of texts that peers send."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.generation import (
    ChunkEvent,
    Generated,
    GeneratedChunk,
    GenerationFailed,
    GenerationRequest,
    GeneratorLoad,
    TextChunk,
    TokenChunk,
)
from edge_rag.core.identity import Role
from edge_rag.core.query import RequestContext
from edge_rag.errors import ConfigurationError
from edge_rag.generator.quote_generator import AnswerHandle
from edge_rag.pipeline.event_buffer import EventBuffer
from edge_rag.pipeline.stage import Timed
from edge_rag.reranker.candidate import model_text
from edge_rag.service.call import Call, Operation

GENERATE: Final = Operation("Generate", Role.PEER)
DESCRIBE_ENCODERS: Final = Operation("DescribeEncoders", Role.PEER)
EMBED: Final = Operation("Embed", Role.PEER)

COALESCING_S: Final = 0.05
"""Minimum time between two chunks of one answer, seconds; chunks that come sooner are joined."""

_EVENT_BUFFER: Final = 64
"""Unread events of a peer's answer at which its generation is paused."""


async def generate(
    call: Call, request: GenerationRequest, vocabulary: str
) -> AsyncGenerator[GeneratorLoad | GeneratedChunk | Generated, None]:
    """Generates an answer for a peer; yields the load first, then the coalesced chunks and the end.

    Args:
        vocabulary: Identity of the peer's vocabulary: tokens are sent if it is this box's, text otherwise.
    """
    generator = call.backend.generator
    chunks = EventBuffer[ChunkEvent](asyncio.get_running_loop(), _EVENT_BUFFER)
    engine = generator.stats()
    yield GeneratorLoad(engine.waiting, engine.slots_busy, engine.slots, generator.vocabulary)
    await call.check_format(request.format)
    submitting = asyncio.ensure_future(asyncio.to_thread(generator.submit_chunks, request, vocabulary, chunks.put))
    unfinished = [request.question, *(model_text(ranked.passage) for ranked in request.passages)]
    try:
        async with call.charged(unfinished):
            chunks.attach(await asyncio.shield(submitting))
            async with aclosing(coalesced(chunks.get, time.monotonic)) as events:
                async for event in events:
                    match event:
                        case GenerationFailed():
                            raise event.error
                        case Generated():
                            if event.usage.prompt_tokens:  # else it was quoted without a model
                                unfinished.clear()
                            call.charge_usage(event.usage)
                        case TextChunk():
                            unfinished.append(event.text)
                        case TokenChunk():
                            call.charge(len(event.tokens))
                    yield event
    finally:
        submitting.add_done_callback(_cancel_submitted)


async def coalesced(
    get: Callable[[], Coroutine[None, None, ChunkEvent | None]],
    clock: Callable[[], float],
    interval_s: float = COALESCING_S,
) -> AsyncGenerator[ChunkEvent, None]:
    """Joins chunks of text or tokens that come close together.

    A message costs both sides about as much as the computation of a token besides the model, and a small board that
    offloads to a fast machine pays it for every token. The first chunk and all other events are passed on at once.

    Args:
        interval_s: Minimum time between two chunks, seconds.
    """
    next_at = -math.inf
    held: ChunkEvent | None = None
    pending = asyncio.ensure_future(get())
    try:
        while True:
            done, _ = await asyncio.wait({pending}, timeout=None if held is None else max(0.0, next_at - clock()))
            event = pending.result() if done else None
            joined = None if held is None or event is None else _joined(held, event)
            if held is not None and joined is None:
                yield held
                next_at, held = clock() + interval_s, None
            if not done:
                continue
            if event is None:
                return
            if isinstance(event, TokenChunk | TextChunk):
                held = joined or event
            else:
                yield event
                if isinstance(event, Generated | GenerationFailed):
                    return
            pending = asyncio.ensure_future(get())
            if held is not None and clock() >= next_at:
                yield held
                next_at, held = clock() + interval_s, None
    finally:
        pending.cancel()


async def embed(call: Call, embedder: str, texts: tuple[str, ...]) -> Timed[NDArray[np.float32]]:
    """Embeds a peer's passages: float32 [texts, dimension], each row of length 1."""
    encoders = call.backend.encoders
    if embedder != encoders.embedder:
        problem = f"the embedder here is {encoders.embedder}, not {embedder[:200]!r}: its results are not comparable"
        raise ConfigurationError(problem)
    caller = RequestContext(call.request_id, call.identity.name, deadline=call.deadline)
    async with call.charged(list(texts)):
        return await encoders.embed_passages(texts, caller)


def _joined(first: ChunkEvent, second: ChunkEvent) -> ChunkEvent | None:
    match first, second:
        case TokenChunk(), TokenChunk():
            return TokenChunk(first.tokens + second.tokens)
        case TextChunk(), TextChunk():
            return TextChunk(first.text + second.text)
        case _:
            return None


def _cancel_submitted(submitting: asyncio.Future[AnswerHandle]) -> None:
    if not submitting.cancelled() and submitting.exception() is None:
        submitting.result().cancel()
