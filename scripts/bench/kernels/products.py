"""Products with quantized weights: the shapes of a 0.5B model's layers and an encoder's, in decode and in prefill."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper

from edge_rag.runtime.lowering.weight_packing import operator_inputs
from edge_rag.runtime.session.sessions import open_session, ops_library

_LANES = 16
_CACHE_LINE = 64
_DECODE_ROWS = 16
_CACHES = 128e6  # bytes that no cache holds


@dataclass(frozen=True, slots=True)
class ProductLoad:
    """Rows of activations times one matrix of weights.

    Attributes:
        name: What it is called in the table.
        rows: Rows of activations.
        inner: Elements of a row; a multiple of the block.
        columns: Columns of the matrix; a multiple of 16.
        bits: Of a weight, 4 or 8.
        block: Weights of a column that share a scale.
        stored: Type of the scales, and of the minima if there are any.
        minima: Whether there are minima.
    """

    name: str
    rows: int
    inner: int
    columns: int
    bits: int
    block: int
    stored: str = "float32"
    minima: bool = False

    @property
    def weight_bytes(self) -> int:
        """Weights, scales and minima."""
        scale_bytes = np.dtype(self.stored).itemsize * (1 + self.minima)
        return self.inner * self.columns * self.bits // 8 + scale_bytes * self.columns * (self.inner // self.block)

    @property
    def bytes(self) -> int:
        """What must be read or written once."""
        return self.weight_bytes + 4 * self.rows * (self.inner + self.columns)

    @property
    def products(self) -> int:
        """INT8 products."""
        return self.rows * self.inner * self.columns

    @property
    def copies(self) -> int:
        """Matrices that are taken in turn: in decode no weight is in a cache when it is its turn."""
        return max(1, int(_CACHES / self.weight_bytes)) if self.rows <= _DECODE_ROWS else 1


def _of(
    layer: str,
    inner: int,
    columns: int,
    bits: int,
    block: int,
    rows: tuple[int, ...],
    stored: str = "float32",
    minima: bool = False,
) -> list[ProductLoad]:
    return [ProductLoad(f"{layer} x {count}", count, inner, columns, bits, block, stored, minima) for count in rows]


PRODUCTS = (
    *_of("896x1152 INT4/128", 896, 1152, 4, 128, (1, 8, 512)),
    *_of("896x4864 INT4/128", 896, 4864, 4, 128, (1, 8, 32, 512)),
    *_of("4864x896 INT4/128", 4864, 896, 4, 128, (1, 8, 32, 512)),
    *_of("896x151936 INT4/128", 896, 151936, 4, 128, (1, 8)),
    *_of("896x4864 INT8/32", 896, 4864, 8, 32, (1, 8, 512)),
    *_of("896x4864 INT4/32 f16 minima", 896, 4864, 4, 32, (1, 8, 512), "float16", minima=True),
    *_of("896x4864 INT4/32 u8 minima", 896, 4864, 4, 32, (1, 8, 512), "uint8", minima=True),
    *_of("384x1536 INT8/384", 384, 1536, 8, 384, (512,)),
    *_of("1536x384 INT8/1536", 1536, 384, 8, 1536, (512,)),
)


def _weights(load: ProductLoad, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Random weights at the start of a cache line, as in a model's file."""
    size = load.inner * load.columns * load.bits // 8
    room = np.empty(size + _CACHE_LINE, np.uint8)
    first = -room.ctypes.data % _CACHE_LINE
    room[first : first + size] = np.frombuffer(rng.bytes(size), np.uint8)
    return room[first : first + size].reshape(load.columns // _LANES, -1)


class ProductRunner:
    """A load's op in a graph of its own, once for every copy of the weights; its inputs are bound."""

    def __init__(self, load: ProductLoad) -> None:
        self.calls = load.copies
        rng = np.random.default_rng(0)
        panels, blocks = load.columns // _LANES, load.inner // load.block
        self._kept: dict[str, NDArray[np.generic]] = {
            "a": rng.normal(size=(load.rows, load.inner)).astype(np.float32),
        }
        kinds = ("scale", "minimum") if load.minima else ("scale",)
        for copy in range(load.copies):
            self._kept[f"packed{copy}"] = _weights(load, rng)
            for kind in kinds:
                name = {"scale": "scales", "minimum": "minima"}[kind]
                self._kept[f"{name}{copy}"] = np.ones((panels, blocks, _LANES), load.stored)
                if load.stored == "uint8":
                    self._kept[f"{kind}_factors{copy}"] = np.full((panels, 1, _LANES), 1e-3, np.float32)
        self._session = self._open(load)
        self._binding = self._session.io_binding()
        for name, array in self._kept.items():
            self._binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self._output = np.empty((load.rows, load.columns), np.float32)
        for copy in range(load.copies):
            shape, address = self._output.shape, self._output.ctypes.data
            self._binding.bind_output(f"y{copy}", "cpu", 0, np.float32, shape, address)

    def _open(self, load: ProductLoad) -> ort.InferenceSession:
        endings = {name[:-1] for name in self._kept if name.endswith("0")}
        nodes = [
            helper.make_node(
                "QuantizedMatMul",
                ["a", *operator_inputs({ending: f"{ending}{copy}" for ending in endings})],
                [f"y{copy}"],
                domain="ai.edge_rag",
                K=load.inner,
                N=load.columns,
                bits=load.bits,
                block_size=load.block,
            )
            for copy in range(load.copies)
        ]
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), None)
            for name, a in self._kept.items()
        ]
        outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(load.copies)]
        domains = [helper.make_opsetid("", 22), helper.make_opsetid("ai.edge_rag", 1)]
        graph = helper.make_graph(nodes, "op", inputs, outputs)
        model = helper.make_model(graph, opset_imports=domains, ir_version=10)
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "op.onnx"
            path.write_bytes(model.SerializeToString())
            return open_session(path, ops_library())

    def run(self) -> None:
        """Calls the op once for every copy."""
        self._session.run_with_iobinding(self._binding)
