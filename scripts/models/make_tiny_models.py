"""Makes the tiny models the tests run on, with Hugging Face's fp32 logits beside them, and quantized forms of them.

    python scripts/models/make_tiny_models.py [--out tests/fixtures]

Needs the ``convert`` extra. The same versions of torch and the builder make the same files.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from genai_builder import build
from tiny_checkpoints import VOCABULARY, TinyModel, tiny_models, write_checkpoint

from edge_rag.runtime.lowering.folder import lower_folder
from edge_rag.runtime.model_folder.folder import ModelRole, write_manifest

REFERENCE_TOKENS = 112
QUANTIZED = {"tiny-llama": "int8", "tiny-qwen2": "int4", "tiny-qwen3": "int8"}


def make(model: TinyModel, out: Path) -> None:
    """Writes ``<out>/<name>/`` and ``<out>/<name>.npz`` (token_ids int64 [n], logits float32 [n, vocabulary]).

    Beside it, for some, ``<out>/<name>-<precision>/``: the same model with quantized weights.
    """
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = Path(scratch) / "checkpoint"
        network = write_checkpoint(model, checkpoint)
        make_folder(checkpoint, out / model.name, "fp32")
        if precision := QUANTIZED.get(model.name):
            make_folder(checkpoint, out / f"{model.name}-{precision}", precision)
    token_ids = np.random.default_rng(model.seed).integers(0, VOCABULARY, REFERENCE_TOKENS)
    with torch.no_grad():
        logits = network(torch.from_numpy(token_ids)[None]).logits[0].numpy()
    np.savez_compressed(out / f"{model.name}.npz", token_ids=token_ids, logits=logits.astype(np.float32))


def make_folder(checkpoint: Path, folder: Path, precision: str) -> None:
    """Converts and lowers a checkpoint into a model folder with a manifest, in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    build(checkpoint, folder, precision)
    lower_folder(folder)
    write_manifest(
        folder,
        name=folder.name,
        role=ModelRole.GENERATOR,
        licence="Apache-2.0",
        source="random weights, drawn by scripts/models/tiny_checkpoints.py",
        made_by="scripts/models/make_tiny_models.py",
        parameters={},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "tests" / "fixtures")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for model in tiny_models():
        make(model, out)
        print(out / model.name)


if __name__ == "__main__":
    main()
