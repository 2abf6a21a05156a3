from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from edge_rag.core.answer import FinishReason
from edge_rag.core.generation import (
    ChunkEvent,
    Generated,
    GeneratedChunk,
    GenerationFailed,
    GenerationRequest,
    QuoteChunk,
    TextChunk,
    TokenChunk,
)
from edge_rag.core.query import AnswerMode, JsonSchema, Sampling
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import RemoteFailed
from edge_rag.generator.continuation import Continuation
from edge_rag.generator.generator import AnswerGenerator
from tests.contract.test_generator_contract import DEFAULT, PASSAGES, TINY, Answer, answering, ask, paged, question

LIMITS = SchedulerLimits(4, 96, 16)
ALIKE = tuple(
    replace(passage, sentences=tuple(replace(sentence, evidence=0.0) for sentence in passage.sentences))
    for passage in PASSAGES
)
CASES = {
    "free": question(AnswerMode.FREE),
    "free, to a stop": replace(question(AnswerMode.FREE), sampling=Sampling(max_tokens=60, stop=("zzz", "qq"))),
    "free, penalized": replace(question(AnswerMode.FREE), sampling=Sampling(max_tokens=40, repetition_penalty=1.3)),
    "cite": question(AnswerMode.CITE),
    "quote": replace(question(max_tokens=200), max_sentences=4, passages=ALIKE),
    "format": replace(
        question(AnswerMode.FREE, max_tokens=80),
        format=JsonSchema(
            '{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"}},'
            '"required":["a","b"],"additionalProperties":false}'
        ),
    ),
}


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def here(stack: ExitStack) -> AnswerGenerator:
    return stack.enter_context(answering(TINY, paged, LIMITS)(64))


@pytest.fixture(scope="module")
def there(stack: ExitStack) -> AnswerGenerator:
    return stack.enter_context(answering(TINY, paged, LIMITS)(64))


@pytest.fixture(scope="module")
def stranger(stack: ExitStack) -> AnswerGenerator:
    return stack.enter_context(answering(DEFAULT, paged, LIMITS)(64))


def written(
    generator: AnswerGenerator, request: GenerationRequest, vocabulary: str
) -> tuple[list[GeneratedChunk], Generated]:
    """Returns all that a generator says for somebody else."""
    said: list[GeneratedChunk] = []
    last: list[Generated | GenerationFailed] = []
    ended = threading.Event()

    def hear(event: ChunkEvent) -> None:
        if isinstance(event, Generated | GenerationFailed):
            last.append(event)
            ended.set()
        else:
            said.append(event)

    generator.write(request, vocabulary, hear)
    assert ended.wait(60)
    assert isinstance(last[0], Generated), last[0]
    return said, last[0]


def begun(generator: AnswerGenerator, request: GenerationRequest, answer: Answer) -> Continuation:
    dictation = generator.dictation(request, answer)
    assert dictation is not None
    return dictation


def a_token_each(said: list[GeneratedChunk]) -> list[GeneratedChunk]:
    return [
        piece
        for each in said
        for piece in ([TokenChunk((token,)) for token in each.tokens] if isinstance(each, TokenChunk) else [each])
    ]


@pytest.mark.parametrize("case", CASES)
def test_an_answer_that_is_gone_on_with_after_any_token_is_the_uninterrupted_one(
    here: AnswerGenerator, there: AnswerGenerator, case: str
) -> None:
    request = CASES[case]
    whole = ask(here, request)
    said = a_token_each(written(there, request, here.vocabulary)[0])
    assert len(said) > (1 if request.mode is AnswerMode.QUOTE else 10)
    for stop in {0, 1, 2, *range(3, len(said), 5), len(said) - 1}:
        answer = Answer()
        dictation = begun(here, request, answer)
        for piece in said[:stop]:
            assert dictation.say(piece) is None
        dictation.go_on()
        answer.wait()
        assert answer.text == whole.text, f"after {stop} of {len(said)}"
        assert answer.citations == whole.citations
        assert (answer.end.reason, answer.unsupported) == (whole.end.reason, whole.unsupported)
        used, wanted = answer.end.usage, whole.end.usage
        assert (used.prompt_tokens, used.generated_tokens) == (wanted.prompt_tokens, wanted.generated_tokens)


@pytest.mark.parametrize("case", CASES)
def test_an_answer_dictated_to_its_end_is_the_one_written_here(
    here: AnswerGenerator, there: AnswerGenerator, case: str
) -> None:
    request = CASES[case]
    whole = ask(here, request)
    said, last = written(there, request, here.vocabulary)
    answer = Answer()
    dictation = begun(here, request, answer)
    reasons = [dictation.say(piece) for piece in said]
    assert all(reason is None for reason in reasons[:-1])
    dictation.finish(reasons[-1] or last.reason, last.usage, 0.0, 0.0)
    assert (answer.text, answer.citations) == (whole.text, whole.citations)
    assert answer.end.reason is whole.end.reason


@pytest.mark.parametrize("mode", [AnswerMode.FREE, AnswerMode.CITE])
def test_text_of_another_model_is_gone_on_with(
    here: AnswerGenerator, stranger: AnswerGenerator, mode: AnswerMode
) -> None:
    request = replace(question(mode), sampling=Sampling(max_tokens=30))
    said, _ = written(stranger, replace(request, mode=AnswerMode.FREE), here.vocabulary)
    assert all(isinstance(piece, TextChunk) for piece in said)
    for stop in (1, len(said) // 2):
        answer = Answer()
        dictation = begun(here, request, answer)
        for piece in said[:stop]:
            assert dictation.say(piece) is None
        dictation.go_on()
        answer.wait()
        if mode is AnswerMode.FREE:
            spoken = "".join(piece.text for piece in said[:stop] if isinstance(piece, TextChunk))
            assert answer.text.strip().startswith(spoken.strip())
        assert answer.end.usage.generated_tokens <= 30


LIES: dict[str, tuple[str, GeneratedChunk]] = {
    "a passage that is not there": ("quote", QuoteChunk(9, 0)),
    "a sentence that is not there": ("quote", QuoteChunk(1, 99)),
    "text instead of a quotation": ("quote", TextChunk("Never grease anything.")),
    "tokens instead of a quotation": ("quote", TokenChunk((5, 6, 7))),
    "a token that does not exist": ("free", TokenChunk((10**6,))),
    "no tokens": ("free", TokenChunk(())),
    "a sentence instead of text": ("free", QuoteChunk(0, 0)),
    "text instead of a format": ("format", TextChunk('{"a": 1, "b": true}')),
    "tokens that the format does not allow": ("format", TokenChunk((40, 41, 42))),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_may_not_be_said_is_not_told_and_the_answer_goes_on_without_it(here: AnswerGenerator, lie: str) -> None:
    case, said = LIES[lie]
    answer = Answer()
    dictation = begun(here, CASES[case], answer)
    with pytest.raises(RemoteFailed):
        dictation.say(said)
    assert not answer.events
    dictation.go_on()
    assert answer.wait().text == ask(here, CASES[case]).text


def test_the_same_sentence_is_not_quoted_twice(here: AnswerGenerator, there: AnswerGenerator) -> None:
    said, _ = written(there, CASES["quote"], "")
    dictation = begun(here, CASES["quote"], Answer())
    dictation.say(said[0])
    with pytest.raises(RemoteFailed):
        dictation.say(said[0])


@pytest.mark.parametrize("case", ["free", "quote", "format"])
def test_an_answer_without_a_word_is_none(here: AnswerGenerator, case: str) -> None:
    dictation = begun(here, CASES[case], Answer())
    with pytest.raises(RemoteFailed):
        dictation.finish(FinishReason.STOP, None, 0.0, 0.0)


def test_a_format_is_not_taken_for_complete_before_it_is(here: AnswerGenerator, there: AnswerGenerator) -> None:
    said = a_token_each(written(there, CASES["format"], here.vocabulary)[0])
    dictation = begun(here, CASES["format"], Answer())
    dictation.say(said[0])
    with pytest.raises(RemoteFailed):
        dictation.finish(FinishReason.STOP, None, 0.0, 0.0)


def test_an_endless_answer_ends_at_its_longest(here: AnswerGenerator) -> None:
    answer = Answer()
    dictation = begun(here, CASES["free"], answer)
    reason = None
    while reason is None:
        reason = dictation.say(TextChunk("and so on "))
    dictation.finish(reason, None, 0.0, 0.0)
    assert answer.end.reason is FinishReason.LENGTH
    assert len(answer.text) < 2000


def test_where_there_is_nothing_to_write_nothing_is_dictated(here: AnswerGenerator) -> None:
    assert here.dictation(replace(question(), passages=()), Answer()) is None
    assert here.dictation(replace(question(), evidence=0.01), Answer()) is None
