"""The catalogue of recommended models, with sizes and expected speeds computed from their shapes."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edge_rag.errors import ConfigurationError
from edge_rag.runtime.decoder.product_speed import ProductSpeed
from edge_rag.runtime.model_folder.manifest import ModelRole

CATALOG_FILE = "catalog.toml"

_BITS = {4: 5.0, 8: 8.5}
"""Bits of a stored weight with scale and minimum in float16 (4 bits), or scale alone (8 bits), by block of 32."""
_KV_SCALE_BYTES = 4
_FLOAT_BYTES = 4
_PROCESS_BYTES = 350 << 20  # daemon, embedder, reranker and indexes of a small collection
_SEQUENCES = 4
_UNIT_WEIGHTS = 12 * (4 * 384**2 + 2 * 384 * 1536)
"""Weights that multilingual-e5-small, the default embedder, multiplies each token with."""

CONTEXT_TOKENS = 1024
"""Tokens of a sequence whose keys and values are read in a step of the expected speed."""


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

    ``weights`` is its folder with safetensors; ``source`` is what ``models add`` gets, mostly a GGUF file.
    ``board_gib`` is the smallest memory of a board that it is recommended for; ``checked`` states what has been run.
    """

    role: Literal["generator"] = "generator"
    name: str
    family: str
    weights: Annotated[str, Field(pattern=r"^hf:[^/\s]+/[^/\s]+$")]
    source: Annotated[str, Field(pattern=r"^(hf:[^/\s]+/[^/\s:]+(:[^/\s]+)?|[a-z0-9.-]+)$")]
    licence: str
    board_gib: Annotated[int, Field(ge=1)]
    bits: Literal[4, 8] = Field(description="Bits of a weight of the source.")
    context: _Size = Field(description="Tokens of prompt and answer included in the memory size.")
    good_for: str
    checked: str
    shape: Shape


class EncoderShape(_Strict):
    """Sizes of an encoder, from its published configuration."""

    layers: _Size
    hidden: _Size = Field(description="Elements of a token's vector; an embedder's vectors have as many.")
    intermediate: _Size
    gated: bool = Field(description="Whether the feed-forward part has a gate, as ModernBERT's.")
    vocabulary: _Size
    positions: int = Field(ge=0, description="Rows of the position table; 0 where positions are rotary.")


class EncoderEntry(_Strict):
    """A recommended embedder or cross-encoder.

    ``source`` is what ``models add`` gets, or the name of a model that comes along. ``figure`` is what was published or
    measured of its retrieval; ``checked`` states what has been run.
    """

    name: str
    role: Literal["embedder", "reranker"]
    family: str
    source: Annotated[str, Field(pattern=r"^(hf:[^/\s]+/[^/\s:]+|[a-z0-9.-]+)$")]
    licence: str
    bits: Literal[4, 8] = Field(description="Bits of a weight in the form that is expected to pass.")
    longest_input: _Size = Field(description="Tokens of a text that it reads.")
    languages: str
    figure: str
    good_for: str
    checked: str
    shape: EncoderShape

    @property
    def comes_along(self) -> bool:
        return not self.source.startswith("hf:")


class _Document(_Strict):
    format: Literal[2]
    model: list[CatalogEntry]
    encoder: list[EncoderEntry]


@dataclass(frozen=True, slots=True)
class Catalog:
    """The catalogue.

    Attributes:
        generators: Language models, in the order in which they are proposed.
        encoders: Embedders, then cross-encoders, each in the order in which they are proposed.
    """

    generators: tuple[CatalogEntry, ...]
    encoders: tuple[EncoderEntry, ...]


@dataclass(frozen=True, slots=True)
class Needs:
    """Memory and disk space that a model needs."""

    disk_bytes: int
    memory_bytes: int


def read_catalog(path: Path) -> Catalog:
    """Reads a catalogue."""
    try:
        document = _Document.model_validate(tomllib.loads(path.read_text("utf-8")))
        return Catalog(tuple(document.model), tuple(document.encoder))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"{path}: {where}: {first['msg']}") from error


def needs(entry: CatalogEntry) -> Needs:
    """Computes the needs of a model from its shape.

    Norms and rotary tables are float32; all matrices have the source's bits. A token of the KV cache takes one byte per
    element and one scale per head, for keys and for values.
    """
    shape = entry.shape
    tables = shape.rope_positions * shape.head_size * _FLOAT_BYTES
    embedding = 0 if shape.tied else shape.hidden * shape.vocabulary
    norms = 4 * shape.layers * shape.hidden * _FLOAT_BYTES
    weights = int((_weights_read(shape) + embedding) * _BITS[entry.bits] / 8) + norms + tables
    return Needs(weights, _PROCESS_BYTES + weights + _SEQUENCES * entry.context * _kv_bytes(shape))


def encoder_needs(entry: EncoderEntry) -> Needs:
    """Computes the needs of an encoder from its shape: all matrices and the word embeddings have the entry's bits."""
    shape = entry.shape
    words, positions = shape.vocabulary * shape.hidden, shape.positions * shape.hidden * _FLOAT_BYTES
    weights = int((encoder_weights_per_token(entry) + words) * _BITS[entry.bits] / 8) + positions
    return Needs(weights, _PROCESS_BYTES + weights)


def encoder_weights_per_token(entry: EncoderEntry) -> int:
    """Returns the weights that each token of a text is multiplied with, which processor time is proportional to."""
    shape = entry.shape
    feed_forward = (3 if shape.gated else 2) * shape.hidden * shape.intermediate
    return shape.layers * (4 * shape.hidden**2 + feed_forward)


def relative_cost(entry: EncoderEntry) -> float:
    """Returns an encoder's weights for each token of a text, as a multiple of multilingual-e5-small's."""
    return round(encoder_weights_per_token(entry) / _UNIT_WEIGHTS, 2)


@dataclass(frozen=True, slots=True)
class ExpectedSpeed:
    """Tokens a second that the products with the weights allow; sampling, norms and scheduling come on top.

    Attributes:
        one: Decoding one sequence of ``CONTEXT_TOKENS`` tokens.
    """

    one: float
    eight: float


def expected_speed(entry: CatalogEntry, measured: ProductSpeed) -> ExpectedSpeed:
    """Divides the bytes that a step reads by those that this machine was measured to read in a second.

    A step multiplies every weight but the embedding table once, however many sequences it has, and reads the keys and
    values of each; those are taken to be as fast as weights of 8 bits of one sequence.
    """
    kv = CONTEXT_TOKENS * _kv_bytes(entry.shape) / measured.weights_per_s[8, 1]
    weights = _weights_read(entry.shape)
    one, eight = (rows / (weights / measured.weights_per_s[entry.bits, rows] + rows * kv) for rows in (1, 8))
    return ExpectedSpeed(one, eight)


def recommend(catalog: Catalog, available_bytes: int, role: ModelRole | None = None) -> Catalog:
    """Returns the models that fit, in the catalogue's order, which ranks them."""
    return Catalog(
        tuple(
            entry
            for entry in catalog.generators
            if role in (None, ModelRole.GENERATOR) and needs(entry).memory_bytes <= available_bytes
        ),
        tuple(
            entry
            for entry in catalog.encoders
            if role in (None, ModelRole(entry.role)) and encoder_needs(entry).memory_bytes <= available_bytes
        ),
    )


def _weights_read(shape: Shape) -> int:
    query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    layer = 2 * shape.hidden * (query + key) + 3 * shape.hidden * shape.intermediate
    return shape.layers * layer + shape.hidden * shape.vocabulary


def _kv_bytes(shape: Shape) -> int:
    """Returns the bytes of a token in the KV cache."""
    return shape.layers * 2 * shape.kv_heads * (shape.head_size + _KV_SCALE_BYTES)
