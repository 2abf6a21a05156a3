"""Paged models against Hugging Face's logits: any chunks, any company, any pages, the same logits."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_rag.runtime.decoder.paged_decoder import PagedDecoder
from tests.synthetic.tiny_model import FAMILIES, FIXTURES, Logits, Sequence, pages_for, position_errors, reference, run

PAGES = 24
QUOTER = Path(__file__).parents[1] / "fixtures" / "quoter"


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def decoder(family: str) -> PagedDecoder:
    return PagedDecoder.open(FIXTURES / family, PAGES)


def in_one_piece(decoder: PagedDecoder, token_ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Logits:
    pages = np.arange(pages_for(decoder, token_ids.size), dtype=np.int32)
    return run(decoder, [(Sequence(token_ids, pages), token_ids.size)])[0]


def assert_within_int8(found: Logits, expected: Logits) -> None:
    errors = position_errors(found, expected)
    assert errors.max() < 0.05
    assert errors.mean() < 0.015


def test_a_paged_graph_is_within_int8_of_hugging_face_at_every_position(family: str, decoder: PagedDecoder) -> None:
    expected = reference(family)
    assert_within_int8(in_one_piece(decoder, expected.token_ids), expected.logits)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_chunks_of_any_size_on_pages_in_any_order_give_the_same_logits(
    family: str, decoder: PagedDecoder, data: st.DataObject
) -> None:
    token_ids = reference(family).token_ids
    whole = in_one_piece(decoder, token_ids)
    order = data.draw(st.permutations(range(PAGES)))
    sequence = Sequence(token_ids, np.array(order[: pages_for(decoder, token_ids.size)], np.int32))
    found = []
    while sequence.done < token_ids.size:
        chunk = data.draw(st.integers(1, token_ids.size - sequence.done))
        found += run(decoder, [(sequence, chunk)])
    np.testing.assert_allclose(np.concatenate(found), whole, rtol=1e-4, atol=1e-4)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_company_that_changes_every_step_leaves_a_sequence_its_own_logits(
    family: str, decoder: PagedDecoder, data: st.DataObject
) -> None:
    texts = [np.roll(reference(family).token_ids, shift)[: 112 - 11 * shift] for shift in range(4)]
    alone = [in_one_piece(decoder, text) for text in texts]
    order = np.array(data.draw(st.permutations(range(PAGES))), np.int32)
    taken = np.cumsum([0, *(pages_for(decoder, text.size) for text in texts)])
    sequences = [Sequence(text, order[taken[i] : taken[i + 1]]) for i, text in enumerate(texts)]
    found: list[list[Logits]] = [[] for _ in texts]
    while unfinished := [i for i, sequence in enumerate(sequences) if sequence.done < sequence.token_ids.size]:
        members = data.draw(st.lists(st.sampled_from(unfinished), min_size=1, unique=True))
        counts = [data.draw(st.integers(1, sequences[i].token_ids.size - sequences[i].done)) for i in members]
        step = run(decoder, [(sequences[i], count) for i, count in zip(members, counts, strict=True)])
        for i, logits in zip(members, step, strict=True):
            found[i].append(logits)
    for mine, expected in zip(found, alone, strict=True):
        np.testing.assert_allclose(np.concatenate(mine), expected, rtol=1e-4, atol=1e-4)


def test_the_shipped_quoting_model_follows_fp32() -> None:
    with np.load(Path(__file__).parents[1] / "fixtures" / "quoter.npz") as kept:
        token_ids, positions = kept["token_ids"], kept["positions"]
        expected = kept["log_probabilities"].astype(np.float64)
    logits = in_one_piece(PagedDecoder.open(QUOTER, pages=16), token_ids)[positions].astype(np.float64)
    found = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    divergence = (np.exp(expected) * (expected - found)).sum(axis=1)
    assert divergence.mean() < 0.01
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.8
