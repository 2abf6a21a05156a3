"""Converts an encoder and compares it with its weights in float32. Runs as a program: new files are first opened here.

    python -m edge_rag.model_store.convert.prepare_encoder reference CHECKPOINT ROLE REFERENCE.npz
    python -m edge_rag.model_store.convert.prepare_encoder build CHECKPOINT ROLE PRECISION FOLDER
    python -m edge_rag.model_store.convert.prepare_encoder compare FOLDER REFERENCE.npz

The last line of the output is a JSON object. The texts compared are short and long, in upper and lower case, and of
several scripts.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np
import onnx

from edge_rag.errors import EdgeRagError, ModelNotAdded
from edge_rag.model_store.convert.comparison import compare_scores, compare_vectors
from edge_rag.model_store.convert.encoder_checkpoint import EncoderCheckpoint, read_encoder, read_weights
from edge_rag.model_store.source import ModelPrecision
from edge_rag.runtime.encoder.bert_graph import BYTE_ROWS, WeightPrecision, build_cross_encoder, build_encoder
from edge_rag.runtime.encoder.checkpoint_weights import EncoderWeights
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.modern_bert_graph import ModernBertShape, build_modern_bert_encoder
from edge_rag.runtime.encoder.reference_encoder import (
    Floats,
    Ids,
    classified,
    modern_reference_hidden,
    pooled,
    reference_hidden,
)
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.encoder.tokenizer import TextTokenizer
from edge_rag.runtime.model_folder.folder import ModelRole, read_manifest

QUESTIONS: Final = (
    "oil",
    "how often",
    "Where is the valve?",
    "How often must the bearings of the pump be greased?",
    "What does the operator do when the gas alarm sounds during maintenance?",
    "Wie oft müssen die Lager der Pumpe geschmiert werden?",
    "安全阀在多少压力下打开？",
)

PASSAGES: Final = (
    "a",
    "the pump",
    "close the valve",
    "EVERY 2,000 HOURS",
    "Résumé: 4 µm filter, −20 °C to +55 °C – naïve café 東京.",
    "Die Pumpenlager sind alle 2.000 Betriebsstunden zu schmieren, spätestens jedoch nach drei Monaten.",
    "水泵轴承每运行2000小时或每三个月加注一次润滑脂。",
    "قم بتشحيم محامل المضخة كل ٢٠٠٠ ساعة تشغيل أو كل ثلاثة أشهر.",
    "Смазывайте подшипники насоса каждые 2000 часов работы или раз в три месяца.",
    "Grease both bearings every 2,000 operating hours, or every three months, whichever comes first.",
    "The spare impeller is kept on shelf 4 of the store room; its part number is 7720-118.",
    "The relief valve on the discharge side opens at 11 bar. If it opens during normal operation, stop the pump, let "
    "the line cool below 40 degrees, and have the pressure transmitter checked before the pump is started again.",
    "Leave the building by the shortest way, close no door behind you that others may need, and call the control room "
    "from outside. Nobody goes back in before the air has been measured twice, ten minutes apart, by somebody who was "
    "trained for it; the readings are written into the log with the time and the name. " * 4,
)


FORMS: Final = {
    ModelPrecision.INT4: WeightPrecision(4, 32, to_lowest=True),
    ModelPrecision.INT8: WeightPrecision(8, 128),
    ModelPrecision.FP32: None,
}
"""Quantization of matrices by precision. Word embeddings have the same with 4 bits, and a scale a row with 8."""

_LARGEST_INLINE: Final = 256 << 20
"""Most bytes of weights inside a graph's file; more lie in a file beside it, which is mapped."""

_GRAPH_FILE: Final = "model.onnx"
_WEIGHTS_FILE: Final = "model.onnx.data"


def run_original(checkpoint: Path, role: ModelRole, reference: Path) -> dict[str, object]:
    """Computes the checkpoint in float32 and saves the results."""
    encoder, weights = read_encoder(checkpoint, role), read_weights(checkpoint, role)
    tokenizer = TextTokenizer.open(checkpoint / "tokenizer.json", encoder.shape.max_tokens)
    if role is ModelRole.EMBEDDER:
        prompted = [encoder.question_prompt + text for text in QUESTIONS]
        prompted += [encoder.passage_prompt + text for text in PASSAGES]
        ids = [np.array(text, np.int64) for text in tokenizer.truncated_ids(prompted)]
        vectors = pooled(_hidden(encoder, weights, ids, [np.zeros_like(text) for text in ids]), encoder.pooling)
        np.savez(reference, vectors=vectors)
        return {"texts": len(vectors)}
    pairs = [tokenizer.pair(question, passage) for question in QUESTIONS for passage in PASSAGES]
    ids = [np.array(pair.ids, np.int64) for pair in pairs]
    types = [np.array(pair.type_ids, np.int64) for pair in pairs]
    scores = classified(_hidden(encoder, weights, ids, types), weights)
    np.savez(reference, scores=scores.reshape(-1))
    return {"pairs": len(pairs)}


def _hidden(encoder: EncoderCheckpoint, weights: EncoderWeights, texts: list[Ids], types: list[Ids]) -> list[Floats]:
    if isinstance(encoder.shape, ModernBertShape):
        return modern_reference_hidden(encoder.shape, weights, texts)
    return reference_hidden(encoder.shape, weights, texts, types)


def build(checkpoint: Path, role: ModelRole, precision: ModelPrecision, folder: Path) -> dict[str, object]:
    """Writes the graph into a folder."""
    encoder, weights = read_encoder(checkpoint, role), read_weights(checkpoint, role)
    form = FORMS[precision]
    rows = BYTE_ROWS if form is None or form.bits == 8 else form
    try:
        model = _graph(encoder, weights, role, form, rows)
    except ValueError as error:
        raise ModelNotAdded(f"the network has no packed form: {error}") from error
    stored = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    outside = stored > _LARGEST_INLINE
    onnx.save_model(model, folder / _GRAPH_FILE, save_as_external_data=outside, location=_WEIGHTS_FILE)
    if outside:  # the library makes it for its owner only, and the daemon may be another user
        shutil.copymode(folder / _GRAPH_FILE, folder / _WEIGHTS_FILE)
    return {"bits_per_weight": round(8 * stored / weights.elements, 3)}


def _graph(
    encoder: EncoderCheckpoint,
    weights: EncoderWeights,
    role: ModelRole,
    form: WeightPrecision | None,
    rows: WeightPrecision,
) -> onnx.ModelProto:
    if isinstance(encoder.shape, ModernBertShape):
        return build_modern_bert_encoder(weights, encoder.shape, form, encoder.pooling, rows)
    if role is ModelRole.EMBEDDER:
        return build_encoder(weights, encoder.shape, form, encoder.pooling, rows)
    return build_cross_encoder(weights, encoder.shape, form, rows)


def compare(folder: Path, reference: Path) -> dict[str, object]:
    """Runs the converted model on the texts of the reference."""
    with np.load(reference, allow_pickle=False) as kept:
        if read_manifest(folder).role is ModelRole.EMBEDDER:
            encoder = TextEncoder.open(folder)
            made = np.concatenate([encoder.embed_questions(QUESTIONS), encoder.embed(PASSAGES)])
            vectors = compare_vectors(kept["vectors"], made)
            found, good = asdict(vectors), vectors.good
        else:
            pairs = [(question, passage) for question in QUESTIONS for passage in PASSAGES]
            scores = compare_scores(kept["scores"], PairEncoder.open(folder).score(pairs))
            found, good = asdict(scores), scores.good
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**found, "good": good, "resident_bytes": resident}


def main(arguments: list[str]) -> int:
    """Runs one of the steps; returns the exit status."""
    step, folder, *rest = arguments
    try:
        match step, rest:
            case "reference", [role, reference]:
                found = run_original(Path(folder), ModelRole(role), Path(reference))
            case "build", [role, precision, target]:
                found = build(Path(folder), ModelRole(role), ModelPrecision(precision), Path(target))
            case "compare", [reference]:
                found = compare(Path(folder), Path(reference))
            case _:
                raise ModelNotAdded(f"{step} is not a step")
    except EdgeRagError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print(json.dumps(found))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
