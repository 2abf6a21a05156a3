"""The catalogue says what its shapes come to, and proposes what fits."""

from pathlib import Path

import pytest

from edge_rag.errors import ConfigurationError
from edge_rag.model_store.catalog import (
    Catalog,
    CatalogEntry,
    EncoderEntry,
    encoder_needs,
    expected_speed,
    needs,
    read_catalog,
    recommend,
)
from edge_rag.model_store.checkpoint import ARCHITECTURES
from edge_rag.model_store.source import HubModel, PackagedModel, parse_source
from edge_rag.runtime.decoder.product_speed import ProductSpeed, measure_product_speed, remembered_product_speed
from edge_rag.runtime.model_folder.folder import ModelRole, read_manifest

CATALOG = Path(__file__).parents[3] / "models" / "catalog.toml"
MIB, GIB = 1 << 20, 1 << 30
READ = read_catalog(CATALOG)
ENTRIES = READ.generators


def both(catalog: Catalog) -> list[CatalogEntry | EncoderEntry]:
    return [*catalog.generators, *catalog.encoders]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_fits_its_board_and_its_source_is_one(entry: CatalogEntry) -> None:
    assert needs(entry).memory_bytes < 0.8 * entry.board_gib * GIB
    source = parse_source(entry.source)
    assert isinstance(source, PackagedModel) or (isinstance(source, HubModel) and source.file)
    assert isinstance(parse_source(entry.weights), HubModel)
    assert entry.checked
    assert entry.good_for


@pytest.mark.parametrize("entry", READ.encoders, ids=lambda entry: entry.name)
def test_an_encoder_is_one_of_the_hub_or_one_that_comes_along(entry: EncoderEntry) -> None:
    folder = CATALOG.parent / entry.source
    if entry.comes_along:
        manifest = read_manifest(folder)
        assert (manifest.role.value, manifest.licence) == (entry.role, entry.licence)
        assert manifest.integer("max_tokens", 1, 1 << 20) == entry.longest_input
        assert manifest.integer("dimension", 1, 1 << 20) == entry.shape.hidden
        weighed = sum(record.bytes for name, record in manifest.files.items() if name == "model.onnx")
        assert weighed == pytest.approx(encoder_needs(entry).disk_bytes, rel=0.1)
    else:
        source = parse_source(entry.source)
        assert isinstance(source, HubModel)
        assert source.file is None
    assert entry.longest_input <= entry.shape.positions or not entry.shape.positions
    assert entry.checked.startswith("run: ") == entry.comes_along


def test_only_families_that_are_converted_are_listed() -> None:
    converted = {*ARCHITECTURES.values(), *((ModelRole.GENERATOR, name) for name in ("Llama 3", "SmolLM2"))}
    listed = {(ModelRole(entry.role), entry.family) for entry in both(READ)}
    assert listed <= converted


@pytest.mark.parametrize("board_gib", [2, 4, 8, 16])
def test_every_board_gets_a_proposal(board_gib: int) -> None:
    assert any(entry.board_gib == board_gib for entry in ENTRIES)
    assert recommend(READ, int(0.8 * board_gib * GIB)).generators


def test_only_what_fits_is_proposed_in_the_catalogues_order() -> None:
    generators = tuple(entry for entry in ENTRIES if needs(entry).memory_bytes <= 3 * GIB)
    assert 0 < len(generators) < len(ENTRIES)
    assert recommend(READ, 3 * GIB).generators == generators
    encoders = tuple(entry for entry in READ.encoders if encoder_needs(entry).memory_bytes <= 600 * MIB)
    assert 0 < len(encoders) < len(READ.encoders)
    assert recommend(READ, 600 * MIB).encoders == encoders
    nothing = recommend(READ, 100 * MIB)
    assert (nothing.generators, nothing.encoders) == ((), ())


@pytest.mark.parametrize("role", ModelRole)
def test_a_role_gets_models_of_that_role(role: ModelRole) -> None:
    found = recommend(READ, 64 * GIB, role)
    assert {entry.role for entry in both(found)} == {role.value}


def test_an_expected_speed_is_what_a_step_reads_over_what_was_measured() -> None:
    entry = next(entry for entry in ENTRIES if entry.name == "smollm2-135m")
    measured = ProductSpeed(2, {(4, 1): 10e9, (4, 8): 8e9, (8, 1): 5e9, (8, 8): 4e9})
    layer = 576 * (2 * 9 * 64 + 2 * 3 * 64) + 3 * 576 * 1536
    weights = 30 * layer + 576 * 49152
    kv_s = 1024 * 30 * 2 * 3 * 68 / 5e9
    speed = expected_speed(entry, measured)
    assert speed.one == pytest.approx(1 / (weights / 10e9 + kv_s))
    assert speed.eight == pytest.approx(8 / (weights / 8e9 + 8 * kv_s))
    assert 134e6 < weights < 135e6


def test_this_machine_is_measured_in_every_case() -> None:
    measured = measure_product_speed(seconds=0.01)
    assert measured.threads >= 1
    assert set(measured.weights_per_s) == {(4, 1), (4, 8), (8, 1), (8, 8)}
    assert all(1e6 < each < 1e13 for each in measured.weights_per_s.values())


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("format = 2", "format = 1"), "format"),
        (("bits = 4", "bits = 3"), "bits"),
        (('source = "hf:', 'source = "http://'), "source"),
        (("layers = 28", "layers = 0"), "layers"),
        (("[[model]]", "[[model]]\nurl = 'x'"), "url"),
        (("[[model]]", "[[model"), "cannot be read"),
    ],
)
def test_a_damaged_catalogue_is_refused_by_key(tmp_path: Path, change: tuple[str, str], key: str) -> None:
    damaged = tmp_path / "catalog.toml"
    damaged.write_text(CATALOG.read_text().replace(*change))
    with pytest.raises(ConfigurationError, match=key):
        read_catalog(damaged)


def test_the_speed_of_a_machine_is_measured_once_for_its_processor(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "speed.json"
    measured: list[ProductSpeed] = []

    def measure() -> ProductSpeed:
        measured.append(ProductSpeed(1, {(bits, rows): 1e9 + len(measured) for bits in (4, 8) for rows in (1, 8)}))
        return measured[-1]

    def speed(processor: str = "one", again: bool = False) -> float:
        return remembered_product_speed(processor, again, measure, cache).weights_per_s[4, 1]

    assert (speed(), speed(), len(measured)) == (1e9, 1e9, 1)
    assert speed("another") == speed("another") == 1e9 + 1
    assert speed("another", again=True) == speed("another") == 1e9 + 2
    cache.write_text("{")
    assert (speed("another"), len(measured)) == (1e9 + 3, 4)
