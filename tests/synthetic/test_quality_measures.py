"""What scripts/measure_quality compares with: float32 keys and values in pages, and ratios of perplexities."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scripts.bench.quality.float_cache import FloatCacheDecoder
from scripts.bench.quality.perplexity import Text, answer_losses, perplexity, ratio
from tests.synthetic.tiny_model import FIXTURES, Sequence, original_logits, reference, run

FAMILY = "tiny-qwen3"


@pytest.fixture(scope="module")
def decoder() -> FloatCacheDecoder:
    return FloatCacheDecoder(FIXTURES / FAMILY, pages=12)


def test_chunks_over_scattered_pages_give_the_logits_of_the_whole_text(decoder: FloatCacheDecoder) -> None:
    token_ids = reference(FAMILY).token_ids
    first = Sequence(token_ids, np.array([7, 2, 9, 0], np.int32))
    second = Sequence(token_ids[::-1].copy(), np.array([1, 8, 3, 5], np.int32))
    whole = [original_logits(FIXTURES / FAMILY, sequence.token_ids) for sequence in (first, second)]
    found = [run(decoder, parts) for parts in ([(first, 40)], [(second, 100), (first, 1)], [(first, 71), (second, 12)])]
    np.testing.assert_allclose(np.concatenate([found[0][0], found[1][1], found[2][0]]), whole[0], atol=1e-3)
    np.testing.assert_allclose(np.concatenate([found[1][0], found[2][1]]), whole[1], atol=1e-3)


def test_a_copied_page_serves_another_sequence(decoder: FloatCacheDecoder) -> None:
    token_ids = reference(FAMILY).token_ids[:50]
    first = Sequence(token_ids, np.array([0, 1], np.int32))
    (whole,) = run(decoder, [(first, 50)])
    decoder.copy_page(0, 6)
    second = Sequence(token_ids, np.array([6, 4], np.int32), done=32)
    np.testing.assert_allclose(run(decoder, [(second, 18)])[0], whole[32:], atol=1e-3)


def test_an_answers_losses_are_those_of_its_own_tokens(decoder: FloatCacheDecoder) -> None:
    token_ids = reference(FAMILY).token_ids
    logits = reference(FAMILY).logits.astype(np.float64)
    expected = [
        np.log(np.exp(logits[at - 1]).sum()) - logits[at - 1][token_ids[at]] for at in range(100, token_ids.size)
    ]
    np.testing.assert_allclose(answer_losses(decoder, Text(token_ids, 100)), expected, atol=1e-3)


def test_a_ratio_weighs_every_token_alike_and_says_how_sure_it_is() -> None:
    reference_losses = [np.array([1.0, 3.0]), np.array([2.0])]
    assert perplexity(reference_losses) == pytest.approx(math.exp(2.0))
    same = ratio(reference_losses, reference_losses)
    assert (same.value, same.error) == (1.0, 0.0)
    more = ratio([np.array([1.3, 3.0]), np.array([2.0])], reference_losses)
    assert more.value == pytest.approx(math.exp(0.1))
    assert more.error > 0
