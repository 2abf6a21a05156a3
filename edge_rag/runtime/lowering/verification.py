"""Runs a decoder over a known text (teacher forcing), to compare its logits."""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge_rag.runtime.decoder.model_input import PackedStep

_CHUNK = 48


class StepRunner(Protocol):
    """A decoder over pages."""

    @property
    def page_tokens(self) -> int:
        """Tokens a page holds."""
        ...

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        """Runs a step; returns the requested logits."""
        ...


def teacher_forced_logits(decoder: StepRunner, token_ids: NDArray[np.int64], prompt_tokens: int) -> NDArray[np.float32]:
    """Runs a known text on the decoder's first pages.

    Args:
        token_ids: int64 [n].
        prompt_tokens: Tokens of the prefill, at least 1 and at most n; each other token is a step of its own.

    Returns:
        float32 [n, vocabulary], the logits after each token.
    """
    pages = -(-token_ids.size // decoder.page_tokens)
    table = np.arange(pages, dtype=np.int32)[None]
    bounds = [*range(0, prompt_tokens, _CHUNK), *range(prompt_tokens, token_ids.size + 1)]
    found = []
    for first, last in pairwise(bounds):
        positions = np.arange(first, last, dtype=np.int32)
        step = PackedStep(
            input_ids=token_ids[first:last],
            positions=positions,
            slot_mapping=positions,
            cumulative_sequence_lengths=np.array([0, last - first], np.int32),
            block_table=table[:, : -(-last // decoder.page_tokens)],
            logits_indices=np.arange(last - first, dtype=np.int64),
        )
        found.append(decoder.run(step).copy())
    return np.concatenate(found)
