"""One question through the stages: retrieve, rerank, generate; stages of different questions overlap."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from edge_rag.core.answer import AnswerEvent, Finished, PassagesFound, StageTime
from edge_rag.core.generation import Generated, GenerationEvent, GenerationFailed, GenerationRequest
from edge_rag.core.monitoring.status import StageSnapshot
from edge_rag.core.passage import Explanation, RankedPassage, Reranked, RerankRequest, RetrievalRequest, Retrieved
from edge_rag.core.ports import AuditSink
from edge_rag.core.query import Query, RequestContext, SearchQuery
from edge_rag.errors import DeadlineExceeded, EdgeRagError, SlowConsumer
from edge_rag.pipeline.event_buffer import EventBuffer
from edge_rag.pipeline.events import StageEventRecorder
from edge_rag.pipeline.ports import GenerationHandle, Generator, Reranker, Retriever
from edge_rag.pipeline.stage import Stage, Timed
from edge_rag.pipeline.yield_to_queries import IngestYield
from edge_rag.telemetry.tracing import UNTRACED, CallTrace, Note, times

Out = TypeVar("Out")


@dataclass(frozen=True, slots=True)
class StageLimits:
    """Bounds of the two batch stages.

    Attributes:
        retriever_queue: Most questions that may wait for the retriever.
        retriever_batch: Most questions it takes at once.
        reranker_queue: Most questions that may wait for the reranker.
        reranker_batch: Most questions it takes at once.
        candidates: Passages the retriever hands to the reranker.
        unread_events: Most pieces of an answer that wait for its reader; then it is paused.
    """

    retriever_queue: int
    retriever_batch: int
    reranker_queue: int
    reranker_batch: int
    candidates: int
    unread_events: int


@dataclass(slots=True)
class GivenUp:
    """What a request is given up for.

    Attributes:
        why: The reason; None while it is wanted, and where its caller went away.
    """

    why: EdgeRagError | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found.

    Attributes:
        passages: Best first.
        stages: Time per stage, in pipeline order.
        explanations: How each passage got its place; empty unless asked for.
    """

    passages: tuple[RankedPassage, ...]
    stages: tuple[StageTime, ...]
    explanations: tuple[Explanation, ...] = ()


class AnswerStream:
    """The events of one answer, as they come. Ends after ``Finished`` or raises what went wrong.

    Args:
        task: Drives the stages and feeds the channel.
        events: What the task feeds.
        reason: Holds what the request is given up for, where it is.
    """

    def __init__(self, task: asyncio.Task[None], events: EventBuffer[AnswerEvent], reason: GivenUp) -> None:
        self._task = task
        self._events = events
        self._reason = reason

    def cancel(self, why: EdgeRagError | None = None) -> None:
        """Ends the request wherever it is; idempotent.

        Args:
            why: What the trail of decisions says; None where the caller wants it no more.
        """
        if not self._task.done():
            self._reason.why = self._reason.why or why
            self._task.cancel()

    async def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        """Yields the events.

        Raises:
            EdgeRagError: The request failed; events already yielded stand. Of one that was not read in time, those that
                waited are dropped.
        """
        while (event := await self._events.take()) is not None:
            if self._went_unread():
                break
            yield event
        await self._task

    def _went_unread(self) -> bool:
        return self._task.done() and not self._task.cancelled() and isinstance(self._task.exception(), SlowConsumer)


class Pipeline:
    """The query path. Used from one event loop.

    Args:
        retriever: Finds passages.
        reranker: Orders them.
        generator: Writes answers.
        limits: Bounds of the batch stages.
        decisions: Keeps the trail of decisions.
        clock: Monotonic seconds.
        precedence: Told while questions are being answered.
        working: Makes what is entered while a stage, given by its name, works on a batch.
        prefetch: Told of the likely request while the reranker still works, on a thread of its own; must not raise.
    """

    def __init__(
        self,
        retriever: Retriever,
        reranker: Reranker,
        generator: Generator,
        limits: StageLimits,
        decisions: AuditSink,
        clock: Callable[[], float] = time.monotonic,
        precedence: IngestYield | None = None,
        working: Callable[[str], AbstractContextManager[None]] = lambda stage: nullcontext(),
        prefetch: Callable[[GenerationRequest], None] | None = None,
    ) -> None:
        self._prefetch = prefetch
        self._precedence = precedence or IngestYield(clock)
        self._generator = generator
        self._candidates = limits.candidates
        self._unread_events = limits.unread_events
        self._clock = clock
        self._announcer = StageEventRecorder(decisions, clock)
        self._retrieving: Stage[RetrievalRequest, Retrieved] = Stage(
            "retriever",
            retriever.retrieve,
            limits.retriever_queue,
            limits.retriever_batch,
            clock,
            partial(working, "retriever"),
        )
        self._reranking: Stage[RerankRequest, Reranked] = Stage(
            "reranker",
            reranker.rerank,
            limits.reranker_queue,
            limits.reranker_batch,
            clock,
            partial(working, "reranker"),
        )

    def ask(self, query: Query, trace: CallTrace = UNTRACED) -> AnswerStream:
        """Starts answering a question; the trace gets a span a stage."""
        events, reason = EventBuffer[AnswerEvent](asyncio.get_running_loop(), self._unread_events), GivenUp()
        answering = self._answer_first(query, events, reason, trace)
        task = asyncio.create_task(answering, name=f"ask-{query.request_id}")
        task.add_done_callback(lambda _: events.end())
        return AnswerStream(task, events, reason)

    async def search(self, query: SearchQuery, trace: CallTrace = UNTRACED) -> SearchResult:
        """Finds passages; the trace gets a span a stage.

        Raises:
            EdgeRagError: The search failed.
        """
        with self._precedence.question():
            return await self._search(query, trace)

    async def _search(self, query: SearchQuery, trace: CallTrace) -> SearchResult:
        candidates = max(query.limit, self._candidates)
        context = RequestContext(query.request_id, deadline=query.deadline, collection=query.collection)
        request = RetrievalRequest(query.query, query.collection, candidates, query.filter, query.explain, context)
        retrieved = await self._retrieve(request, query.deadline, trace)
        stages = [StageTime("retriever", retrieved.queue_s, retrieved.compute_s)]
        if not query.rerank:
            found = tuple(RankedPassage(hit.passage, hit.score, ()) for hit in retrieved.value.hits[: query.limit])
            return SearchResult(found, tuple(stages), _explained(query, retrieved.value, found))
        ranked = await self._rerank(query.query, retrieved.value, query.limit, context, trace)
        stages.append(StageTime("reranker", ranked.queue_s, ranked.compute_s))
        found = ranked.value.passages
        return SearchResult(found, tuple(stages), _explained(query, retrieved.value, found))

    async def rerank(self, request: RerankRequest, deadline: float | None) -> Timed[Reranked]:
        """Orders passages that somebody else found, in the queue of all questions.

        Args:
            request: What to order.
            deadline: Seconds on the clock, or None.

        Raises:
            Overloaded: The queue is full.
            DeadlineExceeded: The deadline passed.
            EdgeRagError: It failed.
        """
        return await self._within("reranker", self._reranking.submit(request, deadline), deadline)

    def snapshots(self) -> tuple[StageSnapshot, ...]:
        """Returns the counts of the batch stages, in pipeline order."""
        return self._retrieving.snapshot(), self._reranking.snapshot()

    def close(self) -> None:
        """Ends the batch stages; the generator is its owner's to close."""
        self._retrieving.close()
        self._reranking.close()

    async def _answer_first(
        self, query: Query, events: EventBuffer[AnswerEvent], reason: GivenUp, trace: CallTrace
    ) -> None:
        with self._precedence.question():
            await self._answer(query, events, reason, trace)

    async def _answer(self, query: Query, events: EventBuffer[AnswerEvent], reason: GivenUp, trace: CallTrace) -> None:
        started = self._clock()
        context = RequestContext(query.request_id, query.client, query.priority, query.deadline, query.collection)
        with self._announcer.within(query, "retriever"):
            wanted = RetrievalRequest(query.question, query.collection, self._candidates, query.filter, context=context)
            retrieved = await self._retrieve(wanted, query.deadline, trace)
        self._announcer.done(query, "retriever", retrieved)
        if self._prefetch is not None:
            likely = tuple(RankedPassage(hit.passage, hit.score, ()) for hit in retrieved.value.hits[: query.passages])
            coming = _generation(query, retrieved.value, Reranked(likely, 1.0))
            asyncio.get_running_loop().run_in_executor(None, self._prefetch, coming)
        with self._announcer.within(query, "reranker"):
            ranked = await self._rerank(query.question, retrieved.value, query.passages, context, trace)
        self._announcer.done(query, "reranker", ranked)
        events.put(PassagesFound(ranked.value.passages, ranked.value.evidence))
        before_generator = self._clock() - started
        request = _generation(query, retrieved.value, ranked.value)
        with trace.stage("generator") as span:
            generated = await self._generate(request, events, reason)
            span.note(_noted(generated))
        first_token_s = None if generated.first_token_s is None else before_generator + generated.first_token_s
        stages = (
            StageTime("retriever", retrieved.queue_s, retrieved.compute_s),
            StageTime("reranker", ranked.queue_s, ranked.compute_s),
            StageTime("generator", generated.queue_s, generated.compute_s),
        )
        events.put(Finished(generated.reason, generated.usage, stages, first_token_s))

    async def _generate(
        self, request: GenerationRequest, events: EventBuffer[AnswerEvent], reason: GivenUp
    ) -> Generated:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Generated] = loop.create_future()

        def end(event: Generated | GenerationFailed) -> None:
            if done.done():
                return
            if isinstance(event, Generated):
                done.set_result(event)
            else:
                done.set_exception(event.error)

        def listen(event: GenerationEvent) -> None:
            if isinstance(event, Generated | GenerationFailed):
                loop.call_soon_threadsafe(end, event)
            else:
                events.put(event)

        submitting = asyncio.ensure_future(asyncio.to_thread(self._generator.submit, request, listen))
        try:
            events.admitted(await asyncio.shield(submitting))
            return await done
        except asyncio.CancelledError:
            submitting.add_done_callback(lambda submitted: _cancel_admitted(submitted, reason.why))
            raise

    async def _retrieve(self, request: RetrievalRequest, deadline: float | None, trace: CallTrace) -> Timed[Retrieved]:
        with trace.stage("retriever") as span:
            retrieved = await self._within("retriever", self._retrieving.submit(request, deadline), deadline)
            span.note(times(retrieved.queue_s, retrieved.compute_s))
            span.note({"edge_rag.passages": len(retrieved.value.hits)})
            return retrieved

    async def _rerank(
        self, question: str, retrieved: Retrieved, limit: int, context: RequestContext, trace: CallTrace
    ) -> Timed[Reranked]:
        request, deadline = RerankRequest(question, retrieved, limit, context), context.deadline
        with trace.stage("reranker") as span:
            ranked = await self._within("reranker", self._reranking.submit(request, deadline), deadline)
            span.note(times(ranked.queue_s, ranked.compute_s))
            span.note({"edge_rag.passages": len(ranked.value.passages), "edge_rag.evidence": ranked.value.evidence})
            return ranked

    async def _within(self, stage: str, future: Future[Timed[Out]], deadline: float | None) -> Timed[Out]:
        try:
            async with asyncio.timeout_at(self._loop_time(deadline)):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise DeadlineExceeded(stage) from None

    def _loop_time(self, deadline: float | None) -> float | None:
        if deadline is None:
            return None
        return asyncio.get_running_loop().time() + (deadline - self._clock())


def _noted(generated: Generated) -> dict[str, Note]:
    """Returns what the generator's span has, under the names of OpenTelemetry's conventions where there are any."""
    usage = generated.usage
    noted: dict[str, Note] = {
        **times(generated.queue_s, generated.compute_s),
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.generated_tokens,
        "edge_rag.cached_prompt_tokens": usage.cached_prompt_tokens,
        "edge_rag.copied_prompt_tokens": usage.copied_prompt_tokens,
        "edge_rag.model_steps": usage.model_steps,
        "edge_rag.finish_reason": generated.reason.value,
    }
    if generated.first_token_s is not None:
        noted["edge_rag.first_token_seconds"] = generated.first_token_s
    return noted


def _generation(query: Query, retrieved: Retrieved, ranked: Reranked) -> GenerationRequest:
    """Returns what the generator is asked."""
    return GenerationRequest(
        request_id=query.request_id,
        question=query.question,
        passages=ranked.passages,
        evidence=ranked.evidence,
        mode=query.mode,
        max_sentences=query.max_sentences,
        sampling=query.sampling,
        priority=query.priority,
        client=query.client,
        trust_domain=query.collection,
        deadline=query.deadline,
        format=query.format,
        epoch=retrieved.epoch,
        offload=retrieved.offload,
        kv_reuse=retrieved.kv_reuse,
    )


def _explained(query: SearchQuery, retrieved: Retrieved, found: Sequence[RankedPassage]) -> tuple[Explanation, ...]:
    if not query.explain:
        return ()
    places = {hit.passage.chunk_id: (hit, rank) for rank, hit in enumerate(retrieved.hits, start=1)}
    return tuple(Explanation(*places[each.passage.chunk_id], each.score if query.rerank else None) for each in found)


def _cancel_admitted(submitting: asyncio.Future[GenerationHandle], why: EdgeRagError | None) -> None:
    if submitting.exception() is None:
        submitting.result().cancel(why)
