"""The float32 reference, which knows nothing of the graphs, and the unrounded graphs compute the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge_rag.errors import ModelFolderInvalid, ModelNotLowerable
from edge_rag.runtime.checkpoint.architectures import Settings
from edge_rag.runtime.encoder.bert_graph import BertShape, Pooling, WeightPrecision, build_cross_encoder, build_encoder
from edge_rag.runtime.encoder.bert_network import read_network
from edge_rag.runtime.encoder.checkpoint_weights import EncoderWeights
from edge_rag.runtime.encoder.modern_bert_graph import ModernBertLayer, ModernBertShape, build_modern_bert_encoder
from edge_rag.runtime.encoder.reference_encoder import classified, modern_reference_hidden, pooled, reference_hidden
from edge_rag.runtime.encoder.tokenizer import pack_texts
from edge_rag.runtime.session.sessions import open_session, ops_library
from tests.fixtures.makers.tiny_encoder import (
    BERT,
    MAX_TOKENS,
    MODERN_BERT,
    VOCABULARY,
    XLM_ROBERTA,
    scorer,
    tensors_of,
    write_encoder,
)

RANDOM = np.random.default_rng(3)
TEXTS = [RANDOM.integers(0, VOCABULARY, length) for length in (1, 2, MAX_TOKENS, 17)]
TYPES = [np.minimum(1, np.arange(len(text)) // 5) for text in TEXTS]


def read(folder: Path, config: Mapping[str, Any]) -> EncoderWeights:
    return EncoderWeights(folder, tensors_of(config))


def modern(config: Mapping[str, Any]) -> ModernBertShape:
    return ModernBertShape.of(Settings("config.json", config), MAX_TOKENS)


def run(model: onnx.ModelProto, path: Path, texts: Sequence[Any] = TEXTS, **further: Any) -> list[Any]:
    onnx.save(model, path)
    found: list[Any] = open_session(path, ops_library()).run(
        None, {**pack_texts([text.tolist() for text in texts]).inputs(), **further}
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


@pytest.mark.parametrize("pooling", Pooling)
@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_every_vector_of_modern_bert_is_that_of_the_unrounded_graph(
    tmp_path: Path, activation: str, pooling: Pooling
) -> None:
    config = MODERN_BERT | {"hidden_activation": activation}
    weights, shape = read(write_encoder(tmp_path / "model", config, prefix="model."), config), modern(config)
    hidden = modern_reference_hidden(shape, weights, TEXTS)
    tokens, texts = run(build_modern_bert_encoder(weights, shape, None, pooling), tmp_path / "model.onnx")
    rows = np.concatenate(hidden)
    np.testing.assert_allclose(tokens, rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-5)
    np.testing.assert_allclose(texts, pooled(hidden, pooling), atol=1e-5)
    everywhere = modern(config | {"local_attention": 2 * MAX_TOKENS})
    assert np.abs(modern_reference_hidden(everywhere, weights, TEXTS)[2] - hidden[2]).max() > 0.1


def test_a_text_of_modern_bert_has_the_same_bits_alone_and_among_others(tmp_path: Path) -> None:
    weights = read(write_encoder(tmp_path / "model", MODERN_BERT), MODERN_BERT)
    model = build_modern_bert_encoder(weights, modern(MODERN_BERT), WeightPrecision(8, 128), Pooling.CLS)
    tokens, texts = run(model, tmp_path / "model.onnx")
    ends = np.cumsum([len(text) for text in TEXTS])
    for text, end, vector in zip(TEXTS, ends, texts, strict=True):
        alone = run(model, tmp_path / "model.onnx", [text])
        np.testing.assert_array_equal(alone[0], tokens[end - len(text) : end])
        np.testing.assert_array_equal(alone[1][0], vector)
    with pytest.raises(ModelNotLowerable, match="ModernBERT encoders run on processor cores only"):
        read_network(model)


def test_configurations_of_older_and_newer_files_are_read_alike() -> None:
    newer = {key: value for key, value in MODERN_BERT.items() if "rope" not in key} | {
        "layer_types": ["full_attention", *["sliding_attention"] * 2, "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 160_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    }
    assert modern(newer) == modern(MODERN_BERT)
    whole, local = ModernBertLayer(0, 160_000.0), ModernBertLayer(8, 10_000.0)
    assert modern(newer).layers == (whole, local, local, whole, local)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"norm_bias": True}, "norm_bias is True"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"hidden_activation": "relu"}, "hidden_activation is 'relu'"),
        ({"num_attention_heads": 8}, "num_attention_heads is 8 for 64 elements"),
        ({"num_hidden_layers": 513}, "num_hidden_layers is 513"),
        ({"local_attention": 0}, "local_attention is 0"),
        ({"layer_types": ["full_attention"]}, "layer_types must be 5 of"),
        ({"layer_types": ["linear_attention"] * 5}, "layer_types must be 5 of"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type is 'yarn'"),
        ({"global_rope_theta": 0}, "global_rope_theta is 0"),
        ({"max_position_embeddings": 1 << 40}, "max_position_embeddings"),
    ],
)
def test_what_modern_bert_is_not_carried_over_with_is_named(change: dict[str, Any], why: str) -> None:
    with pytest.raises((ModelFolderInvalid, ModelNotLowerable), match=why):
        modern(MODERN_BERT | change)


@pytest.mark.parametrize(
    ("config", "prefix"), [(scorer(BERT), "bert."), (scorer(XLM_ROBERTA), "roberta.")], ids=["bert", "xlm-roberta"]
)
def test_every_score_is_that_of_the_unrounded_graph(tmp_path: Path, config: dict[str, Any], prefix: str) -> None:
    weights = read(write_encoder(tmp_path / "model", config, prefix=prefix), config)
    shape = BertShape.of(config, MAX_TOKENS)
    scores = classified(reference_hidden(shape, weights, TEXTS, TYPES), weights)[:, 0]
    types: dict[str, Any] = {"token_type_ids": np.concatenate(TYPES)} if config["model_type"] == "bert" else {}
    (found,) = run(build_cross_encoder(weights, shape, None), tmp_path / "model.onnx", **types)
    np.testing.assert_allclose(found.reshape(-1), scores, atol=1e-5)
    assert scores.std() > 0.01


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
