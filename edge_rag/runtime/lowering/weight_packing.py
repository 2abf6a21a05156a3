"""Quantized weights in the layout of ``ai.edge_rag::QuantizedMatMul`` and ``QuantizedRows``, and weights files.

A matrix [K, N] is cut into panels of 16 columns, and a panel into groups of 64 bytes that fit one vector register:

- 8 bits: a group is a quad of 4 consecutive k; byte ``4 * lane + i`` is the weight of k ``4 * group + i``.
- 4 bits: a group is 8 consecutive k; of byte ``4 * lane + i`` the low half is k ``8 * group + i`` and the high half k
``8 * group + 4 + i``.

``lane`` is the column within the panel. The value of a weight is (stored - zero point) * scale. K is padded to a
multiple of 8 with zero points, N to a multiple of 16 with columns of scale 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_rag.errors import ModelFolderInvalid

PANEL_COLUMNS = 16
_GROUP_BYTES = 64
_STEP = 8  # K is padded to a multiple of this
_COLUMNS_AT_ONCE = 4096

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
_Element = TypeVar("_Element", np.uint8, np.float32)


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """Size and precision of a quantized matrix.

    Attributes:
        rows: K, the elements that are summed up.
        columns: N, the elements of a result.
        bits: Bits of a weight, 4 or 8.
        block_size: Consecutive k of a column that share a scale, a multiple of 8; may be more than K.

    Raises:
        ValueError: A value is out of its range.
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
        """Scales of a column."""
        return -(-self.rows // self.block_size)

    @property
    def panels(self) -> int:
        """Panels that hold the columns."""
        return -(-self.columns // PANEL_COLUMNS)

    @property
    def panel_bytes(self) -> int:
        """Bytes of the weights of a panel."""
        return -(-self.rows // _STEP) * _STEP * PANEL_COLUMNS * self.bits // 8

    @property
    def default_zero_point(self) -> int:
        """The zero point of a matrix that stores none."""
        return 1 << (self.bits - 1)


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """A quantized matrix [K, N] in logical order.

    Attributes:
        form: Its size and precision.
        values: uint8 [K, N], each below ``2 ** bits``.
        scales: float32 [blocks, N].
        zero_points: uint8 [blocks, N], each below ``2 ** bits``; None: ``form.default_zero_point`` throughout.
    """

    form: BlockFormat
    values: Bytes
    scales: Floats
    zero_points: Bytes | None = None


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A quantized matrix in the layout of the operators.

    Attributes:
        form: Its size and precision.
        weights: uint8 [panels, panel_bytes].
        scales: float32 [panels, blocks, 16].
        zero_points: uint8 [panels, blocks, 16], or None.
    """

    form: BlockFormat
    weights: Bytes
    scales: Floats
    zero_points: Bytes | None = None

    @property
    def tensors(self) -> tuple[Bytes | Floats, ...]:
        """The inputs of the operators, in their order."""
        return (self.weights, self.scales, *(() if self.zero_points is None else (self.zero_points,)))


def quantize(weights: Floats, bits: int, block_size: int) -> QuantizedMatrix:
    """Quantizes a matrix symmetrically: the largest magnitude of each block becomes the largest value.

    Args:
        weights: float32 [K, N], finite.
        bits: 4 or 8.
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


def dequantize(matrix: QuantizedMatrix) -> Floats:
    """Returns the values of a quantized matrix, float32 [K, N]."""
    values = matrix.values.astype(np.float32)
    return (values - _by_row(matrix.form, _zero_points(matrix))) * _by_row(matrix.form, matrix.scales)


def pack(matrix: QuantizedMatrix) -> PackedMatrix:
    """Converts a matrix to the operators' layout."""
    form = matrix.form
    scales = _by_panel(form, matrix.scales, 0)
    weights = _packed_weights(matrix)
    if matrix.zero_points is None:
        return PackedMatrix(form, weights, scales)
    return PackedMatrix(form, weights, scales, _by_panel(form, matrix.zero_points, form.default_zero_point))


def unpack(packed: PackedMatrix) -> QuantizedMatrix:
    """Inverts ``pack``."""
    form = packed.form
    groups = packed.weights.reshape(form.panels, -1, PANEL_COLUMNS, 4)
    if form.bits == 4:
        groups = np.stack([groups & 15, groups >> 4], axis=2).reshape(form.panels, -1, PANEL_COLUMNS, 4)
    values = groups.transpose(1, 3, 0, 2).reshape(-1, form.panels * PANEL_COLUMNS)[: form.rows, : form.columns]

    def by_column(stored: NDArray[_Element]) -> NDArray[_Element]:
        return np.ascontiguousarray(stored.transpose(1, 0, 2).reshape(form.blocks, -1)[:, : form.columns])

    points = None if packed.zero_points is None else by_column(packed.zero_points)
    return QuantizedMatrix(form, np.ascontiguousarray(values), by_column(packed.scales), points)


def pack_matmul_nbits(
    form: BlockFormat, weights: Bytes, scales: Floats, zero_points: Bytes | None = None
) -> PackedMatrix:
    """Packs the weights of ONNX Runtime's ``MatMulNBits``, a few thousand columns at a time.

    Args:
        form: The node's K, N, bits and block_size.
        weights: uint8, N * blocks * block_size * bits / 8 elements in any shape; the low half of a byte first.
        scales: float32, N * blocks elements in any shape.
        zero_points: uint8, N rows of blocks * bits / 8 elements rounded up, in any shape; None: the default.

    Raises:
        ValueError: The numbers of elements do not match the format.
    """
    packed = np.empty((form.panels, form.panel_bytes), np.uint8)
    by_panel = np.empty((form.panels, form.blocks, PANEL_COLUMNS), np.float32)
    points = None if zero_points is None else np.empty(by_panel.shape, np.uint8)
    for columns, piece in matmul_nbits_columns(form, weights, scales, zero_points):
        panels = slice(columns.start // PANEL_COLUMNS, -(-columns.stop // PANEL_COLUMNS))
        part = pack(piece)
        packed[panels], by_panel[panels] = part.weights, part.scales
        if points is not None and part.zero_points is not None:
            points[panels] = part.zero_points
    return PackedMatrix(form, packed, by_panel, points)


def matmul_nbits_columns(
    form: BlockFormat, weights: Bytes, scales: Floats, zero_points: Bytes | None = None
) -> Iterator[tuple[slice, QuantizedMatrix]]:
    """Yields the columns of weights as ``pack_matmul_nbits`` takes them, a few thousand at a time, with their range."""
    stored = weights.reshape(form.columns, form.blocks * form.block_size * form.bits // 8)
    by_column = scales.reshape(form.columns, form.blocks)
    points = None if zero_points is None else _bytes_apart(form, zero_points.reshape(form.columns, -1), form.blocks)
    for first in range(0, form.columns, _COLUMNS_AT_ONCE):
        columns = slice(first, min(first + _COLUMNS_AT_ONCE, form.columns))
        values = _bytes_apart(form, stored[columns], form.rows).T
        piece = BlockFormat(form.rows, values.shape[1], form.bits, form.block_size)
        yield (
            columns,
            QuantizedMatrix(piece, values, by_column[columns].T, None if points is None else points[columns].T),
        )


def alternate(gate: PackedMatrix, up: PackedMatrix) -> PackedMatrix:
    """Interleaves the panels of two matrices, as the gated product needs them.

    Args:
        gate: The matrix whose product goes through SiLU; its columns fill whole panels.
        up: The matrix whose product is multiplied by it; of the same format.

    Raises:
        ValueError: The formats differ, or the columns do not fill whole panels.
    """
    form = gate.form
    if form != up.form or form.columns % PANEL_COLUMNS:
        raise ValueError(f"{form} and {up.form} cannot alternate by panels")

    def take_turns(first: NDArray[_Element], second: NDArray[_Element]) -> NDArray[_Element]:
        return np.stack([first, second], axis=1).reshape(2 * form.panels, *first.shape[1:])

    points = None
    if gate.zero_points is not None or up.zero_points is not None:
        points = take_turns(_stored_zero_points(gate), _stored_zero_points(up))
    both = BlockFormat(form.rows, 2 * form.columns, form.bits, form.block_size)
    return PackedMatrix(both, take_turns(gate.weights, up.weights), take_turns(gate.scales, up.scales), points)


def _packed_weights(matrix: QuantizedMatrix) -> Bytes:
    form = matrix.form
    filled = np.full((-(-form.rows // _STEP) * _STEP, form.panels * PANEL_COLUMNS), form.default_zero_point, np.uint8)
    filled[: form.rows, : form.columns] = matrix.values
    if matrix.zero_points is not None:
        filled[form.rows :, : form.columns] = matrix.zero_points[-1]
    groups: Bytes = filled.reshape(-1, 4, form.panels, PANEL_COLUMNS)
    if form.bits == 4:
        groups = groups[0::2] | groups[1::2] << np.uint8(4)
    return np.ascontiguousarray(groups.transpose(2, 0, 3, 1)).reshape(form.panels, form.panel_bytes)


def _bytes_apart(form: BlockFormat, stored: Bytes, count: int) -> Bytes:
    """Unpacks the stored values of each row to one byte each and keeps the first ``count``, [n, count]."""
    if form.bits == 8:
        return stored[:, :count]
    return np.stack([stored & 15, stored >> 4], axis=2).reshape(stored.shape[0], -1)[:, :count]


def _by_panel(form: BlockFormat, values: NDArray[_Element], fill: int) -> NDArray[_Element]:
    filled = np.full((form.blocks, form.panels * PANEL_COLUMNS), fill, values.dtype)
    filled[:, : form.columns] = values
    return np.ascontiguousarray(filled.reshape(form.blocks, form.panels, PANEL_COLUMNS).transpose(1, 0, 2))


def _by_row(form: BlockFormat, by_block: NDArray[_Element]) -> NDArray[_Element]:
    return np.repeat(by_block, form.block_size, axis=0)[: form.rows]


def _zero_points(matrix: QuantizedMatrix) -> Bytes:
    if matrix.zero_points is not None:
        return matrix.zero_points
    return np.full(matrix.scales.shape, matrix.form.default_zero_point, np.uint8)


def _stored_zero_points(packed: PackedMatrix) -> Bytes:
    if packed.zero_points is not None:
        return packed.zero_points
    return np.full(packed.scales.shape, packed.form.default_zero_point, np.uint8)


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

    def files(self) -> list[Path]:
        """Returns the files that hold external data, by name.

        Raises:
            ModelFolderInvalid: One is outside the folder.
        """
        external = (tensor for tensor in self._tensors.values() if tensor.data_location == TensorProto.EXTERNAL)
        return sorted({self._folder / _location(tensor, self._folder) for tensor in external})

    def array(self, name: str) -> NDArray[Any]:
        """Returns an initializer's values; those of external data are mapped from their file.

        Raises:
            ModelFolderInvalid: Its file is missing, too short or outside the folder.
        """
        tensor = self._tensors[name]
        if tensor.data_location != TensorProto.EXTERNAL:
            inline: NDArray[Any] = numpy_helper.to_array(tensor)
            return inline
        values: NDArray[Any] = (
            self.content(name).view(helper.tensor_dtype_to_np_dtype(tensor.data_type)).reshape(tuple(tensor.dims))
        )
        return values

    def content(self, name: str) -> NDArray[np.uint8]:
        """Returns the bytes of an initializer with external data, mapped from their file.

        Raises:
            ModelFolderInvalid: The file is missing, too short or outside the folder.
        """
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
        """Writes a tensor's values and makes the tensor refer to them."""
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
