"""What the pipeline may rely on, of every implementation of its port ``Generator``."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from edge_rag.core.answer import Citation, FinishReason, TextDelta, Unsupported, Usage
from edge_rag.core.generation import Generated, GenerationEvent, GenerationFailed, GenerationRequest
from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.passage import RankedPassage
from edge_rag.core.placement import OffloadMode
from edge_rag.core.query import AnswerMode
from edge_rag.engine.ports import ModelRunner
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.errors import DeadlineExceeded, NotReady, Overloaded, RequestCancelled, RequestTooLarge, SlowConsumer
from edge_rag.offload.generation.generator import OffloadingGenerator, OffloadLimits
from edge_rag.offload.generation.redaction import Redactor
from edge_rag.offload.ports import Remote
from edge_rag.offload.remotes.edge_rag import EdgeRagRemote
from edge_rag.offload.remotes.openai import OpenAiRemote
from edge_rag.offload.remotes.tls_trust import Trust
from edge_rag.pipeline.ports import GenerationHandle, Generator
from tests.support.generators import (
    LIMITS,
    NOT_FOUND,
    PASSAGES,
    SMALL,
    TINY,
    RecordedAnswer,
    UsageRecorder,
    answering,
    ask,
    assert_set,
    paged,
    question,
    ranked,
    serial,
)
from tests.support.openai_server import openai_server
from tests.support.peer_daemon import serve_generator

MakeGenerator = Callable[[int], AbstractContextManager[Generator]]
"""Opens a generator that lets that many requests wait, and closes it."""


def engine_over(folder: Path, open_runner: Callable[[Path], ModelRunner], limits: SchedulerLimits) -> MakeGenerator:
    return answering(folder, open_runner, limits)


def offloading(remote_model: Path, mode: OffloadMode = OffloadMode.PREFER_REMOTE) -> MakeGenerator:
    """A box with the tiny model that borrows another edge-rag."""

    @contextmanager
    def remote() -> Iterator[Remote]:
        with (
            tempfile.TemporaryDirectory() as folder,
            answering(remote_model, paged, LIMITS)(64) as lender,
            serve_generator(lender, Path(folder) / "tokens.toml") as address,
        ):
            yield EdgeRagRemote("big", address, Trust())

    return borrowing(remote, mode)


def asking_a_server() -> MakeGenerator:
    """A box with the tiny model that has an OpenAI-compatible server write what that may: all but quotations."""

    @contextmanager
    def remote() -> Iterator[Remote]:
        with answering(SMALL, paged, LIMITS)(64) as model, openai_server(model) as server:
            yield OpenAiRemote("big", server.url, "quoter", Trust())

    return borrowing(remote, OffloadMode.PREFER_REMOTE)


def borrowing(remote: Callable[[], AbstractContextManager[Remote]], mode: OffloadMode) -> MakeGenerator:
    @contextmanager
    def make(max_waiting: int) -> Iterator[Generator]:
        with answering(TINY, paged, LIMITS)(max_waiting) as local, remote() as other:
            chosen, books = OffloadLimits(mode, queue=max_waiting), UsageRecorder()
            generator = OffloadingGenerator(local, [other], chosen, Redactor(()), books)
            try:
                yield generator
            finally:
                generator.close()
            assert books.kinds[AuditEventKind.TAKEN_OVER] == 0, "what the remote wrote was not taken"

    return make


@pytest.fixture(
    params=[
        pytest.param(engine_over(TINY, paged, SchedulerLimits(4, 96, 16)), id="engine, tiny model"),
        pytest.param(engine_over(TINY, serial, SchedulerLimits(1, 96, 95)), id="engine, tiny model run serially"),
        pytest.param(engine_over(SMALL, paged, SchedulerLimits(4, 96, 16)), id="engine, small model"),
        pytest.param(offloading(TINY), id="remote edge-rag, same model"),
        pytest.param(offloading(SMALL), id="remote edge-rag, another model"),
        pytest.param(asking_a_server(), id="remote OpenAI-compatible server, another model"),
    ]
)
def make_generator(request: pytest.FixtureRequest) -> MakeGenerator:
    make: MakeGenerator = request.param
    return make


@pytest.fixture
def generator(make_generator: MakeGenerator) -> Iterator[Generator]:
    with make_generator(64) as generator:
        yield generator


@pytest.mark.parametrize("mode", AnswerMode)
def test_the_last_event_is_the_end_and_the_only_one(generator: Generator, mode: AnswerMode) -> None:
    answer = ask(generator, question(mode))
    assert [isinstance(event, Generated | GenerationFailed) for event in answer.events].count(True) == 1
    if mode.needs_model:
        assert answer.end.usage.prompt_tokens > 0
        assert answer.end.usage.generated_tokens > 0
    else:
        assert answer.end.usage == Usage(), "no model runs for what the documents say"
    assert answer.end.queue_s >= 0
    assert answer.end.compute_s >= 0


def test_a_quoted_answer_is_the_sentence_with_the_evidence_and_says_where_it_stands(generator: Generator) -> None:
    answer = ask(generator, question())
    assert answer.text == "Grease both bearings every 2,000 hours."
    (citation,) = answer.citations
    assert citation == Citation(1, "2.md", 2, 2000, 2000 + len(answer.text), answer.text, 0, len(answer.text))
    assert answer.end.reason is FinishReason.STOP
    assert answer.end.first_token_s is not None


@pytest.mark.parametrize("sentences", [2, 3, 8])
def test_every_quoted_sentence_is_cited_verbatim(generator: Generator, sentences: int) -> None:
    answer = ask(generator, replace(question(max_tokens=200), max_sentences=sentences))
    assert 1 <= sum(not citation.context for citation in answer.citations) <= sentences
    for citation in answer.citations:
        passage = PASSAGES[citation.passage].passage
        assert citation.text == passage.text[citation.start - passage.start : citation.end - passage.start]
        assert citation.text == answer.text[citation.answer_start : citation.answer_end]
        assert (citation.document, citation.page) == (passage.document, passage.page)


def test_free_text_comes_without_the_models_special_tokens(generator: Generator) -> None:
    answer = ask(generator, question(AnswerMode.FREE))
    assert "<|im_" not in answer.text
    assert answer.citations == [], "nothing checks it"
    assert all(event.text for event in answer.events if isinstance(event, TextDelta))


def test_free_text_ends_before_a_stop_string(generator: Generator) -> None:
    whole = ask(generator, question(AnswerMode.FREE)).text
    stop = whole[len(whole) // 2 :][:3]
    request = question(AnswerMode.FREE)
    answer = ask(generator, replace(request, sampling=replace(request.sampling, stop=(stop,))))
    assert whole.startswith(answer.text)
    assert stop not in answer.text
    assert len(answer.text) < len(whole)
    assert answer.end.reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("mode", "passages", "evidence"),
    [
        (AnswerMode.QUOTE, (), 1.0),
        (AnswerMode.CITE, (), 1.0),
        (AnswerMode.FREE, (), 1.0),
        (AnswerMode.QUOTE, PASSAGES, 0.09),
        (AnswerMode.CITE, PASSAGES, 0.09),
    ],
)
def test_without_evidence_the_answer_is_the_not_found_text(
    generator: Generator, mode: AnswerMode, passages: tuple[RankedPassage, ...], evidence: float
) -> None:
    answer = ask(generator, replace(question(mode), passages=passages, evidence=evidence))
    assert (answer.text, answer.citations, answer.end.reason) == (NOT_FOUND, [], FinishReason.NOT_FOUND)


def test_a_checked_answer_cites_or_marks_every_sentence_or_is_the_not_found_text(generator: Generator) -> None:
    for passages in (PASSAGES, PASSAGES[1:], PASSAGES[:1]):
        answer = ask(generator, replace(question(AnswerMode.CITE), passages=passages))
        if answer.end.reason is FinishReason.NOT_FOUND:
            assert (answer.text, answer.citations, answer.unsupported) == (NOT_FOUND, [], [])
            continue
        judged_parts: list[Citation | Unsupported] = [*answer.citations, *answer.unsupported]
        judged = {(part.answer_start, part.answer_end) for part in judged_parts}
        at = 0
        for start, end in sorted(judged):
            assert answer.text[at:start].isspace() or at == start == 0
            at = end
        assert at == len(answer.text)
        assert answer.citations
        for citation in answer.citations:
            passage = passages[citation.passage].passage
            assert passage.text[citation.start - passage.start : citation.end - passage.start] == citation.text


def test_a_model_that_says_nothing_the_passages_hold_gets_the_not_found_text(generator: Generator) -> None:
    answer = ask(generator, replace(question(AnswerMode.CITE, max_tokens=1)))
    assert (answer.text, answer.end.reason) == (NOT_FOUND, FinishReason.NOT_FOUND)


def test_all_events_come_from_one_thread_that_is_not_the_callers(generator: Generator) -> None:
    answers = [ask(generator, question()), ask(generator, replace(question(), passages=()))]
    threads = answers[0].threads | answers[1].threads
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_many_at_once_get_the_answers_they_get_alone(generator: Generator) -> None:
    requests = [
        replace(
            question(AnswerMode.FREE if n % 2 else AnswerMode.QUOTE), passages=PASSAGES[n % 3 // 2 :], max_sentences=2
        )
        for n in range(8)
    ]
    alone = [ask(generator, request).text for request in requests]
    answers = [RecordedAnswer() for _ in requests]
    for request, answer in zip(requests, answers, strict=True):
        generator.submit(request, answer)
    assert [answer.wait().text for answer in answers] == alone


def held(generator: Generator, wanted: GenerationRequest) -> tuple[RecordedAnswer, GenerationHandle, threading.Event]:
    """Submits a request whose first event is not taken until the event that is returned."""
    began, released = threading.Event(), threading.Event()

    def hold(event: GenerationEvent) -> None:
        began.set()
        assert released.wait(60)

    answer = RecordedAnswer(hold)
    handle = generator.submit(wanted, answer)
    assert began.wait(60)
    return answer, handle, released


def test_a_cancelled_request_ends_with_that_error_once(generator: Generator) -> None:
    answer, handle, cancelled = held(generator, question(AnswerMode.FREE, max_tokens=200))
    handle.cancel()
    cancelled.set()
    answer.wait()
    handle.cancel()
    assert isinstance(answer.error, RequestCancelled)


def test_a_paused_request_says_nothing_until_it_goes_on_to_the_answer_it_gives_alone(generator: Generator) -> None:
    wanted = question(AnswerMode.FREE, max_tokens=60)
    alone = ask(generator, wanted)
    answer, handle, paused = held(generator, wanted)
    handle.pause()
    paused.set()
    other = ask(generator, question())
    assert other.text
    assert not answer.ended.is_set()
    said = len(answer.events)
    handle.resume()
    answer.wait()
    handle.pause()
    assert len(answer.events) > said
    assert answer.text == alone.text


def test_a_paused_request_ends_with_the_reason_it_is_given_up_for(generator: Generator) -> None:
    answer, handle, paused = held(generator, question(AnswerMode.FREE, max_tokens=200))
    handle.pause()
    paused.set()
    handle.cancel(SlowConsumer(3))
    answer.wait()
    handle.resume()
    assert isinstance(answer.error, SlowConsumer)


def test_a_passed_deadline_is_refused(generator: Generator) -> None:
    with pytest.raises(DeadlineExceeded):
        generator.submit(replace(question(), deadline=time.monotonic() - 1), RecordedAnswer())


def test_a_question_longer_than_the_context_never_fits_a_model(generator: Generator) -> None:
    with pytest.raises(RequestTooLarge):
        generator.submit(replace(question(AnswerMode.FREE), question="why " * 3000), RecordedAnswer())
    assert ask(generator, replace(question(), question="why " * 3000)).text


@pytest.mark.parametrize("mode", [AnswerMode.FREE, AnswerMode.CITE])
def test_passages_that_do_not_fit_are_left_out_and_not_cited(generator: Generator, mode: AnswerMode) -> None:
    long = ranked(3, "It rains. " * 2000, evidence=50.0)
    answer = ask(generator, replace(question(mode), passages=(*PASSAGES, long)))
    assert all(citation.document != "3.md" for citation in answer.citations)
    assert answer.end.prompt_passages == len(PASSAGES)


def test_a_quote_longer_than_the_longest_answer_of_a_model_is_whole(generator: Generator) -> None:
    sentence = f"Grease with lithium {'and again ' * 2000}the bearings."
    answer = ask(generator, replace(question(max_tokens=1), passages=(*PASSAGES, ranked(3, sentence, evidence=50.0))))
    assert answer.text == sentence
    assert answer.end.reason is FinishReason.STOP


def test_a_full_queue_refuses_at_once(make_generator: MakeGenerator) -> None:
    gate = threading.Event()
    with make_generator(1) as generator:
        # The generator's thread is held inside a listener while the queue fills.
        generator.submit(replace(question(), passages=()), RecordedAnswer(lambda event: assert_set(gate)))
        answers: list[RecordedAnswer] = []
        refused: Overloaded | None = None
        while refused is None:
            answers.append(RecordedAnswer())
            try:
                generator.submit(question(), answers[-1])
            except Overloaded as error:
                refused = error
        gate.set()
        assert refused.retry_after_s > 0
        assert len(answers) <= 3
        for answer in answers[:-1]:
            assert answer.wait().text


def test_a_closed_generator_is_not_ready(make_generator: MakeGenerator) -> None:
    with make_generator(4) as generator:
        pass
    with pytest.raises(NotReady):
        generator.submit(question(), RecordedAnswer())
