"""What sentence-transformers' files say about an encoder, read as that library would; refusals are in the table."""

import json
from pathlib import Path

import pytest

from edge_rag.errors import ModelNotAdded
from edge_rag.model_store.checkpoint import check_checkpoint, wanted_files
from edge_rag.model_store.convert.encoder_checkpoint import EncoderCheckpoint, read_encoder
from edge_rag.runtime.encoder.bert_graph import BertShape, Pooling
from edge_rag.runtime.model_folder.folder import ModelRole
from tests.unit.model_store.attacks.valid_folders import BERT, POOLING, good_embedder, good_reranker


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    good_embedder(tmp_path / "model")
    return tmp_path / "model"


def rewrite(folder: Path, name: str, **values: object) -> None:
    document = json.loads((folder / name).read_bytes()) | values
    (folder / name).write_text(json.dumps(document))


def embedder(folder: Path) -> EncoderCheckpoint:
    assert check_checkpoint(folder).role is ModelRole.EMBEDDER
    return read_encoder(folder, ModelRole.EMBEDDER)


def test_pooling_prompts_and_the_longest_input_are_applied(folder: Path) -> None:
    found = embedder(folder)
    assert (found.pooling, found.question_prompt, found.passage_prompt) == (Pooling.MEAN, "ask: ", "")
    assert found.shape.max_tokens == 32
    rewrite(folder, "sentence_bert_config.json", max_seq_length=4096)
    assert embedder(folder).shape.max_tokens == 48  # as many positions as it has
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 20}))
    assert embedder(folder).shape.max_tokens == 20


@pytest.mark.parametrize(("flag", "pooling"), [("cls_token", Pooling.CLS), ("mean_tokens", Pooling.MEAN)])
def test_pooling_is_read_as_older_versions_wrote_it(folder: Path, flag: str, pooling: Pooling) -> None:
    flags = {f"pooling_mode_{name}": name == flag for name in ("cls_token", "mean_tokens", "max_tokens")}
    (folder / POOLING).write_text(json.dumps({"word_embedding_dimension": 32, **flags}))
    assert embedder(folder).pooling is pooling


def test_two_poolings_at_once_are_refused(folder: Path) -> None:
    (folder / POOLING).write_text(json.dumps({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}))
    with pytest.raises(ModelNotAdded, match="not supported"):
        embedder(folder)


@pytest.mark.parametrize("name", ["document", "passage", "corpus"])
def test_a_passages_prompt_has_one_of_three_names(folder: Path, name: str) -> None:
    rewrite(folder, "config_sentence_transformers.json", prompts={"query": "q: ", name: "p: ", "other": "o: "})
    assert (embedder(folder).question_prompt, embedder(folder).passage_prompt) == ("q: ", "p: ")


def test_prompts_that_are_left_out_of_pooling_are_refused(folder: Path) -> None:
    rewrite(folder, POOLING, include_prompt=False)
    with pytest.raises(ModelNotAdded, match="include_prompt"):
        embedder(folder)


def test_a_plain_checkpoint_is_pooled_by_the_mean(folder: Path) -> None:
    (folder / "modules.json").unlink()
    found = embedder(folder)
    assert (found.pooling, found.question_prompt) == (Pooling.MEAN, "")


def test_positions_of_roberta_begin_behind_the_paddings(folder: Path) -> None:
    config = BERT | {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "pad_token_id": 1}
    (folder / "config.json").write_text(json.dumps(config))
    rewrite(folder, "sentence_bert_config.json", max_seq_length=None)
    shape = embedder(folder).shape
    assert isinstance(shape, BertShape)
    assert (shape.first_position, shape.max_tokens) == (2, 46)


def test_a_cross_encoder_is_one_with_a_single_label(tmp_path: Path) -> None:
    good_reranker(tmp_path / "model")
    assert check_checkpoint(tmp_path / "model").role is ModelRole.RERANKER
    assert read_encoder(tmp_path / "model", ModelRole.RERANKER).shape.max_tokens == 48


def test_only_weights_configuration_and_tokenizer_are_taken() -> None:
    there = (
        "config.json", "model.safetensors", "1_Pooling/config.json", "modules.json", "pytorch_model.bin", "modeling.py",
        "onnx/model.onnx", "1_Pooling/evil.py", "2_Dense/config.json", "../1_Pooling/config.json",
    )  # fmt: skip
    assert sorted(wanted_files(there)) == ["1_Pooling/config.json", "config.json", "model.safetensors", "modules.json"]
