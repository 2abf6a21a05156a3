"""What an operator asks the store for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge_rag.model_store.convert.genai import ModelPrecision
from edge_rag.model_store.source import Source
from edge_rag.runtime.model_folder.manifest import ModelRole


@dataclass(frozen=True, slots=True)
class AddRequest:
    """A model that is to be added.

    Attributes:
        source: Where the model comes from.
        name: What it is to be called.
        precision: What the weights of a Hugging Face folder are converted to; None for 4 bits of a generator, 8 of an
            encoder.
        licence: SPDX expression; None takes what the model card says.
        role: What it must be for; None takes what it is for.
        keys: Public keys of which one must have signed it; none where signatures are not looked at.
    """

    source: Source
    name: str
    precision: ModelPrecision | None
    licence: str | None
    role: ModelRole | None = None
    keys: tuple[Path, ...] = ()
