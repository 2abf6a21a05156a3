"""An index file is believed only when its manifest vouches for every byte and for the state it mirrors."""

from dataclasses import replace
from pathlib import Path

import pytest

from edge_rag.index.file import IndexFile, IndexManifest

_MANIFEST = IndexManifest("model-1", 4, "abc", 7)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    IndexFile(tmp_path, 3).write(b"content", _MANIFEST)

    assert IndexFile(tmp_path, 3).read(_MANIFEST) == b"content"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["3.faiss", "3.json"]


@pytest.mark.parametrize(
    "expected",
    [
        replace(_MANIFEST, embedder="model-2"),
        replace(_MANIFEST, dimension=5),
        replace(_MANIFEST, generation="abd"),
        replace(_MANIFEST, count=8),
    ],
)
def test_an_index_of_another_state_is_not_read(tmp_path: Path, expected: IndexManifest) -> None:
    IndexFile(tmp_path, 3).write(b"content", _MANIFEST)

    assert IndexFile(tmp_path, 3).read(expected) is None


@pytest.mark.parametrize("at", range(7))
def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path, at: int) -> None:
    IndexFile(tmp_path, 3).write(b"content", _MANIFEST)
    file = tmp_path / "3.faiss"
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)

    assert IndexFile(tmp_path, 3).read(_MANIFEST) is None


@pytest.mark.parametrize("manifest", [b"", b"{", b"[]", b"{}", b"\xff"])
def test_content_with_a_damaged_manifest_is_not_used(tmp_path: Path, manifest: bytes) -> None:
    IndexFile(tmp_path, 3).write(b"content", _MANIFEST)
    (tmp_path / "3.json").write_bytes(manifest)

    assert IndexFile(tmp_path, 3).read(_MANIFEST) is None


def test_a_crash_between_content_and_manifest_leaves_nothing_to_believe(tmp_path: Path) -> None:
    IndexFile(tmp_path, 3).write(b"old", _MANIFEST)
    old = (tmp_path / "3.json").read_bytes()
    newer = replace(_MANIFEST, generation="newer")
    IndexFile(tmp_path, 3).write(b"new", newer)
    (tmp_path / "3.json").write_bytes(old)

    assert IndexFile(tmp_path, 3).read(_MANIFEST) is None
    assert IndexFile(tmp_path, 3).read(newer) is None


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    IndexFile(tmp_path, 3).write(b"old", _MANIFEST)
    (tmp_path / ".3.faiss.partial").mkdir()

    with pytest.raises(OSError, match="directory"):
        IndexFile(tmp_path, 3).write(b"new", _MANIFEST)

    assert IndexFile(tmp_path, 3).read(_MANIFEST) == b"old"
