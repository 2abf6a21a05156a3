"""Arrays a session reads and writes in place, bound once for as long as their shape stays the same."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray


class BoundInput:
    """An input of a session. Steady decoding has the same shapes step after step, and binding costs more than copying.

    Args:
        binding: The session's.
        name: The input's name.
    """

    def __init__(self, binding: ort.IOBinding, name: str) -> None:
        self._binding = binding
        self._name = name
        self._held: NDArray[np.generic] | None = None

    def put(self, array: NDArray[np.generic]) -> None:
        """Makes the next run read these values; the array itself need not outlive the call."""
        held = self._held
        if held is not None and held.shape == array.shape:
            np.copyto(held, array)
            return
        self._held = held = array.copy()
        self._binding.bind_input(self._name, "cpu", 0, held.dtype.type, held.shape, held.ctypes.data)


class BoundRows:
    """A float32 output with rows of one width. One block of memory serves every step: fresh pages cost more than rows.

    Args:
        binding: The session's.
        name: The output's name.
        width: Elements of a row.
    """

    def __init__(self, binding: ort.IOBinding, name: str, width: int) -> None:
        self._binding = binding
        self._name = name
        self._held: NDArray[np.float32] = np.empty((0, width), np.float32)
        self._rows: NDArray[np.float32] | None = None

    def take(self, rows: int) -> NDArray[np.float32]:
        """Makes the next run write here.

        Returns:
            float32 [rows, width], the same memory as the last time.
        """
        if self._rows is None or len(self._rows) != rows:
            if len(self._held) < rows:
                self._held = np.empty((rows, self._held.shape[1]), np.float32)
            self._rows = self._held[:rows]
            self._binding.bind_output(self._name, "cpu", 0, np.float32, self._rows.shape, self._rows.ctypes.data)
        return self._rows
