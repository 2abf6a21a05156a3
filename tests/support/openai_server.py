"""A server with the OpenAI-compatible HTTP API over a real model: messages in, text out as server-sent events."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edge_rag.core.answer import FinishReason
from edge_rag.core.generation import ChunkEvent, Generated, GenerationFailed, GenerationRequest, TextChunk
from edge_rag.core.ids import ChunkId, DocumentId, RequestId
from edge_rag.core.passage import Passage, RankedPassage
from edge_rag.core.query import AnswerMode, Priority, Sampling
from edge_rag.errors import EdgeRagError
from edge_rag.generator.generator import AnswerGenerator
from tests.support.peer_daemon import HEAD, HttpServer, chunk, event

_ENDS = {FinishReason.LENGTH: "length"}


@contextmanager
def openai_server(generator: AnswerGenerator) -> Iterator[HttpServer]:
    """Serves a generator on loopback."""

    async def complete(body: bytes, writer: asyncio.StreamWriter) -> None:
        loop, events = asyncio.get_running_loop(), asyncio.Queue[ChunkEvent]()

        def on_chunk(chunk_event: ChunkEvent) -> None:
            loop.call_soon_threadsafe(events.put_nowait, chunk_event)

        try:
            handle = generator.submit_chunks(_request(json.loads(body)), "", on_chunk)
        except EdgeRagError:
            writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
            return
        try:
            writer.write(HEAD)
            while not isinstance(chunk_event := await events.get(), Generated | GenerationFailed):
                assert isinstance(chunk_event, TextChunk)
                writer.write(_choice({"content": chunk_event.text}, None))
                await writer.drain()
            if isinstance(chunk_event, Generated):
                usage = {
                    "prompt_tokens": chunk_event.usage.prompt_tokens,
                    "completion_tokens": chunk_event.usage.generated_tokens,
                }
                writer.write(_choice({}, _ENDS.get(chunk_event.reason, "stop")) + event(json.dumps({"usage": usage})))
                writer.write(event("[DONE]"))
            else:
                writer.write(event(json.dumps({"error": {"message": str(chunk_event.error)}})))
            writer.write(chunk(b""))
            await writer.drain()
        finally:
            handle.cancel()

    server = HttpServer(complete)
    try:
        yield server
    finally:
        server.stop()


def _request(body: dict[str, Any]) -> GenerationRequest:
    system, user = (message["content"] for message in body["messages"])
    passage = Passage(ChunkId(0), DocumentId("d"), "asked", 0, 0, len(user), user)
    return GenerationRequest(
        request_id=RequestId("there"),
        question=system,
        passages=(RankedPassage(passage, 1.0, ()),),
        evidence=1.0,
        mode=AnswerMode.FREE,
        max_sentences=1,
        sampling=Sampling(
            max_tokens=body["max_tokens"],
            temperature=body["temperature"],
            top_k=body.get("top_k", 0),
            top_p=body.get("top_p", 1.0),
            repetition_penalty=body.get("repetition_penalty", 1.0),
            seed=body.get("seed"),
            stop=tuple(body.get("stop", ())),
        ),
        priority=Priority.NORMAL,
        client="client",
        trust_domain="client",
        deadline=None,
    )


def _choice(delta: dict[str, str], reason: str | None) -> bytes:
    return event(json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}))
