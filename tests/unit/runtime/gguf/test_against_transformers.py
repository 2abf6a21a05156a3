"""The float32 reference computes what Hugging Face's implementation of each architecture does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_rag.runtime.gguf.architectures import describe_decoder
from edge_rag.runtime.gguf.file import GgufFile
from edge_rag.runtime.gguf.weights import GgufWeights
from edge_rag.runtime.lowering.reference_decoder import reference_logits
from tests.synthetic.tiny_checkpoint import family, settings, state_of
from tests.synthetic.tiny_gguf import HEAD_SIZE, MAKERS, VOCABULARY, tiny_model

pytestmark = pytest.mark.convert

TEXT = np.random.default_rng(3).integers(3, len(VOCABULARY), 90)


@pytest.mark.parametrize("name", MAKERS)
def test_every_position_agrees_with_transformers(name: str, tmp_path: Path) -> None:
    import torch
    import transformers

    model = tiny_model(name)
    kind = family(name)
    configuration = getattr(transformers, f"{'Gemma3Text' if kind == 'Gemma3' else kind}Config")
    values = settings(name, model) | {"attn_implementation": "eager"}
    original = getattr(transformers, f"{kind}ForCausalLM")(configuration(**values)).eval()
    state = {key: torch.from_numpy(np.ascontiguousarray(tensor)) for key, tensor in state_of(name, model).items()}
    if "output.weight" not in model.tensors:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    missing, unexpected = original.load_state_dict(state, strict=False)
    assert not [key for key in missing if "rotary" not in key]
    assert not unexpected
    if name == "llama3":
        factors = torch.from_numpy(model.tensors["rope_freqs.weight"])
        original.model.rotary_emb.inv_freq = (500_000.0 ** -(torch.arange(HEAD_SIZE // 2) / (HEAD_SIZE // 2))) / factors
    with torch.no_grad():
        expected = original(torch.from_numpy(TEXT)[None]).logits[0].numpy()
    file = GgufFile(model.write(tmp_path / "tiny.gguf"))
    description = describe_decoder(file, 4096)
    (found,) = reference_logits(description, GgufWeights(file, description), [TEXT])
    np.testing.assert_allclose(found, expected, atol=3e-4 * float(np.abs(expected).max()))
