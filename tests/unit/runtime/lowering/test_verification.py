"""A graph before it is lowered, fed piece by piece, computes what it computes of the whole text."""

from __future__ import annotations

import numpy as np
import pytest

from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.lowering.verification import OriginalDecoder
from tests.synthetic.tiny_model import FAMILIES, FIXTURES, reference


@pytest.mark.parametrize("pieces", [(112,), (48, 48, 16), (30, *[1] * 82)])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_in_pieces_gives_the_logits_of_hugging_face(family: str, pieces: tuple[int, ...]) -> None:
    expected = reference(family)
    decoder = OriginalDecoder.open(FIXTURES / family / "model.onnx", read_geometry(FIXTURES / family).head_size)
    fed = np.split(expected.token_ids, np.cumsum(pieces)[:-1])
    found = np.concatenate([decoder.feed(piece) for piece in fed])
    np.testing.assert_allclose(found, expected.logits, atol=1e-3)
