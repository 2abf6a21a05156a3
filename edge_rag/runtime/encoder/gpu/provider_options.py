"""What the providers of GPUs are told: shapes, memory, and where to keep what they compile."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge_rag.core.placement import Precision
from edge_rag.errors import ConfigurationError
from edge_rag.runtime.encoder.gpu.padded_encoders import rows_of
from edge_rag.runtime.model_folder.strict_json import parse_object

_USUAL_LENGTH: Final = 128  # of chunks; see graph_lengths
_LOAD_CONFIG: Final = "load_config"
_MIB: Final = 1 << 20
_RESULTS_BYTES: Final = 512 * _MIB


@dataclass(frozen=True, slots=True)
class ShapeProfile:
    """The shapes [texts, tokens] that inputs take.

    Attributes:
        least: The fewest texts and tokens.
        usual: The shape that most runs have.
        most: The most texts and the most tokens, which no run has both of.
    """

    least: tuple[int, int]
    usual: tuple[int, int]
    most: tuple[int, int]

    @staticmethod
    def of(lengths: Sequence[int]) -> ShapeProfile:
        """Returns the shapes of rectangles of these lengths, at least one."""
        rows = [rows_of(length) for length in lengths]
        usual = min(lengths, key=lambda length: abs(length - _USUAL_LENGTH))
        return ShapeProfile((min(rows), min(lengths)), (rows_of(usual), usual), (max(rows), max(lengths)))


def tensorrt_options(
    given: Mapping[str, str], inputs: Sequence[str], shapes: ShapeProfile, precision: Precision, folder: Path
) -> dict[str, str]:
    """Returns options of the TensorRT provider.

    One engine for all shapes is built when the session is opened, since all shapes are said; without, the provider
    would build one at the first run, and again whenever a run has a shape that it has not seen.

    Args:
        given: The device profile's, which go before the shapes that are chosen here.
        inputs: Names of the graph's inputs.
        shapes: Which shapes they take.
        precision: What the graph computes in.
        folder: Where engine and timing cache are kept, of this model, these versions and this GPU alone: the provider
            names an engine after the graph's nodes, whatever its weights are.
    """
    settled = {
        "trt_fp16_enable": "1" if precision is Precision.FP16 else "0",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(folder),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(folder),
    }
    chosen = {
        "trt_profile_min_shapes": _shapes(inputs, shapes.least),
        "trt_profile_opt_shapes": _shapes(inputs, shapes.usual),
        "trt_profile_max_shapes": _shapes(inputs, shapes.most),
    }
    # The profile has a key for the precision; and what lies elsewhere than in the folder nobody vouches for.
    return chosen | dict(given) | settled


def cuda_options(given: Mapping[str, str], graph_bytes: int) -> dict[str, str]:
    """Returns options of the CUDA provider.

    Args:
        given: The device profile's, which go before what is chosen here.
        graph_bytes: Size of the graph with its weights.
    """
    chosen = {
        # Weights are there twice while they are brought into the form that kernels read.
        "gpu_mem_limit": str(2 * graph_bytes + _RESULTS_BYTES),
        # Doubling would leave up to half of the memory unused, and a board's GPU shares it with everything else.
        "arena_extend_strategy": "kSameAsRequested",
    }
    return chosen | dict(given)


def openvino_options(given: Mapping[str, str], precision: Precision, folder: Path) -> dict[str, str]:
    """Returns options of the OpenVINO provider.

    Args:
        given: The device profile's, which go before what is chosen here, within ``load_config`` too.
        precision: What the graph computes in; a GPU computes fp32 graphs in fp16 where it is not told otherwise.
        folder: Where compiled graphs are kept, of this model, these versions and this device alone.

    Raises:
        ConfigurationError: The profile's ``load_config`` is not a JSON object.
    """
    try:
        own = parse_object(given.get(_LOAD_CONFIG, "{}").encode())
    except ValueError as error:
        raise ConfigurationError(f"profile: openvino.options.{_LOAD_CONFIG} is not a JSON object: {error}") from error
    chosen = {"INFERENCE_PRECISION_HINT": "F32"} if precision is Precision.FP32 else {}
    return {**given, _LOAD_CONFIG: json.dumps({**chosen, **own, "CACHE_DIR": str(folder)}, sort_keys=True)}


def _shapes(inputs: Sequence[str], shape: tuple[int, int]) -> str:
    return ",".join(f"{name}:{shape[0]}x{shape[1]}" for name in inputs)
