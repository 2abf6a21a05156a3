"""Reads GGUF files strictly: every number that a file states is compared with a bound before it is used.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import ModelFolderInvalid

Value: TypeAlias = "int | float | bool | str | NDArray[np.generic] | tuple[str, ...]"
"""A metadata value. Numeric arrays are NumPy arrays of the stored type."""

_MAX_KEYS: Final = 4096
_MAX_TENSORS: Final = 16_384
_MAX_ELEMENTS: Final = 1 << 21
"""Elements of a metadata array; vocabularies have up to 300,000."""
_MAX_NAME_BYTES: Final = 256
_MAX_STRING_BYTES: Final = 1 << 20
_MAX_ELEMENT_BYTES: Final = 4096
"""Bytes of a string in an array."""
_MAX_METADATA_BYTES: Final = 128 << 20
_MAX_DIMENSION: Final = 1 << 24
_ALIGNMENT: Final = 32

_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9


class TensorType(IntEnum):
    """Types of tensors that can be read, by ggml's numbers."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    BF16 = 30

    @property
    def block_elements(self) -> int:
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        return _BLOCKS[self][1]


_BLOCKS: Final = {
    TensorType.F32: (1, 4),
    TensorType.F16: (1, 2),
    TensorType.BF16: (1, 2),
    TensorType.Q4_0: (32, 18),
    TensorType.Q4_1: (32, 20),
    TensorType.Q5_0: (32, 22),
    TensorType.Q5_1: (32, 24),
    TensorType.Q8_0: (32, 34),
    TensorType.Q4_K: (256, 144),
    TensorType.Q5_K: (256, 176),
    TensorType.Q6_K: (256, 210),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of a file.

    Attributes:
        shape: NumPy's order: the contiguous dimension last.
        offset: Its first byte in the file.
        size: Its bytes.
    """

    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int
    size: int


class GgufFile:
    """A GGUF file, mapped into memory.

    Attributes:
        tensors: Tensors by name, in order of the file.
    """

    def __init__(self, path: Path) -> None:
        """Reads the metadata and the tensors' descriptions; checks that the tensors lie in the file, apart."""
        self.path = path
        try:
            self._bytes: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
        except (OSError, ValueError) as error:
            raise ModelFolderInvalid(f"{path.name}: cannot be read: {error}") from error
        reader = _Reader(path.name, self._bytes)
        tensor_count, key_count = _read_head(reader)
        metadata: dict[str, Value] = {}
        for number in range(key_count):
            key = reader.text(f"key {number}", _MAX_NAME_BYTES)
            if key in metadata:
                raise reader.error(f"key {key!r} is there twice")
            metadata[key] = reader.value(key)
        self.metadata: Mapping[str, Value] = MappingProxyType(metadata)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            _read_tensors(reader, tensor_count, self.integer("general.alignment", 8, 1 << 16, _ALIGNMENT))
        )

    def raw(self, name: str) -> NDArray[np.uint8]:
        """Returns a tensor's bytes, mapped: uint8 [rows, bytes of a row]; one row for a vector."""
        tensor = self.tensor(name)
        rows = prod(tensor.shape[:-1])
        return self._bytes[tensor.offset : tensor.offset + tensor.size].reshape(rows, tensor.size // rows)

    def tensor(self, name: str) -> TensorInfo:
        """Returns the description of a tensor."""
        if name not in self.tensors:
            raise ModelFolderInvalid(f"{self.path.name}: the tensor {name} is missing")
        return self.tensors[name]

    def integer(self, key: str, least: int, most: int, default: int | None = None) -> int:
        found = self.metadata.get(key, default)
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise self._unusable(key, found, f"an integer from {least} to {most}")
        return found

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        """Returns a number of the metadata; ``integer`` for numbers that are not whole."""
        found = self.metadata.get(key, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found <= most:
            raise self._unusable(key, found, f"a number from {least:g} to {most:g}")
        return float(found)

    def text(self, key: str, default: str | None = None) -> str:
        return self._typed(key, str, "a string", default)

    def flag(self, key: str, default: bool) -> bool:
        return self._typed(key, bool, "a boolean", default)

    def strings(self, key: str) -> tuple[str, ...]:
        return self._typed(key, tuple, "an array of strings", None)

    def numbers(self, key: str, count: int) -> NDArray[np.generic]:
        found: NDArray[np.generic] = self._typed(key, np.ndarray, f"an array of {count} numbers", None)
        if found.size != count:
            raise self._unusable(key, found, f"an array of {count} numbers")
        return found

    def _typed(self, key: str, kind: type[_T], wanted: str, default: _T | None) -> _T:
        found = self.metadata.get(key, default)
        if not isinstance(found, kind):
            raise self._unusable(key, found, wanted)
        return found

    def _unusable(self, key: str, found: object, wanted: str) -> ModelFolderInvalid:
        shown = "missing" if found is None else repr(found)[:80]
        return ModelFolderInvalid(f"{self.path.name}: {key} is {shown}, must be {wanted}")


_T = TypeVar("_T")


class _Reader:
    """Reads values one after the other, within bounds."""

    def __init__(self, name: str, content: NDArray[np.uint8]) -> None:
        self._name = name
        self._content = content.data
        self._end = min(content.size, _MAX_METADATA_BYTES)
        self.size = content.size
        self.position = 0

    def error(self, what: str) -> ModelFolderInvalid:
        return ModelFolderInvalid(f"{self._name}: {what}")

    def take(self, count: int, field: str) -> memoryview:
        if count > self._end - self.position:
            where = "the file is truncated" if self._end == self.size else f"metadata exceeds {self._end:,} bytes"
            raise self.error(f"{field} needs {count:,} bytes at {self.position:,}: {where}")
        self.position += count
        return self._content[self.position - count : self.position]

    def unpack(self, form: str, field: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}"), field))

    def text(self, field: str, longest: int) -> str:
        (length,) = self.unpack("Q", field)
        if length > longest:
            raise self.error(f"{field} is a string of {length:,} bytes, at most {longest:,} are read")
        try:
            return str(self.take(length, field), "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"{field} is not UTF-8") from error

    def value(self, key: str) -> Value:
        (kind,) = self.unpack("I", key)
        if kind in _SCALARS:
            return self._scalar(key, kind)
        if kind == _STRING:
            return self.text(key, _MAX_STRING_BYTES)
        if kind == _ARRAY:
            return self._array(key)
        raise self.error(f"{key} is of the unknown type {kind}")

    def _scalar(self, key: str, kind: int) -> int | float | bool:
        (found,) = struct.unpack(f"<{_SCALARS[kind]}", self.take(struct.calcsize(_SCALARS[kind]), key))
        assert isinstance(found, int | float)
        return found

    def _array(self, key: str) -> Value:
        kind, count = self.unpack("IQ", key)
        if count > _MAX_ELEMENTS:
            raise self.error(f"{key} is an array of {count:,} elements, at most {_MAX_ELEMENTS:,} are read")
        if kind in _SCALARS:
            form = np.dtype(f"<{_SCALARS[kind]}")
            values: NDArray[np.generic] = np.frombuffer(self.take(count * form.itemsize, key), form)
            return values
        if kind != _STRING:
            raise self.error(f"{key} is an array of the type {kind}; arrays of numbers and of strings are read")
        if 8 * count > self._end - self.position:
            raise self.error(f"{key} is an array of {count:,} strings: the file is truncated")
        return tuple(self.text(key, _MAX_ELEMENT_BYTES) for _ in range(count))


def _read_head(reader: _Reader) -> tuple[int, int]:
    """Returns the numbers of tensors and keys."""
    if reader.take(4, "the magic number").tobytes() != b"GGUF":
        raise reader.error("is not a GGUF file")
    (version,) = reader.unpack("I", "version")
    if version not in (2, 3):
        raise reader.error(f"version is {version}; versions 2 and 3, little-endian, are read")
    tensors, keys = reader.unpack("QQ", "tensor_count and metadata_kv_count")
    if not 1 <= tensors <= _MAX_TENSORS:
        raise reader.error(f"tensor_count is {tensors:,}, must be 1 to {_MAX_TENSORS:,}")
    if not 1 <= keys <= _MAX_KEYS:
        raise reader.error(f"metadata_kv_count is {keys:,}, must be 1 to {_MAX_KEYS:,}")
    return tensors, keys


def _read_tensors(reader: _Reader, count: int, alignment: int) -> dict[str, TensorInfo]:
    if alignment & (alignment - 1):
        raise reader.error(f"general.alignment is {alignment}, must be a power of two")
    relative: list[TensorInfo] = []
    names: set[str] = set()
    for number in range(count):
        tensor = _read_tensor(reader, number)
        if tensor.name in names:
            raise reader.error(f"the tensor {tensor.name!r} is there twice")
        names.add(tensor.name)
        relative.append(tensor)
    first = -(-reader.position // alignment) * alignment
    end = 0
    for tensor in sorted(relative, key=lambda each: each.offset):
        if tensor.offset % alignment:
            raise reader.error(f"the tensor {tensor.name}: its offset {tensor.offset:,} is no multiple of {alignment}")
        if tensor.offset < end:
            raise reader.error(f"the tensor {tensor.name} overlaps another")
        end = tensor.offset + tensor.size
        if first + end > reader.size:
            raise reader.error(f"the tensor {tensor.name} ends at {first + end:,}, the file has {reader.size:,} bytes")
    return {t.name: TensorInfo(t.name, t.type, t.shape, first + t.offset, t.size) for t in relative}


def _read_tensor(reader: _Reader, number: int) -> TensorInfo:
    """Returns a tensor with its offset from the first one."""
    name = reader.text(f"name of tensor {number}", _MAX_NAME_BYTES)
    (dimensions,) = reader.unpack("I", name)
    if not 1 <= dimensions <= 4:
        raise reader.error(f"the tensor {name} has {dimensions} dimensions, must have 1 to 4")
    shape = reader.unpack(f"{dimensions}Q", name)
    if not all(1 <= size <= _MAX_DIMENSION for size in shape):
        raise reader.error(f"the tensor {name} has the shape {list(shape)}; sizes are 1 to {_MAX_DIMENSION:,}")
    kind, offset = reader.unpack("IQ", name)
    if kind not in TensorType._value2member_map_:
        known = ", ".join(known.name for known in TensorType)
        raise reader.error(f"the tensor {name} is of the type {kind}; {known} can be read")
    form = TensorType(kind)
    if shape[0] % form.block_elements:
        raise reader.error(f"the tensor {name}: rows of {shape[0]} are not whole blocks of {form.name}")
    if offset > reader.size:
        raise reader.error(f"the tensor {name} is at {offset:,}, the file has {reader.size:,} bytes")
    size = prod(shape) // form.block_elements * form.block_bytes
    return TensorInfo(name, form, shape[::-1], offset, size)
