import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.api.v1 import documents_pb2, rag_pb2
from edge_rag.core.identity import Identity, Role
from edge_rag.core.ids import RequestId
from edge_rag.core.limits.asker import Asker
from edge_rag.core.limits.request_fields import (
    RequestLimits,
    parse_collection,
    parse_document_name,
    parse_request_id,
)
from edge_rag.core.query import AnswerMode, JsonSchema, Priority, Query, Regex, Turn, TurnSource
from edge_rag.errors import InvalidRequest
from edge_rag.wire import requests as wire
from edge_rag.wire.types import AskOptions, SearchOptions

CALLER = Identity("ward-3", frozenset({Role.READER}), priority_ceiling=Priority.NORMAL)
LIMITS = RequestLimits(question_characters=100, default_mode=AnswerMode.QUOTE, default_passages=4)
ASKER = Asker(RequestId("r"), CALLER, 10.0, LIMITS)


def parse(request: rag_pb2.AskRequest) -> Query:
    return wire.parse_query(request, ASKER)


def conversation(turns: int = 1, answer: str = "every day") -> list[rag_pb2.Turn]:
    source = rag_pb2.TurnSource(document="a.md", section=["Pump", "Seal"], text="daily")
    return [rag_pb2.Turn(question=" How often? ", answer=answer, sources=[source])] * turns


@pytest.mark.parametrize("turns", [0, 1, 8])
def test_the_turns_of_a_question_and_of_a_search_arrive_in_order(turns: int) -> None:
    source = TurnSource("a.md", ("Pump", "Seal"), "daily")
    sent = tuple(Turn(f"q{number}", f"a{number}", (source,) * number) for number in range(turns))
    asked = wire.ask_to_message("q", AskOptions(turns=sent))
    searched = wire.search_to_message("q", SearchOptions(turns=sent))

    assert parse(asked).turns == sent
    search = wire.parse_search_query(searched, ASKER)
    assert search.turns == sent


def test_the_question_of_a_turn_is_read_as_every_question_is() -> None:
    (turn,) = parse(rag_pb2.AskRequest(question="q", turns=conversation())).turns
    assert turn == Turn("How often?", "every day", (TurnSource("a.md", ("Pump", "Seal"), "daily"),))


@pytest.mark.parametrize(
    ("turns", "field", "problem"),
    [
        (conversation(9), "turns", "has 9 turns, at most 8 are allowed"),
        (conversation(2, "x" * 65_536), "turns", "at most 131,072 are allowed; leave out the oldest"),
        (conversation(1, "a\x00b"), "turns", "must not hold NUL"),
        ([*conversation(), rag_pb2.Turn()], "turns[1].question", "must not be empty"),
        ([rag_pb2.Turn(question="x" * 101)], "turns[0].question", "at most 100"),
        ([rag_pb2.Turn(question="q", sources=[rag_pb2.TurnSource()] * 33)], "turns[0].sources", "at most 32"),
        (
            [rag_pb2.Turn(question="q", sources=[rag_pb2.TurnSource(section=["x"] * 65)])],
            "turns[0].sources[0].section",
            "at most 64",
        ),
    ],
)
def test_turns_beyond_their_bounds_are_refused_by_name(turns: list[rag_pb2.Turn], field: str, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem) as refused:
        parse(rag_pb2.AskRequest(question="q", turns=turns))
    assert refused.value.field == field


def test_turns_that_no_server_takes_are_not_sent() -> None:
    with pytest.raises(InvalidRequest) as refused:
        wire.ask_to_message("q", AskOptions(turns=(Turn("q"), Turn("q", "\ud800"))))
    assert refused.value.field == "turns[1]"


def test_a_bare_question_gets_every_documented_default() -> None:
    query = parse(rag_pb2.AskRequest(question="  How often? \n"))
    assert query.question == "How often?"
    assert query.collection == "default"
    assert query.mode is AnswerMode.QUOTE
    assert query.priority is Priority.NORMAL  # the most this caller gets
    assert (query.max_sentences, query.passages) == (None, 4)
    assert (query.sampling.max_tokens, query.sampling.temperature, query.sampling.seed) == (256, 0.0, None)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (rag_pb2.AskRequest(), "question"),
        (rag_pb2.AskRequest(question=" \t\n"), "question"),
        (rag_pb2.AskRequest(question="x" * 101), "question"),
        (rag_pb2.AskRequest(question="a\x00b"), "question"),
        (rag_pb2.AskRequest(question="q", mode=99), "mode"),  # type: ignore[arg-type]
        (rag_pb2.AskRequest(question="q", priority=99), "priority"),  # type: ignore[arg-type]
        (rag_pb2.AskRequest(question="q", max_sentences=0), "max_sentences"),
        (rag_pb2.AskRequest(question="q", max_sentences=9), "max_sentences"),
        (rag_pb2.AskRequest(question="q", passages=0), "passages"),
        (rag_pb2.AskRequest(question="q", passages=33), "passages"),
        (rag_pb2.AskRequest(question="q", sampling=rag_pb2.Sampling(max_tokens=0)), "sampling.max_tokens"),
        (rag_pb2.AskRequest(question="q", sampling=rag_pb2.Sampling(temperature=2.1)), "sampling.temperature"),
        (rag_pb2.AskRequest(question="q", sampling=rag_pb2.Sampling(temperature=math.nan)), "sampling.temperature"),
        (rag_pb2.AskRequest(question="q", sampling=rag_pb2.Sampling(top_p=0)), "sampling.top_p"),
        (rag_pb2.AskRequest(question="q", sampling=rag_pb2.Sampling(top_p=1.5)), "sampling.top_p"),
        (
            rag_pb2.AskRequest(question="q", sampling=rag_pb2.Sampling(repetition_penalty=0.5)),
            "sampling.repetition_penalty",
        ),
        (rag_pb2.AskRequest(question="q", sampling=rag_pb2.Sampling(stop=[""])), "sampling.stop"),
        (rag_pb2.AskRequest(question="q", sampling=rag_pb2.Sampling(stop=["x"] * 9)), "sampling.stop"),
        (rag_pb2.AskRequest(question="q", json_schema="{}"), "json_schema"),
        (rag_pb2.AskRequest(question="q", mode=rag_pb2.ANSWER_MODE_QUOTE, regex="a"), "regex"),
        (rag_pb2.AskRequest(question="q", mode=rag_pb2.ANSWER_MODE_CITE, regex="a"), "regex"),
        (rag_pb2.AskRequest(question="q", mode=rag_pb2.ANSWER_MODE_FREE, regex=""), "regex"),
        (rag_pb2.AskRequest(question="q", mode=rag_pb2.ANSWER_MODE_FREE, json_schema="x" * 65_537), "json_schema"),
        (
            rag_pb2.AskRequest(
                question="q", mode=rag_pb2.ANSWER_MODE_FREE, regex="a", sampling=rag_pb2.Sampling(stop=["b"])
            ),
            "sampling.stop",
        ),
    ],
)
def test_an_unusable_field_is_refused_by_name(request_: rag_pb2.AskRequest, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(request_)
    assert refused.value.field == field


def test_a_format_reaches_the_query_as_it_was_given() -> None:
    free = rag_pb2.ANSWER_MODE_FREE
    assert parse(rag_pb2.AskRequest(question="q", mode=free)).format is None
    assert parse(rag_pb2.AskRequest(question="q", mode=free, json_schema=" {} ")).format == JsonSchema(" {} ")
    assert parse(rag_pb2.AskRequest(question="q", mode=free, regex=" a ")).format == Regex(" a ")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (rag_pb2.SearchRequest(query=""), "query"),
        (rag_pb2.SearchRequest(query="q", limit=0), "limit"),
        (rag_pb2.SearchRequest(query="q", limit=101), "limit"),
    ],
)
def test_an_unusable_search_is_refused_by_name(request_: rag_pb2.SearchRequest, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        wire.parse_search_query(request_, ASKER)
    assert refused.value.field == field


def test_a_request_id_is_printable() -> None:
    assert parse_request_id("ticket-17") == "ticket-17"
    with pytest.raises(InvalidRequest):
        parse_request_id("two words")


@pytest.mark.parametrize("name", ["", "x" * 1025, "a\nb", "a\x7fb"])
def test_a_document_name_that_cannot_be_shown_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_document_name("name", name)


def test_a_page_size_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        wire.parse_page_size(documents_pb2.ListDocumentsRequest(page_size=1001))


@given(st.binary(max_size=200))
def test_any_bytes_that_parse_give_a_legal_query_or_a_named_field(raw: bytes) -> None:
    request = rag_pb2.AskRequest()
    try:
        request.ParseFromString(raw)
    except Exception as error:  # noqa: BLE001 - protobuf's own error class differs by implementation
        assert "arsing" in str(error)
        return
    try:
        query = parse(request)
    except InvalidRequest as refused:
        assert refused.field
    else:
        assert 1 <= len(query.question) <= 100
        assert 0 <= query.sampling.temperature <= 2


@pytest.mark.parametrize("name", ["No", "a b", "../x", "x" * 65])
def test_an_illegal_name_of_a_collection_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="collection"):
        parse_collection(name)
