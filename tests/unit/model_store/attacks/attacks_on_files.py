"""Attacks through the files of a folder: strays, links, lying manifests."""

import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.unit.model_store.attacks.attack import Attack, Build, Canary, after, replace
from tests.unit.model_store.attacks.valid_folders import good_checkpoint, good_genai, good_model, write_manifest_of


def attacks_on_files() -> Iterator[Attack]:
    yield from _strays()
    yield from _links()
    yield from _manifests()
    yield from _texts()


def _strays() -> Iterator[Attack]:
    """Files of a closed folder that it must not have, or has not."""
    for name in (
        "evil.so", "evil.py", "x.pkl", "model.bin", "model.pt", "run.sh", "x.dll", "x.dylib", ".hidden", "a/b.json",
    ):  # fmt: skip

        def listed(folder: Path, canary: Canary, name: str = name) -> None:
            good_model(folder)
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(
                canary.pickled() if name.endswith(("pkl", "bin", "pt")) else canary.library.read_bytes()
            )
            write_manifest_of(folder)

        def unlisted(folder: Path, canary: Canary, name: str = name) -> None:
            good_model(folder)
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(canary.library.read_bytes())

        yield Attack(f"{name}, not in the manifest", unlisted, "not in the manifest")
        yield Attack(f"{name}, in the manifest", listed, Path(name).name)
    for name in ("model.onnx", "model.data", "tokenizer.json"):
        yield Attack(f"{name} missing", _spoiled(name, Path.unlink), "is missing")
        yield Attack(f"{name} altered", _spoiled(name, _flip), "was altered")
        yield Attack(f"{name} truncated", _spoiled(name, lambda path: os.truncate(path, 3)), "is truncated")


def _links() -> Iterator[Attack]:
    """Links and other things that are not plain files."""

    def replaced(make: Callable[[Path], object], base: Callable[[Path], object], name: str) -> Build:
        def build(folder: Path, canary: Canary) -> None:
            base(folder)
            (folder / name).unlink()
            make(folder / name)

        return build

    for base, names in (
        (good_model, ("model.onnx", "model.data", "tokenizer.json", "manifest.json")),
        (good_genai, ("model.onnx", "model.data", "genai_config.json")),
        (good_checkpoint, ("model.safetensors", "config.json")),
    ):
        for name in names:
            yield Attack(
                f"{base.__name__}: {name} links to /etc/passwd",
                replaced(lambda path: path.symlink_to("/etc/passwd"), base, name),
                "link",
            )
    for base in (good_model, good_genai, good_checkpoint):
        yield Attack(
            f"{base.__name__}: a folder that links to the root",
            after(base, lambda folder: (folder / "sub").symlink_to("/", target_is_directory=True)),
            "link",
        )
        yield Attack(f"{base.__name__}: a pipe", after(base, lambda folder: os.mkfifo(folder / "x.json")), "plain file")
        yield Attack(f"{base.__name__}: a socket", after(base, lambda folder: _socket(folder / "s")), "plain file")


def _manifests() -> Iterator[Attack]:
    """Manifests that lie."""

    def change(key: str, value: object) -> Build:
        def build(folder: Path, canary: Canary) -> None:
            good_model(folder)
            path = folder / "manifest.json"
            document = json.loads(path.read_bytes())
            document[key] = value
            path.write_text(json.dumps(document))

        return build

    def listed(name: str) -> Build:
        record = {"sha256": hashlib.sha256(b"canary").hexdigest(), "bytes": 6}
        return change("files", {name: record})

    for name in (
        "../secret", "/etc/passwd", "a/../../secret", "..\\secret", "C:secret", "./x", "", "a//b", "x\n", "*/x/*",
    ):  # fmt: skip
        yield Attack(f"the manifest lists {name!r}", listed(name), "inside the folder")
    for key, value in (
        ("format", 3), ("format", "1"), ("name", "../up"), ("name", "A B"), ("role", "oracle"), ("role", None),
        ("licence", ""), ("source", 7), ("parameters", []), ("files", {}), ("files", []),
        ("custom_ops_library", "x.so"),
    ):  # fmt: skip
        yield Attack(f"the manifest says {key} = {value!r}", change(key, value), key)
    for name, content in (
        ("not JSON", b"{"),
        ("huge", b" " * (2 << 20)),
        ("nested without end", b'{"a":' * 100_000),
        ("a key twice", b'{"format": 1, "format": 1}'),
    ):
        yield Attack(f"a manifest: {name}", replace(good_model, "manifest.json", content), "manifest.json")


def _texts() -> Iterator[Attack]:
    for base in (good_model, good_genai):
        for name in ("tokenizer.json", "tokenizer_config.json"):
            for what, content in (("not JSON", b"{]"), ("a list", b"[1]"), ("a key twice", b'{"a":1,"a":2}')):
                yield Attack(f"{base.__name__}: {name} is {what}", _rewritten(base, name, content), name)


def _spoiled(name: str, spoil: Callable[[Path], object]) -> Build:
    return after(good_model, lambda folder: spoil(folder / name))


def _rewritten(base: Callable[[Path], None], name: str, content: bytes) -> Build:
    def build(folder: Path, canary: Canary) -> None:
        base(folder)
        (folder / name).write_bytes(content)
        if base is good_model:
            write_manifest_of(folder)

    return build


def _flip(path: Path) -> None:
    content = np.frombuffer(path.read_bytes(), np.uint8).copy()
    content[len(content) // 2] ^= 1
    path.write_bytes(content.tobytes())


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
