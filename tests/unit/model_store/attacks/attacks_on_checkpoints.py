"""Attacks through Hugging Face folders."""

import json
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path

from tests.unit.model_store.attacks.attack import Attack, Build, Canary, after, replace
from tests.unit.model_store.attacks.valid_folders import good_checkpoint


def attacks_on_checkpoints() -> Iterator[Attack]:
    """Hugging Face folders."""

    def with_config(**values: object) -> Build:
        def build(folder: Path, canary: Canary) -> None:
            good_checkpoint(folder)
            document = json.loads((folder / "config.json").read_bytes()) | values
            (folder / "config.json").write_text(json.dumps(document))
            (folder / "modeling_evil.py").write_text(canary.python())

        return build

    remote = {"AutoModelForCausalLM": "modeling_evil.Evil", "AutoConfig": "modeling_evil.Config"}
    for architecture in ("EvilForCausalLM", "T5EncoderModel", "GPT2LMHeadModel", "", None, 7):
        yield Attack(
            f"the architecture {architecture!r}",
            with_config(architectures=[architecture], auto_map=remote),
            "cannot be converted",
        )
    yield Attack("two architectures", with_config(architectures=["LlamaForCausalLM"] * 2), "cannot be converted")
    yield Attack("no architecture", with_config(architectures=None), "cannot be converted")
    yield Attack("quantized weights", with_config(quantization_config={"quant_method": "gptq"}), "quantized already")

    def pickled(name: str) -> Build:
        def build(folder: Path, canary: Canary) -> None:
            good_checkpoint(folder)
            (folder / "model.safetensors").unlink()
            (folder / name).write_bytes(canary.pickled())

        return build

    for name in ("pytorch_model.bin", "model.pt", "model.ckpt", "consolidated.00.pth"):
        yield Attack(f"weights in {name}", pickled(name), "pickled weights are code")

    def indexed(weight_map: object) -> Build:
        def build(folder: Path, canary: Canary) -> None:
            good_checkpoint(folder)
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

        return build

    for target in ("../model.safetensors", "/etc/passwd", "pytorch_model.bin", "model-00001-of-00001.safetensors", 7):
        yield Attack(f"an index that names {target!r}", indexed({"w": target}), str(target))
    yield Attack("an index of nothing", indexed({}), "index.json")

    def weights(content: bytes) -> Build:
        return replace(good_checkpoint, "model.safetensors", content)

    def header(text: bytes) -> bytes:
        return struct.pack("<Q", len(text)) + text

    for name, content in (
        ("empty", b""),
        ("a header longer than the file", struct.pack("<Q", 1 << 40) + b"{}"),
        ("a header of 2^63 bytes", struct.pack("<Q", 1 << 63) + b"{}"),
        ("a pickle", pickle.dumps({"a": 1})),
        ("a header that is not JSON", header(b"{]")),
        ("a header with a key twice", header(b'{"a":{"data_offsets":[0,0]},"a":{"data_offsets":[0,0]}}')),
        ("a tensor behind the end", header(b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}')),
        ("a tensor before the beginning", header(b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[-16,0]}}')),
        ("a tensor backwards", header(b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[8,0]}}') + bytes(16)),
        ("a tensor nowhere", header(b'{"a":{"dtype":"F32","shape":[4]}}')),
        ("an offset that is none", header(b'{"a":{"data_offsets":[0,1.5]}}') + bytes(16)),
    ):
        yield Attack(f"safetensors: {name}", weights(content), "model.safetensors")
    yield Attack(
        "no tokenizer", after(good_checkpoint, lambda folder: (folder / "tokenizer.json").unlink()), "tokenizer.json"
    )
    yield Attack("config.json not JSON", replace(good_checkpoint, "config.json", b"{"), "config.json")
    yield Attack(
        "config.json with a key twice", replace(good_checkpoint, "config.json", b'{"a":1,"a":1}'), "config.json"
    )
    yield Attack("config.json of absurd size", replace(good_checkpoint, "config.json", b" " * (2 << 20)), "config.json")
    yield Attack("an empty folder", after(Path.mkdir), "not a model folder")
