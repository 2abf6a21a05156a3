"""The scales of INT8 keys and values on a CUDA device: one a layer, head and channel, from texts seen beforehand.

The file is the one that the onnxruntime-genai builder takes as ``kv_cache_scale_file``: a JSON object with
``scales.k_scales`` and ``scales.v_scales``, a list of kv heads * head size numbers a layer each, and ``qmax``, what a
scale was divided by. Whatever else is in it says how it was made.

The largest keys and values of texts, seen in the pages of the paged form on processor cores.
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


Largest = NDArray[np.float32]

_HALF_A_STEP = np.float32(0.5)
_KEY_BIAS = np.float32(128)


class ObservedKv:
    """Largest magnitudes by layer, head and channel, of all texts that were shown.

    Keys are seen as they are kept, rotated. Pages hold them in INT8 with a scale a token and head: what is taken for an
    element is the most that it can have been before it was rounded.

    Attributes:
        keys: float32 [layers, kv_heads, head_size].
        values: The same.
        tokens: Tokens that were seen.
    """

    def __init__(self, decoder: PagedDecoder) -> None:
        self._decoder = decoder
        self._geometry: PagedGeometry = decoder.geometry
        shape = (self._geometry.layers, self._geometry.kv_heads, self._geometry.head_size)
        self.keys: Largest = np.zeros(shape, np.float32)
        self.values: Largest = np.zeros(shape, np.float32)
        self.tokens = 0

    def show(self, token_ids: NDArray[np.int64]) -> None:
        """Runs a text on the decoder's first pages and takes in what they hold then.

        Args:
            token_ids: int64 [n], as many as the decoder's pages and the model's context hold at most.

        Raises:
            InferenceFailed: The model could not be run.
        """
        teacher_forced_logits(self._decoder, token_ids, token_ids.size)
        geometry = self._geometry
        count = -(-token_ids.size // geometry.page_tokens)
        pages = np.stack([np.frombuffer(self._decoder.read_page(page), np.int8) for page in range(count)])
        for layer, held in enumerate(np.split(pages, geometry.layers, axis=1)):
            views = PageViews(geometry, np.ascontiguousarray(held))
            # Axes: page, head, then the layout's own; in front of what is the largest over pages and tokens.
            keys: Largest = np.abs(views.keys.astype(np.float32) - _KEY_BIAS) + _HALF_A_STEP
            keys *= views.key_scales[:, :, None, :, None]
            values: Largest = np.abs(views.values.astype(np.float32)) + _HALF_A_STEP
            values *= views.value_scales.reshape(*views.value_scales.shape[:2], -1, 1, 4)
            self._take(self.keys[layer], keys.transpose(0, 3, 1, 2, 4), token_ids.size)
            self._take(self.values[layer], values.transpose(0, 2, 4, 1, 3), token_ids.size)
        self.tokens += token_ids.size

    def _take(self, largest: Largest, seen: Largest, tokens: int) -> None:
        """Takes elements in, the axes of the tokens in front and those of heads and channels behind."""
        by_token = seen.reshape(-1, *largest.shape)[:tokens]
        np.maximum(largest, by_token.max(axis=0), out=largest)
