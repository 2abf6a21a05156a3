"""Makes a model of a published shape with random weights, for measuring speed where no hub can be reached.

    python -m scripts.models.make_random_model qwen2.5-0.5b --out build/bench/qwen2.5-0.5b
    python -m scripts.models.make_random_model qwen2.5-0.5b --out build/bench/qwen2.5-0.5b --precision int8

How long a step takes does not depend on what the weights say. OUT/checkpoint is the Hugging Face folder, which other
engines convert for themselves; OUT/PRECISION is the lowered folder of this project. What is there already is kept.
Needs the ``reference`` extra.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from edge_rag.runtime.checkpoint.architectures import describe_checkpoint
from edge_rag.runtime.checkpoint.weights import CheckpointWeights
from edge_rag.runtime.lowering.decoder_graph import write_decoder
from edge_rag.runtime.lowering.weight_packing import QuantizedMatrix, quantize
from scripts.models.tiny_checkpoints import write_tokenizer

CONTEXT = 32_768


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a published model of the Qwen2 architecture."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int


SHAPES = {
    "qwen2.5-0.5b": Shape(24, 896, 4864, 14, 2, 151_936),
    "qwen2.5-1.5b": Shape(28, 1536, 8960, 12, 2, 151_936),
}


def write_checkpoint(shape: Shape, folder: Path) -> None:
    """Writes a Hugging Face folder with random weights, the same ones each time."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocabulary,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=0,
    )
    transformers.Qwen2ForCausalLM(config).to(torch.float32).save_pretrained(folder)
    write_tokenizer(folder, CONTEXT)


class RoundedWeights:
    """Rounded weights of a checkpoint; implements ``DecoderWeights``."""

    def __init__(self, weights: CheckpointWeights, bits: int, block: int) -> None:
        self._weights = weights
        self._bits = bits
        self._block = block
        self.has = weights.has
        self.vector = weights.vector

    def matrix(self, name: str) -> QuantizedMatrix:
        return quantize(self._weights.rows(name).T, self._bits, self._block)

    def by_token(self, name: str) -> list[QuantizedMatrix]:
        return [self.matrix(name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--precision", choices=("int4", "int8"), default="int4", help="weights of the lowered model")
    parser.add_argument("--block", type=int, default=128, help="weights that share a scale [%(default)s]")
    arguments = parser.parse_args()
    checkpoint, target = arguments.out / "checkpoint", arguments.out / arguments.precision
    if not (checkpoint / "model.safetensors").is_file():
        write_checkpoint(SHAPES[arguments.shape], checkpoint)
    description = describe_checkpoint(checkpoint, CONTEXT)
    if not (target / "paged.json").is_file():
        target.mkdir(exist_ok=True)
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copyfile(checkpoint / name, target / name)
        bits = int(arguments.precision.removeprefix("int"))
        weights = RoundedWeights(CheckpointWeights(checkpoint, description), bits, arguments.block)
        write_decoder(description, weights, target, {})
    geometry = description.geometry
    print(
        f"{target}: {geometry.layers} layers, {geometry.page_bytes():,} bytes a page of {geometry.page_tokens} tokens"
    )


if __name__ == "__main__":
    main()
