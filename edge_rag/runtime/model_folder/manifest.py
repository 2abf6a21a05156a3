"""The manifest of a model folder: the content of ``manifest.json`` as a value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from edge_rag.core.ids import MAX_MODEL_NAME, is_model_name
from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.model_folder.strict_json import parse_object

MANIFEST_NAME = "manifest.json"
MANIFEST_FORMAT = 2
"""Written format. Format 1, which is still read, has no digest of itself."""

_FIRST_FORMAT = 1

_LONGEST_REASON = 300
_LONGEST_TEXT = 1000


class ModelRole(Enum):
    """Role of a model."""

    EMBEDDER = "embedder"
    RERANKER = "reranker"
    GENERATOR = "generator"


class GeneratorForm(Enum):
    """How a generator runs."""

    PAGED = "paged"
    SERIAL = "serial"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Expected content of a file."""

    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ModelManifest:
    """A model folder's manifest.

    Attributes:
        files: Every file of the folder but the manifest, by path relative to it, with forward slashes.
    """

    name: str
    role: ModelRole
    licence: str
    source: str
    made_by: str
    parameters: Mapping[str, JsonValue]
    files: Mapping[str, FileRecord]

    @property
    def form(self) -> GeneratorForm | None:
        """How a generator runs; None for other roles. Manifests without the parameter are of paged ones."""
        if self.role is not ModelRole.GENERATOR:
            return None
        value = self.parameters.get("form", GeneratorForm.PAGED.value)
        for form in GeneratorForm:
            if value == form.value:
                return form
        raise ModelFolderInvalid(
            f"model {self.name}: parameters.form in {MANIFEST_NAME} is {value!r}, which is no form"
        )

    @property
    def form_name(self) -> str:
        try:
            return "" if self.form is None else self.form.value
        except ModelFolderInvalid:
            return ""

    @property
    def serial_reason(self) -> str:
        reason = self.parameters.get("why_serial", "")
        return reason[:_LONGEST_REASON] if isinstance(reason, str) else ""

    def identity(self, form: str = "") -> str:
        """Returns the identity of the model's results: it differs for other files, parameters or forms.

        Args:
            form: Name of the form its graph runs in, where that changes the results.
        """
        content = "\n".join(
            [
                *(f"{path} {record.sha256}" for path, record in sorted(self.files.items())),
                json.dumps(dict(self.parameters), sort_keys=True),
            ]
        )
        named = f"{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
        return f"{named}-{form}" if form else named

    def text(self, parameter: str) -> str:
        """Returns a text parameter; empty where it is absent."""
        value = self.parameters.get(parameter, "")
        if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
            raise ModelFolderInvalid(
                f"model {self.name}: parameters.{parameter} in {MANIFEST_NAME} must be text of at most "
                f"{_LONGEST_TEXT} characters"
            )
        return value

    def integer(self, parameter: str, minimum: int, maximum: int) -> int:
        """Returns an integer parameter."""
        value = self.parameters.get(parameter)
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise ModelFolderInvalid(
                f"model {self.name}: parameters.{parameter} in {MANIFEST_NAME} must be a whole number "
                f"from {minimum} to {maximum}, not {value!r}"
            )
        return value


def plain_relative_path(path: str) -> str:
    """Returns a path that names a file inside its folder unambiguously on any system.

    Raises:
        ValueError: It leaves the folder, is absolute, or could be read as something other than a path: ONNX Runtime
            takes a location with asterisks for an address in memory.
    """
    parts = path.split("/")
    if (
        not path
        or not path.isprintable()
        or any(character in path for character in "\\*")
        or PurePosixPath(path).is_absolute()
        or PureWindowsPath(path).drive
        or any(part in ("", ".", "..") for part in parts)
    ):
        raise ValueError(f"{path!r} is not a plain path inside the folder")
    if path == MANIFEST_NAME:
        raise ValueError("the manifest cannot list itself")
    return path


def _model_name(text: str) -> str:
    if not is_model_name(text):
        raise ValueError(f"{text[:MAX_MODEL_NAME]!r} is no name of a model")
    return text


_FilePath = Annotated[str, AfterValidator(plain_relative_path)]
_Line = Annotated[str, Field(min_length=1, max_length=2000)]


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _FileDocument(_StrictModel):
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0)]


class _ManifestDocument(_StrictModel):
    format: Literal[1, 2]
    name: Annotated[str, AfterValidator(_model_name)]
    role: Literal["embedder", "reranker", "generator"]
    licence: _Line
    source: _Line
    made_by: _Line
    parameters: dict[str, JsonValue]
    files: Annotated[dict[_FilePath, _FileDocument], Field(min_length=1)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


def parse_manifest(content: bytes) -> ModelManifest:
    """Parses a manifest.

    Args:
        content: UTF-8 JSON: ``{"format": 2, "name", "role": "embedder|reranker|generator", "licence",
            "source", "made_by", "parameters": {...}, "files": {"model.onnx": {"sha256": hex, "bytes": int}, ...},
            "sha256"}``. The last value is the digest of the manifest without it. Any byte that ``render_manifest``
            would not write is refused, and in format 1, which has no digest: unknown or repeated keys, NaN and
            infinities, and paths that leave the folder.
    """
    try:
        document = _ManifestDocument.model_validate(parse_object(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the manifest"
        raise ValueError(f"{where}: {first['msg']}") from error
    manifest = ModelManifest(
        name=document.name,
        role=ModelRole(document.role),
        licence=document.licence,
        source=document.source,
        made_by=document.made_by,
        parameters=MappingProxyType(document.parameters),
        files=MappingProxyType(
            {path: FileRecord(sha256=file.sha256, bytes=file.bytes) for path, file in document.files.items()}
        ),
    )
    if document.format == _FIRST_FORMAT:
        if document.sha256 is not None:
            raise ValueError("sha256: is not part of format 1")
    elif content != render_manifest(manifest):
        raise ValueError("it was altered: its content does not match its own sha256")
    return manifest


def render_manifest(manifest: ModelManifest) -> bytes:
    """Renders a manifest as ``parse_manifest`` reads it, with sorted files, its digest and a final line break."""
    document: dict[str, JsonValue] = {
        "format": MANIFEST_FORMAT,
        "name": manifest.name,
        "role": manifest.role.value,
        "licence": manifest.licence,
        "source": manifest.source,
        "made_by": manifest.made_by,
        "parameters": dict(manifest.parameters),
        "files": {
            path: {"sha256": record.sha256, "bytes": record.bytes} for path, record in sorted(manifest.files.items())
        },
    }
    document["sha256"] = hashlib.sha256(_rendered(document)).hexdigest()
    return _rendered(document)


def _rendered(document: Mapping[str, JsonValue]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
