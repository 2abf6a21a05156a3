"""Checks ONNX graphs and the other files of a model folder before any library parses them.

A graph can do more than compute. It can name files (external data, cached engines), use operators that only a loaded
library has, contain weights whose declared size has nothing to do with their bytes, and hide all of that in a subgraph.
ONNX Runtime checks some of it, and some of it late. Here all of it is checked first, from the graph's own bytes and
without its weights, against lists of what is allowed. Functions are refused: they can call each other without end, and
no converter in use makes any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from pathlib import PurePosixPath

import onnx
from onnx import AttributeProto, TensorProto

from edge_rag.runtime.model_folder.genai_config import GENAI_CONFIG_FILE, check_genai_config
from edge_rag.runtime.model_folder.manifest import plain_relative_path
from edge_rag.runtime.model_folder.strict_json import parse_object
from edge_rag.runtime.model_folder.tokenizer_check import check_tokenizer

LARGEST_GRAPH = 512 << 20
"""Most bytes of a graph with its internal weights; larger weights belong into external files."""

_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft", "ai.edge_rag"})
# Operators of allowed domains that open files or run engines.
_REFUSED_OPERATORS = frozenset({"EPContext", "PyOp", "ATen", "TensorRTEngineOp", "TritonOp"})
_EXTERNAL_KEYS = frozenset({"location", "offset", "length", "checksum"})
_DEEPEST = 16
_BITS: Mapping[int, int] = {
    TensorProto.FLOAT: 32, TensorProto.UINT8: 8, TensorProto.INT8: 8, TensorProto.UINT16: 16, TensorProto.INT16: 16,
    TensorProto.INT32: 32, TensorProto.INT64: 64, TensorProto.BOOL: 8, TensorProto.FLOAT16: 16, TensorProto.DOUBLE: 64,
    TensorProto.UINT32: 32, TensorProto.UINT64: 64, TensorProto.BFLOAT16: 16, TensorProto.UINT4: 4, TensorProto.INT4: 4,
}  # fmt: skip


def check_graph(content: bytes, sizes: Mapping[str, int]) -> None:
    """Checks an ONNX file.

    Args:
        sizes: Bytes of each file of its folder, by path; other files must not be referenced.

    Raises:
        ValueError: It is not an ONNX file, or contains something that is not allowed; names what and where.
    """
    if len(content) > LARGEST_GRAPH:
        raise ValueError(f"is larger than {LARGEST_GRAPH} bytes; weights belong in an external file")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:
        raise ValueError(f"is not an ONNX file: {error}") from error
    if not model.graph.node:
        raise ValueError("is not an ONNX file: it has no graph")
    for opset in model.opset_import:
        _check_domain(opset.domain, "the graph")
    if model.training_info:
        raise ValueError("holds a training graph, which is not allowed")
    if model.functions:
        raise ValueError(f"defines the function {model.functions[0].name!r}; functions are not allowed")
    _check_subgraph(model.graph, sizes, 0)


def _check_subgraph(graph: onnx.GraphProto, sizes: Mapping[str, int], depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"has subgraphs nested deeper than {_DEEPEST}")
    if graph.sparse_initializer:
        raise ValueError("holds a sparse initializer, which is not allowed: reading it allocates the declared size")
    for tensor in graph.initializer:
        _check_tensor(tensor, sizes)
    _check_nodes(graph.node, sizes, depth)


def _check_nodes(nodes: Iterable[onnx.NodeProto], sizes: Mapping[str, int], depth: int) -> None:
    for node in nodes:
        where = f"node {node.name or node.op_type!r}"
        _check_domain(node.domain, where)
        if node.op_type in _REFUSED_OPERATORS:
            raise ValueError(f"{where}: the operator {node.op_type} is not allowed")
        for attribute in node.attribute:
            _check_attribute(attribute, where, sizes, depth)


def _check_attribute(attribute: AttributeProto, where: str, sizes: Mapping[str, int], depth: int) -> None:
    if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
        raise ValueError(f"{where}: holds a sparse tensor, which is not allowed")
    # The declared type of an attribute is not trusted; every field that is set is checked.
    for tensor in (*((attribute.t,) if attribute.HasField("t") else ()), *attribute.tensors):
        _check_tensor(tensor, sizes)
    for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
        _check_subgraph(graph, sizes, depth + 1)


def _check_domain(domain: str, where: str) -> None:
    if domain not in _DOMAINS:
        raise ValueError(f"{where}: operators of the domain {domain!r} are not allowed")


def _check_tensor(tensor: TensorProto, sizes: Mapping[str, int]) -> None:
    where = f"weights {tensor.name!r}"
    if any(size < 0 for size in tensor.dims):
        raise ValueError(f"{where}: the shape {list(tensor.dims)} is not one")
    external = tensor.data_location == TensorProto.EXTERNAL
    if tensor.external_data and not external:
        raise ValueError(f"{where}: has external data entries without external location")
    if tensor.HasField("segment"):
        raise ValueError(f"{where}: are a segment, which is not allowed")
    elements = prod(tensor.dims)
    if tensor.data_type == TensorProto.STRING and not external:
        if elements != len(tensor.string_data):
            raise ValueError(f"{where}: have {len(tensor.string_data)} of {elements} elements")
        return
    if tensor.data_type not in _BITS:
        raise ValueError(f"{where}: the element type {tensor.data_type} is not allowed")
    needed = -(-elements * _BITS[tensor.data_type] // 8)
    if external:
        _check_external(tensor, needed, where, sizes)
    elif tensor.HasField("raw_data"):
        if len(tensor.raw_data) != needed:
            raise ValueError(f"{where}: hold {len(tensor.raw_data)} bytes, their shape takes {needed}")
    elif elements > _typed_elements(tensor):
        raise ValueError(f"{where}: hold {_typed_elements(tensor)} elements, their shape takes {elements}")


def _check_external(tensor: TensorProto, needed: int, where: str, sizes: Mapping[str, int]) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if len(entries) != len(tensor.external_data):
        raise ValueError(f"{where}: repeat an entry of their external data")
    for key in sorted(entries.keys() - _EXTERNAL_KEYS):
        raise ValueError(f"{where}: the external-data key {key!r} is not allowed")
    if tensor.HasField("raw_data") or _typed_elements(tensor):
        raise ValueError(f"{where}: are in the graph and in external data too")
    try:
        location = plain_relative_path(entries.get("location", ""))
    except ValueError as error:
        raise ValueError(f"{where}: external data is outside the folder: {error}") from error
    if location not in sizes:
        raise ValueError(f"{where}: external data is in {location!r}, which is not a file of the folder")
    offset = _natural(entries.get("offset", "0"), "offset", where)
    length = _natural(entries.get("length", str(needed)), "length", where)
    if length != needed:
        raise ValueError(f"{where}: external data has {length} bytes, their shape takes {needed}")
    if offset + length > sizes[location]:
        raise ValueError(f"{where}: external data ends behind the end of {location}")


def _natural(text: str, key: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(f"{where}: the {key} of their external data is {text!r}, not a number of bytes")
    return int(text)


def _typed_elements(tensor: TensorProto) -> int:
    fields = (
        tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data,
    )  # fmt: skip
    # Two 4-bit elements share an int32 entry.
    packed = 2 if tensor.data_type in (TensorProto.UINT4, TensorProto.INT4) else 1
    return packed * sum(len(field) for field in fields)


def external_files(content: bytes) -> frozenset[str]:
    model = onnx.ModelProto.FromString(content)
    return frozenset(
        entry.value for tensor in model.graph.initializer for entry in tensor.external_data if entry.key == "location"
    )


LARGEST_TEXT = 64 << 20
"""Most bytes of a tokenizer, a configuration or a template."""

MOST_FILES = 256
"""Most files of a model folder."""

_TEXTS = frozenset({".json", ".jinja", ".txt", ".md"})
_NOTICES = frozenset({"LICENSE", "LICENCE", "NOTICE", "COPYING"})
_WEIGHTS = frozenset({".data", ".onnx_data"})
_GRAPH = ".onnx"


def check_contents(sizes: Mapping[str, int], read: Callable[[str], bytes]) -> None:
    """Checks every file that will be parsed, and that all others are their weights.

    Args:
        sizes: Bytes of each file, by path relative to the folder.
    """
    check_sizes(sizes)
    for path in sorted(sizes):
        try:
            _check_file(path, sizes, read)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def check_sizes(sizes: Mapping[str, int]) -> None:
    """Checks the number of files, and the size of those that will be parsed."""
    if len(sizes) > MOST_FILES:
        raise ValueError(f"the folder has {len(sizes)} files, at most {MOST_FILES} are allowed")
    for path, size in sorted(sizes.items()):
        suffix = PurePosixPath(path).suffix
        largest = LARGEST_GRAPH if suffix == _GRAPH else LARGEST_TEXT if suffix in _TEXTS else None
        if largest is not None and size > largest:
            raise ValueError(f"{path}: has {size} bytes, at most {largest} are allowed")


def _check_file(path: str, sizes: Mapping[str, int], read: Callable[[str], bytes]) -> None:
    name, suffix = PurePosixPath(path).name, PurePosixPath(path).suffix
    if suffix in _WEIGHTS:
        return
    if suffix == _GRAPH:
        # Locations of external data are relative to the graph's own folder.
        parent = PurePosixPath(path).parent
        beside = {
            PurePosixPath(other).relative_to(parent).as_posix(): size
            for other, size in sizes.items()
            if PurePosixPath(other).is_relative_to(parent)
        }
        check_graph(read(path), beside)
        return
    if suffix not in _TEXTS and name not in _NOTICES:
        raise ValueError(f"files of this kind ({suffix or 'no suffix'}) are not allowed in a model folder")
    if name == GENAI_CONFIG_FILE:
        graph = check_genai_config(read(path)).graph
        if PurePosixPath(path).parent.joinpath(graph).as_posix() not in sizes:
            raise ValueError(f"names the graph {graph}, which is not a file of the folder")
    elif name == "tokenizer.json":
        check_tokenizer(parse_object(read(path)))
    elif suffix == ".json":
        parse_object(read(path))
