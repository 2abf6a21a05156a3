import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from edge_rag.errors import InferenceFailed, ModelFolderInvalid
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.model_folder.folder import ModelRole
from tests.support.model_folders import describe_model

REPOSITORY = Path(__file__).parents[4]
FOLDER = REPOSITORY / "tests" / "fixtures" / "tiny-cross-encoder"
PACKED = FOLDER.with_name("tiny-cross-encoder-int8")


def kept(file: Path) -> tuple[list[tuple[str, str]], np.ndarray]:
    with np.load(file) as reference:
        return [(str(first), str(second)) for first, second in reference["pairs"]], reference["scores"]


def folder_with(folder: Path, model: onnx.ModelProto, max_tokens: int = 48) -> Path:
    shutil.copyfile(FOLDER / "tokenizer.json", folder / "tokenizer.json")
    onnx.save(model, folder / "model.onnx")
    return describe_model(folder, ModelRole.RERANKER, max_tokens=max_tokens)


def test_scores_agree_with_hugging_face_for_pairs_of_mixed_length() -> None:
    pairs, scores = kept(FOLDER.with_suffix(".npz"))
    np.testing.assert_allclose(PairEncoder.open(FOLDER).score(pairs), scores, atol=1e-5)


def test_scores_of_the_int8_form_agree_with_hugging_face_in_fp32() -> None:
    pairs, scores = kept(FOLDER.with_suffix(".npz"))
    np.testing.assert_allclose(PairEncoder.open(PACKED).score(pairs), scores, atol=0.04)


def test_a_packed_pair_gets_the_same_bits_as_alone() -> None:
    encoder = PairEncoder.open(PACKED)
    pairs = [("how often", "every month of the year, never later"[:count]) for count in range(36)] * 2
    alone = [encoder.score([pair])[0] for pair in pairs]
    np.testing.assert_array_equal(encoder.score(pairs), alone)
    assert len(set(alone)) > 10


def test_a_pair_scores_alike_alone_and_among_others() -> None:
    encoder = PairEncoder.open(FOLDER)
    pairs = [("how often", "every month " * count) for count in (1, 1, 2, 3)] + [("bar", "eleven")]
    alone = [encoder.score([pair])[0] for pair in pairs]
    np.testing.assert_allclose(encoder.score(pairs), alone, atol=1e-6)


@pytest.mark.parametrize("folder", [FOLDER, PACKED])
def test_a_passage_too_long_for_the_model_is_read_as_far_as_it_fits(folder: Path) -> None:
    encoder = PairEncoder.open(folder)
    whole, more = encoder.score([("x", "a " * 100), ("x", "a " * 300)])
    assert whole == more


@pytest.mark.parametrize("folder", [FOLDER, PACKED])
def test_no_pairs_have_no_scores(folder: Path) -> None:
    assert PairEncoder.open(folder).score([]).shape == (0,)


def test_a_graph_that_is_no_cross_encoder_is_refused(tmp_path: Path) -> None:
    model = onnx.load(FOLDER / "model.onnx")
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(model.graph.node[-2].output[0]))
    with pytest.raises(ModelFolderInvalid, match="not a cross-encoder"):
        PairEncoder.open(folder_with(tmp_path, model))


def test_an_embedder_in_its_place_is_refused() -> None:
    with pytest.raises(ModelFolderInvalid, match="a reranker is wanted"):
        PairEncoder.open(REPOSITORY / "models" / "minilm-l6")


def test_a_model_that_promises_more_tokens_than_it_reads_fails_clearly(tmp_path: Path) -> None:
    encoder = PairEncoder.open(folder_with(tmp_path, onnx.load(FOLDER / "model.onnx"), max_tokens=96))
    with pytest.raises(InferenceFailed, match="tiny"):
        encoder.score([("x", "a " * 90)])


def test_scores_that_are_not_numbers_are_a_failed_inference(tmp_path: Path) -> None:
    model = onnx.load(FOLDER / "model.onnx")
    last = model.graph.output[0].name
    producer = next(node for node in model.graph.node if last in node.output)
    producer.output[0] = "before"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(np.nan, np.float32), "nan"))
    model.graph.node.append(onnx.helper.make_node("Add", ["before", "nan"], [last]))
    with pytest.raises(InferenceFailed, match="not numbers"):
        PairEncoder.open(folder_with(tmp_path, model)).score([("x", "a")])
