"""Decoders written from GGUF files compute what the files' weights say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_rag.model_store.convert.comparison import compare
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.gguf.architectures import describe_decoder
from edge_rag.runtime.gguf.file import GgufFile
from edge_rag.runtime.gguf.weights import GgufWeights
from edge_rag.runtime.lowering.decoder_graph import write_decoder
from edge_rag.runtime.lowering.reference_decoder import reference_logits
from edge_rag.runtime.lowering.verification import teacher_forced_logits
from tests.synthetic.tiny_gguf import MAKERS, VOCABULARY, tiny_model

TEXT = np.random.default_rng(3).integers(3, len(VOCABULARY), 70)


@pytest.mark.parametrize("name", MAKERS)
def test_the_paged_decoder_agrees_with_the_weights_in_float32(name: str, tmp_path: Path) -> None:
    file = GgufFile(tiny_model(name).write(tmp_path / "tiny.gguf"))
    description = describe_decoder(file, 4096)
    weights = GgufWeights(file, description)
    write_decoder(description, weights, tmp_path, {"tiny.gguf": "0" * 64})
    (expected,) = reference_logits(description, weights, [TEXT])
    found = teacher_forced_logits(PagedDecoder.open(tmp_path, 3), TEXT, 50)
    comparison = compare(expected, found)
    assert comparison.divergence < 0.01
    assert comparison.same_token > 0.85
