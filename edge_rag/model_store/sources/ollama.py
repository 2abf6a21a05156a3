"""Finds models in a local store of Ollama.

Layout: package ``manifest`` of Ollama. A manifest is that of an OCI image; its layers are files named by their SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edge_rag.errors import ModelFolderInvalid, ModelNotAdded
from edge_rag.model_store.source import OllamaModel
from edge_rag.runtime.model_folder.strict_json import parse_object

_LAYER: Final = "application/vnd.ollama.image."
_MODEL: Final = f"{_LAYER}model"
_ADAPTER: Final = f"{_LAYER}adapter"
_LICENCE: Final = f"{_LAYER}license"
_MAX_MANIFEST_BYTES: Final = 1 << 16
_MAX_LAYERS: Final = 64
_MAX_MODEL_BYTES: Final = 1 << 40
_MAX_LICENCE_BYTES: Final = 1 << 20
_SYSTEM_STORE: Final = Path("/usr/share/ollama/.ollama/models")


class _Layer(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    media_type: Annotated[str, Field(alias="mediaType", max_length=200)]
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0, le=_MAX_MODEL_BYTES)]


class _Manifest(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)

    schema_version: Annotated[int, Field(alias="schemaVersion", ge=2, le=2)]
    layers: Annotated[list[_Layer], Field(min_length=1, max_length=_MAX_LAYERS)]


@dataclass(frozen=True, slots=True)
class OllamaFiles:
    """The files of a model in a store; the weights are not read yet.

    Attributes:
        sha256: Its SHA-256 by the manifest, 64 hexadecimal digits.
        licence: Text of the licence; empty if there is none.
    """

    weights: Path
    bytes: int
    sha256: str
    licence: str


def ollama_stores() -> tuple[Path, ...]:
    named = os.environ.get("OLLAMA_MODELS")
    own = Path.home() / ".ollama" / "models"
    return (*((Path(named),) if named else ()), own, _SYSTEM_STORE)


def find_in_ollama(model: OllamaModel, stores: Sequence[Path]) -> OllamaFiles:
    """Finds a model in the first store that has it.

    Raises:
        ModelNotAdded: No store has it, or it is of a kind that cannot be added.
    """
    for store in stores:
        manifest = store / "manifests" / model.host / model.namespace / model.name / model.tag
        try:
            found = manifest.is_file()
        except OSError as error:
            raise ModelNotAdded(f"{model}: {manifest} cannot be read: {error.strerror}") from error
        if found:
            return _files(model, store, manifest)
    searched = ", ".join(map(str, stores))
    raise ModelNotAdded(
        f"{model}: there is no such model in {searched}; `ollama list` shows the models, and OLLAMA_MODELS names "
        "another directory"
    )


def _files(model: OllamaModel, store: Path, path: Path) -> OllamaFiles:
    try:
        manifest = _Manifest.model_validate(parse_object(_read(path, _MAX_MANIFEST_BYTES)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ModelFolderInvalid(f"{path}: {where}: {first['msg']}") from error
    except ValueError as error:
        raise ModelFolderInvalid(f"{path}: {error}") from error
    weights = [layer for layer in manifest.layers if layer.media_type == _MODEL]
    if any(layer.media_type == _ADAPTER for layer in manifest.layers):
        raise ModelNotAdded(f"{model}: it has an adapter, which changes its weights; merge it into the model first")
    if len(weights) != 1:
        raise ModelNotAdded(f"{path}: {len(weights)} layers are of the type {_MODEL}; models of one file can be added")
    blob = _blob(store, weights[0])
    try:
        size = blob.lstat().st_size
    except OSError as error:
        raise ModelFolderInvalid(
            f"{path}: the model's file {blob} cannot be read: {error.strerror}; run `ollama pull {model.name}` again"
        ) from error
    if size != weights[0].size:
        raise ModelFolderInvalid(f"{path}: the model's size is {weights[0].size:,}, but {blob} has {size:,} bytes")
    notices = [_licence(path, store, layer) for layer in manifest.layers if layer.media_type == _LICENCE]
    return OllamaFiles(blob, size, weights[0].digest.removeprefix("sha256:"), "\n\n".join(notices))


def _blob(store: Path, layer: _Layer) -> Path:
    return store / "blobs" / layer.digest.replace(":", "-")


def _licence(manifest: Path, store: Path, layer: _Layer) -> str:
    content = _read(_blob(store, layer), _MAX_LICENCE_BYTES)
    if f"sha256:{hashlib.sha256(content).hexdigest()}" != layer.digest:
        raise ModelFolderInvalid(f"{manifest}: the licence {_blob(store, layer)} does not have its SHA-256")
    return content.decode("utf-8", "replace")


def _read(path: Path, most_bytes: int) -> bytes:
    """Reads a small file that is no link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ModelFolderInvalid(f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ModelFolderInvalid(f"{path} is not a plain file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ModelFolderInvalid(f"{path} has more than {most_bytes:,} bytes")
    return content
