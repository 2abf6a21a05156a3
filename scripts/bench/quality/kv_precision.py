"""What keys and values of 8 and of 4 bits cost, on texts that a model reads, and where the levels of 4 bits come from.

    .venv/bin/python -m scripts.bench.quality.kv_precision FILE.gguf
    .venv/bin/python -m scripts.bench.quality.kv_precision --levels

The texts are the windows of ``tests/fixtures/smollm2-135m``, of three kinds. Each precision is compared with the same
weights in float32, which keep keys and values in float32: the mean Kullback-Leibler divergence of the next token, and
how often the best token is the same. Both sides have the file's integer weights, so that the difference of two rows is
what keys and values cost. ``--levels`` computes the table of ``edge_rag/ops/math/codebook.h``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from edge_rag.core.query import KvPrecision
from edge_rag.errors import EdgeRagError
from edge_rag.model_store.convert.comparison import compare
from edge_rag.model_store.convert.prepare_gguf import write
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.gguf.architectures import describe_decoder
from edge_rag.runtime.gguf.file import GgufFile
from edge_rag.runtime.gguf.weights import GgufWeights
from edge_rag.runtime.lowering.reference_decoder import reference_logits
from edge_rag.runtime.lowering.verification import teacher_forced_logits
from scripts.bench.quality.real_weights.real_model import KINDS, WINDOW, workload

_LEVELS = 16
_LARGEST = 127
_HEAD = 64
_HEADS = 20_000
_ROUNDS = 150


def fitted_levels() -> NDArray[np.float64]:
    """Returns the levels of least square error for normally distributed heads in units of 1/127 of their largest.

    Lloyd's algorithm (Lloyd, Least squares quantization in PCM, 1982) on ``_HEADS`` random heads; symmetric about 0.
    """
    heads = np.random.default_rng(0).normal(size=(_HEADS, _HEAD))
    values = (heads / np.abs(heads).max(axis=1, keepdims=True)).ravel()
    levels = np.linspace(-1.0, 1.0, _LEVELS)
    for _ in range(_ROUNDS):
        nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, values)
        levels = np.bincount(nearest, values, _LEVELS) / np.bincount(nearest, minlength=_LEVELS)
    return (levels - levels[::-1]) / 2 * _LARGEST


def measure(path: Path, windows: int) -> Table:
    """Compares both precisions with float32 on the first windows of each kind of text."""
    file = GgufFile(path)
    description = describe_decoder(file, WINDOW)
    table = Table("keys and values", "bytes a token", *(f"KL, {kind}" for kind in KINDS), "KL", "same token")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        write(path, folder)
        texts = {kind: list(found[:windows]) for kind, found in workload(folder).windows.items()}
        every = [text for kind in KINDS for text in texts[kind]]
        expected = reference_logits(description, GgufWeights(file, description), every)
        for kv in KvPrecision:
            decoder = PagedDecoder.open(folder, -(-WINDOW // description.geometry.page_tokens), kv)
            found = [teacher_forced_logits(decoder, text, text.size) for text in every]
            of_kinds = [
                compare(np.concatenate(expected[i : i + windows]), np.concatenate(found[i : i + windows]))
                for i in range(0, len(every), windows)
            ]
            whole = compare(np.concatenate(expected), np.concatenate(found))
            losses = [f"{each.divergence:.4f}" for each in (*of_kinds, whole)]
            table.add_row(
                kv.value, f"{decoder.page_bytes // decoder.page_tokens:,}", *losses, f"{whole.same_token:.1%}"
            )
    return table


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", help="GGUF file of a language model")
    parser.add_argument("--windows", type=int, default=2, help="windows of 512 tokens of each kind [%(default)s]")
    parser.add_argument("--levels", action="store_true", help="print the levels of 4 bits")
    arguments = parser.parse_args()
    console = Console(width=140)
    if arguments.levels:
        console.print(", ".join(f"{level:.1f}" for level in fitted_levels()))
        return 0
    if arguments.model is None:
        parser.error("name a GGUF file, or give --levels")
    try:
        console.print(measure(arguments.model, arguments.windows))
    except EdgeRagError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
