"""SmolLM2-135M-Instruct from safetensors, by our quantization. The weights are those of its GGUF file in float32."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_rag.model_store.add import add
from edge_rag.model_store.directory import StoreDirectory
from edge_rag.model_store.source import AddRequest, LocalFolder, ModelPrecision, NoProgress, PackagedModel
from edge_rag.model_store.sources.packaged import stage_packaged
from tests.synthetic.tiny_checkpoint import checkpoint_of_llama_gguf

MOST_BITS = 4.6
MOST_DIVERGENCE = 0.03


@pytest.mark.convert
def test_smollm2_keeps_its_answers_at_four_and_a_half_bits(tmp_path: Path) -> None:
    gguf = stage_packaged(PackagedModel("smollm2-135m", None), tmp_path, tmp_path, NoProgress())
    folder = checkpoint_of_llama_gguf(gguf, tmp_path / "SmolLM2-135M-Instruct")
    # The gate's 0.02 is for what is offered by default; what 4 bits cost is looked at here.
    request = AddRequest(LocalFolder(folder), "smollm2", ModelPrecision.INT4, None, accept_loss=True)
    manifest = add(StoreDirectory(tmp_path / "store"), request, NoProgress())
    agreement = manifest.parameters["agreement_with_original"]
    assert isinstance(agreement, dict)
    bits, divergence = agreement["bits_per_weight"], agreement["divergence"]
    assert isinstance(bits, float)
    assert isinstance(divergence, float)
    assert bits <= MOST_BITS
    assert divergence <= MOST_DIVERGENCE
