"""Lowers the model in a folder and stores the result beside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import onnx

from edge_rag.core.atomic_file import replace_file
from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.lowering.geometry import (
    FORMAT,
    GEOMETRY_FILE,
    GRAPH_FILE,
    WEIGHTS_FILE,
    PagedGeometry,
    describe,
    parse_geometry,
    read_geometry,
    read_json,
)
from edge_rag.runtime.lowering.graph import DecoderSizes, lower
from edge_rag.runtime.lowering.weight_packing import StoredTensors, WeightsFile
from edge_rag.runtime.lowering.weights import lower_weights

CONFIG_FILE = "genai_config.json"


def lower_folder(folder: Path) -> PagedGeometry:
    """Writes the paged form of a converted model beside it, unless it exists and was made from these files.

    The paged form is ``paged.onnx``, ``paged.onnx.data`` and ``paged.json``. It does not need the original, which may
    be removed from the folder afterwards.

    Args:
        folder: A verified folder of the onnxruntime-genai builder: ``genai_config.json``, the graph and its weights; or
            a folder with the paged form only.

    Raises:
        ModelFolderInvalid: A file is missing or damaged; or the paged form has another format and the original is
            missing.
    """
    if not (folder / CONFIG_FILE).exists() and (folder / GEOMETRY_FILE).exists():
        return read_geometry(folder)
    config = _read_config(folder)
    graph_file = _graph_file(folder, config)
    try:
        model = onnx.load(graph_file, load_external_data=False)
    except Exception as error:
        raise ModelFolderInvalid(f"{graph_file} is not an ONNX file: {error}") from error
    stored = StoredTensors(model.graph, folder)
    sources = {path.name: _sha256(path) for path in (folder / CONFIG_FILE, graph_file, *stored.files())}
    if all((folder / name).exists() for name in (GEOMETRY_FILE, GRAPH_FILE, WEIGHTS_FILE)):
        description = read_json(folder / GEOMETRY_FILE)
        if description.get("format") == FORMAT and description.get("lowered_from") == sources:
            return parse_geometry(description, folder / GEOMETRY_FILE)
    lowered, geometry = lower(model, _sizes(folder, config))
    with WeightsFile(folder / WEIGHTS_FILE) as weights:
        try:
            lower_weights(lowered, stored, weights)
        except ValueError as error:
            raise ModelFolderInvalid(f"{graph_file}: the sizes of its weights do not match: {error}") from error
        # Removed before any other file is replaced, and written last: where it exists, the other files belong to it.
        (folder / GEOMETRY_FILE).unlink(missing_ok=True)
    replace_file(folder / GRAPH_FILE, lowered.SerializeToString(deterministic=True))
    replace_file(folder / GEOMETRY_FILE, describe(geometry, sources).encode())
    return geometry


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    try:
        model = json.loads(path.read_text(encoding="utf-8"))["model"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFolderInvalid(f"{path} cannot be read: {error!r}") from error
    if not isinstance(model, dict) or not isinstance(model.get("decoder"), dict):
        raise ModelFolderInvalid(f"{path} describes no decoder")
    return model


def _graph_file(folder: Path, config: dict[str, Any]) -> Path:
    name = config["decoder"].get("filename")
    if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
        raise ModelFolderInvalid(f"{folder / CONFIG_FILE}: filename is {name!r}, must be the plain name of a file")
    if not (folder / name).is_file():
        raise ModelFolderInvalid(f"{folder / name} is missing")
    return folder / name


def _sizes(folder: Path, config: dict[str, Any]) -> DecoderSizes:
    head_size, context = config["decoder"].get("head_size"), config.get("context_length")
    end = config.get("eos_token_id")
    ends: list[Any] = end if isinstance(end, list) else [end]
    if type(head_size) is not int or type(context) is not int or not all(type(token) is int for token in ends):
        raise ModelFolderInvalid(f"{folder / CONFIG_FILE}: head_size, context_length or eos_token_id is missing")
    window, layers = _sliding_window(folder, config)
    return DecoderSizes(head_size, context, frozenset(ends), window, layers)


def _sliding_window(folder: Path, config: dict[str, Any]) -> tuple[int | None, frozenset[int]]:
    """Returns the tokens of the sliding window and its layers."""
    match config["decoder"].get("sliding_window"):
        case None:
            return None, frozenset()
        case {"window_size": int(tokens), **rest} if tokens > 0:
            layers = rest.get("layers", [])
            if isinstance(layers, list) and all(type(layer) is int for layer in layers):
                return tokens, frozenset(layers)
    raise ModelFolderInvalid(f"{folder / CONFIG_FILE}: sliding_window is not a window_size and a list of layers")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
