"""A trained model as a Hugging Face folder, with what it was made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file

from scripts.training.quoter.decoder import EPSILON, Decoder
from scripts.training.quoter.text.vocabulary import CHAT_TEMPLATE, PADDING, TURN_ENDS

PROVENANCE_FILE = "training.json"


def export(model: Decoder, tokenizer: tokenizers.Tokenizer, folder: Path, provenance: dict[str, Any]) -> None:
    """Writes a model that Hugging Face's Qwen3ForCausalLM loads, weights in float32.

    Args:
        model: The model.
        tokenizer: Its vocabulary.
        folder: Made if it does not exist; files of the same names are replaced.
        provenance: How it came to be; written beside it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {f"model.{n}": w.detach().to("cpu", torch.float32).contiguous() for n, w in model.state_dict().items()}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    end, padding = tokenizer.token_to_id(TURN_ENDS), tokenizer.token_to_id(PADDING)
    size = model.size
    _write(
        folder / "config.json",
        {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "vocab_size": size.vocabulary,
            "hidden_size": size.hidden,
            "intermediate_size": size.intermediate,
            "num_hidden_layers": size.layers,
            "num_attention_heads": size.heads,
            "num_key_value_heads": size.key_value_heads,
            "head_dim": size.head_size,
            "max_position_embeddings": size.context,
            "rope_parameters": {"rope_type": "default", "rope_theta": size.rope_theta},
            "rope_theta": size.rope_theta,
            "rms_norm_eps": EPSILON,
            "hidden_act": "silu",
            "attention_bias": False,
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": end,
            "pad_token_id": padding,
            "dtype": "float32",
        },
    )
    _write(folder / "generation_config.json", {"eos_token_id": end, "pad_token_id": padding})
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": TURN_ENDS,
            "pad_token": PADDING,
            "model_max_length": size.context,
            "clean_up_tokenization_spaces": False,
        },
    )
    _write(folder / PROVENANCE_FILE, provenance)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
