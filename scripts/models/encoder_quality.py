"""Measures a quantized encoder against fp32: cosine of its vectors, and speed."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import onnx
from numpy.typing import NDArray
from tokenizers import Tokenizer

from edge_rag.runtime.encoder.batching import pack_texts, plan_packs
from edge_rag.runtime.encoder.bert_graph import BertShape, WeightPrecision, build_encoder
from edge_rag.runtime.session.sessions import open_session, ops_library

PARAGRAPHS = 300
MAX_TOKENS = 256
RUN_TOKENS = 512
REPEATS = 3
CONSIDERED = {
    "fp32": None,
    "8 bits, one scale a column": WeightPrecision(8, None),
    "8 bits, block 128": WeightPrecision(8, 128),
    "8 bits, block 32": WeightPrecision(8, 32),
    "4 bits, block 128": WeightPrecision(4, 128),
    "4 bits, block 32": WeightPrecision(4, 32),
}


@dataclass(frozen=True, slots=True)
class Quality:
    """How far a graph's sentence vectors are from fp32's, and how fast it makes them (tokens a second)."""

    mean_cosine: float
    least_cosine: float
    tokens_per_second: float


def sample_paragraphs() -> list[str]:
    """Prose that every Python brings along (its language reference), in a fixed random order."""
    found = {
        re.sub(r"\s+", " ", paragraph).strip()
        for topic in topics.values()
        for paragraph in topic.split("\n\n")
        if 60 <= len(paragraph) <= 1200 and paragraph.count("  ") < 8
    }
    paragraphs = sorted(found)
    random.Random(7).shuffle(paragraphs)
    return paragraphs[:PARAGRAPHS]


def measure(model: Path, tokenizer: Tokenizer, texts: Sequence[str], expected: NDArray[np.float32]) -> Quality:
    """Runs all texts, the speed is the best of a few times; ``expected`` is float32 [texts, hidden] of unit length."""
    session = open_session(model, ops_library())
    tokens = [encoding.ids[:MAX_TOKENS] for encoding in tokenizer.encode_batch(list(texts))]
    packs = plan_packs([len(ids) for ids in tokens], RUN_TOKENS)
    vectors = np.zeros_like(expected)
    took = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        for pack in packs:
            inputs = pack_texts(tokens[pack.start : pack.stop]).inputs()
            vectors[pack.start : pack.stop] = session.run(["sentence_vectors"], inputs)[0]
        took = min(took, time.perf_counter() - started)
    cosines = (vectors * expected).sum(axis=1)
    return Quality(float(cosines.mean()), float(cosines.min()), sum(map(len, tokens)) / took)


def print_comparison(
    weights: Mapping[str, NDArray[np.float32]],
    shape: BertShape,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    expected: NDArray[np.float32],
    scratch: Path,
) -> None:
    """Makes the encoder in every way that was considered and prints what each costs."""
    print(f"{'':32} {'mean cosine':>12} {'least':>8} {'tokens/s':>9} {'MB':>6}")
    for label, precision in CONSIDERED.items():
        path = scratch / "considered.onnx"
        onnx.save(build_encoder(weights, shape, precision), path)
        quality = measure(path, tokenizer, texts, expected)
        print(
            f"{label:32} {quality.mean_cosine:12.4f} {quality.least_cosine:8.4f} {quality.tokens_per_second:9.0f} "
            f"{path.stat().st_size / 1e6:6.1f}"
        )
