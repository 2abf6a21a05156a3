"""Writes a Qwen2 checkpoint as GGUF with Q4_0 weights, embeddings included, or a GGUF file with Q8_0 weights.

python -m scripts.bench.peers.write_gguf CHECKPOINT OUT.gguf
python -m scripts.bench.peers.write_gguf FILE.gguf OUT.gguf

Runs in llama.cpp's environment.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

_WHOLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
_OF_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
_MOSTLY_F16, _MOSTLY_Q4_0, _MOSTLY_Q8_0 = 1, 2, 7
"""Numbers of llama.cpp's file types."""


def gguf_name(name: str) -> str | None:
    """Returns what llama.cpp calls a tensor of the Qwen2 architecture; None for a head tied to the embeddings.

    Raises:
        ValueError: It is not one.
    """
    if name in _WHOLE:
        return _WHOLE[name]
    if name == "lm_head.weight":
        return None
    found = _LAYER.fullmatch(name)
    if found is None or found[2] not in _OF_LAYER:
        raise ValueError(f"{name} is no tensor of the Qwen2 architecture")
    return f"blk.{found[1]}.{_OF_LAYER[found[2]]}.{found[3]}"


def write_f16(checkpoint: Path, target: Path) -> None:
    """Writes matrices as float16 and vectors as float32, without a tokenizer."""
    gguf: Any = importlib.import_module("gguf")
    safetensors: Any = importlib.import_module("safetensors")
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(target, "qwen2")
    writer.add_name(checkpoint.parent.name)
    writer.add_file_type(_MOSTLY_F16)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    for file in sorted(checkpoint.glob("*.safetensors")):
        with safetensors.safe_open(file, "np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (not a mapping)
                if (target_name := gguf_name(name)) is not None:
                    tensor = tensors.get_tensor(name)
                    writer.add_tensor(target_name, tensor.astype(np.float32 if tensor.ndim == 1 else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantize(source: Path, target: Path, threads: int, again: bool) -> None:
    """Quantizes every matrix to Q4_0, or again to Q8_0 where the file has quantized ones.

    Raises:
        RuntimeError: llama.cpp could not.
    """
    api: Any = importlib.import_module("llama_cpp")
    parameters = api.llama_model_quantize_default_params()
    parameters.nthread = threads
    parameters.allow_requantize = again
    parameters.ftype = _MOSTLY_Q8_0 if again else _MOSTLY_Q4_0
    if not again:
        parameters.token_embedding_type = parameters.output_tensor_type = api.GGML_TYPE_Q4_0
    if api.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(parameters)) != 0:
        raise RuntimeError(f"llama.cpp could not quantize {source}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.checkpoint.is_file():
        quantize(arguments.checkpoint, arguments.out, arguments.threads, again=True)
        return
    with tempfile.TemporaryDirectory(dir=arguments.out.parent) as scratch:
        whole = Path(scratch) / "f16.gguf"
        write_f16(arguments.checkpoint, whole)
        quantize(whole, arguments.out, arguments.threads, again=False)


if __name__ == "__main__":
    main()
