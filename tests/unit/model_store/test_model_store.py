"""What fills which role, and what may be removed."""

import json
import os
import shutil
from pathlib import Path

import pytest

from edge_rag.config.settings import Settings, load_settings
from edge_rag.errors import ModelFolderInvalid, ModelNeeded, ModelNotAdded, ModelNotFound, StorageCorrupt, StorageError
from edge_rag.model_store.source import AddRequest, LocalFolder, ModelPrecision, NoProgress
from edge_rag.model_store.store import (
    ModelStore,
    explicit_model,
    fill_roles,
    ignored_model,
    read_choices,
    store_of,
    write_choice,
)
from edge_rag.runtime.model_folder.manifest import ModelRole

MODELS = Path(__file__).parents[3] / "models"
QUOTER = Path(__file__).parents[2] / "fixtures" / "quoter"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in list(os.environ):
        if name.startswith("EDGE_RAG_"):
            monkeypatch.delenv(name)
    return load_settings(None, {"data_directory": tmp_path})


@pytest.fixture
def store(settings: Settings) -> ModelStore:
    """A store with a generator and an embedder."""
    store = store_of(settings)
    for name, source in (("second", QUOTER), ("encoder", MODELS / "minilm-l6")):
        shutil.copytree(source, settings.data_directory / "models" / name)
    return store


def test_built_in_and_added_models_are_listed_with_their_manifests(store: ModelStore) -> None:
    found = {model.name: model for model in store.models()}
    assert found["minilm-l6"].builtin
    assert not found["second"].builtin
    assert not any(model.chosen or model.problem for model in found.values())
    second = found["second"].manifest
    assert second is not None
    assert second.role is ModelRole.GENERATOR


def test_a_damaged_manifest_is_listed_as_a_problem_and_hides_no_other_model(
    settings: Settings, store: ModelStore
) -> None:
    (settings.data_directory / "models" / "second" / "manifest.json").write_text("{")
    found = {model.name: model for model in store.models()}
    assert "manifest.json" in found["second"].problem
    assert found["encoder"].manifest is not None


def test_a_choice_fills_the_role_until_it_is_taken_back(settings: Settings, store: ModelStore) -> None:
    assert fill_roles(settings, store).generator is None
    store.use(ModelRole.GENERATOR, "second")
    assert fill_roles(settings, store_of(settings)).generator == settings.data_directory / "models" / "second"
    assert [model.name for model in store.models() if model.chosen] == ["second"]
    store.use_default(ModelRole.GENERATOR)
    assert fill_roles(settings, store).generator is None
    assert fill_roles(settings, store).embedder == MODELS / "multilingual-e5-small"
    store.use(ModelRole.EMBEDDER, "encoder")
    assert fill_roles(settings, store).embedder == settings.data_directory / "models" / "encoder"
    store.use_default(ModelRole.EMBEDDER)
    assert fill_roles(settings, store).embedder == MODELS / "multilingual-e5-small"


def configured(settings: Settings, monkeypatch: pytest.MonkeyPatch, generator: str) -> Settings:
    monkeypatch.setenv("EDGE_RAG_MODELS__GENERATOR", generator)
    return load_settings(None, {"data_directory": settings.data_directory})


def test_a_setting_wins_over_a_choice_and_may_name_a_model_of_the_store(
    settings: Settings, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.use(ModelRole.GENERATOR, "second")
    third = shutil.copytree(QUOTER, settings.data_directory / "models" / "third")
    assert fill_roles(configured(settings, monkeypatch, "third"), store).generator == third


def test_an_empty_setting_leaves_the_generator_out_until_one_is_chosen(
    settings: Settings, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    explicit = configured(settings, monkeypatch, "")
    assert fill_roles(explicit, store).generator is None
    store.use(ModelRole.GENERATOR, "second")
    assert fill_roles(explicit, store).generator == settings.data_directory / "models" / "second"
    store.use_default(ModelRole.GENERATOR)
    assert fill_roles(explicit, store).generator is None


@pytest.mark.parametrize("named_by", ["setting", "choice"])
def test_a_generator_that_no_longer_comes_along_is_none_and_said(
    settings: Settings, store: ModelStore, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    assert ignored_model(settings, store, ModelRole.GENERATOR) is None
    if named_by == "setting":
        monkeypatch.setenv("EDGE_RAG_MODELS__GENERATOR", "quoter")
    else:
        write_choice(settings.data_directory / "models", ModelRole.GENERATOR, "quoter")
    found = load_settings(None, {"data_directory": settings.data_directory})
    assert fill_roles(found, store).generator is None
    assert explicit_model(found, store, ModelRole.GENERATOR) is None
    assert ignored_model(found, store, ModelRole.GENERATOR) == "quoter"
    # A choice that can be met fills the role in either case, and a model of that name is a model like others.
    store.use(ModelRole.GENERATOR, "second")
    assert fill_roles(found, store).generator == settings.data_directory / "models" / "second"
    store.use_default(ModelRole.GENERATOR)
    write_choice(settings.data_directory / "models", ModelRole.GENERATOR, "quoter")
    shutil.copytree(QUOTER, settings.data_directory / "models" / "quoter")
    assert fill_roles(found, store).generator == settings.data_directory / "models" / "quoter"
    assert ignored_model(found, store, ModelRole.GENERATOR) is None


def test_a_model_chosen_for_a_role_of_earlier_versions_is_ignored(settings: Settings, store: ModelStore) -> None:
    chosen = {"format": 1, "roles": {"entailment": "nli", "generator": "second"}}
    (settings.data_directory / "models" / "choices.json").write_text(json.dumps(chosen))
    assert read_choices(settings.data_directory / "models") == {ModelRole.GENERATOR: "second"}
    store.use(ModelRole.GENERATOR, "second")
    assert fill_roles(settings, store).generator == settings.data_directory / "models" / "second"


def test_any_other_model_that_is_missing_is_an_error(
    settings: Settings, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelNotFound, match="absent"):
        fill_roles(configured(settings, monkeypatch, "absent"), store)
    monkeypatch.setenv("EDGE_RAG_MODELS__EMBEDDER", "quoter")
    found = load_settings(None, {"data_directory": settings.data_directory})
    with pytest.raises(ModelNotFound, match="quoter"):
        fill_roles(found, store)


def test_a_model_for_another_role_is_not_chosen(settings: Settings, store: ModelStore) -> None:
    with pytest.raises(ModelFolderInvalid, match="a generator is wanted"):
        store.use(ModelRole.GENERATOR, "encoder")
    assert store.chosen(ModelRole.GENERATOR) is None


def test_an_altered_model_is_neither_verified_nor_chosen(settings: Settings, store: ModelStore) -> None:
    weights = settings.data_directory / "models" / "second" / "tokenizer.json"
    weights.write_bytes(weights.read_bytes()[:-1] + b" ")
    with pytest.raises(ModelFolderInvalid, match=r"tokenizer\.json was altered"):
        store.verify("second")
    with pytest.raises(ModelFolderInvalid, match=r"tokenizer\.json was altered"):
        store.use(ModelRole.GENERATOR, "second")


def test_a_backup_of_hard_links_harms_no_model_unless_others_could_write_through_it(
    settings: Settings, store: ModelStore, tmp_path: Path
) -> None:
    file = settings.data_directory / "models" / "second" / "tokenizer.json"
    file.chmod(0o644)
    os.link(file, tmp_path / "snapshot")
    assert store.verify("second").name == "quoter"
    file.chmod(0o666)
    with pytest.raises(ModelFolderInvalid, match=r"tokenizer\.json is a hard link to a file that others can write to"):
        store.verify("second")


def test_a_model_that_is_chosen_needed_or_built_in_is_not_removed(settings: Settings, store: ModelStore) -> None:
    store.use(ModelRole.GENERATOR, "second")
    with pytest.raises(ModelNeeded, match="models use generator default"):
        store.remove("second")
    with pytest.raises(ModelNeeded, match="is built-in"):
        store.remove("minilm-l6")
    with pytest.raises(ModelNeeded, match="running daemon"):
        store.remove("encoder", frozenset({"encoder"}))
    with pytest.raises(ModelNotFound):
        store.remove("absent")
    assert {model.name for model in store.models()} >= {"second", "encoder", "minilm-l6"}


def test_a_removed_model_is_gone_with_all_its_files(settings: Settings, store: ModelStore) -> None:
    store.remove("second")
    assert sorted(path.name for path in (settings.data_directory / "models").iterdir()) == [".lock", "encoder"]
    with pytest.raises(ModelNotFound, match="known models: encoder, minilm-l6, multilingual-e5-small"):
        store.find("second")


def test_the_name_of_a_built_in_model_cannot_be_taken(store: ModelStore) -> None:
    with pytest.raises(ModelNotAdded, match="built-in model"):
        store.add(AddRequest(LocalFolder(QUOTER), "minilm-l6", ModelPrecision.INT4, None), NoProgress())


def test_a_flipped_byte_never_chooses_another_model(settings: Settings, store: ModelStore) -> None:
    store.use(ModelRole.GENERATOR, "second")
    folder = settings.data_directory / "models"
    whole, chosen = (folder / "choices.json").read_bytes(), read_choices(folder)
    refused = 0
    for place in range(len(whole)):
        for bit in (1, 2, 8, 32):
            flipped = bytearray(whole)
            flipped[place] ^= bit
            (folder / "choices.json").write_bytes(flipped)
            try:
                assert read_choices(folder) == chosen
            except StorageError:
                refused += 1
    assert refused > 3 * len(whole)


def test_choices_of_before_there_was_a_digest_are_still_read(settings: Settings, store: ModelStore) -> None:
    path = settings.data_directory / "models" / "choices.json"
    path.write_bytes(b'{"format": 1, "roles": {"generator": "second"}}')
    assert fill_roles(settings, store).generator == settings.data_directory / "models" / "second"


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b'{"format": 2, "roles": {}}', b'{"format": 1}', b'{"format": 1, "roles": {"oracle": "x"}}',
        b'{"format": 1, "roles": {"generator": "../up"}}', b'{"format": 1, "roles": {"generator": 7}}',
        b'{"format": 1, "roles": [], "more": 1}',
    ],
)  # fmt: skip
def test_damaged_choices_are_named_and_can_be_made_again(settings: Settings, store: ModelStore, content: bytes) -> None:
    path = settings.data_directory / "models" / "choices.json"
    path.write_bytes(content)
    with pytest.raises(StorageCorrupt, match=r"choices\.json.*models use"):
        fill_roles(settings, store)
    store.use(ModelRole.GENERATOR, "second")
    assert fill_roles(settings, store).generator == settings.data_directory / "models" / "second"
