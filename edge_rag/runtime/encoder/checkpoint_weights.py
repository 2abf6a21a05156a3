"""The tensors of an encoder's checkpoint: which there must be, with their shapes, and their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Final

from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.checkpoint.architectures import Settings
from edge_rag.runtime.checkpoint.safetensors import Floats, Tensors

_PREFIXES: Final = ("", "bert.", "roberta.", "model.")
"""Where the network lies in classes of transformers that put something on top of it."""

_MAX_LAYERS: Final = 512
_MAX_WIDTH: Final = 1 << 16
_MAX_VOCABULARY: Final = 1 << 20
_MAX_POSITIONS: Final = 1 << 20
_MAX_TYPES: Final = 16

Shapes = Iterator[tuple[str, tuple[int, ...]]]


class EncoderWeights(Mapping[str, Floats]):
    """Tensors by their names without the network's prefix, float32; read from the mapped files when asked for."""

    def __init__(self, folder: Path, shapes: Shapes) -> None:
        self._tensors = Tensors(folder)
        self._places: dict[str, str] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for name, shape in shapes:
            place = next((prefix + name for prefix in _PREFIXES if prefix + name in self._tensors), None)
            if place is None:
                raise ModelFolderInvalid(f"{folder.name}: the tensor {name} is missing")
            found = self._tensors.shape(place)
            if found != shape:
                raise ModelFolderInvalid(
                    f"{folder.name}: the tensor {place} has the shape {list(found)}; by config.json it is {list(shape)}"
                )
            self._places[name] = place
            self._shapes[name] = shape

    @property
    def elements(self) -> int:
        return sum(prod(shape) for shape in self._shapes.values())

    def __getitem__(self, name: str) -> Floats:
        read = self._tensors.vector if len(self._shapes[name]) == 1 else self._tensors.rows
        return read(self._places[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def bert_tensors(config: Settings, classifier: bool) -> Shapes:
    """Yields the tensors of a BERT or RoBERTa network, by their names in transformers without the prefix."""
    width = config.integer("hidden_size", 1, _MAX_WIDTH)
    inner = config.integer("intermediate_size", 1, _MAX_WIDTH)
    tables = {
        "word": config.integer("vocab_size", 1, _MAX_VOCABULARY),
        "position": config.integer("max_position_embeddings", 1, _MAX_POSITIONS),
        "token_type": config.integer("type_vocab_size", 1, _MAX_TYPES, 2),
    }
    for table, rows in tables.items():
        yield f"embeddings.{table}_embeddings.weight", (rows, width)
    yield from _norm("embeddings.LayerNorm", width)
    for number in range(config.integer("num_hidden_layers", 1, _MAX_LAYERS)):
        layer = f"encoder.layer.{number}"
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            yield from _linear(f"{layer}.{part}", width, width)
        yield from _norm(f"{layer}.attention.output.LayerNorm", width)
        yield from _linear(f"{layer}.intermediate.dense", inner, width)
        yield from _linear(f"{layer}.output.dense", width, inner)
        yield from _norm(f"{layer}.output.LayerNorm", width)
    if classifier and config.values.get("model_type") == "bert":
        yield from _linear("pooler.dense", width, width)
        yield from _linear("classifier", 1, width)
    elif classifier:
        yield from _linear("classifier.dense", width, width)
        yield from _linear("classifier.out_proj", 1, width)


def modern_bert_tensors(config: Settings) -> Shapes:
    """Yields the tensors of a ModernBERT network without biases; see ``bert_tensors``."""
    width = config.integer("hidden_size", 1, _MAX_WIDTH)
    inner = config.integer("intermediate_size", 1, _MAX_WIDTH)
    yield "embeddings.tok_embeddings.weight", (config.integer("vocab_size", 1, _MAX_VOCABULARY), width)
    yield "embeddings.norm.weight", (width,)
    for number in range(config.integer("num_hidden_layers", 1, _MAX_LAYERS)):
        layer = f"layers.{number}"
        if number > 0:
            yield f"{layer}.attn_norm.weight", (width,)
        yield f"{layer}.attn.Wqkv.weight", (3 * width, width)
        yield f"{layer}.attn.Wo.weight", (width, width)
        yield f"{layer}.mlp_norm.weight", (width,)
        yield f"{layer}.mlp.Wi.weight", (2 * inner, width)
        yield f"{layer}.mlp.Wo.weight", (width, inner)
    yield "final_norm.weight", (width,)


def _linear(name: str, outputs: int, inputs: int) -> Shapes:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _norm(name: str, width: int) -> Shapes:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)
