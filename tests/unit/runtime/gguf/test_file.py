"""A GGUF file is read, or refused with the field that is wrong, within bounds of time and memory."""

from __future__ import annotations

import resource
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.errors import ModelError, ModelFolderInvalid
from edge_rag.runtime.gguf.architectures import describe_decoder
from edge_rag.runtime.gguf.file import GgufFile, TensorType
from edge_rag.runtime.gguf.tokenizer import read_tokenizer
from edge_rag.runtime.gguf.weights import GgufWeights
from tests.synthetic.tiny_gguf import LAYERS, MAKERS, VOCABULARY, WIDTH, tiny_model

HUGE = (1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
GROWTH_BYTES = 64 << 20


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_model("llama").write(tmp_path_factory.mktemp("gguf") / "tiny.gguf").read_bytes()


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


def hostile() -> Iterator[tuple[str, bytes, str]]:
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


HOSTILE = list(hostile())


@pytest.mark.parametrize(("content", "named"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_a_hostile_header_is_refused_by_field_without_memory(content: bytes, named: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelFolderInvalid) as refused:
        GgufFile(path)
    assert str(refused.value).startswith("hostile.gguf: ")
    assert named in str(refused.value)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < GROWTH_BYTES


def use(path: Path) -> None:
    """Reads everything that a conversion reads, except weights."""
    file = GgufFile(path)
    description = describe_decoder(file, 256)
    read_tokenizer(file)
    GgufWeights(file, description).matrix("0.query")


@settings(max_examples=150)
@given(places=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_damaged_file_is_read_or_refused(
    places: list[tuple[float, int]], sound: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(sound)
    metadata = len(content) - LAYERS * WIDTH * WIDTH * 4  # the rest are weights
    for share, change in places:
        content[int(share * (metadata - 1))] ^= change
    path = tmp_path_factory.mktemp("damaged") / "damaged.gguf"
    path.write_bytes(content)
    try:
        use(path)
    except ModelError as error:
        assert str(error)


def changed(edit: Callable[[dict[str, object]], object]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        model = tiny_model("llama")
        metadata = dict(model.metadata)
        edit(metadata)
        return type(model)(model.architecture, metadata, model.tensors).write(folder / "changed.gguf")

    return make


WRONG = {
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
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_an_unusable_value_is_refused_by_its_key(name: str, value: object, tmp_path: Path) -> None:
    path = changed(lambda metadata: metadata.update({name: value}))(tmp_path)
    with pytest.raises(ModelError, match=name.removeprefix(".").replace(".", r"\.")):
        use(path)


def test_an_unknown_architecture_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    model = tiny_model("llama")
    path = type(model)("mamba", model.metadata, model.tensors).write(tmp_path / "mamba.gguf")
    with pytest.raises(ModelError, match=r"architecture mamba .*granite.*qwen3"):
        describe_decoder(GgufFile(path), 256)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_their_tensor(value: float, tmp_path: Path) -> None:
    model = tiny_model("llama")
    tensors = {name: values.copy() for name, values in model.tensors.items()}
    tensors["blk.0.attn_q.weight"][3, 5] = value
    file = GgufFile(type(model)("llama", model.metadata, tensors).write(tmp_path / "nan.gguf"))
    with pytest.raises(ModelError, match=r"blk\.0\.attn_q\.weight has values that are not finite"):
        GgufWeights(file, describe_decoder(file, 256)).matrix("0.query")


@pytest.mark.parametrize("name", MAKERS)
def test_metadata_and_tensors_are_those_that_were_written(name: str, tmp_path: Path) -> None:
    model = tiny_model(name)
    file = GgufFile(model.write(tmp_path / "tiny.gguf"))
    assert file.strings("tokenizer.ggml.tokens") == VOCABULARY
    assert set(file.tensors) == set(model.tensors)
    for tensor_name, values in model.tensors.items():
        assert file.tensor(tensor_name).shape == values.shape
        np.testing.assert_array_equal(file.raw(tensor_name).reshape(-1).view(np.float32), values.reshape(-1))
