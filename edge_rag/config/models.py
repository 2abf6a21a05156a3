"""Settings of the models."""

from __future__ import annotations

from pydantic import Field

from edge_rag.config.paths import default_models_directory
from edge_rag.config.sections import DirectoryPath, Section


class ModelSettings(Section):
    """Which models fill which role."""

    directory: DirectoryPath = Field(
        default_factory=default_models_directory,
        description="Folder of the models that came along; those that are added lie in the data directory.",
    )
    embedder: str = Field(
        default="minilm-l6",
        description="Embedding model, there or added; left out, what `models use` chose, else this.",
    )
    reranker: str | None = Field(
        default=None,
        description="Cross-encoder, there or added; left out, what `models use` chose, else token vectors score.",
    )
    generator: str = Field(
        default="quoter", description="Language model, there or added; left out, what `models use` chose, else this."
    )
    trusted_keys: list[DirectoryPath] = Field(
        default=[],
        description="Public keys, PEM files; where there are any, `models add` takes only what one of them has signed.",
    )
