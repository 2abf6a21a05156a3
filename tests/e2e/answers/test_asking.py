import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
import pytest

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc, rag_pb2, rag_pb2_grpc
from tests.e2e.support.running_daemon import RunningDaemon

QUESTIONS = (
    "How often must the pump bearings be greased?",
    "Which grease is used for the bearings?",
    "What must be done before the pump is started?",
    "Which protective equipment is needed for hypochlorite?",
    "What does the high bearing temperature alarm mean?",
    "Who is called when there is a spill?",
    "What is the rated flow of the pump?",
    "When was the mechanical seal replaced?",
)


@dataclass(frozen=True)
class Answer:
    text: str
    citations: tuple[tuple[str, int, int, str], ...]
    sections: tuple[tuple[str, ...], ...]
    passages: tuple[tuple[str, int, int], ...]
    finished: rag_pb2.Finished
    order: tuple[str, ...]


def ask(address: str, request: rag_pb2.AskRequest, meet: threading.Barrier | None = None) -> Answer:
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(10)
        if meet is not None:
            meet.wait(30)
        events = list(rag_pb2_grpc.RagStub(channel).Ask(request, timeout=120))
    return Answer(
        text="".join(event.text.text for event in events if event.HasField("text")),
        citations=tuple(
            (event.citation.document, event.citation.start, event.citation.end, event.citation.text)
            for event in events
            if event.HasField("citation")
        ),
        sections=tuple(tuple(event.citation.section) for event in events if event.HasField("citation")),
        passages=tuple((p.document, p.start, p.end) for event in events for p in event.passages.passages),
        finished=events[-1].finished,
        order=tuple(str(event.WhichOneof("event")) for event in events),
    )


@pytest.mark.smoke
def test_an_answer_is_streamed_in_the_documented_order_with_usage_and_stage_times(daemon: RunningDaemon) -> None:
    answer = ask(daemon.address, rag_pb2.AskRequest(question=QUESTIONS[0]))
    assert answer.order[0] == "passages"
    assert answer.order[-1] == "finished"
    assert set(answer.order[1:-1]) == {"text", "citation"}
    assert "2,000" in answer.text
    assert answer.finished.reason == rag_pb2.FINISH_REASON_STOP
    assert answer.finished.usage == rag_pb2.Usage(), "no model runs for a quoted answer"
    assert [stage.stage for stage in answer.finished.stages] == ["retriever", "reranker", "generator"]
    assert all(stage.compute_seconds > 0 for stage in answer.finished.stages[:2])
    assert answer.finished.first_token_seconds > 0


@pytest.mark.smoke
def test_a_follow_up_is_answered_over_the_turn_before_it(daemon: RunningDaemon) -> None:
    source = rag_pb2.TurnSource(document="manuals/main-pump.md", text="The bearings are greased every 2,000 hours.")
    turns = [
        rag_pb2.Turn(question="How often must the pump bearings be greased?", answer=source.text, sources=[source])
    ]
    follow_up, complete = "Which grease is used for them?", "Which grease is used for the bearings?"
    with grpc.insecure_channel(daemon.address) as channel:
        stub = rag_pb2_grpc.RagStub(channel)
        found = [
            next(event.passages for event in stub.Ask(request, timeout=120) if event.HasField("passages"))
            for request in (
                rag_pb2.AskRequest(question=follow_up, turns=turns),
                rag_pb2.AskRequest(question=complete),
                rag_pb2.AskRequest(question=follow_up),
            )
        ]
        searched = stub.Search(rag_pb2.SearchRequest(query=follow_up, turns=turns, limit=5), timeout=120)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Search(rag_pb2.SearchRequest(query=follow_up, turns=turns * 9), timeout=120)

    over_turns, resolved, alone = found
    assert "bearings" in over_turns.standalone_question
    assert searched.standalone_question == over_turns.standalone_question
    assert not resolved.HasField("standalone_question")
    assert not alone.HasField("standalone_question")
    assert over_turns.passages[0].text == resolved.passages[0].text == searched.hits[0].text
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "turns: has 9 turns, at most 8" in (refused.value.details() or "")


@pytest.mark.smoke
def test_a_misspelled_question_finds_what_the_clean_one_finds(daemon: RunningDaemon) -> None:
    clean = "how often do I have to grease the bearings of the pump"
    misspelled = "how offten do I have to grese the bearngs of the pmp"
    with grpc.insecure_channel(daemon.address) as channel:
        stub = rag_pb2_grpc.RagStub(channel)
        expected, found = (
            stub.Search(rag_pb2.SearchRequest(query=query, limit=5), timeout=120) for query in (clean, misspelled)
        )
        asked = [rag_pb2.AskRequest(question=text, max_sentences=1) for text in (clean, misspelled)]
        answers = [list(stub.Ask(request, timeout=120)) for request in asked]

    assert not expected.HasField("did_you_mean")
    assert found.did_you_mean.endswith("do I have to grease the bearings of the pump")
    assert found.hits[0].text == expected.hits[0].text
    assert {hit.text for hit in expected.hits[:3]} <= {hit.text for hit in found.hits}
    told = [next(event.passages for event in events if event.HasField("passages")) for events in answers]
    assert not told[0].HasField("did_you_mean")
    assert told[1].did_you_mean == found.did_you_mean
    texts = ["".join(event.text.text for event in events) for events in answers]
    assert "2,000" in texts[0]
    assert texts[1] == texts[0]


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_word_of_a_quoted_answer_is_the_cited_text_of_the_stored_document(
    daemon: RunningDaemon, question: str
) -> None:
    answer = ask(daemon.address, rag_pb2.AskRequest(question=question, max_sentences=2))
    between = answer.text
    for *_, text in answer.citations:
        assert text in answer.text
        between = between.replace(text, "", 1)
    headings = {heading for each in answer.sections for heading in each}
    left = {line.removeprefix("-").strip() for line in between.split("\n")}
    assert left <= {"", "[…]", *headings, *(document for document, *_ in answer.citations)}
    with grpc.insecure_channel(daemon.address) as channel:
        for document, start, end, text in answer.citations:
            request = documents_pb2.GetDocumentRequest(document=document)
            stored = documents_pb2_grpc.DocumentsStub(channel).Get(request, timeout=30).text
            assert stored[start:end] == text


@pytest.mark.parametrize("mode", [rag_pb2.ANSWER_MODE_QUOTE, rag_pb2.ANSWER_MODE_FREE])
def test_eight_clients_at_once_get_the_answers_they_get_alone(
    daemon: RunningDaemon, mode: rag_pb2.AnswerMode.ValueType
) -> None:
    requests = [
        rag_pb2.AskRequest(question=question, mode=mode, sampling=rag_pb2.Sampling(max_tokens=48))
        for question in QUESTIONS
    ]
    alone = [ask(daemon.address, request) for request in requests]
    meet = threading.Barrier(len(requests))
    with ThreadPoolExecutor(len(requests)) as pool:
        together = list(pool.map(lambda request: ask(daemon.address, request, meet), requests))
    for one, with_others in zip(alone, together, strict=True):
        assert with_others.passages == one.passages
        assert with_others.text == one.text
        assert with_others.citations == one.citations
