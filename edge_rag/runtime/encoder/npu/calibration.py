"""Measures the ranges of an encoder's activations by running it in fp32 on built-in texts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from edge_rag.runtime.encoder.bert_network import BertParts
from edge_rag.runtime.encoder.npu.graph import BIAS, EMBEDDED, Range, fixed_graph
from edge_rag.runtime.encoder.tokenizer import TokenizedText
from edge_rag.runtime.session.sessions import open_session

CALIBRATION_TOKENS: Final = 128
"""Most tokens of a calibration text; more would only take time, since tokens vary more than lengths do."""

_HEADROOM = 1.25
_SCORE_HEADROOM = 2.0
_DIGITS = 3
# A masked token weighs less than exp(-24) of the others, which 16 bits cannot distinguish from 0.
_BELOW_ALL = 24.0
_NEVER = -1e4

# Texts of many subjects and kinds, short and long, also beyond English and ASCII.
QUESTIONS: Final = (
    "oil",
    "How often must the bearings of the pump be greased?",
    "Who signed the treaty, and in which year was it ratified?",
    "What does the operator do when the gas alarm sounds during maintenance?",
    "why is the sky blue",
    "Wie hoch ist der Druck im Kessel?",
    "Which of the two methods loses more energy as heat?",
    "error 0x80070057 when mounting /dev/sda1",
)

PASSAGES: Final = (
    "a",
    "EVERY 2,000 HOURS!",
    "Résumé: 4 µm filter, −20 °C to +55 °C – naïve café 東京 😀.",
    "Grease both bearings every 2,000 operating hours, or every three months, whichever comes first. Use lithium "
    "grease, and wipe off what comes out at the seals. The amount is stamped on the plate beside each nipple.",
    "The treaty was signed by eleven states in the spring of 1648 and ended a war of thirty years. Historians disagree "
    "on whether it founded the order of sovereign states, since several of its clauses merely confirmed older rights.",
    "Light that falls on molecules of air is scattered the more, the shorter its waves are; blue is scattered about "
    "four times as much as red. Near the horizon the path through the air is longer, and little of the blue is left.",
    "def area(width: float, height: float) -> float:\n    return width * height  # no check: sizes may be negative",
    "| part | number | torque |\n|---|---|---|\n| M8 bolt | 7720-118 | 25 Nm |\n| M10 bolt | 7720-121 | 49 Nm |",
    "Der Kessel wird mit höchstens 6 bar betrieben. Steigt der Druck darüber, öffnet das Sicherheitsventil, und die "
    "Anlage muss abkühlen, bevor sie wieder angefahren wird.",
    "La bibliothèque ouvre à neuf heures du matin et ferme à dix-huit heures, sauf le dimanche et les jours fériés.",
    "Shares of the company fell by 4.3% to $27.15 on Tuesday after it said that its revenue, $1.2 billion in the third "
    "quarter, would not grow before next year; analysts had expected $1.35 billion, Smith & Sons told Reuters.",
    'She had not spoken for so long that when she did, everybody in the kitchen turned round. "It is the river," she '
    'said. "It has always been the river." Nobody asked her what she meant, and the clock went on over the stove.',
    "Photosynthesis takes place in two steps. In the first, chlorophyll absorbs light and water is split into oxygen, "
    "protons and electrons. In the second, the Calvin cycle, carbon dioxide is bound by an enzyme and turned into "
    "sugar. The enzyme also binds oxygen, which costs plants about a quarter of what they gain; some, maize too, avoid "
    "that by binding carbon dioxide first in other cells and handing it on, at the price of more light and water.",
)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Ranges for quantization.

    Attributes:
        mask: Bias added to the attention scores of padding, negative.
    """

    ranges: dict[str, Range]
    mask: float


def padded_inputs(vectors: NDArray[np.float32], tokens: int, mask: float) -> dict[str, NDArray[np.float32]]:
    """Returns a graph's inputs for a text.

    Padding repeats the first token, so that no unusual activations are computed there.

    Args:
        vectors: float32 [length, hidden]; length is 1 to ``tokens``.
    """
    length = len(vectors)
    embedded = np.empty((tokens, vectors.shape[1]), np.float32)
    embedded[:length] = vectors
    embedded[length:] = vectors[0]
    bias = np.zeros((1, 1, tokens), np.float32)
    bias[..., length:] = mask
    return {EMBEDDED: embedded, BIAS: bias}


def calibrate(parts: BertParts, texts: Iterable[TokenizedText]) -> Calibration:
    """Runs texts and records the least and the largest value of every activation.

    The ranges are widened, since other texts will exceed them and 16 bits have room for that, and rounded away from
    zero to three digits, so that two machines whose sums differ in the last bit build the same graph.

    Args:
        texts: Texts to run, at least one.
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
        inputs = padded_inputs(vectors, CALIBRATION_TOKENS, _NEVER)
        for name, value in zip(names, session.run(names, inputs), strict=True):
            _note(seen, result if name in present else name, value)
        _note(seen, EMBEDDED, inputs[EMBEDDED])
    factor = _SCORE_HEADROOM if parts.classifier is not None else _HEADROOM
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
