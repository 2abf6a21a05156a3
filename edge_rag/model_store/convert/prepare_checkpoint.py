"""Quantizes a checkpoint to a model folder, in the smallest form that passes the gate. Runs as a program.

    python -m edge_rag.model_store.convert.prepare_checkpoint quantize CHECKPOINT FOLDER PRECISION   # FOLDER is created
    python -m edge_rag.model_store.convert.prepare_checkpoint open FOLDER

PRECISION is int4, int8 or any. Every line of the output says what is done or measured; the last one is a JSON object.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.file_hash import file_sha256
from edge_rag.errors import EdgeRagError
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.model_store.convert.comparison import MAX_LOSS, LogitComparison, compare, compare_texts
from edge_rag.runtime.checkpoint.architectures import describe_checkpoint
from edge_rag.runtime.checkpoint.weights import CheckpointWeights
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.decoder_graph import DecoderDescription, write_decoder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.lowering.reference_decoder import reference_logits
from edge_rag.runtime.lowering.verification import teacher_forced_logits
from edge_rag.runtime.quantization.fitting import (
    BalancedWeights,
    FittedDecoder,
    MixedWeights,
    key_factors,
    measured_costs,
    wide_units,
)

_MAX_CONTEXT = 32_768
"""Longest context of a converted model, tokens."""

_COMPARED = Path(__file__).with_name("texts.txt")
_CALIBRATION = Path(__file__).with_name("calibration.txt")
_TEXT_TOKENS = 192
"""Tokens of each text that is compared or calibrated with."""

_COST_TOKENS = 48
"""Tokens of each text on which the costs of the kinds of matrices are measured."""

_MIXED_FORMS = 3
"""Mixtures of 4 and 8 bits that are tried at most."""

_AIM = 0.85
"""Share of the largest accepted divergence that the first mixture is chosen for."""

_KEPT = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def quantize(source: Path, folder: Path, precision: str) -> dict[str, object]:
    """Writes the model's files in the smallest form that passes the gate, or in the last one; returns the measurements.

    Args:
        precision: ``int4`` or ``int8``: only that form; ``any``: from small to large.
    """
    description = describe_checkpoint(source, _MAX_CONTEXT)
    weights = CheckpointWeights(source, description)
    tokenizer = ChatTokenizer.open(source)
    compared, calibration = (_texts(path, tokenizer, description.max_context) for path in (_COMPARED, _CALIBRATION))
    folder.mkdir()
    for name in _KEPT:
        if (source / name).exists():
            shutil.copyfile(source / name, folder / name)
    scratch = folder / "fitted"
    scratch.mkdir()
    _say("computing the model in float32")
    expected = _stored_logits(reference_logits(description, weights, compared), scratch)
    _say("balancing keys")
    balanced = BalancedWeights(weights, description, key_factors(description, weights, calibration))
    fitted = FittedDecoder(description, balanced, scratch)
    every = frozenset(name for unit in fitted.units for name in unit.names)
    tried: list[dict[str, object]] = []
    sources = {path.name: file_sha256(path) for path in sorted(source.glob("*.safetensors"))}

    def passes(form: str, wide: frozenset[str]) -> LogitComparison:
        mixed = MixedWeights(fitted, wide)
        _say(f"writing {form}, {mixed.bits_per_weight:.2f} bits a weight")
        write_decoder(description, mixed, folder, sources)
        found = _measured(folder, description, compared, expected)
        row = {"form": form, "bits_per_weight": round(mixed.bits_per_weight, 3)}
        tried.append({**row, **asdict(found), "good": found.passes_gate})
        _say(f"{form}: mean divergence {found.divergence:.4f}, same best token {found.same_token:.1%}")
        return found

    last = None
    if precision != "int8":
        fitted.fit(calibration, _say)
        last = passes("4 bits", frozenset())
    if precision == "any" and last is not None and not last.passes_gate:
        last = _try_mixtures(description, fitted, calibration, last, passes)
    if precision == "int8" or (precision == "any" and last is not None and not last.passes_gate):
        passes("8 bits", every)
    shutil.rmtree(scratch)
    sizes = description.geometry
    return {
        "weights": f"{tried[-1]['form']}, block 32, {tried[-1]['bits_per_weight']} bits a weight",
        "tried": tried,
        "sizes": {**asdict(sizes), "end_tokens": sorted(sizes.end_tokens), "page_bytes": sizes.page_bytes},
    }


def _try_mixtures(
    description: DecoderDescription,
    fitted: FittedDecoder,
    texts: list[NDArray[np.int64]],
    narrow: LogitComparison,
    passes: Callable[[str, frozenset[str]], LogitComparison],
) -> LogitComparison:
    """Tries mixtures of 4 and 8 bits, ordered by the cost of 4 bits in each matrix; returns the last comparison."""
    short = [text[:_COST_TOKENS] for text in texts]
    original = np.concatenate(reference_logits(description, fitted.weights, short))

    def divergence(logits: list[NDArray[np.float32]]) -> float:
        return compare(original, np.concatenate(logits)).divergence

    costs = measured_costs(description, fitted, short, divergence, _say)
    total = sum(costs.values())
    most = max(total - (narrow.divergence - _AIM * MAX_LOSS), total * 0.1)
    last, tried = narrow, {frozenset[str]()}
    for _ in range(_MIXED_FORMS):
        wide = wide_units(fitted.units, costs, most)
        most *= 0.5
        if wide in tried or all(name in wide for unit in fitted.units for name in unit.names):
            continue
        tried.add(wide)
        last = passes(f"4 and 8 bits ({len(wide)} matrices of 8)", wide)
        if last.passes_gate:
            break
    return last


def _stored_logits(logits: list[NDArray[np.float32]], folder: Path) -> list[NDArray[np.float32]]:
    kept = []
    for number, each in enumerate(logits):
        path = folder / f"logits-{number}.npy"
        np.save(path, each)
        kept.append(np.load(path, mmap_mode="r", allow_pickle=False))
    return kept


def _measured(
    folder: Path,
    description: DecoderDescription,
    texts: list[NDArray[np.int64]],
    expected: list[NDArray[np.float32]],
) -> LogitComparison:
    pages = -(-max(text.size for text in texts) // description.geometry.page_tokens)
    decoder = PagedDecoder.open(folder, pages)
    found = (teacher_forced_logits(decoder, text, text.size) for text in texts)
    return compare_texts(zip(expected, found, strict=True))


def open_model(folder: Path) -> dict[str, object]:
    tokenizer = ChatTokenizer.open(folder)
    text = _texts(_COMPARED, tokenizer, read_geometry(folder).max_context)[0]
    decoder = PagedDecoder.open(folder, -(-text.size // read_geometry(folder).page_tokens))
    teacher_forced_logits(decoder, text[:1], 1)
    return {"resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def _texts(path: Path, tokenizer: ChatTokenizer, max_context: int) -> list[NDArray[np.int64]]:
    texts = path.read_text("utf-8").split("\n\n---\n\n")
    return [np.array(tokenizer.encode(text)[: min(_TEXT_TOKENS, max_context)], np.int64) for text in texts]


def _say(line: str) -> None:
    print(line)  # noqa: T201


def main(arguments: list[str]) -> int:
    """Runs one of the steps; returns the exit status."""
    step, folder, *rest = arguments
    try:
        found = quantize(Path(folder), Path(rest[0]), rest[1]) if step == "quantize" else open_model(Path(folder))
        print(json.dumps(found))  # noqa: T201
    except (EdgeRagError, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
