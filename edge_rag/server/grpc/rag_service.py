"""The Rag service."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import structlog

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from edge_rag.core.answer import Finished, TextDelta
from edge_rag.core.identity import Role
from edge_rag.errors import NotReady, SlowConsumer
from edge_rag.server.call import CallContext, ServicerContext
from edge_rag.telemetry.metrics.calls import Metrics
from edge_rag.wire import answers as messages
from edge_rag.wire import requests as wire

log = structlog.get_logger()


class RagService(rag_pb2_grpc.RagServicer):
    """Answers and searches.

    Args:
        calls: Lets calls in and sees them out.
        limits: What one request may ask for.
        metrics: Counts answers.
    """

    def __init__(self, calls: CallContext, limits: wire.RequestLimits, metrics: Metrics) -> None:
        self._calls = calls
        self._limits = limits
        self._metrics = metrics

    def limit(self, limits: wire.RequestLimits) -> None:
        """Holds requests that come from now on to other limits."""
        self._limits = limits

    async def Ask(  # noqa: N802, D102 - named and described by the proto
        self, request: rag_pb2.AskRequest, context: ServicerContext
    ) -> AsyncIterator[rag_pb2.AskResponse]:
        async with self._calls.serve(Role.READER, "Ask", context, request.request_id) as call:
            place = call.collection(request.collection)
            query = wire.parse_query(request, call.request_id, place, call.identity, call.deadline, self._limits)
            log.debug("question", question=query.question, characters=len(query.question))
            stream = call.backend.pipeline.ask(query, call.trace)
            told = 0
            try:
                async for event in stream:
                    if isinstance(event, Finished):
                        self._metrics.answered(event, time.monotonic() - call.started)
                        self._calls.pay(call, event.usage.prompt_tokens + event.usage.generated_tokens)
                    elif isinstance(event, TextDelta):
                        told += len(event.text)
                    yield messages.event_to_message(event)
            except NotReady as error:
                raise NotReady(f"{error}; {_how_far(told)}") from error
            except SlowConsumer as error:
                stream.cancel(error)
                raise SlowConsumer(error.seconds, _how_far(told)) from error
            finally:
                stream.cancel()

    async def Search(  # noqa: N802, D102 - named and described by the proto
        self, request: rag_pb2.SearchRequest, context: ServicerContext
    ) -> rag_pb2.SearchResponse:
        async with self._calls.serve(Role.READER, "Search", context, request.request_id) as call:
            place = call.collection(request.collection)
            query = wire.parse_search_query(request, call.request_id, place, call.deadline, self._limits)
            log.debug("search", question=query.query, characters=len(query.query))
            found = await call.backend.pipeline.search(query, call.trace)
            return rag_pb2.SearchResponse(
                hits=[messages.passage_to_message(ranked) for ranked in found.passages],
                stages=[messages.stage_time_to_message(stage) for stage in found.stages],
                explanations=[messages.explanation_to_message(each) for each in found.explanations],
            )


def _how_far(told: int) -> str:
    return f"{told} characters of the answer were told"
