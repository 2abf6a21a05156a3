import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder
from edge_rag.runtime.model_folder.manifest import parse_manifest, render_manifest
from tests.support.model_folders import describe_model

ROOT = Path(__file__).parents[4]
CONTENT = {"model.data": b"weights " * 1000, "tokenizer.json": b"{}", "parts/extra.data": b"more"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    for path, content in CONTENT.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_bytes(content)
    return describe_model(made, ModelRole.EMBEDDER, dimension=4, flags=[True, None])


def manifest_of(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return document


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the manifest as somebody does who may write to it: in the format without a digest."""
    document = manifest_of(folder)
    document["format"] = 1
    document.pop("sha256", None)
    change(document)
    (folder / "manifest.json").write_text(json.dumps(document))


def test_a_written_folder_verifies_and_its_manifest_is_read_back(folder: Path) -> None:
    manifest = verify_model_folder(folder, ModelRole.EMBEDDER, required=("model.data",))
    assert (manifest.name, manifest.role, manifest.licence) == ("tiny", ModelRole.EMBEDDER, "Apache-2.0")
    assert {path: record.bytes for path, record in manifest.files.items()} == {
        path: len(content) for path, content in CONTENT.items()
    }
    assert manifest.integer("dimension", 1, 10) == 4


def test_a_manifest_survives_being_written_and_read(folder: Path) -> None:
    manifest = verify_model_folder(folder)
    assert parse_manifest(render_manifest(manifest)) == manifest


def test_writing_a_manifest_again_replaces_it_and_leaves_nothing_behind(folder: Path) -> None:
    (folder / "model.data").write_bytes(b"other weights")
    describe_model(folder, ModelRole.GENERATOR)
    assert verify_model_folder(folder).role is ModelRole.GENERATOR
    assert sorted(path.name for path in folder.parent.iterdir()) == ["model"]


@dataclass(frozen=True)
class Damage:
    do: Callable[[Path], object]
    says: tuple[str, ...]


def link_a_folder(folder: Path) -> None:
    (folder / "parts").rename(folder.parent / "parts")
    (folder / "parts").symlink_to(folder.parent / "parts", target_is_directory=True)


def link_the_manifest(folder: Path) -> None:
    (folder / "manifest.json").rename(folder.parent / "outside.json")
    (folder / "manifest.json").symlink_to(folder.parent / "outside.json")


def hard_link_that_others_can_write(folder: Path) -> None:
    os.link(folder / "model.data", folder.parent / "second-name")
    (folder / "model.data").chmod(0o666)


def replace_manifest(content: str | bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "manifest.json").write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )


def set_key(key: str, value: object) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder, lambda document: document.__setitem__(key, value))


def drop_key(key: str) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder, lambda document: document.pop(key))


def set_record(record: object) -> Callable[[Path], None]:
    return lambda folder: rewrite(folder, lambda document: document["files"].__setitem__("model.data", record))


RECORD = {"sha256": "0" * 64, "bytes": 6}

DAMAGES = {
    "the folder is gone": Damage(lambda folder: folder.rename(folder.parent / "gone"), ("no such model folder",)),
    "no manifest": Damage(lambda folder: (folder / "manifest.json").unlink(), ("manifest.json", "not a model folder")),
    "a nested file is missing": Damage(lambda folder: (folder / "parts/extra.data").unlink(), ("parts/extra.data",)),
    "emptied": Damage(lambda folder: os.truncate(folder / "model.data", 0), ("truncated", "0 found")),
    "grown": Damage(lambda folder: os.truncate(folder / "model.data", 8001), ("model.data", "longer", "8000")),
    "a stray nested file": Damage(lambda folder: (folder / "parts/.x").write_bytes(b"x"), ("parts/.x",)),
    "a linked folder": Damage(link_a_folder, ("parts", "symbolic link")),
    "a linked manifest": Damage(link_the_manifest, ("manifest.json", "symbolic link")),
    "a dangling link": Damage(lambda folder: (folder / "y").symlink_to("/nowhere"), ("y", "symbolic link")),
    "a hard link others can write": Damage(hard_link_that_others_can_write, ("model.data", "hard link", "copy")),
    "the manifest lists itself": Damage(set_key("files", {"manifest.json": RECORD}), ("cannot list itself",)),
    "not UTF-8": Damage(replace_manifest(b"\xff\xfe"), ("manifest.json", "not a valid manifest")),
    "not an object": Damage(replace_manifest("[]"), ("manifest.json", "not a valid manifest")),
    "a number that is none": Damage(replace_manifest('{"format": NaN}'), ("NaN",)),
    "an earlier format with a digest": Damage(set_key("sha256", "0" * 64), ("sha256",)),
    "no licence": Damage(drop_key("licence"), ("licence",)),
    "a hash that is none": Damage(set_record({"sha256": "00", "bytes": 8000}), ("sha256",)),
    "a size as text": Damage(set_record({"sha256": "0" * 64, "bytes": "8000"}), ("bytes",)),
    "a negative size": Damage(set_record({"sha256": "0" * 64, "bytes": -1}), ("bytes",)),
    "a file record with more": Damage(set_record({"sha256": "0" * 64, "bytes": 1, "url": "x"}), ("url",)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_or_hostile_folder_is_refused_by_name(folder: Path, damage: Damage) -> None:
    """More is in the table of attacks on the model store."""
    verify_model_folder(folder)
    damage.do(folder)
    with pytest.raises(ModelFolderInvalid) as refused:
        verify_model_folder(folder)
    for part in (str(folder), *damage.says):
        assert part in str(refused.value)


def test_a_folder_of_the_format_without_a_digest_is_still_opened(folder: Path) -> None:
    written = verify_model_folder(folder)
    rewrite(folder, lambda document: None)
    assert manifest_of(folder)["format"] == 1
    assert verify_model_folder(folder) == written


def test_any_flip_in_a_manifest_is_told_by_name(folder: Path) -> None:
    """Descriptions are covered too: licence, source and how the files were made."""
    manifest = folder / "manifest.json"
    content = manifest.read_bytes()
    for place in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            with pytest.raises(ValueError, match=r"[a-z]"):
                parse_manifest(bytes(flipped))
    at = content.index(b"Apache-2.0")
    manifest.write_bytes(content[:at] + b"Apache-3.0" + content[at + 10 :])
    with pytest.raises(ModelFolderInvalid, match=r"manifest\.json .*it was altered"):
        verify_model_folder(folder)
    manifest.write_bytes(content + b"\n")
    with pytest.raises(ModelFolderInvalid, match="it was altered"):
        verify_model_folder(folder)


@pytest.mark.parametrize(
    "shipped", sorted((ROOT / "models").glob("*/manifest.json")), ids=lambda path: path.parent.name
)
def test_shipped_models_have_a_digest_of_their_manifest(shipped: Path) -> None:
    assert json.loads(shipped.read_bytes())["sha256"]
    assert parse_manifest(shipped.read_bytes())


def test_a_folder_of_another_role_is_refused(folder: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match="a generator is wanted"):
        verify_model_folder(folder, ModelRole.GENERATOR)


def test_a_folder_without_a_needed_file_is_refused(folder: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match=r"genai_config\.json"):
        verify_model_folder(folder, required=("genai_config.json",))


def test_a_file_hard_linked_from_an_installers_store_is_accepted(folder: Path) -> None:
    os.link(folder / "model.data", folder.parent / "store-name")
    (folder / "model.data").chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH)
    assert verify_model_folder(folder).name == "tiny"


@pytest.mark.parametrize("value", [None, True, "4", 4.0, 0, 11])
def test_a_parameter_of_the_wrong_kind_or_size_is_refused_by_name(folder: Path, value: object) -> None:
    rewrite(folder, lambda document: document["parameters"].__setitem__("dimension", value))
    with pytest.raises(ModelFolderInvalid, match="dimension"):
        verify_model_folder(folder).integer("dimension", 1, 10)


def test_a_manifest_that_would_not_verify_is_not_written(folder: Path) -> None:
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(ModelFolderInvalid, match="name"):
        describe_model(folder, ModelRole.EMBEDDER, "Not A Name")
    assert (folder / "manifest.json").read_bytes() == before
