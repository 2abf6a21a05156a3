"""Attacks through graphs and their weights."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from tests.unit.model_store.attacks.attack import Attack, Build, Canary, replace
from tests.unit.model_store.attacks.valid_folders import good_genai, good_model, good_serial, graph, write_manifest_of


def attacks_on_graphs() -> Iterator[Attack]:
    yield from _external_places()
    yield from _external_sizes()
    yield from _graphs()
    yield from _bytes()


def _external_places() -> Iterator[Attack]:
    """Weights that lie where they must not."""
    for place in (
        "../secret.data", "../../secret.data", "/etc/passwd", "/proc/self/environ", "/dev/zero",
        "sub/../../secret.data",
        "./model.data", "..", "", "other.data", "*/_ORT_MEM_ADDR_/*", "model.data\x00", "..\\secret.data",
        "C:\\secret.data", "sub//model.data", "file:///etc/passwd", "genai_config.json/../../secret.data",
    ):  # fmt: skip
        yield Attack(f"weights in {place!r}", external({"location": place}), "external data")
    for where in ("an attribute", "a branch", "a branch of a branch", "a loop"):
        yield Attack(f"weights outside, hidden in {where}", _hidden(where), "external data")


def _external_sizes() -> Iterator[Attack]:
    """Weights whose sizes do not fit."""
    for key, value, says in (
        ("offset", "-1", "offset"),
        ("offset", "99999999999999999999", "offset"),
        ("offset", "0x10", "offset"),
        ("offset", "1e3", "offset"),
        ("offset", " 0", "offset"),
        ("offset", "٣", "offset"),
        ("offset", "64", "behind the end"),
        ("length", "-16", "length"),
        ("length", "8", "their shape takes"),
        ("length", "4096", "their shape takes"),
        ("length", "", "length"),
        ("basepath", "/etc", "basepath"),
        ("library", "canary.so", "library"),
    ):
        yield Attack(f"external data with {key} {value!r}", external({key: value}), says)
    for dims in ((4096,), (2**31,), (2**62, 4), (-1,), (2**40, 2**40)):
        yield Attack(f"weights of shape {dims}", external({}, dims=dims), "weights")


def _graphs() -> Iterator[Attack]:
    """Graphs that hold what no decoder needs."""
    for domain in (
        "ai.onnx.contrib",
        "com.evil",
        "ai.onnx.ml",
        "ai.onnx.preview.training",
        "pyopadd",
        "com.microsoft.x",
    ):
        yield Attack(f"operators of {domain}", _node("Custom", domain), domain)
        yield Attack(f"{domain} imported", _import(domain), domain)
    for operator in ("EPContext", "PyOp", "ATen", "TensorRTEngineOp"):
        yield Attack(f"the operator {operator}", _node(operator, "com.microsoft"), operator)

    def sparse(model: onnx.ModelProto) -> None:
        values = helper.make_tensor("s", TensorProto.FLOAT, [1], [1.0])
        indices = helper.make_tensor("i", TensorProto.INT64, [1], [0])
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2**40]))

    def function(model: onnx.ModelProto) -> None:
        body = helper.make_node("F", ["x"], ["y"], domain="com.microsoft")
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model.functions.append(helper.make_function("com.microsoft", "F", ["x"], ["y"], [body], opsets))

    def training(model: onnx.ModelProto) -> None:
        model.training_info.add().algorithm.node.append(helper.make_node("Identity", ["x"], ["y"]))

    def strange_type(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].data_type = 99

    def lying_raw(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(TensorProto(name="r", data_type=1, dims=[2**20], raw_data=b"1234"))

    def lying_floats(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(TensorProto(name="r", data_type=1, dims=[2**33], float_data=[1.0]))

    def lying_text(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(TensorProto(name="r", data_type=8, dims=[2**33], string_data=[b"x"]))

    def both(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].raw_data = b"x" * 16

    def denied(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].data_location = TensorProto.DEFAULT

    def twice(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].external_data.add(key="location", value="/etc/passwd")

    def segment(model: onnx.ModelProto) -> None:
        tensor = TensorProto(name="g", data_type=1, dims=[1], float_data=[1.0])
        tensor.segment.begin, tensor.segment.end = 0, 10
        model.graph.initializer.append(tensor)

    def deep(model: onnx.ModelProto) -> None:
        inner = helper.make_graph([], "g", [], [])
        for _ in range(24):
            inner = helper.make_graph([helper.make_node("If", ["c"], ["y"], then_branch=inner)], "g", [], [])
        model.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=inner))

    for name, change, says in (
        ("a sparse initializer", sparse, "sparse"),
        ("a function that calls itself", function, "function"),
        ("a training graph", training, "training"),
        ("an element type that is none", strange_type, "element type"),
        ("bytes that do not fill the shape", lying_raw, "their shape takes"),
        ("elements that do not fill the shape", lying_floats, "their shape takes"),
        ("texts that do not fill the shape", lying_text, "elements"),
        ("weights in two places", both, "external data too"),
        ("external data that is denied", denied, "without external location"),
        ("two locations", twice, "repeat an entry"),
        ("a segment", segment, "segment"),
        ("subgraphs without end", deep, "nested deeper"),
    ):
        yield Attack(name, graph_change(change), says)


def _bytes() -> Iterator[Attack]:
    """Files that are not what their names say."""
    recursive = b""
    for _ in range(200):
        recursive = b"\x3a" + _varint(len(recursive)) + recursive
    for name, content, says in (
        ("an empty graph", b"", "not an ONNX file"),
        ("a graph of text", b"hello, this is no graph", "not an ONNX file"),
        ("a truncated graph", graph().SerializeToString()[:-7], "model.onnx"),
        ("a shared library", b"\x7fELF" + bytes(200), "not an ONNX file"),
        ("an ORT-format model", struct.pack("<I", 24) + b"ORTM" + bytes(100), "not an ONNX file"),
        ("a length beyond the end", b"\x3a\xff\xff\xff\xff\x7f", "not an ONNX file"),
        ("messages in messages", recursive, "not an ONNX file"),
        ("a zip file", b"PK\x03\x04" + bytes(100), "not an ONNX file"),
    ):
        yield Attack(f"model.onnx: {name}", replace(good_genai, "model.onnx", content), says)

    def huge(base: Callable[[Path], object], name: str, largest: int) -> Build:
        def build(folder: Path, canary: Canary) -> None:
            base(folder)
            with (folder / name).open("r+b") as file:
                file.truncate(largest + 1)  # a hole; takes no room

        return build

    for base in (good_genai, good_model):
        for name, largest in (("model.onnx", 512 << 20), ("tokenizer.json", 64 << 20)):
            yield Attack(f"{base.__name__}: {name} of absurd size", huge(base, name, largest), "at most")


def external(entries: dict[str, str], base: Callable[[Path], None] = good_genai, dims: tuple[int, ...] = (4,)) -> Build:
    return graph_change(lambda model: _point(model.graph.initializer[0], dims, entries), base)


def _point(tensor: TensorProto, dims: tuple[int, ...], entries: dict[str, str]) -> None:
    del tensor.dims[:]
    tensor.dims.extend(dims)
    values = {"location": "model.data", "offset": "0"} | entries
    del tensor.external_data[:]
    for key, value in values.items():
        tensor.external_data.add(key=key, value=value)


def _outside() -> TensorProto:
    tensor = TensorProto(name="hidden", data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    _point(tensor, (4,), {"location": "../secret.data"})
    return tensor


def _hidden(where: str) -> Build:
    def change(model: onnx.ModelProto) -> None:
        constant = helper.make_node("Constant", [], ["h"], value=_outside())
        inner = helper.make_graph([], "inner", [], [], initializer=[_outside()])
        nodes = {
            "an attribute": constant,
            "a branch": helper.make_node("If", ["c"], ["h"], then_branch=inner, else_branch=inner),
            "a branch of a branch": helper.make_node(
                "If",
                ["c"],
                ["h"],
                then_branch=helper.make_graph([helper.make_node("If", ["c"], ["h"], else_branch=inner)], "o", [], []),
            ),
            "a loop": helper.make_node("Loop", ["n"], ["h"], body=helper.make_graph([constant], "body", [], [])),
        }
        model.graph.node.append(nodes[where])

    return graph_change(change)


def _node(operator: str, domain: str) -> Build:
    return graph_change(
        lambda model: model.graph.node.append(
            helper.make_node(operator, ["x"], ["z"], domain=domain, ep_cache_context="/")
        )
    )


def _import(domain: str) -> Build:
    return graph_change(lambda model: model.opset_import.append(helper.make_opsetid(domain, 1)))


def graph_change(change: Callable[[onnx.ModelProto], object], base: Callable[[Path], None] = good_model) -> Build:
    def build(folder: Path, canary: Canary) -> None:
        base(folder)
        (folder.parent / "secret.data").write_bytes(bytes(64))
        model = graph()
        change(model)
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        if base is not good_genai:
            write_manifest_of(folder, {"form": "serial"} if base is good_serial else None)

    return build


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
