"""Fetches models from the Hugging Face hub: known files only, resumable, each verified with the hub's hash."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_rag.core.file_hash import file_sha256
from edge_rag.errors import ModelNotAdded
from edge_rag.model_store.checkpoint import wanted_files
from edge_rag.model_store.directory import check_space
from edge_rag.model_store.source import AddProgress, HubModel

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

_TIMEOUT_S = 20.0
_COMMIT = re.compile(r"[0-9a-f]{40}")
_GGUF = ".gguf"
_SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_PROJECTOR = re.compile(r"mmproj", re.IGNORECASE)
_OFFLINE = (
    "Without the hub: fetch the model on a machine that reaches it (`hf download {repository} --local-dir FOLDER`), "
    "carry FOLDER over and run `edge-rag models add FOLDER`"
)


@dataclass(frozen=True, slots=True)
class FetchedModel:
    """A fetched model."""

    folder: Path
    commit: str
    files: dict[str, int]


def fetch(model: HubModel, downloads: Path, progress: AddProgress) -> FetchedModel:
    """Fetches a model's weights, configuration and tokenizer, or its GGUF file; continues an interrupted download.

    The address of the hub and the access token come from the environment (``HF_ENDPOINT``, ``HF_TOKEN``).

    Raises:
        ModelNotAdded: The hub cannot be reached, has no such model or revision, or requires a licence to be accepted;
            or a fetched file does not match the hub's hash.
    """
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    progress.begin(f"querying the hub for {model.repository}")
    try:
        info = HfApi(endpoint=_endpoint()).model_info(
            model.repository, revision=model.revision, files_metadata=True, timeout=_TIMEOUT_S
        )
    except GatedRepoError as error:
        raise ModelNotAdded(
            f"{model}: its licence must be accepted on the hub first; then give a token with HF_TOKEN"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelNotAdded(f"{model}: the hub has the model, but no revision {model.revision}") from error
    except RepositoryNotFoundError as error:
        raise ModelNotAdded(f"{model}: the hub has no such model, or wants a token (HF_TOKEN) to show it") from error
    except Exception as error:
        raise _unreachable(model, error) from error
    files = _files_to_fetch(model, info)
    commit = str(info.sha)
    if not _COMMIT.fullmatch(commit):
        raise ModelNotAdded(f"{model}: the hub sent no commit")
    folder = downloads / f"{model.owner}--{model.name}@{commit}"
    folder.mkdir(mode=0o700, exist_ok=True)
    check_space(folder, sum(size for path, size in files.items() if not (folder / path).exists()))
    progress.begin(f"fetching {model.repository}", sum(files.values()))
    for sibling in sorted(info.siblings or (), key=lambda sibling: sibling.rfilename):
        if sibling.rfilename in files:
            _fetch_file(model, commit, sibling, folder, progress)
    return FetchedModel(folder, commit, files)


def delete_download(fetched: FetchedModel) -> None:
    shutil.rmtree(fetched.folder, ignore_errors=True)


def _files_to_fetch(model: HubModel, info: ModelInfo) -> dict[str, int]:
    sizes = {sibling.rfilename: sibling.size for sibling in info.siblings or ()}
    selected: Iterable[str] = wanted_files(sizes)
    converted = "config.json" in selected and any(name.endswith(".safetensors") for name in selected)
    if model.file is not None or (not converted and any(name.endswith(_GGUF) for name in sizes)):
        selected = [choose_gguf(model, sizes)]
    elif not converted:
        raise ModelNotAdded(
            f"{model}: has no config.json with weights in model.safetensors, and no GGUF file; it cannot be converted"
        )
    selected = list(selected)
    files = {name: size for name in selected if (size := sizes[name]) is not None}
    if len(files) < len(selected):
        raise ModelNotAdded(f"{model}: the hub does not report the sizes of its files")
    return files


def choose_gguf(model: HubModel, names: Iterable[str]) -> str:
    """Returns the GGUF file of a repository that is meant.

    Args:
        model: The model; its ``file`` is a path, or the last part of a file's name such as ``Q4_K_M``, or None if there
            is only one file.

    Raises:
        ModelNotAdded: There is none, there are several, or the model is divided into several files.
    """
    files = sorted(name for name in names if name.endswith(_GGUF) and not _PROJECTOR.match(name.rpartition("/")[2]))
    wanted = model.file
    if wanted is None:
        found = files
    elif wanted.endswith(_GGUF):
        found = [name for name in files if name == wanted]
    else:
        ending = re.compile(rf"(?:^|[-./]){re.escape(wanted)}(?:-\d{{5}}-of-\d{{5}})?\.gguf", re.IGNORECASE)
        found = [name for name in files if ending.search(name)]
    if any(_SPLIT.search(name) for name in found):
        raise ModelNotAdded(
            f"{model}: {found[0]} is a part of a model divided into several files; take a quantization of one file, or "
            "join the parts with `llama-gguf-split --merge` and add the result"
        )
    if len(found) != 1:
        known = ", ".join(files) or "none"
        many = "several GGUF files fit" if found else "no GGUF file fits"
        raise ModelNotAdded(f"{model}: {many}; name one with hf:{model.repository}:FILE. There are: {known}")
    return found[0]


def _fetch_file(model: HubModel, commit: str, sibling: RepoSibling, folder: Path, progress: AddProgress) -> None:
    """Fetches a file, continuing an earlier run, and renames it once it is complete and verified."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    name, target = sibling.rfilename, folder / sibling.rfilename
    if target.exists():
        progress.advance(target.stat().st_size)
        return
    # The library's own download does not keep incomplete files across processes.
    partial = folder / f"{name}.partial"
    partial.parent.mkdir(parents=True, exist_ok=True)
    with partial.open("ab") as file:
        try:
            http_get(
                hf_hub_url(model.repository, name, revision=commit, endpoint=_endpoint()),
                file,
                resume_size=file.tell(),
                headers={**build_hf_headers(), "Accept-Encoding": "identity"},
                expected_size=sibling.size,
                tqdm_class=_reporting(progress),
            )
        except Exception as error:
            raise _unreachable(model, error) from error
    if partial.stat().st_size != sibling.size or not _hash_matches(partial, sibling):
        partial.unlink()
        raise ModelNotAdded(f"{model}: {name} does not match the hub's hash; it was deleted, try again")
    partial.rename(target)


def _hash_matches(path: Path, sibling: RepoSibling) -> bool:
    """Compares a file's hash with the hub's: SHA-256 of large files, git's object hash of the others."""
    if sibling.lfs is not None:
        return file_sha256(path) == sibling.lfs.sha256
    content = path.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    return sibling.blob_id in (None, blob)


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _unreachable(model: HubModel, error: Exception) -> ModelNotAdded:
    lines = str(error).strip().splitlines()
    reason = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return ModelNotAdded(
        f"{model}: the hub could not be reached or closed the connection ({reason}). Fetched data is kept for the "
        f"next attempt. {_OFFLINE.format(repository=model.repository)}"
    )


def _reporting(progress: AddProgress) -> Any:
    """Returns a class of progress bars that display nothing and report to ``progress``."""
    from huggingface_hub.utils.tqdm import tqdm

    class Reporting(tqdm):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **{**settings, "disable": True})  # type: ignore[no-untyped-call]
            if begun := settings.get("initial"):
                progress.advance(int(begun))

        def update(self, n: float | None = 1) -> bool | None:
            progress.advance(int(n or 0))
            return None

    return Reporting
