"""Runs the onnxruntime-genai model builder on a local Hugging Face folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path


def build(checkpoint: Path, target: Path, precision: str, options: Mapping[str, str] | None = None) -> None:
    """Converts a checkpoint into a CPU model folder: model.onnx, its weights, genai_config.json and the tokenizer.

    Args:
        checkpoint: Hugging Face folder.
        target: Folder to write; made if it does not exist.
        precision: ``fp32``, ``int8`` or ``int4``.
        options: The builder's ``--extra_options``.

    Raises:
        RuntimeError: The builder failed; carries the end of its output.
    """
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
    command += ["-i", str(checkpoint), "-o", str(target), "-p", precision, "-e", "cpu"]
    with tempfile.TemporaryDirectory() as cache:
        command += ["-c", cache]
        if options:
            command += ["--extra_options", *(f"{key}={value}" for key, value in options.items())]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the model builder failed on {checkpoint}:\n{(done.stdout + done.stderr)[-4000:]}")
