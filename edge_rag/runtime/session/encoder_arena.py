"""Whether an encoder's session keeps the memory of its intermediate results between runs."""

from __future__ import annotations

import onnxruntime as ort


class EncoderArena:
    """A switch. Any thread; the session's runs ask it each time.

    ONNX Runtime's arena grows to what the largest run needed and keeps that, so that runs need not ask the system for
    memory. Where memory is short it can be told to give back after a run what the run did not find there.
    """

    def __init__(self) -> None:
        self._options: ort.RunOptions | None = None

    @property
    def options(self) -> ort.RunOptions | None:
        """What a run is to be given; None for the usual."""
        return self._options

    def keep(self, keep: bool) -> None:
        """Says whether memory is kept, from the next run on."""
        if keep:
            self._options = None
            return
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._options = options
