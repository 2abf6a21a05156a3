"""The model of each role: an explicit setting, else the choice of ``models use``, else the default of the settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge_rag.config.settings import Settings
from edge_rag.model_store.store import STORE_FOLDER, ModelStore
from edge_rag.runtime.model_folder.manifest import ModelRole


@dataclass(frozen=True, slots=True)
class RoleFolders:
    """Folders of the models that a daemon opens.

    Attributes:
        embedder: Folder of the embedding model.
        reranker: Folder of a cross-encoder; None if the embedder's token vectors are used for reranking.
        generator: Folder of the language model.
    """

    embedder: Path
    reranker: Path | None
    generator: Path


def store_of(settings: Settings) -> ModelStore:
    """Returns the model store of a data directory."""
    return ModelStore(settings.data_directory / STORE_FOLDER, settings.models.directory)


def explicit_model(settings: Settings, role: ModelRole) -> str | None:
    """Returns the model named for a role by file, environment or command line; None if none of them names one."""
    if role.value not in settings.models.model_fields_set:
        return None
    name: str | None = getattr(settings.models, role.value)
    return name


def fill_roles(settings: Settings, store: ModelStore) -> RoleFolders:
    """Returns the folder of each role's model; the folders are checked when they are opened.

    Raises:
        ModelNotFound: A setting or a choice names a model that does not exist.
        StorageCorrupt: The file of choices is damaged.
    """
    reranker = model_of(settings, store, ModelRole.RERANKER)
    return RoleFolders(
        embedder=store.find(model_of(settings, store, ModelRole.EMBEDDER) or settings.models.embedder),
        reranker=None if reranker is None else store.find(reranker),
        generator=store.find(model_of(settings, store, ModelRole.GENERATOR) or settings.models.generator),
    )


def model_of(settings: Settings, store: ModelStore, role: ModelRole) -> str | None:
    """Returns the name of a role's model; None if the role has none.

    Raises:
        StorageCorrupt: The file of choices is damaged.
    """
    default: str | None = getattr(settings.models, role.value)
    return explicit_model(settings, role) or store.chosen(role) or default
