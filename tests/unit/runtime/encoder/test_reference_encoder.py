"""The float32 reference, which knows nothing of the graphs, and the unrounded graphs compute the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge_rag.errors import ModelFolderInvalid
from edge_rag.runtime.checkpoint.architectures import Settings
from edge_rag.runtime.encoder.batching import pack_texts
from edge_rag.runtime.encoder.bert_graph import BertShape, Pooling, build_cross_encoder, build_encoder
from edge_rag.runtime.encoder.checkpoint_weights import EncoderWeights, bert_tensors
from edge_rag.runtime.encoder.reference_encoder import classified, gelu, pooled, reference_hidden
from edge_rag.runtime.session.sessions import open_session, ops_library
from tests.fixtures.makers.tiny_encoder import BERT, MAX_TOKENS, VOCABULARY, XLM_ROBERTA, scorer, write_encoder

RANDOM = np.random.default_rng(3)
TEXTS = [RANDOM.integers(0, VOCABULARY, length) for length in (1, 2, MAX_TOKENS, 17)]
TYPES = [np.minimum(1, np.arange(len(text)) // 5) for text in TEXTS]


def read(folder: Path, config: Mapping[str, Any]) -> EncoderWeights:
    return EncoderWeights(folder, bert_tensors(Settings("config.json", config), "id2label" in config))


def run(model: onnx.ModelProto, path: Path, **further: Any) -> list[Any]:
    onnx.save(model, path)
    found: list[Any] = open_session(path, ops_library()).run(
        None, {**pack_texts([text.tolist() for text in TEXTS]).inputs(), **further}
    )
    return found


@pytest.mark.parametrize("pooling", Pooling)
@pytest.mark.parametrize(("config", "prefix"), [(BERT, ""), (XLM_ROBERTA, "roberta.")], ids=["bert", "xlm-roberta"])
def test_every_vector_is_that_of_the_unrounded_graph(
    tmp_path: Path, config: dict[str, Any], prefix: str, pooling: Pooling
) -> None:
    weights = read(write_encoder(tmp_path / "model", config, prefix=prefix), config)
    shape = BertShape.of(config, MAX_TOKENS)
    hidden = reference_hidden(shape, weights, TEXTS, [np.zeros_like(text) for text in TEXTS])
    tokens, texts = run(build_encoder(weights, shape, None, pooling), tmp_path / "model.onnx")
    rows = np.concatenate(hidden)
    np.testing.assert_allclose(tokens, rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-5)
    np.testing.assert_allclose(texts, pooled(hidden, pooling), atol=1e-5)


@pytest.mark.parametrize(
    ("config", "prefix"), [(scorer(BERT), "bert."), (scorer(XLM_ROBERTA), "roberta.")], ids=["bert", "xlm-roberta"]
)
def test_every_score_is_that_of_the_unrounded_graph(tmp_path: Path, config: dict[str, Any], prefix: str) -> None:
    weights = read(write_encoder(tmp_path / "model", config, prefix=prefix), config)
    shape = BertShape.of(config, MAX_TOKENS)
    scores = classified(reference_hidden(shape, weights, TEXTS, TYPES), weights)
    types = {"token_type_ids": np.concatenate(TYPES)} if config["model_type"] == "bert" else {}
    (found,) = run(build_cross_encoder(weights, shape, None), tmp_path / "model.onnx", **types)
    np.testing.assert_allclose(found.reshape(-1), scores, atol=1e-5)
    assert scores.std() > 0.01


def test_gelu_is_that_of_the_error_function() -> None:
    values = np.linspace(-8, 8, 2001, dtype=np.float32)
    exact = [value * 0.5 * (1 + math.erf(value / math.sqrt(2))) for value in values.tolist()]
    np.testing.assert_allclose(gelu(values), exact, atol=1e-6)


def test_bfloat16_is_read_as_the_values_it_stores(tmp_path: Path) -> None:
    exact, rounded = (read(write_encoder(tmp_path / kind, BERT, kind), BERT) for kind in ("F32", "BF16"))
    assert set(exact) == set(rounded)
    assert exact.elements == sum(exact[name].size for name in exact)
    for name in exact:
        np.testing.assert_allclose(rounded[name], exact[name], rtol=2**-7)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"intermediate_size": 95}, r"encoder\.layer\.0\.intermediate\.dense\.weight has the shape \[96, 64\].*\[95,"),
        ({"vocab_size": 7}, r"embeddings\.word_embeddings\.weight has the shape"),
        ({"num_hidden_layers": 3}, r"the tensor encoder\.layer\.2\.attention\.self\.query\.weight is missing"),
        ({"type_vocab_size": 1}, r"token_type_embeddings\.weight has the shape"),
        ({"num_hidden_layers": 513}, "num_hidden_layers is 513, must be an integer from 1 to 512"),
        ({"vocab_size": 1 << 30}, "vocab_size"),
        ({"intermediate_size": None}, "intermediate_size is missing"),
        ({"intermediate_size": True}, "intermediate_size is True"),
    ],
)
def test_tensors_that_do_not_fit_the_configuration_are_named(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    folder = write_encoder(tmp_path / "model", BERT)
    with pytest.raises(ModelFolderInvalid, match=why):
        read(folder, BERT | change)
