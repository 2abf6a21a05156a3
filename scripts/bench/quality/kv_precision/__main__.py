"""What keys and values of 8 and of 4 bits cost, on texts that a model reads, and where the levels of 4 bits come from.

    .venv/bin/python -m scripts.bench.quality.kv_precision FILE.gguf
    .venv/bin/python -m scripts.bench.quality.kv_precision FILE.gguf --forms
    .venv/bin/python -m scripts.bench.quality.kv_precision --levels

The texts are the windows of ``tests/fixtures/smollm2-135m``, of three kinds. Each precision is compared with the same
weights in float32, which keep keys and values in float32: the mean Kullback-Leibler divergence of the next token, and
how often the best token is the same. Both sides have the file's integer weights, so that the difference of two rows is
what keys and values cost. ``--forms`` compares other ways to keep them, in NumPy and without the operators: with means
and transforms that are fitted on the last window of each kind. ``--levels`` computes the table of
``edge_rag/ops/math/codebook.h``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
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
from edge_rag.runtime.lowering.reference_decoder import ReferenceDecoder, reference_logits
from edge_rag.runtime.lowering.verification import teacher_forced_logits
from scripts.bench.quality.kv_precision.forms import Moments, RoundedDecoder, compared, fitted_levels
from scripts.bench.quality.real_weights.real_model import KINDS, WINDOW, workload

_LARGEST = 127


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


def measure_forms(path: Path, windows: int, console: Console) -> None:
    """Prints the divergence of each form from float32 on the first windows of each kind of text, as it is found."""
    file = GgufFile(path)
    description = describe_decoder(file, WINDOW)
    weights = GgufWeights(file, description)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        write(path, folder)
        found = workload(folder).windows
    texts = [text for kind in KINDS for text in found[kind][:windows]]
    moments = Moments(description, weights)
    moments.normed([found[kind][-1] for kind in KINDS])
    expected = np.concatenate(ReferenceDecoder(description, weights).logits(texts))
    layers, heads = len(description.layers), description.kv_heads
    for name, keys, values in compared(description.head_size, layers, moments):
        logits = np.concatenate(RoundedDecoder(description, weights, keys, values).logits(texts))
        whole = compare(expected, logits)
        sizes = " + ".join(f"{round(layers * heads * each.bytes):,}" for each in (keys, values))
        console.print(f"| {name} | {sizes} | {whole.divergence:.4f} | {whole.same_token:.1%} |")


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", help="GGUF file of a language model")
    parser.add_argument(
        "--windows",
        type=int,
        default=2,
        help="windows of 512 tokens of each kind, at most three with --forms [%(default)s]",
    )
    parser.add_argument("--forms", action="store_true", help="compare other ways to keep keys and values")
    parser.add_argument("--levels", action="store_true", help="print the levels of 4 bits")
    arguments = parser.parse_args()
    console = Console(width=140)
    if arguments.levels:
        console.print(", ".join(f"{level:.1f}" for level in fitted_levels() * _LARGEST))
        return 0
    if arguments.model is None:
        parser.error("name a GGUF file, or give --levels")
    try:
        if arguments.forms:
            measure_forms(arguments.model, arguments.windows, console)
        else:
            console.print(measure(arguments.model, arguments.windows))
    except EdgeRagError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
