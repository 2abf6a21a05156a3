"""Constraints: which tokens may come next, given those generated so far."""

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
        bias: float32 [n], added to their logits.
    """

    allowed: NDArray[np.int64]
    bias: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Masked:
    """Many tokens, without bias.

    Attributes:
        allowed: bool [V], whether the token with that id is allowed; true at least twice.
    """

    allowed: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Forced:
    """The only tokens that can follow, at least one. They are appended without a model step."""

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing follows."""

    reason: FinishReason


AllowedTokens = AnyToken | OneOf | Masked
"""The model chooses."""

NextTokens = AllowedTokens | Forced | Ended


class Constraint(Protocol):
    """What may be generated, as an immutable value: accepting tokens gives the constraint on those that follow.

    States derived from one another may share caches, so they belong to one thread at a time. Each method may raise an
    ``EdgeRagError``, which ends the request of the constraint and no other.
    """

    def next(self) -> NextTokens:
        """Returns what may come next."""
        ...

    def after(self, tokens: tuple[int, ...]) -> Constraint:
        """Returns the constraint after these tokens, which must all have been allowed."""
        ...
