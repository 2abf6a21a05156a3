"""Tiny random Hugging Face folders of every family that is written directly, made without torch.

The weights are those of ``tiny_gguf``, under Hugging Face's names, with the two halves of rotated heads apart.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.synthetic.tiny_gguf import (
    CONTEXT,
    HEAD_SIZE,
    HEADS,
    INNER,
    KV_HEADS,
    LAYERS,
    MERGES,
    SPECIAL,
    TEMPLATE,
    VOCABULARY,
    WIDTH,
    TinyModel,
)

Floats = NDArray[np.float32]

_PARTS = {
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
_GEMMA = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_FAMILIES = {"llama3": "Llama", "qwen2-yarn": "Qwen2", "smollm3": "SmolLM3", "mistral": "Mistral"}

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def family(name: str) -> str:
    return _FAMILIES.get(name, name.capitalize())


def settings(name: str, model: TinyModel) -> dict[str, Any]:
    """Returns the values of Hugging Face's configuration."""
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
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    match name:
        case "llama3":
            common["rope_parameters"] = dict(LLAMA3_ROPE)
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
    return common


def state_of(name: str, model: TinyModel) -> dict[str, Floats]:
    """Returns the tensors under Hugging Face's names."""
    parts = _PARTS | (_GEMMA if name == "gemma3" else {})
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
            state[f"{_WHOLE[stem]}.{kind}"] = values
    if name == "gemma3":  # its norms multiply by one more than the stored values, which files of GGUF contain
        state = {key: values - 1 if "norm" in key else values for key, values in state.items()}
    return state


def write_safetensors(path: Path, tensors: Mapping[str, Floats], kind: str = "F32") -> None:
    """Writes a file in float32 or bfloat16, which drops the lower halves."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    parts, offset = [], 0
    for name, values in tensors.items():
        content = np.ascontiguousarray(values, "<f4")
        data = content.tobytes() if kind == "F32" else (content.view("<u4") >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": kind, "shape": values.shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        parts.append(data)
    described = json.dumps(header).encode()
    path.write_bytes(b"".join([len(described).to_bytes(8, "little"), described, *parts]))


def write_tokenizer(folder: Path) -> None:
    """Writes a byte-level tokenizer of the tiny vocabulary, with a chat template."""
    ids = {token: number for number, token in enumerate(VOCABULARY)}
    first_second = [tuple(merge.split(" ")) for merge in MERGES]
    tokenizer = Tokenizer(models.BPE(ids, [(first, second) for first, second in first_second]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": SPECIAL[1], "eos_token": SPECIAL[2]}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, "chat_template": TEMPLATE}))


def write_checkpoint(folder: Path, name: str, model: TinyModel, kind: str = "F32") -> Path:
    folder.mkdir()
    config = {**settings(name, model), "architectures": [f"{family(name)}ForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 0]}))
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Tiny\n")
    write_safetensors(folder / "model.safetensors", state_of(name, model), kind)
    write_tokenizer(folder)
    return folder
