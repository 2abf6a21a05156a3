"""Ports of the engine: the model, the token sink, observers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.answer import FinishReason, Usage
from edge_rag.core.monitoring.event import AuditEvent
from edge_rag.core.monitoring.metrics import RequestReport, StepReport
from edge_rag.errors import EdgeRagError, InferenceFailed
from edge_rag.runtime.decoder.model_input import PackedStep


class ModelRunner(Protocol):
    """A model over a paged KV cache. Called by the engine's thread only."""

    @property
    def vocabulary_size(self) -> int:
        """Number of logits of a token."""
        ...

    @property
    def page_tokens(self) -> int:
        """Tokens a page holds."""
        ...

    @property
    def pages(self) -> int:
        """Pages in the cache."""
        ...

    @property
    def max_context(self) -> int:
        """Most tokens of one sequence."""
        ...

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens with which the model ends its turn; not empty."""
        ...

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        """Computes a step, writing its keys and values into their pages.

        Returns:
            float32 [R, V], logits of the tokens in ``step.logits_indices``; valid until the next call.

        Raises:
            InferenceFailed: The runtime failed; the content of the step's pages is undefined.
        """
        ...

    def release_pages(self, pages: Sequence[int]) -> None:
        """Returns the memory of pages to the system if it can; their content is lost, and they stay usable."""
        ...

    def move_tokens(self, sources: NDArray[np.int64], targets: NDArray[np.int64], distance: int) -> None:
        """Copies cached tokens to other slots and rotates their keys to later positions.

        Args:
            sources: int64 [n], slots (``page * page_tokens + offset``) that hold them.
            targets: int64 [n], slots to copy them to; none twice, and none a source.
            distance: Positions by which they move, at least 0.
        """
        ...


class NoModel:
    """A ``ModelRunner`` that has one page, one token and no model. Its methods do nothing, and ``run`` always fails."""

    vocabulary_size = 1
    page_tokens = 1
    pages = 1
    max_context = 1
    end_tokens = frozenset({0})

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        """Raises InferenceFailed: nothing may be generated."""
        raise InferenceFailed("there is no language model")

    def release_pages(self, pages: Sequence[int]) -> None:
        """Does nothing."""

    def move_tokens(self, sources: NDArray[np.int64], targets: NDArray[np.int64], distance: int) -> None:
        """Does nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a request that ended well.

    Attributes:
        queue_s: From submission to the first slot, seconds.
        compute_s: From the first slot to the end, seconds.
    """

    reason: FinishReason
    usage: Usage
    queue_s: float
    compute_s: float


class TokenSink(Protocol):
    """Receives a request's tokens. Called on the engine's thread, must return at once; the last call is ``finish`` or
    ``fail``, exactly one of them, exactly once."""

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Receives the next tokens; returns True to end the answer here."""
        ...

    def finish(self, outcome: Outcome) -> None:
        """The request ended well."""
        ...

    def fail(self, error: EdgeRagError) -> None:
        """The request ended badly."""
        ...


class StepObserver(Protocol):
    """Observes the engine. Called on its thread, must return at once and not raise."""

    def on_step(self, report: StepReport) -> None:
        """A step was committed, or failed."""
        ...

    def on_request(self, report: RequestReport) -> None:
        """A request is over and holds nothing any more."""
        ...

    def on_turn(self) -> None:
        """The loop began a turn, with work or without; if no turn begins, the engine hangs."""
        ...

    def on_end(self) -> None:
        """The loop ended."""
        ...


class Unobserved:
    """Observes nothing."""

    def on_step(self, report: StepReport) -> None:
        """Does nothing."""

    def on_request(self, report: RequestReport) -> None:
        """Does nothing."""

    def on_turn(self) -> None:
        """Does nothing."""

    def on_end(self) -> None:
        """Does nothing."""


class Unrecorded:
    """Discards audit events."""

    def record(self, event: AuditEvent) -> None:
        """Does nothing."""
