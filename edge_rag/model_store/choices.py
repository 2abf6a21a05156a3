"""Which model an operator chose for which role."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from edge_rag.core.atomic_file import replace_file
from edge_rag.core.file_format import is_newer
from edge_rag.errors import ModelNotAdded, StorageCorrupt, StorageError
from edge_rag.model_store.source import check_name
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
