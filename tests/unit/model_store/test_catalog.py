"""The catalogue says what its shapes come to, and proposes what fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_rag.errors import ConfigurationError
from edge_rag.model_store.catalog import CatalogEntry, Shape, needs, read_catalog, recommend
from edge_rag.model_store.checkpoint import ARCHITECTURES

CATALOG = Path(__file__).parents[3] / "models" / "catalog.toml"
MIB, GIB = 1 << 20, 1 << 30
ENTRIES = read_catalog(CATALOG)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_states_what_its_shape_comes_to_and_fits_its_board(entry: CatalogEntry) -> None:
    computed = needs(entry)
    assert entry.disk_mib == round(computed.disk_bytes / MIB)
    assert entry.memory_mib == round(computed.memory_bytes / MIB)
    assert computed.memory_bytes < 0.8 * entry.board_gib * GIB
    assert entry.checked


def test_only_families_that_are_converted_are_listed() -> None:
    converted = {*(family for _, family in ARCHITECTURES.values()), "Llama 3", "SmolLM2"}
    assert {entry.family for entry in ENTRIES} <= converted


@pytest.mark.parametrize("board_gib", [2, 4, 8, 16])
def test_every_board_gets_a_proposal(board_gib: int) -> None:
    assert any(entry.board_gib == board_gib for entry in ENTRIES)
    assert recommend(ENTRIES, int(0.8 * board_gib * GIB))


def test_only_what_fits_is_proposed_the_largest_first() -> None:
    proposed = recommend(ENTRIES, 3 * GIB)
    sizes = [needs(entry).memory_bytes for entry in proposed]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) <= 3 * GIB
    assert len(proposed) < len(ENTRIES)
    assert recommend(ENTRIES, 100 * MIB) == []


def test_a_computed_size_is_the_weighed_one_of_a_lowered_folder() -> None:
    """Random weights of Qwen2.5-0.5B's shape in INT4: paged.onnx.data of 270,981,120 bytes."""
    shape = Shape(
        layers=24, hidden=896, intermediate=4864, heads=14, kv_heads=2, head_size=64, vocabulary=151_936, tied=True,
        rope_positions=32_768,
    )  # fmt: skip
    entry = next(entry for entry in ENTRIES if entry.shape == shape and entry.precision == "int4")
    assert needs(entry).disk_bytes == pytest.approx(270_981_120, rel=0.01)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("format = 1", "format = 2"), "format"),
        (('precision = "int4"', 'precision = "int3"'), "precision"),
        (('source = "hf:', 'source = "http://'), "source"),
        (("layers = 24", "layers = 0"), "layers"),
        (("[[model]]", "[[model]]\nurl = 'x'"), "url"),
        (("[[model]]", "[[model"), "cannot be read"),
    ],
)
def test_a_damaged_catalogue_is_refused_by_key(tmp_path: Path, change: tuple[str, str], key: str) -> None:
    damaged = tmp_path / "catalog.toml"
    damaged.write_text(CATALOG.read_text().replace(*change))
    with pytest.raises(ConfigurationError, match=key):
        read_catalog(damaged)
