"""Copies the keys and values of computed tokens to other positions by rotating the keys.

A key is stored rotated by the angles of its position (Su et al., RoFormer, 2021). Rotating it by the angles of the
distance gives the key at the other position, as if the same text preceded it (as in Gim et al., Prompt Cache, 2024). It
is rounded once more. Values stay as they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed, ModelFolderInvalid
from edge_rag.runtime.lowering.geometry import GRAPH_FILE, PagedGeometry
from edge_rag.runtime.lowering.weight_packing import StoredTensors
from edge_rag.runtime.session.sessions import ops_library

_COSINE, _SINE = 4, 5

Slots = NDArray[np.int64]
Table = NDArray[np.float32]


def read_rotary_tables(folder: Path) -> list[tuple[Table, Table]]:
    """Reads the rotary tables of each layer of a lowered model.

    Returns:
        For each layer cosines and sines, float32 [positions, pairs]; layers with equal tables share them.
    """
    path = folder / GRAPH_FILE
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception as error:
        raise ModelFolderInvalid(f"{path} cannot be read: {error}") from error
    stored = StoredTensors(graph, folder)
    nodes = [node for node in graph.node if node.op_type == "PagedAttention"]
    if any(stored.find(node.input[index]) is None for node in nodes for index in (_COSINE, _SINE)):
        raise ModelFolderInvalid(f"{path}: a rotary table is not stored in it")
    names = [(node.input[_COSINE], node.input[_SINE]) for node in nodes]
    tables = {pair: (stored.array(pair[0]), stored.array(pair[1])) for pair in dict.fromkeys(names)}
    return [tables[pair] for pair in names]


class RopeShift:
    """Copies tokens between slots of paged caches."""

    def __init__(
        self,
        geometry: PagedGeometry,
        layers: Sequence[NDArray[np.int8]],
        tables: Sequence[tuple[Table, Table]],
    ) -> None:
        self._sizes = geometry.kv_heads, geometry.head_size, geometry.page_tokens
        self._layers = layers
        self._tables = tables
        self._move = ctypes.CDLL(str(ops_library())).edge_rag_move_tokens
        pointer, count = ctypes.c_void_p, ctypes.c_int64
        self._move.argtypes = (pointer, *[count] * 4, pointer, pointer, count, pointer, pointer)
        self._move.restype = ctypes.c_int

    def move(self, sources: Slots, targets: Slots, distance: int) -> None:
        """Copies tokens, in all layers.

        Args:
            sources: int64 [n], slots (``page * page_tokens + offset``) that hold them.
            targets: int64 [n], slots to write; none twice, and none a source.
            distance: Shift of their positions, from 0 to the last position of the rotary tables.

        Raises:
            InferenceFailed: The distance is outside the tables, or the library does not support the page sizes.
        """
        sources, targets = (np.ascontiguousarray(slots, np.int64) for slots in (sources, targets))
        if not all(0 <= distance < len(cosine) for cosine, _ in self._tables):
            raise InferenceFailed(f"tokens cannot be moved by {distance} positions")
        known: tuple[Table, Table] | None = None
        for layer, tables in zip(self._layers, self._tables, strict=True):
            if tables is not known:
                cosine, sine = _unit(tables[0][distance], tables[1][distance])
                known = tables
            angles = (cosine.ctypes.data, sine.ctypes.data) if distance else (None, None)
            slots = (len(sources), sources.ctypes.data, targets.ctypes.data)
            if self._move(layer.ctypes.data, *self._sizes, len(cosine), *angles, *slots):
                raise InferenceFailed("the op library does not support pages of this model's sizes")


def _unit(cosine: Table, sine: Table) -> tuple[Table, Table]:
    length: Table = np.sqrt(cosine * cosine + sine * sine, dtype=np.float32)
    return np.ascontiguousarray(cosine / length), np.ascontiguousarray(sine / length)


class PageViews:
    """Views of a layer's pages by content; axis 0 of each is the page, axis 1 the head."""

    def __init__(self, geometry: PagedGeometry, pages: NDArray[np.int8]) -> None:
        size, tokens, heads = geometry.head_size, geometry.page_tokens, geometry.kv_heads
        blocks = pages.reshape(len(pages), heads, -1)
        ends = np.cumsum([size * tokens, 4 * tokens, size * tokens, 4 * tokens])
        keys, key_scales, values, value_scales = np.split(blocks, ends[:-1], axis=2)
        self.keys: NDArray[np.uint8] = _split(keys.view(np.uint8), size // 4, tokens, 4)
        self.key_scales: NDArray[np.float32] = key_scales.view(np.float32)
        self.values: NDArray[np.int8] = _split(values, tokens // 4, size, 4)
        self.value_scales: NDArray[np.float32] = value_scales.view(np.float32)


def _split(block: NDArray[Any], *sizes: int) -> NDArray[Any]:
    """Splits the last axis; never copies."""
    return block.reshape((*block.shape[:2], *sizes), copy=False)
