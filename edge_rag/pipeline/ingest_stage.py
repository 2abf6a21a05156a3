"""Documents on their way in: one at a time, behind a bounded queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from edge_rag.core.documents.document import IngestOutcome, Upload
from edge_rag.core.monitoring.status import StageSnapshot
from edge_rag.errors import EdgeRagError
from edge_rag.pipeline.ports import DocumentLibrary
from edge_rag.pipeline.stage import Stage
from edge_rag.telemetry.tracing import UNTRACED, CallTrace, times


class Ingesting:
    """The ingest stage.

    Args:
        library: Keeps the documents.
        capacity: Most documents that may wait.
        observe: Told of every outcome, on the stage's thread.
    """

    def __init__(self, library: DocumentLibrary, capacity: int, observe: Callable[[IngestOutcome], None]) -> None:
        self._library = library
        self._observe = observe
        self._stage: Stage[Upload, IngestOutcome] = Stage("ingest", self._ingest, capacity, max_batch=1)

    async def ingest(self, upload: Upload, trace: CallTrace = UNTRACED) -> IngestOutcome:
        """Takes one document; when this returns anything but REJECTED, the document is durable.

        Args:
            upload: The document.
            trace: Gets the span of the stage.

        Raises:
            Overloaded: Too many documents wait.
            StorageError: The data directory failed.
            NotReady: The daemon is shutting down.
        """
        with trace.stage("ingest") as span:
            timed = await asyncio.wrap_future(self._stage.submit(upload, deadline=None))
            span.note(times(timed.queue_s, timed.compute_s))
            span.note({"edge_rag.outcome": timed.value.status.value, "edge_rag.bytes": len(upload.content)})
            return timed.value

    def snapshot(self) -> StageSnapshot:
        """Returns the stage's counts."""
        return self._stage.snapshot()

    def close(self) -> None:
        """Lets the document in work finish and fails those that wait with NotReady."""
        self._stage.close()

    def _ingest(self, uploads: Sequence[Upload]) -> list[IngestOutcome | Exception]:
        results: list[IngestOutcome | Exception] = []
        for upload in uploads:
            try:
                outcome = self._library.ingest(upload)
            except EdgeRagError as error:
                results.append(error)
            else:
                self._observe(outcome)
                results.append(outcome)
        return results
