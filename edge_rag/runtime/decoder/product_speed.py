"""Measures how fast this machine multiplies with packed weights, the larger part of a decoding step."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

import edge_rag
from edge_rag.core.atomic_file import replace_file
from edge_rag.runtime.lowering.onnx_graph import OPS_DOMAIN
from edge_rag.runtime.lowering.weight_packing import PANEL_COLUMNS, BlockFormat, operator_inputs
from edge_rag.runtime.session.sessions import open_session, ops_library, pool_threads

ROWS: Final = (1, 8)
"""Tokens of a decoding step that are measured: one sequence, and eight."""
BITS: Final = (4, 8)
_COLUMNS: Final = 8192
_INNER: Final = 2048
_BLOCK: Final = 32
_WEIGHT_BYTES: Final = 96 << 20
"""Weights that are taken in turn, more than a cache of this class of machines holds."""
_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class ProductSpeed:
    """Measured speeds.

    Attributes:
        weights_per_s: Weights multiplied in a second, by (bits of a weight, tokens of the step); weights with their
            scales and minima of float16 by block of 32.
    """

    threads: int
    weights_per_s: Mapping[tuple[int, int], float]


def remembered_product_speed(
    processor: str, again: bool, measure: Callable[[], ProductSpeed] | None = None, cache: Path | None = None
) -> ProductSpeed:
    """Returns the speed that was measured before with this processor, number of threads and build; else measures it.

    Args:
        measure: Measures it; None for ``measure_product_speed``.
        cache: File that remembers it; None for ``edge-rag/product-speed.json`` in the user's cache directory (XDG). One
            that cannot be written is left.
    """
    path = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "edge-rag", "product-speed.json")
    library = Path(ops_library()).stat()
    made_for = [edge_rag.__version__, processor, pool_threads(), library.st_size, library.st_mtime_ns]
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_bytes())
        if not again and kept["made_for"] == made_for:
            speeds = {(int(bits), int(rows)): float(speed) for bits, rows, speed in kept["weights_per_s"]}
            if speeds.keys() == {(bits, rows) for bits in BITS for rows in ROWS} and min(speeds.values()) > 0:
                return ProductSpeed(pool_threads(), MappingProxyType(speeds))
    measured = (measure or measure_product_speed)()
    plain = {"made_for": made_for, "weights_per_s": [[*case, speed] for case, speed in measured.weights_per_s.items()]}
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, json.dumps(plain).encode(), mode=0o600)
    return measured


def measure_product_speed(seconds: float = _SECONDS) -> ProductSpeed:
    room = np.random.default_rng(0).integers(0, 1 << 63, _WEIGHT_BYTES // 8, np.int64).view(np.uint8)
    cases = [(bits, rows) for bits in BITS for rows in ROWS]
    found = {(bits, rows): _measure(room, bits, rows, seconds / len(cases)) for bits, rows in cases}
    return ProductSpeed(pool_threads(), MappingProxyType(found))


def _measure(room: NDArray[np.uint8], bits: int, rows: int, seconds: float) -> float:
    form = BlockFormat(_INNER, _COLUMNS, bits, _BLOCK)
    copies = room.size // (form.panels * form.panel_bytes)
    matrices = room[: copies * form.panels * form.panel_bytes].reshape(copies, form.panels, form.panel_bytes)
    scales = np.full((copies, 2, form.panels, form.blocks, PANEL_COLUMNS), 1e-3, np.float16)
    values: dict[str, NDArray[np.generic]] = {"a": np.ones((rows, _INNER), np.float32)}
    nodes = []
    for copy in range(copies):
        names = {name: f"{name}{copy}" for name in ("packed", "scales", "minima")}
        parts = (matrices[copy], scales[copy, 0], scales[copy, 1])
        values |= dict(zip(names.values(), parts, strict=True))
        sizes = {"K": form.rows, "N": form.columns, "bits": form.bits, "block_size": form.block_size}
        inputs = ["a", *operator_inputs(names)]
        nodes.append(helper.make_node("QuantizedMatMul", inputs, [f"y{copy}"], domain=OPS_DOMAIN, **sizes))
    kinds = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "uint8": TensorProto.UINT8}
    inputs = [helper.make_tensor_value_info(name, kinds[each.dtype.name], None) for name, each in values.items()]
    outputs = [helper.make_tensor_value_info(f"y{copy}", TensorProto.FLOAT, None) for copy in range(copies)]
    graph = helper.make_graph(nodes, "products", inputs, outputs)
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid(OPS_DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = open_session(model.SerializeToString(), ops_library())
    binding = session.io_binding()
    for name, each in values.items():
        binding.bind_input(name, "cpu", 0, each.dtype.type, each.shape, each.ctypes.data)
    results = np.empty((copies, rows, _COLUMNS), np.float32)
    for copy in range(copies):
        result = results[copy]
        binding.bind_output(f"y{copy}", "cpu", 0, np.float32, result.shape, result.ctypes.data)
    session.run_with_iobinding(binding)
    fastest, end = float("inf"), time.perf_counter() + seconds
    while fastest == float("inf") or time.perf_counter() < end:
        started = time.perf_counter()
        session.run_with_iobinding(binding)
        fastest = min(fastest, time.perf_counter() - started)
    return copies * _INNER * _COLUMNS / fastest
