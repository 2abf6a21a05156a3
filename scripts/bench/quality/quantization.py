"""What quantization costs a checkpoint, form by form, also without the grid that its weights may lie on.

    python -m scripts.bench.quality.quantization SmolLM2-135M-Instruct.Q4_1.gguf --precision int4
    python -m scripts.bench.quality.quantization SmolLM2-135M-Instruct.Q4_1.gguf --precision int4 --noise 1
    python -m scripts.bench.quality.quantization FOLDER

Weights that were rounded to 4 bits before are found again and lose next to nothing. --noise spreads each weight over
so many steps of its block of 32, so that nothing is hidden, and the noisy weights are what the result is compared with.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from edge_rag.model_store.convert.comparison import forms_table
from edge_rag.model_store.convert.prepare_checkpoint import quantize
from edge_rag.runtime.checkpoint.safetensors import SINGLE_FILE, Tensors, read_header
from tests.synthetic.tiny_checkpoint import checkpoint_of_llama_gguf, write_safetensors

_BLOCK = 32


def noisy_copy(folder: Path, steps: float, target: Path) -> Path:
    """Copies a checkpoint of one file; adds uniform noise to the matrices of its layers."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("*.safetensors"))
    random = np.random.default_rng(1)
    stored = Tensors(folder)
    tensors = {}
    for name, tensor in read_header(folder / SINGLE_FILE).items():
        if len(tensor.shape) == 1:
            tensors[name] = stored.vector(name)
            continue
        weights = stored.rows(name)
        if "layers" in name and weights.shape[1] % _BLOCK == 0:
            blocks = weights.reshape(len(weights), -1, _BLOCK)
            step = (blocks.max(axis=2) - blocks.min(axis=2)) / 15
            noise = (random.random(blocks.shape, dtype=np.float32) - 0.5) * np.float32(steps)
            weights = (blocks + noise * step[:, :, None]).reshape(weights.shape)
        tensors[name] = weights
    write_safetensors(target / SINGLE_FILE, tensors)
    return target


def main() -> None:
    """Quantizes, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a checkpoint's folder, or a GGUF file of Llama's architecture")
    parser.add_argument("--noise", type=float, default=0.0, help="width of the noise, steps of 4 bits")
    parser.add_argument("--precision", choices=["int4", "int8", "any"], default="any")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder: Path = arguments.model
        if folder.is_file():
            folder = checkpoint_of_llama_gguf(folder, Path(scratch) / "checkpoint")
        if arguments.noise:
            folder = noisy_copy(folder, arguments.noise, Path(scratch) / "noisy")
        found: dict[str, Any] = quantize(folder, Path(scratch) / "quantized", arguments.precision)
        print(forms_table(found["tried"]))


if __name__ == "__main__":
    main()
