import json
from pathlib import Path

import numpy as np
import pytest

from edge_rag.errors import ProviderUnavailable
from edge_rag.runtime.encoder.cross_encoder import PairEncoder
from edge_rag.runtime.encoder.npu.encoders import GraphReady, open_pair_encoder_on_npu, open_text_encoder_on_npu
from edge_rag.runtime.encoder.text_encoder import TextEncoder
from tests.support.accelerators.npu import CROSS_ENCODER, needs_npu, npu_pair_encoder, small_embedder

LEAST_AGREEMENT = 0.98

pytestmark = needs_npu


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_embedder(tmp_path_factory.mktemp("models") / "small")


def opened(folder: Path, compiled: Path, **options: str) -> tuple[TextEncoder, list[bool]]:
    events: list[GraphReady] = []
    encoder = open_text_encoder_on_npu(folder, options, compiled, events.append)
    assert [(graph.number, graph.total) for graph in events] == [(1, 2), (2, 2)]
    return encoder, [graph.compiled for graph in events]


def test_graphs_are_compiled_once_and_then_taken_from_the_folder(small: Path, tmp_path: Path) -> None:
    first, compiled = opened(small, tmp_path)
    assert compiled == [True, True]
    (folder,) = tmp_path.iterdir()
    described = json.loads((folder / "compiled.json").read_text())["key"]
    assert {"model", "lowering", "compiler", "device", "options"} == described.keys()
    second, compiled = opened(small, tmp_path)
    assert compiled == [False, False]
    np.testing.assert_array_equal(first.embed(["pump"]), second.embed(["pump"]))
    assert first.name == second.name


def test_graphs_are_compiled_again_for_another_option_or_model(small: Path, tmp_path: Path) -> None:
    opened(small, tmp_path / "cache")
    _, compiled = opened(small, tmp_path / "cache", htp_graph_finalization_optimization_mode="1")
    assert compiled == [True, True]
    other = small_embedder(tmp_path / "other", max_tokens=40)
    _, compiled = opened(other, tmp_path / "cache", htp_graph_finalization_optimization_mode="1")
    assert compiled == [True, True]
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_only_a_damaged_graph_is_compiled_again(small: Path, tmp_path: Path) -> None:
    first, _ = opened(small, tmp_path)
    (damaged,) = tmp_path.glob("*/32.onnx")
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    again, compiled = opened(small, tmp_path)
    assert compiled == [True, False]
    np.testing.assert_array_equal(first.embed(["pump"]), again.embed(["pump"]))


def test_vectors_of_the_npu_have_a_name_of_their_own(small: Path, tmp_path: Path) -> None:
    encoder, _ = opened(small, tmp_path)
    assert encoder.name != TextEncoder.open(small).name


def test_a_foreign_export_is_unavailable_so_that_the_next_provider_is_tried(tmp_path: Path) -> None:
    with pytest.raises(ProviderUnavailable, match=r"qnn cannot be used: .*models add"):
        open_pair_encoder_on_npu(CROSS_ENCODER.with_name("tiny-cross-encoder"), {}, tmp_path, lambda _: None)


def test_a_cross_encoder_ranks_on_the_npu_as_on_the_cpu(npu_graphs: Path) -> None:
    with np.load(CROSS_ENCODER.with_name("tiny-cross-encoder.npz")) as kept:
        pairs = [(str(question), str(passage)) for question, passage in kept["pairs"]]
    expected = PairEncoder.open(CROSS_ENCODER).score(pairs)
    scores = npu_pair_encoder(npu_graphs).score(pairs)
    np.testing.assert_allclose(scores, expected, atol=0.05)
    assert rank_correlation(scores, expected) >= LEAST_AGREEMENT


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's, of scores without ties."""
    ranks = [np.argsort(np.argsort(scores.reshape(-1))) for scores in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
