"""The CUDA form of a model without a CUDA device: ONNX Runtime's CPU operators, and attention written down in NumPy.

Between its ``PagedAttention`` nodes the graph is cut into pieces that the CPU provider runs as they are, in float16.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed
from edge_rag.runtime.decoder.cuda.decoder import step_inputs
from edge_rag.runtime.decoder.cuda.folder import CUDA_GRAPH_FILE, read_cuda_form
from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedModel
from edge_rag.runtime.lowering.onnx_graph import attributes
from edge_rag.runtime.lowering.weight_packing import StoredTensors
from edge_rag.runtime.session.sessions import open_session

Array = NDArray[Any]
Floats = NDArray[np.float32]


class CudaReference(PagedModel):
    """A ``ModelRunner`` over the CUDA form in a folder."""

    def __init__(self, folder: Path, pages: int) -> None:
        sizes = read_cuda_form(folder)
        super().__init__(sizes, pages)
        cache = (pages, sizes.page_tokens, sizes.kv_heads, sizes.head_size)
        self.caches = {
            f"past_key_values.{layer}.{kind}": np.zeros(cache, np.int8)
            for layer in range(sizes.layers)
            for kind in ("key", "value")
        }
        model = onnx.load(folder / CUDA_GRAPH_FILE, load_external_data=False)
        self._stored = StoredTensors(model.graph, folder)
        self._parts = [_Part(nodes, model, folder) for nodes in _cut(model.graph)]

    def run(self, step: PackedStep) -> Floats:
        self.check_step(step)
        values: dict[str, Array] = {**step_inputs(step), **self.caches}
        for part in self._parts:
            if part.attention is None:
                values.update(part.run(values))
            else:
                known = {name: self._value(name, values) for name in part.attention.input if name}
                values[part.attention.output[0]] = attend(part.attention, known)
        logits: Floats = values["logits"][: step.logits_indices.size]
        return logits

    def release_pages(self, pages: Sequence[int]) -> None:
        pass

    def move_tokens(self, sources: NDArray[np.int64], targets: NDArray[np.int64], distance: int) -> None:
        raise InferenceFailed("tokens cannot be moved")

    def _value(self, name: str, values: Mapping[str, Array]) -> Array:
        return values[name] if name in values else np.asarray(self._stored.array(name))


class _Part:
    """Consecutive nodes: one attention, or several others in a session."""

    def __init__(self, nodes: list[onnx.NodeProto], model: onnx.ModelProto, folder: Path) -> None:
        self.attention = nodes[0] if nodes[0].op_type == "PagedAttention" else None
        if self.attention is not None:
            return
        stored = {tensor.name: tensor for tensor in model.graph.initializer}
        read = {name for node in nodes for name in node.input if name}
        # Constants go along with whatever reads them; no session hands them on to another.
        constants = [node for node in model.graph.node if node.op_type == "Constant" and node.output[0] in read]
        nodes = [*constants, *(node for node in nodes if node.op_type != "Constant")]
        made = {name for node in nodes for name in node.output if name} - {node.output[0] for node in constants}
        later = {name for node in model.graph.node if node not in nodes for name in node.input} | {"logits"}
        self._wanted = sorted(made & later)
        part = onnx.ModelProto()
        part.CopyFrom(model)
        graph = part.graph
        del graph.node[:], graph.initializer[:], graph.input[:], graph.output[:]
        graph.node.extend(nodes)
        graph.initializer.extend(stored[name] for name in sorted(read & stored.keys()))
        known = {value.name: value for value in model.graph.input}
        self._read = sorted(read - made - stored.keys() - {node.output[0] for node in constants})
        half = onnx.TensorProto.FLOAT16
        for name in self._read:
            graph.input.append(known.get(name) or onnx.helper.make_tensor_value_info(name, half, None))
        for name in self._wanted:
            kind = onnx.TensorProto.FLOAT if name == "logits" else half
            graph.output.append(onnx.helper.make_tensor_value_info(name, kind, None))
        path = folder / "part.onnx"
        path.write_bytes(part.SerializeToString())
        try:
            self._session = open_session(path)
        finally:
            path.unlink()

    def run(self, values: Mapping[str, Array]) -> dict[str, Array]:
        found = self._session.run(self._wanted, {name: values[name] for name in self._read})
        return dict(zip(self._wanted, found, strict=True))


def _cut(graph: onnx.GraphProto) -> list[list[onnx.NodeProto]]:
    parts: list[list[onnx.NodeProto]] = [[]]
    for node in graph.node:
        if node.op_type == "PagedAttention":
            parts += [[node], []]
        else:
            parts[-1].append(node)
    return [part for part in parts if part]


def attend(node: onnx.NodeProto, values: Mapping[str, Array]) -> NDArray[np.float16]:
    """``com.microsoft::PagedAttention`` over INT8 caches with a scale a channel, which it writes in place.

    Returns:
        float16 [tokens, query heads * head size].
    """
    found = attributes(node)
    heads, kv_heads = found["num_heads"], found["kv_num_heads"]
    inputs: list[Any] = [values.get(name) for name in node.input]
    query, key, value, *rest = inputs
    key_cache, value_cache, cumulative, past, table, cosine, sine, _, _, _, _, key_scale, value_scale, bounds = rest
    size = key_cache.shape[3]
    if key is None:
        query, key, value = np.split(query, np.cumsum([heads * size, kv_heads * size]), axis=1)
    queries, keys, fresh = (part.astype(np.float32).reshape(len(part), -1, size) for part in (query, key, value))
    window, softcap = found.get("local_window_size", -1), found.get("softcap", 0.0)
    output = np.empty((len(query), heads, size), np.float32)
    page_tokens = key_cache.shape[1]
    for row, before in enumerate(past):
        tokens = slice(cumulative[row], cumulative[row + 1])
        count = tokens.stop - tokens.start
        assert count <= bounds[0]
        assert before + count <= bounds[1]
        if count == 0:
            continue
        positions = before + np.arange(count)
        if found["do_rotary"]:
            angles = cosine[positions].astype(np.float32), sine[positions].astype(np.float32)
            queries[tokens], keys[tokens] = (rotate(part[tokens], *angles) for part in (queries, keys))
        page, offset = table[row, positions // page_tokens], positions % page_tokens
        key_cache[page, offset] = quantized(keys[tokens], key_scale)
        value_cache[page, offset] = quantized(fresh[tokens], value_scale)
        every = np.arange(before + count)
        seen = table[row, every // page_tokens], every % page_tokens
        context = key_cache[seen] * key_scale[:, 0], value_cache[seen] * value_scale[:, 0]
        known, held = (np.repeat(part, heads // kv_heads, axis=1) for part in context)
        scores = np.einsum("qhd,khd->hqk", queries[tokens], known) * found["scale"]
        if softcap:
            scores = np.tanh(scores / softcap) * softcap
        hidden = every[None] > positions[:, None]
        if window > 0:
            hidden |= every[None] <= positions[:, None] - window
        scores = np.where(hidden, -np.inf, scores)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        output[tokens] = np.einsum("hqk,khd->qhd", weights, held)
    return output.reshape(len(query), -1).astype(np.float16)


def rotate(part: Floats, cosine: Floats, sine: Floats) -> Floats:
    """Turns the halves of each head's first elements against each other, [tokens, heads, head size]."""
    pairs = cosine.shape[1]
    first, second = part[..., :pairs], part[..., pairs : 2 * pairs]
    cosine, sine = cosine[:, None], sine[:, None]
    turned = (first * cosine - second * sine, second * cosine + first * sine, part[..., 2 * pairs :])
    return np.concatenate(turned, axis=-1)


def quantized(part: Floats, scale: Floats) -> NDArray[np.int8]:
    rounded: Floats = np.rint(part / scale[:, 0])
    return rounded.clip(-128, 127).astype(np.int8)
