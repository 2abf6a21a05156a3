"""The query path: retrieve, rerank, generate. Stages of different questions overlap."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from edge_rag.core.answer import (
    AnswerEvent,
    Finished,
    FinishReason,
    NearestPassage,
    PassagesFound,
    StageTime,
)
from edge_rag.core.generation import CompletionRequest, Generated, GenerationEvent, GenerationFailed, GenerationRequest
from edge_rag.core.monitoring.status import StageSnapshot
from edge_rag.core.passage import (
    Explanation,
    Passage,
    RankedPassage,
    Reranked,
    RerankRequest,
    RetrievalRequest,
    Retrieved,
    Surroundings,
    relevances,
)
from edge_rag.core.ports import AuditSink
from edge_rag.core.query import AnswerMode, Query, RequestContext, SearchQuery
from edge_rag.errors import DeadlineExceeded, EdgeRagError, SlowConsumer
from edge_rag.pipeline.cost import (
    RERANK_BATCH,
    RERANK_STEP,
    RETRIEVAL_BATCH,
    TOKEN_CHARACTERS,
    RetrievalCosts,
    rerank_cost,
)
from edge_rag.pipeline.event_buffer import EventBuffer
from edge_rag.pipeline.ports import GenerationHandle, Generator, Reranker, StepwiseReranker
from edge_rag.pipeline.stage import Stage, StageEventRecorder, Timed, WorkLimit
from edge_rag.pipeline.yield_to_queries import IngestYield
from edge_rag.reranker.nearest import nearest_passages
from edge_rag.retriever.hybrid import HybridRetriever
from edge_rag.telemetry.metrics.calls import UNTRACED, AttributeValue, CallTrace, times

EVENT_BUFFER: Final = 64
"""Unread events of an answer at which its generation is paused."""

In = TypeVar("In")
Out = TypeVar("Out")


QUEUE: Final = 256
"""Questions that may wait for the retriever, and for the reranker."""

QUESTIONS_EMBEDDED: Final = 16
"""Questions embedded at once."""

QUESTIONS_RERANKED: Final = 4
"""Questions scored at once, where memory allows."""

CANDIDATES: Final = 20
"""Passages passed to the reranker."""


@dataclass(frozen=True, slots=True)
class StageLimits:
    """Bounds of the batch stages and of each answer's event buffer.

    Attributes:
        event_buffer: Unread events of an answer at which its generation is paused, at least 2.
    """

    retriever_queue: int = QUEUE
    retriever_batch: int = QUESTIONS_EMBEDDED
    reranker_queue: int = QUEUE
    reranker_batch: int = QUESTIONS_RERANKED
    candidates: int = CANDIDATES
    event_buffer: int = EVENT_BUFFER


@dataclass(slots=True)
class _Shared:
    """State that the stream of a request and its task share.

    Attributes:
        reason: Why the request is cancelled; None for the caller's own decision.
    """

    reason: EdgeRagError | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search.

    Attributes:
        passages: Best first.
        candidates: Passages that the reranker compared with the question; none if it did not run.
        explanations: How each passage got its rank; empty unless requested.
        relevances: For each passage a number of 0 to 1 that does not grow from one to the next: of a reranked search
            see ``core.passage.relevances``, else the share of the best score that fusion gives, at most 1.
        standalone_question: The question, completed from earlier turns, which was searched for as well; None if
            it is complete.
        did_you_mean: The question with misspelled words as the documents spell them, which was searched for as well;
            None if nothing is misspelled.
    """

    passages: tuple[RankedPassage, ...]
    stages: tuple[StageTime, ...]
    candidates: tuple[Passage, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    relevances: tuple[float, ...] = ()
    standalone_question: str | None = None
    did_you_mean: str | None = None


class AnswerStream:
    """The events of one answer in order. Ends after ``Finished`` or raises the error of the request."""

    def __init__(self, task: asyncio.Task[None], events: EventBuffer[AnswerEvent], shared: _Shared) -> None:
        self._task = task
        self._events = events
        self._shared = shared

    def cancel(self, reason: EdgeRagError | None = None) -> None:
        """Ends the request in whichever stage it is; idempotent.

        Args:
            reason: Recorded in the audit log; None for a cancellation by the caller.
        """
        if not self._task.done():
            self._shared.reason = self._shared.reason or reason
            self._task.cancel()

    async def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        while (event := await self._events.get()) is not None:
            if self._failed_as_slow_consumer():
                break
            yield event
        await self._task

    def _failed_as_slow_consumer(self) -> bool:
        return self._task.done() and not self._task.cancelled() and isinstance(self._task.exception(), SlowConsumer)


class Pipeline:
    """The query path. Used from one event loop.

    Args:
        clock: Monotonic seconds.
        ingest_yield: Counts the questions in flight; None for a private count.
        busy: Returns a context manager that is entered while the named stage computes a batch.
    """

    def __init__(
        self,
        retriever: HybridRetriever,
        reranker: Reranker,
        generator: Generator,
        limits: StageLimits,
        audit: AuditSink,
        clock: Callable[[], float] = time.monotonic,
        ingest_yield: IngestYield | None = None,
        busy: Callable[[str], AbstractContextManager[None]] = lambda stage: nullcontext(),
        surroundings: Callable[[Passage], Surroundings | None] = lambda passage: None,
    ) -> None:
        self._surroundings = surroundings
        self._ingest_yield = ingest_yield or IngestYield(clock)
        self._generator = generator
        self._candidates = limits.candidates
        self._event_buffer = limits.event_buffer
        self._clock = clock
        self._recorder = StageEventRecorder(audit, clock)
        self._retrieval_costs = RetrievalCosts()
        self._retrieving: Stage[RetrievalRequest, Retrieved] = Stage(
            "retriever",
            retriever.retrieve,
            limits.retriever_queue,
            limits.retriever_batch,
            clock,
            partial(busy, "retriever"),
            WorkLimit(self._retrieval_costs.cost, RETRIEVAL_BATCH),
        )
        self._reranking: Stage[RerankRequest, Reranked] = Stage(
            "reranker",
            reranker.rerank,
            limits.reranker_queue,
            limits.reranker_batch,
            clock,
            partial(busy, "reranker"),
            _rerank_limit(reranker),
        )
        self._preparing: Stage[Callable[[], object], object] = Stage(
            "generator", lambda calls: [call() for call in calls], limits.retriever_queue, 1, clock
        )

    def ask(self, query: Query, trace: CallTrace = UNTRACED) -> AnswerStream:
        events, shared = EventBuffer[AnswerEvent](asyncio.get_running_loop(), self._event_buffer), _Shared()
        answering = self._answer(query, events, shared, trace)
        task = asyncio.create_task(answering, name=f"ask-{query.request_id}")
        task.add_done_callback(lambda _: events.end())
        return AnswerStream(task, events, shared)

    def complete(
        self,
        request: CompletionRequest,
        submit: Callable[[Callable[[GenerationEvent], None]], GenerationHandle],
        trace: CallTrace = UNTRACED,
    ) -> AnswerStream:
        """Starts continuing a conversation; the trace gets a span of the generator."""
        events, shared = EventBuffer[AnswerEvent](asyncio.get_running_loop(), self._event_buffer), _Shared()
        context = RequestContext(request.request_id, request.client, request.priority, request.deadline)

        async def complete() -> None:
            with self._ingest_yield.query(), trace.stage("generator") as span:
                generated = await self._generate(submit, context, events, shared)
                span.note(_span_attributes(generated))
            stage = StageTime("generator", generated.queue_s, generated.compute_s)
            events.put(Finished(generated.reason, generated.usage, (stage,), generated.first_token_s))

        task = asyncio.create_task(complete(), name=f"complete-{request.request_id}")
        task.add_done_callback(lambda _: events.end())
        return AnswerStream(task, events, shared)

    async def search(self, query: SearchQuery, trace: CallTrace = UNTRACED) -> SearchResult:
        with self._ingest_yield.query():
            return await self._search(query, trace)

    async def _search(self, query: SearchQuery, trace: CallTrace) -> SearchResult:
        candidates = max(query.limit, self._candidates)
        context = RequestContext(query.request_id, query.client, query.priority, query.deadline)
        request = RetrievalRequest(
            query.query, query.collection, candidates, query.filter, query.explain, context, query.turns
        )
        retrieved = await self._retrieve(request, trace)
        wordings = _other_wordings(retrieved.value)
        stages = [StageTime("retriever", retrieved.queue_s, retrieved.compute_s)]
        if not query.rerank:
            found = tuple(RankedPassage(hit.passage, hit.score, ()) for hit in retrieved.value.hits[: query.limit])
            best = retrieved.value.best_score
            shares = tuple(min(each.score / best, 1.0) if best > 0 else 0.0 for each in found)
            return SearchResult(found, tuple(stages), (), _explained(query, retrieved.value, found), shares, *wordings)
        ranked = await self._rerank(query.query, retrieved.value, query.limit, context, trace)
        stages.append(StageTime("reranker", ranked.queue_s, ranked.compute_s))
        found = ranked.value.passages
        compared = tuple(hit.passage for hit in retrieved.value.hits)
        explained = _explained(query, retrieved.value, found)
        shares = relevances(found, ranked.value.evidence)
        return SearchResult(found, tuple(stages), compared, explained, shares, *wordings)

    async def rerank(self, request: RerankRequest, deadline: float | None) -> Timed[Reranked]:
        """Orders the passages of another box, in the same queue as this box's questions.

        Args:
            deadline: Seconds on the clock, or None.
        """
        context = replace(request.context, deadline=deadline)
        return await self._run("reranker", self._reranking, request, context)

    def snapshots(self) -> tuple[StageSnapshot, ...]:
        """Returns the counts of the batch stages, in pipeline order."""
        return self._retrieving.snapshot(), self._reranking.snapshot()

    def close(self) -> None:
        self._retrieving.close()
        self._reranking.close()
        self._preparing.close()

    async def _answer(self, query: Query, events: EventBuffer[AnswerEvent], shared: _Shared, trace: CallTrace) -> None:
        with self._ingest_yield.query():
            await self._run_stages(query, events, shared, trace)

    async def _run_stages(
        self, query: Query, events: EventBuffer[AnswerEvent], shared: _Shared, trace: CallTrace
    ) -> None:
        started = self._clock()
        context = RequestContext(query.request_id, query.client, query.priority, query.deadline)
        with self._recorder.failures(query, "retriever"):
            retrieval = RetrievalRequest(
                query.question,
                query.collection,
                self._candidates,
                query.filter,
                context=context,
                turns=query.turns,
            )
            retrieved = await self._retrieve(retrieval, trace)
        self._recorder.completed(query, "retriever", retrieved)
        with self._recorder.failures(query, "reranker"):
            ranked = await self._rerank(query.question, retrieved.value, query.passages, context, trace)
        self._recorder.completed(query, "reranker", ranked)
        standalone, did_you_mean = _other_wordings(retrieved.value)
        found = PassagesFound(
            ranked.value.passages,
            ranked.value.evidence,
            query.mode,
            standalone_question=standalone,
            did_you_mean=did_you_mean,
        )
        events.put(found)
        before_generator = self._clock() - started
        request = _generation_request(query, retrieved.value, ranked.value)
        with trace.stage("generator") as span:
            generated = await self._generate(partial(self._submit, request), context, events, shared)
            span.note(_span_attributes(generated))
        first_token_s = None if generated.first_token_s is None else before_generator + generated.first_token_s
        stages = (
            StageTime("retriever", retrieved.queue_s, retrieved.compute_s),
            StageTime("reranker", ranked.queue_s, ranked.compute_s),
            StageTime("generator", generated.queue_s, generated.compute_s),
        )
        nearest: tuple[NearestPassage, ...] = ()
        if generated.reason is FinishReason.NOT_FOUND:
            judged = generated.prompt_passages is None  # no model was asked
            nearest = nearest_passages(request.question, retrieved.value.term_weights, ranked.value, judged)
        reason, usage, given = generated.reason, generated.usage, generated.prompt_passages
        events.put(Finished(reason, usage, stages, first_token_s, nearest, given, generated.conflicts))

    def _submit(self, request: GenerationRequest, listener: Callable[[GenerationEvent], None]) -> GenerationHandle:
        if request.mode is AnswerMode.QUOTE:
            passages = tuple(
                replace(each, passage=replace(each.passage, surroundings=self._surroundings(each.passage)))
                for each in request.passages
            )
            request = replace(request, passages=passages)
        return self._generator.submit(request, listener)

    async def _generate(
        self,
        submit_to: Callable[[Callable[[GenerationEvent], None]], GenerationHandle],
        context: RequestContext,
        events: EventBuffer[AnswerEvent],
        shared: _Shared,
    ) -> Generated:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Generated] = loop.create_future()

        def finish(event: Generated | GenerationFailed) -> None:
            if done.done():
                return
            if isinstance(event, Generated):
                done.set_result(event)
            else:
                done.set_exception(event.error)

        def on_event(event: GenerationEvent) -> None:
            if isinstance(event, Generated | GenerationFailed):
                loop.call_soon_threadsafe(finish, event)
            else:
                events.put(event)

        def submit() -> None:
            handles.append(submit_to(on_event))

        def cancel() -> None:
            for handle in handles:
                handle.cancel(shared.reason)

        handles: list[GenerationHandle] = []
        submitting = self._preparing.submit(submit, context.deadline, context)
        try:
            await asyncio.wrap_future(submitting)
            events.attach(handles[0])
            return await done
        except asyncio.CancelledError:
            submitting.add_done_callback(lambda _: cancel())
            raise

    async def _retrieve(self, request: RetrievalRequest, trace: CallTrace) -> Timed[Retrieved]:
        with trace.stage("retriever") as span:
            retrieved = await self._run("retriever", self._retrieving, request, request.context)
            self._retrieval_costs.learn(request, retrieved.value)
            span.note(times(retrieved.queue_s, retrieved.compute_s))
            span.note({"edge_rag.passages": len(retrieved.value.hits)})
            return retrieved

    async def _rerank(
        self, question: str, retrieved: Retrieved, limit: int, context: RequestContext, trace: CallTrace
    ) -> Timed[Reranked]:
        request = RerankRequest(retrieved.excerpt or question, retrieved, limit, context)
        with trace.stage("reranker") as span:
            ranked = await self._run("reranker", self._reranking, request, context)
            span.note(times(ranked.queue_s, ranked.compute_s))
            span.note({"edge_rag.passages": len(ranked.value.passages), "edge_rag.evidence": ranked.value.evidence})
            return ranked

    async def _run(self, name: str, stage: Stage[In, Out], request: In, context: RequestContext) -> Timed[Out]:
        try:
            async with asyncio.timeout_at(self._loop_time(context.deadline)):
                return await asyncio.wrap_future(stage.submit(request, context.deadline, context))
        except TimeoutError:
            raise DeadlineExceeded(name) from None

    def _loop_time(self, deadline: float | None) -> float | None:
        if deadline is None:
            return None
        return asyncio.get_running_loop().time() + (deadline - self._clock())


def _rerank_limit(reranker: Reranker) -> WorkLimit[RerankRequest, Reranked]:
    if not isinstance(reranker, StepwiseReranker):
        return WorkLimit(rerank_cost, RERANK_BATCH)
    return WorkLimit(
        lambda request: rerank_cost(request, reranker.unread_characters(request)),
        RERANK_BATCH,
        lambda request: reranker.rerank_in_steps(request, RERANK_STEP * TOKEN_CHARACTERS),
    )


def _span_attributes(generated: Generated) -> dict[str, AttributeValue]:
    """Returns the attributes of the generator's span; OpenTelemetry's semantic conventions name the ``gen_ai`` ones."""
    usage = generated.usage
    attributes: dict[str, AttributeValue] = {
        **times(generated.queue_s, generated.compute_s),
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.generated_tokens,
        "edge_rag.cached_prompt_tokens": usage.cached_prompt_tokens,
        "edge_rag.copied_prompt_tokens": usage.copied_prompt_tokens,
        "edge_rag.model_steps": usage.model_steps,
        "edge_rag.finish_reason": generated.reason.value,
    }
    if generated.first_token_s is not None:
        attributes["edge_rag.first_token_seconds"] = generated.first_token_s
    return attributes


def _generation_request(query: Query, retrieved: Retrieved, ranked: Reranked) -> GenerationRequest:
    return GenerationRequest(
        request_id=query.request_id,
        question=query.question if retrieved.wordings is None else retrieved.wordings.main,
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
        turns=query.turns,
        term_weights=retrieved.term_weights,
    )


def _other_wordings(retrieved: Retrieved) -> tuple[str | None, str | None]:
    wordings = retrieved.wordings
    return (None, None) if wordings is None else (wordings.standalone, wordings.corrected)


def _explained(query: SearchQuery, retrieved: Retrieved, found: Sequence[RankedPassage]) -> tuple[Explanation, ...]:
    if not query.explain:
        return ()
    ranks = {hit.passage.chunk_id: (hit, rank) for rank, hit in enumerate(retrieved.hits, start=1)}
    return tuple(Explanation(*ranks[each.passage.chunk_id], each.score if query.rerank else None) for each in found)
