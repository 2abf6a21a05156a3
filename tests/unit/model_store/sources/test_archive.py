"""Models as archives: written by one box, added by another, hostile until checked."""

import io
import shutil
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.errors import ConfigurationError, EdgeRagError, ModelFolderInvalid, ModelNotAdded, StorageFull
from edge_rag.model_store.source import AddRequest, ModelArchive, NoProgress
from edge_rag.model_store.sources.archive import archive_source, unpack
from edge_rag.model_store.store import ModelStore
from tests.synthetic.tiny_model import FIXTURES
from tests.unit.model_store.test_signatures import Pair, keys  # noqa: F401 - a fixture

MODEL = "tiny-cross-encoder"


@pytest.fixture
def builtin(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES / MODEL, tmp_path / "builtin" / MODEL)
    return tmp_path / "builtin"


@pytest.fixture
def store(tmp_path: Path, builtin: Path) -> ModelStore:
    return ModelStore(tmp_path / "store", builtin)


def export(store: ModelStore, to: Path, key: Path | None = None) -> Path:
    with to.open("wb") as target:
        store.export(MODEL, target, key, NoProgress())
    return to


def take(store: ModelStore, archive: Path, *wanted: Path) -> None:
    store.add(AddRequest(archive_source(archive), "carried", None, None, keys=wanted), NoProgress())


def nothing_is_left(store: ModelStore) -> bool:
    return not store.directory.exists() or [each.name for each in store.directory.iterdir()] == [".lock"]


def test_an_exported_model_is_added_elsewhere_with_the_same_files(store: ModelStore, tmp_path: Path) -> None:
    archive = export(store, tmp_path / "model.tar")
    assert archive_source(archive) == ModelArchive(archive, MODEL)
    take(store, archive)
    carried, original = store.verify("carried"), store.manifest(MODEL)
    assert (carried.files, carried.source, carried.parameters) == (original.files, original.source, original.parameters)


def test_the_same_model_gives_the_same_bytes_and_tar_reads_them(store: ModelStore, tmp_path: Path) -> None:
    first, again = export(store, tmp_path / "first.tar"), export(store, tmp_path / "again.tar")
    assert first.read_bytes() == again.read_bytes()
    with tarfile.open(first) as members:
        assert set(members.getnames()) == {f"{MODEL}/{each.name}" for each in (FIXTURES / MODEL).iterdir()}


def test_a_model_whose_files_do_not_match_is_not_exported(store: ModelStore, builtin: Path, tmp_path: Path) -> None:
    graph = builtin / MODEL / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:-1] + b"\0")
    with pytest.raises(ModelFolderInvalid, match=r"model\.onnx"):
        export(store, tmp_path / "model.tar")


def test_a_signed_archive_is_added_where_its_key_is_wanted_and_no_other(
    store: ModelStore,
    tmp_path: Path,
    keys: tuple[Pair, Pair],  # noqa: F811
) -> None:
    ours, theirs = keys
    archive = export(store, tmp_path / "model.tar", ours.private)
    with pytest.raises(ModelFolderInvalid, match="signature is invalid"):
        take(store, archive, theirs.public)
    with pytest.raises(ModelFolderInvalid, match=r"no model\.sig"):
        take(store, export(store, tmp_path / "unsigned.tar"), ours.public)
    assert nothing_is_left(store)
    take(store, archive, ours.public)
    assert store.verify("carried").files == store.manifest(MODEL).files


def test_a_key_that_cannot_sign_is_named(store: ModelStore, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(ConfigurationError, match=r"key\.pem cannot sign"):
        export(store, tmp_path / "model.tar", tmp_path / "key.pem")


def members(*named: tuple[str, bytes, bytes], end: int = 2 * tarfile.BLOCKSIZE) -> bytes:
    written = io.BytesIO()
    for name, kind, content in named:
        header = tarfile.TarInfo(name)
        header.type, header.size, header.linkname = kind, len(content), "/etc/passwd" if kind != tarfile.REGTYPE else ""
        written.write(header.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % tarfile.BLOCKSIZE))
    return written.getvalue() + bytes(end)


PLAIN = tarfile.REGTYPE


@pytest.mark.parametrize(
    ("archive", "why"),
    [
        (b"", "no such header"),
        (b"\x1f\x8b" + bytes(600), "no such header"),
        (bytes(1024), "it is empty"),
        (members(("m/../../escaped", PLAIN, b"x")), "not a file of a model's folder"),
        (members(("/etc/escaped", PLAIN, b"x")), "not a file of a model's folder"),
        (members(("m/a\nb", PLAIN, b"x")), "not a file of a model's folder"),
        (members(("escaped", PLAIN, b"x")), "not a file of a model's folder"),
        (members(("m/link", tarfile.SYMTYPE, b"")), "not a plain file"),
        (members(("m/link", tarfile.LNKTYPE, b"")), "not a plain file"),
        (members(("m/device", tarfile.BLKTYPE, b"")), "not a plain file"),
        (members(("m/pipe", tarfile.FIFOTYPE, b"")), "not a plain file"),
        (members(("m/sparse", tarfile.GNUTYPE_SPARSE, b"")), "not a plain file"),
        (members(("m/long", tarfile.XHDTYPE, b"9" * 4096)), "not a plain file"),
        (members(("m/a", PLAIN, b"x"), ("n/b", PLAIN, b"x")), "is not in m/"),
        (members(("m/a", PLAIN, b"x"), ("m/a", PLAIN, b"x")), "occurs twice"),
        (members(("m/a", PLAIN, b"x"), ("m/a/b", PLAIN, b"x")), "occurs twice"),
        (members(("m/a", PLAIN, b"x"), end=0), "is truncated"),
        (members(("m/a", PLAIN, b"x" * 2000), end=0)[:1500], "is truncated"),
        (members(("m/a", PLAIN, b"x")) + b"more", "follows its end"),
    ],
)
def test_a_hostile_or_damaged_archive_is_refused_and_leaves_nothing(
    store: ModelStore, tmp_path: Path, archive: bytes, why: str
) -> None:
    (tmp_path / "hostile.tar").write_bytes(archive)
    with pytest.raises(ModelNotAdded, match=why):
        take(store, tmp_path / "hostile.tar")
    assert nothing_is_left(store)
    assert not list(tmp_path.rglob("escaped"))


def huge_size(archive: bytes) -> bytes:
    header = tarfile.TarInfo("m/a")
    header.size = 1 << 50
    return header.tobuf(tarfile.GNU_FORMAT) + archive


def unlisted(archive: bytes) -> bytes:
    return archive[:-1024] + members((f"{MODEL}/extra.py", PLAIN, b"import os"))


def flipped(archive: bytes) -> bytes:
    middle = archive.index(b"tokenizer.json") + 2000
    return archive[:middle] + bytes([archive[middle] ^ 1]) + archive[middle + 1 :]


@pytest.mark.parametrize("change", [huge_size, unlisted, flipped])
def test_an_altered_archive_is_refused_and_leaves_nothing(
    store: ModelStore, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    archive = export(store, tmp_path / "model.tar")
    archive.write_bytes(change(archive.read_bytes()))
    with pytest.raises((ModelNotAdded, ModelFolderInvalid)):
        take(store, archive)
    assert nothing_is_left(store)


@given(at=st.integers(0, 1 << 20), content=st.binary(max_size=600), cut=st.booleans())
def test_no_bytes_make_reading_fail_otherwise_or_write_elsewhere(
    tmp_path_factory: pytest.TempPathFactory, at: int, content: bytes, cut: bool
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    whole = members(("m/manifest.json", PLAIN, b"{}" * 400), ("m/sub/model.onnx", PLAIN, bytes(range(250)) * 3))
    at %= len(whole)
    (folder / "model.tar").write_bytes(whole[:at] + content + (b"" if cut else whole[at + len(content) :]))
    into = folder / "into"
    into.mkdir()
    with suppress(EdgeRagError):
        unpack(archive_source(folder / "model.tar"), into, NoProgress())
    assert {each.name for each in folder.iterdir()} == {"model.tar", "into"}


def test_a_full_disk_is_told_before_anything_is_written(
    store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = export(store, tmp_path / "model.tar")
    full = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(StorageFull, match="MiB are needed"):
        take(store, archive)
    assert nothing_is_left(store)
