"""The weights of an ONNX file, read where they lie and written where they can be mapped."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_rag.errors import ModelFolderInvalid

ALIGNMENT = 64
"""Bytes; every tensor of a weights file begins at a multiple of this, and so does its address once it is mapped."""


class StoredTensors:
    """The initializers of a graph that was loaded without its external data. Nothing is read before it is asked for."""

    def __init__(self, graph: onnx.GraphProto, folder: Path) -> None:
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._folder = folder

    def find(self, name: str) -> TensorProto | None:
        """Returns an initializer without its values; None if the value is none."""
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
    """A file of weights on its way to disk. It takes its name when the ``with`` block ends well, and not before."""

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
            Where they begin and how many they are, bytes.
        """
        self._file.write(bytes(-self._file.tell() % ALIGNMENT))
        offset = self._file.tell()
        self._file.write(np.ascontiguousarray(values).data)
        return offset, values.nbytes

    def store(self, tensor: TensorProto, values: NDArray[Any]) -> None:
        """Writes a tensor's values and lets the tensor point to them."""
        offset, length = self.append(values)
        tensor.ClearField("raw_data")
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self._path.name), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))


def _location(tensor: TensorProto, folder: Path) -> str:
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    if location in ("", ".", "..") or Path(location).name != location:
        raise ModelFolderInvalid(f"{folder}: the weights {tensor.name} lie in {location!r}, outside the folder")
    return location
