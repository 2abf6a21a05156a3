"""What an operator asks the store for."""

from __future__ import annotations

from dataclasses import dataclass

from edge_rag.store.conversion import Precision
from edge_rag.store.source import Source


@dataclass(frozen=True, slots=True)
class Wish:
    """A model that is to be added.

    Attributes:
        source: Where the model comes from.
        name: What it is to be called.
        precision: What the weights of a Hugging Face folder are converted to.
        licence: SPDX expression; None takes what the model card says.
    """

    source: Source
    name: str
    precision: Precision
    licence: str | None
