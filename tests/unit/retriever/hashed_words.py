"""A small embedder for tests in which it does not matter what vectors mean."""

import hashlib
import re
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray


class HashedWords:
    """Embeds a text as the sum of one fixed random vector per word: texts that share words are similar."""

    max_tokens = 256

    def __init__(self, name: str = "hashed-words", dimension: int = 32) -> None:
        self.name = name
        self.dimension = dimension
        self.texts = 0

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += len(texts)
        vectors: NDArray[np.float32] = np.array([self._sum(text) for text in texts], dtype=np.float32).reshape(
            -1, self.dimension
        )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        np.divide(vectors, lengths, out=vectors, where=lengths > 0)
        return vectors

    def embed_questions(self, questions: Sequence[str]) -> NDArray[np.float32]:
        return self.embed(questions)

    def _sum(self, text: str) -> NDArray[np.float32]:
        total = np.zeros(self.dimension, dtype=np.float32)
        for word in re.findall(r"\w+", text.lower()):
            total += _word_vector(f"{self.name} {word}", self.dimension)
        return total


@cache
def _word_vector(word: str, dimension: int) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(dimension, dtype=np.float32)
