"""Reads safetensors files strictly: every number that a file states is compared with a bound before it is used.

Format: https://github.com/huggingface/safetensors, a little-endian 64-bit length, a JSON object of that many bytes, and
the tensors' bytes. Files are mapped; no package is needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.model_folder.strict_json import parse_object

Floats = NDArray[np.float32]

INDEX_FILE: Final = "model.safetensors.index.json"
SINGLE_FILE: Final = "model.safetensors"
SHARD: Final = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
"""Names of the files of weights that an index may name."""

LARGEST_HEADER: Final = 100 << 20
"""Limit of the format, bytes."""

_MAX_TENSORS: Final = 1 << 16
_MAX_NAME: Final = 512
_MAX_DIMENSION: Final = 1 << 31
_MAX_DIMENSIONS: Final = 8
_LENGTH_BYTES: Final = 8

_ELEMENT_BYTES: Final = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
}  # fmt: skip
"""Bytes of an element; types of less than a byte, and of one that only newer files have, are not checked nor read."""

_READ: Final[Mapping[str, str]] = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "BF16": "<u2"}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a file.

    Attributes:
        offset: Its first byte in the file.
        size: Its bytes.
    """

    type: str
    shape: tuple[int, ...]
    offset: int
    size: int


def read_header(path: Path) -> Mapping[str, StoredTensor]:
    """Returns the tensors of a file by name, after checking that they lie in it, apart, and that their shapes fit.

    Raises:
        ModelFolderInvalid: It is not a safetensors file, or states something that is out of its bound; names the field.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if size < _LENGTH_BYTES or not 2 <= length <= min(LARGEST_HEADER, size - _LENGTH_BYTES):
                raise ModelFolderInvalid(f"{path.name}: is not a safetensors file, or truncated")
            header = parse_object(file.read(length))
    except (OSError, ValueError) as error:
        raise ModelFolderInvalid(f"{path.name}: is not a safetensors file: {error}") from error
    first = _LENGTH_BYTES + length
    header.pop("__metadata__", None)
    if len(header) > _MAX_TENSORS:
        raise ModelFolderInvalid(f"{path.name}: has {len(header):,} tensors, at most {_MAX_TENSORS:,} are read")
    tensors = {name: _described(path, name, value, first, size) for name, value in header.items()}
    end, before = first, ""
    for name, tensor in sorted(tensors.items(), key=lambda each: (each[1].offset, each[1].size)):
        if tensor.offset < end:
            raise ModelFolderInvalid(f"{path.name}: the tensor {name!r} overlaps {before!r}")
        end, before = tensor.offset + tensor.size, name
    return MappingProxyType(tensors)


def _described(path: Path, name: str, value: object, first: int, size: int) -> StoredTensor:
    tensor = value if isinstance(value, dict) else {}
    if len(name) > _MAX_NAME:
        raise ModelFolderInvalid(f"{path.name}: the tensor {name[:80]!r}… has a name of {len(name)} characters")
    offsets, shape, kind = tensor.get("data_offsets"), tensor.get("shape"), str(tensor.get("dtype"))[:16]
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
        raise ModelFolderInvalid(f"{path.name}: the tensor {name!r} has no position in the file")
    if not 0 <= offsets[0] <= offsets[1] <= size - first:
        raise ModelFolderInvalid(f"{path.name}: the tensor {name!r} lies outside the file")
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS:
        raise ModelFolderInvalid(f"{path.name}: the tensor {name!r} has no shape")
    if not all(type(each) is int and 0 <= each <= _MAX_DIMENSION for each in shape):
        raise ModelFolderInvalid(f"{path.name}: the tensor {name!r} has a shape beyond 0 to {_MAX_DIMENSION:,}")
    held = offsets[1] - offsets[0]
    if kind in _ELEMENT_BYTES and prod(shape) * _ELEMENT_BYTES[kind] != held:
        needed = prod(shape) * _ELEMENT_BYTES[kind]
        raise ModelFolderInvalid(f"{path.name}: the tensor {name!r} holds {held} bytes, its shape takes {needed}")
    return StoredTensor(kind, tuple(shape), first + offsets[0], held)


class Tensors:
    """The tensors of a checkpoint's folder, of one file or several."""

    def __init__(self, folder: Path) -> None:
        """Reads the headers; the tensors' bytes are mapped when they are read.

        Args:
            folder: Has ``model.safetensors``, or an index and the files that it names.
        """
        self._folder = folder
        files = sorted(path for path in folder.iterdir() if SHARD.fullmatch(path.name))
        if not (folder / INDEX_FILE).exists():
            files = [folder / SINGLE_FILE]
        self._found: dict[str, tuple[Path, StoredTensor]] = {}
        for path in files:
            for name, tensor in read_header(path).items():
                if name in self._found:
                    raise ModelFolderInvalid(f"{path.name}: the tensor {name!r} is in {self._found[name][0].name}, too")
                self._found[name] = path, tensor

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensor(name)[1].shape

    def vector(self, name: str) -> Floats:
        """Returns a vector."""
        path, tensor = self._tensor(name)
        if len(tensor.shape) != 1:
            raise ModelFolderInvalid(f"{path.name}: the tensor {name} has the shape {list(tensor.shape)}, is no vector")
        return self._floats(name, self._stored(name))

    def rows(self, name: str, rows: NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Returns rows of a matrix, float32 [rows, inputs]."""
        path, tensor = self._tensor(name)
        if len(tensor.shape) != 2 or 0 in tensor.shape:
            raise ModelFolderInvalid(f"{path.name}: the tensor {name} has the shape {list(tensor.shape)}, is no matrix")
        return self._floats(name, self._stored(name).reshape(tensor.shape)[rows])

    def _tensor(self, name: str) -> tuple[Path, StoredTensor]:
        if name not in self._found:
            raise ModelFolderInvalid(f"{self._folder.name}: the tensor {name} is missing")
        return self._found[name]

    def _stored(self, name: str) -> NDArray[np.generic]:
        path, tensor = self._tensor(name)
        if tensor.type not in _READ:
            known = ", ".join(_READ)
            raise ModelFolderInvalid(
                f"{path.name}: the tensor {name} is of the type {tensor.type}; {known} can be read"
            )
        if tensor.size == 0:
            return np.empty(0, _READ[tensor.type])
        try:
            mapped: NDArray[np.uint8] = np.memmap(path, np.uint8, "r", tensor.offset, (tensor.size,))
        except (OSError, ValueError) as error:
            raise ModelFolderInvalid(f"{path.name}: the tensor {name} cannot be read: {error}") from error
        return mapped.view(_READ[tensor.type])

    def _floats(self, name: str, stored: NDArray[np.generic]) -> Floats:
        path, tensor = self._tensor(name)
        if tensor.type == "BF16":
            widened = stored.astype(np.uint32)
            widened <<= np.uint32(16)
            values: Floats = widened.view(np.float32)
        else:
            with np.errstate(over="ignore"):
                values = stored.astype(np.float32)
        if not np.isfinite(values).all():
            raise ModelFolderInvalid(f"{path.name}: the tensor {name} has values that are not finite")
        return values
