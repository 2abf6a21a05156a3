"""The text encoder: one vector for each text for dense retrieval, one for each token for late interaction.

Token vectors of passages are compared and kept in four bits a dimension. Each block of 64 dimensions of a token has a
scale, and a dimension is one of 16 equally spaced values around zero. The scales of a token are chosen so that the
product of the rounded vector with the exact one is 1, its square length: then products with other vectors are neither
larger nor smaller on the mean (the estimator of Gao and Long, RaBitQ, SIGMOD 2024). Every passage is rounded before it
is compared, so that a passage is scored the same whether its vectors were kept or just computed.
``docs/adr/0020-token-vectors.md`` compares forms.

Layout, little endian: tokens uint32, dimension uint32; then for each token in turn the character ranges int32
[tokens, 2], the scales float16 [tokens, blocks] and the values uint8 [tokens, 32 blocks], the first of two dimensions
in the low half of a byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edge_rag.errors import InferenceFailed, ModelFolderInvalid
from edge_rag.runtime.encoder.tokenizer import (
    INPUT_IDS,
    LENGTHS,
    POSITIONS,
    TextTokenizer,
    TokenizedText,
    pack_texts,
    plan_packs,
)
from edge_rag.runtime.model_folder.folder import ModelManifest, ModelRole, verify_model_folder
from edge_rag.runtime.session.sessions import EncoderArena, open_session, ops_library

FORM: Final = "4 bits, 64 a scale"
"""Names the layout and the rounding; changes when the same vectors may become other bytes."""

_BLOCK: Final = 64
_LEVELS: Final = 16
_MIDDLE: Final = (_LEVELS - 1) / 2
_HEADER: Final = struct.Struct("<II")

_PAIRS: Final = (
    np.stack((np.arange(256) % _LEVELS, np.arange(256) // _LEVELS), axis=1).astype(np.float32) - np.float32(_MIDDLE)
).view(np.float64)[:, 0]
"""The two values of each byte, side by side as one element, so that one look-up unpacks both."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenVectors:
    """A text as one vector for each token, without special tokens.

    Attributes:
        vectors: float32 [tokens, dimension], each of unit length; no rows where the text has no tokens.
        offsets: int32 [tokens, 2]: each token's first character in the text and one past its last, in code points.
    """

    vectors: NDArray[np.float32]
    offsets: NDArray[np.int32]


def packed_bytes(tokens: int, dimension: int) -> int:
    blocks = _blocks(dimension)
    return _HEADER.size + tokens * (8 + 2 * blocks + blocks * _BLOCK // 2)


def pack(tokens: TokenVectors) -> bytes:
    """Rounds the token vectors of a text; a vector of zeros stays one.

    Args:
        tokens: Any number of tokens, of any dimension.
    """
    count, dimension = tokens.vectors.shape
    blocks = _blocks(dimension)
    exact = np.zeros((count, blocks * _BLOCK), np.float32)
    exact[:, :dimension] = tokens.vectors
    parts = exact.reshape(count, blocks, _BLOCK)
    scales = np.maximum(parts.max(axis=2), -parts.min(axis=2)) / np.float32(_MIDDLE)
    steps = np.divide(np.float32(1.0), scales, out=np.zeros_like(scales), where=scales > 0)
    values = parts * steps[:, :, None]
    values += np.float32(_LEVELS / 2)
    levels = np.minimum(values, np.float32(_LEVELS - 1)).astype(np.uint8)
    rounded = np.einsum("tbd,tbd->tb", levels - np.float32(_MIDDLE), parts)
    products = (rounded * scales).sum(axis=1, keepdims=True)
    squares = np.einsum("tbd,tbd->t", parts, parts)[:, None]
    scales *= np.divide(squares, products, out=np.ones_like(products), where=products > 0)
    levels = levels.reshape(count, blocks * _BLOCK)
    codes = levels[:, 0::2] | (levels[:, 1::2] << 4)
    offsets = tokens.offsets.astype("<i4")
    header = _HEADER.pack(count, dimension)
    return b"".join((header, offsets.tobytes(), scales.astype("<f2").tobytes(), codes.tobytes()))


def unpack(packed: bytes) -> TokenVectors:
    """Returns rounded token vectors, about of unit length."""
    if len(packed) < _HEADER.size:
        raise ValueError("packed vectors without a header")
    count, dimension = _HEADER.unpack_from(packed)
    if not dimension or len(packed) != packed_bytes(count, dimension):
        raise ValueError(f"{len(packed):,} bytes are not {count:,} vectors of {dimension:,} dimensions")
    blocks = _blocks(dimension)
    at = _HEADER.size
    offsets = np.frombuffer(packed, "<i4", 2 * count, at).reshape(count, 2).astype(np.int32)
    at += offsets.nbytes
    scales = np.frombuffer(packed, "<f2", count * blocks, at).astype(np.float32)
    at += 2 * count * blocks
    if not np.isfinite(scales).all() or (offsets[:, 1] < offsets[:, 0]).any() or (np.diff(offsets[:, 0]) < 0).any():
        raise ValueError("packed vectors with impossible scales or places")
    codes = np.frombuffer(packed, np.uint8, offset=at)
    values: NDArray[np.float32] = _PAIRS[codes].view(np.float32).reshape(count * blocks, _BLOCK)
    values *= scales[:, None]
    return TokenVectors(np.ascontiguousarray(values.reshape(count, blocks * _BLOCK)[:, :dimension]), offsets)


def _blocks(dimension: int) -> int:
    return -(-dimension // _BLOCK)


Floats = NDArray[np.float32]

SENTENCE_VECTORS: Final = "sentence_vectors"
TOKEN_VECTORS: Final = "token_vectors"
_MODEL = "model.onnx"
_TOKENIZER = "tokenizer.json"
# Few enough that the values between two layers stay in a core's cache.
_RUN_TOKENS = 512


class TextGraph(Protocol):
    """Runs a text encoder on token ids, from any thread. Callers translate exceptions of libraries."""

    def sentence_vectors(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Returns one vector for each text, float32 [texts, dimension], all of unit length."""
        ...

    def token_vectors(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        """Returns, for each text, one vector for each token, float32 [tokens, dimension], all of unit length."""
        ...

    def all_vectors(self, texts: Sequence[Sequence[int]]) -> tuple[Floats, list[Floats]]:
        """Returns ``sentence_vectors`` and ``token_vectors``, with the same bits; each text is run once."""
        ...

    def keep_memory(self, keep: bool) -> None:
        """Sets whether memory of intermediate results is kept between runs; it is at first."""
        ...


def text_graph(session: ort.InferenceSession, dimension: int) -> TextGraph | None:
    """Returns the runner of a packed graph, or None if the graph has another form."""
    inputs = {value.name for value in session.get_inputs()}
    outputs = {value.name for value in session.get_outputs()}
    if inputs != {INPUT_IDS, POSITIONS, LENGTHS} or not {TOKEN_VECTORS, SENTENCE_VECTORS} <= outputs:
        return None
    return PackedTextGraph(session, dimension)


class PackedTextGraph:
    """Runs a graph over packed texts: no padding, and any lengths in one run."""

    def __init__(self, session: ort.InferenceSession, dimension: int) -> None:
        self._session = session
        self._arena = EncoderArena()
        self._dimension = dimension

    def sentence_vectors(self, texts: Sequence[Sequence[int]]) -> Floats:
        return self._vectors([SENTENCE_VECTORS], texts)[0]

    def token_vectors(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        return self._vectors([TOKEN_VECTORS], texts)[1]

    def all_vectors(self, texts: Sequence[Sequence[int]]) -> tuple[Floats, list[Floats]]:
        return self._vectors([SENTENCE_VECTORS, TOKEN_VECTORS], texts)

    def keep_memory(self, keep: bool) -> None:
        self._arena.keep(keep)

    def _vectors(self, outputs: Sequence[str], texts: Sequence[Sequence[int]]) -> tuple[Floats, list[Floats]]:
        sentences = np.empty((len(texts), self._dimension), dtype=np.float32)
        tokens: list[Floats] = []
        for run in plan_packs([len(ids) for ids in texts], _RUN_TOKENS):
            packed = texts[run.start : run.stop]
            ends = np.cumsum([len(ids) for ids in packed])
            results = self._session.run(outputs, dict(pack_texts(packed).inputs()), self._arena.options)
            for output, result in zip(outputs, results, strict=True):
                rows = len(run) if output == SENTENCE_VECTORS else int(ends[-1])
                if result.shape != (rows, self._dimension):
                    raise InferenceFailed(
                        f"{output} has the shape {list(result.shape)}, {[rows, self._dimension]} was promised"
                    )
                if output == SENTENCE_VECTORS:
                    sentences[run.start : run.stop] = result
                else:
                    tokens += np.split(result, ends[:-1])
        return sentences, tokens


class TextEncoder:
    """An encoder from a model folder. Any method may be called by any thread.

    A text's vectors have the same bits whether it is encoded alone or among others, by one thread or by several.

    Attributes:
        name: Name of the vectors: differs where the same text could get others.
        max_tokens: Most tokens of a text that ``embed`` reads, special tokens included.
    """

    def __init__(self, graph: TextGraph, tokenizer: TextTokenizer, manifest: ModelManifest, form: str = "") -> None:
        """Composes an encoder.

        Args:
            graph: Returns vectors of ``dimension`` elements for up to ``tokenizer.max_tokens`` tokens.
            form: Name of the graph's form, where that changes the vectors.
        """
        self._graph = graph
        self._tokenizer = tokenizer
        self.name = manifest.identity(form)
        self.dimension = manifest.integer("dimension", 1, 65_536)
        self.max_tokens = tokenizer.max_tokens
        self._question_prompt = manifest.text("question_prompt")
        self._passage_prompt = manifest.text("passage_prompt")

    @classmethod
    def open(cls, folder: Path) -> TextEncoder:
        """Verifies and opens a model folder of the role ``embedder``.

        The graph takes packed texts, ``input_ids`` and ``positions`` int64 [tokens] and ``cumulative_sequence_lengths``
        int32 [texts + 1], and returns ``token_vectors`` float32 [tokens, dimension] and ``sentence_vectors`` float32
        [texts, dimension], all of unit length. The manifest's parameters are ``dimension`` and ``max_tokens``, and for
        models trained with them ``question_prompt`` and ``passage_prompt``, the prefixes of questions and passages.
        """
        manifest = verify_model_folder(folder, ModelRole.EMBEDDER, required=(_MODEL, _TOKENIZER))
        tokenizer = TextTokenizer.open(folder / _TOKENIZER, manifest.integer("max_tokens", 8, 65_536))
        session = open_session(folder / _MODEL, ops_library())
        graph = text_graph(session, manifest.integer("dimension", 1, 65_536))
        if graph is None:
            inputs = sorted(value.name for value in session.get_inputs())
            outputs = sorted(value.name for value in session.get_outputs())
            raise ModelFolderInvalid(
                f"{folder}: {_MODEL} is not a text encoder (inputs {inputs}, outputs {outputs}); "
                "make it as models/README.md describes"
            )
        return cls(graph, tokenizer, manifest)

    def keep_memory(self, keep: bool) -> None:
        self._graph.keep_memory(keep)

    def count_tokens(self, text: str) -> int:
        """Counts a text's tokens, special tokens included; ``embed`` reads up to ``max_tokens`` of them."""
        return self._tokenizer.count(self._passage_prompt + text)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encodes each passage as one vector. A text longer than ``max_tokens`` is represented by its beginning.

        Returns:
            float32 [texts, dimension], each of unit length, so that a dot product is a cosine.
        """
        return self._embed([self._passage_prompt + text for text in texts])

    def embed_questions(self, questions: Sequence[str]) -> NDArray[np.float32]:
        return self._embed([self._question_prompt + question for question in questions])

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        ids = self._tokenizer.truncated_ids(texts)
        try:
            return self._graph.sentence_vectors(ids)
        except Exception as error:
            raise self._failed(error) from error

    def token_vectors(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Encodes each text as one vector for each token, in several windows where it is longer than ``max_tokens``.

        Returns:
            One entry for each text, in order.
        """
        return self._token_vectors("", texts)

    def passage_tokens(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Encodes each passage as ``token_vectors`` does, with the prompt of passages before it, which has no vectors.

        The vectors are rounded as they are kept, so that a passage compares alike whether they were kept or not.
        """
        return [unpack(pack(each)) for each in self._token_vectors(self._passage_prompt, texts)]

    def embed_passages(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], list[bytes]]:
        """Returns the bits of ``embed`` and, packed, those of ``passage_tokens``, from one run."""
        windows = [self._tokenizer.windows(self._passage_prompt + text) for text in texts]
        if any(len(each) > 1 for each in windows):
            return self.embed(texts), [pack(each) for each in self._token_vectors(self._passage_prompt, texts)]
        try:
            sentences, tokens = self._graph.all_vectors([window.ids for (window,) in windows])
        except Exception as error:
            raise self._failed(error) from error
        skipped = len(self._passage_prompt)
        return sentences, [pack(_of_windows(each, [rows], skipped)) for each, rows in zip(windows, tokens, strict=True)]

    def _token_vectors(self, prompt: str, texts: Sequence[str]) -> list[TokenVectors]:
        windows = [self._tokenizer.windows(prompt + text) for text in texts]
        try:
            vectors = iter(self._graph.token_vectors([window.ids for each in windows for window in each]))
        except Exception as error:
            raise self._failed(error) from error
        return [_of_windows(each, list(islice(vectors, len(each))), len(prompt)) for each in windows]

    def _failed(self, error: Exception) -> InferenceFailed:
        return InferenceFailed(f"{self.name}: the encoder failed: {error}")


def _of_windows(windows: Sequence[TokenizedText], vectors: Sequence[Floats], skipped: int) -> TokenVectors:
    """Returns the token vectors of a text without special tokens, and without those of its first characters.

    Args:
        vectors: Token vectors of each, float32 [tokens, dimension].
        skipped: Characters before the text, whose tokens are left out.
    """
    offsets = np.array([place for window in windows for place in window.offsets], dtype=np.int32).reshape(-1, 2)
    special = np.array([flag for window in windows for flag in window.special], dtype=np.bool_)
    kept = ~special & (offsets[:, 1] > skipped) if skipped else ~special
    return TokenVectors(np.concatenate(vectors)[kept], np.maximum(offsets[kept] - skipped, 0, dtype=np.int32))
