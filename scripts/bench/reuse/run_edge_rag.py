"""This project's engine under questions over passages: with its prefix cache alone, or copying passages as well."""

from __future__ import annotations

import argparse
import queue

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.ids import RequestId
from edge_rag.core.query import Priority, Sampling
from edge_rag.engine.constraint import FreeText
from edge_rag.engine.engine import Engine, EngineSettings
from edge_rag.engine.kv_cache.page_copy import PassageSpan
from edge_rag.engine.ports import Outcome
from edge_rag.engine.request import TokenRequest
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import EdgeRagError
from edge_rag.generator.prompt.template import passage_spans
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.workload import Trace
from scripts.bench.reuse.serving import program

_STEP_TOKENS = 512


class _Sink:
    """Tells the server about one request."""

    def __init__(self, number: int, said: queue.SimpleQueue[tuple[int, bool] | EdgeRagError]) -> None:
        self._number, self._said = number, said

    def extend(self, tokens: tuple[int, ...]) -> bool:
        self._said.put((self._number, False))
        return False

    def finish(self, outcome: Outcome) -> None:
        self._said.put((self._number, True))

    def fail(self, error: EdgeRagError) -> None:
        self._said.put(error)


class EdgeRagServer:
    """An engine on a thread of its own."""

    def __init__(self, arguments: argparse.Namespace, trace: Trace) -> None:
        configure_thread_pool(arguments.threads)
        pages = (arguments.cache_mib << 20) // read_geometry(arguments.model).page_bytes
        decoder = PagedDecoder.open(arguments.model, pages)
        slots = arguments.slots
        self._engine = Engine(
            decoder, EngineSettings(SchedulerLimits(slots, _STEP_TOKENS, _STEP_TOKENS - slots), max_waiting=10_000)
        )
        self._said: queue.SimpleQueue[tuple[int, bool] | EdgeRagError] = queue.SimpleQueue()
        self._trace, self._page_tokens = trace, decoder.page_tokens
        self._recompute: int | None = arguments.recompute
        self._engine.start()

    def submit(self, number: int, prompt: NDArray[np.int64], answer_tokens: int) -> None:
        """Takes a request."""
        request = TokenRequest(
            request_id=RequestId(str(number)),
            prompt=tuple(prompt.tolist()),
            constraint=FreeText(frozenset()),
            sampling=Sampling(max_tokens=answer_tokens),
            priority=Priority.NORMAL,
            client="bench",
            trust_domain="bench",
            deadline=None,
            spans=self._spans(prompt),
        )
        self._engine.submit(request, _Sink(number, self._said))

    def _spans(self, prompt: NDArray[np.int64]) -> tuple[PassageSpan, ...]:
        if self._recompute is None:
            return ()
        trace = self._trace
        middle = prompt[trace.system_tokens : -trace.question_tokens]
        texts = middle.reshape(-1, trace.passage_tokens).tolist()
        return passage_spans(prompt.tolist(), trace.system_tokens, texts, texts, self._page_tokens, self._recompute)

    def turn(self, wait_s: float) -> list[tuple[int, bool]]:
        """Waits for tokens."""
        try:
            said = self._said.get(timeout=wait_s) if wait_s > 0 else self._said.get_nowait()
        except queue.Empty:
            return []
        if isinstance(said, EdgeRagError):
            raise said
        return [said]


if __name__ == "__main__":
    program(__doc__, EdgeRagServer)
