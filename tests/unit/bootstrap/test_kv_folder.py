"""Data directories of versions that kept KV pages on disk."""

from pathlib import Path

from edge_rag.bootstrap.app import drop_kv_folder


def test_kv_pages_of_earlier_versions_are_removed(tmp_path: Path) -> None:
    page = tmp_path / "kv" / "pages" / "a" / "default-1" / "page"
    page.parent.mkdir(parents=True)
    page.write_bytes(b"keys and values")
    drop_kv_folder(tmp_path / "kv")
    assert not (tmp_path / "kv").exists()


def test_a_directory_without_kv_pages_opens(tmp_path: Path) -> None:
    drop_kv_folder(tmp_path / "kv")
