"""Checks ``genai_config.json`` against lists of allowed keys and values.

onnxruntime-genai would load a library that ``custom_ops_library`` names, open any file that a ``filename`` names, pass
``provider_options`` to execution providers that load libraries of their own, and insert layer numbers into names as a
format string. A converted decoder for the CPU needs none of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from edge_rag.runtime.model_folder.manifest import plain_relative_path
from edge_rag.runtime.model_folder.strict_json import parse_object

GENAI_CONFIG_FILE = "genai_config.json"

_FLOAT_BYTES = 4


def _file_of_the_folder(name: str) -> str:
    if "/" in plain_relative_path(name) or not name.endswith(".onnx"):
        raise ValueError(f"{name!r} is not the plain name of a graph in the folder")
    return name


# At most one layer number is inserted, and nothing else.
_TensorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./:-]{0,100}(%d)?[A-Za-z0-9_./:-]{0,100}$")]
_TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
_Size = Annotated[int, Field(ge=1, lt=1 << 31)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _SessionOptions(_Strict):
    log_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,64}$")] = ""
    provider_options: Annotated[list[str], Field(max_length=0)] = []


class _SlidingWindow(_Strict):
    window_size: _Size
    slide_key_value_cache: bool = False
    slide_inputs: bool = False
    layers: list[Annotated[int, Field(ge=0, lt=10_000)]] = []
    cache_slack: Annotated[int, Field(ge=0)] = 0


class _Inputs(_Strict):
    input_ids: _TensorName
    attention_mask: _TensorName | None = None
    position_ids: _TensorName | None = None
    past_key_names: _TensorName | None = None
    past_value_names: _TensorName | None = None


class _Outputs(_Strict):
    logits: _TensorName
    present_key_names: _TensorName | None = None
    present_value_names: _TensorName | None = None


class _Decoder(_Strict):
    session_options: _SessionOptions = _SessionOptions()
    filename: Annotated[str, AfterValidator(_file_of_the_folder)]
    head_size: _Size
    hidden_size: _Size
    num_attention_heads: _Size
    num_hidden_layers: _Size
    num_key_value_heads: _Size
    inputs: _Inputs
    outputs: _Outputs
    sliding_window: _SlidingWindow | None = None


class _Model(_Strict):
    type: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")]
    vocab_size: _Size
    context_length: _Size
    bos_token_id: _TokenId | None = None
    eos_token_id: _TokenId | Annotated[list[_TokenId], Field(max_length=100)] | None = None
    pad_token_id: _TokenId | None = None
    bot_token_id: _TokenId | None = None
    eot_token_id: _TokenId | None = None
    bor_token_id: _TokenId | None = None
    eor_token_id: _TokenId | None = None
    decoder: _Decoder


class _Search(_Strict):
    diversity_penalty: float | int = 0
    do_sample: bool = False
    early_stopping: bool = True
    length_penalty: float | int = 1
    max_length: int = 0
    min_length: int = 0
    no_repeat_ngram_size: int = 0
    num_beams: int = 1
    num_return_sequences: int = 1
    past_present_share_buffer: bool = False
    repetition_penalty: float | int = 1
    temperature: float | int = 1
    top_k: int = 0
    top_p: float | int = 1


class _Document(_Strict):
    model: _Model
    search: _Search = _Search()


@dataclass(frozen=True, slots=True)
class GenaiDecoder:
    """The decoder of a ``genai_config.json``.

    Attributes:
        context_length: Positions are below this, tokens.
        end_tokens: Token ids that end a text; may be empty.
    """

    graph: str
    vocabulary_size: int
    context_length: int
    end_tokens: frozenset[int]
    layers: int
    kv_heads: int
    head_size: int

    @property
    def token_bytes(self) -> int:
        """Most bytes of a token's keys and values: float32."""
        return 2 * self.layers * self.kv_heads * self.head_size * _FLOAT_BYTES


def check_genai_config(content: bytes) -> GenaiDecoder:
    """Checks a ``genai_config.json``."""
    try:
        model = _Document.model_validate(parse_object(content)).model
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        problem = "is not an allowed key" if first["type"] == "extra_forbidden" else first["msg"]
        raise ValueError(f"{where}: {problem}") from error
    decoder, end = model.decoder, model.eos_token_id
    ends = end if isinstance(end, list) else [] if end is None else [end]
    return GenaiDecoder(
        graph=decoder.filename,
        vocabulary_size=model.vocab_size,
        context_length=model.context_length,
        end_tokens=frozenset(ends),
        layers=decoder.num_hidden_layers,
        kv_heads=decoder.num_key_value_heads,
        head_size=decoder.head_size,
    )
