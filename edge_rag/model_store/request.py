"""A request to add a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge_rag.model_store.convert.genai import ModelPrecision
from edge_rag.model_store.source import Source
from edge_rag.runtime.model_folder.manifest import ModelRole


@dataclass(frozen=True, slots=True)
class AddRequest:
    """A model to add.

    Attributes:
        source: Where the model comes from.
        name: Its name in the store.
        precision: Precision of the weights of a converted Hugging Face folder; None for 4 bits of a generator, 8 of an
            encoder.
        licence: SPDX expression; None for that of the model card.
        role: Required role; None for any.
        keys: Public keys, of which one must have signed the model; empty if no signature is required.
    """

    source: Source
    name: str
    precision: ModelPrecision | None
    licence: str | None
    role: ModelRole | None = None
    keys: tuple[Path, ...] = ()
