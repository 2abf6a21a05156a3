"""Compares a generator on an NVIDIA card with the same one on processor cores: what it writes, and how fast.

    python -m scripts.bench.engine.cuda --model FOLDER [--sequences 1 8 32] [--prompt-tokens N] [--tokens N] [--json]

The folder has a form for CUDA; ``edge-rag models calibrate`` makes one. Both continue the same prompts greedily,
each from another place of the same text. Printed are how many tokens are the same up to the first other one, the prompt
tokens a second of one sequence, and the tokens a second that so many sequences write side by side.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_rag.core.placement import Provider
from edge_rag.engine.ports import ModelRunner
from edge_rag.errors import EdgeRagError
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.runtime.decoder.cuda.decoder import CudaDecoder
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder
from edge_rag.runtime.session.sessions import configure_thread_pool
from scripts.bench.harness.command import SAMPLES, make_parser, print_json, print_table
from scripts.bench.harness.packed import packed_step, page_table

TokenIds = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Written:
    """What sequences wrote side by side.

    Attributes:
        tokens: int64 [sequences, n].
        prefill_per_second: Prompt tokens a second, one prompt a step.
        decode_per_second: Tokens a second, all sequences together.
    """

    tokens: TokenIds
    prefill_per_second: float
    decode_per_second: float


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; speeds in tokens a second, agreement as a share of the tokens of all sequences."""

    provider: str
    sequences: int
    prefill: float
    decode: float
    same: float


def prompts_from(text: TokenIds, sequences: int, tokens: int) -> TokenIds:
    """Cuts int64 [sequences, tokens] out of a text; each begins elsewhere, and the text begins again where it ends."""
    first = np.arange(sequences)[:, None] * max(1, text.size // sequences)
    prompts: TokenIds = text[(first + np.arange(tokens)) % text.size]
    return prompts


def write(runner: ModelRunner, prompts: TokenIds, count: int) -> Written:
    """Continues prompts greedily."""
    sequences, length = prompts.shape
    table = page_table(sequences, length + count, runner.page_tokens)
    begun = time.perf_counter()
    found = [
        int(runner.run(packed_step(prompt[None], table[row : row + 1], runner.page_tokens, 0))[0].argmax())
        for row, prompt in enumerate(prompts)
    ]
    prefilled = time.perf_counter()
    tokens = [np.array(found, np.int64)]
    for position in range(length, length + count - 1):
        logits = runner.run(packed_step(tokens[-1][:, None], table, runner.page_tokens, position))
        tokens.append(logits.argmax(axis=1).astype(np.int64))
    decoded = time.perf_counter()
    return Written(
        np.stack(tokens, axis=1),
        prompts.size / (prefilled - begun),
        sequences * (count - 1) / (decoded - prefilled),
    )


def same_share(one: TokenIds, other: TokenIds) -> float:
    """Returns the share of tokens that come before the first other one of their sequence."""
    return float(np.cumprod(one == other, axis=1).mean())


def measure(
    cores: ModelRunner, card: ModelRunner, text: TokenIds, sequences: int, length: int, count: int
) -> list[Row]:
    """Lets both continue the same prompts; the first run of each is not counted."""
    prompts = prompts_from(text, sequences, length)
    written = {}
    for name, runner in ((Provider.CPU.value, cores), (Provider.CUDA.value, card)):
        write(runner, prompts, 2)
        written[name] = write(runner, prompts, count)
    reference = written[Provider.CPU.value].tokens
    return [
        Row(name, sequences, each.prefill_per_second, each.decode_per_second, same_share(each.tokens, reference))
        for name, each in written.items()
    ]


def main() -> int:
    """Returns the exit status: 1 where there is no card or the folder cannot be used."""
    parser = make_parser(__doc__)
    parser.add_argument("--model", type=Path, required=True, help="model folder with a form for cuda")
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64, help="to write, at least 2 (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if min(arguments.sequences) < 1 or arguments.prompt_tokens < 1 or arguments.tokens < 2:
        parser.error("--sequences and --prompt-tokens are at least 1, --tokens at least 2")
    configure_thread_pool(arguments.threads)
    folder = arguments.model
    length, count = arguments.prompt_tokens, arguments.tokens
    try:
        verify_model_folder(folder, ModelRole.GENERATOR)
        geometry = read_geometry(folder)
        if length + count > geometry.max_context:
            parser.error(f"--prompt-tokens and --tokens are more than the model's {geometry.max_context} together")
        pages = max(arguments.sequences) * -(-(length + count) // geometry.page_tokens)
        card = CudaDecoder.open(folder, pages, {})
        cores = PagedDecoder.open(folder, pages)
        samples = "\n".join(path.read_text(encoding="utf-8") for path in sorted(SAMPLES.rglob("*.md")))
        text = np.array(ChatTokenizer.open(folder).encode(samples), np.int64)
        rows = [row for number in arguments.sequences for row in measure(cores, card, text, number, length, count)]
    except EdgeRagError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.json:
        print_json(rows)
        return 0
    headings = ("provider", "sequences", "prompt tokens/s", "tokens/s", "same as on cores")
    shown = [
        (row.provider, str(row.sequences), f"{row.prefill:.0f}", f"{row.decode:.0f}", f"{row.same:.1%}") for row in rows
    ]
    print_table(f"{folder.name}, prompts of {length} tokens, {count} tokens each", headings, shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
