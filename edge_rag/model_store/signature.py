"""Signatures of model folders: OpenSSF model signing with a plain key, verified before anything else in a folder.

A model is signed with `model_signing sign key FOLDER --private_key KEY.pem --signature FOLDER/model.sig`. The signature
covers the SHA-256 of every file in the folder, so that a changed, added or missing file is detected.
"""

from __future__ import annotations

import base64
import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from edge_rag.core.file_hash import file_sha256
from edge_rag.errors import ConfigurationError, ModelFolderInvalid, ModelNotAdded
from edge_rag.model_store.directory import copy_files
from edge_rag.model_store.source import AddProgress
from edge_rag.runtime.model_folder.strict_json import parse_object

SIGNATURE_FILE = "model.sig"

_MAX_BYTES = 8 << 20
_LONGEST_REASON = 400
# The library's message has both hashes as Python bytes; the name of the file is what helps.
_HASHES = re.compile(r": Expected 'Digest\(.*?\)', Actual 'Digest\(.*?\)'", re.DOTALL)
_NEEDED = ("model_signing", "OpenSSL")


def acceptable_keys(trusted: Sequence[Path], given: Sequence[Path]) -> tuple[Path, ...]:
    """Returns the public keys, one of which must have signed a model; empty if no signature is required.

    Args:
        trusted: Keys trusted by the settings; if there are any, every model needs a signature by one of them.

    Raises:
        ConfigurationError: A key cannot be read, or is named but not trusted.
    """
    contents = {}
    for path in (*trusted, *given):
        try:
            contents[path] = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"the key {path} cannot be read: {error.strerror}") from error
    for path in given:
        if trusted and contents[path] not in [contents[one] for one in trusted]:
            raise ConfigurationError(f"the key {path} is not among models.trusted_keys")
    return tuple(given or trusted)


def check_signature(
    folder: Path, ignored: frozenset[str], keys: Sequence[Path], scratch: Path, progress: AddProgress
) -> Mapping[str, str]:
    """Verifies that one of some keys has signed a folder in its current state.

    Returns:
        SHA-256 of each signed file by path, lower-case hex; copies of the files must match it.

    Raises:
        ModelFolderInvalid: There is no signature, or no valid one by these keys; the message has the reason.
    """
    _require_packages("verifying a signature")
    path = folder / SIGNATURE_FILE
    if not path.is_file():
        raise ModelFolderInvalid(f"{folder}: there is no {SIGNATURE_FILE}, but a signature is required")
    size = path.lstat().st_size
    if size > _MAX_BYTES:
        raise ModelFolderInvalid(f"{folder}: {SIGNATURE_FILE} has {size} bytes, at most {_MAX_BYTES} are allowed")
    # From here on the copy is used, which no other process can change.
    copy_files(folder, {SIGNATURE_FILE: size}, scratch, progress)
    progress.begin("checking the signature")
    problems = [_problem(folder, ignored, key, scratch / SIGNATURE_FILE) for key in keys]
    if all(problems):
        reason = "; ".join(f"{key.name}: {problem}" for key, problem in zip(keys, problems, strict=True))
        raise ModelFolderInvalid(f"{folder}: its signature is invalid: {reason}")
    return _digests(scratch / SIGNATURE_FILE)


def sign(folder: Path, key: Path, signature: Path) -> None:
    """Signs every file of a folder.

    Args:
        key: Private key, PEM without a password, of curve P-256, P-384 or P-521.
    """
    _require_packages("signing")
    from model_signing.signing import Config as Signing

    with contextlib.redirect_stdout(io.StringIO()):
        try:
            Signing().use_elliptic_key_signer(private_key=key).sign(folder, signature)
        except Exception as error:
            raise ConfigurationError(f"the key {key} cannot sign: {str(error)[:_LONGEST_REASON]}") from error


def check_copies(copy: Path, signed: Mapping[str, str], paths: Sequence[str]) -> None:
    """Checks that copied files are the signed ones, even if the folder has changed meanwhile."""
    for path in paths:
        if signed.get(path) != file_sha256(copy / path):
            raise ModelFolderInvalid(f"{copy}: {path} is not the file that was signed")


def _require_packages(what: str) -> None:
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ModelNotAdded(f"{what} needs {', '.join(missing)}: install it with `pip install 'edge-rag[signatures]'`")


def _problem(folder: Path, ignored: frozenset[str], key: Path, signature: Path) -> str:
    """Returns why a signature is invalid for a key and a folder; empty if it is valid."""
    from model_signing.hashing import Config as Hashing
    from model_signing.verifying import Config as Verifying

    beside = [folder / SIGNATURE_FILE, *(folder / name for name in ignored)]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            hashing = Hashing().set_ignored_paths(paths=beside)
            Verifying().use_elliptic_key_verifier(public_key=key).set_hashing_config(hashing).verify(folder, signature)
        except Exception as error:  # noqa: BLE001 - the library's parsers raise what they like at hostile bytes
            reason = _HASHES.sub("", str(error))[:_LONGEST_REASON]
            return reason or f"the signature was made with another key, or is damaged ({type(error).__name__})"
    return ""


def _digests(signature: Path) -> Mapping[str, str]:
    try:
        match parse_object(signature.read_bytes()):
            case {"dsseEnvelope": {"payload": str(payload)}}:
                match parse_object(base64.b64decode(payload, validate=True)):
                    case {"predicate": {"resources": list(resources)}}:
                        return {one["name"]: one["digest"] for one in resources if one["algorithm"] == "sha256"}
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFolderInvalid(f"{SIGNATURE_FILE} is not a signature over SHA-256 of files: {error!r}") from error
    raise ModelFolderInvalid(f"{SIGNATURE_FILE} is not a signature over SHA-256 of files")
