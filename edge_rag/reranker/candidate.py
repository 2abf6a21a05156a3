"""A passage under consideration, with what the models made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.passage import Passage
from edge_rag.runtime.token_vectors import TokenVectors


def model_text(passage: Passage) -> str:
    """What models read for a passage: the headings above it, outermost first, then its text."""
    return "\n".join((*passage.context, passage.text))


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A passage compared with a question, token by token.

    Attributes:
        passage: The passage.
        vectors: Token vectors of ``model_text(passage)``.
        cosines: float32 [question tokens, passage tokens], how alike each two tokens are.
    """

    passage: Passage
    vectors: TokenVectors
    cosines: NDArray[np.float32]

    def cosines_of(self, start: int, end: int) -> NDArray[np.float32]:
        """Returns the columns of ``cosines`` whose tokens begin in a character range of ``passage.text``."""
        shift = len(model_text(self.passage)) - len(self.passage.text)
        starts: NDArray[np.int32] = self.vectors.offsets[:, 0]
        first, last = np.searchsorted(starts, (start + shift, end + shift))
        return self.cosines[:, first:last]


def compare(
    question: TokenVectors, passages: Sequence[Passage], vectors: Sequence[TokenVectors]
) -> tuple[Candidate, ...]:
    """Compares a question with all of its passages in one matrix product.

    Args:
        question: Token vectors of the question.
        passages: The passages.
        vectors: Token vectors of each passage's ``model_text``.

    Returns:
        One candidate a passage, in order.
    """
    if not passages:
        return ()
    cosines = question.vectors @ np.concatenate([each.vectors for each in vectors]).T
    ends = np.cumsum([len(each.vectors) for each in vectors])
    return tuple(
        Candidate(passage, each, columns)
        for passage, each, columns in zip(passages, vectors, np.split(cosines, ends[:-1], axis=1), strict=True)
    )
