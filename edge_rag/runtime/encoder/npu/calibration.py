"""Finds out how large the activations of an encoder get, by running it in fp32 on texts that come along."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from edge_rag.runtime.encoder.bert_parts import BertParts
from edge_rag.runtime.encoder.npu.fixed_graph import BIAS, EMBEDDED, fixed_graph
from edge_rag.runtime.encoder.npu.qdq_builder import Range
from edge_rag.runtime.encoder.tokenizer import TokenizedText
from edge_rag.runtime.session.sessions import open_session

CALIBRATION_TOKENS: Final = 128
"""Most tokens of a calibration text that are read; more only cost time, since tokens differ more than lengths do."""

_HEADROOM = 1.25
_SCORE_HEADROOM = 2.0
_DIGITS = 3
# What is masked weighs less than exp(-24) of the rest, which 16 bits do not tell from nothing.
_BELOW_ALL = 24.0
_NEVER = -1e4


@dataclass(frozen=True, slots=True)
class Calibration:
    """What quantizing needs to know.

    Attributes:
        ranges: Of each activation, with room for what the texts did not show.
        mask: What is added to the attention scores of tokens that only fill up, negative.
    """

    ranges: dict[str, Range]
    mask: float


def filled_up(vectors: NDArray[np.float32], tokens: int, mask: float) -> dict[str, NDArray[np.float32]]:
    """Makes a graph's inputs of a text's tokens.

    What fills up repeats the first token, so that nothing out of the ordinary is computed there.

    Args:
        vectors: float32 [length, hidden]; length is 1 to ``tokens``.
        tokens: Length of the graph.
        mask: What keeps a token out of attention.
    """
    length = len(vectors)
    embedded = np.empty((tokens, vectors.shape[1]), np.float32)
    embedded[:length] = vectors
    embedded[length:] = vectors[0]
    bias = np.zeros((1, 1, tokens), np.float32)
    bias[..., length:] = mask
    return {EMBEDDED: embedded, BIAS: bias}


def calibrate(parts: BertParts, texts: Iterable[TokenizedText]) -> Calibration:
    """Runs the texts and notes the least and the largest value of every activation.

    The ranges are widened, since other texts will go further and 16 bits have room for that, and rounded away from
    zero to three digits, so that two machines whose sums differ in the last bit make the same graph.

    Args:
        parts: The network.
        texts: What to run, at least one.

    Raises:
        ModelError: The graph cannot be run in fp32.
    """
    graph = fixed_graph(parts, CALIBRATION_TOKENS, None)
    watched = onnx.ModelProto()
    watched.CopyFrom(graph.model)
    result = graph.activations[-1]
    present = {value.name for value in watched.graph.output}
    computed = [name for name in graph.activations[:-1] if name not in (EMBEDDED, BIAS)]
    watched.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in computed)
    session = open_session(watched.SerializeToString())
    names = [value.name for value in session.get_outputs()]
    seen: dict[str, Range] = {}
    for text in texts:
        ids = np.array(text.ids[:CALIBRATION_TOKENS], np.int64)
        vectors = parts.tables.look_up(ids, np.array(text.type_ids[:CALIBRATION_TOKENS], np.int64))
        inputs = filled_up(vectors, CALIBRATION_TOKENS, _NEVER)
        for name, value in zip(names, session.run(names, inputs), strict=True):
            _note(seen, result if name in present else name, value)
        _note(seen, EMBEDDED, inputs[EMBEDDED])
    factor = _SCORE_HEADROOM if parts.judge is not None else _HEADROOM
    ranges = {name: _widened(extent, factor if name == result else _HEADROOM) for name, extent in seen.items()}
    mask = -math.ceil(max(high - low for low, high in (ranges[name] for name in graph.scores)) + _BELOW_ALL)
    ranges[BIAS] = (float(mask), 0.0)
    for scores, masked in zip(graph.scores, graph.masked, strict=True):
        ranges[masked] = (ranges[scores][0] + mask, ranges[scores][1])
    ranges |= {name: (0.0, 1.0) for name in graph.activations if name.endswith(".shares")}
    return Calibration(ranges, float(mask))


def _note(seen: dict[str, Range], name: str, value: NDArray[np.float32]) -> None:
    low, high = seen.get(name, (0.0, 0.0))
    seen[name] = (min(low, float(value.min())), max(high, float(value.max())))


def _widened(extent: Range, factor: float) -> Range:
    return _outward(extent[0] * factor), _outward(extent[1] * factor)


def _outward(value: float) -> float:
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - _DIGITS + 1)
    return math.copysign(math.ceil(abs(value) / step) * step, value)
