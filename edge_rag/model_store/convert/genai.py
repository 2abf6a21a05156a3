"""Converts a Hugging Face folder to a graph with the model builder of onnxruntime-genai, in a subprocess."""

from __future__ import annotations

from enum import Enum
from importlib.util import find_spec
from pathlib import Path

from edge_rag.errors import ModelNotAdded
from edge_rag.model_store.convert.subprocess import AddProgress, run_python

BLOCK = 128
"""Quantized weights per scale."""

_BUILDER = "edge_rag.runtime.lowering.genai_builder"
_NEEDED = ("torch", "transformers", "sentence_transformers", "onnx_ir")
_TIMEOUT_S = 4 * 3600.0


class ModelPrecision(Enum):
    """Precision of a model's weights."""

    INT4 = "int4"
    INT8 = "int8"
    FP32 = "fp32"


def check_converter() -> None:
    """Checks that the packages for conversion are installed.

    Raises:
        ModelNotAdded: They are not; the message has the command that installs them, and an alternative.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ModelNotAdded(
            f"converting needs {', '.join(missing)}: install them with `pip install 'edge-rag[convert]'`, or run "
            "`edge-rag models add` on a larger machine and add the folder it made here"
        )


def convert(
    checkpoint: Path, target: Path, precision: ModelPrecision, scratch: Path, threads: int, progress: AddProgress
) -> None:
    """Builds an onnxruntime-genai folder from a checked checkpoint.

    Args:
        checkpoint: A private copy of a Hugging Face folder, without code.
        target: Folder to create.
        precision: Precision of the weights.
        scratch: Folder for the builder's own files.
        threads: Threads that it may use.
        progress: Receives the builder's output.

    Raises:
        ModelNotAdded: The builder is not installed or failed; the message has its output.
    """
    check_converter()
    options = ["hf_remote=false"]
    if precision is not ModelPrecision.FP32:
        options += ["accuracy_level=4", f"block_size={BLOCK}"]
    cache = str(scratch / "builder")  # the builder deletes it at the end
    arguments = ["-i", str(checkpoint), "-o", str(target), "-p", precision.value, "-e", "cpu", "-c", cache]
    run_python(
        _BUILDER, [*arguments, "--extra_options", *options], scratch, progress, timeout_s=_TIMEOUT_S, threads=threads
    )
