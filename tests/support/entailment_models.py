"""Entailment models for tests: crafted classifiers, and a model folder with one that reads single characters."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_rag.runtime.model_folder.folder import ModelRole, write_manifest
from tests.fixtures.makers.tiny_encoder import MAX_TOKENS, build_tokenizer

ENTAILS, NEUTRAL, CONTRADICTS = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


class Always:
    """A classifier that judges every pair alike.

    Attributes:
        asked: The pairs of each call.
    """

    def __init__(self, verdict: tuple[float, float, float]) -> None:
        self._verdict = verdict
        self.asked: list[list[tuple[str, str]]] = []

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        self.asked.append(list(pairs))
        return np.tile(np.array(self._verdict, np.float32), (len(pairs), 1))


class Whimsical:
    """A classifier whose judgement of a pair follows from a checksum of it."""

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        choices = [zlib.crc32("\n".join(pair).encode("utf-8", "surrogatepass")) % 3 for pair in pairs]
        return np.eye(3, dtype=np.float32)[choices] if pairs else np.empty((0, 3), np.float32)


def tiny_entailment(
    folder: Path, labels: Sequence[str] = ("entailment", "neutral", "contradiction"), outputs: int = 3
) -> Path:
    """Makes a model folder with a padded graph: the mean of a random row of logits of each token."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    table = np.random.default_rng(7).normal(0, 4, (tokenizer.get_vocab_size(), outputs)).astype(np.float32)
    shape = ["pairs", "tokens"]
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["weights"]),
            helper.make_node("Mul", ["rows", "weights"], ["kept"]),
            helper.make_node("ReduceSum", ["kept", "tokens"], ["sum"], keepdims=0),
            helper.make_node("ReduceSum", ["weights", "tokens"], ["count"], keepdims=0),
            helper.make_node("Div", ["sum", "count"], ["logits"]),
        ],
        "entailment",
        [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, shape),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT64, shape),
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["pairs", outputs])],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(np.array([-1], np.int64), "last"),
            numpy_helper.from_array(np.array([1], np.int64), "tokens"),
        ],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx"
    )
    config = {"id2label": {str(column): label for column, label in enumerate(labels)}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_manifest(
        folder,
        name="tiny-entailment",
        role=ModelRole.ENTAILMENT,
        licence="Apache-2.0",
        source="random weights, seed 7",
        made_by="tests/support/entailment_models.py",
        parameters={"max_tokens": MAX_TOKENS},
    )
    return folder
