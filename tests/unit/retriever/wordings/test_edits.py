"""Edit distances are RapidFuzz's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import OSA

from edge_rag.retriever.wordings.edits import distances, distances_of_beginnings

WORDS = st.text("abéß\U0001f600", max_size=9)


@given(word=WORDS, others=st.lists(WORDS, min_size=1, max_size=8), most=st.integers(1, 3))
def test_distances_are_those_of_optimal_string_alignment(word: str, others: list[str], most: int) -> None:
    expected = [[min(OSA.distance(word[:end], other), most + 1) for other in others] for end in range(len(word) + 1)]
    np.testing.assert_array_equal(distances_of_beginnings(word, others, most), expected)
    np.testing.assert_array_equal(distances(word, others, most), expected[-1])
