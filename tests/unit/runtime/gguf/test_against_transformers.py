"""The float32 reference computes what Hugging Face's implementation of each architecture does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_rag.runtime.gguf.architectures import describe_decoder
from edge_rag.runtime.gguf.file import GgufFile
from edge_rag.runtime.gguf.weights import GgufWeights
from edge_rag.runtime.lowering.reference_decoder import reference_logits
from tests.synthetic.tiny_gguf import (
    CONTEXT,
    HEAD_SIZE,
    HEADS,
    INNER,
    KV_HEADS,
    LAYERS,
    MAKERS,
    VOCABULARY,
    WIDTH,
    TinyModel,
    tiny_model,
)

pytestmark = pytest.mark.convert

Floats = NDArray[np.float32]

TEXT = np.random.default_rng(3).integers(3, len(VOCABULARY), 90)
PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def settings(name: str, model: TinyModel) -> tuple[str, dict[str, Any]]:
    """Returns the class of Hugging Face's configuration, and its values."""
    common: dict[str, Any] = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": "output.weight" not in model.tensors,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.metadata[".rope.freq_base"]},
        "attn_implementation": "eager",
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    match name:
        case "qwen2-yarn":
            common["rope_parameters"] = {
                "rope_type": "yarn",
                "rope_theta": 10_000.0,
                "factor": 4.0,
                "original_max_position_embeddings": CONTEXT // 4,
            }
        case "mistral":
            common["sliding_window"] = 16
        case "smollm3":
            common["no_rope_layer_interval"] = 4
        case "gemma3":
            common |= {"sliding_window": 16, "query_pre_attn_scalar": HEAD_SIZE, "sliding_window_pattern": 6}
            common["rope_parameters"] = {
                "full_attention": {"rope_type": "default", "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            }
        case "granite":
            common |= {
                "attention_multiplier": 0.0625,
                "embedding_multiplier": 12.0,
                "residual_multiplier": 0.22,
                "logits_scaling": 4.0,
            }
    kinds = {"llama3": "Llama", "qwen2-yarn": "Qwen2", "gemma3": "Gemma3Text", "smollm3": "SmolLM3"}
    return kinds.get(name, name.capitalize()), common


def state_of(name: str, model: TinyModel) -> Mapping[str, Floats]:
    """Returns the tensors under Hugging Face's names, with the two halves of rotated heads apart."""
    parts = PARTS | (GEMMA if name == "gemma3" else {})
    if name == "phi3":
        parts = parts | {"ffn_up": "mlp.gate_up_proj"}
    state: dict[str, Floats] = {}
    for tensor, stored in model.tensors.items():
        if tensor == "rope_freqs.weight":
            continue
        values, (stem, _, kind) = stored, tensor.rpartition(".")
        if stem.startswith("blk."):
            _, number, part = stem.split(".")
            if part in ("attn_q", "attn_k") and model.architecture in ("llama", "granite", "smollm3"):
                heads = values.shape[0] // HEAD_SIZE
                values = values.reshape(heads, HEAD_SIZE // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)
            state[f"model.layers.{number}.{parts[part]}.{kind}"] = values
        else:
            state[f"{WHOLE[stem]}.{kind}"] = values
    if name == "gemma3":  # its norms multiply by one more than the stored values, which files contain
        state = {key: values - 1 if "norm" in key else values for key, values in state.items()}
    return state


@pytest.mark.parametrize("name", MAKERS)
def test_every_position_agrees_with_transformers(name: str, tmp_path: Path) -> None:
    import torch
    import transformers

    model = tiny_model(name)
    kind, values = settings(name, model)
    original = getattr(transformers, f"{kind.removesuffix('Text')}ForCausalLM")(
        getattr(transformers, f"{kind}Config")(**values)
    ).eval()
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
