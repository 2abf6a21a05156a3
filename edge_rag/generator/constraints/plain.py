"""Constraints without an answer format: any text, and none."""

from __future__ import annotations

from dataclasses import dataclass

from edge_rag.core.answer import FinishReason
from edge_rag.engine.constraint import AnyToken, Ended, NextTokens


@dataclass(frozen=True, slots=True)
class FreeText:
    """Any text, until the model ends it."""

    end_tokens: frozenset[int]
    ended: bool = False

    def next(self) -> NextTokens:
        return Ended(FinishReason.STOP) if self.ended else AnyToken()

    def after(self, tokens: tuple[int, ...]) -> FreeText:
        """Returns the constraint after these tokens."""
        return FreeText(self.end_tokens, self.ended or not self.end_tokens.isdisjoint(tokens))


@dataclass(frozen=True, slots=True)
class NoGeneration:
    """Nothing: the request ends without a model step."""

    reason: FinishReason

    def next(self) -> NextTokens:
        return Ended(self.reason)

    def after(self, tokens: tuple[int, ...]) -> NoGeneration:
        return self
