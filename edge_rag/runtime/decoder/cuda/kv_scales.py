"""The scales of INT8 keys and values on a CUDA device: one a layer, head and channel, from texts seen beforehand.

The file is the one that the onnxruntime-genai builder takes as ``kv_cache_scale_file``: a JSON object with
``scales.k_scales`` and ``scales.v_scales``, a list of kv heads * head size numbers a layer each, and ``qmax``, what a
scale was divided by. Whatever else is in it says how it was made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.lowering.geometry import PagedGeometry, read_json

SCALES_FILE: Final = "kv_scales.json"

QMAX: Final = 128.0
"""A scale is the largest magnitude that is kept, divided by this: what the provider's INT8 cache goes by."""

Scales = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class KvScales:
    """What a stored key or value is multiplied by.

    Attributes:
        keys: float32 [layers, kv_heads, head_size], finite and above 0; for keys that are rotated.
        values: The same of values.
    """

    keys: Scales
    values: Scales


def scales_of(largest_keys: Scales, largest_values: Scales, margin: float) -> KvScales:
    """Turns the largest magnitudes that were seen into scales.

    Args:
        largest_keys: float32 [layers, kv_heads, head_size].
        largest_values: The same.
        margin: How much larger unseen ones may be before they are clipped, as a factor, at least 1.
    """

    def scales(largest: Scales) -> Scales:
        # A channel that is always 0 gets a scale, too: what is divided by it must be a number.
        floor = np.finfo(np.float16).tiny
        kept: Scales = np.maximum(largest * (margin / QMAX), floor).astype(np.float32)
        return kept

    return KvScales(scales(largest_keys), scales(largest_values))


def render_scales(scales: KvScales, made: Mapping[str, JsonValue]) -> str:
    """Returns the text of a scale file.

    Args:
        scales: What is in it.
        made: How they were made, for people.
    """
    lists = {
        "k_scales": [layer.reshape(-1).tolist() for layer in scales.keys],
        "v_scales": [layer.reshape(-1).tolist() for layer in scales.values],
    }
    return json.dumps({"scheme": "int8_per_channel", "qmax": QMAX, "scales": lists, "made": dict(made)}) + "\n"


def read_scales(path: Path, geometry: PagedGeometry) -> KvScales:
    """Reads a scale file.

    Args:
        path: The file.
        geometry: Sizes of the model it has to be for.

    Raises:
        ModelFolderInvalid: It is missing, damaged, or for a model of other sizes; names the file and what is wrong.
    """
    content = read_json(path)
    qmax = content.get("qmax", QMAX)
    if isinstance(qmax, bool) or not isinstance(qmax, int | float) or not 0 < qmax < np.inf:
        raise ModelFolderInvalid(f"{path}: qmax is {qmax!r}, must be a number above 0")
    lists = content.get("scales")
    if not isinstance(lists, dict):
        raise ModelFolderInvalid(f"{path}: scales is missing")
    keys, values = (_scales(lists, name, geometry, path) for name in ("k_scales", "v_scales"))
    return KvScales(keys * np.float32(qmax / QMAX), values * np.float32(qmax / QMAX))


def _scales(lists: dict[str, Any], name: str, geometry: PagedGeometry, path: Path) -> Scales:
    shape = (geometry.layers, geometry.kv_heads, geometry.head_size)
    try:
        found = np.array(lists.get(name), np.float32)
    except (TypeError, ValueError) as error:
        raise ModelFolderInvalid(f"{path}: scales.{name} is not a list of numbers a layer") from error
    if found.shape != (shape[0], shape[1] * shape[2]):
        raise ModelFolderInvalid(
            f"{path}: scales.{name} has the shape {list(found.shape)}, the model has {shape[0]} layers with "
            f"{shape[1]} heads of {shape[2]}"
        )
    if not (np.isfinite(found) & (found > 0)).all():
        raise ModelFolderInvalid(f"{path}: scales.{name} has one that is not a finite number above 0")
    return found.reshape(shape)
