"""Adding embedders and cross-encoders from Hugging Face folders, with every process that it starts; without torch."""

from pathlib import Path

import numpy as np
import pytest

from edge_rag.errors import ModelNotAdded
from edge_rag.model_store.add import add
from edge_rag.model_store.convert import prepare_encoder
from edge_rag.model_store.convert.comparison import MAX_SCORE_ERROR, MIN_COSINE
from edge_rag.model_store.directory import StoreDirectory
from edge_rag.model_store.source import AddRequest, LocalFolder, ModelPrecision, NoProgress
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from edge_rag.runtime.encoder.tokenizer import pack_texts
from edge_rag.runtime.model_folder.folder import ModelRole, verify_model_folder
from edge_rag.runtime.session.sessions import open_session, ops_library
from tests.fixtures.makers.tiny_encoder import BERT, XLM_ROBERTA, scorer, write_encoder, write_usage
from tests.unit.model_store.adding import left_in

TEXTS = ("how often", "Where is the valve?", "grease the bearings every month", "a", "NEVER plug a valve that lifts")


def request(folder: Path, precision: ModelPrecision | None = None, *, accept_loss: bool = False) -> AddRequest:
    return AddRequest(LocalFolder(folder), "tiny", precision, None, accept_loss=accept_loss)


def test_an_embedder_is_added_in_the_smallest_form_that_passes_with_pooling_and_prompts(
    store: StoreDirectory, tmp_path: Path
) -> None:
    folder = write_encoder(tmp_path / "Tiny", XLM_ROBERTA, "BF16")
    write_usage(folder, "cls", {"query": "ask: ", "passage": "text: "})
    manifest = add(store, request(folder), NoProgress())
    assert verify_model_folder(store.folder("tiny"), ModelRole.EMBEDDER) == manifest
    assert set(manifest.files) == {"model.onnx", "tokenizer.json"}
    assert (manifest.licence, manifest.parameters["pooling"]) == ("mit", "cls")
    assert (manifest.text("question_prompt"), manifest.text("passage_prompt")) == ("ask: ", "text: ")
    tried = manifest.parameters["forms_tried"]
    assert isinstance(tried, list)
    forms = [each for each in tried if isinstance(each, dict)]
    assert [each["form"] for each in forms] == ["4 bits", "8 bits"]
    assert [each["good"] for each in forms] == [False, True]
    assert manifest.parameters["agreement_with_original"] == forms[-1]
    least = forms[-1]["least_cosine"]
    assert isinstance(least, float)
    assert MIN_COSINE < 0.99 < least <= 1.0001
    encoder = TextEncoder.open(store.folder("tiny"))
    assert not np.allclose(encoder.embed(TEXTS), encoder.embed_questions(TEXTS), atol=0.01)
    assert left_in(store) == [".lock", "tiny"]


def test_nothing_below_the_gate_is_added_unless_the_loss_is_accepted(store: StoreDirectory, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "Tiny", scorer(BERT), prefix="bert.")
    with pytest.raises(ModelNotAdded, match=r"(?s)at most 10% of the scores.*--accept-loss.*4 bits .* failed"):
        add(store, request(folder, ModelPrecision.INT4), NoProgress())
    assert left_in(store) == [".lock"]
    manifest = add(store, request(folder, ModelPrecision.INT4, accept_loss=True), NoProgress())
    assert manifest.role is ModelRole.RERANKER
    agreement = manifest.parameters["agreement_with_original"]
    assert isinstance(agreement, dict)
    assert agreement["good"] is False
    error = agreement["error"]
    assert isinstance(error, float)
    assert MAX_SCORE_ERROR < error < 2
    assert PairEncoder.open(store.folder("tiny")).score([(TEXTS[0], TEXTS[2])]).shape == (1,)


def test_weights_of_a_large_graph_lie_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_encoder(tmp_path / "Tiny", BERT)
    texts = pack_texts([[2, 7, 8, 3]]).inputs()
    found = []
    for name, most in (("inside", 1 << 20), ("beside", 1 << 10)):
        monkeypatch.setattr(prepare_encoder, "_LARGEST_INLINE", most)
        (tmp_path / name).mkdir()
        prepare_encoder.build(folder, ModelRole.EMBEDDER, ModelPrecision.INT8, tmp_path / name)
        found.append(open_session(tmp_path / name / "model.onnx", ops_library()).run(None, texts))
    assert [path.name for path in (tmp_path / "inside").iterdir()] == ["model.onnx"]
    graph, weights = (tmp_path / "beside" / name for name in ("model.onnx", "model.onnx.data"))
    assert weights.stat().st_size > 40_000
    assert weights.stat().st_mode == graph.stat().st_mode
    np.testing.assert_array_equal(np.concatenate(found[0]), np.concatenate(found[1]))
