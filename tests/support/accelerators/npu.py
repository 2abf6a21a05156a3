"""Encoders on the simulator of the NPU in Qualcomm's plugin for x86-64; opened once for all tests."""

import shutil
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest

from edge_rag.core.placement import ModelStage
from edge_rag.device.profile import builtin_profiles
from edge_rag.runtime.encoder.bert_graph import BertShape, WeightPrecision, build_encoder
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.npu.encoders import GraphReady, open_pair_encoder_on_npu, open_text_encoder_on_npu
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.model_folder.folder import ModelRole
from tests.fixtures.makers.tiny_encoder import BERT, random_tensors, tensors_of
from tests.support.model_folders import describe_model

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
    config = BERT | {"intermediate_size": 128, "vocab_size": 30_522, "max_position_embeddings": max_tokens}
    folder.mkdir(parents=True)
    shape = BertShape.of(config, max_tokens)
    weights = random_tensors(tensors_of(config), seed=8)
    onnx.save(build_encoder(weights, shape, WeightPrecision(8, 64)), folder / "model.onnx")
    shutil.copyfile(EMBEDDER / "tokenizer.json", folder / "tokenizer.json")
    return describe_model(folder, ModelRole.EMBEDDER, "small", dimension=shape.hidden, max_tokens=max_tokens)
