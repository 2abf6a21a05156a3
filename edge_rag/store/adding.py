"""Taking a model in: copied or fetched, checked, converted, lowered, compared, described; only then is it named."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

import edge_rag
from edge_rag.errors import ModelError, ModelFolderInvalid, ModelNotAdded, ModelNotLowerable
from edge_rag.runtime.folder_trust import check_contents, check_sizes
from edge_rag.runtime.genai_config import GENAI_CONFIG_FILE
from edge_rag.runtime.geometry import GEOMETRY_FILE, GRAPH_FILE
from edge_rag.runtime.graph_trust import external_files
from edge_rag.runtime.model_folder import ModelManifest, ModelRole, verify_model_folder, write_manifest
from edge_rag.runtime.model_manifest import MANIFEST_NAME
from edge_rag.store.checkpoint import WANTED, check_checkpoint, licence_of
from edge_rag.store.child import run_python
from edge_rag.store.conversion import BLOCK, Precision, check_converter, convert
from edge_rag.store.copying import copy_files, matching, plain_files
from edge_rag.store.directory import StoreDirectory, refuse_hard_links
from edge_rag.store.hub import FetchedModel, fetch, forget
from edge_rag.store.progress import Progress
from edge_rag.store.source import HubModel, Source

_GENAI_WANTED = (
    "genai_config.json", "*.onnx", "*.data", "*.onnx_data", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "chat_template.jinja", "README.md", "LICENSE*",
)  # fmt: skip
_KEPT = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "LICENSE*")
_IGNORED_FOLDERS = frozenset({".cache", ".git"})
_PREPARATION = "edge_rag.store.preparation"
_STEP_S = 1800.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What an operator asks for.

    Attributes:
        source: Where the model comes from.
        name: What it is to be called.
        precision: What the weights of a Hugging Face folder are converted to.
        licence: SPDX expression; None takes what the model card says.
    """

    source: Source
    name: str
    precision: Precision
    licence: str | None


@dataclass(frozen=True, slots=True)
class _Built:
    """A folder that can be lowered, and how it came about."""

    folder: Path
    licence: str
    origin: str
    made_by: str
    parameters: dict[str, JsonValue]


def add(store: StoreDirectory, wish: Wish, progress: Progress) -> ModelManifest:
    """Adds a model to the store. Nothing of its files is opened by ONNX Runtime before all of them were checked.

    Args:
        store: Where to.
        wish: What.
        progress: Is told how far it is.

    Returns:
        The new model's manifest.

    Raises:
        ModelFolderInvalid: The source holds something that is not allowed, or is damaged; says what.
        ModelNotAdded: It cannot be fetched, converted or opened, or computes something else once it is lowered.
        ModelNotLowerable: Its graph has no paged form.
        StorageError: The store's directory cannot be used, or is full.
    """
    with store.changing():
        if wish.name in store.names():
            raise ModelNotAdded(f"there is a model {wish.name} already; remove it first or choose a --name")
        with store.staging() as staging:
            fetched = fetch(wish.source, store.downloads(), progress) if isinstance(wish.source, HubModel) else None
            try:
                made = _make(wish, fetched, staging, progress)
            except ModelError as error:
                # The reader knows the source, not the copy that was looked at.
                raise type(error)(str(error).replace(str(staging / "source"), str(wish.source))) from error
            progress.begin("bringing it to the disk")
            manifest = verify_model_folder(made)
            refuse_hard_links(made)
            store.install(made, wish.name)
        if fetched is not None:
            forget(fetched)
    return manifest


def _make(wish: Wish, fetched: FetchedModel | None, staging: Path, progress: Progress) -> Path:
    folder = fetched.folder if fetched is not None else Path(str(wish.source))
    files = fetched.files if fetched is not None else plain_files(folder, _IGNORED_FOLDERS)
    copy, scratch = staging / "source", staging / "scratch"
    copy.mkdir()
    scratch.mkdir()
    if MANIFEST_NAME in files and fetched is None:
        _take(folder, files, copy, progress)
        return _take_over(wish, copy, scratch, progress)
    if GENAI_CONFIG_FILE in files:
        wanted = matching(files, _GENAI_WANTED)
    elif "config.json" in files:
        check_converter()
        wanted = matching(files, WANTED)
    else:
        raise ModelNotAdded(
            f"{wish.source}: no model folder: neither config.json nor {GENAI_CONFIG_FILE} nor {MANIFEST_NAME} is in it"
        )
    _take(folder, {name: files[name] for name in wanted}, copy, progress)
    commit = None if fetched is None else fetched.commit
    if GENAI_CONFIG_FILE in files:
        built = _as_it_came(wish, copy)
    else:
        built = _converted(wish, commit, copy, staging / "converted", scratch, progress)
    return _lowered(wish, built, staging / "model", scratch, progress)


def _take(folder: Path, files: dict[str, int], copy: Path, progress: Progress) -> None:
    try:
        check_sizes(files)
    except ValueError as error:
        raise ModelFolderInvalid(f"{folder}: {error}") from error
    progress.begin("copying", sum(files.values()))
    copy_files(folder, files, copy, progress)


def _take_over(wish: Wish, copy: Path, scratch: Path, progress: Progress) -> Path:
    """Takes a model folder of this project's, whoever made it."""
    progress.begin("checking every file")
    manifest = verify_model_folder(copy)
    progress.begin("opening it once")
    if manifest.role is ModelRole.GENERATOR and not (copy / GEOMETRY_FILE).exists():
        raise ModelNotAdded(f"{copy}: the folder of a generator holds no {GEOMETRY_FILE}; add what it was made from")
    _step("open", [str(copy)], scratch, progress)
    if manifest.name != wish.name:
        write_manifest(
            copy,
            name=wish.name,
            role=manifest.role,
            licence=wish.licence or manifest.licence,
            source=manifest.source,
            made_by=manifest.made_by,
            parameters=manifest.parameters,
        )
    return copy


def _as_it_came(wish: Wish, copy: Path) -> _Built:
    _check_contents(copy)
    return _Built(copy, licence_of(copy), f"{_named(wish)}, {_digest(copy)}", "as it came", {"weights": "as they came"})


def _converted(wish: Wish, commit: str | None, copy: Path, target: Path, scratch: Path, progress: Progress) -> _Built:
    checkpoint = check_checkpoint(copy)
    progress.begin(f"converting to {wish.precision.value}")
    convert(copy, target, wish.precision, scratch, len(os.sched_getaffinity(0)), progress)
    for notice in copy.glob("LICENSE*"):
        shutil.copyfile(notice, target / notice.name)
    _check_contents(target)
    block = "" if wish.precision is Precision.FP32 else f", block {BLOCK}"
    parameters: dict[str, JsonValue] = {
        "weights": wish.precision.value + block,
        "family": checkpoint.family,
        "architecture": checkpoint.architecture,
    }
    origin = f"{_named(wish)}, {_digest(copy)}" if commit is None else f"{wish.source}, commit {commit}"
    if commit is not None:
        parameters["revision"] = commit
    builder = f"onnxruntime-genai {importlib.metadata.version('onnxruntime-genai')} builder, {wish.precision.value}"
    shutil.rmtree(copy)  # twice the weights would have to fit otherwise
    return _Built(target, checkpoint.licence, origin, builder + block, parameters)


def _lowered(wish: Wish, built: _Built, target: Path, scratch: Path, progress: Progress) -> Path:
    reference = scratch / "reference.npz"
    progress.begin("lowering")
    sizes = _step("lower", [str(built.folder)], scratch, progress, ModelNotLowerable)
    progress.begin("running the original graph")
    _step("generate", [str(built.folder), str(reference)], scratch, progress)
    progress.begin("comparing the lowered graph with the original")
    agreement = _step("compare", [str(built.folder), str(reference)], scratch, progress)
    if not agreement["good"]:
        raise ModelNotAdded(
            f"{wish.source}: lowered, it computes something else: {agreement['divergence']:.3f} nats apart on average, "
            f"its choice {agreement['regret']:.3f} nats behind at worst; it was not added"
        )
    progress.begin("describing it")
    target.mkdir()
    names = [path.name for path in built.folder.iterdir()]
    graph = (built.folder / GRAPH_FILE).read_bytes()
    for name in {GRAPH_FILE, GEOMETRY_FILE, *external_files(graph), *matching(names, _KEPT)}:
        (built.folder / name).rename(target / name)
    resident = agreement.pop("resident_bytes")
    write_manifest(
        target,
        name=wish.name,
        role=ModelRole.GENERATOR,
        licence=wish.licence or built.licence,
        source=built.origin,
        made_by=f"edge-rag {edge_rag.__version__} models add; {built.made_by}",
        parameters={
            **built.parameters,
            "sizes": sizes,
            "weight_bytes": sum(path.stat().st_size for path in target.iterdir()),
            "resident_bytes": resident,
            "agreement_with_original": agreement,
        },
    )
    return target


def _step(
    step: str, arguments: list[str], scratch: Path, progress: Progress, failure: type[ModelError] = ModelNotAdded
) -> dict[str, Any]:
    """Runs a step of the preparation in a process of its own; returns what it found."""
    try:
        lines = run_python(
            _PREPARATION, [step, *arguments], scratch, progress, timeout_s=_STEP_S, threads=len(os.sched_getaffinity(0))
        )
    except ModelNotAdded as error:
        raise failure(str(error)) from error
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _check_contents(folder: Path) -> None:
    try:
        check_contents(plain_files(folder), lambda path: (folder / path).read_bytes())
    except ValueError as error:
        raise ModelFolderInvalid(f"{folder}: {error}") from error


def _named(wish: Wish) -> str:
    source = wish.source
    return str(source) if isinstance(source, HubModel) else f"folder {source.path.name}"


def _digest(folder: Path) -> str:
    """Names the content of a folder: a hash over its files' names and hashes."""
    hashes: Mapping[str, str] = {path: _sha256(folder / path) for path in sorted(plain_files(folder))}
    lines = "".join(f"{digest}  {path}\n" for path, digest in hashes.items())
    return f"SHA-256 of its files' hashes {hashlib.sha256(lines.encode()).hexdigest()}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
