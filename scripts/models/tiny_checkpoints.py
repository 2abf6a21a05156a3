"""Tiny random checkpoints of the families that can be added, with a tokenizer trained on a few lines of text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers

VOCABULARY = 512
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
END_TOKEN = 2
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRAINING_TEXT = (
    "The pump bearings must be greased every 500 operating hours with lithium grease.",
    "Close the suction valve before the cover is opened, and wait until the pressure gauge reads zero.",
    "If the motor temperature rises above 85 degrees Celsius, stop the pump and call the shift engineer.",
    "The spare impeller is kept on shelf 4 of the store room; its part number is 7720-118.",
    "A leak at the mechanical seal of more than 20 drops a minute is reason to replace the seal.",
    "The emergency stop is tested on the first Monday of each month and the result is written into the log.",
    "How often must the filter be changed? The filter is changed every three months or at 0.8 bar difference.",
    "Answer from the passages only. Who may restart the station after a power failure? The operator on duty may.",
    "user system assistant question passages answer document page section table note warning",
)


@dataclass(frozen=True, slots=True)
class TinyModel:
    """One tiny model: its folder name and the Hugging Face configuration it is made from."""

    name: str
    config: Any
    seed: int


def family_models() -> tuple[TinyModel, ...]:
    """Returns a model of each family that can be added, with what is peculiar to the family switched on.

    Llama 3's scaled frequencies, Qwen's biases and norms, Phi's fused products, long-context factors and partly rotated
    heads, SmolLM3's layers without positions, Gemma's local layers and scaled embeddings, Mistral's window. Gemma's
    window is short, so that a test's text leaves it; Phi's and Mistral's are not, since contexts are limited to them.
    Granite's multipliers.
    """
    shared = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        "eos_token_id": END_TOKEN,
        "pad_token_id": 0,
        "dtype": "float32",
    }
    plain = {"rope_type": "default", "rope_theta": 10_000.0}
    scaled = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    return (
        TinyModel(
            "llama-3",
            transformers.LlamaConfig(
                num_hidden_layers=2, head_dim=32, rope_parameters=scaled, tie_word_embeddings=False, **shared
            ),
            seed=11,
        ),
        TinyModel(
            "smollm2",
            transformers.LlamaConfig(
                num_hidden_layers=2, head_dim=16, rope_parameters=plain, tie_word_embeddings=True, **shared
            ),
            seed=12,
        ),
        TinyModel(
            "qwen2.5",
            transformers.Qwen2Config(num_hidden_layers=2, rope_parameters=plain, tie_word_embeddings=True, **shared),
            seed=13,
        ),
        TinyModel(
            "qwen3",
            transformers.Qwen3Config(
                num_hidden_layers=2, head_dim=32, rope_parameters=plain, tie_word_embeddings=True, **shared
            ),
            seed=14,
        ),
        TinyModel(
            "phi-3-mini",
            transformers.Phi3Config(
                num_hidden_layers=2,
                rope_parameters={**plain, "partial_rotary_factor": 1.0},
                original_max_position_embeddings=512,
                sliding_window=256,
                tie_word_embeddings=False,
                **shared,
            ),
            seed=15,
        ),
        TinyModel(
            "phi-4-mini",
            transformers.Phi3Config(
                num_hidden_layers=2,
                rope_parameters={
                    "rope_type": "longrope",
                    "rope_theta": 10_000.0,
                    "partial_rotary_factor": 0.75,
                    "short_factor": [1.0 + 0.02 * i for i in range(24)],
                    "long_factor": [2.0 + 0.1 * i for i in range(24)],
                    "original_max_position_embeddings": 256,
                },
                original_max_position_embeddings=256,
                tie_word_embeddings=True,
                **{**shared, "hidden_size": 256, "num_key_value_heads": 1},
            ),
            seed=16,
        ),
        TinyModel(
            "smollm3",
            transformers.SmolLM3Config(
                num_hidden_layers=4,
                no_rope_layer_interval=4,
                rope_parameters=plain,
                tie_word_embeddings=True,
                **shared,
            ),
            seed=17,
        ),
        TinyModel(
            "gemma-3",
            transformers.Gemma3TextConfig(
                num_hidden_layers=4,
                head_dim=32,
                query_pre_attn_scalar=256,
                sliding_window=48,
                layer_types=["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
                rope_parameters={
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
                    "full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
                },
                tie_word_embeddings=True,
                **shared,
            ),
            seed=18,
        ),
        TinyModel(
            "mistral",
            transformers.MistralConfig(
                num_hidden_layers=2,
                head_dim=16,
                sliding_window=256,
                rope_parameters=plain,
                tie_word_embeddings=False,
                **shared,
            ),
            seed=19,
        ),
        TinyModel(
            "gemma",
            transformers.GemmaConfig(num_hidden_layers=2, head_dim=32, rope_parameters=plain, **shared),
            seed=21,
        ),
        TinyModel(
            "granite",
            transformers.GraniteConfig(
                num_hidden_layers=2,
                embedding_multiplier=3.0,
                logits_scaling=2.0,
                residual_multiplier=0.5,
                attention_multiplier=0.2,
                rope_parameters=plain,
                tie_word_embeddings=True,
                **shared,
            ),
            seed=23,
        ),
    )


def write_checkpoint(model: TinyModel, folder: Path) -> Any:
    """Writes a Hugging Face folder and returns the model it holds.

    Every parameter is drawn anew: biases and norm weights that a fresh model leaves at zero and one would hide mistakes
    in how they are carried over.
    """
    network = transformers.AutoModelForCausalLM.from_config(model.config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(model.seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight"):
                parameter.copy_(1.0 + 0.2 * noise)
            elif parameter.ndim == 1:
                parameter.copy_(0.5 * noise)
            elif "embed_tokens" in name:
                parameter.copy_(noise / 4)
            else:
                parameter.copy_(noise / math.sqrt(parameter.shape[1]))
    network.save_pretrained(folder)
    write_tokenizer(folder, model.config.max_position_embeddings)
    return network


def write_tokenizer(folder: Path, max_length: int) -> None:
    """Trains the byte-level tokenizer and writes it, with its chat template, into a Hugging Face folder."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TRAINING_TEXT, trainer)
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise RuntimeError(f"the tokenizer has {tokenizer.get_vocab_size()} tokens, not {VOCABULARY}")
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=SPECIAL_TOKENS[END_TOKEN],
        pad_token=SPECIAL_TOKENS[0],
        model_max_length=max_length,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(folder)
