"""Attacks through model folders that run serially: their manifest is in order, what it lists is not."""

import os
from collections.abc import Iterator
from pathlib import Path

import onnx

from tests.unit.model_store.attacks.attack import Attack, Build, Canary
from tests.unit.model_store.attacks.attacks_on_configs import config, put
from tests.unit.model_store.attacks.attacks_on_graphs import external, graph_change
from tests.unit.model_store.attacks.valid_folders import good_serial, write_manifest_of

_DECODER = ("model", "decoder")
_OPTIONS = (*_DECODER, "session_options")


def attacks_on_serial_models() -> Iterator[Attack]:
    yield from _configs()
    yield from _graphs()
    yield from _folders()


def _configs() -> Iterator[Attack]:
    for place in ((), ("model",), _DECODER, _OPTIONS, ("search",)):
        where = ".".join(place) or "the document"
        yield Attack(
            f"serial: custom_ops_library in {where}",
            _changed(*place, "custom_ops_library", to="CANARY"),
            "custom_ops_library",
        )
    for name in ("../model.onnx", "/etc/passwd", "sub/model.onnx", "C:model.onnx", "missing.onnx", ""):
        yield Attack(f"serial: a graph named {name!r}", _changed(*_DECODER, "filename", to=name), "genai_config.json")
    yield Attack(
        "serial: provider options",
        _changed(*_OPTIONS, "provider_options", to=[{"OpenVINO": {"library_path": "CANARY"}}]),
        "provider_options",
    )
    yield Attack("serial: a second model", _changed("model", "vision", to={"filename": "x.onnx"}), "model.vision")
    for size in ("context_length", "vocab_size"):
        yield Attack(f"serial: {size} of 2^40", _changed("model", size, to=1 << 40), size)


def _graphs() -> Iterator[Attack]:
    for location in ("../model.data", "/etc/passwd", "a/../../x", "*/x/*", "absent.data"):
        yield Attack(
            f"serial: weights in {location!r}", external({"location": location}, good_serial), "external data is"
        )
    yield Attack("serial: weights behind the end", external({"offset": str(1 << 40)}, good_serial), "behind the end")

    def foreign(model: onnx.ModelProto) -> None:
        model.graph.node[0].domain = "evil.ops"

    def oversized(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]

    def calls(model: onnx.ModelProto) -> None:
        model.graph.node[0].op_type = "EPContext"

    yield Attack("serial: an operator of a foreign domain", graph_change(foreign, good_serial), "evil.ops")
    yield Attack("serial: weights of an absurd shape", graph_change(oversized, good_serial), "their shape takes")
    yield Attack("serial: an operator that runs an engine", graph_change(calls, good_serial), "EPContext")


def _folders() -> Iterator[Attack]:
    def linked(folder: Path, canary: Canary) -> None:
        good_serial(folder)
        (folder / "model.data").rename(folder.parent / "outside.data")
        (folder / "model.data").symlink_to(folder.parent / "outside.data")

    def shared(folder: Path, canary: Canary) -> None:
        good_serial(folder)
        os.chmod(folder / "model.data", 0o666)  # noqa: PTH101
        (folder.parent / "outside.data").hardlink_to(folder / "model.data")

    def planted(folder: Path, canary: Canary) -> None:
        good_serial(folder)
        (folder / "ops.so").write_bytes(canary.library.read_bytes())
        write_manifest_of(folder, {"form": "serial"})

    def altered(folder: Path, canary: Canary) -> None:
        good_serial(folder)
        (folder / "genai_config.json").write_text("{}")

    yield Attack("serial: weights that are a symbolic link", linked, "link")
    yield Attack("serial: a library in the manifest", planted, "ops.so")
    yield Attack("serial: a configuration that is not the manifest's", altered, "genai_config.json")
    for form in ("evil", 7, None, ["serial"]):

        def named(folder: Path, canary: Canary, form: object = form) -> None:
            good_serial(folder)
            write_manifest_of(folder, {"form": form})

        yield Attack(f"serial: the form {form!r}", named, "is no form")


def _changed(*path: str, to: object) -> Build:
    return config(put(*path, to=to), base=good_serial)
