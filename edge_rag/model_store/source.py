"""Sources of models, requests to add them, and the progress of adding."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from edge_rag.core.ids import MAX_MODEL_NAME, is_model_name
from edge_rag.errors import ModelNotAdded
from edge_rag.runtime.model_folder.manifest import ModelRole

_HUB = "hf:"
_GGUF = ".gguf"
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?"
_HUB_MODEL = re.compile(rf"({_PART})/({_PART})(?:@([A-Za-z0-9][A-Za-z0-9._/-]{{0,99}}))?")
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder of this machine or of a mounted medium.

    Attributes:
        path: The folder.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class GgufSource:
    """A GGUF file of this machine or of a mounted medium.

    Attributes:
        path: The file.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of the Hugging Face hub.

    Attributes:
        owner: User or organization.
        name: Name of the repository.
        revision: Branch, tag or commit; None for the default branch.
    """

    owner: str
    name: str
    revision: str | None

    @property
    def repository(self) -> str:
        """``owner/name``."""
        return f"{self.owner}/{self.name}"

    def __str__(self) -> str:
        return f"{_HUB}{self.repository}" + (f"@{self.revision}" if self.revision else "")


Source = LocalFolder | GgufSource | HubModel


def parse_source(text: str) -> Source:
    """Parses ``hf:owner/name[@revision]``, the path of a folder, or that of a file whose name ends in ``.gguf``.

    Raises:
        ModelNotAdded: It is none of them.
    """
    if text.startswith(_HUB):
        match = _HUB_MODEL.fullmatch(text.removeprefix(_HUB))
        if match is None or ".." in text:
            raise ModelNotAdded(f"{text}: a model of the hub is named hf:owner/name or hf:owner/name@revision")
        return HubModel(match[1], match[2], match[3])
    path = Path(text).expanduser().absolute()
    if path.suffix.lower() == _GGUF and path.is_file():
        return GgufSource(path)
    if not path.is_dir():
        raise ModelNotAdded(f"{text}: there is no such folder or GGUF file; a model of the hub is named hf:owner/name")
    return LocalFolder(path)


def default_name(source: Source) -> str:
    """Returns the default name of a model: lower-case letters, digits, dots and dashes of the source's name.

    Raises:
        ModelNotAdded: The source's name has none of these characters.
    """
    match source:
        case HubModel():
            text = source.name
        case GgufSource():
            text = source.path.stem
        case LocalFolder():
            text = source.path.name
    name = _NOT_IN_A_NAME.sub("-", text.lower()).strip("._-")[:MAX_MODEL_NAME]
    if not name:
        raise ModelNotAdded(f"{source}: give the model a name with --name")
    return name


def check_name(name: str) -> str:
    """Returns a model's name if it is valid.

    Raises:
        ModelNotAdded: It is not.
    """
    if not is_model_name(name):
        raise ModelNotAdded(
            f"{name!r} cannot be a model's name: lower-case letters, digits, dots, dashes and underscores, the first a "
            f"letter or digit, at most {MAX_MODEL_NAME}"
        )
    return name


BLOCK = 128
"""Quantized weights per scale."""


class ModelPrecision(Enum):
    """Precision of a model's weights."""

    INT4 = "int4"
    INT8 = "int8"
    FP32 = "fp32"


@dataclass(frozen=True, slots=True)
class AddRequest:
    """A model to add.

    Attributes:
        source: Where the model comes from.
        name: Its name in the store.
        precision: Precision of the weights of a converted Hugging Face folder; None for 4 bits of a generator, 8 of an
            encoder.
        licence: SPDX expression; None for that of the model card.
        role: Required role; None for any.
        keys: Public keys, of which one must have signed the model; empty if no signature is required.
        accept_loss: Whether a model is added although it differs from its original by more than the gate allows.
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
            what: What is done, for people.
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
