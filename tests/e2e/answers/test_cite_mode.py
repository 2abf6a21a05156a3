"""Free text that is checked, through a real daemon with the default model."""

import re
from collections.abc import Callable

import grpc
import pytest

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc, rag_pb2, rag_pb2_grpc
from tests.e2e.answers.test_asking import QUESTIONS
from tests.e2e.support.running_daemon import RunningDaemon, ingest, sample_documents, status_of

CITE = rag_pb2.ANSWER_MODE_CITE


def ask(address: str, request: rag_pb2.AskRequest) -> list[rag_pb2.AskResponse]:
    with grpc.insecure_channel(address) as channel:
        return list(rag_pb2_grpc.RagStub(channel).Ask(request, timeout=120))


def cite(question: str) -> rag_pb2.AskRequest:
    return rag_pb2.AskRequest(question=question, mode=CITE, sampling=rag_pb2.Sampling(max_tokens=80))


def text_of(events: list[rag_pb2.AskResponse]) -> str:
    return "".join(event.text.text for event in events)


def citations_of(events: list[rag_pb2.AskResponse]) -> list[rag_pb2.Citation]:
    return [event.citation for event in events if event.HasField("citation")]


def stored(address: str, document: str) -> str:
    with grpc.insecure_channel(address) as channel:
        request = documents_pb2.GetDocumentRequest(document=document)
        return documents_pb2_grpc.DocumentsStub(channel).Get(request, timeout=30).text


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+", text.replace(",", "")))


def test_every_sentence_is_cited_from_stored_text_that_holds_its_numbers_or_is_marked(daemon: RunningDaemon) -> None:
    cited = 0
    for question in QUESTIONS:
        events = ask(daemon.address, cite(question))
        answer, reason = text_of(events), events[-1].finished.reason
        citations = citations_of(events)
        marked = [event.unsupported for event in events if event.HasField("unsupported")]
        assert "[" not in answer
        if reason == rag_pb2.FINISH_REASON_NOT_FOUND:
            assert not citations
            assert not marked
            continue
        judged = sorted(
            {(part.answer_start, part.answer_end) for part in citations}
            | {(part.answer_start, part.answer_end) for part in marked}
        )
        assert " ".join(answer[start:end] for start, end in judged) == " ".join(answer.split())
        for start, end in judged:
            support = [part for part in citations if (part.answer_start, part.answer_end) == (start, end)]
            if support:
                assert numbers(answer[start:end]) <= numbers(" ".join(part.text for part in support))
        for part in citations:
            assert stored(daemon.address, part.document)[part.start : part.end] == part.text
        cited += bool(citations)
    assert cited >= len(QUESTIONS) // 2


def test_where_the_daemon_leaves_it_out_nothing_unsupported_is_said(
    daemon: RunningDaemon, start: Callable[..., RunningDaemon]
) -> None:
    omitting = start(config='[generator]\nunsupported = "omit"\n')
    ingest(omitting.address, sample_documents())
    for question in QUESTIONS[:4]:
        marked, left = ask(daemon.address, cite(question)), ask(omitting.address, cite(question))
        answer = text_of(marked)
        cited = {(each.answer_start, each.answer_end) for each in citations_of(marked)}
        marks = [event.unsupported for event in marked if event.HasField("unsupported")]
        for part in reversed([mark for mark in marks if (mark.answer_start, mark.answer_end) not in cited]):
            answer = answer[: part.answer_start] + answer[part.answer_end :]
        assert text_of(left).split() == answer.split()
        assert not any(event.HasField("unsupported") for event in left)
        assert left[-1].finished.reason == marked[-1].finished.reason


@pytest.mark.smoke
def test_two_documents_with_different_numbers_for_the_same_thing_are_named(daemon: RunningDaemon) -> None:
    sentence = "The strainer of the jockey pump must be cleaned every {} days."
    ingest(
        daemon.address,
        {f"{days}.md": f"# Jockey pump\n\n{sentence.format(days)} Log it.".encode() for days in (46, 64)},
        "versions",
    )
    request = cite("How often must the strainer of the jockey pump be cleaned?")
    request.collection = "versions"
    events = ask(daemon.address, request)
    answer, (cited, *_) = text_of(events), citations_of(events)
    (conflict,) = events[-1].finished.conflicts
    assert {conflict.claimed, conflict.stated} == {"46 days", "64 days"}
    assert conflict.claimed in answer[conflict.answer_start : conflict.answer_end]
    assert conflict.claimed in cited.text
    assert {conflict.document, cited.document} == {"46.md", "64.md"}
    assert conflict.text == sentence.format(conflict.stated.removesuffix(" days"))


@pytest.mark.smoke
def test_a_question_about_nothing_in_the_documents_gets_the_not_found_answer(daemon: RunningDaemon) -> None:
    events = ask(daemon.address, cite("Which planet has the most moons?"))
    assert events[-1].finished.reason == rag_pb2.FINISH_REASON_NOT_FOUND
    assert {"planet", "moons"} <= set(events[-1].finished.nearest[0].lacks)
    assert events[0].passages.evidence < 0.25
    assert text_of(events) == "I could not find that in the documents."


def test_a_format_is_refused(daemon: RunningDaemon) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        ask(daemon.address, rag_pb2.AskRequest(question="q", mode=CITE, regex="a"))
    code, details = status_of(refused.value)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("regex: needs mode free")
