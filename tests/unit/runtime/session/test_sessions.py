import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from edge_rag.core.placement import Provider
from edge_rag.errors import ModelError, ProviderUnavailable
from edge_rag.runtime.encoder.npu.encoders import npu_target
from edge_rag.runtime.session.sessions import (
    LIBRARY_OPTION,
    SessionTarget,
    check_assignment,
    compile_graph,
    open_session,
    pool_threads,
    provider_devices,
)
from tests.support.accelerators.npu import needs_npu


def graph(operator: str, rows: int | str = 4) -> bytes:
    """A rounded input, an operator, and its rounded output."""
    names = ("step", "zero")
    constants = [
        helper.make_tensor("step", TensorProto.FLOAT, [], [1 / 128]),
        helper.make_tensor("zero", TensorProto.UINT8, [], [128]),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *names], ["a"]),
        helper.make_node("DequantizeLinear", ["a", *names], ["b"]),
        helper.make_node(operator, ["b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", *names], ["d"]),
        helper.make_node("DequantizeLinear", ["d", *names], ["y"]),
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 8]) for name in ("x", "y")]
    made = helper.make_graph(nodes, "g", value[:1], value[1:], constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


@needs_npu
def test_a_graph_runs_wholly_on_the_npu_and_as_on_the_cpu() -> None:
    session = open_session(graph("Relu"), target=npu_target({}))
    assert check_assignment(session, npu_target({})) >= 1
    x = np.linspace(-1, 0.9, 32, dtype=np.float32).reshape(4, 8)
    expected = open_session(graph("Relu")).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, atol=1 / 128)


@needs_npu
def test_a_graph_with_shapes_that_are_not_fixed_is_refused_by_the_npu() -> None:
    with pytest.raises(ProviderUnavailable, match=r"qnn cannot be used: .*fixed shapes"):
        open_session(graph("Relu", "rows"), target=npu_target({}))


@needs_npu
def test_a_graph_with_an_unsupported_operator_is_refused_and_not_split_with_the_cpu() -> None:
    with pytest.raises(ProviderUnavailable, match="does not take all of the graph"):
        open_session(graph("Shrink"), target=npu_target({}))
    with pytest.raises(ProviderUnavailable, match="does not take all of the graph"):
        compile_graph(graph("Shrink"), npu_target({}))


@needs_npu
def test_a_session_with_nodes_on_another_provider_is_refused() -> None:
    pool_threads()
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = ort.InferenceSession(graph("Relu"), options, providers=["CPUExecutionProvider"])
    with pytest.raises(ProviderUnavailable, match=r"qnn .*took no node of the graph; .*CPUExecutionProvider"):
        check_assignment(session, npu_target({}))


@needs_npu
def test_a_missing_backend_is_an_error_of_the_provider(tmp_path: Path) -> None:
    with pytest.raises(ProviderUnavailable, match=r"qnn cannot be used: its backend .* is not there"):
        npu_target({"backend_path": str(tmp_path / "libQnnHtp.so")})


def test_a_plugin_path_without_a_file_is_named() -> None:
    target = SessionTarget(Provider.QNN, {LIBRARY_OPTION: "/nowhere/plugin.so"})
    with pytest.raises(ProviderUnavailable, match=r"qnn .*/nowhere/plugin\.so is not there; install onnxruntime-qnn"):
        open_session(graph("Relu"), target=target)


def test_a_missing_plugin_is_an_error_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime_qnn", None)
    with pytest.raises(ProviderUnavailable, match=r"plugin is not installed .*install onnxruntime-qnn"):
        open_session(graph("Relu"), target=SessionTarget(Provider.QNN, {}))


def test_a_library_that_is_not_a_plugin_is_refused_with_both_versions() -> None:
    library = Path(ort.__file__).parent / "capi" / "libonnxruntime_providers_shared.so"
    target = SessionTarget(Provider.OPENVINO, {LIBRARY_OPTION: str(library)})
    with pytest.raises(ProviderUnavailable, match=f"does not go with ONNX Runtime {ort.__version__}"):
        open_session(graph("Relu"), target=target)


@pytest.mark.skipif("CUDAExecutionProvider" in ort.get_available_providers(), reason="this ONNX Runtime has CUDA")
@pytest.mark.parametrize("provider", [Provider.CUDA, Provider.TENSORRT])
def test_a_provider_that_onnx_runtime_was_built_without_is_refused_rather_than_replaced(provider: Provider) -> None:
    with pytest.raises(ProviderUnavailable, match="built without it; install onnxruntime-gpu"):
        open_session(graph("Relu"), target=SessionTarget(provider, {}))


def test_a_graph_that_the_cpu_cannot_open_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="cannot open"):
        open_session(b"nothing")


def test_the_processor_is_always_among_the_devices_once() -> None:
    assert [device.kind for device in provider_devices() if device.provider is Provider.CPU] == ["cpu"]
