"""Runs the ops in graphs of their own, the attention over pages that hold a context already, and takes their time."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper

from edge_rag.runtime.session.sessions import open_session, ops_library
from scripts.bench.kernels.loads import PAGE_TOKENS, Load
from scripts.bench.kernels.products import ProductLoad, ProductRunner

_BUILD_VARIABLE = "EDGE_RAG_OPS_BUILD"
_ROUND_SECONDS = 0.05
_CACHE_LINE = 64


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time of one call of the op.

    Attributes:
        load: What was run.
        build: The kernel build, or "fastest".
        seconds: Median over the rounds.
        best: The shortest round.
    """

    load: Load | ProductLoad
    build: str
    seconds: float
    best: float


def _open(load: Load) -> ort.InferenceSession:
    integers = ("positions", "slot_mapping", "cumulative_sequence_lengths", "block_table")
    kinds = {"query": TensorProto.FLOAT, "pages": TensorProto.INT8, "cos": TensorProto.FLOAT, "sin": TensorProto.FLOAT}
    kinds |= dict.fromkeys(integers, TensorProto.INT32)
    node = helper.make_node(
        "PagedAttention",
        ["query", "", "", "pages", "cos", "sin", *integers],
        ["output"],
        domain="ai.edge_rag",
        num_heads=load.query_heads,
        kv_num_heads=load.kv_heads,
        page_tokens=PAGE_TOKENS,
        scale=load.head_size**-0.5,
    )
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    graph = helper.make_graph([node], "op", inputs, [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)])
    domains = [helper.make_opsetid("", 22), helper.make_opsetid("ai.edge_rag", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=10)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "op.onnx"
        path.write_bytes(model.SerializeToString())
        return open_session(path, ops_library())


class _AttentionRunner:
    """A step of a layer, its inputs bound."""

    calls = 1

    def __init__(self, load: Load) -> None:
        self.load = load
        self._session = _open(load)
        rng = np.random.default_rng(0)
        width = -(-load.context // PAGE_TOKENS)
        self._table = rng.permutation(load.sequences * width).reshape(load.sequences, width).astype(np.int32)
        room = np.zeros(load.sequences * width * load.page_bytes + _CACHE_LINE, np.int8)
        first = -room.ctypes.data % _CACHE_LINE
        self._pages = room[first : first + room.size - _CACHE_LINE].reshape(-1, load.page_bytes)
        angles = np.arange(load.context)[:, None] * 1e6 ** (-np.arange(load.head_size // 2) * 2 / load.head_size)
        self._cos, self._sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        columns = (load.query_heads + 2 * load.kv_heads) * load.head_size
        self._rows = rng.normal(size=(load.sequences * load.context, columns)).astype(np.float32)
        if load.fresh < load.context:
            binding, _ = self._bind(0, load.context - load.fresh)
            self._session.run_with_iobinding(binding)
        self._binding, self._kept = self._bind(load.context - load.fresh, load.context)
        self._session.run_with_iobinding(self._binding)

    def _bind(self, begin: int, end: int) -> tuple[ort.IOBinding, dict[str, NDArray[np.generic]]]:
        sequences = self.load.sequences
        order = np.arange(begin, end, dtype=np.int32)
        slots = self._table[:, order // PAGE_TOKENS] * PAGE_TOKENS + order % PAGE_TOKENS
        tokens = sequences * order.size
        arrays: dict[str, NDArray[np.generic]] = {
            "query": self._rows[:tokens],
            "pages": self._pages,
            "cos": self._cos,
            "sin": self._sin,
            "positions": np.tile(order, sequences),
            "slot_mapping": slots.reshape(-1).astype(np.int32),
            "cumulative_sequence_lengths": np.arange(0, tokens + 1, order.size, dtype=np.int32),
            "block_table": self._table,
        }
        output = np.empty((tokens, self.load.query_heads * self.load.head_size), np.float32)
        binding = self._session.io_binding()
        for name, array in arrays.items():
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        binding.bind_output("output", "cpu", 0, np.float32, output.shape, output.ctypes.data)
        return binding, arrays | {"output": output}

    def run(self) -> None:
        """Calls the op once."""
        self._session.run_with_iobinding(self._binding)


class _Clock:
    """One load on one build."""

    def __init__(self, load: Load | ProductLoad, build: str) -> None:
        self.build = build
        self.rounds: list[float] = []
        os.environ[_BUILD_VARIABLE] = build
        self._runner = ProductRunner(load) if isinstance(load, ProductLoad) else _AttentionRunner(load)
        self._runner.run()

    def round(self) -> None:
        calls, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < _ROUND_SECONDS or calls == 0:
            self._runner.run()
            calls += self._runner.calls
        self.rounds.append(passed / calls)


def measure(loads: list[Load | ProductLoad], builds: list[str], rounds: int) -> list[Measurement]:
    """Takes the builds in turn, round by round, so that what else the machine does falls on all of them.

    Args:
        loads: What to run.
        builds: Kernel builds; the empty name is the fastest.
        rounds: Rounds for each load and build, at least 1.
    """
    found = []
    for load in loads:
        clocks = [_Clock(load, build) for build in builds]
        for _ in range(rounds):
            for clock in clocks:
                clock.round()
        found += [
            Measurement(load, clock.build or "fastest", statistics.median(clock.rounds), min(clock.rounds))
            for clock in clocks
        ]
    return found
