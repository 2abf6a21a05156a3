"""Each file of a data directory with a flipped byte, emptied or cut off: what happens, and what is said."""

import re
import shutil
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edge_rag.access.certificates import CertificateFolder, is_signed_by
from edge_rag.access.pairing_file import PairingFile, pairing
from edge_rag.access.tokens import TokenFile, new_token
from edge_rag.bootstrap.open_directory import OpenDirectory
from edge_rag.config.paths import certificate_path, pairing_path, token_path
from edge_rag.core.documents.document import Upload
from edge_rag.core.documents.jobs import Ticket
from edge_rag.core.identity import Identity, Quota, Role
from edge_rag.core.pairing_code import PairingCode
from edge_rag.core.query import Priority
from edge_rag.errors import AccessError, EdgeRagError
from edge_rag.model_store.store import read_choices, write_choice
from edge_rag.runtime.model_folder.folder import verify_model_folder
from edge_rag.runtime.model_folder.manifest import ModelRole
from edge_rag.storage.database import connect
from tests.unit.conftest import ingest
from tests.unit.retriever.hashed_words import HashedWords

_TEXTS = {f"{number}.txt": f"Valve {number} is serviced in month {number}. " * 60 for number in range(4)}
_QUEUED = b"This document waits in the spool."
_WARD = Identity("ward-3", frozenset({Role.READER}), None, Priority.NORMAL, Quota())
_MODEL = Path(__file__).parents[1] / "fixtures" / "tiny-cross-encoder-int8"
_NOW = datetime(2026, 11, 22, tzinfo=UTC)

WHOLE = "whole"
"""What is told where a file can be made good without anybody noticing."""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory as a killed daemon leaves it: with a log, and with a queued document."""
    folder = tmp_path_factory.mktemp("box")
    data = folder / "data"
    with closing(OpenDirectory(data, HashedWords())) as directory:
        for name, text in _TEXTS.items():
            ingest(directory, name, text)
    with closing(OpenDirectory(data, HashedWords())) as directory:
        with closing(connect(data / "documents.sqlite3")) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM documents").fetchall()
            job = directory.jobs.start("")
            upload = Upload.of_bytes("default", "queued.txt", "text/plain", _QUEUED)
            directory.jobs.accept(job.job_id, upload)
            directory.jobs.finish_uploads(job.job_id)
            shutil.copytree(data, folder / "killed")
    killed = folder / "killed"
    TokenFile(token_path(killed)).add(new_token(_WARD, _NOW)[0])
    PairingFile(pairing_path(killed), lambda: _NOW).add(
        pairing(PairingCode.make(bytes(32)), _WARD, 7, _NOW, _NOW + timedelta(minutes=10))
    )
    CertificateFolder(certificate_path(killed)).make("box", ["127.0.0.1"], _NOW)
    (killed / "models").mkdir()
    write_choice(killed / "models", ModelRole.RERANKER, "tiny")
    shutil.copytree(_MODEL, killed / "models" / "tiny")
    return killed


def of_library(data: Path) -> str:
    """Opens the library; WHOLE means that every document and the queued one are as they were."""
    with closing(OpenDirectory(data, HashedWords())) as directory:
        texts = {
            info.name: directory.documents.get("default", info.name)[1]
            for info in directory.documents.list("default", None, 9)
        }
        for name, text in texts.items():
            assert text.split() == _TEXTS[name].split()
        if directory.damage is not None:
            assert len(texts) == directory.damage.kept + directory.damage.rebuilt > 0
            return f"recovery: {directory.damage.problem}"
        assert texts.keys() == _TEXTS.keys()
        waiting = directory.jobs.waiting("", "")
        if not waiting:
            return "the queued document is gone"
        assert directory.jobs.upload(Ticket(waiting[0].order)).content.read() == _QUEUED
    return WHOLE


def of_originals(data: Path) -> str:
    with closing(OpenDirectory(data, HashedWords())) as directory:
        for name, text in _TEXTS.items():
            assert directory.documents.get("default", name)[1].split() == text.split()
        for name, text in _TEXTS.items():
            with closing(directory.documents.open_original("default", name)[1]) as file:
                assert file.read(0, file.size_bytes) == text.encode()
    return WHOLE


def of_tokens(data: Path) -> str:
    (token,) = TokenFile(token_path(data)).tokens()
    assert token.identity == _WARD
    return WHOLE


def of_pairings(data: Path) -> str:
    (known,) = PairingFile(pairing_path(data), lambda: _NOW).open_pairings()
    assert known.identity == _WARD
    return WHOLE


def of_certificates(data: Path) -> str:
    """What a client does with a certificate that no authority of its own has signed is refuse it."""
    folder = CertificateFolder(certificate_path(data))
    pair, _ = folder.server.read()
    if not is_signed_by(pair.certificate, folder.authority().certificate):
        raise AccessError(f"{folder.server.certificate}: clients refuse it")
    return WHOLE


def of_choices(data: Path) -> str:
    assert read_choices(data / "models") == {ModelRole.RERANKER: "tiny"}
    return WHOLE


def of_model(data: Path) -> str:
    verify_model_folder(data / "models" / "tiny", ModelRole.RERANKER)
    return WHOLE


_DAMAGED = r"documents.sqlite3 is damaged .*doctor --repair.*restore --replace"
_RECOVERY = "recovery: .*doctor --repair.*restore --replace"
_NO_LIBRARY = r"documents.sqlite3 is damaged \(it is empty, while spool and vectors and .* are there\).*doctor --repair"
_GONE = "the queued document is gone"
_TABLE: dict[str, tuple[Callable[[Path], str], tuple[str, ...]]] = {
    # path: how it is read; what a flipped byte, an empty file and a file cut in half lead to
    "documents.sqlite3": (of_library, (_RECOVERY, _NO_LIBRARY, _DAMAGED)),
    "documents.sqlite3-wal": (of_library, (_RECOVERY, _GONE, _GONE)),
    "vectors/1.faiss": (of_library, (WHOLE,) * 3),
    "vectors/1.json": (of_library, (WHOLE,) * 3),
    "spool/*": (of_library, ("its bytes in the spool are damaged; send it again",) * 3),
    "originals/*": (of_originals, ("damaged; delete the document and ingest it again",) * 3),
    "reserve": (of_library, (WHOLE,) * 3),
    "lock": (of_library, (WHOLE,) * 3),
    "access/tokens.json": (of_tokens, ("tokens.json: damaged; calls are refused until it is repaired or removed",) * 3),
    "access/pairings.json": (of_pairings, ("pairings.json: damaged; remove it and create the codes again",) * 3),
    "tls/server.pem": (of_certificates, ("server.pem",) * 3),
    "tls/server.key": (of_certificates, ("server.key",) * 3),
    "models/choices.json": (of_choices, ("choices.json cannot be read: .*choose the models again",) * 3),
    # The manifest's hashes are compared with the files, and its description of the model is for people.
    "models/tiny/manifest.json": (of_model, ("whole|manifest", *["tiny.*manifest.*make the folder again"] * 2)),
    "models/tiny/*.onnx": (of_model, (r"tiny.*\.onnx.*restore it",) * 3),
}


def harmed(content: bytes, harm: str) -> bytes:
    match harm:
        case "flipped":
            place = len(content) // 3
            return content[:place] + bytes((content[place] ^ 1,)) + content[place + 1 :]
        case "emptied":
            return b""
    return content[: len(content) // 2]


@pytest.mark.parametrize("harm", ["flipped", "emptied", "cut"])
@pytest.mark.parametrize("name", _TABLE)
def test_a_damaged_file_is_made_good_or_named_with_what_to_do(box: Path, tmp_path: Path, name: str, harm: str) -> None:
    """No damaged byte is taken for data; what the file is not needed for goes on."""
    data = tmp_path / "data"
    shutil.copytree(box, data, symlinks=True)
    (path,) = list(data.glob(name))[:1]
    assert path.stat().st_size or name == "lock"
    path.write_bytes(harmed(path.read_bytes() or b"1", harm))
    read, told = _TABLE[name]
    expected = told[["flipped", "emptied", "cut"].index(harm)]

    try:
        found = read(data)
    except EdgeRagError as error:
        found = str(error)

    assert re.search(expected, found, re.DOTALL), found


def test_every_file_of_a_data_directory_is_in_the_table(box: Path) -> None:
    known = {path for name in _TABLE for path in box.glob(name)}
    known |= {path for path in box.rglob("*") if path.is_relative_to(box / "models" / "tiny")}
    other = {path.name for path in box.rglob("*") if path.is_file() and path not in known}

    # SQLite makes the first anew; the authority's files are read when certificates are made, and locks are empty.
    assert other <= {"documents.sqlite3-shm", "ca.pem", "ca.key", ".tokens.json.lock", ".pairings.json.lock"}
