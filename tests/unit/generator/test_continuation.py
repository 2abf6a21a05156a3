import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from edge_rag.core.answer import FinishReason, Usage
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
from tests.support.generators import SMALL, TINY, RecordedAnswer, answering, ask, paged, question

LIMITS = SchedulerLimits(4, 96, 16)
CASES = {
    "free": question(AnswerMode.FREE),
    "free, to a stop": replace(question(AnswerMode.FREE), sampling=Sampling(max_tokens=60, stop=("zzz", "qq"))),
    "free, penalized": replace(question(AnswerMode.FREE), sampling=Sampling(max_tokens=40, repetition_penalty=1.3)),
    "cite": question(AnswerMode.CITE),
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
def local(stack: ExitStack) -> AnswerGenerator:
    return stack.enter_context(answering(TINY, paged, LIMITS)(64))


@pytest.fixture(scope="module")
def other(stack: ExitStack) -> AnswerGenerator:
    return stack.enter_context(answering(TINY, paged, LIMITS)(64))


@pytest.fixture(scope="module")
def other_model(stack: ExitStack) -> AnswerGenerator:
    return stack.enter_context(answering(SMALL, paged, LIMITS)(64))


def generated(
    generator: AnswerGenerator, request: GenerationRequest, vocabulary: str
) -> tuple[list[GeneratedChunk], Generated]:
    """Returns all chunks of a request, and its end."""
    chunks: list[GeneratedChunk] = []
    last: list[Generated | GenerationFailed] = []
    ended = threading.Event()

    def on_chunk(event: ChunkEvent) -> None:
        if isinstance(event, Generated | GenerationFailed):
            last.append(event)
            ended.set()
        else:
            chunks.append(event)

    generator.submit_chunks(request, vocabulary, on_chunk)
    assert ended.wait(60)
    assert isinstance(last[0], Generated), last[0]
    return chunks, last[0]


def opened(generator: AnswerGenerator, request: GenerationRequest, answer: RecordedAnswer) -> Continuation:
    continuation = generator.open_continuation(request, answer)
    assert continuation is not None
    return continuation


def one_token_each(chunks: list[GeneratedChunk]) -> list[GeneratedChunk]:
    return [
        chunk
        for each in chunks
        for chunk in ([TokenChunk((token,)) for token in each.tokens] if isinstance(each, TokenChunk) else [each])
    ]


@pytest.mark.parametrize("case", CASES)
def test_an_answer_resumed_after_any_token_equals_the_uninterrupted_one(
    local: AnswerGenerator, other: AnswerGenerator, case: str
) -> None:
    request = CASES[case]
    expected_answer = ask(local, request)
    chunks = one_token_each(generated(other, request, local.vocabulary)[0])
    assert len(chunks) > 10
    for stop in {0, 1, 2, *range(3, len(chunks), 5), len(chunks) - 1}:
        answer = RecordedAnswer()
        continuation = opened(local, request, answer)
        for chunk in chunks[:stop]:
            assert continuation.append(chunk) is None
        continuation.resume_locally()
        answer.wait()
        assert answer.text == expected_answer.text, f"after {stop} of {len(chunks)}"
        assert answer.citations == expected_answer.citations
        assert (answer.end.reason, answer.unsupported) == (expected_answer.end.reason, expected_answer.unsupported)
        used, expected = answer.end.usage, expected_answer.end.usage
        assert (used.prompt_tokens, used.generated_tokens) == (expected.prompt_tokens, expected.generated_tokens)


@pytest.mark.parametrize("case", CASES)
def test_an_answer_generated_remotely_equals_the_local_one(
    local: AnswerGenerator, other: AnswerGenerator, case: str
) -> None:
    request = CASES[case]
    expected_answer = ask(local, request)
    chunks, last = generated(other, request, local.vocabulary)
    answer = RecordedAnswer()
    continuation = opened(local, request, answer)
    reasons = [continuation.append(chunk) for chunk in chunks]
    assert all(reason is None for reason in reasons[:-1])
    continuation.finish(reasons[-1] or last.reason, last.usage, 0.0, 0.0)
    assert (answer.text, answer.citations) == (expected_answer.text, expected_answer.citations)
    assert answer.end.reason is expected_answer.end.reason


@pytest.mark.parametrize("mode", [AnswerMode.FREE, AnswerMode.CITE])
def test_text_of_another_model_is_resumed(
    local: AnswerGenerator, other_model: AnswerGenerator, mode: AnswerMode
) -> None:
    request = replace(question(mode), sampling=Sampling(max_tokens=30))
    chunks, _ = generated(other_model, replace(request, mode=AnswerMode.FREE), local.vocabulary)
    assert all(isinstance(chunk, TextChunk) for chunk in chunks)
    for stop in (1, len(chunks) // 2):
        answer = RecordedAnswer()
        continuation = opened(local, request, answer)
        for chunk in chunks[:stop]:
            assert continuation.append(chunk) is None
        continuation.resume_locally()
        answer.wait()
        if mode is AnswerMode.FREE:
            prefix = "".join(chunk.text for chunk in chunks[:stop] if isinstance(chunk, TextChunk))
            assert answer.text.strip().startswith(prefix.strip())
        assert answer.end.usage.generated_tokens <= 30


VIOLATIONS: dict[str, tuple[str, GeneratedChunk]] = {
    "a token that does not exist": ("free", TokenChunk((10**6,))),
    "no tokens": ("free", TokenChunk(())),
    "a sentence instead of text": ("free", QuoteChunk(0, 0)),
    "a sentence instead of a format": ("format", QuoteChunk(0, 0)),
    "text instead of a format": ("format", TextChunk('{"a": 1, "b": true}')),
    "tokens that the format does not allow": ("format", TokenChunk((40, 41, 42))),
}


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_a_violation_is_not_emitted_and_the_answer_resumes_without_it(local: AnswerGenerator, violation: str) -> None:
    case, chunks = VIOLATIONS[violation]
    answer = RecordedAnswer()
    continuation = opened(local, CASES[case], answer)
    with pytest.raises(RemoteFailed):
        continuation.append(chunks)
    assert not answer.events
    continuation.resume_locally()
    assert answer.wait().text == ask(local, CASES[case]).text


def test_a_peer_that_asks_for_quotes_gets_their_places(local: AnswerGenerator) -> None:
    chunks, last = generated(local, replace(question(max_tokens=1), max_sentences=8), "")
    assert chunks == [QuoteChunk(1, 0)]
    assert (last.reason, last.usage) == (FinishReason.STOP, Usage())


@pytest.mark.parametrize("case", ["free", "format"])
def test_an_empty_answer_is_rejected(local: AnswerGenerator, case: str) -> None:
    continuation = opened(local, CASES[case], RecordedAnswer())
    with pytest.raises(RemoteFailed):
        continuation.finish(FinishReason.STOP, None, 0.0, 0.0)


def test_an_incomplete_format_cannot_finish(local: AnswerGenerator, other: AnswerGenerator) -> None:
    chunks = one_token_each(generated(other, CASES["format"], local.vocabulary)[0])
    continuation = opened(local, CASES["format"], RecordedAnswer())
    continuation.append(chunks[0])
    with pytest.raises(RemoteFailed):
        continuation.finish(FinishReason.STOP, None, 0.0, 0.0)


def test_an_endless_answer_ends_at_max_tokens(local: AnswerGenerator) -> None:
    answer = RecordedAnswer()
    continuation = opened(local, CASES["free"], answer)
    reason = None
    while reason is None:
        reason = continuation.append(TextChunk("and so on "))
    continuation.finish(reason, None, 0.0, 0.0)
    assert answer.end.reason is FinishReason.LENGTH
    assert len(answer.text) < 2000


def test_an_answer_that_needs_no_model_has_no_continuation(local: AnswerGenerator) -> None:
    assert local.open_continuation(question(), RecordedAnswer()) is None
    assert local.open_continuation(replace(question(AnswerMode.FREE), passages=()), RecordedAnswer()) is None
    assert local.open_continuation(replace(question(AnswerMode.CITE), evidence=0.01), RecordedAnswer()) is None
