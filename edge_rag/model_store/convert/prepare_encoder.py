"""Converts an encoder and compares it with its original. Runs as a program, because new files are first opened here.

    python -m edge_rag.model_store.convert.prepare_encoder reference CHECKPOINT ROLE REFERENCE.npz
    python -m edge_rag.model_store.convert.prepare_encoder build CHECKPOINT ROLE PRECISION MODEL.onnx
    python -m edge_rag.model_store.convert.prepare_encoder compare FOLDER REFERENCE.npz

The last line of the output is a JSON object. The texts compared are short and long, in upper and lower case, and beyond
ASCII.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np
import onnx

from edge_rag.errors import EdgeRagError, ModelNotAdded
from edge_rag.model_store.convert.comparison import compare_scores, compare_vectors
from edge_rag.model_store.convert.encoder_checkpoint import read_encoder
from edge_rag.model_store.source import BLOCK, ModelPrecision
from edge_rag.runtime.encoder.bert_graph import Floats, WeightPrecision, build_cross_encoder, build_encoder
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.model_folder.folder import ModelRole, read_manifest

QUESTIONS: Final = (
    "oil",
    "how often",
    "Where is the valve?",
    "How often must the bearings of the pump be greased?",
    "What does the operator do when the gas alarm sounds during maintenance?",
)

PASSAGES: Final = (
    "a",
    "the pump",
    "close the valve",
    "EVERY 2,000 HOURS",
    "Résumé: 4 µm filter, −20 °C to +55 °C – naïve café 東京.",
    "Grease both bearings every 2,000 operating hours, or every three months, whichever comes first.",
    "The spare impeller is kept on shelf 4 of the store room; its part number is 7720-118.",
    "The relief valve on the discharge side opens at 11 bar. If it opens during normal operation, stop the pump, let "
    "the line cool below 40 degrees, and have the pressure transmitter checked before the pump is started again.",
    "Leave the building by the shortest way, close no door behind you that others may need, and call the control room "
    "from outside. Nobody goes back in before the air has been measured twice, ten minutes apart, by somebody who was "
    "trained for it; the readings are written into the log with the time and the name. " * 4,
)


MIN_PAIRS = 8
"""Least number of pairs whose scores are compared."""

_WEIGHTS = {
    ModelPrecision.FP32: None,
    ModelPrecision.INT8: WeightPrecision(8, BLOCK),
    ModelPrecision.INT4: WeightPrecision(4, BLOCK),
}


def run_original(checkpoint: Path, role: ModelRole, reference: Path) -> dict[str, object]:
    """Runs the checkpoint with sentence-transformers in FP32 and saves its output."""
    encoder = read_encoder(checkpoint, role)
    if role is ModelRole.EMBEDDER:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(checkpoint), device="cpu", local_files_only=True, trust_remote_code=False)
        model.max_seq_length = encoder.shape.max_tokens
        model.float()
        questions, shown = (
            model.encode(texts, prompt=prompt, normalize_embeddings=True, show_progress_bar=False)
            for texts, prompt in ((list(QUESTIONS), encoder.question_prompt), (list(PASSAGES), encoder.passage_prompt))
        )
        np.savez(reference, questions=questions, passages=shown)
        return {"texts": len(questions) + len(shown)}
    import torch
    from sentence_transformers import CrossEncoder

    judge = CrossEncoder(str(checkpoint), device="cpu", local_files_only=True, trust_remote_code=False)
    judge.model.float()
    # Texts that are too long are cut at different places; the comparison is about the network.
    fits = [
        (question, passage)
        for question in QUESTIONS
        for passage in PASSAGES
        if len(judge.tokenizer(question, passage)["input_ids"]) <= encoder.shape.max_tokens
    ]
    if len(fits) < MIN_PAIRS:
        raise ModelNotAdded(f"reads {encoder.shape.max_tokens} tokens, too few for a question with a passage")
    scores = judge.predict(fits, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    np.savez(reference, pairs=np.array(fits), scores=scores)
    return {"pairs": len(fits)}


def build(checkpoint: Path, role: ModelRole, precision: ModelPrecision, target: Path) -> dict[str, object]:
    """Writes the graph."""
    encoder, weights = read_encoder(checkpoint, role), _WEIGHTS[precision]
    try:
        if role is ModelRole.EMBEDDER:
            model = build_encoder(_tensors(checkpoint), encoder.shape, weights, encoder.pooling)
        else:
            model = build_cross_encoder(_tensors(checkpoint), encoder.shape, weights)
    except KeyError as error:
        raise ModelNotAdded(f"the checkpoint has no tensor {error}") from error
    except ValueError as error:
        raise ModelNotAdded(f"the tensors do not have the sizes in config.json: {error}") from error
    onnx.save(model, target)
    return {"bytes": target.stat().st_size}


def compare(folder: Path, reference: Path) -> dict[str, object]:
    """Runs the converted model on the texts of the reference."""
    role = read_manifest(folder).role
    with np.load(reference, allow_pickle=False) as kept:
        if role is ModelRole.EMBEDDER:
            encoder = TextEncoder.open(folder)
            made = np.concatenate([encoder.embed_questions(QUESTIONS), encoder.embed(PASSAGES)])
            vectors = compare_vectors(np.concatenate([kept["questions"], kept["passages"]]), made)
            found, good = asdict(vectors), vectors.good
        else:
            pairs = [(str(question), str(passage)) for question, passage in kept["pairs"]]
            scores = compare_scores(kept["scores"], PairEncoder.open(folder).score(pairs))
            found, good = asdict(scores), scores.good
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**found, "good": good, "resident_bytes": resident}


def _tensors(checkpoint: Path) -> Mapping[str, Floats]:
    from safetensors.torch import load_file

    found: dict[str, Floats] = {}
    for path in sorted(checkpoint.glob("model*.safetensors")):
        for name, tensor in load_file(path).items():
            plain = name.removeprefix("bert.").removeprefix("roberta.")
            found[plain] = tensor.float().numpy()
    return found


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
