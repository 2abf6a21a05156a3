"""The CUDA form of a model, beside its paged form in a model folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

import onnx
from pydantic import JsonValue

from edge_rag.core.atomic_file import replace_file
from edge_rag.core.file_hash import file_sha256
from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.decoder.cuda.kv_scales import SCALES_FILE, KvScales, read_scales, render_scales
from edge_rag.runtime.decoder.cuda.lowering import lower_for_cuda
from edge_rag.runtime.lowering.geometry import (
    GEOMETRY_FILE,
    GRAPH_FILE,
    WEIGHTS_FILE,
    PagedGeometry,
    parse_geometry,
    read_geometry,
    read_json,
)
from edge_rag.runtime.lowering.weight_packing import StoredTensors, WeightsFile

CUDA_GRAPH_FILE: Final = "cuda.onnx"
CUDA_WEIGHTS_FILE: Final = "cuda.onnx.data"
CUDA_DESCRIPTION_FILE: Final = "cuda.json"

CUDA_FILES: Final = (SCALES_FILE, CUDA_GRAPH_FILE, CUDA_WEIGHTS_FILE, CUDA_DESCRIPTION_FILE)
"""The files of the form; the last one is written last, so where it exists the others belong to it."""

FORMAT: Final = 1
"""1: weights as in the paged form, activations in float16, keys and values in INT8 with a scale for each channel."""


def write_cuda_form(folder: Path, target: Path, scales: KvScales, made: Mapping[str, JsonValue]) -> None:
    """Writes the KV scales of a model and its CUDA form.

    The form is ``cuda.onnx``, ``cuda.onnx.data`` and ``cuda.json``, the scales are ``kv_scales.json``. The folder's
    manifest is not updated.
    """
    geometry = read_geometry(folder)
    path = folder / GRAPH_FILE
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise ModelFolderInvalid(f"{path} is not an ONNX file: {error}") from error
    original = onnx.GraphProto()
    original.CopyFrom(model.graph)
    with WeightsFile(target / CUDA_WEIGHTS_FILE) as weights:
        try:
            lower_for_cuda(model, StoredTensors(original, folder), geometry, scales, weights)
        except ValueError as error:
            raise ModelFolderInvalid(f"{path}: the sizes of its weights do not match: {error}") from error
        # Removed before any other file is replaced, and written last: where it exists, the other files belong to it.
        (target / CUDA_DESCRIPTION_FILE).unlink(missing_ok=True)
    replace_file(target / SCALES_FILE, render_scales(scales, made).encode())
    replace_file(target / CUDA_GRAPH_FILE, model.SerializeToString(deterministic=True))
    sources = {name: file_sha256(folder / name) for name in (GEOMETRY_FILE, GRAPH_FILE, WEIGHTS_FILE)}
    sources[SCALES_FILE] = file_sha256(target / SCALES_FILE)
    fields = asdict(geometry) | {"end_tokens": sorted(geometry.end_tokens)}
    description = json.dumps({"format": FORMAT, **fields, "lowered_from": sources}, indent=2) + "\n"
    replace_file(target / CUDA_DESCRIPTION_FILE, description.encode())


def has_cuda_form(folder: Path) -> bool:
    return (folder / CUDA_DESCRIPTION_FILE).exists()


def read_cuda_form(folder: Path) -> PagedGeometry:
    """Reads the sizes of the CUDA form in a verified folder.

    Raises:
        ModelFolderInvalid: It is missing, of another format, or made from other files than those in the folder.
    """
    path = folder / CUDA_DESCRIPTION_FILE
    description = read_json(path)
    if description.get("format") != FORMAT:
        found = description.get("format")
        raise ModelFolderInvalid(f"{path} is of format {found!r}, {FORMAT} is read: make the form for cuda again")
    sources = description.get("lowered_from")
    if not isinstance(sources, dict):
        raise ModelFolderInvalid(f"{path} does not name its source files")
    for name in (GEOMETRY_FILE, SCALES_FILE):
        if not (folder / name).is_file() or sources.get(name) != file_sha256(folder / name):
            raise ModelFolderInvalid(f"{path} was made from another {name}: make the form for cuda again")
    geometry = parse_geometry(description, path)
    read_scales(folder / SCALES_FILE, geometry)
    return geometry
