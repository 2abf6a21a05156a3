"""What the retriever needs of the rooms below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Embedder(Protocol):
    """Turns text into vectors. Methods may be called from several threads."""

    @property
    def name(self) -> str:
        """Identity of the model; two embedders of one name give the same vectors."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """Longest text the model reads, in tokens; the rest of a longer one is ignored."""
        ...

    def count_tokens(self, text: str) -> int:
        """Number of tokens of a text."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds texts: float32 [n, dimension], each row of length 1.

        Raises:
            InferenceFailed: The model could not be run.
        """
        ...
