"""Makes models/quoter from a Hugging Face checkpoint of the quoting model.

    python scripts/models/make_quoter.py --checkpoint PATH [--out models/quoter]

Converts the checkpoint at fp32, INT4 and INT8, measures how well the quantized forms agree with fp32 on the sample
documents, and keeps the smallest one that agrees well enough. Needs the ``convert`` extra.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from genai_builder import build
from numpy.typing import NDArray

from edge_rag.runtime.geometry import read_geometry
from edge_rag.runtime.lowered_folder import lower_folder
from edge_rag.runtime.model_folder import ModelRole, write_manifest
from edge_rag.runtime.packed_step import PackedStep
from edge_rag.runtime.paged_decoder import PagedDecoder

REPOSITORY = Path(__file__).parents[2]
CANDIDATES = ("int4", "int8")  # smallest first
LARGEST_DIVERGENCE = 0.01  # nats
PROMPT_TOKENS = 512
PROVENANCE = (
    "trained from scratch by this project on documentation text found on a Debian machine; "
    "5.6M parameters, Qwen3 architecture"
)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a quantized model's next-token distributions compare with fp32's.

    Attributes:
        same_token: Share of positions with the same most likely token.
        divergence: Mean Kullback-Leibler divergence from fp32, nats.
    """

    same_token: float
    divergence: float


def sample_prompts(tokenizer: tokenizers.Tokenizer, samples: Path) -> Iterator[NDArray[np.int64]]:
    """Yields the token ids of the sample documents as users would send them, a few hundred tokens each."""
    for path in sorted([*samples.rglob("*.md"), *samples.rglob("*.txt")]):
        text = path.read_text(encoding="utf-8")
        prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        yield np.array(tokenizer.encode(prompt).ids[:PROMPT_TOKENS], np.int64)


def log_probabilities(folder: Path, prompts: list[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Returns float64 [all tokens, vocabulary]: the next-token log-probabilities at every position of every prompt."""
    page_tokens = read_geometry(folder).page_tokens
    pages = -(-PROMPT_TOKENS // page_tokens)
    decoder = PagedDecoder.open(folder, pages)
    table = np.arange(pages, dtype=np.int32)[None]
    rows = []
    for prompt in prompts:
        order = np.arange(prompt.size, dtype=np.int32)
        ends = np.array([0, prompt.size], np.int32)
        logits = decoder.run(PackedStep(prompt, order, order, ends, table, order.astype(np.int64))).astype(np.float64)
        shifted = logits - logits.max(axis=1, keepdims=True)
        rows.append(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))
    return np.concatenate(rows)


def agreement(reference: NDArray[np.float64], other: NDArray[np.float64]) -> Agreement:
    """Compares two sets of log-probabilities."""
    same = float((reference.argmax(axis=1) == other.argmax(axis=1)).mean())
    return Agreement(same, float((np.exp(reference) * (reference - other)).sum(axis=1).mean()))


def size(folder: Path) -> int:
    """Returns the bytes of a folder's files."""
    return sum(path.stat().st_size for path in folder.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="Hugging Face folder")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "models" / "quoter")
    parser.add_argument("--samples", type=Path, default=REPOSITORY / "deploy" / "samples", help="text to measure on")
    arguments: Any = parser.parse_args()

    tokenizer = tokenizers.Tokenizer.from_file(str(arguments.checkpoint / "tokenizer.json"))
    prompts = list(sample_prompts(tokenizer, arguments.samples))
    with tempfile.TemporaryDirectory() as scratch:
        folders = {precision: Path(scratch) / precision for precision in ("fp32", *CANDIDATES)}
        for precision, folder in folders.items():
            build(arguments.checkpoint, folder, precision)
            lower_folder(folder)
        reference = log_probabilities(folders["fp32"], prompts)
        measured = {name: agreement(reference, log_probabilities(folders[name], prompts)) for name in CANDIDATES}
        for name, found in measured.items():
            print(
                f"{name}: {size(folders[name]) / 1e6:.1f} MB, same token {found.same_token:.4f}, "
                f"divergence {found.divergence:.5f} nats, over {len(reference)} positions"
            )
        chosen = next((name for name in CANDIDATES if measured[name].divergence <= LARGEST_DIVERGENCE), None)
        if chosen is None:
            raise SystemExit(
                f"every quantized form is further than {LARGEST_DIVERGENCE} nats from fp32; nothing changed"
            )
        shutil.rmtree(arguments.out, ignore_errors=True)
        shutil.copytree(folders[chosen], arguments.out)

    weights = hashlib.sha256((arguments.checkpoint / "model.safetensors").read_bytes()).hexdigest()
    write_manifest(
        arguments.out,
        name="quoter",
        role=ModelRole.GENERATOR,
        licence="Apache-2.0",
        source=f"{PROVENANCE}; checkpoint model.safetensors SHA-256 {weights}",
        made_by=f"scripts/models/make_quoter.py, onnxruntime-genai builder, {chosen}",
        parameters={
            "weights": chosen,
            "same_token_as_fp32": round(measured[chosen].same_token, 4),
            "divergence_from_fp32_nats": round(measured[chosen].divergence, 5),
        },
    )
    print(f"{arguments.out}: {chosen}")


if __name__ == "__main__":
    main()
