"""Quantized weights in the layout of ``ai.edge_rag::QuantizedMatMul`` and ``QuantizedRows``, and weights files.

A matrix [K, N] is cut into panels of 16 columns, and a panel into groups of 64 bytes that fit one vector register:

- 8 bits: a group is a quad of 4 consecutive k; byte ``4 * lane + i`` is the weight of k ``4 * group + i``.
- 4 bits: a group is 8 consecutive k; of byte ``4 * lane + i`` the low half is k ``8 * group + i`` and the high half k
``8 * group + 4 + i``.

``lane`` is the column within the panel. The value of a weight is (stored - zero point) * scale, or
stored * scale + minimum. K is padded to a multiple of 8, N to a multiple of 16 with columns of scale and minimum 0.

Scales and minima are stored as float32, as float16, or as bytes that count a factor, which a column has for each group
of consecutive blocks: with a group of 256 weights these are ggml's K-quants, with one group the double quantization of
QLoRA (Dettmers et al., 2023).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_rag.errors import ModelFolderInvalid

PANEL_COLUMNS = 16
_STEP = 8  # K is padded to a multiple of this
_COLUMNS_AT_ONCE = 4096

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Stored = NDArray[Any]
"""Scales or minima as they are stored: float32, float16 or uint8."""
_Element = TypeVar("_Element", bound=np.generic)


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """Size and precision of a quantized matrix.

    Attributes:
        bits: Bits of a weight, 4 or 8.
        block_size: Consecutive k of a column that share a scale, a multiple of 8; may be more than K.
    """

    rows: int
    columns: int
    bits: int
    block_size: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1 or self.bits not in (4, 8) or self.block_size < 1 or self.block_size % 8:
            raise ValueError(f"{self} has no packed form")

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.block_size)

    @property
    def panels(self) -> int:
        return -(-self.columns // PANEL_COLUMNS)

    @property
    def panel_bytes(self) -> int:
        return -(-self.rows // _STEP) * _STEP * PANEL_COLUMNS * self.bits // 8

    @property
    def default_zero_point(self) -> int:
        return 1 << (self.bits - 1)


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """A quantized matrix [K, N] in logical order.

    A weight is ``(value - zero point) * scale``, or ``value * scale + minimum`` where there are minima. Scales and
    minima of type uint8 count their column's factor: ``scale = scales * scale_factors`` and
    ``minimum = minima * minimum_factors``, where a negative factor gives negative minima.

    Attributes:
        values: uint8 [K, N], each below ``2 ** bits``.
        scales: float32, float16 or uint8 [blocks, N].
        zero_points: uint8 [blocks, N], each below ``2 ** bits``, with float32 scales only; None without minima:
            ``form.default_zero_point`` throughout.
        minima: [blocks, N] of the type of the scales, or None.
        scale_factors: float32 [groups, N], with scales of type uint8 only; ``groups`` divides ``blocks``, and a group
            is as many consecutive blocks.
    """

    form: BlockFormat
    values: Bytes
    scales: Stored
    zero_points: Bytes | None = None
    minima: Stored | None = None
    scale_factors: Floats | None = None
    minimum_factors: Floats | None = None

    @property
    def layout(self) -> tuple[object, ...]:
        form, factors = self.form, self.scale_factors
        groups = 0 if factors is None else factors.shape[0]
        kinds = (self.scales.dtype, self.zero_points is None, self.minima is None, groups)
        return (form.rows, form.bits, form.block_size, *kinds)


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A quantized matrix in the layout of the operators; attributes as those of ``QuantizedMatrix``.

    Attributes:
        weights: uint8 [panels, panel_bytes].
        scales: [panels, blocks, 16].
        zero_points: [panels, blocks, 16], or None.
        minima: [panels, blocks, 16], or None.
        scale_factors: [panels, groups, 16], or None.
        minimum_factors: [panels, groups, 16], or None.
    """

    form: BlockFormat
    weights: Bytes
    scales: Stored
    zero_points: Bytes | None = None
    minima: Stored | None = None
    scale_factors: Floats | None = None
    minimum_factors: Floats | None = None

    @property
    def tensors(self) -> dict[str, NDArray[Any]]:
        kept = {name: getattr(self, field) for name, field in _FIELDS.items()}
        return {name: values for name, values in kept.items() if values is not None}


FACTORS: Final = ("scale_factors", "minimum_factors")
"""Names of the tensors that scales and minima of type uint8 count."""

_FIELDS: Final = {"packed": "weights", "scales": "scales"} | {
    name: name for name in ("zero_points", "minima", *FACTORS)
}
_INPUTS: Final = ("packed", "scales", "zero_points", "", "minima", *FACTORS)
"""The inputs of the operators after the first; the empty one is the bias of ``QuantizedMatMul``."""


def operator_inputs(names: Mapping[str, str]) -> list[str]:
    """Returns the inputs of the operators that hold a matrix, without empty ones at the end."""
    inputs = [names.get(name, "") for name in _INPUTS]
    while not inputs[-1]:
        inputs.pop()
    return inputs


def packed_of_inputs(form: BlockFormat, inputs: Sequence[str], read: Callable[[str], NDArray[Any]]) -> PackedMatrix:
    """Returns the matrix that an operator reads.

    Args:
        inputs: The operator's inputs after the first.
        read: Returns a tensor's values; factors may be bfloat16.
    """
    names = {_FIELDS[ending]: name for ending, name in zip(_INPUTS, inputs, strict=False) if ending and name}
    tensors = {field: np.asarray(read(name)) for field, name in names.items()}
    tensors |= {field: tensors[field].astype(np.float32) for field in FACTORS if field in tensors}
    shaped: dict[str, Any] = {
        field: values.reshape(form.panels, -1, PANEL_COLUMNS) for field, values in tensors.items() if field != "weights"
    }
    shaped["weights"] = tensors["weights"].reshape(form.panels, form.panel_bytes)
    if shaped["scales"].shape[1] != form.blocks:
        raise ValueError(f"{form} has {form.blocks} blocks, its scales {shaped['scales'].shape[1]}")
    return PackedMatrix(form, **shaped)


def quantize(weights: Floats, bits: int, block_size: int) -> QuantizedMatrix:
    """Quantizes a matrix symmetrically: the largest magnitude of each block becomes the largest value.

    Args:
        weights: float32 [K, N], finite.
        block_size: Consecutive k of a column that share a scale, a multiple of 8; K or more gives one scale per column.
    """
    rows, columns = weights.shape
    form = BlockFormat(rows, columns, bits, block_size)
    scales = np.empty((form.blocks, columns), np.float32)
    values = np.empty((rows, columns), np.uint8)
    limit = form.default_zero_point - 1
    for block in range(form.blocks):
        part = slice(block * block_size, (block + 1) * block_size)
        scales[block] = np.abs(weights[part]).max(axis=0) / limit
        steps = np.where(scales[block] > 0, scales[block], 1)
        values[part] = np.clip(np.rint(weights[part] / steps), -limit, limit) + form.default_zero_point
    return QuantizedMatrix(form, values, scales)


def quantize_to_lowest(weights: Floats, bits: int, block_size: int) -> QuantizedMatrix:
    """Quantizes a matrix so that the largest magnitude of each block becomes the lowest value, 0 as it is stored.

    This is GGML's Q4_0. Weights that were quantized so keep their integers and their scales; of others, those as large
    as a block's largest with the opposite sign lose one step, and all get the finer steps of the whole range.

    Args:
        weights: float32 [K, N], finite.
    """
    rows, columns = weights.shape
    form = BlockFormat(rows, columns, bits, block_size)
    scales = np.empty((form.blocks, columns), np.float32)
    values = np.empty((rows, columns), np.uint8)
    middle = form.default_zero_point
    for block in range(form.blocks):
        part = slice(block * block_size, (block + 1) * block_size)
        largest = np.take_along_axis(weights[part], np.abs(weights[part]).argmax(axis=0)[None], axis=0)[0]
        scales[block] = largest / -middle
        steps = np.where(scales[block] == 0, 1, scales[block])
        values[part] = np.clip(np.rint(weights[part] / steps), -middle, middle - 1) + middle
    return QuantizedMatrix(form, values, scales)


def dequantize(matrix: QuantizedMatrix) -> Floats:
    """Returns the values of a quantized matrix, float32 [K, N]."""
    form, values = matrix.form, matrix.values.astype(np.float32)
    scales = _by_row(form, _counted(matrix.scales, matrix.scale_factors))
    if matrix.minima is not None:
        return values * scales + _by_row(form, _counted(matrix.minima, matrix.minimum_factors))
    return (values - _by_row(form, _zero_points(matrix))) * scales


def with_zero_points(matrix: QuantizedMatrix) -> QuantizedMatrix:
    """Returns a matrix with float32 scales and without minima: minima are rounded to zero points of 8 bits."""
    form, scales = matrix.form, _counted(matrix.scales, matrix.scale_factors)
    if matrix.minima is None:
        return replace(matrix, scales=scales, scale_factors=None)
    minima = _counted(matrix.minima, matrix.minimum_factors)
    ends = minima, minima + scales * np.float32((1 << form.bits) - 1)
    bottom = np.minimum(np.minimum(*ends), np.float32(0))
    steps = (np.maximum(np.maximum(*ends), np.float32(0)) - bottom) / np.float32(255)
    dividers = np.where(steps == 0, np.float32(1), steps)
    points = np.clip(np.rint(-bottom / dividers), 0, 255)
    counts = np.rint(dequantize(matrix) / _by_row(form, dividers)) + _by_row(form, points)
    wide = BlockFormat(form.rows, form.columns, 8, form.block_size)
    return QuantizedMatrix(wide, np.clip(counts, 0, 255).astype(np.uint8), steps, points.astype(np.uint8))


def beside(matrices: Sequence[QuantizedMatrix]) -> QuantizedMatrix:
    """Returns matrices as the columns of one."""
    first = matrices[0]
    if len(matrices) == 1:
        return first
    if len({matrix.layout for matrix in matrices}) > 1:
        raise ValueError(f"{[matrix.form for matrix in matrices]} cannot be columns of one matrix")
    columns = sum(matrix.form.columns for matrix in matrices)
    joined: dict[str, Any] = {
        field.name: np.concatenate([getattr(matrix, field.name) for matrix in matrices], axis=1)
        for field in fields(first)
        if field.name != "form" and getattr(first, field.name) is not None
    }
    return replace(first, form=replace(first.form, columns=columns), **joined)


def pack(matrix: QuantizedMatrix) -> PackedMatrix:
    """Converts a matrix to the operators' layout."""
    form, points = matrix.form, matrix.zero_points

    def of(stored: NDArray[_Element] | None) -> NDArray[_Element] | None:
        return None if stored is None else _by_panel(form, stored, 0)

    return PackedMatrix(
        form,
        _packed_weights(matrix),
        _by_panel(form, matrix.scales, 0),
        None if points is None else _by_panel(form, points, form.default_zero_point),
        of(matrix.minima),
        of(matrix.scale_factors),
        of(matrix.minimum_factors),
    )


def unpack(packed: PackedMatrix) -> QuantizedMatrix:
    """Inverts ``pack``."""
    form = packed.form
    groups = packed.weights.reshape(form.panels, -1, PANEL_COLUMNS, 4)
    if form.bits == 4:
        groups = np.stack([groups & 15, groups >> 4], axis=2).reshape(form.panels, -1, PANEL_COLUMNS, 4)
    values = groups.transpose(1, 3, 0, 2).reshape(-1, form.panels * PANEL_COLUMNS)[: form.rows, : form.columns]

    def by_column(stored: NDArray[_Element]) -> NDArray[_Element]:
        return np.ascontiguousarray(stored.transpose(1, 0, 2).reshape(stored.shape[1], -1)[:, : form.columns])

    def of(stored: NDArray[_Element] | None) -> NDArray[_Element] | None:
        return None if stored is None else by_column(stored)

    return QuantizedMatrix(
        form,
        np.ascontiguousarray(values),
        by_column(packed.scales),
        of(packed.zero_points),
        of(packed.minima),
        of(packed.scale_factors),
        of(packed.minimum_factors),
    )


def alternate(gate: PackedMatrix, up: PackedMatrix) -> PackedMatrix:
    """Interleaves the panels of two matrices, as the gated product needs them."""
    form = gate.form
    stored = [{name: values.dtype for name, values in part.tensors.items()} for part in (gate, up)]
    if form != up.form or form.columns % PANEL_COLUMNS or stored[0] != stored[1]:
        raise ValueError(f"{form} and {up.form} cannot alternate by panels")

    def take_turns(first: NDArray[_Element], second: NDArray[_Element]) -> NDArray[_Element]:
        return np.stack([first, second], axis=1).reshape(2 * form.panels, *first.shape[1:])

    both = BlockFormat(form.rows, 2 * form.columns, form.bits, form.block_size)
    turns: dict[str, Any] = {
        _FIELDS[name]: take_turns(values, up.tensors[name]) for name, values in gate.tensors.items()
    }
    return PackedMatrix(both, **turns)


def _packed_weights(matrix: QuantizedMatrix) -> Bytes:
    """Returns the panels; besides them a few thousand columns are in memory."""
    form = matrix.form
    packed = np.empty((form.panels, form.panel_bytes), np.uint8)
    for first in range(0, form.columns, _COLUMNS_AT_ONCE):
        columns = slice(first, min(first + _COLUMNS_AT_ONCE, form.columns))
        count = -(-(columns.stop - first) // PANEL_COLUMNS)
        filled = np.full((-(-form.rows // _STEP) * _STEP, count * PANEL_COLUMNS), form.default_zero_point, np.uint8)
        filled[: form.rows, : columns.stop - first] = matrix.values[:, columns]
        if matrix.zero_points is not None:
            filled[form.rows :, : columns.stop - first] = matrix.zero_points[-1, columns]
        groups: Bytes = filled.reshape(-1, 4, count, PANEL_COLUMNS)
        if form.bits == 4:
            groups = groups[0::2] | groups[1::2] << np.uint8(4)
        panels = slice(first // PANEL_COLUMNS, first // PANEL_COLUMNS + count)
        packed[panels] = groups.transpose(2, 0, 3, 1).reshape(count, form.panel_bytes)
    return packed


def _by_panel(form: BlockFormat, values: NDArray[_Element], fill: int) -> NDArray[_Element]:
    filled = np.full((values.shape[0], form.panels * PANEL_COLUMNS), fill, values.dtype)
    filled[:, : form.columns] = values
    return np.ascontiguousarray(filled.reshape(-1, form.panels, PANEL_COLUMNS).transpose(1, 0, 2))


def _counted(stored: Stored, factors: Floats | None) -> Floats:
    """Returns scales or minima as float32 [blocks, N]."""
    values: Floats = stored.astype(np.float32)
    return values if factors is None else values * np.repeat(factors, stored.shape[0] // factors.shape[0], axis=0)


def _by_row(form: BlockFormat, by_block: NDArray[_Element]) -> NDArray[_Element]:
    return np.repeat(by_block, form.block_size, axis=0)[: form.rows]


def _zero_points(matrix: QuantizedMatrix) -> Bytes:
    if matrix.zero_points is not None:
        return matrix.zero_points
    return np.full(matrix.scales.shape, matrix.form.default_zero_point, np.uint8)


ALIGNMENT = 64
"""Alignment of tensors in a weights file, and of their addresses once it is mapped, bytes."""


class StoredTensors:
    """The initializers of a graph that was loaded without its external data. Values are read on access."""

    def __init__(self, graph: onnx.GraphProto, folder: Path) -> None:
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._folder = folder

    def find(self, name: str) -> TensorProto | None:
        """Returns an initializer without its values; None if the value is not an initializer."""
        return self._tensors.get(name)

    def array(self, name: str) -> NDArray[Any]:
        """Returns an initializer's values; those of external data are mapped from their file."""
        tensor = self._tensors[name]
        if tensor.data_location != TensorProto.EXTERNAL:
            inline: NDArray[Any] = numpy_helper.to_array(tensor)
            return inline
        values: NDArray[Any] = (
            self.content(name).view(helper.tensor_dtype_to_np_dtype(tensor.data_type)).reshape(tuple(tensor.dims))
        )
        return values

    def content(self, name: str) -> NDArray[np.uint8]:
        """Returns the bytes of an initializer with external data, mapped from their file."""
        tensor = self._tensors[name]
        path = self._folder / _location(tensor, self._folder)
        where = {entry.key: entry.value for entry in tensor.external_data}
        offset = int(where.get("offset", 0))
        try:
            size = path.stat().st_size
            length = int(where.get("length", size - offset))
            if length == 0:
                return np.empty(0, np.uint8)
            if not 0 <= offset <= offset + length <= size:
                raise ModelFolderInvalid(f"{path} is truncated: {size} bytes, {name} ends at {offset + length}")
            return np.memmap(path, np.uint8, "r", offset, (length,))
        except OSError as error:
            raise ModelFolderInvalid(f"{path} cannot be read: {error}") from error


class WeightsFile:
    """A weights file being written, which is renamed into place when the ``with`` block ends without an exception."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(path.name + ".partial")

    def __enter__(self) -> Self:
        self._file = self._partial.open("wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
        if kind is None:
            self._partial.replace(self._path)
        else:
            self._partial.unlink()

    def append(self, values: NDArray[Any]) -> tuple[int, int]:
        """Writes values, aligned.

        Returns:
            Their offset and size, bytes.
        """
        self._file.write(bytes(-self._file.tell() % ALIGNMENT))
        offset = self._file.tell()
        self._file.write(np.ascontiguousarray(values).data)
        return offset, values.nbytes

    def store(self, tensor: TensorProto, values: NDArray[Any]) -> None:
        offset, length = self.append(values)
        tensor.ClearField("raw_data")
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self._path.name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))


def _location(tensor: TensorProto, folder: Path) -> str:
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    if location in ("", ".", "..") or Path(location).name != location:
        raise ModelFolderInvalid(f"{folder}: the weights {tensor.name} are in {location!r}, outside the folder")
    return location
