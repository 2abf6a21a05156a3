"""What of passages stands in a prompt."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.generation import GenerationRequest
from edge_rag.core.ids import ChunkId, DocumentId, RequestId
from edge_rag.core.passage import Passage, RankedPassage, Sentence
from edge_rag.core.query import AnswerMode, JsonSchema, KvReuse, PassageOrder, Priority, Regex, Sampling
from edge_rag.core.text import sentence_spans
from edge_rag.generator.prompt.passage_order import (
    FIRST_RENEWAL,
    PassageArranger,
    PassagePopularity,
)
from edge_rag.generator.prompt.profiles import OCC_RAG
from edge_rag.generator.prompt.pruning import LEAST_SENTENCES, MARK, SHORT_CHARACTERS, pruned
from edge_rag.generator.prompt.template import PassageReuse, PromptEncoder, PromptSettings
from tests.unit.generator.prompts.test_history import TOKENIZER
from tests.unit.generator.test_trace import TOKENIZER as OCC_TOKENIZER

PUMP = (
    "The station was built in the nineteen sixties by the city. It has two halls and a yard with a crane. "
    "The bearings of the pump are greased every 2,000 hours. They take 35 grams each. "
    "The hall is painted in a light green, as all halls of the city are. Visitors are led through on Sundays."
)
ANSWER = "The bearings of the pump are greased every 2,000 hours."


def ranked(text: str, evidence: dict[str, float] | None = None, chunk: int = 1) -> RankedPassage:
    """A passage whose sentences have the evidence that is given by their beginning, else -2."""
    told = evidence or {}
    sentences = tuple(
        Sentence(start, end, next((value for key, value in told.items() if text[start:].startswith(key)), -2.0))
        for start, end in sentence_spans(text)
    )
    passage = Passage(ChunkId(chunk), DocumentId("d"), "d.txt", None, 100 * chunk, 100 * chunk + len(text), text)
    return RankedPassage(passage, 1.0, sentences)


PIECES = (
    "A first sentence of some length here. ",
    "It goes on. ",
    "Title of it\n\n",
    "\n\n",
    "Part: Seal | Number: 7\n",
    "Ein Satz, der etwas sagt. ",
    "油分离器的滤芯每运行500小时更换一次。",
)
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=30).map("".join)


@st.composite
def passages(draw: st.DrawFn) -> list[RankedPassage]:
    texts = draw(st.lists(TEXTS, min_size=1, max_size=4))
    made = []
    for number, text in enumerate(texts, 1):
        each = ranked(text, chunk=number)
        values = draw(st.lists(st.floats(-9, 9), min_size=len(each.sentences), max_size=len(each.sentences)))
        weighed = tuple(replace(one, evidence=value) for one, value in zip(each.sentences, values, strict=True))
        made.append(replace(each, sentences=weighed))
    return made


@given(passages(), st.sets(st.integers(0, 3)))
def test_what_is_kept_are_whole_sentences_in_order_and_the_best_of_each_passage(
    given_: list[RankedPassage], whole: set[int]
) -> None:
    found = pruned(given_, whole)
    assert len(found) == len(given_)
    for number, (each, kept) in enumerate(zip(given_, found, strict=True)):
        text = each.passage.text
        if kept.text == text:
            assert kept.ranges == ((0, len(text)),)
            continue
        assert number not in whole
        assert len(text) > SHORT_CHARACTERS
        starts, ends = {one.start for one in each.sentences}, {one.end for one in each.sentences}
        assert all(start in starts and end in ends for start, end in kept.ranges)
        assert [position for span in kept.ranges for position in span] == sorted({p for r in kept.ranges for p in r})
        pieces = [piece.strip() for piece in kept.text.split(MARK) if piece.strip()]
        assert pieces == [text[start:end] for start, end in kept.ranges]
        best = max(each.sentences, key=lambda one: one.evidence)
        assert any(start <= best.start and best.end <= end for start, end in kept.ranges)


@given(passages())
def test_the_sentences_with_the_most_evidence_are_kept(given_: list[RankedPassage]) -> None:
    found = pruned(given_)
    weighed = sorted(
        ((one.evidence, number, one) for number, each in enumerate(given_) for one in each.sentences),
        key=lambda entry: -entry[0],
    )
    for _, number, one in weighed[:LEAST_SENTENCES]:
        assert any(start <= one.start and one.end <= end for start, end in found[number].ranges)


def test_a_sentence_that_refers_back_is_kept_with_the_one_before_it() -> None:
    evidence = {"They take": 5.0, "The bearings": -3.0}
    (kept,) = pruned([ranked(PUMP, evidence | {"The station": 4.9, "Visitors": 4.8})])
    assert f"{ANSWER} They take 35 grams each." in kept.text
    assert "painted" not in kept.text


def test_a_row_is_kept_with_the_first_row_and_the_title_above_it() -> None:
    rows = "".join(f"Pump {number} | every {number} months | oil of class {number}\n" for number in range(1, 20))
    text = f"Lubrication of pumps\n\nPump | Interval | Lubricant\n{rows}"
    (kept,) = pruned([ranked(text, {"Pump 17": 8.0, "Pump 18": 7.9, "Pump 19": 7.8})])
    shown = f"Lubrication of pumps\n\nPump | Interval | Lubricant {MARK} Pump 17 | every 17"
    assert kept.text.startswith(shown)
    assert "Pump 9 " not in kept.text


def test_passages_that_were_not_weighed_or_are_short_are_whole() -> None:
    equal = ranked(PUMP)
    bare = replace(equal, sentences=())
    assert [each.text for each in pruned([equal, bare])] == [PUMP, PUMP]
    short = ranked("One thing is. Another thing is not.", {"One": 9.0})
    assert pruned([short, ranked(PUMP, {"The bearings": 5.0})])[0].text == short.passage.text
    assert pruned([]) == ()


def request(*passages_: RankedPassage) -> GenerationRequest:
    return GenerationRequest(
        request_id=RequestId("r"),
        question="How often are the bearings greased?",
        passages=passages_,
        evidence=1.0,
        mode=AnswerMode.FREE,
        max_sentences=None,
        sampling=Sampling(max_tokens=16),
        priority=Priority.NORMAL,
        client="c",
        trust_domain="default",
        deadline=None,
    )


WEIGHED = ranked(PUMP, {"The bearings": 5.0, "The hall": 4.0, "Visitors": 4.0})


def encoder(popularity: PassagePopularity, prunes: bool = True, occ: bool = False) -> PromptEncoder:
    settings = PromptSettings(profile=OCC_RAG) if occ else PromptSettings()
    arranger = PassageArranger(PassageOrder.RANK, popularity)
    return PromptEncoder(OCC_TOKENIZER if occ else TOKENIZER, settings, arranger, PassageReuse(32, 16), prunes)


def test_a_prompt_has_what_is_kept_and_citations_are_checked_against_whole_passages() -> None:
    prompt = encoder(PassagePopularity()).encode(request(WEIGHED), 2000)
    assert ANSWER in prompt.user
    assert MARK in prompt.user
    assert "crane" not in prompt.user
    assert prompt.passages == (WEIGHED,)
    whole = encoder(PassagePopularity(), prunes=False).encode(request(WEIGHED), 2000)
    assert PUMP in whole.user
    assert len(prompt.tokens) < len(whole.tokens)


@pytest.mark.parametrize(
    "changed",
    [
        {"kv_reuse": KvReuse.PASSAGE},
        {"format": JsonSchema('{"type": "string"}')},
        {"format": Regex("[a-z]+")},
    ],
)
def test_passages_that_are_computed_alone_or_filled_into_a_format_are_whole(changed: dict[str, Any]) -> None:
    prompt = encoder(PassagePopularity()).encode(replace(request(WEIGHED), **changed), 2000)
    assert PUMP in prompt.user


def test_a_profile_that_was_not_measured_gets_whole_passages() -> None:
    encode = encoder(PassagePopularity(), occ=True).encode
    assert encode(request(WEIGHED), 4000).tokens == encode(request(replace(WEIGHED, sentences=())), 4000).tokens


def test_a_popular_passage_at_the_front_is_whole_and_one_behind_a_rare_one_is_not() -> None:
    popularity = PassagePopularity()
    encode = encoder(popularity).encode
    popular, rare = WEIGHED, replace(WEIGHED, passage=replace(WEIGHED.passage, chunk_id=ChunkId(2), start=5000))
    for _ in range(FIRST_RENEWAL):
        assert PUMP not in encode(request(popular), 2000).user
    user = encode(request(popular, rare), 4000).user
    assert user.count(PUMP) == 1
    assert re.search(r"\[1\] The station.*\n\n\[2\] \[…\]", user, re.DOTALL)
    assert PUMP not in encode(request(rare, popular), 4000).user, "nothing behind pruned text is found again"
