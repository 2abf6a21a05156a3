"""Attacks through genai_config.json."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.unit.model_store.attacks.attack import Attack, Build, Canary, replace
from tests.unit.model_store.attacks.valid_folders import GENAI_CONFIG, good_genai, good_serial, write_manifest_of

Change = Callable[[dict[str, Any]], object]


def attacks_on_configs() -> Iterator[Attack]:
    yield from _keys()
    yield from _values()
    yield from _names()


def _keys() -> Iterator[Attack]:
    """Keys of genai_config.json that load or open something."""
    options = ("model", "decoder", "session_options")
    places: tuple[tuple[str, ...], ...] = ((), ("model",), ("model", "decoder"), options, ("search",))
    for place in places:
        for library in ("CANARY", "ops.so", "../ops.so"):
            build = config(put(*place, "custom_ops_library", to=library), _with_library)
            yield Attack(
                f"custom_ops_library={library} in {'.'.join(place) or 'the document'}", build, "custom_ops_library"
            )
    session_options: dict[str, object] = {
        "custom_ops_libraries": ["CANARY"],
        "config_entries": [["session.custom_ops", "CANARY"]],
        "ep.context_file_path": "CANARY",
        "session.model_external_initializers_file_folder_path": "/",
        "optimized_model_filepath": "/tmp/x",
        "enable_profiling": "/tmp/profile",
        "ep_library_path": "CANARY",
        "register_execution_provider_library": "CANARY",
        "use_env_allocators": "1",
    }
    for key, value in session_options.items():
        yield Attack(f"session option {key}", config(put(*options, key, to=value), _with_library), key)
    for provider in ("cuda", "OpenVINO", "QNN", "VitisAI", "WebGPU", "NvTensorRtRtx"):
        settings = [{provider: {"backend_path": "CANARY", "library_path": "CANARY"}}]
        yield Attack(
            f"provider options for {provider}",
            config(put(*options, "provider_options", to=settings)),
            "provider_options",
        )
    for part in ("vision", "embedding", "speech", "encoder", "encoder_decoder_init", "joiner", "vad"):
        yield Attack(
            f"a second model for {part}", config(put("model", part, to={"filename": "/etc/passwd"})), f"model.{part}"
        )
    decoder_keys: dict[str, object] = {
        "pipeline": [{"stage": {"filename": "../other.onnx"}}],
        "adapters": ["CANARY"],
        "run_options": {"x": "1"},
        "state_groups": [1],
        "config_filename": "/etc/passwd",
    }
    for key, value in decoder_keys.items():
        yield Attack(f"decoder key {key}", config(put("model", "decoder", key, to=value)), key)
    yield Attack("an engine section", config(put("engine", to={"dynamic_batching": {"num_blocks": 1}})), "engine")
    yield Attack("a speculative section", config(put("speculative", to={"draft": "CANARY"})), "speculative")


def _values() -> Iterator[Attack]:
    """Values of genai_config.json that are no such values."""
    decoder = ("model", "decoder")
    for size in (0, -1, 2**31, 1.5, "64", None, True, [64]):
        yield Attack(f"head_size {size!r}", config(put(*decoder, "head_size", to=size)), "head_size")
    for token in (-1, "2", [[2]], [2**31], {"id": 2}):
        yield Attack(f"eos_token_id {token!r}", config(put("model", "eos_token_id", to=token)), "eos_token_id")
    for value in ("%s", "%n", "%d%d", "past.%d.%s", "%99999999d", "x\x00y", "$(id)", 7):
        yield Attack(
            f"a tensor name {value!r}", config(put(*decoder, "inputs", "past_key_names", to=value)), "past_key_names"
        )
    yield Attack(
        "a window that is none", config(put(*decoder, "sliding_window", to={"window_size": 0})), "sliding_window"
    )
    for name, content in (
        ("not JSON", b"{"),
        ("an array", b"[]"),
        ("not UTF-8", b"\xff\xfe{}"),
        ("nested without end", b"[" * 200_000),
        ("a number that is none", b'{"model": NaN}'),
        ("a key twice", b'{"model": {}, "model": {}}'),
        ("empty", b""),
    ):
        yield Attack(
            f"genai_config.json: {name}", replace(good_genai, "genai_config.json", content), "genai_config.json"
        )


def _names() -> Iterator[Attack]:
    """Names of the graph that are not the plain name of a file in the folder."""
    for name in (
        "../outside.onnx", "../../etc/passwd", "/etc/passwd", "/proc/self/mem", "sub/model.onnx", "./model.onnx", "..",
        ".", "", "model.onnx/", "..\\outside.onnx", "C:\\model.onnx", "C:model.onnx", "\\\\server\\model.onnx",
        "model.onnx\x00.so", "model.onnx\n", "*.onnx", "model.so", "model.ort", "missing.onnx", "-o.onnx/..",
        "file:///etc/passwd", "~/model.onnx",
    ):  # fmt: skip
        build = config(put("model", "decoder", "filename", to=name))
        yield Attack(f"a graph named {name!r}", build, "genai_config.json")


def config(
    change: Change,
    plant: Callable[[Path, Canary], object] = lambda folder, canary: None,
    base: Callable[[Path], None] = good_genai,
) -> Build:
    def build(folder: Path, canary: Canary) -> None:
        base(folder)
        document = json.loads(json.dumps(GENAI_CONFIG))
        change(document)
        (folder / "genai_config.json").write_text(json.dumps(document).replace("CANARY", str(canary.library)))
        plant(folder, canary)
        if base is good_serial:
            write_manifest_of(folder, {"form": "serial"})

    return build


def put(*path: str, to: object) -> Change:
    def change(document: dict[str, Any]) -> None:
        for key in path[:-1]:
            document = document.setdefault(key, {})
        document[path[-1]] = to

    return change


def _with_library(folder: Path, canary: Canary) -> None:
    (folder / "ops.so").write_bytes(canary.library.read_bytes())
