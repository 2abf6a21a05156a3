"""Makes models/quoter from a Hugging Face checkpoint of the quoting model.

    python -m scripts.models.make_quoter --checkpoint PATH [--out models/quoter]

Converts the checkpoint at fp32, INT4 and INT8, measures how well the quantized forms agree with fp32 on the sample
documents, and keeps the first that agrees well enough, smallest and fastest first: its paged form alone. Some of fp32's
probabilities are kept for the tests. The manifest records how the checkpoint was trained if
``scripts.training.quoter`` left that beside it. Needs the ``convert`` extra.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from edge_rag.runtime.decoder.model_input import PackedStep
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.folder import lower_folder
from edge_rag.runtime.lowering.geometry import WEIGHTS_FILE, read_geometry
from edge_rag.runtime.model_folder.folder import ModelRole, write_manifest
from scripts.models.genai_builder import build

REPOSITORY = Path(__file__).parents[2]
# Precision and weights that share a scale. Larger blocks are smaller and faster, and less exact.
CANDIDATES = {"int4": ("int4", 32), "int8, block 128": ("int8", 128), "int8, block 32": ("int8", 32)}
KEPT_FILES = (
    "paged.onnx",
    "paged.onnx.data",
    "paged.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
LARGEST_DIVERGENCE = 0.01  # nats
PROMPT_TOKENS = 512
REFERENCE_POSITIONS = 16
TRAINING_FILE = "training.json"


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


def keep(made: Path, out: Path) -> None:
    """Puts the paged form of a model, with its tokenizer and template, in place of what is there."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for name in KEPT_FILES:
        shutil.copy(made / name, out / name)


def keep_reference(path: Path, prompt: NDArray[np.int64], expected: NDArray[np.float64]) -> None:
    """Writes token_ids int64 [n], positions int64 [16] and fp32's log_probabilities float16 [16, vocabulary] there."""
    positions = np.linspace(prompt.size // REFERENCE_POSITIONS, prompt.size, REFERENCE_POSITIONS, dtype=np.int64) - 1
    rounded = expected[positions].astype(np.float16)
    np.savez_compressed(path, token_ids=prompt, positions=positions, log_probabilities=rounded)


def provenance(checkpoint: Path) -> str:
    """Says where a checkpoint is from: its own account of its training where there is one, and its hash."""
    weights = hashlib.sha256((checkpoint / "model.safetensors").read_bytes()).hexdigest()
    account = checkpoint / TRAINING_FILE
    if account.exists():
        told = json.loads(account.read_text(encoding="utf-8"))
        said = (
            f"scripts.training.quoter, seed {told['seed']}, {told['tokens_done']} tokens of text with SHA-256 "
            f"{told['corpus_sha256']}, {told['parameters'] / 1e6:.1f}M parameters, command: {told['command']}"
        )
    else:
        said = "documentation text found on a Debian machine, before scripts.training.quoter; Qwen3 architecture"
    return f"trained from scratch by this project: {said}; checkpoint model.safetensors SHA-256 {weights}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="Hugging Face folder")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "models" / "quoter")
    parser.add_argument("--samples", type=Path, default=REPOSITORY / "deploy" / "samples", help="text to measure on")
    parser.add_argument("--reference", type=Path, default=REPOSITORY / "tests" / "fixtures" / "quoter.npz")
    arguments: Any = parser.parse_args()

    tokenizer = tokenizers.Tokenizer.from_file(str(arguments.checkpoint / "tokenizer.json"))
    prompts = list(sample_prompts(tokenizer, arguments.samples))
    with tempfile.TemporaryDirectory() as scratch:
        exact = Path(scratch) / "fp32"
        build(arguments.checkpoint, exact, "fp32")
        lower_folder(exact)
        reference = log_probabilities(exact, prompts)
        for chosen, (precision, block) in CANDIDATES.items():
            made = Path(scratch) / chosen.replace(", ", "-")
            build(arguments.checkpoint, made, precision, {"block_size": str(block)})
            lower_folder(made)
            measured = agreement(reference, log_probabilities(made, prompts))
            print(
                f"{chosen}: {(made / WEIGHTS_FILE).stat().st_size / 1e6:.1f} MB, same token {measured.same_token:.4f}, "
                f"divergence {measured.divergence:.5f} nats, over {len(reference)} positions"
            )
            if measured.divergence <= LARGEST_DIVERGENCE:
                break
        else:
            raise SystemExit(
                f"every quantized form is further than {LARGEST_DIVERGENCE} nats from fp32; nothing changed"
            )
        keep(made, arguments.out)
    keep_reference(arguments.reference, prompts[0], reference)

    write_manifest(
        arguments.out,
        name="quoter",
        role=ModelRole.GENERATOR,
        licence="Apache-2.0",
        source=provenance(arguments.checkpoint),
        made_by=f"scripts/models/make_quoter.py, onnxruntime-genai builder, {chosen}",
        parameters={
            "weights": chosen,
            "same_token_as_fp32": round(measured.same_token, 4),
            "divergence_from_fp32_nats": round(measured.divergence, 5),
        },
    )
    print(f"{arguments.out}: {chosen}")


if __name__ == "__main__":
    main()
