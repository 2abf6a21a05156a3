"""Sizes of a lowered model, which a decoder needs before it allocates memory."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edge_rag.errors import ModelFolderInvalid

GEOMETRY_FILE = "paged.json"
GRAPH_FILE = "paged.onnx"
WEIGHTS_FILE = "paged.onnx.data"

FORMAT = 2
"""1: the graph used the original's weights. 2: it has its own, packed for the operators of this package."""

PAGE_TOKENS = 32
"""Tokens of a page in newly lowered graphs; the graph contains it, and the op reads it there."""

_SCALE_BYTES = 4  # of a head


@dataclass(frozen=True, slots=True)
class PagedGeometry:
    """The sizes of a lowered model.

    Attributes:
        max_context: Positions are below this, tokens.
    """

    layers: int
    query_heads: int
    kv_heads: int
    head_size: int
    page_tokens: int
    vocabulary_size: int
    max_context: int
    end_tokens: frozenset[int]

    @property
    def layer_page_bytes(self) -> int:
        """Bytes of one page of one layer: keys and values, and a scale for each token, head and kind."""
        return 2 * self.kv_heads * self.page_tokens * (self.head_size + _SCALE_BYTES)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page, all layers together."""
        return self.layers * self.layer_page_bytes


def read_geometry(folder: Path) -> PagedGeometry:
    return parse_geometry(read_description(folder), folder / GEOMETRY_FILE)


def read_description(folder: Path) -> dict[str, Any]:
    """Reads a lowered model's description."""
    path = folder / GEOMETRY_FILE
    description = read_json(path)
    if description.get("format") != FORMAT:
        found = description.get("format")
        raise ModelFolderInvalid(f"{path} is of format {found!r}, {FORMAT} is read: add the model again")
    return description


def read_json(path: Path) -> dict[str, Any]:
    """Reads a description of any format."""
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelFolderInvalid(f"{path} is missing: the model in {path.parent} is not in the paged form") from error
    except (OSError, ValueError) as error:
        raise ModelFolderInvalid(f"{path} cannot be read: {error}") from error
    if not isinstance(description, dict):
        raise ModelFolderInvalid(f"{path} is not a JSON object")
    return description


def parse_geometry(description: dict[str, Any], path: Path) -> PagedGeometry:
    """Checks a description and returns its sizes.

    Raises:
        ModelFolderInvalid: A size is missing or not a positive integer, or an end token is not in the vocabulary.
    """
    sizes: dict[str, int] = {}
    for name in PagedGeometry.__slots__:
        value = description.get(name)
        if name == "end_tokens":
            continue
        if type(value) is not int or value < 1:
            raise ModelFolderInvalid(f"{path}: {name} is {value!r}, must be a positive integer")
        sizes[name] = value
    end_tokens = description.get("end_tokens")
    if not isinstance(end_tokens, list) or not all(
        type(token) is int and 0 <= token < sizes["vocabulary_size"] for token in end_tokens
    ):
        raise ModelFolderInvalid(f"{path}: end_tokens is {end_tokens!r}, must be a list of token ids")
    return PagedGeometry(**sizes, end_tokens=frozenset(end_tokens))


def describe(geometry: PagedGeometry, lowered_from: dict[str, str]) -> str:
    """Renders the description's file.

    Args:
        lowered_from: SHA-256 of each source file, by name.
    """
    fields = asdict(geometry) | {"end_tokens": sorted(geometry.end_tokens)}
    return json.dumps({"format": FORMAT, **fields, "lowered_from": lowered_from}, indent=2) + "\n"
