from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.generator.prompt.template import passage_spans

BODIES = st.lists(st.lists(st.integers(10, 30), min_size=1, max_size=40), min_size=1, max_size=4)
PAGE = 8


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), BODIES, st.integers(0, 10))
def test_a_span_has_the_same_tokens_in_the_prompt_and_in_isolation(
    beginning: list[int], bodies: list[list[int]], recompute: int
) -> None:
    laid_out = [[90, 91 + number, *body] for number, body in enumerate(bodies)]
    only = [[90, 91, *body] for body in bodies]
    prompt = [*beginning, *(token for tokens in laid_out for token in tokens), 7, 8]
    spans = passage_spans(prompt, len(beginning), laid_out, only, PAGE, recompute)
    for span in spans:
        assert prompt[span.start : span.end] == list(span.alone[span.offset : span.offset + span.length])
        assert span.alone[: len(beginning)] == tuple(beginning)
        assert len(span.alone) % PAGE == 1
        assert span.offset <= span.start
        assert span.offset + span.length <= len(span.alone) - 1
    ends = [len(beginning) + sum(map(len, laid_out[: n + 1])) for n in range(len(laid_out))]
    assert [span.end for span in spans] == [
        end for n, (end, body) in enumerate(zip(ends, bodies, strict=True)) if n == 0 or len(body) > recompute
    ]


def test_no_token_of_the_first_passage_is_recomputed() -> None:
    (first, second) = passage_spans(
        [1, 2, 9, 20, 21, 8, 30, 31, 5], 2, [[9, 20, 21], [8, 30, 31]], [[9, 20, 21], [9, 30, 31]], 4, 1
    )
    assert (first.start, first.length, first.offset) == (2, 3, 2)
    assert (second.start, second.length, second.offset) == (7, 1, 4)


@pytest.mark.parametrize("prompt", [[1, 2, 9, 20, 22, 5], [1, 2], []])
def test_a_prompt_whose_parts_merge_tokens_has_no_spans(prompt: list[int]) -> None:
    assert passage_spans(prompt, 2, [[9, 20, 21]], [[9, 20, 21]], 4, 1) == ()
