"""What the engine needs of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.answer import FinishReason, Usage
from edge_rag.core.monitoring.event import AuditEvent
from edge_rag.core.monitoring.metrics import RequestReport, StepReport
from edge_rag.errors import EdgeRagError
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
            float32 [R, V], logits of the tokens in ``step.logits_indices``; good until the next call.

        Raises:
            InferenceFailed: The runtime failed; pages the step was to write hold anything.
        """
        ...

    def copy_page(self, source: int, target: int) -> None:
        """Copies a page's content, in all layers."""
        ...

    def release_pages(self, pages: Sequence[int]) -> None:
        """Gives the memory of pages back to the system where it can; what was in them is lost, and they stay usable."""
        ...

    def move_tokens(self, sources: NDArray[np.int64], targets: NDArray[np.int64], distance: int) -> None:
        """Copies tokens to other slots, as they would be at later positions of a text that begins otherwise.

        Args:
            sources: int64 [n], slots (``page * page_tokens + offset``) that hold them.
            targets: int64 [n], slots where they go; none twice, and none a source.
            distance: How many positions later they stand there, at least 0.

        Raises:
            InferenceFailed: It cannot be done.
        """
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended well.

    Attributes:
        reason: Why it ended.
        usage: What it used.
        queue_s: From submission to the first slot, seconds.
        compute_s: From the first slot to the end, seconds.
    """

    reason: FinishReason
    usage: Usage
    queue_s: float
    compute_s: float


class TokenSink(Protocol):
    """Where a request's tokens go. Called on the engine's thread, must return at once; the last call is ``finish`` or
    ``fail``, exactly one of them, exactly once."""

    def extend(self, tokens: tuple[int, ...]) -> bool:
        """Takes the next tokens; returns True if the answer ends here, whatever the model would say."""
        ...

    def finish(self, outcome: Outcome) -> None:
        """The request ended well."""
        ...

    def fail(self, error: EdgeRagError) -> None:
        """The request ended badly."""
        ...


class Stemmer(Protocol):
    """Compares words by their stems. For one thread at a time."""

    def stems(self, text: str) -> list[str]:
        """Returns the stem of every word of a text, in order."""
        ...


class StepObserver(Protocol):
    """Watches the engine. Called on its thread, must return at once and not raise."""

    def on_step(self, report: StepReport) -> None:
        """A step was done, or failed."""
        ...

    def on_request(self, report: RequestReport) -> None:
        """A request is over; it holds nothing any more."""
        ...

    def on_turn(self) -> None:
        """The loop went round, with work or without; where this stays away before the end, the engine hangs."""
        ...

    def on_end(self) -> None:
        """The loop is over."""
        ...


class Unobserved:
    """Watches nothing."""

    def on_step(self, report: StepReport) -> None:
        """Does nothing."""

    def on_request(self, report: RequestReport) -> None:
        """Does nothing."""

    def on_turn(self) -> None:
        """Does nothing."""

    def on_end(self) -> None:
        """Does nothing."""


class Unrecorded:
    """Keeps no trail."""

    def record(self, event: AuditEvent) -> None:
        """Does nothing."""
