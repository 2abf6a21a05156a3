"""Prompts, and the spans of them whose KV may be copied."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.generation import GenerationRequest
from edge_rag.core.ids import ChunkId, DocumentId, RequestId
from edge_rag.core.passage import Passage, RankedPassage
from edge_rag.core.query import AnswerFormat, AnswerMode, KvReuse, Priority, Regex, Sampling
from edge_rag.generator.prompt.template import (
    PassageReuse,
    Prompt,
    PromptEncoder,
    passage_spans,
    passage_text,
)
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from tests.unit.engine.support import FIXTURES
from tests.unit.generator.test_streams import ranked

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


TOKENIZER = ChatTokenizer.open(FIXTURES / "tiny-llama")
TEXTS = ("Grease the bearings.", "Check the valve at noon.", "Close the hatch.")


NUMBERED = Regex("[1-3]")


def encode(
    passages: tuple[RankedPassage, ...], mode: AnswerMode, recompute: int, form: AnswerFormat | None = None
) -> Prompt:
    encoder = PromptEncoder(TOKENIZER, PassageReuse(32, recompute))
    request = GenerationRequest(
        request_id=RequestId("1"),
        question="what is to be done?",
        passages=passages,
        evidence=1.0,
        mode=mode,
        max_sentences=1,
        sampling=Sampling(max_tokens=20),
        priority=Priority.NORMAL,
        client="",
        trust_domain="",
        deadline=None,
        kv_reuse=KvReuse.PASSAGE,
        format=form,
    )
    return encoder.encode(request, 10_000)


def contains(tokens: tuple[int, ...], part: list[int]) -> bool:
    return any(list(tokens[at : at + len(part)]) == part for at in range(len(tokens)))


@pytest.mark.parametrize("recompute", [0, 2])
@pytest.mark.parametrize("form", [None, NUMBERED])
def test_a_passage_is_computed_with_its_number_only_for_a_format_which_may_ask_for_it(
    form: AnswerFormat | None, recompute: int
) -> None:
    passages = tuple(ranked(n, text) for n, text in enumerate(TEXTS, 1))
    prompt = encode(passages, AnswerMode.FREE, recompute, form)
    assert len(prompt.spans) == 3
    for number, (span, text) in enumerate(zip(prompt.spans, TEXTS, strict=True), 1):
        assert prompt.tokens[span.start : span.end] == span.alone[span.offset : span.offset + span.length]
        assert contains(span.alone, TOKENIZER.encode(passage_text(number if form else 1, text)))


def test_without_numbers_the_isolated_text_is_the_same_at_every_position() -> None:
    one, two = ranked(1, TEXTS[0]), ranked(2, TEXTS[1])
    moved = replace(one, passage=replace(one.passage, document_id=DocumentId("z")))
    forth, back = (encode(passages, AnswerMode.QUOTE, 0) for passages in ((one, two), (moved, two)))
    assert (forth.numbering, back.numbering) == ((0, 1), (1, 0))
    assert [span.alone for span in forth.spans] == [span.alone for span in reversed(back.spans)]
    formatted = [encode(order, AnswerMode.FREE, 0, NUMBERED) for order in ((one, two), (two, one))]
    assert formatted[0].spans[0].alone == forth.spans[0].alone != formatted[1].spans[1].alone


@given(st.permutations(range(6)))
def test_passages_stand_in_the_order_of_their_documents_except_in_formatted_answers(drawn: list[int]) -> None:
    places = (("b", 0), ("a", 700), ("a", 900), ("b", 300), ("c", 0), ("a", 0))
    passages = tuple(placed(chunk, *places[chunk]) for chunk in drawn)
    prompt = encode(passages, AnswerMode.FREE, 2)
    stand = [passages[index].passage for index in prompt.numbering]
    assert [(each.document_id, each.start) for each in stand] == sorted(places)
    assert encode(passages, AnswerMode.FREE, 2, NUMBERED).numbering == tuple(range(6))


def placed(chunk: int, document: str, start: int) -> RankedPassage:
    passage = Passage(ChunkId(chunk), DocumentId(document), document, None, start, start + 4, "text")
    return RankedPassage(passage, 1.0, ())
