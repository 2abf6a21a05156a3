"""Taking a model in: copied or fetched, checked, converted, lowered, compared, described; only then is it named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edge_rag.errors import ModelError, ModelFolderInvalid, ModelNotAdded
from edge_rag.model_store.checkpoint import Checkpoint, check_checkpoint, wanted_files
from edge_rag.model_store.convert.encoders import make_encoder
from edge_rag.model_store.convert.genai import check_converter
from edge_rag.model_store.convert.generators import GENAI_WANTED, as_it_came, converted, make_generator
from edge_rag.model_store.convert.staging import StagingDir
from edge_rag.model_store.convert.subprocess import AddProgress
from edge_rag.model_store.copying import copy_files, matching, plain_files
from edge_rag.model_store.directory import StoreDirectory, refuse_hard_links
from edge_rag.model_store.hub import FetchedModel, fetch, forget
from edge_rag.model_store.request import AddRequest
from edge_rag.model_store.signature import SIGNATURE_FILE, check_copies, check_signature
from edge_rag.model_store.source import HubModel
from edge_rag.runtime.lowering.geometry import GEOMETRY_FILE
from edge_rag.runtime.model_folder.folder import (
    GeneratorForm,
    ModelManifest,
    ModelRole,
    verify_model_folder,
    write_manifest,
)
from edge_rag.runtime.model_folder.genai_config import GENAI_CONFIG_FILE
from edge_rag.runtime.model_folder.graph_check import check_sizes
from edge_rag.runtime.model_folder.manifest import MANIFEST_NAME

_IGNORED_FOLDERS = frozenset({".cache", ".git"})


def add(store: StoreDirectory, wish: AddRequest, progress: AddProgress) -> ModelManifest:
    """Adds a model to the store. Nothing of its files is opened by ONNX Runtime before all of them were checked.

    Args:
        store: Where to.
        wish: What.
        progress: Is told how far it is.

    Returns:
        The new model's manifest.

    Raises:
        ModelFolderInvalid: The source holds something that is not allowed, or is damaged; says what.
        ModelNotAdded: It cannot be fetched, converted or opened, or computes something else than it should.
        StorageError: The store's directory cannot be used, or is full.
    """
    if wish.keys and isinstance(wish.source, HubModel):
        raise ModelNotAdded(
            f"{wish.source}: a signature is over all of a model's files, only some of which are fetched here; fetch it "
            f"whole with `hf download {wish.source.repository} --local-dir FOLDER` and add FOLDER"
        )
    with store.changing():
        if wish.name in store.names():
            raise ModelNotAdded(f"there is a model {wish.name} already; remove it first or choose a --name")
        with store.staging() as staging:
            shop = StagingDir(staging, progress)
            fetched = fetch(wish.source, store.downloads(), progress) if isinstance(wish.source, HubModel) else None
            try:
                made = _make(wish, fetched, shop)
            except ModelError as error:
                # The reader knows the source, not the copy that was looked at.
                raise type(error)(str(error).replace(str(shop.source), str(wish.source))) from error
            progress.begin("bringing it to the disk")
            manifest = verify_model_folder(made)
            refuse_hard_links(made)
            store.install(made, wish.name)
        if fetched is not None:
            forget(fetched)
    return manifest


def _make(wish: AddRequest, fetched: FetchedModel | None, shop: StagingDir) -> Path:
    """Makes the finished folder; returns where it is."""
    folder = fetched.folder if fetched is not None else Path(str(wish.source))
    files = fetched.files if fetched is not None else plain_files(folder, _IGNORED_FOLDERS)
    shop.source.mkdir()
    shop.scratch.mkdir()
    signed = _signed(wish, folder, shop)
    files.pop(SIGNATURE_FILE, None)
    if MANIFEST_NAME in files and fetched is None:
        _take(folder, files, signed, shop)
        return _take_over(wish, shop)
    if GENAI_CONFIG_FILE in files:
        wanted = matching(files, GENAI_WANTED)
    elif "config.json" in files:
        check_converter()
        wanted = wanted_files(files)
    else:
        raise ModelNotAdded(
            f"{wish.source}: no model folder: neither config.json nor {GENAI_CONFIG_FILE} nor {MANIFEST_NAME} is in it"
        )
    _take(folder, {name: files[name] for name in wanted}, signed, shop)
    commit = None if fetched is None else fetched.commit
    if GENAI_CONFIG_FILE in files:
        _check_role(wish, ModelRole.GENERATOR)
        make_generator(wish, as_it_came(wish, shop), shop)
    else:
        checkpoint = check_checkpoint(shop.source)
        _check_role(wish, checkpoint.role)
        _convert(wish, checkpoint, commit, shop)
    return shop.model


def _convert(wish: AddRequest, checkpoint: Checkpoint, commit: str | None, shop: StagingDir) -> None:
    if checkpoint.role is ModelRole.GENERATOR:
        make_generator(wish, converted(wish, checkpoint, commit, shop), shop)
    else:
        make_encoder(wish, checkpoint, commit, shop)


def _check_role(wish: AddRequest, role: ModelRole) -> None:
    if wish.role not in (None, role):
        raise ModelNotAdded(f"{wish.source}: this model fills the role {role.value}, not {wish.role.value}")


def _signed(wish: AddRequest, folder: Path, shop: StagingDir) -> Mapping[str, str] | None:
    """Checks the signature where one is wanted; returns the hash of each signed file."""
    if not wish.keys:
        return None
    return check_signature(folder, _IGNORED_FOLDERS, wish.keys, shop.scratch, shop.progress)


def _take(folder: Path, files: dict[str, int], signed: Mapping[str, str] | None, shop: StagingDir) -> None:
    """Makes a private copy of what is wanted of the source."""
    try:
        check_sizes(files)
    except ValueError as error:
        raise ModelFolderInvalid(f"{folder}: {error}") from error
    shop.progress.begin("copying", sum(files.values()))
    copy_files(folder, files, shop.source, shop.progress)
    if signed is not None:
        check_copies(shop.source, signed, tuple(files))


def _take_over(wish: AddRequest, shop: StagingDir) -> Path:
    """Takes a model folder of this project's, whoever made it."""
    shop.progress.begin("checking every file")
    manifest = verify_model_folder(shop.source)
    _check_role(wish, manifest.role)
    if manifest.form is GeneratorForm.PAGED and GEOMETRY_FILE not in manifest.files:
        raise ModelNotAdded(
            f"{shop.source}: the folder of a generator holds no {GEOMETRY_FILE}; add what it was made from"
        )
    shop.progress.begin("opening it once")
    shop.step("open", shop.source)
    if manifest.name != wish.name:
        write_manifest(
            shop.source,
            name=wish.name,
            role=manifest.role,
            licence=wish.licence or manifest.licence,
            source=manifest.source,
            made_by=manifest.made_by,
            parameters=manifest.parameters,
        )
    return shop.source
