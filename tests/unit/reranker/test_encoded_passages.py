"""What of a passage is read once for all questions."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from edge_rag.analysis.terms import terms_of
from edge_rag.core.ids import ChunkId, DocumentId
from edge_rag.core.passage import Passage
from edge_rag.core.text import sentence_spans
from edge_rag.reranker.candidate import EncodedPassage
from edge_rag.runtime.encoder.text_encoder import TokenVectors

NOTHING = TokenVectors(np.zeros((0, 4), np.float32), np.zeros((0, 2), np.int32))
WORDS = ["The pump", "runs", "1.", "234", "5,6", "kg", "No", "Is it?", "東京", "です。", "水", "ภาษา", "é", "e\u0301"]
PARTS = st.sampled_from([*WORDS, "\n", "\n\n", " ", ". ", "-"])


@given(st.lists(PARTS, max_size=30), st.lists(st.sampled_from(["Pumps 1.", "東京", "5"]), max_size=2))
@example(["1.", " ", "234"], [])
def test_a_sentence_has_the_terms_that_it_has_alone(parts: list[str], headings: list[str]) -> None:
    text = "".join(parts)
    passage = Passage(ChunkId(1), DocumentId("d"), "d.txt", None, 0, len(text), text, tuple(headings))
    alone = [
        (start, end, tuple(term for _, _, term in terms_of(text[start:end]))) for start, end in sentence_spans(text)
    ]
    assert list(EncodedPassage.of(passage, NOTHING).sentences) == alone
