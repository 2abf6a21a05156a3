"""Lowers a model and compares it with its original. Runs as a program, because new graphs are first opened here.

    python -m edge_rag.model_store.convert.prepare_generator lower FOLDER
    python -m edge_rag.model_store.convert.prepare_generator generate FOLDER REFERENCE.npz  # the original graph
    python -m edge_rag.model_store.convert.prepare_generator compare FOLDER REFERENCE.npz   # the lowered one, same text
    python -m edge_rag.model_store.convert.prepare_generator serial FOLDER  # a model without a paged form
    python -m edge_rag.model_store.convert.prepare_generator open FOLDER  # a finished model folder

The last line of the output is a JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import EdgeRagError, ModelFolderInvalid, ModelNotLowerable
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.model_store.convert.comparison import compare
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.decoder.serial_decoder import SerialDecoder, read_serial_sizes
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.entailment import EntailmentModel
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.lowering.folder import lower_folder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.lowering.verification import OriginalDecoder, teacher_forced_logits
from edge_rag.runtime.model_folder.folder import GeneratorForm, ModelRole, read_manifest
from edge_rag.runtime.model_folder.genai_config import GENAI_CONFIG_FILE, check_genai_config

GENERATED_TOKENS = 32
"""Tokens generated for the comparison."""

_BATCH_TEXTS = 4
_LONGEST_PROMPT = 160
_SYSTEM = "Answer from the passages only."
_QUESTION = (
    "The pump bearings must be greased every 500 operating hours with lithium grease. Close the suction valve before "
    "the cover is opened, and wait until the pressure gauge reads zero. How often must the bearings be greased?"
)


def generate(folder: Path, reference: Path) -> dict[str, object]:
    """Generates greedily with the original graph of a lowered model; saves text and logits."""
    geometry = read_geometry(folder)
    prompt = _prompt(folder)[: geometry.max_context // 2]
    graph = folder / check_genai_config((folder / GENAI_CONFIG_FILE).read_bytes()).graph
    decoder = OriginalDecoder.open(graph, geometry.head_size)
    logits = [decoder.feed(prompt)]
    tokens = list(prompt)
    for _ in range(min(GENERATED_TOKENS, geometry.max_context - prompt.size) - 1):
        tokens.append(logits[-1][-1].argmax())
        logits.append(decoder.feed(np.array(tokens[-1:], np.int64)))
    np.savez(reference, tokens=np.array(tokens, np.int64), prompt=prompt.size, logits=np.concatenate(logits))
    return {"tokens": len(tokens)}


def lower_and_describe(folder: Path) -> dict[str, object]:
    """Lowers the model; returns its sizes, or why it cannot be lowered."""
    try:
        geometry = lower_folder(folder)
    except ModelNotLowerable as error:
        return {"lowerable": False, "why": str(error)}
    return {
        "lowerable": True,
        **asdict(geometry),
        "end_tokens": sorted(geometry.end_tokens),
        "page_bytes": geometry.page_bytes(),
    }


def compare_lowered(folder: Path, reference: Path) -> dict[str, object]:
    """Runs the lowered model on the text of the reference and compares the logits."""
    with np.load(reference, allow_pickle=False) as kept:
        tokens = kept["tokens"]
        decoder = _open(folder, tokens.size)
        teacher_forced_logits(decoder, tokens[:1], 1)
        resident = _resident_bytes()  # before the logits of a whole text, which the daemon never keeps
        comparison = compare(kept["logits"], teacher_forced_logits(decoder, tokens, int(kept["prompt"])))
    return {
        **asdict(comparison),
        "good": comparison.good,
        "passes_gate": comparison.passes_gate,
        "resident_bytes": resident,
    }


def run_serially(folder: Path) -> dict[str, object]:
    """Generates greedily token by token, and compares the logits with those of the same texts in one run."""
    sizes = read_serial_sizes(folder)
    prompt = _prompt(folder)[: sizes.context_length // 2]
    length = min(prompt.size + GENERATED_TOKENS, sizes.context_length)
    decoder = SerialDecoder.open(folder, length)
    tokens = prompt
    logits = [decoder.feed(tokens, 0).copy()]
    resident = _resident_bytes()
    while tokens.size < length - 1:
        tokens = np.append(tokens, logits[-1].argmax())
        logits.append(decoder.feed(tokens[-1:], tokens.size - 1).copy())
    observed = range(0, len(logits), max(1, len(logits) // _BATCH_TEXTS))
    at_once = [decoder.feed(tokens[: prompt.size + n], 0).copy() for n in observed]
    comparison = compare(np.stack(at_once), np.stack([logits[n] for n in observed]))
    return {
        "comparison": {**asdict(comparison), "good": comparison.good},
        "resident_bytes": resident,
        "sizes": {
            "page_tokens": 1,
            "page_bytes": sizes.token_bytes,
            "vocabulary_size": sizes.vocabulary_size,
            "max_context": sizes.context_length,
            "end_tokens": sorted(sizes.end_tokens),
        },
    }


def open_model(folder: Path) -> dict[str, object]:
    """Runs a finished model of any role on a text."""
    role = read_manifest(folder).role
    if role is ModelRole.EMBEDDER:
        found = TextEncoder.open(folder).embed([_QUESTION])
    elif role is ModelRole.RERANKER:
        found = PairEncoder.open(folder).score([(_QUESTION, _SYSTEM)])
    elif role is ModelRole.ENTAILMENT:
        found = EntailmentModel.open(folder).probabilities([(_SYSTEM, _QUESTION)])
    else:
        found = _prefilled(folder)
    if not np.isfinite(found).all():
        raise ModelFolderInvalid(f"{folder}: the model's output is not finite")
    return {"good": True, "resident_bytes": _resident_bytes()}


def _prefilled(folder: Path) -> NDArray[np.float32]:
    if read_manifest(folder).form is GeneratorForm.SERIAL:
        context = read_serial_sizes(folder).context_length
        prompt = _prompt(folder)[:context]
        return SerialDecoder.open(folder, prompt.size).feed(prompt, 0)
    prompt = _prompt(folder)[: read_geometry(folder).max_context]
    return teacher_forced_logits(_open(folder, prompt.size), prompt, prompt.size)


def _open(folder: Path, tokens: int) -> PagedDecoder:
    return PagedDecoder.open(folder, -(-tokens // read_geometry(folder).page_tokens))


def _prompt(folder: Path) -> NDArray[np.int64]:
    """Returns int64 [n], a question in the prompt format of the model."""
    tokens = ChatTokenizer.open(folder).encode_chat(_SYSTEM, _QUESTION)
    return np.array(tokens[-_LONGEST_PROMPT:], np.int64)


def _resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(arguments: list[str]) -> int:
    """Runs one of the steps; returns the exit status."""
    step, folder, *rest = arguments
    reference = Path(rest[0]) if rest else Path()
    steps = {
        "generate": lambda: generate(Path(folder), reference),
        "lower": lambda: lower_and_describe(Path(folder)),
        "compare": lambda: compare_lowered(Path(folder), reference),
        "serial": lambda: run_serially(Path(folder)),
        "open": lambda: open_model(Path(folder)),
    }
    try:
        print(json.dumps(steps[step]()))  # noqa: T201
    except EdgeRagError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
