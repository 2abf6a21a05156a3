"""What the engine counts, and its state as a value."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge_rag.engine.kv_cache.disk.tier import DiskCounts


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """The engine at a step boundary; counts are since it was made.

    Attributes:
        slots: Slots there are.
        running: Slots taken.
        waiting: Requests that have had no slot yet.
        capacity: Most requests that may wait.
        pages: Pages there are.
        pages_held: Pages that sequences hold.
        pages_cached: Pages nobody holds whose content can still be used.
        steps: Model runs.
        prefill_tokens: Tokens computed in parts of more than one.
        decode_tokens: Tokens computed one at a time.
        generated_tokens: Tokens said, forced ones included.
        preemptions: Times a sequence gave way.
        completed: Requests that ended well.
        failed: Requests that ended badly, cancelled ones included.
        refused: Requests turned away because too many waited.
        disk: What became of pages on disk; None where none are kept.
    """

    slots: int
    running: int
    waiting: int
    capacity: int
    pages: int
    pages_held: int
    pages_cached: int
    steps: int
    prefill_tokens: int
    decode_tokens: int
    generated_tokens: int
    preemptions: int
    completed: int
    failed: int
    refused: int
    disk: DiskCounts | None = None

    def counted_on(self, earlier: EngineSnapshot) -> EngineSnapshot:
        """Returns this state with the counts of another engine that came before added."""
        return replace(
            self,
            steps=self.steps + earlier.steps,
            prefill_tokens=self.prefill_tokens + earlier.prefill_tokens,
            decode_tokens=self.decode_tokens + earlier.decode_tokens,
            generated_tokens=self.generated_tokens + earlier.generated_tokens,
            preemptions=self.preemptions + earlier.preemptions,
            completed=self.completed + earlier.completed,
            failed=self.failed + earlier.failed,
            refused=self.refused + earlier.refused,
        )


@dataclass(slots=True)
class Counts:
    """Counts since the engine was made; the engine's thread writes, any may read."""

    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    completed: int = 0
    failed: int = 0
