"""Makes the CUDA form of a generator, with INT8 keys and values scaled to the user's documents."""

from __future__ import annotations

import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import JsonValue

from edge_rag.errors import ConfigurationError
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from edge_rag.runtime.decoder.cuda.folder import CUDA_FILES, write_cuda_form
from edge_rag.runtime.decoder.cuda.kv_scales import ObservedKv, scales_of
from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from edge_rag.runtime.lowering.geometry import read_geometry
from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder, write_manifest

_SYSTEM: Final = "Answer from the passages only."
_DATABASE: Final = "documents.sqlite3"
_SUFFIXES: Final = (".md", ".txt")
_MAX_PROMPT_TOKENS: Final = 1024


@dataclass(frozen=True, slots=True)
class Calibration:
    """The data of a calibration."""

    texts: int
    tokens: int


def calibrate(
    folder: Path, documents: Path, max_tokens: int, margin: float, on_tokens: Callable[[int], None]
) -> Calibration:
    """Runs a generator over documents on the CPU and adds a CUDA form to its folder.

    The largest key and value of each layer, head and channel give the scales. The folder gets kv_scales.json, in the
    format of onnxruntime-genai's kv_cache_scale_file, cuda.onnx, cuda.onnx.data and cuda.json, and a new manifest. An
    error or KeyboardInterrupt leaves it unchanged.

    Args:
        documents: A folder of .txt and .md files, or a data directory, which is only read.
        max_tokens: No prompt is started after this many tokens.
        margin: Ratio of the scaled range to the largest observed value; larger values are clipped. From 1 to 10.
        on_tokens: Called with the number of tokens done after each prompt.

    Raises:
        ConfigurationError: There is no text, or the documents cannot be read.
    """
    manifest = verify_model_folder(folder, ModelRole.GENERATOR)
    geometry = read_geometry(folder)
    prompt_tokens = min(_MAX_PROMPT_TOKENS, geometry.max_context)
    observed = ObservedKv(PagedDecoder.open(folder, -(-prompt_tokens // geometry.page_tokens)))
    texts = 0
    try:
        for prompt in _prompts(documents, ChatTokenizer.open(folder), prompt_tokens):
            observed.observe(np.array(prompt, np.int64))
            texts += 1
            on_tokens(observed.tokens)
            if observed.tokens >= max_tokens:
                break
    except (OSError, sqlite3.Error) as error:
        raise ConfigurationError(f"{documents} cannot be read: {error}") from error
    if texts == 0:
        raise ConfigurationError(
            f"{documents} has no text: give a folder with .txt or .md files, or a data directory with documents"
        )
    made: dict[str, JsonValue] = {"texts": texts, "tokens": observed.tokens, "margin": margin, "model": manifest.name}
    # Written beside the folder and then moved: a folder with files that its manifest does not list is refused.
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.resolve().parent) as staging:
        write_cuda_form(folder, Path(staging), scales_of(observed.keys, observed.values, margin), made)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for name in CUDA_FILES:
                (Path(staging) / name).replace(folder / name)
            write_manifest(
                folder,
                name=manifest.name,
                role=manifest.role,
                licence=manifest.licence,
                source=manifest.source,
                made_by=manifest.made_by,
                parameters=manifest.parameters,
            )
        finally:
            signal.signal(signal.SIGINT, before)
    return Calibration(texts, observed.tokens)


def read_texts(documents: Path) -> Iterator[str]:
    """Yields the text of each document of a folder or a data directory."""
    database = documents / _DATABASE
    if database.is_file():
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            for (text,) in connection.execute("SELECT text FROM documents ORDER BY document"):
                yield text
        return
    for path in sorted(path for path in documents.rglob("*") if path.suffix in _SUFFIXES and path.is_file()):
        yield path.read_text(encoding="utf-8", errors="replace")


def _prompts(documents: Path, tokenizer: ChatTokenizer, max_tokens: int) -> Iterator[list[int]]:
    text_tokens = max_tokens - len(tokenizer.encode_chat(_SYSTEM, ""))
    for text in read_texts(documents):
        words = text.split(" ")
        # Few words have more than two tokens; a longer prompt is truncated.
        step = max(1, text_tokens // 2)
        for first in range(0, len(words), step):
            yield tokenizer.encode_chat(_SYSTEM, " ".join(words[first : first + step]))[:max_tokens]
