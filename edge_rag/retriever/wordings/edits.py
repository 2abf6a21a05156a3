"""Edit distances of a word to many: an edit inserts, deletes or replaces a letter, or swaps two neighbours.

Optimal string alignment: Boytsov, Indexing methods for approximate dictionary searching, 2011, section 2.2. Only cells
within ``most`` of the diagonal are computed, for all words at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def distances(word: str, others: Sequence[str], most: int) -> NDArray[np.uint8]:
    """Returns the distance to each of the others, uint8 [others]; larger ones are ``most + 1``."""
    found: NDArray[np.uint8] = distances_of_beginnings(word, others, most)[-1]
    return found


def distances_of_beginnings(word: str, others: Sequence[str], most: int) -> NDArray[np.uint8]:
    """Returns the distances of the word's first 0, 1, 2, ... letters, uint8 [letters + 1, others].

    Args:
        others: At least one.
        most: At least 1; larger distances are ``most + 1``.
    """
    letters = np.ascontiguousarray(np.array(others).view(np.uint32).reshape(len(others), -1).T)
    width, count = letters.shape
    lengths, columns = np.fromiter(map(len, others), np.intp, count), np.arange(count)
    previous = np.repeat(np.minimum(np.arange(width + 1, dtype=np.uint8), most + 1)[:, None], count, axis=1)
    earlier, found = previous, [previous[lengths, columns]]
    codes = [*map(ord, word)]
    for i, code in enumerate(codes, 1):
        current = np.full_like(previous, most + 1)
        current[0] = min(i, most + 1)
        low, high = max(1, i - most), min(width, i + most)
        if low <= high:
            here, left = current[low : high + 1], current[low - 1 : high]
            replaced = previous[low - 1 : high] + (letters[low - 1 : high] != code)
            np.minimum(here, np.minimum(replaced, previous[low : high + 1] + 1), out=here)
            first = max(low, 2)
            if i > 1 and first <= high:
                swapped = (letters[first - 2 : high - 1] == code) & (letters[first - 1 : high] == codes[i - 2])
                end = current[first : high + 1]
                np.minimum(end, earlier[first - 2 : high - 1] + 1, out=end, where=swapped)
            for _ in range(most):
                np.minimum(here, left + 1, out=here)
        earlier, previous = previous, current
        found.append(current[lengths, columns])
    return np.stack(found)
