"""Scales of INT8 keys and values on CUDA: one for each layer, head and channel, calibrated on texts.

The file has the format that the onnxruntime-genai builder takes as ``kv_cache_scale_file``: a JSON object with
``scales.k_scales`` and ``scales.v_scales``, a list of kv heads * head size numbers for each layer, and ``qmax``, the
divisor of a scale. Other keys describe how it was made.
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
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.decoder.rope_shift import PageViews
from edge_rag.runtime.lowering.geometry import PagedGeometry, read_json
from edge_rag.runtime.lowering.verification import teacher_forced_logits

SCALES_FILE: Final = "kv_scales.json"

QMAX: Final = 128.0
"""A scale is the largest representable magnitude divided by this, as the provider's INT8 cache defines it."""

Scales = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class KvScales:
    """Factors of stored keys and values.

    Attributes:
        keys: float32 [layers, kv_heads, head_size], finite and above 0; for rotated keys.
    """

    keys: Scales
    values: Scales


def scales_of(largest_keys: Scales, largest_values: Scales, margin: float) -> KvScales:
    """Computes scales from observed magnitudes.

    Args:
        largest_keys: float32 [layers, kv_heads, head_size].
        margin: Factor by which unseen magnitudes may exceed them without clipping, at least 1.
    """

    def scales(largest: Scales) -> Scales:
        # A channel that is always 0 gets a scale above 0 too, because values are divided by it.
        floor = np.finfo(np.float16).tiny
        kept: Scales = np.maximum(largest * (margin / QMAX), floor).astype(np.float32)
        return kept

    return KvScales(scales(largest_keys), scales(largest_values))


def render_scales(scales: KvScales, made: Mapping[str, JsonValue]) -> str:
    lists = {
        "k_scales": [layer.reshape(-1).tolist() for layer in scales.keys],
        "v_scales": [layer.reshape(-1).tolist() for layer in scales.values],
    }
    return json.dumps({"scheme": "int8_per_channel", "qmax": QMAX, "scales": lists, "made": dict(made)}) + "\n"


def read_scales(path: Path, geometry: PagedGeometry) -> KvScales:
    """Reads a scale file.

    Raises:
        ModelFolderInvalid: It is missing, damaged, or for a model of other sizes; names the file and the problem.
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


Largest = NDArray[np.float32]

_HALF_A_STEP = np.float32(0.5)
_KEY_BIAS = np.float32(128)


class ObservedKv:
    """Largest magnitudes by layer, head and channel over all observed texts.

    Keys are observed as they are stored, rotated. Pages hold them in INT8 with a scale for each token and head; an
    element counts with the largest value that it can have had before rounding.

    Attributes:
        keys: float32 [layers, kv_heads, head_size].
        tokens: Number of observed tokens.
    """

    def __init__(self, decoder: PagedDecoder) -> None:
        self._decoder = decoder
        self._geometry: PagedGeometry = decoder.geometry
        shape = (self._geometry.layers, self._geometry.kv_heads, self._geometry.head_size)
        self.keys: Largest = np.zeros(shape, np.float32)
        self.values: Largest = np.zeros(shape, np.float32)
        self.tokens = 0

    def observe(self, token_ids: NDArray[np.int64]) -> None:
        """Runs a text on the decoder's first pages and observes their content.

        Args:
            token_ids: int64 [n], at most what the decoder's pages and the model's context hold.
        """
        teacher_forced_logits(self._decoder, token_ids, token_ids.size)
        geometry = self._geometry
        count = -(-token_ids.size // geometry.page_tokens)
        pages = np.stack([np.frombuffer(self._decoder.read_page(page), np.int8) for page in range(count)])
        for layer, held in enumerate(np.split(pages, geometry.layers, axis=1)):
            views = PageViews(geometry, np.ascontiguousarray(held))
            # Axes: page, head, then the layout's own.
            keys: Largest = np.abs(views.keys.astype(np.float32) - _KEY_BIAS) + _HALF_A_STEP
            keys *= views.key_scales[:, :, None, :, None]
            values: Largest = np.abs(views.values.astype(np.float32)) + _HALF_A_STEP
            values *= views.value_scales.reshape(*views.value_scales.shape[:2], -1, 1, 4)
            self._merge(self.keys[layer], keys.transpose(0, 3, 1, 2, 4), token_ids.size)
            self._merge(self.values[layer], values.transpose(0, 2, 4, 1, 3), token_ids.size)
        self.tokens += token_ids.size

    def _merge(self, largest: Largest, seen: Largest, tokens: int) -> None:
        """Merges elements; the axes of tokens come first, those of heads and channels last."""
        by_token = seen.reshape(-1, *largest.shape)[:tokens]
        np.maximum(largest, by_token.max(axis=0), out=largest)
