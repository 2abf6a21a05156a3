"""Measures a quantized encoder against fp32: cosine of its vectors, and speed."""

from __future__ import annotations

import logging
import os
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnx
import onnxruntime as ort
from bert_graph import BertShape, Linear, build_bert
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from tokenizers import Tokenizer

BATCH = 16
PARAGRAPHS = 300
THREADS = 2
MAX_TOKENS = 256
REPEATS = 3


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
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 3
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    tokens = [encoding.ids[:MAX_TOKENS] for encoding in tokenizer.encode_batch(texts)]
    order = sorted(range(len(texts)), key=lambda index: len(tokens[index]))
    vectors = np.zeros_like(expected)
    took = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        _run_all(session, tokens, order, vectors)
        took = min(took, time.perf_counter() - started)
    cosines = (vectors * expected).sum(axis=1)
    return Quality(float(cosines.mean()), float(cosines.min()), sum(map(len, tokens)) / took)


def _run_all(
    session: ort.InferenceSession, tokens: Sequence[Sequence[int]], order: Sequence[int], vectors: NDArray[np.float32]
) -> None:
    for first in range(0, len(order), BATCH):
        batch = order[first : first + BATCH]
        width = max(len(tokens[index]) for index in batch)
        ids = np.zeros((len(batch), width), np.int64)
        mask = np.zeros((len(batch), width), np.int32)
        for row, index in enumerate(batch):
            ids[row, : len(tokens[index])] = tokens[index]
            mask[row, : len(tokens[index])] = 1
        vectors[batch] = session.run(["sentence_vectors"], {"input_ids": ids, "attention_mask": mask})[0]


def print_comparison(
    weights: Mapping[str, NDArray[np.float32]],
    shape: BertShape,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    expected: NDArray[np.float32],
    scratch: Path,
) -> None:
    """Makes the encoder in every way that was considered and prints what each costs."""
    made = {"fp32": scratch / "fp32.onnx"}
    onnx.save(build_bert(weights, shape, Linear(None)), made["fp32"])
    for label, limit in (("int8, scale a token", 127), ("int8 in 7 bits, scale a token", 63)):
        made[label] = scratch / f"{limit}.onnx"
        onnx.save(build_bert(weights, shape, Linear(limit)), made[label])
    logging.disable(logging.WARNING)
    made["ONNX Runtime dynamic int8, scale a tensor"] = scratch / "dynamic.onnx"
    quantize_dynamic(
        made["fp32"],
        scratch / "dynamic.onnx",
        per_channel=True,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["MatMul", "Gather"],
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )
    for block in (32, 128):
        label = f"MatMulNBits 8 bit, block {block}"
        made[label] = scratch / f"block{block}.onnx"
        config = DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=True, accuracy_level=4, bits=8)
        quantizer = MatMulNBitsQuantizer(onnx.load(made["fp32"]), algo_config=config)
        quantizer.process()
        quantizer.model.save_model_to_file(str(made[label]), False)
    print(f"{'':44} {'mean cosine':>12} {'least':>8} {'tokens/s':>9} {'MB':>6}")
    for label, path in made.items():
        quality = measure(path, tokenizer, texts, expected)
        print(
            f"{label:44} {quality.mean_cosine:12.4f} {quality.least_cosine:8.4f} {quality.tokens_per_second:9.0f} "
            f"{path.stat().st_size / 1e6:6.1f}"
        )
