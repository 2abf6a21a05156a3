"""Hostile and broken folders are refused with the reason, and nothing of them runs."""

import ctypes
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import onnxruntime_genai
import pytest

from edge_rag.errors import ModelFolderInvalid, ModelNotAdded
from edge_rag.model_store.add import add
from edge_rag.model_store.directory import StoreDirectory
from edge_rag.model_store.source import AddRequest, LocalFolder, ModelPrecision, NoProgress
from edge_rag.runtime.model_folder.folder import verify_model_folder
from tests.unit.model_store.attacks.attack import Attack, Canary, make_canary
from tests.unit.model_store.attacks.attacks_on_checkpoints import attacks_on_checkpoints
from tests.unit.model_store.attacks.attacks_on_configs import attacks_on_configs
from tests.unit.model_store.attacks.attacks_on_encoders import attacks_on_encoders
from tests.unit.model_store.attacks.attacks_on_files import attacks_on_files
from tests.unit.model_store.attacks.attacks_on_graphs import attacks_on_graphs
from tests.unit.model_store.attacks.attacks_on_serial_models import attacks_on_serial_models
from tests.unit.model_store.attacks.valid_folders import (
    good_checkpoint,
    good_embedder,
    good_genai,
    good_model,
    good_reranker,
    good_serial,
)

TABLE = (
    *attacks_on_configs(),
    *attacks_on_graphs(),
    *attacks_on_files(),
    *attacks_on_checkpoints(),
    *attacks_on_encoders(),
    *attacks_on_serial_models(),
)


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Canary:
    return make_canary(tmp_path_factory.mktemp("canary"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records what would have been opened or run."""
    found: list[str] = []

    def refuse(*arguments: object, **settings: object) -> object:
        found.append(repr(arguments))
        raise RuntimeError("something was opened")

    monkeypatch.setattr(onnxruntime, "InferenceSession", refuse)
    monkeypatch.setattr(onnxruntime_genai, "Model", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)  # every step and every converter is a process of its own
    return found


def test_the_table_has_the_stated_length() -> None:
    assert len(TABLE) >= 200
    assert len({attack.name for attack in TABLE}) == len(TABLE)


@pytest.mark.parametrize("attack", TABLE, ids=lambda attack: attack.name)
def test_a_hostile_or_broken_folder_is_refused_with_the_reason(
    attack: Attack, tmp_path: Path, canary: Canary, opened: list[str]
) -> None:
    folder, store = tmp_path / "model", StoreDirectory(tmp_path / "store")
    attack.build(folder, canary)
    with pytest.raises((ModelFolderInvalid, ModelNotAdded)) as refused:
        add(store, AddRequest(LocalFolder(folder), "added", ModelPrecision.INT4, None), NoProgress())
    assert attack.says in str(refused.value)
    assert ".adding-" not in str(refused.value)
    if (folder / "manifest.json").exists():
        with pytest.raises(ModelFolderInvalid):
            verify_model_folder(folder)
    assert not canary.mark.exists()
    assert opened == []
    assert store.names() == ()
    assert sorted(path.name for path in store.path.iterdir()) == [".lock"]


@pytest.mark.parametrize("build", [good_genai, good_checkpoint, good_serial, good_embedder, good_reranker])
def test_the_same_folders_with_nothing_wrong_are_opened(
    build: Callable[[Path], None], tmp_path: Path, opened: list[str]
) -> None:
    build(tmp_path / "model")
    with pytest.raises(RuntimeError, match="something was opened"):
        add(
            StoreDirectory(tmp_path / "store"),
            AddRequest(LocalFolder(tmp_path / "model"), "added", ModelPrecision.INT4, None),
            NoProgress(),
        )
    assert len(opened) == 1


def test_the_same_model_folder_with_nothing_wrong_verifies(tmp_path: Path) -> None:
    good_model(tmp_path / "model")
    assert verify_model_folder(tmp_path / "model").name == "tiny"


def test_the_canaries_would_sing(canary: Canary) -> None:
    ctypes.CDLL(str(canary.library))
    assert canary.mark.exists()
    canary.mark.unlink()
    pickle.loads(canary.pickled())
    assert canary.mark.exists()
    canary.mark.unlink()
    exec(compile(canary.python(), "canary", "exec"))
    assert canary.mark.exists()
    canary.mark.unlink()
