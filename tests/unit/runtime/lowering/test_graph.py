"""Lowering keeps what it understands and refuses, with the reason, what it does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge_rag.errors import ModelNotLowerable
from edge_rag.runtime.lowering.graph import DecoderSizes, lower
from edge_rag.runtime.lowering.onnx_graph import attributes
from tests.synthetic.tiny_model import FAMILIES, FIXTURES

SIZES = DecoderSizes(head_size=32, context_length=400, end_tokens=frozenset({2}))
Change = Callable[[onnx.GraphProto], object]


def original(family: str = "tiny-llama") -> onnx.ModelProto:
    return onnx.load(FIXTURES / family / "model.onnx", load_external_data=False)


def find(graph: onnx.GraphProto, op_type: str) -> onnx.NodeProto:
    return next(node for node in graph.node if node.op_type == op_type)


def set_attribute(name: str, value: object) -> Change:
    def change(graph: onnx.GraphProto) -> None:
        node = find(graph, "GroupQueryAttention")
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])

    return change


def drop_attribute(name: str) -> Change:
    def change(graph: onnx.GraphProto) -> None:
        node = find(graph, "GroupQueryAttention")
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)

    return change


def set_input(index: int, name: str) -> Change:
    def change(graph: onnx.GraphProto) -> None:
        find(graph, "GroupQueryAttention").input[index] = name

    return change


def read_from_mask(graph: onnx.GraphProto) -> None:
    """Lets the embeddings depend on the attention mask."""
    graph.node.insert(0, helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT))
    norm = find(graph, "SimplifiedLayerNormalization")
    at = list(graph.node).index(norm)
    graph.node.insert(at, helper.make_node("Add", [norm.input[0], "mask"], ["masked"], name="masked"))
    graph.node[at + 1].input[0] = "masked"


def cut(axis: int) -> Change:
    """Cuts a piece out of the embeddings, along the tokens or along the features."""

    def change(graph: onnx.GraphProto) -> None:
        norm = find(graph, "SimplifiedLayerNormalization")
        at = list(graph.node).index(norm)
        numbers = {"from": 0, "to": 1 << 30, "axis": axis}
        for name, value in numbers.items():
            tensor = helper.make_tensor("value", TensorProto.INT64, [1], [value])
            graph.node.insert(at, helper.make_node("Constant", [], [name], value=tensor))
        graph.node.insert(at + 3, helper.make_node("Slice", [norm.input[0], *numbers], ["cut"], name="cut"))
        graph.node[at + 4].input[0] = "cut"

    return change


def mix_tokens(op_type: str, **attributes: object) -> Change:
    """Puts a node that is not known to keep tokens apart before the first norm."""

    def change(graph: onnx.GraphProto) -> None:
        norm = find(graph, "SimplifiedLayerNormalization")
        at = list(graph.node).index(norm)
        node = helper.make_node(op_type, [norm.input[0]], ["mixed"], name="mixer", **attributes)
        graph.node.insert(at, node)
        graph.node[at + 1].input[0] = "mixed"

    return change


def reshape_tokens(graph: onnx.GraphProto) -> None:
    shape = numpy_helper.from_array(np.array([-1, 2, 48]), "by_twos")
    graph.initializer.append(shape)
    norm = find(graph, "SimplifiedLayerNormalization")
    at = list(graph.node).index(norm)
    graph.node.insert(at, helper.make_node("Reshape", [norm.input[0], "by_twos"], ["mixed"], name="mixer"))
    graph.node[at + 1].input[0] = "mixed"


def last_row_only(graph: onnx.GraphProto) -> None:
    """What the builder's option to compute only the last token's logits does."""
    graph.initializer.append(numpy_helper.from_array(np.array([-1]), "last"))
    head = graph.node[-1]
    gather = helper.make_node("Gather", [head.input[0], "last"], ["last_row"], axis=1)
    graph.node.insert(len(graph.node) - 1, gather)
    graph.node[-1].input[0] = "last_row"


def use_present(graph: onnx.GraphProto) -> None:
    graph.node.append(helper.make_node("Identity", ["present.0.key"], ["copy"]))


def half_precision_logits(graph: onnx.GraphProto) -> None:
    graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16


def forget_layers(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        if node.op_type == "GroupQueryAttention":
            node.op_type = "Attention"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_attribute("local_window_size", 0), "'local_window_size': 0"),
        (set_attribute("softcap", -1.0), "'softcap': -1.0"),
        (set_attribute("smooth_softmax", 1), "smooth_softmax = 1"),
        (set_attribute("rotary_interleaved", 1), "rotary_interleaved = 1"),
        (set_attribute("do_rotary", 0), "has rotary tables and does not rotate"),
        (drop_attribute("do_rotary"), "has rotary tables and does not rotate"),
        (set_attribute("kv_cache_bit_width", 8), "kv_cache_bit_width = 8"),
        (set_attribute("num_heads", 8), "different numbers of heads"),
        (set_input(9, "position_ids"), "its input position_ids"),
        (set_input(10, "bias"), "its input bias"),
        (set_input(11, "sink"), "its input sink"),
        (set_input(7, "computed_cos"), "computed_cos is not a stored table"),
        (use_present, r"present\.0\.key is used inside"),
        (read_from_mask, "depends on attention_mask"),
        (mix_tokens("CumSum"), "this CumSum may mix tokens"),
        (mix_tokens("Softmax", axis=1), "this Softmax may mix tokens"),
        (mix_tokens("Transpose", perm=[1, 0, 2]), "this Transpose may mix tokens"),
        (cut(axis=1), "this Slice may mix tokens"),
        (reshape_tokens, "this Reshape may mix tokens"),
        (last_row_only, "the head is not understood"),
        (half_precision_logits, "not float32"),
        (forget_layers, "no GroupQueryAttention"),
    ],
)
def test_graphs_without_a_paged_form_are_refused_with_the_reason(change: Change, message: str) -> None:
    model = original()
    change(model.graph)
    with pytest.raises(ModelNotLowerable, match=message):
        lower(model, SIZES)


def test_cutting_features_off_keeps_tokens_apart() -> None:
    model = original()
    cut(axis=-1)(model.graph)
    assert "Slice" in {node.op_type for node in lower(model, SIZES)[0].graph.node}


def test_a_head_narrower_than_its_rotary_table_is_refused() -> None:
    with pytest.raises(ModelNotLowerable, match="wider than a head"):
        lower(original(), DecoderSizes(head_size=16, context_length=400, end_tokens=frozenset()))


def test_the_original_is_not_changed() -> None:
    model = original()
    before = model.SerializeToString(deterministic=True)
    lower(model, SIZES)
    assert model.SerializeToString(deterministic=True) == before


def test_the_context_is_what_both_the_configuration_and_the_rotary_table_allow() -> None:
    assert lower(original(), SIZES)[1].max_context == 400
    longer = DecoderSizes(head_size=32, context_length=100_000, end_tokens=frozenset())
    assert lower(original(), longer)[1].max_context == 512


def windowed(*windows: int) -> onnx.ModelProto:
    """The model with a window in each of its layers; -1 for none."""
    model = original()
    attentions = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
    for node, window in zip(attentions, windows, strict=True):
        kept = [attribute for attribute in node.attribute if attribute.name != "local_window_size"]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute("local_window_size", window)])
    return model


def test_window_and_cap_are_carried_over_layer_by_layer() -> None:
    model = windowed(100, -1)
    for name, value in (("softcap", 50.0), ("sliding_window_cache", 1)):
        set_attribute(name, value)(model.graph)
    lowered, geometry = lower(model, dataclasses.replace(SIZES, window=100, windowed_layers=frozenset({0})))
    first, second = (attributes(node) for node in lowered.graph.node if node.op_type == "PagedAttention")
    assert (first["local_window_size"], first["softcap"]) == (100, 50.0)
    assert not {"local_window_size", "softcap"} & second.keys()
    assert geometry.max_context == 400


def test_a_window_that_no_layer_is_known_to_have_bounds_the_context() -> None:
    assert lower(windowed(-1, -1), dataclasses.replace(SIZES, window=100))[1].max_context == 100
    assert lower(windowed(100, -1), dataclasses.replace(SIZES, window=100))[1].max_context == 400


@pytest.mark.parametrize(("windows", "layers"), [((99, -1), {0}), ((100, -1), {1}), ((-1, -1), {0}), ((100, 99), ())])
def test_a_graph_whose_windows_are_not_those_of_its_configuration_is_refused(
    windows: tuple[int, int], layers: Collection[int]
) -> None:
    with pytest.raises(ModelNotLowerable, match="see 100 tokens, the graph says"):
        lower(windowed(*windows), dataclasses.replace(SIZES, window=100, windowed_layers=frozenset(layers)))


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_selected_before_the_head(family: str) -> None:
    graph = lower(original(family), DecoderSizes(80, 512, frozenset()))[0].graph
    pick = next(node for node in graph.node if "logits_indices" in node.input)
    after = list(graph.node)[list(graph.node).index(pick) + 1 :]
    cap = ["Constant", "Div", "Tanh", "Mul"] if family == "tiny-gemma2" else []
    assert [node.op_type for node in after] == ["MatMul", *cap, "Squeeze"]
