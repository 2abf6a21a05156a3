"""Constraints: what may come next, given what was said so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.answer import FinishReason


@dataclass(frozen=True, slots=True)
class AnyToken:
    """The whole vocabulary."""


@dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    """Some tokens.

    Attributes:
        allowed: int64 [n], token ids, ascending, at least two.
        bias: float32 [n], added to their logits; zeros where there is nothing to prefer.
    """

    allowed: NDArray[np.int64]
    bias: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Masked:
    """Many tokens, none preferred.

    Attributes:
        allowed: bool [V], whether the token of that id is one of them; true at least twice.
    """

    allowed: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Forced:
    """The only run that can follow; at least one token. It is said without asking the model."""

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing follows."""

    reason: FinishReason


ModelMove = AnyToken | OneOf | Masked
"""The model chooses."""

Move = ModelMove | Forced | Ended


class Constraint(Protocol):
    """What may be said, as an immutable value: taking tokens gives the constraint on what follows them.

    States that came from one another may share work behind the scenes, so they belong to one thread at a time. Each
    method may raise an ``EdgeRagError``; it ends the request whose constraint it is, and no other.
    """

    def next(self) -> Move:
        """Returns what may come next."""
        ...

    def after(self, tokens: tuple[int, ...]) -> Constraint:
        """Returns the constraint once these tokens were said; each must have been allowed."""
        ...


@dataclass(frozen=True, slots=True)
class FreeText:
    """Any text, until the model ends it.

    Attributes:
        end_tokens: Tokens that end it.
        ended: Whether one was said.
    """

    end_tokens: frozenset[int]
    ended: bool = False

    def next(self) -> Move:
        """Returns the whole vocabulary, or the end."""
        return Ended(FinishReason.STOP) if self.ended else AnyToken()

    def after(self, tokens: tuple[int, ...]) -> FreeText:
        """Watches for an end token."""
        return FreeText(self.end_tokens, self.ended or not self.end_tokens.isdisjoint(tokens))


@dataclass(frozen=True, slots=True)
class NoGeneration:
    """Nothing at all: the request is over before it begins.

    Attributes:
        reason: Why.
    """

    reason: FinishReason

    def next(self) -> Move:
        """Returns the end."""
        return Ended(self.reason)

    def after(self, tokens: tuple[int, ...]) -> NoGeneration:
        """Returns itself."""
        return self
