"""The description of a lowered model survives being written and is not believed when it is damaged."""

import json
from pathlib import Path

import pytest

from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.lowering.geometry import PagedGeometry, describe, read_geometry

GEOMETRY = PagedGeometry(
    layers=24,
    query_heads=14,
    kv_heads=2,
    head_size=64,
    page_tokens=32,
    vocabulary_size=151_936,
    max_context=32_768,
    end_tokens=frozenset({151_645, 151_643}),
)


def test_a_written_description_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "paged.json").write_text(describe(GEOMETRY, {}))
    assert read_geometry(tmp_path) == GEOMETRY


def test_a_page_holds_keys_values_and_scales_of_every_layer() -> None:
    one_token = 24 * 2 * 2 * (64 + 4)
    assert GEOMETRY.page_bytes == 32 * one_token


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layers", 0),
        ("kv_heads", None),
        ("head_size", "64"),
        ("page_tokens", 32.0),
        ("max_context", True),
        ("end_tokens", 2),
        ("end_tokens", [151_936]),
        ("end_tokens", [-1]),
        ("format", 1),
    ],
)
def test_a_damaged_description_is_refused(tmp_path: Path, field: str, value: object) -> None:
    description = json.loads(describe(GEOMETRY, {})) | {field: value}
    (tmp_path / "paged.json").write_text(json.dumps(description))
    with pytest.raises(ModelFolderInvalid, match=field):
        read_geometry(tmp_path)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"format": 1'])
def test_a_description_that_is_not_json_of_the_format_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "paged.json").write_bytes(content)
    with pytest.raises(ModelFolderInvalid, match=r"paged\.json"):
        read_geometry(tmp_path)
