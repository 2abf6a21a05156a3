"""What the reranker needs of the models below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge_rag.runtime.encoder.token_vectors import TokenVectors


class TokenVectorizer(Protocol):
    """Turns texts into one vector a token."""

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Encodes each text, in order; a text's vectors do not depend on the others.

        Raises:
            InferenceFailed: The model failed.
        """
        ...


class PairScorer(Protocol):
    """Reads a question and a passage together and says how well they match."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Scores each (question, passage) pair, in order.

        Returns:
            float32 [pairs]; larger is better; comparable between all pairs of one question.

        Raises:
            InferenceFailed: The model failed.
        """
        ...
