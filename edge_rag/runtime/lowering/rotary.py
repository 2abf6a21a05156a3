"""Frequencies of rotary position embeddings and their scalings to longer contexts (Su et al., RoFormer, 2021)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Frequencies = NDArray[np.float64]

YARN_TURNS = (1.0, 32.0)
"""Turns within the trained context below which a pair is scaled, and above which it is left, by YaRN's authors."""


def rotary_frequencies(base: float, pairs: int) -> Frequencies:
    """Returns radians per token of each pair, float64 [pairs]."""
    frequencies: Frequencies = base ** -(np.arange(pairs) / pairs)
    return frequencies


def yarn_frequencies(
    base: float, pairs: int, factor: float, trained: int, turns: tuple[float, float] = YARN_TURNS
) -> Frequencies:
    """Scales the frequencies that turn seldom within the trained context, and leaves those that turn often.

    Peng et al., YaRN: Efficient Context Window Extension of Large Language Models, 2023.

    Args:
        trained: The trained context, tokens.
    """

    def pair_of(count: float) -> float:
        return pairs * math.log(trained / (count * 2 * math.pi)) / math.log(base)

    first, last = max(math.floor(pair_of(turns[1])), 0), min(math.ceil(pair_of(turns[0])), 2 * pairs - 1)
    scaled = np.clip((np.arange(pairs) - first) / max(last - first, 0.001), 0, 1)
    frequencies: Frequencies = rotary_frequencies(base, pairs) * (1 - scaled + scaled / factor)
    return frequencies


def yarn_magnitude(factor: float) -> float:
    return 1 + 0.1 * math.log(factor)


def llama3_frequencies(base: float, pairs: int, factor: float, trained: int, turns: tuple[float, float]) -> Frequencies:
    """Scales as Llama 3.1 does: pairs of less than the fewest turns by the factor, those of more than the most not.

    Args:
        trained: The trained context, tokens.
    """
    frequencies = rotary_frequencies(base, pairs)
    made = trained * frequencies / (2 * math.pi)
    kept = np.clip((made - turns[0]) / (turns[1] - turns[0]), 0, 1)
    scaled: Frequencies = frequencies * (kept + (1 - kept) / factor)
    return scaled
