"""The store as an operator sees it: what is there, what fills which role, and how to change either.

Which model an operator chose for which role.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from edge_rag.core.atomic_file import replace_file
from edge_rag.core.ids import is_newer
from edge_rag.errors import ModelFolderInvalid, ModelNeeded, ModelNotAdded, ModelNotFound, StorageCorrupt, StorageError
from edge_rag.model_store.add import add
from edge_rag.model_store.convert.subprocess import AddProgress
from edge_rag.model_store.directory import StoreDirectory
from edge_rag.model_store.request import AddRequest
from edge_rag.model_store.source import check_name
from edge_rag.runtime.model_folder.folder import ModelManifest, read_manifest, verify_model_folder
from edge_rag.runtime.model_folder.manifest import ModelRole
from edge_rag.runtime.model_folder.strict_json import parse_object

_FILE = "choices.json"
_FORMAT = 2
_WITHOUT_DIGEST = 1
_LARGEST = 1 << 16


def read_choices(store: Path) -> Mapping[ModelRole, str]:
    """Reads what was chosen; nothing if nothing was.

    Raises:
        StorageCorrupt: The file is not what was written.
        StorageError: A newer edge-rag wrote it.
    """
    path = store / _FILE
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST)
        if is_newer(content, _FORMAT):
            raise StorageError(f"{path} was written by a newer edge-rag; install that one again, or remove the file")
        document = parse_object(content)
        roles = document["roles"]
        if not isinstance(roles, dict) or document.get("format") not in (_FORMAT, _WITHOUT_DIGEST):
            raise ValueError("it is of another format")
        digest = {"sha256": _digest(roles)} if document["format"] == _FORMAT else {}
        if document != {"format": document["format"], "roles": roles, **digest}:
            raise ValueError("it was altered")
        return MappingProxyType({ModelRole(role): check_name(name) for role, name in roles.items()})
    except FileNotFoundError:
        return MappingProxyType({})
    except (OSError, ValueError, KeyError, TypeError, ModelNotAdded) as error:
        raise StorageCorrupt(f"{path} cannot be read: {error}; choose the models again with `models use`") from error


def write_choice(store: Path, role: ModelRole, name: str | None) -> None:
    """Records a choice, or with None that there is none; to be called while the store is held.

    Where the file is damaged, this choice is the first one again.

    Raises:
        StorageError: A newer edge-rag wrote the file; it stays as it is.
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
    replace_file(store / _FILE, (json.dumps(document, indent=2) + "\n").encode())


def _digest(roles: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(roles, sort_keys=True).encode()).hexdigest()


STORE_FOLDER = "models"
"""Name of the store's directory in the data directory."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model that can fill a role.

    Attributes:
        name: Its name.
        folder: Where it is.
        builtin: Whether it is one of those that are installed with edge-rag; they cannot be removed.
        manifest: What it says of itself; None where that cannot be read.
        problem: Why not; empty otherwise.
        chosen: Whether ``use`` chose it for its role.
    """

    name: str
    folder: Path
    builtin: bool
    manifest: ModelManifest | None
    problem: str
    chosen: bool


class ModelStore:
    """The models of one data directory, beside those that came along.

    Args:
        directory: The store's directory; made with the first model.
        builtin: Directory of the models that are installed with edge-rag.
    """

    def __init__(self, directory: Path, builtin: Path) -> None:
        self._directory = StoreDirectory(directory)
        self._came_along = StoreDirectory(builtin)

    def models(self) -> list[StoredModel]:
        """Lists the models, those that came along first. Reads manifests only; hashes nothing."""
        chosen = set(read_choices(self._directory.path).values())
        found = []
        for place in (self._came_along, self._directory):
            for name in place.names():
                folder = place.path / name
                try:
                    manifest, problem = read_manifest(folder), ""
                except ModelFolderInvalid as error:
                    manifest, problem = None, str(error)
                found.append(StoredModel(name, folder, place is self._came_along, manifest, problem, name in chosen))
        return found

    def find(self, name: str) -> Path:
        """Returns a model's folder.

        Raises:
            ModelNotFound: There is none of that name.
        """
        for place in (self._came_along, self._directory):
            if name in place.names():
                return place.path / name
        raise ModelNotFound(name, tuple(sorted({*self._came_along.names(), *self._directory.names()})))

    def add(self, wish: AddRequest, progress: AddProgress) -> ModelManifest:
        """Adds a model; see ``adding.add``.

        Raises:
            ModelNotAdded: Also where a model of that name came along.
        """
        if wish.name in self._came_along.names():
            raise ModelNotAdded(f"a model {wish.name} came along with edge-rag; choose a --name")
        return add(self._directory, wish, progress)

    def verify(self, name: str) -> ModelManifest:
        """Reads every byte of a model and compares it with its manifest.

        Raises:
            ModelNotFound: There is none of that name.
            ModelFolderInvalid: It is not what its manifest says; names the file.
        """
        return verify_model_folder(self.find(name))

    def use(self, role: ModelRole, name: str) -> ModelManifest:
        """Chooses a model for a role, for the daemon's next start; a running one is told by the command line.

        Raises:
            ModelNotFound: There is none of that name.
            ModelFolderInvalid: It is not what its manifest says, or is for another role.
        """
        manifest = verify_model_folder(self.find(name), role)
        with self._directory.changing():
            write_choice(self._directory.path, role, name)
        return manifest

    def use_default(self, role: ModelRole) -> None:
        """Takes a choice back: the role is filled by what came along again."""
        with self._directory.changing():
            write_choice(self._directory.path, role, None)

    def chosen(self, role: ModelRole) -> str | None:
        """Returns the model that was chosen for a role, or None.

        Raises:
            StorageCorrupt: The file of choices is damaged.
        """
        return read_choices(self._directory.path).get(role)

    def remove(self, name: str, needed: frozenset[str] = frozenset()) -> None:
        """Deletes a model.

        Args:
            name: Which one.
            needed: Names that settings or a running daemon use.

        Raises:
            ModelNotFound: There is none of that name.
            ModelNeeded: It came along, was chosen for a role, or is among ``needed``.
        """
        if name in self._came_along.names():
            raise ModelNeeded(f"{name} came along with edge-rag and cannot be removed")
        self._directory.folder(name)
        with self._directory.changing():
            for role, used in read_choices(self._directory.path).items():
                if used == name:
                    raise ModelNeeded(
                        f"{name} is chosen as {role.value}; choose another first, or what came along: "
                        f"edge-rag models use {role.value} default"
                    )
            if name in needed:
                raise ModelNeeded(f"{name} is used by the running daemon or named in the settings; change that first")
            self._directory.delete(name)


def memory_bytes(manifest: ModelManifest, context_tokens: int = 4096) -> int | None:
    """Returns what a model needs in memory: what was measured when it was added, and pages for one long conversation.

    Args:
        manifest: A model's.
        context_tokens: Tokens that the pages are to hold.

    Returns:
        Bytes; None where the manifest does not say.
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
