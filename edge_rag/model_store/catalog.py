"""The catalogue of recommended models, with memory and disk sizes computed from their shapes."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edge_rag.errors import ConfigurationError
from edge_rag.model_store.source import BLOCK, ModelPrecision

CATALOG_FILE = "catalog.toml"

_SCALE_BYTES = 4
_FLOAT_BYTES = 4
_PROCESS_BYTES = 350 << 20  # daemon, embedder, reranker and indexes of a small collection
_SEQUENCES = 4


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


_Size = Annotated[int, Field(ge=1)]


class Shape(_Strict):
    """Sizes of a decoder, from its published configuration."""

    layers: _Size
    hidden: _Size
    intermediate: _Size
    heads: _Size
    kv_heads: _Size
    head_size: _Size
    vocabulary: _Size
    tied: bool = Field(description="Whether embeddings and head are one matrix.")
    rope_positions: _Size = Field(description="Positions of the rotary tables.")


class CatalogEntry(_Strict):
    """A recommended model.

    ``board_gib`` is the smallest memory of a board that it is recommended for; ``checked`` states what has been run.
    """

    name: str
    family: str
    source: Annotated[str, Field(pattern=r"^(hf:[^/\s]+/[^/\s]+|came along)$")]
    revision: str
    licence: str
    board_gib: Annotated[int, Field(ge=1)]
    precision: Literal["int4", "int8"]
    context: _Size = Field(description="Tokens of prompt and answer included in the memory size.")
    disk_mib: _Size
    memory_mib: _Size
    checked: str
    shape: Shape


class _Document(_Strict):
    format: Literal[1]
    model: list[CatalogEntry]


@dataclass(frozen=True, slots=True)
class Needs:
    """Memory and disk space that a model needs.

    Attributes:
        disk_bytes: Size of the lowered folder.
        memory_bytes: Daemon, weights, and KV pages for a few sequences of the entry's context.
    """

    disk_bytes: int
    memory_bytes: int


def read_catalog(path: Path) -> tuple[CatalogEntry, ...]:
    """Reads a catalogue, in its order.

    Raises:
        ConfigurationError: It is missing or damaged; names the key.
    """
    try:
        return tuple(_Document.model_validate(tomllib.loads(path.read_text("utf-8"))).model)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"{path}: {where}: {first['msg']}") from error


def needs(entry: CatalogEntry) -> Needs:
    """Computes what a model needs from its shape.

    Matrices are quantized in blocks of ``BLOCK`` with a float32 scale each; norms and rotary tables stay float32, as
    does an embedding that is not tied to the head. A token of the KV cache takes one byte per element and one scale per
    head, for keys and for values.
    """
    shape, bits = entry.shape, 4 if entry.precision == ModelPrecision.INT4.value else 8
    query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    hidden, inner = shape.hidden, shape.intermediate
    layer = sum(
        _matrix_bytes(rows, columns, bits)
        for rows, columns in (
            (hidden, query), (hidden, key), (hidden, key), (query, hidden), (hidden, inner), (hidden, inner),
            (inner, hidden),
        )
    ) + 4 * hidden * _FLOAT_BYTES  # fmt: skip
    head = _matrix_bytes(hidden, shape.vocabulary, bits)
    embedding = 0 if shape.tied else hidden * shape.vocabulary * _FLOAT_BYTES
    tables = shape.rope_positions * shape.head_size * _FLOAT_BYTES
    weights = shape.layers * layer + head + embedding + tables
    token = shape.layers * 2 * shape.kv_heads * (shape.head_size + _SCALE_BYTES)
    return Needs(weights, _PROCESS_BYTES + weights + _SEQUENCES * entry.context * token)


def recommend(catalog: tuple[CatalogEntry, ...], available_bytes: int) -> list[CatalogEntry]:
    """Returns the models that fit, the largest first.

    Args:
        catalog: The catalogue.
        available_bytes: Memory available.
    """
    fitting = [entry for entry in catalog if needs(entry).memory_bytes <= available_bytes]
    return sorted(fitting, key=lambda entry: -needs(entry).memory_bytes)


def _matrix_bytes(rows: int, columns: int, bits: int) -> int:
    return rows * columns * bits // 8 + -(-rows // BLOCK) * columns * _SCALE_BYTES
