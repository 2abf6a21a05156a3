"""Which folder fills which role: an explicit setting wins, then what ``models use`` chose, then what came along."""

from __future__ import annotations

from pathlib import Path

from edge_rag.config.settings import Settings
from edge_rag.runtime.model_manifest import ModelRole
from edge_rag.store.model_store import STORE_FOLDER, ModelStore


def store_of(settings: Settings) -> ModelStore:
    """Returns the model store of a data directory."""
    return ModelStore(settings.data_directory / STORE_FOLDER, settings.models.directory)


def explicit_model(settings: Settings, role: ModelRole) -> str | None:
    """Returns the model that a file, the environment or the command line names for a role; None where they do not."""
    if role.value not in settings.models.model_fields_set:
        return None
    name: str | None = getattr(settings.models, role.value)
    return name


def role_folder(settings: Settings, store: ModelStore, role: ModelRole) -> Path | None:
    """Finds the folder that fills a role; what is in it is checked when it is opened.

    Returns:
        The folder; None where the role is left to another part.

    Raises:
        ModelNotFound: A setting or a choice names a model that does not exist.
        StorageCorrupt: The file of choices is damaged.
    """
    default: str | None = getattr(settings.models, role.value)
    name = explicit_model(settings, role) or store.chosen(role) or default
    return None if name is None else store.find(name)
