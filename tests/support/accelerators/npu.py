"""Encoders on the simulator of the NPU in Qualcomm's plugin for x86-64; opened once for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest

from edge_rag.core.placement import ModelStage
from edge_rag.device.profile import builtin_profiles
from edge_rag.runtime.encoder.bert_graph import BertShape, Floats, WeightPrecision, build_encoder
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.npu.encoders import GraphReady, open_pair_encoder_on_npu, open_text_encoder_on_npu
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.model_folder.folder import ModelRole, write_manifest

REPOSITORY = Path(__file__).parents[3]
EMBEDDER = REPOSITORY / "models" / "minilm-l6"
CROSS_ENCODER = REPOSITORY / "tests" / "fixtures" / "tiny-cross-encoder-int8"

needs_npu = pytest.mark.skipif(
    find_spec("onnxruntime_qnn") is None, reason="onnxruntime-qnn is not installed, so there is no NPU and no simulator"
)


@cache
def npu_text_encoder(compiled: Path) -> TextEncoder:
    """The small embedder; half a second for a short text."""
    return open_text_encoder_on_npu(EMBEDDER, profile_options(), compiled, ignore)


def profile_options() -> Mapping[str, str]:
    (profile,) = (profile for profile in builtin_profiles() if profile.name == "qnn-htp")
    return profile.stages[ModelStage.EMBEDDER].providers[0].options


@cache
def npu_pair_encoder(compiled: Path) -> PairEncoder:
    """A cross-encoder of two small layers."""
    return open_pair_encoder_on_npu(CROSS_ENCODER, {}, compiled, ignore)


def ignore(graph: GraphReady) -> None:
    """Accepts a progress event."""


def small_embedder(folder: Path, max_tokens: int = 48) -> Path:
    """Makes the folder of an embedder of two small layers with random weights, the same in every run."""
    chance = np.random.default_rng(8)
    hidden, wide, layers, words = 64, 128, 2, 30_522

    def weight(*shape: int) -> Floats:
        return np.asarray(chance.standard_normal(shape) / np.sqrt(shape[-1]), np.float32)

    weights = {
        "embeddings.word_embeddings.weight": weight(words, hidden) * 8,
        "embeddings.position_embeddings.weight": weight(max_tokens, hidden),
        "embeddings.token_type_embeddings.weight": weight(2, hidden),
    }
    norms = ["embeddings"]
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        sizes = {f"attention.self.{part}": (hidden, hidden) for part in ("query", "key", "value")}
        sizes |= {"attention.output.dense": (hidden, hidden), "intermediate.dense": (wide, hidden)}
        sizes |= {"output.dense": (hidden, wide)}
        for part, (rows, columns) in sizes.items():
            weights[f"{name}.{part}.weight"] = weight(rows, columns)
            weights[f"{name}.{part}.bias"] = weight(rows)
        norms += [f"{name}.attention.output", f"{name}.output"]
    for name in norms:
        weights[f"{name}.LayerNorm.weight"] = 1 + weight(hidden)
        weights[f"{name}.LayerNorm.bias"] = weight(hidden)
    folder.mkdir(parents=True)
    shape = BertShape(layers, 2, hidden, max_tokens, 1e-12)
    onnx.save(build_encoder(weights, shape, WeightPrecision(8, 64)), folder / "model.onnx")
    shutil.copyfile(EMBEDDER / "tokenizer.json", folder / "tokenizer.json")
    write_manifest(
        folder,
        name="small",
        role=ModelRole.EMBEDDER,
        licence="Apache-2.0",
        source="made here",
        made_by="a test",
        parameters={"dimension": hidden, "max_tokens": max_tokens},
    )
    return folder
