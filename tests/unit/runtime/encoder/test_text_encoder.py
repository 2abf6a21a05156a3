import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edge_rag.errors import InferenceFailed, ModelError, ModelFolderInvalid
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.model_folder.folder import ModelRole
from tests.support.model_folders import describe_model

REPOSITORY = Path(__file__).parents[4]
FOLDER = REPOSITORY / "models" / "minilm-l6"
REFERENCE = REPOSITORY / "tests" / "fixtures" / "minilm" / "reference.npz"

TEXTS = [
    "How often must the bearings be greased?",
    "Grease the bearings every 2,000 operating hours.",
    "valve",
    "",
    "The relief valve opens at 11 bar. " * 6,
    "Résumé: naïve café 東京 😀",
    "Never plug a relief valve that lifts, and report it to the shift leader before the line is pressurized again.",
    "[SEP] [CLS] [MASK]",
    *(f"Unit {number} was inspected after {number * 37} hours of operation without findings." for number in range(8)),
]


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    return TextEncoder.open(FOLDER)


def folder_with(tmp_path: Path, model: onnx.ModelProto | bytes, dimension: int = 4) -> Path:
    shutil.copyfile(FOLDER / "tokenizer.json", tmp_path / "tokenizer.json")
    content = model if isinstance(model, bytes) else model.SerializeToString()
    (tmp_path / "model.onnx").write_bytes(content)
    return describe_model(tmp_path, ModelRole.EMBEDDER, dimension=dimension, max_tokens=64)


def encoder_graph(position_limit: int) -> onnx.ModelProto:
    """Looks up each token's position in a table, which fails for a text longer than the table."""
    table = helper.make_tensor("table", TensorProto.FLOAT, [position_limit, 4], np.ones(4 * position_limit))
    start, end = (helper.make_tensor(str(at), TensorProto.INT64, [1], [at]) for at in (0, -1))
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["ids"], to=TensorProto.FLOAT),
        helper.make_node("Gather", ["table", "positions"], ["token_vectors"]),
        helper.make_node("Slice", ["cumulative_sequence_lengths", "0", "-1"], ["firsts"]),
        helper.make_node("Gather", ["token_vectors", "firsts"], ["sentence_vectors"]),
    ]
    tokens = [helper.make_tensor_value_info(name, TensorProto.INT64, ["tokens"]) for name in ("input_ids", "positions")]
    lengths = helper.make_tensor_value_info("cumulative_sequence_lengths", TensorProto.INT32, ["texts + 1"])
    vectors = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("token_vectors", "sentence_vectors")
    ]
    graph = helper.make_graph(nodes, "positions", [*tokens, lengths], vectors, [table, start, end])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_sentence_vectors_agree_with_the_published_model_in_fp32(encoder: TextEncoder) -> None:
    with np.load(REFERENCE) as reference:
        vectors = encoder.embed([str(text) for text in reference["texts"]])
        cosines = (vectors * reference["sentence_vectors"]).sum(axis=1)
    assert cosines.min() > 0.995
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize("index", [0, 3])
def test_token_vectors_agree_with_the_published_model_in_fp32(encoder: TextEncoder, index: int) -> None:
    with np.load(REFERENCE) as reference:
        (made,) = encoder.token_vectors([str(reference["texts"][index])])
        expected = reference[f"token_vectors_{index}"][1:-1]
    assert made.vectors.shape == expected.shape
    assert (made.vectors * expected).sum(axis=1).min() > 0.99


def test_a_text_gets_the_same_bits_alone_and_in_any_batch(encoder: TextEncoder) -> None:
    together = encoder.embed(TEXTS)
    backwards = encoder.embed(TEXTS[::-1])[::-1]
    tokens_together = encoder.token_vectors(TEXTS)
    for index, text in enumerate(TEXTS):
        alone = encoder.embed([text])[0]
        np.testing.assert_array_equal(together[index], alone)
        np.testing.assert_array_equal(backwards[index], alone)
        np.testing.assert_array_equal(tokens_together[index].vectors, encoder.token_vectors([text])[0].vectors)


def test_threads_get_the_vectors_they_would_get_alone(encoder: TextEncoder) -> None:
    expected = encoder.embed(TEXTS)
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda _: encoder.embed(TEXTS), range(8)):
            np.testing.assert_array_equal(vectors, expected)


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    script = (
        "import hashlib, sys; from pathlib import Path; "
        "from edge_rag.runtime.session.sessions import configure_thread_pool; "
        "from edge_rag.runtime.encoder.text_encoder import TextEncoder; configure_thread_pool(int(sys.argv[1])); "
        "encoder = TextEncoder.open(Path(sys.argv[2])); "
        "print(hashlib.sha256(encoder.embed(sys.argv[3:]).tobytes()).hexdigest())"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", script, threads, str(FOLDER), *TEXTS],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "3")
    ]
    assert digests[0] == digests[1] != ""


def test_offsets_are_code_points_of_the_text_as_it_was_given(encoder: TextEncoder) -> None:
    text = "Café 東京 😀: 4 µm ﬁlter, İstanbul"
    (made,) = encoder.token_vectors([text])
    words = [text[start:end] for start, end in made.offsets]
    assert words[:6] == ["Café", "東", "京", "😀", ":", "4"]
    assert "".join(words) == text.replace(" ", "")
    assert made.offsets.dtype == np.int32


def test_a_text_longer_than_the_model_is_embedded_by_its_beginning(encoder: TextEncoder) -> None:
    words = ["pump", "valve"] * 400
    assert encoder.count_tokens(" ".join(words)) == 802
    whole, beginning = encoder.embed([" ".join(words), " ".join(words[: encoder.max_tokens - 2])])
    np.testing.assert_array_equal(whole, beginning)


def test_a_text_longer_than_the_model_has_a_vector_for_every_token(encoder: TextEncoder) -> None:
    text = "pump valve " * 400
    (made,) = encoder.token_vectors([text])
    assert made.vectors.shape == (800, encoder.dimension)
    assert [text[start:end] for start, end in made.offsets] == text.split()
    np.testing.assert_allclose(np.linalg.norm(made.vectors, axis=1), 1.0, atol=1e-5)


def test_no_texts_and_empty_texts_are_fine(encoder: TextEncoder) -> None:
    assert encoder.embed([]).shape == (0, encoder.dimension)
    assert encoder.token_vectors([]) == []
    (made,) = encoder.token_vectors([""])
    assert made.vectors.shape == (0, encoder.dimension)
    assert made.offsets.shape == (0, 2)


def test_the_name_changes_with_whatever_could_change_the_vectors(tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    for folder in (one, two, three):
        folder.mkdir()
    first = TextEncoder.open(folder_with(one, encoder_graph(64)))
    again = TextEncoder.open(folder_with(two, encoder_graph(64)))
    other = TextEncoder.open(folder_with(three, encoder_graph(65)))
    assert first.name == again.name
    assert first.name != other.name
    document = json.loads((two / "manifest.json").read_text())
    document["parameters"]["max_tokens"] = 32
    del document["sha256"]
    (two / "manifest.json").write_text(json.dumps(document | {"format": 1}))
    assert TextEncoder.open(two).name != first.name


def test_prompts_go_before_questions_and_passages_and_count_as_their_tokens(
    encoder: TextEncoder, tmp_path: Path
) -> None:
    folder = shutil.copytree(FOLDER, tmp_path / "prompted")
    prompts = {"question_prompt": "query: ", "passage_prompt": "text: "}
    describe_model(folder, ModelRole.EMBEDDER, "prompted", dimension=384, max_tokens=256, **prompts)
    prompted = TextEncoder.open(folder)
    texts = TEXTS[:3]
    assert np.array_equal(prompted.embed_questions(texts), encoder.embed([f"query: {text}" for text in texts]))
    assert np.array_equal(prompted.embed(texts), encoder.embed([f"text: {text}" for text in texts]))
    assert prompted.count_tokens("valve") == encoder.count_tokens("text: valve")
    assert np.array_equal(encoder.embed_questions(texts), encoder.embed(texts))
    assert prompted.name != encoder.name


def test_a_failing_run_is_a_failed_inference(tmp_path: Path) -> None:
    encoder = TextEncoder.open(folder_with(tmp_path, encoder_graph(8)))
    assert encoder.embed(["short"]).shape == (1, 4)
    with pytest.raises(InferenceFailed, match="tiny"):
        encoder.embed(["much longer than the table of eight positions has any room for"])


def test_a_graph_with_another_dimension_than_promised_is_a_failed_inference(tmp_path: Path) -> None:
    encoder = TextEncoder.open(folder_with(tmp_path, encoder_graph(64), dimension=5))
    with pytest.raises(InferenceFailed, match=r"shape \[1, 4\], \[1, 5\] was promised"):
        encoder.embed(["short"])


def test_a_file_that_is_no_graph_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.onnx"):
        TextEncoder.open(folder_with(tmp_path, b"not a graph"))


def test_a_graph_that_is_no_encoder_is_refused(tmp_path: Path) -> None:
    model = encoder_graph(64)
    del model.graph.output[0]
    with pytest.raises(ModelFolderInvalid, match="not a text encoder"):
        TextEncoder.open(folder_with(tmp_path, model))
