"""Fetching from a hub that is there, is not, breaks off, lies, or wants something."""

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from edge_rag.errors import ModelNotAdded
from edge_rag.model_store.source import HubModel, NoProgress
from edge_rag.model_store.sources.hub import choose_gguf, delete_download, fetch
from tests.unit.model_store.sources.hub_server import COMMIT, HubServer

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


GGUF_FILES = ("tiny-Q4_K_M.gguf", "tiny-Q4_K_S.gguf", "tiny.Q8_0.gguf", "mmproj-tiny-F16.gguf", "README.md")


@pytest.mark.parametrize(
    ("file", "names", "chosen"),
    [
        ("Q4_K_M", GGUF_FILES, "tiny-Q4_K_M.gguf"),
        ("q8_0", GGUF_FILES, "tiny.Q8_0.gguf"),
        ("tiny-Q4_K_S.gguf", GGUF_FILES, "tiny-Q4_K_S.gguf"),
        ("BF16", ("BF16/tiny-BF16.gguf", "tiny-F16.gguf"), "BF16/tiny-BF16.gguf"),
        ("F16", ("BF16/tiny-BF16.gguf", "tiny-F16.gguf"), "tiny-F16.gguf"),
        (None, ("tiny.gguf", "mmproj-tiny.gguf", "README.md"), "tiny.gguf"),
    ],
)
def test_a_gguf_file_is_chosen_by_name_by_quantization_or_because_it_is_the_only_one(
    file: str | None, names: tuple[str, ...], chosen: str
) -> None:
    assert choose_gguf(HubModel("owner", "tiny", None, file), names) == chosen


@pytest.mark.parametrize(
    ("file", "names", "said"),
    [
        (None, GGUF_FILES, r"several GGUF files fit.*tiny-Q4_K_M\.gguf, tiny-Q4_K_S\.gguf, tiny\.Q8_0\.gguf$"),
        ("Q2_K", GGUF_FILES, "no GGUF file fits"),
        ("K_M", GGUF_FILES, "no GGUF file fits"),
        ("absent.gguf", GGUF_FILES, "no GGUF file fits"),
        ("Q8_0", ("a-Q8_0.gguf", "b-Q8_0.gguf"), "several GGUF files fit"),
        ("Q4_0", ("t-Q4_0-00001-of-00002.gguf", "t-Q4_0-00002-of-00002.gguf"), r"several files; .*--merge"),
        ("t-00001-of-00002.gguf", ("t-00001-of-00002.gguf", "t-00002-of-00002.gguf"), r"several files; .*--merge"),
        (None, ("t-00001-of-00001.gguf",), r"several files; .*--merge"),
    ],
)
def test_a_gguf_file_that_is_not_one_is_refused_with_those_that_there_are(
    file: str | None, names: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ModelNotAdded, match=said):
        choose_gguf(HubModel("owner", "tiny", None, file), names)


def test_of_a_repository_with_gguf_files_only_the_chosen_one_is_fetched(hub: HubServer, tmp_path: Path) -> None:
    hub.files = {"Q8_0/tiny-Q8_0.gguf": WEIGHTS, "tiny-Q4_0.gguf": b"other", "README.md": b"card"}
    fetched = fetch(HubModel("owner", "tiny", None, "Q8_0"), tmp_path, NoProgress())
    assert fetched.files == {"Q8_0/tiny-Q8_0.gguf": len(WEIGHTS)}
    assert (fetched.folder / "Q8_0" / "tiny-Q8_0.gguf").read_bytes() == WEIGHTS
    assert {name for name, _ in hub.served} == {"Q8_0/tiny-Q8_0.gguf"}


def test_safetensors_are_taken_unless_a_gguf_file_is_named(hub: HubServer, tmp_path: Path) -> None:
    hub.files["tiny.gguf"] = b"GGUF"
    assert "model.safetensors" in fetch(MODEL, tmp_path, NoProgress()).files
    assert set(fetch(HubModel("owner", "tiny", None, "tiny.gguf"), tmp_path, NoProgress()).files) == {"tiny.gguf"}
