"""The op alone in a graph, run as the decoder runs it: bound inputs, pages in place."""

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from edge_rag.runtime.session.sessions import open_session, ops_library
from tests.unit.ops.attention_case import Floats, Heads, Pages, Step

LIBRARY_VARIABLE = "EDGE_RAG_TEST_OPS_LIBRARY"
"""Names another build of the library to test, such as one with sanitizers."""


BUILD_VARIABLE = "EDGE_RAG_OPS_BUILD"
"""Names the kernel build that sessions opened from then on use."""


def library() -> Path:
    named = os.environ.get(LIBRARY_VARIABLE)
    return Path(named) if named else ops_library()


def open_node(node: onnx.NodeProto, inputs: Mapping[str, int]) -> ort.InferenceSession:
    """Opens a graph of one node of the library, with the element type of each input."""
    values = [helper.make_tensor_value_info(name, kind, None) for name, kind in inputs.items()]
    output = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph([node], "op", values, [output]),
        opset_imports=[helper.make_opsetid("", 22), helper.make_opsetid("ai.edge_rag", 1)],
        ir_version=10,
    )
    return open_session(model.SerializeToString(), library())


@cache
def builds() -> tuple[str, ...]:
    """The kernel builds this machine can run: the scalar one first, the one that is used by default last."""
    names = ctypes.CDLL(str(library())).edge_rag_ops_builds
    names.restype = ctypes.c_char_p
    return tuple(names().decode().split())


def builds_by_default_first() -> list[object]:
    """The builds as parameters; all but the one that is used by default are slow: their bits are compared elsewhere."""
    *others, default = builds()
    return [pytest.param(default), *(pytest.param(build, marks=pytest.mark.slow) for build in others)]


def open_op(heads: Heads) -> ort.InferenceSession:
    return _open_op(heads, os.environ.get(BUILD_VARIABLE, ""))


@cache
def _open_op(heads: Heads, build: str) -> ort.InferenceSession:
    kinds = {
        "query": TensorProto.FLOAT,
        "key": TensorProto.FLOAT,
        "value": TensorProto.FLOAT,
        "pages": TensorProto.INT8,
        "cos": TensorProto.FLOAT,
        "sin": TensorProto.FLOAT,
        "positions": TensorProto.INT32,
        "slot_mapping": TensorProto.INT32,
        "cumulative_sequence_lengths": TensorProto.INT32,
        "block_table": TensorProto.INT32,
    }
    optional = {"local_window_size": (heads.window, Heads.window), "softcap": (heads.softcap, Heads.softcap)}
    given = {name: value for name, (value, default) in optional.items() if value != default}
    absent = {"key", "value"} if heads.packed else set()
    node = helper.make_node(
        "PagedAttention",
        ["" if name in absent else name for name in kinds],
        ["output"],
        domain="ai.edge_rag",
        num_heads=heads.query_heads,
        kv_num_heads=heads.kv_heads,
        page_tokens=heads.page_tokens,
        scale=heads.scale,
        **given,
    )
    return open_node(node, {name: kind for name, kind in kinds.items() if name not in absent})


def run_op(heads: Heads, step: Step, pages: Pages) -> Floats:
    tokens = step.query.shape[0]
    rows = [array.reshape(tokens, array.shape[1] * array.shape[2]) for array in (step.query, step.key, step.value)]
    feeds: dict[str, NDArray[np.generic]] = (
        {"query": np.concatenate(rows, axis=1)}
        if heads.packed
        else dict(zip(("query", "key", "value"), rows, strict=True))
    )
    for name in ("cos", "sin", "positions", "slot_mapping", "cumulative_sequence_lengths", "block_table"):
        feeds[name] = getattr(step, name)
    session = open_op(heads)
    binding = session.io_binding()
    bound = {name: np.ascontiguousarray(array) for name, array in (feeds | {"pages": pages} | step.replace).items()}
    for name, array in bound.items():
        binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    binding.bind_output("output", "cpu")
    session.run_with_iobinding(binding)
    output: Floats = binding.get_outputs()[0].numpy()
    return output
