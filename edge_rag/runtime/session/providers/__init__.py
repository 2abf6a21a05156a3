"""The execution providers this package supports, one spec each; to add one see docs/internals/add-a-provider.md."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from edge_rag.runtime.session.providers import cpu, cuda, openvino, qnn, tensorrt

SPECS: Final = MappingProxyType(
    {spec.provider: spec for spec in (cpu.SPEC, cuda.SPEC, tensorrt.SPEC, qnn.SPEC, openvino.SPEC)}
)
"""Every provider's spec. Advice about unused hardware follows this order."""

ACCELERATORS: Final = MappingProxyType(
    {accelerator.name: accelerator for spec in SPECS.values() for accelerator in spec.accelerators}
)
"""Every kind of accelerator, by name."""
