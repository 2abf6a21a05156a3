"""Describes the decoder in a GGUF file, by its architecture.

Key names: llama.cpp's ``llama-arch.cpp``; the graphs of its models say which values apply where.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_rag.errors import ModelFolderInvalid, ModelNotLowerable
from edge_rag.runtime.gguf.blocks import read_floats
from edge_rag.runtime.gguf.file import GgufFile
from edge_rag.runtime.lowering.decoder_graph import Activation, DecoderDescription, Layer, Rotary
from edge_rag.runtime.lowering.rotary import rotary_frequencies, yarn_frequencies, yarn_magnitude

_MAX_LAYERS: Final = 512
_MAX_WIDTH: Final = 1 << 16
_MAX_INNER: Final = 1 << 20
_MAX_HEADS: Final = 1024
_MAX_HEAD_SIZE: Final = 1024
_MAX_CONTEXT: Final = 1 << 24
_MAX_VOCABULARY: Final = 1 << 20

_GLOBAL, _LOCAL = "global", "local"

_END_TEXTS: Final = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "</s>")
"""Texts of control tokens that end a turn, where a file does not name them by key."""

INTERLEAVED: Final = frozenset({"llama", "granite", "smollm3"})
"""Architectures whose files keep the two elements of a rotated pair beside each other."""


def describe_decoder(file: GgufFile, max_context: int) -> DecoderDescription:
    """Returns the description of a file's decoder.

    Args:
        max_context: Longest context wanted, tokens; the model's own may be shorter.

    Raises:
        ModelNotLowerable: Its architecture is not known, or uses something without a paged form.
    """
    name = file.text("general.architecture")
    if name not in _ARCHITECTURES:
        known = ", ".join(sorted(_ARCHITECTURES))
        raise ModelNotLowerable(f"{file.path.name}: the architecture {name} is not known; known are {known}")
    found = _ARCHITECTURES[name](file, _plain(file, name, max_context))
    _check_shapes(file, name, found)
    return found


def _plain(file: GgufFile, name: str, max_context: int) -> DecoderDescription:
    """Returns what all architectures share."""
    width = file.integer(f"{name}.embedding_length", 1, _MAX_WIDTH)
    heads = file.integer(f"{name}.attention.head_count", 1, _MAX_HEADS)
    size = file.integer(f"{name}.attention.key_length", 1, _MAX_HEAD_SIZE, width // heads)
    if file.integer(f"{name}.attention.value_length", 1, _MAX_HEAD_SIZE, size) != size:
        raise ModelNotLowerable(f"{file.path.name}: keys and values have heads of different sizes")
    layers = file.integer(f"{name}.block_count", 1, _MAX_LAYERS)
    context = min(max_context, file.integer(f"{name}.context_length", 1, _MAX_CONTEXT))
    pairs = file.integer(f"{name}.rope.dimension_count", 2, size, size) // 2
    base = file.number(f"{name}.rope.freq_base", 1, 1e12, 10_000.0)
    rotary, context = _rotary(file, name, base, pairs, context)
    return DecoderDescription(
        layers=(Layer(_GLOBAL),) * layers,
        query_heads=heads,
        kv_heads=file.integer(f"{name}.attention.head_count_kv", 1, heads, heads),
        head_size=size,
        epsilon=file.number(f"{name}.attention.layer_norm_rms_epsilon", 0, 1),
        vocabulary_size=file.tensor("token_embd.weight").shape[0],
        max_context=context,
        end_tokens=_end_tokens(file),
        rotaries={_GLOBAL: rotary},
        head_norms="blk.0.attn_q_norm.weight" in file.tensors,
    )


def _check_shapes(file: GgufFile, name: str, found: DecoderDescription) -> None:
    """Checks that all tensors that the decoder needs are there, with the sizes that the metadata states."""
    width = file.integer(f"{name}.embedding_length", 1, _MAX_WIDTH)
    inner = file.integer(f"{name}.feed_forward_length", 1, _MAX_INNER)
    query, key = found.query_heads * found.head_size, found.kv_heads * found.head_size
    tokens = len(file.strings("tokenizer.ggml.tokens"))
    if not 1 <= found.vocabulary_size <= _MAX_VOCABULARY or tokens > found.vocabulary_size:
        rows = f"{found.vocabulary_size:,} rows of token_embd.weight"
        raise ModelFolderInvalid(f"{file.path.name}: tokenizer.ggml.tokens has {tokens:,} tokens for {rows}")
    shapes = {"token_embd": (found.vocabulary_size, width), "output_norm": (width,)}
    if "output.weight" in file.tensors:
        shapes["output"] = shapes["token_embd"]
    fused_attention, fused_gate = "blk.0.attn_qkv.weight" in file.tensors, "blk.0.ffn_gate.weight" not in file.tensors
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (width,),
        "ffn_norm": (width,),
        "attn_output": (width, query),
        "ffn_up": (2 * inner if fused_gate else inner, width),
        "ffn_down": (width, inner),
    }
    layer |= {"attn_qkv": (query + 2 * key, width)} if fused_attention else _apart(query, key, width)
    layer |= {} if fused_gate else {"ffn_gate": (inner, width)}
    layer |= dict.fromkeys(("attn_q_norm", "attn_k_norm"), (found.head_size,)) if found.head_norms else {}
    layer |= dict.fromkeys(("post_attention_norm", "post_ffw_norm"), (width,)) if found.output_norms else {}
    for number in range(len(found.layers)):
        shapes |= {f"blk.{number}.{part}": shape for part, shape in layer.items()}
    for part, shape in shapes.items():
        _check_shape(file, f"{part}.weight", shape)
        if f"{part}.bias" in file.tensors:
            _check_shape(file, f"{part}.bias", shape[:1])


def _apart(query: int, key: int, width: int) -> dict[str, tuple[int, ...]]:
    return {"attn_q": (query, width), "attn_k": (key, width), "attn_v": (key, width)}


def _check_shape(file: GgufFile, name: str, shape: tuple[int, ...]) -> None:
    found = file.tensor(name).shape
    if found != shape:
        raise ModelFolderInvalid(
            f"{file.path.name}: the tensor {name} has the shape {list(found)}, must have {list(shape)}"
        )


def _rotary(file: GgufFile, name: str, base: float, pairs: int, context: int) -> tuple[Rotary, int]:
    """Returns the rotary embedding with its scaling, and the context for which it holds."""
    frequencies = rotary_frequencies(base, pairs)
    if "rope_freqs.weight" in file.tensors:
        frequencies = frequencies / _factors(file, "rope_freqs.weight", frequencies.size)
    kind = file.text(f"{name}.rope.scaling.type", "none")
    magnitude = file.number(f"{name}.rope.scaling.attn_factor", 0.01, 100, 1.0)
    trained = file.integer(f"{name}.rope.scaling.original_context_length", 1, _MAX_CONTEXT, context)
    if "rope_factors_short.weight" in file.tensors:
        # Keys in pages cannot change their rotation when a text outgrows the short factors, so the context ends there.
        factors = _factors(file, "rope_factors_short.weight", frequencies.size)
        return Rotary(frequencies / factors, magnitude), min(context, trained)
    if kind == "none":
        return Rotary(frequencies), context
    factor = file.number(f"{name}.rope.scaling.factor", 1, 1e6)
    if kind == "linear":
        return Rotary(frequencies / factor), context
    if kind == "yarn":
        scaled = yarn_frequencies(base, pairs, factor, trained)
        return Rotary(scaled, magnitude * yarn_magnitude(factor)), context
    raise ModelNotLowerable(f"{file.path.name}: {name}.rope.scaling.type is {kind!r}; none, linear and yarn are known")


def _factors(file: GgufFile, name: str, count: int) -> NDArray[np.float64]:
    tensor = file.tensor(name)
    factors = read_floats(tensor.type, file.raw(name)).reshape(-1).astype(np.float64)
    if factors.size != count or not (np.isfinite(factors).all() and (factors > 0).all()):
        raise ModelNotLowerable(f"{file.path.name}: the tensor {name} does not have {count} positive factors")
    return factors


def _end_tokens(file: GgufFile) -> frozenset[int]:
    tokens = file.strings("tokenizer.ggml.tokens")
    named = (f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
    ends = {file.integer(key, 0, len(tokens) - 1) for key in named if key in file.metadata}
    return frozenset(ends | {tokens.index(text) for text in _END_TEXTS[:-1] if text in tokens})


def _same(file: GgufFile, plain: DecoderDescription) -> DecoderDescription:
    return plain


def _llama(file: GgufFile, plain: DecoderDescription) -> DecoderDescription:
    window = file.integer("llama.attention.sliding_window", 0, _MAX_CONTEXT, 0)
    return plain if window == 0 else replace(plain, layers=(Layer(_GLOBAL, window),) * len(plain.layers))


def _granite(file: GgufFile, plain: DecoderDescription) -> DecoderDescription:
    scale = {key: file.number(f"granite.{key}", 1e-6, 1e6, 1.0) for key in ("embedding_scale", "residual_scale")}
    return replace(
        plain,
        attention_scale=file.number("granite.attention.scale", 1e-6, 1e3, plain.head_size**-0.5),
        embedding_scale=scale["embedding_scale"],
        residual_scale=scale["residual_scale"],
        logit_scale=1 / file.number("granite.logit_scale", 1e-6, 1e6, 1.0),
    )


def _smollm3(file: GgufFile, plain: DecoderDescription) -> DecoderDescription:
    layers = tuple(Layer(None if (number + 1) % 4 == 0 else _GLOBAL) for number in range(len(plain.layers)))
    return replace(plain, layers=layers)


def _phi3(file: GgufFile, plain: DecoderDescription) -> DecoderDescription:
    window = file.integer("phi3.attention.sliding_window", 0, _MAX_CONTEXT, 0)
    return plain if window == 0 else replace(plain, max_context=min(plain.max_context, window))


def _gemma3(file: GgufFile, plain: DecoderDescription) -> DecoderDescription:
    """Five layers with a sliding window and positions of their own, then one that sees all."""
    window = file.integer("gemma3.attention.sliding_window", 1, _MAX_CONTEXT)
    base = file.number("gemma3.rope.freq_base_swa", 1, 1e12, 10_000.0)
    pairs = plain.rotaries[_GLOBAL].frequencies.size
    layers = (Layer(_GLOBAL) if number % 6 == 5 else Layer(_LOCAL, window) for number in range(len(plain.layers)))
    return replace(
        plain,
        layers=tuple(layers),
        rotaries={**plain.rotaries, _LOCAL: Rotary(rotary_frequencies(base, pairs))},
        activation=Activation.GELU_TANH,
        embedding_scale=math.sqrt(file.integer("gemma3.embedding_length", 1, _MAX_WIDTH)),
        output_norms=True,
    )


_ARCHITECTURES: Final[Mapping[str, Callable[[GgufFile, DecoderDescription], DecoderDescription]]] = {
    "llama": _llama,
    "qwen2": _same,
    "qwen3": _same,
    "granite": _granite,
    "smollm3": _smollm3,
    "phi3": _phi3,
    "gemma3": _gemma3,
}
