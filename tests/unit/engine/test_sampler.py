import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from edge_rag.core.query import Sampling
from edge_rag.engine.constraint import AnyToken, Masked, OneOf
from edge_rag.engine.sampler import SampleRequest, TokenSampler, probabilities, sample
from edge_rag.errors import InferenceFailed

VOCABULARY = 12
logits_rows = arrays(np.float32, VOCABULARY, elements=st.floats(-20, 20, width=32), unique=True)
samplings = st.builds(
    Sampling,
    temperature=st.floats(0.1, 2),
    top_k=st.integers(0, VOCABULARY),
    top_p=st.floats(0.05, 1),
    seed=st.integers(0, 100),
)


def pick(logits: NDArray[np.float32], sampling: Sampling, prompt: tuple[int, ...] = (), draws: int = 1) -> list[int]:
    choice = TokenSampler(sampling, VOCABULARY, prompt)
    return [choice.sample(logits, AnyToken()) for _ in range(draws)]


def distribution(scores: NDArray[np.float32], sampling: Sampling) -> list[float]:
    """The same by the book, one token at a time."""
    exponents = [float(s) / sampling.temperature for s in scores]
    weights = [math.exp(e - max(exponents)) for e in exponents]
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    kept = order[: sampling.top_k] if sampling.top_k else order
    total = sum(weights[i] for i in kept)
    nucleus: list[int] = []
    for i in kept:
        if sampling.top_p < 1 and sum(weights[j] for j in nucleus) >= sampling.top_p * total:
            break
        nucleus.append(i)
    mass = sum(weights[i] for i in nucleus)
    return [weights[i] / mass if i in nucleus else 0.0 for i in range(len(weights))]


@given(logits_rows, samplings)
def test_the_distribution_is_the_textbooks(logits: NDArray[np.float32], sampling: Sampling) -> None:
    ours, book = probabilities(logits, sampling), distribution(logits, sampling)
    # Where a partial sum meets top_p to the last bit, either side of it may be cut.
    if np.count_nonzero(ours) == np.count_nonzero(book):
        np.testing.assert_allclose(ours, book, atol=1e-9)
    else:
        assert abs(np.count_nonzero(ours) - np.count_nonzero(book)) == 1
        assert (
            min(
                np.abs(
                    np.cumsum(sorted(distribution(logits, Sampling(temperature=sampling.temperature)))[::-1])
                    - sampling.top_p
                )
            )
            < 1e-3
        )


def test_draws_follow_the_distribution() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.2, *[1e-30] * 9], np.float32))
    draws = pick(logits, Sampling(temperature=1, seed=3), draws=4000)
    shares = np.bincount(draws, minlength=VOCABULARY) / len(draws)
    np.testing.assert_allclose(shares[:3], [0.5, 0.3, 0.2], atol=0.03)
    assert shares[3:].sum() == 0


def test_of_equal_logits_greedy_takes_the_smallest_id() -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    logits[[4, 9]] = 1
    assert pick(logits, Sampling()) == [4]
    assert sample(logits[None], [SampleRequest(TokenSampler(Sampling(), VOCABULARY, ()), AnyToken())]) == [(4,)]


@given(logits_rows)
def test_top_k_of_one_is_greedy(logits: NDArray[np.float32]) -> None:
    assert pick(logits, Sampling(temperature=1, top_k=1, seed=0)) == [int(np.argmax(logits))]


@given(logits_rows, samplings)
def test_a_seed_makes_sampling_repeatable(logits: NDArray[np.float32], sampling: Sampling) -> None:
    assert pick(logits, sampling, draws=5) == pick(logits, sampling, draws=5)


def test_without_a_seed_two_requests_differ() -> None:
    logits = np.zeros(VOCABULARY, np.float32)
    assert pick(logits, Sampling(temperature=1), draws=40) != pick(logits, Sampling(temperature=1), draws=40)


@given(st.lists(st.tuples(logits_rows, samplings), min_size=2, max_size=5))
def test_neighbours_do_not_change_what_a_request_draws(rows: list[tuple[NDArray[np.float32], Sampling]]) -> None:
    items = [SampleRequest(TokenSampler(sampling, VOCABULARY, ()), AnyToken()) for _, sampling in rows]
    together = [sample(np.stack([logits for logits, _ in rows]), items) for _ in range(3)]
    for row, (logits, sampling) in enumerate(rows):
        assert [token for step in together for token in step[row]] == pick(logits, sampling, draws=3)


@given(st.lists(logits_rows, min_size=1, max_size=6), samplings, st.data())
def test_a_draft_changes_how_many_tokens_are_chosen_at_once_and_not_which(
    rows: list[NDArray[np.float32]], sampling: Sampling, data: st.DataObject
) -> None:
    sampling = replace(sampling, repetition_penalty=data.draw(st.sampled_from((1.0, 1.4))))
    plain = TokenSampler(sampling, VOCABULARY, (1,))
    expected: list[int] = []
    for row in rows:
        expected += sample(row[None], [SampleRequest(plain, AnyToken())])[0]
        plain.observe(expected[-1:])
    right = data.draw(st.integers(0, len(rows) - 1))
    wrong = [(expected[right] + 1) % VOCABULARY] * (len(rows) - 1 - right)
    drafting = SampleRequest(TokenSampler(sampling, VOCABULARY, (1,)), AnyToken(), (*expected[:right], *wrong))
    assert sample(np.stack(rows), [drafting]) == [tuple(expected[: right + 1])]


def test_the_repetition_penalty_counts_prompt_and_generated_tokens() -> None:
    logits = np.array([3.0, 2.9, 2.8, -1, *[-9] * 8], np.float32)
    choice = TokenSampler(Sampling(repetition_penalty=1.5), VOCABULARY, (0,))
    assert choice.sample(logits, AnyToken()) == 1
    choice.observe((1,))
    assert choice.sample(logits, AnyToken()) == 2


def test_the_repetition_penalty_also_lowers_negative_logits() -> None:
    logits = np.array([-1.0, -1.2, *[-9] * 10], np.float32)
    assert pick(logits, Sampling(repetition_penalty=1.5), prompt=(0,)) == [1]


def test_a_constraint_limits_the_choice_and_its_bias_tips_it() -> None:
    logits = np.arange(VOCABULARY, dtype=np.float32)
    choice = TokenSampler(Sampling(), VOCABULARY, ())
    allowed = np.array([2, 5, 7])
    assert choice.sample(logits, OneOf(allowed, np.zeros(3, np.float32))) == 7
    assert choice.sample(logits, OneOf(allowed, np.array([0, 9, 0], np.float32))) == 5


def test_sampling_under_a_constraint_draws_only_what_is_allowed() -> None:
    choice = TokenSampler(Sampling(temperature=2, seed=1), VOCABULARY, ())
    move = OneOf(np.array([2, 5, 7]), np.zeros(3, np.float32))
    assert {choice.sample(np.zeros(VOCABULARY, np.float32), move) for _ in range(100)} == {2, 5, 7}


@given(logits_rows, samplings, st.sets(st.integers(0, VOCABULARY - 1), min_size=2))
def test_masked_tokens_are_never_drawn_and_the_others_as_if_there_were_no_more(
    logits: NDArray[np.float32], sampling: Sampling, kept: set[int]
) -> None:
    allowed = np.isin(np.arange(VOCABULARY), list(kept))
    few = OneOf(np.flatnonzero(allowed), np.zeros(len(kept), np.float32))
    for settings in (sampling, replace(sampling, temperature=0.0), replace(sampling, repetition_penalty=1.5)):
        masked, picked = TokenSampler(settings, VOCABULARY, (1,)), TokenSampler(settings, VOCABULARY, (1,))
        drawn = [masked.sample(logits, Masked(allowed)) for _ in range(5)]
        assert kept.issuperset(drawn)
        assert drawn == [picked.sample(logits, few) for _ in range(5)]


def test_logits_that_are_no_numbers_are_refused() -> None:
    logits = np.zeros((1, VOCABULARY), np.float32)
    logits[0, 3] = np.nan
    with pytest.raises(InferenceFailed):
        sample(logits, [SampleRequest(TokenSampler(Sampling(), VOCABULARY, ()), AnyToken())])
