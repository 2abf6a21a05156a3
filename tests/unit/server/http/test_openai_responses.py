"""Responses to and from JSON, without a server."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from edge_rag.core.answer import (
    AnswerEvent,
    Citation,
    Finished,
    FinishReason,
    PassagesFound,
    TextDelta,
    Usage,
)
from edge_rag.core.documents.filters import Comparator, Comparison, MetadataField
from edge_rag.core.generation import CompletionRequest, Conversation
from edge_rag.core.identity import Identity, Role
from edge_rag.core.ids import ChunkId, DocumentId, RequestId
from edge_rag.core.limits.asker import Asker
from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.core.passage import Passage, RankedPassage
from edge_rag.core.query import AnswerMode, JsonSchema, Query
from edge_rag.errors import EdgeRagError, InvalidRequest, NotFound
from edge_rag.server.http.openai.responses import (
    ResponseRequest,
    ResponseWriter,
    parse_response,
    response_question_of,
)

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
CALLER = Identity("ward-3", frozenset({Role.READER}))
LIMITS = RequestLimits(question_characters=100, default_mode=AnswerMode.QUOTE, default_passages=4)
LEAST: dict[str, Any] = {"model": "edge-rag/manuals", "input": " How often? "}
OLD = {"type": "lt", "key": "year", "value": 2000}
SEARCH = {"type": "file_search", "vector_store_ids": ["manuals"]}


def parse(**fields: Any) -> ResponseRequest:
    return parse_response({**LEAST, **fields}, Asker(RequestId("r"), CALLER, 10.0, LIMITS), "quoter")


def asked(**fields: Any) -> Query:
    query = parse(**fields).query
    assert isinstance(query, Query)
    return query


def test_every_supported_field_arrives() -> None:
    request = parse(
        stream=True,
        max_output_tokens=7,
        temperature=1,
        top_p=0.5,
        include=["file_search_call.results"],
        tools=[{**SEARCH, "max_num_results": 3, "ranking_options": {"ranker": "auto", "score_threshold": 0.0}}],
        edge_rag={"mode": "cite", "priority": "batch"},
        store=True,
    )
    query = request.query
    assert isinstance(query, Query)
    assert (request.stream, request.results) == (True, True)
    assert (query.sampling.max_tokens, query.sampling.temperature, query.sampling.top_p) == (7, 1.0, 0.5)
    assert (query.passages, query.mode) == (3, AnswerMode.CITE)
    assert asked(tools=[{**SEARCH, "max_num_results": 50}]).passages == 32
    old = Comparison(MetadataField("year"), Comparator.LESS, 2000.0)
    assert asked(tools=[{**SEARCH, "filters": OLD}]).filter == asked(edge_rag={"filter": OLD}).filter == old


def test_the_last_item_is_the_question_whatever_precedes_it() -> None:
    items = [
        {"type": "message", "role": "system", "content": "Be brief."},
        {"role": "user", "content": "Before?"},
        {"type": "file_search_call", "id": "fs_1", "queries": ["Before?"], "status": "completed", "results": None},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
        {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
    ]
    assert asked(input=items).question == "And now?"
    assert response_question_of(json.dumps({"input": items}).encode()) == "And now?"
    assert response_question_of(b"{") == ""


def test_a_schema_makes_the_answer_free() -> None:
    schema = {"type": "object"}
    query = asked(text={"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}})
    assert query.mode is AnswerMode.FREE
    assert isinstance(query.format, JsonSchema)
    assert json.loads(query.format.schema) == schema


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"background": True}, "background"),
    ({"truncation": "auto"}, "truncation"),
    ({"tool_choice": "none"}, "tool_choice"),
    ({"include": ["message.output_text.logprobs"]}, "include[0]"),
    ({"include": [1]}, "include[0]"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "name": "f"}]}, "tools[0].type"),
    ({"tools": [SEARCH, SEARCH]}, "tools[1]"),
    ({"tools": [{**SEARCH, "vector_store_ids": ["others"]}]}, "tools[0].vector_store_ids"),
    ({"tools": [{**SEARCH, "max_num_results": 51}]}, "tools[0].max_num_results"),
    ({"tools": [{**SEARCH, "ranking_options": {"score_threshold": 0.5}}]}, "tools[0].ranking_options.score_threshold"),
    ({"tools": [{**SEARCH, "colour": 1}]}, "tools[0].colour"),
    ({"tools": [{**SEARCH, "filters": {"type": "eq", "key": "k"}}]}, "tools[0].filters.value"),
    ({"tools": [{**SEARCH, "filters": OLD}], "edge_rag": {"filter": OLD}}, "edge_rag.filter"),
    ({"model": None}, "model"),
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": [1]}, "input[0].type"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
    ({"input": [{"role": "assistant", "content": "So."}]}, "input[0].role"),
    ({"text": {"verbosity": "high"}}, "text.verbosity"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
    ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
    ({"max_output_tokens": 8193}, "max_output_tokens"),
    ({"seed": 1}, "seed"),
    ({"reasoning": {"colour": 1}}, "reasoning.colour"),
]


@pytest.mark.parametrize(("fields", "field"), REFUSED)
def test_what_cannot_be_done_is_refused_by_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        parse(**fields)
    assert error.value.field == field


def test_a_model_that_is_no_collection_does_not_exist() -> None:
    with pytest.raises(NotFound):
        parse(model="gpt-4o")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("input", "tools", "text", "include", "reasoning", "metadata", "store", "max_tool_calls", "edge_rag", "top_p")


@given(st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, max_size=4))
def test_any_value_of_any_field_is_a_legal_request_or_a_named_error(fields: dict[str, Any]) -> None:
    try:
        assert 1 <= asked(**fields).passages <= 32
    except EdgeRagError as error:
        assert str(error)


PASSAGE = Passage(
    ChunkId(1),
    DocumentId("doc/1"),
    "pump.pdf",
    3,
    100,
    140,
    "Grease the bearings every 500 hours.",
    metadata={"tags": ("a", "b"), "year": 2020.0},
)


def events(reason: FinishReason = FinishReason.STOP) -> tuple[AnswerEvent, ...]:
    return (
        PassagesFound((RankedPassage(PASSAGE, 1.0, ()),), 0.75, AnswerMode.QUOTE),
        TextDelta("Grease "),
        TextDelta("the bearings."),
        Citation(0, "pump.pdf", 3, 100, 112, "Grease the b", 0, 20, "en"),
        Finished(reason, Usage(11, 4, 5), (), 0.1),
    )


def written(reason: FinishReason = FinishReason.STOP, **fields: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    writer = ResponseWriter(parse(**fields), 1_700_000_000, "http://box:7480")
    return [each for event in events(reason) for each in writer.events(event)], writer.whole()


def valid(response: dict[str, Any]) -> dict[str, Any]:
    """Returns a response that the client's types accept, with the fields that Open Responses wants in each."""
    Response.model_validate(response, strict=True)
    not_null = (
        "background created_at frequency_penalty metadata parallel_tool_calls presence_penalty service_tier store"
    )
    not_null += " temperature text tool_choice tools top_logprobs top_p truncation usage"
    assert [name for name in not_null.split() if response.get(name) is None] == []
    nullable = "error incomplete_details instructions max_output_tokens max_tool_calls previous_response_id reasoning"
    assert [name for name in f"{nullable} prompt_cache_key safety_identifier".split() if name not in response] == []
    return response


def test_a_response_has_the_search_then_the_message_with_both_kinds_of_citation() -> None:
    done = valid(written()[1])
    search, message = done["output"]
    assert (search["type"], search["queries"], search["results"]) == ("file_search_call", ["How often?"], None)
    text, cited = message["content"][0]["text"], message["content"][0]["annotations"]
    assert (text, message["status"]) == ("Grease the bearings.", "completed")
    assert [each["type"] for each in cited] == ["url_citation", "file_citation"]
    assert cited[0]["url"] == "http://box:7480/documents/doc%2F1?collection=manuals&start=100&end=112&page=3"
    assert (cited[0]["start_index"], cited[0]["end_index"]) == (0, 20)
    assert cited[1] == {"type": "file_citation", "file_id": "doc/1", "filename": "pump.pdf", "index": 20}
    assert done["usage"]["input_tokens_details"]["cached_tokens"] == 4
    assert (done["status"], done["incomplete_details"], done["error"]) == ("completed", None, None)


def test_the_passages_come_only_if_they_are_asked_for() -> None:
    _, done = written(include=["file_search_call.results"])
    (result,) = done["output"][0]["results"]
    assert (result["file_id"], result["text"]) == ("doc/1", PASSAGE.text)
    assert 0 <= result["score"] <= 1
    assert result["attributes"] == {"tags": "a, b", "year": 2020}


def test_the_language_model_writes_only_a_message() -> None:
    items = [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}, {"role": "user", "content": "C"}]
    request = parse(model="quoter", input=items, instructions="Brief.")
    assert isinstance(request.query, CompletionRequest)
    assert request.query.conversation == Conversation("Brief.", ("A", "B", "C"))
    writer = ResponseWriter(request, 1_700_000_000, "http://box:7480")
    sent = [each for event in (TextDelta("So."), events()[-1]) for each in writer.events(event)]
    assert [item["type"] for item in writer.whole()["output"]] == ["message"]
    assert {each["output_index"] for each in sent if "output_index" in each} == {0}
    assert not any("file_search" in each["type"] for each in sent)
    with pytest.raises(InvalidRequest, match="tools"):
        parse(model="quoter", tools=[SEARCH])


def test_nothing_is_kept_whatever_is_asked_for() -> None:
    for store in (True, False, None):
        assert written(store=store)[1]["store"] is False


def test_events_come_in_the_order_that_clients_read() -> None:
    sent, done = written(stream=True)
    for each in sent:
        EVENT.validate_python(each)
    kinds = [each["type"].removeprefix("response.") for each in sent]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "file_search_call.in_progress",
        "file_search_call.searching",
        "file_search_call.completed",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.annotation.added",
        "output_text.annotation.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [each["sequence_number"] for each in sent] == list(range(len(sent)))
    assert [each["annotation_index"] for each in sent if "annotation_index" in each] == [0, 1]
    assert "".join(each["delta"] for each in sent if "delta" in each) == done["output"][1]["content"][0]["text"]
    last = sent[-1]["response"]
    assert {**last, "completed_at": None} == {**done, "completed_at": None}


def test_an_answer_that_ran_out_of_tokens_is_incomplete() -> None:
    sent, done = written(FinishReason.LENGTH)
    assert (done["status"], done["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert sent[-1]["type"] == "response.incomplete"
    assert done["output"][1]["status"] == "incomplete"


def test_a_failure_is_the_last_event_and_has_what_was_written() -> None:
    writer = ResponseWriter(parse(), 1_700_000_000, "http://box:7480")
    sent = [each for event in events()[:2] for each in writer.events(event)]
    named, done, _ = writer.failed({"message": "no", "type": "server_error"}).split(b"\n\n")
    failed = json.loads(named.partition(b"data: ")[2])
    assert done == b"data: [DONE]"
    assert failed["sequence_number"] == len(sent)
    assert failed["response"]["error"] == {"code": "server_error", "message": "no"}
    assert failed["response"]["output"][1]["content"][0]["text"] == "Grease "
