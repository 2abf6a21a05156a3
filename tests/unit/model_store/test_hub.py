"""Fetching from a hub that is there, is not, breaks off, lies, or wants something."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from edge_rag.errors import ModelNotAdded
from edge_rag.model_store.hub import delete_download, fetch
from edge_rag.model_store.source import HubModel, NoProgress
from tests.unit.model_store.hub_server import COMMIT, HubServer

MODEL = HubModel("owner", "tiny", None)
WEIGHTS = hashlib.shake_256(b"weights").digest(300_000)


class Counting(NoProgress):
    def __init__(self) -> None:
        self.total = 0
        self.done = 0

    def begin(self, what: str, total_bytes: int | None = None) -> None:
        self.total, self.done = total_bytes or 0, 0

    def advance(self, done_bytes: int) -> None:
        self.done += done_bytes


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    files = {
        "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
        "tokenizer.json": b"{}",
        "model.safetensors": WEIGHTS,
        "modeling_evil.py": b"raise SystemExit",
        "pytorch_model.bin": b"pickle",
        "onnx/model.onnx": b"graph",
    }
    with HubServer(files) as server:
        point_at(monkeypatch, server.address)
        yield server


def point_at(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)


def test_known_files_are_fetched_with_progress_and_nothing_else(hub: HubServer, tmp_path: Path) -> None:
    progress = Counting()
    fetched = fetch(MODEL, tmp_path, progress)
    assert fetched.commit == COMMIT
    assert set(fetched.files) == {"config.json", "tokenizer.json", "model.safetensors"}
    assert (fetched.folder / "model.safetensors").read_bytes() == WEIGHTS
    assert {name for name, _ in hub.served} == set(fetched.files)
    assert progress.done == progress.total == sum(fetched.files.values())
    delete_download(fetched)
    assert not fetched.folder.exists()


def test_a_fetch_that_broke_off_goes_on_where_it_was(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 30_000)
    hub.break_off.add("model.safetensors")
    with pytest.raises(ModelNotAdded, match=r"is kept.*edge-rag models add FOLDER"):
        fetch(MODEL, tmp_path, NoProgress())
    hub.status = 0
    hub.served.clear()
    fetched = fetch(MODEL, tmp_path, NoProgress())
    assert (fetched.folder / "model.safetensors").read_bytes() == WEIGHTS
    assert [asked for name, asked in hub.served if name == "model.safetensors"] == [f"bytes={len(WEIGHTS) // 2}-"]
    assert "config.json" not in {name for name, _ in hub.served}


def test_a_file_that_does_not_match_the_hubs_hash_is_deleted_and_refused(hub: HubServer, tmp_path: Path) -> None:
    hub.stored["model.safetensors"] = "0" * 64
    with pytest.raises(ModelNotAdded, match=r"model\.safetensors does not match the hub"):
        fetch(MODEL, tmp_path, NoProgress())
    assert not list(tmp_path.rglob("model.safetensors*"))


def test_a_hub_that_cannot_be_reached_is_named_with_the_way_without_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        point_at(monkeypatch, f"http://127.0.0.1:{bound.getsockname()[1]}")
        with pytest.raises(ModelNotAdded, match=r"could not be reached.*hf download owner/tiny.*models add FOLDER"):
            fetch(MODEL, tmp_path, NoProgress())
    assert not list(tmp_path.iterdir())


def test_a_revision_that_does_not_exist_is_named(hub: HubServer, tmp_path: Path) -> None:
    with pytest.raises(ModelNotAdded, match="no revision v9"):
        fetch(HubModel("owner", "tiny", "v9"), tmp_path, NoProgress())


def test_a_licence_that_must_be_accepted_is_named(hub: HubServer, tmp_path: Path) -> None:
    hub.status = 403
    with pytest.raises(ModelNotAdded, match=r"licence must be accepted.*HF_TOKEN"):
        fetch(MODEL, tmp_path, NoProgress())


def test_a_model_without_safetensors_is_refused_before_anything_is_fetched(hub: HubServer, tmp_path: Path) -> None:
    del hub.files["model.safetensors"]
    with pytest.raises(ModelNotAdded, match=r"no config\.json with weights"):
        fetch(MODEL, tmp_path, NoProgress())
    assert hub.served == []
