"""Adds a model: copies or fetches, verifies, converts, compares and describes it before it gets its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from edge_rag.core.file_hash import file_sha256
from edge_rag.errors import ModelError, ModelFolderInvalid, ModelNotAdded
from edge_rag.model_store.checkpoint import Checkpoint, check_checkpoint, wanted_files
from edge_rag.model_store.convert.encoders import make_encoder
from edge_rag.model_store.convert.generators import (
    GENAI_WANTED,
    check_chat_template,
    make_gguf_generator,
    make_quantized_generator,
    make_serial_generator,
)
from edge_rag.model_store.convert.staging import StagingDir
from edge_rag.model_store.directory import (
    StoreDirectory,
    copy_files,
    matching,
    plain_files,
    refuse_hard_links,
)
from edge_rag.model_store.signature import SIGNATURE_FILE, check_copies, check_signature
from edge_rag.model_store.source import (
    AddProgress,
    AddRequest,
    GgufSource,
    HubModel,
    ModelArchive,
    OllamaModel,
    PackagedModel,
    Source,
)
from edge_rag.model_store.sources.archive import unpack
from edge_rag.model_store.sources.hub import FetchedModel, delete_download, fetch
from edge_rag.model_store.sources.ollama import find_in_ollama, ollama_stores
from edge_rag.model_store.sources.packaged import stage_packaged
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


def add(store: StoreDirectory, request: AddRequest, progress: AddProgress) -> ModelManifest:
    """Adds a model to the store. ONNX Runtime opens none of its files before all of them have been checked.

    Raises:
        ModelNotAdded: It cannot be fetched, converted or opened, or computes something else than the original.
    """
    if request.keys and isinstance(request.source, HubModel):
        raise ModelNotAdded(
            f"{request.source}: a signature covers all files of a model, only some of which are fetched here; fetch "
            f"all of them with `hf download {request.source.repository} --local-dir FOLDER` and add FOLDER"
        )
    with store.changing():
        if request.name in store.names():
            raise ModelNotAdded(f"a model {request.name} exists; remove it first or choose another --name")
        with store.staging() as staging:
            staging_dir = StagingDir(staging, progress)
            fetched = (
                fetch(request.source, store.downloads(), progress) if isinstance(request.source, HubModel) else None
            )
            try:
                made = _make(request, fetched, staging_dir)
            except ModelError as error:
                # The user knows the source, not the private copy that was checked.
                message = str(error)
                for copy in (staging_dir.source, staging_dir.model):
                    message = message.replace(str(copy), str(request.source))
                raise type(error)(message) from error
            progress.begin("syncing it to the disk")
            manifest = verify_model_folder(made)
            refuse_hard_links(made)
            store.install(made, request.name)
        if fetched is not None:
            delete_download(fetched)
    return manifest


def _make(request: AddRequest, fetched: FetchedModel | None, staging_dir: StagingDir) -> Path:
    """Builds the finished folder and returns its path."""
    staging_dir.source.mkdir()
    staging_dir.scratch.mkdir()
    gguf = [] if fetched is None else [path for path in fetched.files if path.endswith(".gguf")]
    if gguf or isinstance(request.source, GgufSource | OllamaModel | PackagedModel):
        return _add_gguf(request, fetched, staging_dir)
    if isinstance(request.source, ModelArchive):
        unpack(request.source, staging_dir.source, staging_dir.progress)
        _signed(request, staging_dir.source, staging_dir)
        (staging_dir.source / SIGNATURE_FILE).unlink(missing_ok=True)
        return _add_finished(request, staging_dir)
    folder = fetched.folder if fetched is not None else Path(str(request.source))
    files = fetched.files if fetched is not None else plain_files(folder, _IGNORED_FOLDERS)
    signed = _signed(request, folder, staging_dir)
    files.pop(SIGNATURE_FILE, None)
    if MANIFEST_NAME in files and fetched is None:
        _copy_source(folder, files, signed, staging_dir)
        return _add_finished(request, staging_dir)
    if GENAI_CONFIG_FILE in files:
        wanted = matching(files, GENAI_WANTED)
    elif "config.json" in files:
        wanted = wanted_files(files)
    else:
        raise ModelNotAdded(
            f"{request.source}: not a model folder: it has no config.json, {GENAI_CONFIG_FILE} or {MANIFEST_NAME}"
        )
    _copy_source(folder, {name: files[name] for name in wanted}, signed, staging_dir)
    commit = None if fetched is None else fetched.commit
    if GENAI_CONFIG_FILE in files:
        _check_role(request, ModelRole.GENERATOR)
        make_serial_generator(request, staging_dir)
    else:
        checkpoint = check_checkpoint(staging_dir.source)
        _check_role(request, checkpoint.role)
        _convert(request, checkpoint, commit, staging_dir)
    return staging_dir.model


def _add_gguf(request: AddRequest, fetched: FetchedModel | None, staging_dir: StagingDir) -> Path:
    if request.keys:
        raise ModelNotAdded(
            f"{request.source}: a signature is required, and a GGUF file has none; sign the folder made of it"
        )
    if request.precision is not None:
        raise ModelNotAdded(
            f"{request.source}: --precision is for Hugging Face folders; the weights of a GGUF file stay as they are"
        )
    _check_role(request, ModelRole.GENERATOR)
    file = _stage_gguf(request.source, fetched, staging_dir)
    if isinstance(request.source, PackagedModel) and request.licence is None:
        request = replace(request, licence=request.source.package.licence)
    make_gguf_generator(request, file, None if fetched is None else fetched.commit, staging_dir)
    return staging_dir.model


def _stage_gguf(source: Source, fetched: FetchedModel | None, staging_dir: StagingDir) -> Path:
    """Makes a private copy of a source's GGUF file, compares it with the source's hash if there is one; returns it."""
    match source:
        case PackagedModel():
            return stage_packaged(source, staging_dir.source, staging_dir.scratch, staging_dir.progress)
        case OllamaModel():
            found = find_in_ollama(source, ollama_stores())
            _copy_source(found.weights.parent, {found.weights.name: found.bytes}, None, staging_dir)
            copy = (staging_dir.source / found.weights.name).rename(staging_dir.source / f"{source.name}.gguf")
            if file_sha256(copy) != found.sha256:
                raise ModelFolderInvalid(
                    f"{found.weights}: does not have the SHA-256 of its name; `ollama pull` it again"
                )
            if found.licence:
                (staging_dir.source / "LICENSE").write_text(found.licence, "utf-8")
            return copy
        case GgufSource():
            _copy_source(source.path.parent, {source.path.name: source.path.stat().st_size}, None, staging_dir)
            return (staging_dir.source / source.path.name).rename(staging_dir.source / source.file_name)
        case _:
            assert fetched is not None
            folder, files = fetched.folder, fetched.files
    _copy_source(folder, files, None, staging_dir)
    return staging_dir.source / next(iter(files))


def _convert(request: AddRequest, checkpoint: Checkpoint, commit: str | None, staging_dir: StagingDir) -> None:
    if checkpoint.role is ModelRole.GENERATOR:
        make_quantized_generator(request, checkpoint, commit, staging_dir)
    else:
        make_encoder(request, checkpoint, commit, staging_dir)


def _check_role(request: AddRequest, role: ModelRole) -> None:
    if request.role not in (None, role):
        raise ModelNotAdded(f"{request.source}: this model fills the role {role.value}, not {request.role.value}")


def _signed(request: AddRequest, folder: Path, staging_dir: StagingDir) -> Mapping[str, str] | None:
    if not request.keys:
        return None
    return check_signature(folder, _IGNORED_FOLDERS, request.keys, staging_dir.scratch, staging_dir.progress)


def _copy_source(
    folder: Path, files: dict[str, int], signed: Mapping[str, str] | None, staging_dir: StagingDir
) -> None:
    try:
        check_sizes(files)
    except ValueError as error:
        raise ModelFolderInvalid(f"{folder}: {error}") from error
    staging_dir.progress.begin("copying", sum(files.values()))
    copy_files(folder, files, staging_dir.source, staging_dir.progress)
    if signed is not None:
        check_copies(staging_dir.source, signed, tuple(files))


def _add_finished(request: AddRequest, staging_dir: StagingDir) -> Path:
    """Adds a finished model folder of edge-rag, which need not be this machine's."""
    staging_dir.progress.begin("checking every file")
    manifest = verify_model_folder(staging_dir.source)
    _check_role(request, manifest.role)
    if manifest.form is GeneratorForm.PAGED and GEOMETRY_FILE not in manifest.files:
        raise ModelNotAdded(
            f"{staging_dir.source}: the generator's folder has no {GEOMETRY_FILE}; add the model that it was made from"
        )
    if manifest.role is ModelRole.GENERATOR:
        check_chat_template(staging_dir.source)
    staging_dir.progress.begin("opening it once")
    staging_dir.step("open", staging_dir.source)
    write_manifest(  # with its new name, and with a digest of itself if it had none
        staging_dir.source,
        name=request.name,
        role=manifest.role,
        licence=request.licence or manifest.licence,
        source=manifest.source,
        made_by=manifest.made_by,
        parameters=manifest.parameters,
    )
    return staging_dir.source
