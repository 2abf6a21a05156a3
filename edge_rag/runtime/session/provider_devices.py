"""What ONNX Runtime can run on in this process."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from edge_rag.core.placement import Provider, ProviderDevice

# isort: split
import onnxruntime as ort

_PROVIDERS: Final = MappingProxyType(
    {
        "CPUExecutionProvider": (Provider.CPU, "cpu"),
        "CUDAExecutionProvider": (Provider.CUDA, "gpu"),
        "TensorrtExecutionProvider": (Provider.TENSORRT, "gpu"),
        "QNNExecutionProvider": (Provider.QNN, "npu"),
        "OpenVINOExecutionProvider": (Provider.OPENVINO, "gpu"),
    }
)


def provider_devices() -> tuple[ProviderDevice, ...]:
    """Returns the devices of the providers that ONNX Runtime has, built in or registered; loads no plugin."""
    found = [
        ProviderDevice(_PROVIDERS[device.ep_name][0], device.device.type.name.lower(), device.device.vendor)
        for device in ort.get_ep_devices()
        if device.ep_name in _PROVIDERS
    ]
    told = {device.provider for device in found}
    built_in = [_PROVIDERS[name] for name in ort.get_available_providers() if name in _PROVIDERS]
    return (*found, *(ProviderDevice(provider, kind) for provider, kind in built_in if provider not in told))
