"""From a Hugging Face folder to a graph: the onnxruntime-genai model builder, in a process of its own."""

from __future__ import annotations

from enum import Enum
from importlib.util import find_spec
from pathlib import Path

from edge_rag.errors import ModelNotAdded
from edge_rag.model_store.convert.subprocess import AddProgress, run_python

BLOCK = 128
"""Weights that share a scale, where weights are quantized."""

_BUILDER = "edge_rag.runtime.lowering.genai_builder"
_NEEDED = ("torch", "transformers", "sentence_transformers", "onnx_ir")
_TIMEOUT_S = 4 * 3600.0


class ModelPrecision(Enum):
    """What weights are kept in."""

    INT4 = "int4"
    INT8 = "int8"
    FP32 = "fp32"


def check_converter() -> None:
    """Checks that the converter is installed.

    Raises:
        ModelNotAdded: It is not; says how to get it and what works without.
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
    """Makes a model folder of the builder's out of a checked checkpoint.

    Args:
        checkpoint: A private copy of a Hugging Face folder, without code.
        target: Folder to make.
        precision: What the weights are kept in.
        scratch: For the builder's own files.
        threads: Threads it may use.
        progress: Is shown what the builder prints.

    Raises:
        ModelNotAdded: The builder is missing or failed; quotes it.
    """
    check_converter()
    options = ["hf_remote=false"]
    if precision is not ModelPrecision.FP32:
        options += ["accuracy_level=4", f"block_size={BLOCK}"]
    cache = str(scratch / "builder")  # which the builder deletes when it is done
    arguments = ["-i", str(checkpoint), "-o", str(target), "-p", precision.value, "-e", "cpu", "-c", cache]
    run_python(
        _BUILDER, [*arguments, "--extra_options", *options], scratch, progress, timeout_s=_TIMEOUT_S, threads=threads
    )
