"""Hostile GGUF files, and a program that makes and reads them within limits of time and memory.

    python -m tests.synthetic.hostile_gguf FOLDER

FOLDER is empty, for files in between. Prints a line of JSON for each file: its name, what its error must name, and the
error with which it was refused, or null if it was read. The first file is sound.
"""

import json
import math
import resource
import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import gguf
import numpy as np

from edge_rag.errors import ModelError
from edge_rag.runtime.gguf.architectures import describe_decoder
from edge_rag.runtime.gguf.file import GgufFile, TensorType
from edge_rag.runtime.gguf.tokenizer import read_tokenizer
from edge_rag.runtime.gguf.weights import GgufWeights
from tests.synthetic.tiny_gguf import LAYERS, WIDTH, TinyModel, tiny_model

MEMORY_BYTES = 192 << 20
"""Address space that reading a file may add to that of the idle process."""
CPU_SECONDS = 3

HUGE = (1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


def text(value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(content)) + content


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def header(
    keys: list[bytes], tensors: list[bytes], *, counts: tuple[int, int] | None = None, version: int = 3
) -> bytes:
    tensor_count, key_count = counts or (len(tensors), len(keys))
    head = b"GGUF" + struct.pack("<IQQ", version, tensor_count, key_count) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(4096)


ARCHITECTURE = key("general.architecture", 8, text("llama"))
PLAIN = tensor("a", (32,), 0, 0)


def hostile_headers() -> Iterator[tuple[str, bytes, str]]:
    """Yields names, files, and what their error must name."""
    yield "empty", b"", "cannot be read"
    yield "no magic", b"GGML" + bytes(60), "is not a GGUF file"
    for version in (0, 1, 4, 1 << 24, 0x03000000):
        yield f"version {version}", header([ARCHITECTURE], [PLAIN], version=version), "version"
    for size in (3, 4, 8, 16, 23):
        yield f"cut at {size}", header([ARCHITECTURE], [PLAIN])[:size], "truncated"
    for count in (0, *HUGE, 100_000):
        yield f"{count} tensors", header([ARCHITECTURE], [PLAIN], counts=(count, 1)), "tensor_count"
        yield f"{count} keys", header([ARCHITECTURE], [PLAIN], counts=(1, count)), "metadata_kv_count"
    yield "more keys than there are", header([ARCHITECTURE], [], counts=(1, 9)), "key"
    for length in (*HUGE, 257, 5000):
        yield f"a key of {length}", header([struct.pack("<Q", length) + bytes(64)], [PLAIN]), "key 0"
        value = struct.pack("<Q", length << 12 if length < 1 << 40 else length)
        yield f"a string of {length}", header([key("some.text", 8, value)], [PLAIN]), "some.text"
        array = struct.pack("<IQ", 4, length << 14 if length < 1 << 40 else length)
        yield f"an array of {length}", header([key("some.array", 9, array)], [PLAIN]), "some.array"
        strings = struct.pack("<IQ", 8, length << 14 if length < 1 << 40 else length)
        yield f"{length} strings", header([key("some.strings", 9, strings)], [PLAIN]), "some.strings"
        element = struct.pack("<IQ", 8, 1) + struct.pack("<Q", length << 4 if length < 1 << 40 else length)
        yield f"a string of {length} in an array", header([key("some.strings", 9, element)], [PLAIN]), "some.strings"
    for kind in (13, 99, 1 << 31):
        yield f"a value of type {kind}", header([key("some.key", kind, bytes(8))], [PLAIN]), "some.key"
        inner = struct.pack("<IQ", kind, 1)
        yield f"an array of type {kind}", header([key("some.key", 9, inner + bytes(8))], [PLAIN]), "some.key"
    yield "an array of arrays", header([key("some.key", 9, struct.pack("<IQ", 9, 1) + bytes(16))], [PLAIN]), "some.key"
    yield "a key twice", header([ARCHITECTURE, ARCHITECTURE], [PLAIN]), "general.architecture"
    yield "a key that is not UTF-8", header([key("x", 8, text(b"\xff\xfe"))], [PLAIN]), "x is not UTF-8"
    yield "a name that is not UTF-8", header([ARCHITECTURE], [text(b"\xff") + PLAIN[9:]]), "not UTF-8"
    for alignment in (0, 1, 7, 33, 1 << 17, 1 << 31):
        aligned = key("general.alignment", 4, struct.pack("<I", alignment))
        yield f"alignment {alignment}", header([aligned], [PLAIN]), "general.alignment"
    yield "alignment of another type", header([key("general.alignment", 8, text("32"))], [PLAIN]), "general.alignment"
    for dimensions in (0, 5, 1 << 16, (1 << 32) - 1):
        bad = text("a") + struct.pack("<I", dimensions) + bytes(64)
        yield f"{dimensions} dimensions", header([ARCHITECTURE], [bad]), "dimensions"
    for size in (0, *HUGE, (1 << 24) + 1):
        yield f"a side of {size}", header([ARCHITECTURE], [tensor("a", (size,), 0, 0)]), "the tensor a"
        yield f"sides of {size}", header([ARCHITECTURE], [tensor("a", (32, size), 0, 0)]), "the tensor a"
    yield "sides whose product is large", header([ARCHITECTURE], [tensor("a", (1 << 24,) * 4, 0, 0)]), "the tensor a"
    for kind in (4, 5, 9, 10, 11, 15, 16, 24, 31, 39, 1 << 31):
        yield f"type {kind}", header([ARCHITECTURE], [tensor("a", (32,), kind, 0)]), "the tensor a is of the type"
    for form in (TensorType.Q4_0, TensorType.Q8_0, TensorType.Q4_K, TensorType.Q6_K):
        for width in (1, 31, form.block_elements + 1):
            yield f"{form.name} of {width}", header([ARCHITECTURE], [tensor("a", (width,), form, 0)]), "whole blocks"
    for offset in (*HUGE, 4096, 1 << 20):
        yield f"offset {offset}", header([ARCHITECTURE], [tensor("a", (32,), 0, offset & ~31)]), "the tensor a"
    for offset in (1, 16, 31, 33):
        yield f"odd offset {offset}", header([ARCHITECTURE], [tensor("a", (32,), 0, offset)]), "multiple"
    both = [tensor("a", (32,), 0, 0), tensor("b", (32,), 0, 32)]
    yield "overlapping", header([ARCHITECTURE], both), "overlaps"
    yield "the same place", header([ARCHITECTURE], [PLAIN, tensor("b", (32,), 0, 0)]), "overlaps"
    yield "a tensor twice", header([ARCHITECTURE], [PLAIN, PLAIN]), "twice"
    yield "data cut off", header([ARCHITECTURE], [tensor("a", (4096,), 0, 0)])[:2000], "the tensor a"


def hostile_models(folder: Path) -> Iterator[tuple[str, bytes, str]]:
    """Yields whole models of which one thing is wrong: names, files, and what their error must name."""
    model = tiny_model("llama")

    def written(changed: TinyModel) -> bytes:
        return changed.write(folder / "model.gguf").read_bytes()

    def with_metadata(name: str, value: object) -> bytes:
        return written(replace(model, metadata={**model.metadata, name: value}))

    for name, values in WRONG.items():
        for value in values:
            yield f"{name} is {value!r}"[:80], with_metadata(name, value), name.removeprefix(".")
    for name in NEEDED:
        metadata = {other: value for other, value in model.metadata.items() if other != name}
        yield f"without {name}", written(replace(model, metadata=metadata)), name.removeprefix(".")
    for name in ("token_embd", "output_norm", *(f"blk.{LAYERS - 1}.{part}" for part in PARTS)):
        without = {other: values for other, values in model.tensors.items() if other != f"{name}.weight"}
        yield f"without {name}", written(replace(model, tensors=without)), f"{name}.weight"
        if name.endswith("norm"):
            continue
        wide = {**model.tensors, f"{name}.weight": np.zeros((WIDTH + 32, WIDTH + 64), np.float32)}
        yield f"{name} of another shape", written(replace(model, tensors=wide)), f"{name}.weight"
    long = {**model.tensors, "blk.1.attn_norm.weight": np.ones(WIDTH + 1, np.float32)}
    yield "a norm of another size", written(replace(model, tensors=long)), "blk.1.attn_norm.weight"
    for name in ("blk.0.attn_q.weight", "blk.2.ffn_down.weight", "blk.1.ffn_norm.weight"):
        for value in (math.nan, math.inf, -math.inf):
            changed = {**model.tensors, name: model.tensors[name].copy()}
            changed[name].flat[5] = value
            yield (
                f"{value} in {name}",
                written(replace(model, tensors=changed)),
                f"{name} has values that are not finite",
            )
    yield from _hostile_scales(model, folder)
    sound = written(model)
    file = GgufFile(folder / "model.gguf")
    first, *others = file.tensors.values()
    metadata_end = sound.index(text(first.name))
    for size in np.linspace(30, metadata_end, 12, dtype=int).tolist():
        yield f"cut in the metadata at {size}", sound[:size], "truncated"
    for size in np.linspace(metadata_end + 1, first.offset - 40, 6, dtype=int).tolist():
        yield f"cut in the tensors' descriptions at {size}", sound[:size], "the file"
    for number in (0, len(others) // 2, len(others) - 1):
        end = others[number].offset + others[number].size
        yield f"cut in tensor {number}", sound[: end - 1], "the tensor "


PARTS = (
    "attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
)  # fmt: skip
NEEDED = (
    ".block_count", ".context_length", ".embedding_length", ".feed_forward_length", ".attention.head_count",
    ".attention.layer_norm_rms_epsilon", "tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.merges",
)  # fmt: skip
WRONG: dict[str, tuple[object, ...]] = {
    ".block_count": (0, 100_000, "seven"),
    ".context_length": (0, "long"),
    ".embedding_length": (0, 1 << 30),
    ".attention.head_count": (0, 1 << 20),
    ".attention.head_count_kv": (0, 5),
    ".attention.layer_norm_rms_epsilon": (-1.0, float("nan"), float("inf"), "small"),
    ".rope.freq_base": (0.0, float("nan"), float("inf"), -1.0),
    ".rope.dimension_count": (0, 1 << 20),
    "tokenizer.ggml.model": ("rwkv", 7),
    "tokenizer.ggml.pre": ("unknown-pre", 7),
    "tokenizer.ggml.tokens": (["a", "b", "a", "c"], "abc"),
    "tokenizer.ggml.merges": (["ab"], ["x y"], ["a b c"], "a b"),
    "tokenizer.ggml.eos_token_id": (1 << 20, "end"),
    "tokenizer.ggml.token_type": ([1, 2], "normal"),
    ".feed_forward_length": (0, 1 << 30, "wide"),
}


def _hostile_scales(model: TinyModel, folder: Path) -> Iterator[tuple[str, bytes, str]]:
    """Yields models with a scale or minimum in float16 that is not finite, in each block format that has one."""
    name = "blk.1.ffn_down.weight"
    wide = np.random.default_rng(1).normal(0, 0.1, (WIDTH, 256)).astype(np.float32)
    rows = {part: np.zeros((256, WIDTH), np.float32) for part in ("ffn_gate", "ffn_up")}
    for form, places in HALVES.items():
        changed = dict(model.tensors)
        for number in range(LAYERS):
            changed[f"blk.{number}.ffn_down.weight"] = wide
            changed |= {f"blk.{number}.{part}.weight": values for part, values in rows.items()}
        plain = TinyModel(model.architecture, {**model.metadata, ".feed_forward_length": 256}, changed)
        stored = np.zeros((WIDTH, 256 // form.block_elements * form.block_bytes), np.uint8)
        for place in places:
            for value in (math.nan, math.inf):
                raw = stored.copy()
                raw[3, place : place + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
                path = _write_raw(plain, folder / "model.gguf", name, raw, form)
                yield f"{value} at {place} of {form.name}", path.read_bytes(), f"{name} has values that are not finite"


HALVES = {
    TensorType.Q4_0: (0,),
    TensorType.Q4_1: (0, 2),
    TensorType.Q5_0: (0,),
    TensorType.Q5_1: (0, 2),
    TensorType.Q8_0: (0,),
    TensorType.Q4_K: (0, 2),
    TensorType.Q5_K: (0, 2),
    TensorType.Q6_K: (208,),
}
"""Where the first block of a row has numbers in float16."""


def _write_raw(model: TinyModel, path: Path, name: str, raw: np.ndarray, form: TensorType) -> Path:
    """Writes a model one of whose tensors has the given bytes."""
    written = replace(model, types={name: gguf.GGMLQuantizationType(form.value)}, raw={name: raw})
    return written.write(path)


def read_whole(path: Path, layers: int = LAYERS) -> None:
    """Reads everything that a conversion reads, weights of the first layers only."""
    file = GgufFile(path)
    description = describe_decoder(file, 256)
    read_tokenizer(file)
    weights = GgufWeights(file, description)
    for number in range(layers):
        for part in ("query", "key", "value", "attention_output", "gate", "up", "down"):
            weights.matrix(f"{number}.{part}")
        for part in ("attention_norm", "feed_forward_norm"):
            weights.vector(f"{number}.{part}")


def main(folder: Path) -> None:
    """Makes the files one after the other and reads each."""
    sound, hostile = folder / "sound.gguf", folder / "hostile.gguf"
    tiny_model("llama").write(sound)
    print(json.dumps(["sound", "", _refusal(sound)]), flush=True)  # noqa: T201
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    np.seterr(all="ignore")
    for name, content, named in chain(hostile_headers(), hostile_models(folder)):
        hostile.write_bytes(content)
        print(json.dumps([name, named, _refusal(hostile)]), flush=True)  # noqa: T201


def _refusal(path: Path) -> str | None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime) + CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    try:
        read_whole(path)
    except ModelError as error:
        return str(error)
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
