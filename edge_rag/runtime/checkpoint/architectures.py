"""Describes the decoder of a Hugging Face folder, by its config.json.

Keys and defaults: transformers' ``configuration_*.py`` of each model and ``modeling_rope_utils.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from edge_rag.errors import ModelFolderInvalid, ModelNotLowerable
from edge_rag.runtime.lowering.decoder_graph import Activation, DecoderDescription, Layer, Rotary
from edge_rag.runtime.lowering.rotary import llama3_frequencies, rotary_frequencies, yarn_frequencies, yarn_magnitude
from edge_rag.runtime.model_folder.strict_json import parse_object

_MAX_LAYERS: Final = 512
_MAX_WIDTH: Final = 1 << 16
_MAX_HEADS: Final = 1024
_MAX_HEAD_SIZE: Final = 1024
_MAX_CONTEXT: Final = 1 << 24
_MAX_VOCABULARY: Final = 1 << 20
_LARGEST_CONFIG: Final = 1 << 20
"""Bytes of a configuration file."""

_GLOBAL, _LOCAL = "global", "local"
_LAYER_TYPES: Final = ("full_attention", "sliding_attention")


class Settings:
    """An object of a configuration, whose values are checked as they are read."""

    def __init__(self, name: str, values: Mapping[str, object]) -> None:
        self.name = name
        self.values = values

    def integer(self, key: str, least: int, most: int, default: int | None = None) -> int:
        found = self._found(key, default)
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise self._unusable(key, found, f"an integer from {least} to {most}")
        return found

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        """Returns a number; ``integer`` for numbers that need not be whole."""
        found = self._found(key, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found <= most:
            raise self._unusable(key, found, f"a number from {least:g} to {most:g}")
        return float(found)

    def text(self, key: str, default: str) -> str:
        found = self._found(key, default)
        if not isinstance(found, str):
            raise self._unusable(key, found, "a string")
        return found

    def flag(self, key: str, default: bool) -> bool:
        found = self._found(key, default)
        if not isinstance(found, bool):
            raise self._unusable(key, found, "a boolean")
        return found

    def numbers(self, key: str, count: int, default: list[float] | None = None) -> list[float]:
        """Returns an array of that many finite numbers."""
        found = self._found(key, default)
        if (
            not isinstance(found, list)
            or len(found) != count
            or not all(isinstance(each, int | float) and math.isfinite(each) for each in found)
        ):
            raise self._unusable(key, found, f"an array of {count} numbers")
        return [float(each) for each in found]

    def part(self, key: str) -> Settings | None:
        """Returns an object within it; None if there is none."""
        found = self.values.get(key)
        if found is None:
            return None
        if not isinstance(found, dict):
            raise self._unusable(key, found, "an object")
        return Settings(f"{self.name}: {key}", found)

    def refuse(self, *keys: str) -> None:
        """Refuses values that change the computation in a way that is not known here."""
        for key in keys:
            if self.values.get(key):
                raise ModelNotLowerable(f"{self.name}: {key} is {self.values[key]!r}, which has no paged form")

    def _found(self, key: str, default: object) -> object:
        found = self.values.get(key)
        return default if found is None else found

    def _unusable(self, key: str, found: object, wanted: str) -> ModelFolderInvalid:
        shown = "missing" if found is None else repr(found)[:80]
        return ModelFolderInvalid(f"{self.name}: {key} is {shown}, must be {wanted}")


def read_settings(path: Path) -> Settings:
    """Reads a configuration file."""
    try:
        if path.stat().st_size > _LARGEST_CONFIG:
            raise ModelFolderInvalid(f"{path.name}: has more than {_LARGEST_CONFIG:,} bytes")
        return Settings(path.name, parse_object(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise ModelFolderInvalid(f"{path.name}: cannot be read: {error}") from error


def describe_checkpoint(folder: Path, max_context: int) -> DecoderDescription:
    """Returns the description of a checkpoint's decoder.

    Args:
        max_context: Longest context wanted, tokens; the model's own may be shorter.

    Raises:
        ModelNotLowerable: Its architecture is not known, or uses something without a paged form.
    """
    config = read_settings(folder / "config.json")
    name = architecture_of(config)
    if name not in _ARCHITECTURES:
        raise ModelNotLowerable(
            f"{config.name}: the architecture {name} is not known; known are {', '.join(sorted(DECODERS))}"
        )
    config.refuse(
        "attn_logit_softcapping", "final_logit_softcapping", "quantization_config", "use_bidirectional_attention"
    )
    generation = folder / "generation_config.json"
    ends = _end_tokens(config) | (_end_tokens(read_settings(generation)) if generation.exists() else frozenset())
    if not ends:
        raise ModelFolderInvalid(f"{config.name}: eos_token_id is missing, which ends an answer")
    return _ARCHITECTURES[name](config, _plain(config, max_context, ends))


def architecture_of(config: Settings) -> str:
    """Returns the name of the class in transformers; empty if it is not one name."""
    match config.values.get("architectures"):
        case [str(name)]:
            return name
    return ""


def _end_tokens(config: Settings) -> frozenset[int]:
    found = config.values.get("eos_token_id")
    tokens = found if isinstance(found, list) else [] if found is None else [found]
    if not all(type(token) is int and 0 <= token < _MAX_VOCABULARY for token in tokens):
        raise ModelFolderInvalid(f"{config.name}: eos_token_id is {found!r:.80}, must be token ids")
    return frozenset(tokens)


def _plain(config: Settings, max_context: int, ends: frozenset[int]) -> DecoderDescription:
    """Returns what all architectures share."""
    width = config.integer("hidden_size", 1, _MAX_WIDTH)
    heads = config.integer("num_attention_heads", 1, _MAX_HEADS)
    size = config.integer("head_dim", 2, _MAX_HEAD_SIZE, width // heads)
    layers = config.integer("num_hidden_layers", 1, _MAX_LAYERS)
    context = min(max_context, config.integer("max_position_embeddings", 1, _MAX_CONTEXT))
    rotary, context = _rotary(config, _rope(config, "full_attention"), size, context)
    kv_heads = config.integer("num_key_value_heads", 1, heads, heads)
    if heads % kv_heads:
        raise ModelFolderInvalid(f"{config.name}: num_attention_heads is {heads}, no multiple of {kv_heads} key heads")
    activation = config.text("hidden_activation", config.text("hidden_act", "silu"))
    if architecture_of(config) == "GemmaForCausalLM":  # its first configurations say gelu, its class does not heed them
        activation = "gelu_pytorch_tanh"
    if activation not in _ACTIVATIONS:
        raise ModelNotLowerable(f"{config.name}: hidden_act is {activation!r}; known are {', '.join(_ACTIVATIONS)}")
    return DecoderDescription(
        layers=_windows(config, (Layer(_GLOBAL),) * layers),
        query_heads=heads,
        kv_heads=kv_heads,
        head_size=size,
        epsilon=config.number("rms_norm_eps", 0, 1, 1e-6),
        vocabulary_size=config.integer("vocab_size", 1, _MAX_VOCABULARY),
        max_context=context,
        end_tokens=ends,
        rotaries={_GLOBAL: rotary},
        activation=_ACTIVATIONS[activation],
    )


_ACTIVATIONS: Final = {
    "silu": Activation.SILU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
}


def _windows(config: Settings, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Returns the layers with the windows that ``layer_types`` gives them."""
    types = config.values.get("layer_types")
    if types is None:
        return layers
    if not isinstance(types, list) or len(types) != len(layers) or not all(each in _LAYER_TYPES for each in types):
        raise ModelNotLowerable(f"{config.name}: layer_types must be {len(layers)} of {', '.join(_LAYER_TYPES)}")
    if _LAYER_TYPES[1] not in types:
        return layers
    window = config.integer("sliding_window", 1, _MAX_CONTEXT)
    return tuple(
        replace(layer, window=window) if kind == _LAYER_TYPES[1] else layer
        for layer, kind in zip(layers, types, strict=True)
    )


def _rope(config: Settings, kind: str) -> Settings:
    found = config.part("rope_parameters")
    if found is not None:
        return found.part(kind) or found
    scaling = config.part("rope_scaling")
    base = {"rope_theta": config.values.get("rope_theta")}
    return Settings(config.name, base) if scaling is None else Settings(scaling.name, {**scaling.values, **base})


def _rotary(config: Settings, rope: Settings, size: int, context: int) -> tuple[Rotary, int]:
    """Returns the rotary embedding with its scaling, and the context for which it holds."""
    base = rope.number("rope_theta", 1, 1e12, 10_000.0)
    share = rope.number("partial_rotary_factor", 0.01, 1, config.number("partial_rotary_factor", 0.01, 1, 1.0))
    pairs = int(size * share) // 2
    trained = config.integer("original_max_position_embeddings", 1, _MAX_CONTEXT, _MAX_CONTEXT)
    trained = rope.integer("original_max_position_embeddings", 1, _MAX_CONTEXT, trained)
    longest = config.integer("max_position_embeddings", 1, _MAX_CONTEXT)
    trained = longest if trained == _MAX_CONTEXT else trained
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind == "default":
        return Rotary(rotary_frequencies(base, pairs)), context
    if kind in ("longrope", "su"):
        # Keys in pages cannot change their rotation when a text outgrows the short factors, so the context ends there.
        factors = np.array(rope.numbers("short_factor", pairs))
        if not (factors > 0).all():
            raise ModelFolderInvalid(f"{rope.name}: short_factor has factors that are not positive")
        factor = rope.number("factor", 0.01, 1e6, longest / trained)
        magnitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(trained))
        magnitude = rope.number("attention_factor", 0.01, 100, magnitude)
        return Rotary(rotary_frequencies(base, pairs) / factors, magnitude), min(context, trained)
    factor = rope.number("factor", 1, 1e6)
    if kind == "linear":
        return Rotary(rotary_frequencies(base, pairs) / factor), context
    if kind == "llama3":
        turns = (rope.number("low_freq_factor", 1e-3, 1e3), rope.number("high_freq_factor", 1e-3, 1e3))
        if turns[0] >= turns[1]:
            raise ModelFolderInvalid(f"{rope.name}: low_freq_factor is not below high_freq_factor")
        return Rotary(llama3_frequencies(base, pairs, factor, trained, turns)), context
    if kind == "yarn":
        rope.refuse("mscale", "mscale_all_dim")
        turns = (rope.number("beta_slow", 1e-3, 1e3, 1.0), rope.number("beta_fast", 1e-3, 1e3, 32.0))
        magnitude = rope.number("attention_factor", 0.01, 100, yarn_magnitude(factor))
        return Rotary(yarn_frequencies(base, pairs, factor, trained, turns), magnitude), context
    raise ModelNotLowerable(f"{rope.name}: rope_type is {kind!r}; default, linear, llama3, yarn and longrope are known")


def _same(config: Settings, plain: DecoderDescription) -> DecoderDescription:
    return plain


def _mistral(config: Settings, plain: DecoderDescription) -> DecoderDescription:
    if config.values.get("sliding_window") is None or config.values.get("layer_types") is not None:
        return plain
    window = config.integer("sliding_window", 1, _MAX_CONTEXT)
    return replace(plain, layers=tuple(replace(layer, window=window) for layer in plain.layers))


def _qwen2(config: Settings, plain: DecoderDescription) -> DecoderDescription:
    if not config.flag("use_sliding_window", False) or config.values.get("layer_types") is not None:
        return plain
    window = config.integer("sliding_window", 1, _MAX_CONTEXT)
    first = config.integer("max_window_layers", 0, _MAX_LAYERS, 28)
    layers = (replace(layer, window=window) if at >= first else layer for at, layer in enumerate(plain.layers))
    return replace(plain, layers=tuple(layers))


def _qwen3(config: Settings, plain: DecoderDescription) -> DecoderDescription:
    config.integer("head_dim", 2, _MAX_HEAD_SIZE)
    return replace(_qwen2(config, plain), head_norms=True)


def _smollm3(config: Settings, plain: DecoderDescription) -> DecoderDescription:
    """Layers named by ``no_rope_layers`` with 0, else every fourth one, have no positions."""
    count = len(plain.layers)
    interval = config.integer("no_rope_layer_interval", 1, _MAX_LAYERS, 4)
    default = [float((number + 1) % interval != 0) for number in range(count)]
    rotated = config.numbers("no_rope_layers", count, default)
    layers = (layer if has else replace(layer, rotary=None) for layer, has in zip(plain.layers, rotated, strict=True))
    return _qwen2(config, replace(plain, layers=tuple(layers)))


def _phi3(config: Settings, plain: DecoderDescription) -> DecoderDescription:
    window = config.integer("sliding_window", 0, _MAX_CONTEXT, 0)
    return plain if window == 0 else replace(plain, max_context=min(plain.max_context, window))


def _granite(config: Settings, plain: DecoderDescription) -> DecoderDescription:
    return replace(
        plain,
        attention_scale=config.number("attention_multiplier", 1e-6, 1e3, 1.0),
        embedding_scale=config.number("embedding_multiplier", 1e-6, 1e6, 1.0),
        residual_scale=config.number("residual_multiplier", 1e-6, 1e6, 1.0),
        logit_scale=1 / config.number("logits_scaling", 1e-6, 1e6, 1.0),
    )


def _gemma(config: Settings, plain: DecoderDescription) -> DecoderDescription:
    config.integer("head_dim", 2, _MAX_HEAD_SIZE)
    return replace(plain, embedding_scale=math.sqrt(config.integer("hidden_size", 1, _MAX_WIDTH)))


def _gemma3(config: Settings, plain: DecoderDescription) -> DecoderDescription:
    """Most layers have a sliding window and positions of their own; each sixth one sees all."""
    pattern = config.integer("sliding_window_pattern", 1, _MAX_LAYERS, 6)
    layers = plain.layers
    if config.values.get("layer_types") is None:
        window = config.integer("sliding_window", 1, _MAX_CONTEXT)
        layers = tuple(Layer(_GLOBAL, None if (number + 1) % pattern == 0 else window) for number in range(len(layers)))
    rope = config.part("rope_parameters")
    local = None if rope is None else rope.part("sliding_attention")
    base = config.number("rope_local_base_freq", 1, 1e12, 10_000.0)
    base = base if local is None else local.number("rope_theta", 1, 1e12, base)
    pairs = plain.rotaries[_GLOBAL].frequencies.size
    return replace(
        _gemma(config, plain),
        layers=tuple(layer if layer.window is None else replace(layer, rotary=_LOCAL) for layer in layers),
        rotaries={**plain.rotaries, _LOCAL: Rotary(rotary_frequencies(base, pairs))},
        activation=Activation.GELU_TANH,
        attention_scale=config.number("query_pre_attn_scalar", 1e-3, 1e6, 256.0) ** -0.5,
        head_norms=True,
        output_norms=True,
    )


_ARCHITECTURES: Final[Mapping[str, Callable[[Settings, DecoderDescription], DecoderDescription]]] = {
    "LlamaForCausalLM": _same,
    "MistralForCausalLM": _mistral,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen3ForCausalLM": _qwen3,
    "SmolLM3ForCausalLM": _smollm3,
    "Phi3ForCausalLM": _phi3,
    "GemmaForCausalLM": _gemma,
    "Gemma3ForCausalLM": _gemma3,
    "GraniteForCausalLM": _granite,
}

DECODERS: Final = frozenset(_ARCHITECTURES)
"""Classes of transformers that there is a graph for."""


def norms_are_shifted(config: Settings) -> bool:
    return architecture_of(config) in ("GemmaForCausalLM", "Gemma3ForCausalLM")
