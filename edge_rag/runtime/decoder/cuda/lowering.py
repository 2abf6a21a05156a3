"""Lowers a paged graph to ONNX Runtime's own operators, in float16, for the CUDA provider.

``ai.edge_rag::PagedAttention`` becomes ``com.microsoft::PagedAttention`` over INT8 keys and values with a scale for
each channel; packed weights become ``MatMulNBits`` and ``GatherBlockQuantized`` again, with the same integers, so both
forms of a model compute with the same weights. Input names are those of the onnxruntime-genai builder's paged graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from dataclasses import replace as with_changes
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_rag.errors import ModelNotLowerable
from edge_rag.runtime.decoder.cuda.kv_scales import KvScales, Scales
from edge_rag.runtime.lowering.geometry import PagedGeometry
from edge_rag.runtime.lowering.onnx_graph import OPS_DOMAIN, attributes, drop_unused, rename, replace
from edge_rag.runtime.lowering.weight_packing import (
    BlockFormat,
    PackedMatrix,
    QuantizedMatrix,
    StoredTensors,
    WeightsFile,
    packed_of_inputs,
    unpack,
    with_zero_points,
)

MICROSOFT: Final = "com.microsoft"
KEY_CACHE: Final = "past_key_values.{}.key"
VALUE_CACHE: Final = "past_key_values.{}.value"

_AXIS, _LOGITS = "edge_rag.axis", "edge_rag.logits.float16"
_COSINE, _SINE = 4, 5
_HEAD_STEP, _PAIR_STEP = 16, 8  # multiples that the provider's rotation and attention need
_LARGEST_HALF = float(np.finfo(np.float16).max)
_CARRIED_OVER = ("kv_num_heads", "local_window_size", "num_heads", "scale", "softcap")


Bytes = NDArray[np.uint8]
Halves = NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class OriginalMatrix:
    """A matrix [K, N] as ``MatMulNBits`` stores it.

    Attributes:
        weights: uint8 [N, blocks, block_size * bits / 8], the low half of a byte first.
        scales: float16 [N, blocks].
        zero_points: uint8 [N, blocks * bits / 8 rounded up], or None for the default.
    """

    form: BlockFormat
    weights: Bytes
    scales: Halves
    zero_points: Bytes | None


def lower_for_cuda(
    model: onnx.ModelProto, stored: StoredTensors, geometry: PagedGeometry, scales: KvScales, file: WeightsFile
) -> None:
    """Lowers a paged graph to the CUDA form, with one matrix in memory at a time.

    Args:
        model: A paged graph, loaded without external data; changed in place.
    """
    if geometry.head_size % _HEAD_STEP:
        raise ModelNotLowerable(f"heads of {geometry.head_size} elements have no form for cuda")
    _Rewriting(model.graph, stored, file).rewrite(scales)
    drop_unused(model.graph, "logits")
    _halve(model.graph, stored, file)
    _declare(model.graph, geometry)
    replace(model.opset_import, [opset for opset in model.opset_import if opset.domain != OPS_DOMAIN])


class _Rewriting:
    """Rewrites the nodes of a graph in order."""

    def __init__(self, graph: onnx.GraphProto, stored: StoredTensors, file: WeightsFile) -> None:
        self._graph = graph
        self._stored = stored
        self._file = file
        self._nodes: list[onnx.NodeProto] = []
        self._matrices: dict[str, tuple[OriginalMatrix, list[str]]] = {}
        casts = (node for node in graph.node if node.op_type == "Cast" and stored.find(node.input[0]) is not None)
        self._widened = {node.output[0]: node.input[0] for node in casts}

    def rewrite(self, scales: KvScales) -> None:
        layer = 0
        for node in self._graph.node:
            match node.op_type if node.domain == OPS_DOMAIN else "":
                case "PagedAttention":
                    self._attend(node, layer, scales)
                    layer += 1
                case "QuantizedMatMul":
                    self._multiply(node)
                case "QuantizedRows":
                    self._look_up(node)
                case "":
                    self._nodes.append(node)
                case unknown:
                    raise ModelNotLowerable(f"{node.name}: {unknown} has no form for cuda")
        for node in self._nodes:
            rename(node.output, "logits", _LOGITS)
        self._add("Cast", [_LOGITS], "logits", to=TensorProto.FLOAT)
        replace(self._graph.node, self._nodes)

    def _add(self, kind: str, inputs: Sequence[str], output: str, domain: str = "", **found: float | str) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [output], name=output, domain=domain, **found))
        return output

    def _attend(self, node: onnx.NodeProto, layer: int, scales: KvScales) -> None:
        query, key, value = (
            self._add("Squeeze", [name, _AXIS], f"{node.output[0]}.{kind}") if name else ""
            for kind, name in zip(("query", "key", "value"), node.input[:3], strict=True)
        )
        cosine, sine = node.input[_COSINE], node.input[_SINE]
        table = self._stored.array(cosine)
        rotates = not (table.shape[1] == 1 and (table == 1).all())
        if rotates and table.shape[1] % _PAIR_STEP:
            raise ModelNotLowerable(f"{node.name}: a rotation of {table.shape[1]} pairs has no form for cuda")
        found = {name: held for name, held in attributes(node).items() if name in _CARRIED_OVER}
        inputs = [
            query, key, value, KEY_CACHE.format(layer), VALUE_CACHE.format(layer),
            "cumulative_sequence_lengths", "past_sequence_lengths", "block_table",
            cosine if rotates else "", sine if rotates else "",
            "", "", "", "",  # slots follow from the lengths; no sinks; norms are nodes of their own
            self._keep(f"edge_rag.{layer}.key_scale", scales.keys[layer]),
            self._keep(f"edge_rag.{layer}.value_scale", scales.values[layer]),
            "attention_metadata",
        ]  # fmt: skip
        attended = self._add(
            "PagedAttention", inputs, f"{node.output[0]}.rows", MICROSOFT, do_rotary=int(rotates),
            k_quant_type="PER_CHANNEL", v_quant_type="PER_CHANNEL", **found,
        )  # fmt: skip
        self._add("Unsqueeze", [attended, _AXIS], node.output[0])

    def _keep(self, name: str, scales: Scales) -> str:
        self._graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(scales[:, None]), name))
        return name

    def _multiply(self, node: onnx.NodeProto) -> None:
        source, result = node.input[0], node.output[0]
        if not attributes(node).get("gated", 0):
            self._product(source, *self._matrix(node), result)
            return
        parts = split_alternate(self._packed(node))
        gate, up = (
            self._product(source, original, self._store(f"{node.input[1]}.{kind}", original), f"{result}.{kind}")
            for kind, original in zip(("gate", "up"), map(original_matrix, parts), strict=True)
        )
        opened = self._add("Sigmoid", [gate], f"{result}.opened")
        activated = self._add("Mul", [gate, opened], f"{result}.activated")
        self._add("Mul", [activated, up], result)

    def _product(self, source: str, matrix: OriginalMatrix, names: list[str], result: str) -> str:
        form = matrix.form
        sizes = {"K": form.rows, "N": form.columns, "bits": form.bits, "block_size": form.block_size}
        return self._add("MatMulNBits", [source, *names], result, MICROSOFT, **sizes)

    def _look_up(self, node: onnx.NodeProto) -> None:
        matrix, (weights, *rest) = self._matrix(node)
        form = matrix.form
        if form.rows % form.block_size:
            raise ModelNotLowerable(f"{node.name}: rows of {form.rows} in blocks of {form.block_size} have none")
        shape = self._constant(f"{weights}.shape", [form.columns, -1])
        table = self._add("Reshape", [weights, shape], f"{weights}.table")
        self._add(
            "GatherBlockQuantized", [table, node.input[0], *rest], node.output[0], MICROSOFT,
            bits=form.bits, block_size=form.block_size, gather_axis=0, quantize_axis=1,
        )  # fmt: skip

    def _constant(self, name: str, values: list[int]) -> str:
        self._graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def _matrix(self, node: onnx.NodeProto) -> tuple[OriginalMatrix, list[str]]:
        name = node.input[1]
        if name not in self._matrices:
            original = original_matrix(self._packed(node))
            shared = sum(name in other.input for other in self._graph.node) > 1
            names = self._store(name, original)
            if not shared:
                return original, names
            self._matrices[name] = (original, names)
        return self._matrices[name]

    def _packed(self, node: onnx.NodeProto) -> PackedMatrix:
        return read_packed(node, [self._widened.get(name, name) for name in node.input[1:]], self._stored)

    def _store(self, name: str, matrix: OriginalMatrix) -> list[str]:
        tensors: dict[str, NDArray[Any] | None] = {
            "original": matrix.weights,
            "original.scales": matrix.scales,
            "original.points": matrix.zero_points,
        }
        names: list[str] = []
        for suffix, values in tensors.items():
            if values is not None:
                kind = helper.np_dtype_to_tensor_dtype(values.dtype)
                tensor = self._graph.initializer.add(name=f"{name}.{suffix}", data_type=kind, dims=values.shape)
                self._file.store(tensor, values)
                names.append(tensor.name)
        return names


def _halve(graph: onnx.GraphProto, stored: StoredTensors, file: WeightsFile) -> None:
    """Converts weights and activations to float16; the scales of keys and values stay float32."""
    kept = {name for node in graph.node if node.op_type == "PagedAttention" for name in node.input[14:16]}
    for tensor in graph.initializer:
        before = stored.find(tensor.name)
        if before is None or tensor.name in kept:
            continue
        if tensor.data_type == TensorProto.FLOAT:
            values = _halved(tensor.name, np.asarray(stored.array(tensor.name)))
            del tensor.float_data[:]
            tensor.data_type = TensorProto.FLOAT16
            file.store(tensor, values)
        elif tensor.data_location == TensorProto.EXTERNAL:
            file.store(tensor, stored.content(tensor.name))
    for node in graph.node:
        if node.output[0] == "logits":
            continue
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
            elif attribute.HasField("t") and attribute.t.data_type == TensorProto.FLOAT:
                values = _halved(node.name, numpy_helper.to_array(attribute.t))
                attribute.t.CopyFrom(numpy_helper.from_array(values, attribute.t.name))


def _halved(name: str, values: NDArray[np.float32]) -> NDArray[np.float16]:
    if values.size and not np.abs(values).max() <= _LARGEST_HALF:
        raise ModelNotLowerable(f"{name} holds numbers that float16 does not")
    return values.astype(np.float16)


def _declare(graph: onnx.GraphProto, geometry: PagedGeometry) -> None:
    cache: list[int | str] = ["num_blocks", geometry.page_tokens, geometry.kv_heads, geometry.head_size]
    inputs: list[tuple[str, int, list[int | str]]] = [
        ("input_ids", TensorProto.INT64, ["num_tokens"]),
        ("cumulative_sequence_lengths", TensorProto.INT32, ["batch_plus_one"]),
        ("past_sequence_lengths", TensorProto.INT32, ["batch"]),
        ("block_table", TensorProto.INT32, ["batch", "max_blocks"]),
        ("attention_metadata", TensorProto.INT32, [3]),
        ("logits_indices", TensorProto.INT64, ["num_logits"]),
    ]
    for layer in range(geometry.layers):
        inputs += [(name.format(layer), TensorProto.INT8, [*cache]) for name in (KEY_CACHE, VALUE_CACHE)]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["num_logits", geometry.vocabulary_size])
    replace(graph.input, [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs])
    replace(graph.output, [logits])
    replace(graph.value_info, [])


def read_packed(node: onnx.NodeProto, inputs: Sequence[str], stored: StoredTensors) -> PackedMatrix:
    """Reads the matrix of a ``QuantizedMatMul`` or ``QuantizedRows``.

    Args:
        inputs: The node's inputs after the first.
    """
    found = attributes(node)
    form = BlockFormat(found["K"], found["N"], found["bits"], found["block_size"])
    return packed_of_inputs(form, inputs, stored.array)


def split_alternate(both: PackedMatrix) -> tuple[PackedMatrix, PackedMatrix]:
    """Inverts ``alternate``: returns the matrices of gate and up."""
    form = with_changes(both.form, columns=both.form.columns // 2)
    gate, up = (
        with_changes(
            both,
            form=form,
            **{
                field.name: values[first::2]
                for field in fields(both)
                if field.name != "form" and (values := getattr(both, field.name)) is not None
            },
        )
        for first in (0, 1)
    )
    return gate, up


def original_matrix(packed: PackedMatrix) -> OriginalMatrix:
    """Converts a matrix to ONNX Runtime's layout; scales are rounded to float16, minima to 8-bit zero points."""
    matrix = with_zero_points(unpack(packed))
    form = matrix.form
    filled = np.full((form.columns, form.blocks * form.block_size), form.default_zero_point, np.uint8)
    filled[:, : form.rows] = matrix.values.T
    weights = _together(form, filled).reshape(form.columns, form.blocks, -1)
    return OriginalMatrix(form, weights, matrix.scales.T.astype(np.float16), _points(matrix))


def _points(matrix: QuantizedMatrix) -> Bytes | None:
    if matrix.zero_points is None:
        return None
    points = matrix.zero_points.T
    if matrix.form.bits == 4 and points.shape[1] % 2:
        points = np.pad(points, ((0, 0), (0, 1)))
    return _together(matrix.form, points)


def _together(form: BlockFormat, values: NDArray[Any]) -> Bytes:
    """Packs the values of each row into bytes."""
    if form.bits == 8:
        return np.ascontiguousarray(values)
    return np.ascontiguousarray(values[:, 0::2] | values[:, 1::2] << np.uint8(4))
