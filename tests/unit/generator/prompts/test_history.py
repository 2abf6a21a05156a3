"""Earlier turns in prompts: which are kept, where they stand, and that their KV is reused exactly."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.generation import GenerationRequest
from edge_rag.core.query import AnswerFormat, AnswerMode, KvReuse, Regex, Turn, TurnSource
from edge_rag.generator.prompt.history import history_budget, left_out
from edge_rag.generator.prompt.template import SYSTEM, PassageReuse, Prompt, PromptEncoder, user_text
from edge_rag.generator.prompt.tokenizer import ChatTokenizer
from tests.support.generators import LIMITS, SMALL, answering, ask, paged, question, ranked

TOKENIZER = ChatTokenizer.open(SMALL)
CAPACITY = 2000
PAGE_TOKENS = 32
TURNS = (
    Turn("What is greased?", "Both bearings of each pump are greased.", (TurnSource("a.md", text="never rendered"),)),
    Turn("And the valves?", "They are oiled, not greased."),
)


def encode(request: GenerationRequest, capacity: int = CAPACITY, recompute: int = 4) -> Prompt:
    return PromptEncoder(TOKENIZER, PassageReuse(32, recompute)).encode(request, capacity)


def in_conversation(turns: tuple[Turn, ...] = TURNS, mode: AnswerMode = AnswerMode.FREE) -> GenerationRequest:
    return replace(question(mode), turns=turns)


@given(st.lists(st.integers(1, 30), max_size=20), st.integers(1, 60))
def test_turns_that_are_kept_fit_and_change_in_steps(lengths: list[int], budget: int) -> None:
    kept = [left_out(lengths[:count], budget) for count in range(len(lengths) + 1)]
    assert kept == sorted(kept), "a turn that was left out never comes back"
    for count, first in enumerate(kept):
        assert sum(lengths[first:count]) <= budget
        if count and first > kept[count - 1]:
            steps = lengths[first:count]
            assert sum(steps) <= budget // 2 or len(steps) == 1, "half of the budget is free after a step"
        if count and lengths[count - 1] <= budget:
            assert first < count, "the newest turn is kept if it fits at all"


@pytest.mark.parametrize("mode", [AnswerMode.CITE, AnswerMode.FREE])
@pytest.mark.parametrize("form", [None, Regex("[a-z]+")])
def test_earlier_turns_stand_before_the_passages_as_they_were_said(mode: AnswerMode, form: AnswerFormat | None) -> None:
    request = replace(in_conversation(mode=mode), format=form)
    prompt = encode(request)
    said = [text for turn in TURNS for text in (turn.question, turn.answer)]
    texts = [request.passages[index].passage.text for index in prompt.numbering]
    assert prompt.tokens == tuple(TOKENIZER.encode_conversation(SYSTEM, [*said, user_text(texts, request.question)]))
    assert len(prompt.passages) == 2
    alone = encode(replace(request, turns=()))
    assert (prompt.system, prompt.user) == (alone.system, alone.user), "what remotes get has no earlier turns"


def test_without_an_answer_a_turn_is_not_in_the_prompt() -> None:
    alone = encode(in_conversation(()))
    assert encode(in_conversation((Turn("What is greased?"), Turn("And?", " \n")))) == alone
    assert encode(in_conversation(mode=AnswerMode.QUOTE)).tokens == encode(in_conversation((), AnswerMode.QUOTE)).tokens


def test_history_takes_its_part_of_the_prompt_and_gives_way_to_the_first_passage() -> None:
    long = tuple(Turn(f"Question {number}?", "Grease the bearings. " * 20) for number in range(8))
    request = in_conversation(long)
    alone, whole = encode(replace(request, turns=())), encode(request)
    assert 0 < len(whole.tokens) - len(alone.tokens) <= history_budget(CAPACITY)
    capacity = len(alone.tokens) + request.sampling.max_tokens
    assert encode(request, capacity=capacity).passages
    single = replace(request, passages=request.passages[:1])
    tight = len(encode(replace(single, turns=())).tokens) + request.sampling.max_tokens
    assert encode(single, capacity=tight) == encode(replace(single, turns=()), capacity=tight)


@pytest.mark.parametrize("recompute", [0, 4])
def test_passages_are_copied_from_the_same_isolated_texts_in_every_conversation(recompute: int) -> None:
    request = replace(in_conversation(), kv_reuse=KvReuse.PASSAGE)
    talk, alone = encode(request, recompute=recompute), encode(replace(request, turns=()), recompute=recompute)
    assert [span.alone for span in talk.spans] == [span.alone for span in alone.spans]
    assert len(talk.spans) == 2
    for span in talk.spans:
        assert talk.tokens[span.start : span.end] == span.alone[span.offset : span.offset + span.length]
    assert talk.spans[0].length == alone.spans[0].length - recompute


def test_the_kv_of_earlier_turns_is_reused_exactly() -> None:
    passages = [
        ranked(number, f"Pump {number} is greased every {number} weeks, says page {number}.") for number in range(3)
    ]
    asked: list[GenerationRequest] = []
    with answering(SMALL, paged, LIMITS)(64) as talking:
        turns: tuple[Turn, ...] = ()
        for number, passage in enumerate(passages):
            request = replace(in_conversation(turns), question=f"How often is pump {number} greased, and by whom?")
            asked.append(replace(request, passages=(passage,)))
            answer = ask(talking, asked[-1])
            turns = (*turns, Turn(request.question, answer.text))
        apart = [talking.open_continuation(each, print) for each in (asked[2], replace(asked[2], turns=()))]
        assert len({each.prompt.tokens for each in apart if each is not None}) == 1, "remotes get no earlier turns"
    with answering(SMALL, paged, LIMITS)(64) as forgetful:
        anew = ask(forgetful, asked[-1])
    assert answer.text == anew.text
    assert anew.end.usage.cached_prompt_tokens == 0
    assert answer.end.usage.prompt_tokens == anew.end.usage.prompt_tokens
    first_turn = [turns[0].question, turns[0].answer]
    history = shared(*(TOKENIZER.encode_conversation(SYSTEM, [*first_turn, text]) for text in ("[1]", "Question")))
    second, third = (encode(request).tokens for request in asked[1:])
    assert shared(second, third) >= history > 2 * PAGE_TOKENS
    assert answer.end.usage.cached_prompt_tokens >= history // PAGE_TOKENS * PAGE_TOKENS


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    return next(at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
