"""Runs a model on a text. Runs as a program, because new graphs are first opened here.

    python -m edge_rag.model_store.convert.prepare_generator serial FOLDER  # a folder of onnxruntime-genai
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

from edge_rag.errors import EdgeRagError, ModelFolderInvalid
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.model_store.convert.comparison import compare
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.decoder.serial_decoder import SerialDecoder, read_serial_sizes
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.lowering.verification import teacher_forced_logits
from edge_rag.runtime.model_folder.folder import GeneratorForm, ModelRole, read_manifest

_GENERATED_TOKENS = 32

_BATCH_TEXTS = 4
_LONGEST_PROMPT = 160
_SYSTEM = "Answer from the passages only."
_QUESTION = (
    "The pump bearings must be greased every 500 operating hours with lithium grease. Close the suction valve before "
    "the cover is opened, and wait until the pressure gauge reads zero. How often must the bearings be greased?"
)


def run_serially(folder: Path) -> dict[str, object]:
    """Generates greedily token by token, and compares the logits with those of the same texts in one run."""
    sizes = read_serial_sizes(folder)
    prompt = _prompt(folder)[: sizes.context_length // 2]
    length = min(prompt.size + _GENERATED_TOKENS, sizes.context_length)
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
    step, folder = arguments
    steps = {"serial": run_serially, "open": open_model}
    try:
        print(json.dumps(steps[step](Path(folder))))  # noqa: T201
    except EdgeRagError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
