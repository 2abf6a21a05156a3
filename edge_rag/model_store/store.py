"""The model store: lists, adds, verifies, chooses and removes models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import IO, Any, Final

from edge_rag.config.settings import Settings
from edge_rag.core.atomic_file import replace_file
from edge_rag.core.ids import is_newer
from edge_rag.errors import ModelFolderInvalid, ModelNeeded, ModelNotAdded, ModelNotFound, StorageCorrupt, StorageError
from edge_rag.model_store.directory import StoreDirectory
from edge_rag.model_store.source import AddProgress, AddRequest, check_name
from edge_rag.runtime.model_folder.folder import ModelManifest, read_manifest, verify_model_folder
from edge_rag.runtime.model_folder.manifest import ModelRole
from edge_rag.runtime.model_folder.strict_json import parse_object

_CHOICES_FILE = "choices.json"
_FORMAT = 2
_WITHOUT_DIGEST = 1
_MAX_BYTES = 1 << 16

REMOVED_GENERATORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "quoter": "quotes need no language model; the modes cite and free do: add one with "
        "`edge-rag models add smollm2-135m` and select it with `edge-rag models use generator NAME`, or remove the name"
    }
)
"""Generators that came along with an earlier release, with what to do. A box that still names one starts without."""

DROPPED_ROLES: Final = frozenset({"entailment"})
"""Roles of earlier versions; a model chosen for one is ignored."""


def read_choices(store: Path) -> Mapping[ModelRole, str]:
    """Reads the chosen model of each role; empty without choices."""
    path = store / _CHOICES_FILE
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES)
        if is_newer(content, _FORMAT):
            raise StorageError(f"{path} was written by a newer edge-rag; install that one again, or remove the file")
        document = parse_object(content)
        roles = document["roles"]
        if not isinstance(roles, dict) or document.get("format") not in (_FORMAT, _WITHOUT_DIGEST):
            raise ValueError("it has another format")
        digest = {"sha256": _digest(roles)} if document["format"] == _FORMAT else {}
        if document != {"format": document["format"], "roles": roles, **digest}:
            raise ValueError("it was altered")
        kept = {role: name for role, name in roles.items() if role not in DROPPED_ROLES}
        return MappingProxyType({ModelRole(role): check_name(name) for role, name in kept.items()})
    except FileNotFoundError:
        return MappingProxyType({})
    except (OSError, ValueError, KeyError, TypeError, ModelNotAdded) as error:
        raise StorageCorrupt(f"{path} cannot be read: {error}; choose the models again with `models use`") from error


def write_choice(store: Path, role: ModelRole, name: str | None) -> None:
    """Records the chosen model of a role, None for none; the caller holds the store's lock.

    A damaged file is replaced, and other choices are lost.
    """
    try:
        choices = dict(read_choices(store))
    except StorageCorrupt:
        choices = {}
    choices.pop(role, None)
    if name is not None:
        choices[role] = name
    roles = {role.value: name for role, name in sorted(choices.items(), key=lambda item: item[0].value)}
    document = {"format": _FORMAT, "sha256": _digest(roles), "roles": roles}
    replace_file(store / _CHOICES_FILE, (json.dumps(document, indent=2) + "\n").encode())


def _digest(roles: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(roles, sort_keys=True).encode()).hexdigest()


STORE_FOLDER = "models"
"""Name of the store's directory in the data directory."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model that can fill a role.

    Attributes:
        problem: Why the manifest cannot be read; empty otherwise.
    """

    name: str
    folder: Path
    builtin: bool
    manifest: ModelManifest | None
    problem: str
    chosen: bool


class ModelStore:
    """The models of a data directory and the built-in ones."""

    def __init__(self, directory: Path, builtin: Path) -> None:
        self._directory = StoreDirectory(directory)
        self._builtin = StoreDirectory(builtin)

    @property
    def directory(self) -> Path:
        return self._directory.path

    @property
    def builtin(self) -> Path:
        return self._builtin.path

    def models(self) -> list[StoredModel]:
        """Lists the models, built-in ones first. Reads manifests only; verifies no hashes."""
        chosen = set(read_choices(self._directory.path).values())
        found = []
        for place in (self._builtin, self._directory):
            for name in place.names():
                folder = place.path / name
                try:
                    manifest, problem = read_manifest(folder), ""
                except ModelFolderInvalid as error:
                    manifest, problem = None, str(error)
                found.append(StoredModel(name, folder, place is self._builtin, manifest, problem, name in chosen))
        return found

    def has(self, name: str) -> bool:
        return name in self._builtin.names() or name in self._directory.names()

    def find(self, name: str) -> Path:
        """Returns a model's folder."""
        for place in (self._builtin, self._directory):
            if name in place.names():
                return place.path / name
        raise ModelNotFound(name, tuple(sorted({*self._builtin.names(), *self._directory.names()})))

    def add(self, request: AddRequest, progress: AddProgress) -> ModelManifest:
        """Adds a model; see ``add.add``."""
        if request.name in self._builtin.names():
            raise ModelNotAdded(f"a built-in model is named {request.name}; choose another --name")
        from edge_rag.model_store.add import add  # what converts models takes a start's time and is rarely used

        return add(self._directory, request, progress)

    def manifest(self, name: str) -> ModelManifest:
        return read_manifest(self.find(name))

    def verify(self, name: str, on_read: Callable[[int], None] | None = None) -> ModelManifest:
        """Reads every byte of a model and compares it with the manifest."""
        return verify_model_folder(self.find(name), on_read=on_read)

    def export(self, name: str, target: IO[bytes], key: Path | None, progress: AddProgress) -> ModelManifest:
        """Writes a model as an archive, which ``add`` takes on another box."""
        from edge_rag.model_store.signature import SIGNATURE_FILE, sign
        from edge_rag.model_store.sources.archive import write_archive

        progress.begin("checking every file")
        manifest = self.verify(name)
        with TemporaryDirectory() as scratch:
            signature = None
            if key is not None:
                signature = Path(scratch, SIGNATURE_FILE)
                progress.begin("signing")
                sign(self.find(name), key, signature)
            write_archive(self.find(name), name, manifest, signature, target, progress)
        return manifest

    def use(self, role: ModelRole, name: str) -> ModelManifest:
        manifest = verify_model_folder(self.find(name), role)
        with self._directory.changing():
            write_choice(self._directory.path, role, name)
        return manifest

    def use_default(self, role: ModelRole) -> None:
        with self._directory.changing():
            write_choice(self._directory.path, role, None)

    def chosen(self, role: ModelRole) -> str | None:
        """Returns the model chosen for a role, or None."""
        return read_choices(self._directory.path).get(role)

    def remove(self, name: str, needed: frozenset[str] = frozenset()) -> None:
        """Deletes a model.

        Raises:
            ModelNeeded: It is built-in, chosen for a role, or among ``needed``.
        """
        if name in self._builtin.names():
            raise ModelNeeded(f"{name} is built-in and cannot be removed")
        self._directory.folder(name)
        with self._directory.changing():
            for role, used in read_choices(self._directory.path).items():
                if used == name:
                    raise ModelNeeded(
                        f"{name} is chosen as {role.value}; choose another first, or the default: "
                        f"edge-rag models use {role.value} default"
                    )
            if name in needed:
                raise ModelNeeded(f"{name} is used by the running daemon or named in the settings; change that first")
            self._directory.delete(name)


def memory_bytes(manifest: ModelManifest, context_tokens: int = 4096) -> int | None:
    """Returns the memory that a model needs: as measured when it was added, plus KV pages for one long conversation.

    Returns:
        Bytes; None if the manifest has no sizes.
    """
    sizes, resident = manifest.parameters.get("sizes"), manifest.parameters.get("resident_bytes")
    if manifest.role is not ModelRole.GENERATOR:
        return resident if isinstance(resident, int) else None
    if not isinstance(sizes, dict):
        return None
    page_bytes, page_tokens = sizes.get("page_bytes"), sizes.get("page_tokens")
    if not (isinstance(resident, int) and isinstance(page_bytes, int) and isinstance(page_tokens, int)):
        return None
    return resident + -(-context_tokens // max(1, page_tokens)) * page_bytes


@dataclass(frozen=True, slots=True)
class RoleFolders:
    """Folders of the models that a daemon opens.

    Attributes:
        reranker: Folder of a cross-encoder; None if the embedder's token vectors are used for reranking.
        generator: Folder of the language model; None if there is none, and answers are quoted only.
    """

    embedder: Path
    reranker: Path | None
    generator: Path | None


def store_of(settings: Settings) -> ModelStore:
    return ModelStore(settings.data_directory / STORE_FOLDER, settings.models.directory)


def explicit_model(settings: Settings, store: ModelStore, role: ModelRole) -> str | None:
    """Returns the model named for a role by file, environment or command line; None if none of them names one.

    An empty name names none, and neither does a generator that no longer comes along.
    """
    name = _named_by_settings(settings, role)
    return None if name is None or _is_removed(store, role, name) else name


def ignored_model(settings: Settings, store: ModelStore, role: ModelRole) -> str | None:
    """Returns the model that is named for a role but no longer comes along, so that the role is filled as if it were
    not named; None if there is none.
    """
    if explicit_model(settings, store, role) is not None:
        return None
    named = (_named_by_settings(settings, role), store.chosen(role))
    return next((name for name in named if name is not None and _is_removed(store, role, name)), None)


def _named_by_settings(settings: Settings, role: ModelRole) -> str | None:
    if role.value not in settings.models.model_fields_set:
        return None
    name: str | None = getattr(settings.models, role.value)
    return name or None


def _is_removed(store: ModelStore, role: ModelRole, name: str) -> bool:
    return role is ModelRole.GENERATOR and name in REMOVED_GENERATORS and not store.has(name)


def fill_roles(settings: Settings, store: ModelStore) -> RoleFolders:
    """Returns the folder of each role's model; the folders are checked when they are opened."""
    reranker = model_of(settings, store, ModelRole.RERANKER)
    generator = model_of(settings, store, ModelRole.GENERATOR)
    return RoleFolders(
        embedder=store.find(model_of(settings, store, ModelRole.EMBEDDER) or settings.models.embedder),
        reranker=None if reranker is None else store.find(reranker),
        generator=None if generator is None else store.find(generator),
    )


def model_of(settings: Settings, store: ModelStore, role: ModelRole) -> str | None:
    """Returns the name of a role's model; None if the role has none."""
    chosen = store.chosen(role)
    if chosen is not None and _is_removed(store, role, chosen):
        chosen = None
    default: str | None = type(settings.models).model_fields[role.value].default
    return explicit_model(settings, store, role) or chosen or default or None
