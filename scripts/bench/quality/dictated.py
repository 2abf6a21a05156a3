"""A text that is dictated to an engine, and what each of its tokens costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.answer import FinishReason
from edge_rag.engine.constraint import Ended, NextTokens, OneOf
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from scripts.bench.engine.passing_decoder import PassingDecoder


@dataclass(frozen=True, slots=True)
class DictatedText:
    """Says one text, and asks the model about each token of it."""

    left: tuple[int, ...]

    def next(self) -> NextTokens:
        """The next token, against another that has no chance."""
        if not self.left:
            return Ended(FinishReason.STOP)
        pair = sorted((self.left[0], 0 if self.left[0] else 1))
        bias = np.where(np.array(pair) == self.left[0], 1e9, 0).astype(np.float32)
        return OneOf(np.array(pair, np.int64), bias)

    def after(self, tokens: tuple[int, ...]) -> DictatedText:
        """What is left to say."""
        return DictatedText(self.left[len(tokens) :])


class ScoringDecoder(PassingDecoder):
    """A decoder that notes what each token of a dictated text costs."""

    def __init__(self, decoder: PagedDecoder) -> None:
        super().__init__(decoder)
        self.dictated: list[int] = []
        self.losses: list[float] = []

    def run(self, step: PackedStep) -> NDArray[np.float32]:
        """Computes a step; see ``ModelRunner``."""
        logits = super().run(step)
        if self.dictated and len(logits):
            row = logits[0].astype(np.float64)
            token = self.dictated.pop(0)
            self.losses.append(float(np.log(np.exp(row - row.max()).sum()) + row.max() - row[token]))
        return logits
