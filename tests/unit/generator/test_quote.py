from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.answer import FinishReason
from edge_rag.engine.constraint import Ended, Forced, FreeText, NoGeneration, OneOf
from edge_rag.generator.constraints.quote import Quotable, Quotation, QuoteRules, quotation

END = 2


def sentence(tokens: tuple[int, ...], evidence: float = 0.0, text: str | None = None) -> Quotable:
    return Quotable(0, 0, 1, text or str(tokens), tokens, evidence)


def begin(
    *candidates: Quotable, sentences: int = 1, tokens: int = 100, weight: float = 1.0, margin: float = 0.5
) -> Quotation:
    return quotation(candidates, QuoteRules(END, sentences, tokens, weight, margin))


def branches(state: Quotation) -> dict[int, float]:
    move = state.next()
    assert isinstance(move, OneOf)
    return dict(zip(move.allowed.tolist(), move.bias.tolist(), strict=True))


def test_the_only_sentence_is_forced() -> None:
    state = begin(sentence((5, 6, 7)))
    assert state.next() == Forced((5, 6, 7))
    assert state.after((5, 6, 7)).next() == Ended(FinishReason.STOP)


def test_a_common_prefix_of_all_candidates_is_forced() -> None:
    state = begin(sentence((5, 6, 7)), sentence((5, 6, 8, 9)))
    assert state.next() == Forced((5, 6))
    state = state.after((5, 6))
    assert set(branches(state)) == {7, 8}
    assert state.after((8,)).next() == Forced((9,))


def test_the_bias_of_a_branch_sums_the_candidates_below_it() -> None:
    state = begin(sentence((5, 6), 1.0), sentence((5, 7), 2.0), sentence((8, 9), 3.0), weight=2.0)
    bias = branches(state)
    expected = math.log(math.exp(2.0) + math.exp(4.0)) - 6.0
    assert bias[5] - bias[8] == pytest.approx(expected)


def test_without_prior_weight_only_the_number_of_candidates_counts() -> None:
    bias = branches(begin(sentence((5, 6), 9.0), sentence((8, 9), -9.0), weight=0.0))
    assert bias[5] == bias[8]


def test_equal_sentences_are_one_candidate_with_the_better_evidence() -> None:
    state = begin(sentence((5, 1), 1.0, "same"), sentence((5, 2), 4.0, "same"), sentence((8,), 4.0, "other"))
    bias = branches(state)
    assert bias[5] == bias[8]
    assert state.after((5, 1)).quoted[0].tokens == (5, 1)


def test_a_candidate_that_is_a_prefix_of_another_replaces_it() -> None:
    state = begin(sentence((5, 6)), sentence((5, 6, 7)))
    assert [c.tokens for c in state.left] == [(5, 6)]


def test_after_a_sentence_the_end_competes_with_the_remaining_candidates() -> None:
    state = begin(sentence((5, 6), 3.0), sentence((8, 9), 1.0), sentence((8, 7), 1.0), sentences=2)
    state = state.after((5, 6))
    bias = branches(state)
    assert set(bias) == {END, 8}
    assert bias[END] - bias[8] == pytest.approx(2.5 - (1.0 + math.log(2)))
    assert state.after((END,)).next() == Ended(FinishReason.STOP)


def test_each_further_sentence_must_be_closer_to_the_best() -> None:
    state = begin(sentence((5,), 9.0), sentence((6,), 8.0), sentence((7,), 7.0), sentences=3, margin=3.0)
    ends = [branches(chosen)[END] - branches(chosen)[7] for chosen in (state.after((5,)), state.after((5, 6)))]
    assert ends == [pytest.approx(9.0 - 3.0 - 7.0), pytest.approx(9.0 - 1.5 - 7.0)]


def test_a_sentence_is_not_a_candidate_twice() -> None:
    state = begin(sentence((5, 6)), sentence((8, 9)), sentences=3).after((5, 6))
    assert set(branches(state)) == {END, 8}
    assert state.after((8, 9)).next() == Ended(FinishReason.STOP)


def test_the_answer_ends_at_the_most_sentences_allowed() -> None:
    state = begin(sentence((5,)), sentence((6,)), sentence((7,)), sentences=2)
    assert state.after((5, 7)).next() == Ended(FinishReason.STOP)


def test_only_sentences_that_still_fit_are_candidates() -> None:
    state = begin(sentence((5, 6)), sentence((7, 8, 9)), sentence((3, 4)), sentences=3, tokens=4)
    state = state.after((5, 6))
    assert set(branches(state)) == {END, 3}
    assert begin(sentence((7, 8, 9)), tokens=2).ended


@given(
    st.lists(st.lists(st.integers(3, 6), min_size=1, max_size=5).map(tuple), min_size=1, max_size=8, unique=True),
    st.integers(1, 3),
    st.data(),
)
def test_any_choice_gives_complete_sentences(
    tokens: list[tuple[int, ...]], sentences: int, data: st.DataObject
) -> None:
    state = begin(*[sentence(t) for t in tokens], sentences=sentences)
    chosen: list[int] = []
    while not isinstance(move := state.next(), Ended):
        if isinstance(move, Forced):
            run = move.tokens
        else:
            assert isinstance(move, OneOf)
            assert len(move.allowed) >= 2
            assert np.all(np.diff(move.allowed) > 0)
            assert np.all(np.isfinite(move.bias))
            run = (data.draw(st.sampled_from(move.allowed.tolist())),)
        chosen += run
        state = state.after(run)
    quoted = [token for quote in state.quoted for token in quote.tokens]
    assert chosen in (quoted, [*quoted, END])
    assert 1 <= len(state.quoted) <= sentences
    assert len({quote.text for quote in state.quoted}) == len(state.quoted)
    assert {quote.tokens for quote in state.quoted} <= set(tokens)
    assert begin(*[sentence(t) for t in tokens], sentences=sentences).after(tuple(chosen)) == state


def test_free_text_ends_with_an_end_token() -> None:
    state = FreeText(frozenset({2, 3}))
    assert state.after((7,)) == state
    assert state.after((7, 3)).next() == Ended(FinishReason.STOP)


def test_no_generation_ends_at_once() -> None:
    assert NoGeneration(FinishReason.NOT_FOUND).next() == Ended(FinishReason.NOT_FOUND)
