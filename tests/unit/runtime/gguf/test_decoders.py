"""Decoders written from GGUF files compute what the files' weights say."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import gguf
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
from tests.synthetic.tiny_gguf import MAKERS, VOCABULARY, TinyModel, tiny_model

TEXT = np.random.default_rng(3).integers(3, len(VOCABULARY), 70)


Q4_0, Q4_1, Q5_1, Q8_0 = (gguf.GGMLQuantizationType[name] for name in ("Q4_0", "Q4_1", "Q5_1", "Q8_0"))


def in_blocks(model: TinyModel, types: Mapping[str, gguf.GGMLQuantizationType]) -> TinyModel:
    """Returns the model with its matrices in blocks: of the type given for their kind, otherwise Q4_1."""
    matrices = [name for name, values in model.tensors.items() if values.ndim == 2]
    return replace(model, types={name: types.get(name.split(".")[-2], Q4_1) for name in matrices})


MODELS = {name: tiny_model(name) for name in MAKERS} | {
    "blocks": in_blocks(tiny_model("llama"), {}),
    "blocks that differ": in_blocks(
        tiny_model("llama"), {"attn_v": Q8_0, "ffn_up": Q4_0, "ffn_down": Q5_1, "token_embd": Q4_0, "output": Q8_0}
    ),
    "blocks that differ beside biases": in_blocks(tiny_model("qwen2"), {"attn_k": Q4_0, "token_embd": Q8_0}),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_paged_decoder_agrees_with_the_weights_in_float32(name: str, tmp_path: Path) -> None:
    file = GgufFile(MODELS[name].write(tmp_path / "tiny.gguf"))
    description = describe_decoder(file, 4096)
    weights = GgufWeights(file, description)
    write_decoder(description, weights, tmp_path, {"tiny.gguf": "0" * 64})
    (expected,) = reference_logits(description, weights, [TEXT])
    found = teacher_forced_logits(PagedDecoder.open(tmp_path, 3), TEXT, 50)
    comparison = compare(expected, found)
    assert comparison.divergence < 0.01
    assert comparison.same_token > 0.85
