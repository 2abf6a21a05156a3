"""INT8 keys and values in the memory of a device, in pages."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from edge_rag.errors import ModelError
from edge_rag.runtime.decoder.cuda.lowering import KEY_CACHE, VALUE_CACHE
from edge_rag.runtime.lowering.geometry import PagedGeometry
from edge_rag.runtime.session.providers import ProviderDemand
from edge_rag.runtime.session.sessions import open_session


class DevicePages:
    """The caches of a model, allocated once. Used by one thread at a time.

    Args:
        geometry: The model's sizes.
        pages: Number of pages.
        device: Kind of the device's memory, as ONNX Runtime names it: ``cuda``, or ``cpu``.
        number: Which device of the kind.
        demand: The provider that copies there.

    Raises:
        ModelError: They do not fit in the device's memory.
        ProviderUnavailable: The provider cannot be had.
    """

    def __init__(self, geometry: PagedGeometry, pages: int, device: str, number: int, demand: ProviderDemand) -> None:
        shape = (pages, geometry.page_tokens, geometry.kv_heads, geometry.head_size)
        names = [name.format(layer) for layer in range(geometry.layers) for name in (KEY_CACHE, VALUE_CACHE)]
        self._device, self._number = device, number
        self._bytes = geometry.page_tokens * geometry.kv_heads * geometry.head_size
        try:
            self.caches = {
                name: ort.OrtValue.ortvalue_from_shape_and_type(shape, np.int8, device, number) for name in names
            }
        except Exception as error:
            needed = len(names) * pages * self._bytes
            raise ModelError(f"{pages} pages of together {needed} bytes do not fit on {device} {number}") from error
        self._copier = open_session(_copying_graph(names, self._bytes), demand=demand)
        self._copies = self._copier.io_binding()

    @property
    def page_bytes(self) -> int:
        """Bytes of one page, all layers together."""
        return len(self.caches) * self._bytes

    def bind(self, binding: ort.IOBinding) -> None:
        """Lets a session read and write them in place."""
        for name, cache in self.caches.items():
            binding.bind_ortvalue_input(name, cache)

    def copy(self, source: int, target: int) -> None:
        """Copies a page's content, in all layers, without leaving the device; both must be there."""
        if source == target:
            return
        place, size = (self._device, self._number, np.int8), [self._bytes]
        for name, cache in self.caches.items():
            first = cache.data_ptr()
            self._copies.bind_input(name, *place, size, first + source * self._bytes)
            self._copies.bind_output(f"{name}.copy", *place, size, first + target * self._bytes)
        self._copier.run_with_iobinding(self._copies)


def _copying_graph(names: list[str], size: int) -> bytes:
    """Returns a graph that copies each of its inputs, int8 [size], to an output."""

    def value(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.INT8, [size])

    graph = helper.make_graph(
        [helper.make_node("Identity", [name], [f"{name}.copy"]) for name in names],
        "copy",
        [value(name) for name in names],
        [value(f"{name}.copy") for name in names],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    content: bytes = made.SerializeToString()
    return content
