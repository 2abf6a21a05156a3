"""Drives the service layer over a real data directory and real models; run as a program, so that gRPC is not loaded."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from edge_rag.access.quotas import QuotaLedger
from edge_rag.access.tokens import TokenFile, new_token
from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.core.answer import Citation, Finished, FinishReason, PassagesFound, TextDelta
from edge_rag.core.documents.document import IngestOutcome, IngestStatus
from edge_rag.core.documents.jobs import Job, JobState
from edge_rag.core.identity import Identity, Quota, Role
from edge_rag.core.ids import RequestId
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.query import AnswerMode, Priority, Query, Sampling, SearchQuery
from edge_rag.engine.engine import EngineSettings
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.pipeline.ingest import Ingest, IngestObserver
from edge_rag.pipeline.ingest_policy import IngestLimits
from edge_rag.pipeline.pipeline import Pipeline, StageLimits
from edge_rag.pipeline.yield_to_queries import IngestYield
from edge_rag.reranker.max_sim import MaxSimReranker
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.service import ask, documents, jobs, status
from edge_rag.service.authentication import Authenticator, Credentials
from edge_rag.service.call import CallContext, CallFailed, CallRequest
from edge_rag.service.codes import Code
from edge_rag.service.documents import UploadEnd, UploadHeader, UploadPart
from edge_rag.service.lifecycle import Backend, Lifecycle
from edge_rag.service.limits import AnonymousPool, CallLimits, ConcurrencyLimiter, MessageBudget, Timeouts
from edge_rag.service.refusals import RefusalRecorder
from edge_rag.telemetry.activity import Latencies
from edge_rag.telemetry.audit_log import AuditLog
from edge_rag.telemetry.metrics.calls import Metrics
from edge_rag.telemetry.usage import UsageMeter
from tests.support.generators import SMALL, generator_over

MODELS = Path(__file__).parents[3] / "models"
WRITER = Identity("writer", frozenset({Role.READER, Role.WRITER}))
READER = Identity("reader", frozenset({Role.READER}), quota=Quota(requests_per_minute=1))


def open_backend(folder: Path, metrics: Metrics, audit: AuditLog, opened: ExitStack) -> Backend:
    embedder = TextEncoder.open(MODELS / "minilm-l6")
    settings = EngineSettings(SchedulerLimits(4, 96, 16), 8)
    generator = generator_over(SMALL, PagedDecoder.open(SMALL, 40), settings)
    engine = generator.engine
    engine.start()
    opened.callback(engine.close)
    directory = OpenDirectory(folder, embedder)
    opened.callback(directory.close)
    limits = StageLimits(8, 4, 8, 4, candidates=8, event_buffer=16)
    pipeline = Pipeline(directory.retriever, MaxSimReranker(embedder), generator, limits, audit)
    opened.callback(pipeline.close)
    observer = IngestObserver(metrics.ingested, UsageMeter().ingested)
    ingest = Ingest(
        directory.jobs, directory.library, observer, IngestYield().yield_to_queries, capacity=8, limits=IngestLimits()
    )
    opened.callback(ingest.close)
    others: dict[str, Any] = dict.fromkeys(Backend.__dataclass_fields__)
    return Backend(
        **others
        | {
            "pipeline": pipeline,
            "ingest": ingest,
            "library": directory.library,
            "documents": directory.documents,
            "spool": directory.spool,
            "files": directory.files,
            "attachments": directory.attachments,
            "document_bytes": 1 << 20,
            "audit": audit,
        }
    )


def request(token: str, request_id: str = "") -> CallRequest:
    return CallRequest(Credentials("ipv4:192.0.2.7:5000", tls=True, token=token), request_id)


async def upload(name: str, *content: bytes) -> AsyncIterator[UploadPart]:
    yield UploadHeader("default", name, "text/plain", {}, sum(map(len, content)))
    for piece in content:
        yield piece
    yield UploadEnd()


async def drive(calls: CallContext, audit: AuditLog, writer: str, reader: str) -> None:
    with calls.handle(documents.INGEST, request(writer)) as call:
        parts = upload("pump.txt", b"Grease both bearings every 2,000 hours. ", b"Use lithium grease, grade 2.")
        (outcome,) = [each async for each in documents.ingest(call, documents.receive(call, parts))]
        assert outcome.status is IngestStatus.ADDED

    with calls.handle(jobs.START_INGEST, request(writer)) as call:
        parts = upload("valve.txt", b"Close the drain valve before the pump is filled.")
        events = [each async for each in jobs.start_ingest(call, documents.receive(call, parts))]
        assert isinstance(events[0], Job)
        assert not any(isinstance(each, IngestOutcome) for each in events)
        pages = [page async for page in jobs.watch(call, events[0].job_id, 0)]
        assert pages[-1].job.state is JobState.FINISHED

    with calls.handle(ask.SEARCH, request(writer)) as call:
        search = SearchQuery(call.request_id, "drain valve", "default", 1, True, call.identity.name, call.deadline)
        (hit,) = (await ask.search(call, search)).passages
        assert hit.passage.document == "valve.txt"

    with calls.handle(ask.ASK, request(reader, "asked-once")) as call:
        question = "How often are the bearings greased?"
        query = Query(
            call.request_id,
            question,
            "default",
            AnswerMode.QUOTE,
            1,
            4,
            Sampling(),
            Priority.INTERACTIVE,
            call.identity.name,
            call.deadline,
        )
        async with ask.ask(call, query) as answer:
            received = [event async for event in answer]
    assert isinstance(received[0], PassagesFound)
    text = "".join(event.text for event in received if isinstance(event, TextDelta))
    assert "Grease both bearings every 2,000 hours." in text
    assert any(isinstance(event, Citation) for event in received)
    assert isinstance(received[-1], Finished)
    assert received[-1].reason is FinishReason.STOP

    assert refused(calls, reader, "asked-twice") is Code.RESOURCE_EXHAUSTED
    (entry,) = audit.entries(RequestId("asked-twice")).entries
    assert (entry.event.kind, entry.event.client) == (AuditEventKind.REFUSED, "reader")
    assert refused(calls, "no token", "unknown") is Code.UNAUTHENTICATED

    try:
        with calls.handle(status.BACKUP, request(writer)):
            raise AssertionError("a writer made a backup")
    except CallFailed as failed:
        assert failed.code is Code.PERMISSION_DENIED
        (entry,) = audit.entries(failed.request_id).entries
        assert entry.event.reason == "Backup: the client is not permitted"


def refused(calls: CallContext, token: str, request_id: str) -> Code:
    try:
        with calls.handle(ask.ASK, request(token, request_id)):
            raise AssertionError("the call was admitted")
    except CallFailed as failed:
        assert failed.request_id == request_id
        return failed.code


def main(folder: Path) -> None:
    tokens = TokenFile(folder / "tokens.toml")
    texts = []
    for identity in (WRITER, READER):
        token, text = new_token(identity, datetime.now(UTC), None)
        tokens.add(token)
        texts.append(text)
    metrics, audit = Metrics(CollectorRegistry(), Latencies()), AuditLog(1000)

    async def run() -> None:
        with ExitStack() as opened:
            lifecycle = Lifecycle()
            lifecycle.open(open_backend(folder / "data", metrics, audit, opened))
            calls = CallContext(
                lifecycle,
                Authenticator(tokens, None),  # type: ignore[arg-type]  # nothing pairs here
                QuotaLedger(),
                CallLimits(ConcurrencyLimiter(8), AnonymousPool(), MessageBudget(1 << 20)),
                Timeouts(60, 600),
                metrics,
                RefusalRecorder(audit),
            )
            await drive(calls, audit, *texts)
            lifecycle.drain()
            await asyncio.wait_for(lifecycle.drained(), 10)
            assert refused(calls, texts[0], "too-late") is Code.UNAVAILABLE

    asyncio.run(run())
    transport = {"grpc", "edge_rag.api", "edge_rag.wire", "edge_rag.client", "edge_rag.server"}
    assert not transport & sys.modules.keys(), sorted(transport & sys.modules.keys())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
