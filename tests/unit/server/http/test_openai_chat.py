"""Chat completions to and from JSON, without a server."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_rag.core.answer import (
    AnswerEvent,
    Citation,
    Finished,
    FinishReason,
    NearestPassage,
    NearestReason,
    PassagesFound,
    TextDelta,
    Unsupported,
    Usage,
)
from edge_rag.core.generation import CompletionRequest, Conversation
from edge_rag.core.identity import Identity, Role
from edge_rag.core.ids import ChunkId, DocumentId, RequestId
from edge_rag.core.limits.asker import Asker
from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.core.passage import Passage, RankedPassage
from edge_rag.core.query import AnswerMode, JsonSchema, Priority, Query, Turn
from edge_rag.errors import EdgeRagError, InvalidRequest, NotFound, UndecodableMessage
from edge_rag.server.http.fields import parse_json
from edge_rag.server.http.openai.chat import ChatRequest, ChatWriter, parse_chat, question_of

CALLER = Identity("ward-3", frozenset({Role.READER}), priority_ceiling=Priority.NORMAL)
LIMITS = RequestLimits(question_characters=100, default_mode=AnswerMode.QUOTE, default_passages=4)
LEAST: dict[str, Any] = {"model": "edge-rag/manuals", "messages": [{"role": "user", "content": " How often? "}]}


def parse(**fields: Any) -> ChatRequest:
    return parse_chat({**LEAST, **fields}, Asker(RequestId("r"), CALLER, 10.0, LIMITS), "quoter")


def asked(**fields: Any) -> Query:
    query = parse(**fields).query
    assert isinstance(query, Query)
    return query


def conversation(*messages: tuple[str, str]) -> Conversation:
    told = [{"role": role, "content": content} for role, content in messages]
    query = parse(model="quoter", messages=told).query
    assert isinstance(query, CompletionRequest)
    return query.conversation


def refused_field(**fields: Any) -> str:
    with pytest.raises(InvalidRequest) as error:
        parse(**fields)
    return error.value.field


def test_every_supported_field_arrives() -> None:
    request = parse(
        stream=True,
        stream_options={"include_usage": True},
        max_completion_tokens=7,
        temperature=1,
        top_p=0.5,
        top_k=3,
        repetition_penalty=1.5,
        seed=9,
        stop=["END"],
        edge_rag={"mode": "free", "max_sentences": 3, "passages": 2, "priority": "batch"},
    )
    query = request.query
    assert isinstance(query, Query)
    sampling = query.sampling
    assert request.stream
    assert request.include_usage
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (7, 1.0, 0.5, 3)
    assert (sampling.repetition_penalty, sampling.seed, sampling.stop) == (1.5, 9, ("END",))
    assert (query.mode, query.max_sentences, query.passages) == (AnswerMode.FREE, 3, 2)
    assert query.priority is Priority.BATCH
    assert parse(stop="END").query.sampling.stop == ("END",)


def test_the_last_message_is_the_question_whatever_precedes_it() -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Before?"},
        {"role": "assistant", "content": "So."},
        {"role": "user", "content": [{"type": "text", "text": "And"}, {"type": "text", "text": "now?"}]},
    ]
    assert asked(messages=turns).question == "And\nnow?"
    assert question_of(json.dumps({"messages": turns}).encode()) == "And\nnow?"
    assert question_of(b"{") == ""


def earlier(*messages: tuple[str, Any]) -> tuple[Turn, ...]:
    told = [{"role": role, "content": content} for role, content in messages]
    return asked(messages=[*told, {"role": "user", "content": "And now?"}]).turns


def test_earlier_messages_are_the_turns_of_the_question() -> None:
    assert earlier() == ()
    assert earlier(
        ("system", "Be brief."), ("user", "A?"), ("assistant", "B."), ("user", "C?"), ("assistant", "D.")
    ) == (
        Turn("A?", "B."),
        Turn("C?", "D."),
    )
    assert earlier(("assistant", "Welcome."), ("user", "A"), ("user", "b?"), ("assistant", "C.")) == (
        Turn("A\n\nb?", "C."),
    )
    assert earlier(("user", [{"type": "text", "text": "A?"}]), ("assistant", None)) == (Turn("A?"),)


def test_what_cannot_be_a_turn_is_passed_over() -> None:
    picture = [{"type": "image_url", "image_url": {"url": "data:"}}]
    assert earlier(("user", picture), ("assistant", "Nice."), ("user", "A?"), ("assistant", "B.")) == (
        Turn("A?", "B."),
    )
    too_long = ("user", "x" * 101), ("assistant", "Long.")
    assert earlier(*too_long, ("user", "\x00"), ("assistant", "B."), ("user", "A?"), ("assistant", "\x00")) == (
        Turn("A?"),
    )


def test_the_newest_turns_within_the_bounds_are_read() -> None:
    long = [(role, text) for number in range(20) for role, text in (("user", f"q{number}"), ("assistant", "a"))]
    assert [turn.question for turn in earlier(*long)] == [f"q{number}" for number in range(12, 20)]
    large = [
        (role, text) for number in range(3) for role, text in (("user", f"q{number}"), ("assistant", "a" * 60_000))
    ]
    assert [turn.question for turn in earlier(*large)] == ["q1", "q2"]


def test_the_language_model_reads_the_whole_conversation() -> None:
    assert conversation(("system", "Brief."), ("developer", "Kind."), ("user", "A?")) == Conversation(
        "Brief.\n\nKind.", ("A?",)
    )
    messages = (("user", "A"), ("user", "B"), ("assistant", "C"), ("assistant", "D"), ("user", "E"))
    assert conversation(*messages) == Conversation("", ("A\n\nB", "C\n\nD", "E"))


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ((("assistant", "C"), ("user", "A")), "messages[0].role"),
        ((("user", "A"), ("system", "S"), ("user", "A")), "messages[1].role"),
        ((("user", "A"), ("assistant", "C")), "messages[1].role"),
        ((("user", "x" * 262_145),), "messages"),
    ],
)
def test_what_is_no_conversation_is_refused_by_its_message(messages: tuple[tuple[str, str], ...], field: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        conversation(*messages)
    assert error.value.field == field


def test_the_language_model_takes_what_concerns_no_documents() -> None:
    query = parse(model="quoter", stop="x", seed=1, edge_rag={"priority": "batch"}).query
    assert isinstance(query, CompletionRequest)
    assert (query.sampling.stop, query.sampling.seed, query.priority) == (("x",), 1, Priority.BATCH)
    assert refused_field(model="quoter", edge_rag={"mode": "cite"}) == "edge_rag.mode"
    schema = {"type": "json_object"}
    assert refused_field(model="quoter", response_format=schema, stop="x") == "stop"


def test_a_schema_makes_the_answer_free() -> None:
    schema = {"type": "object", "properties": {"hours": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}}
    query = asked(response_format=wanted)
    assert query.mode is AnswerMode.FREE
    assert isinstance(query.format, JsonSchema)
    assert json.loads(query.format.schema) == schema
    assert asked(response_format={"type": "text"}).mode is AnswerMode.QUOTE
    assert refused_field(response_format=wanted, edge_rag={"mode": "quote"}) == "response_format"
    assert refused_field(response_format=wanted, stop="x") == "stop"
    assert refused_field(response_format={"type": "xml"}) == "response_format.type"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"n": 2}, "n"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"logprobs": True}, "logprobs"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"audio": {}}, "audio"),
        ({"model": None}, "model"),
        ({"model": "edge-rag/No"}, "model"),
        ({"model": 1}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "assistant", "content": "So."}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": "  "}]}, "messages"),
        ({"messages": [{"role": "user", "content": "x" * 101}]}, "messages"),
        ({"stream": 1}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens"),
        ({"max_tokens": 8193}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": "warm"}, "temperature"),
        ({"stop": [1]}, "stop"),
        ({"edge_rag": {"mode": "loud"}}, "edge_rag.mode"),
        ({"edge_rag": {"colour": 1}}, "edge_rag.colour"),
    ],
)
def test_what_cannot_be_done_is_refused_by_its_field(fields: dict[str, Any], field: str) -> None:
    assert refused_field(**fields) == field


def test_values_that_ask_for_nothing_are_taken() -> None:
    nothing = {"n": 1, "tools": [], "logprobs": False, "presence_penalty": 0.0, "frequency_penalty": 0, "store": None}
    assert parse(**nothing, user="ward", metadata={"a": "b"}).query == parse().query


def test_a_model_that_is_no_collection_does_not_exist() -> None:
    with pytest.raises(NotFound):
        parse(model="gpt-4o")


@pytest.mark.parametrize("data", [b"", b"[1]", b'{"a":NaN}', b'"\\ud800"', b'{"a":"\\ud800"}', b"[" * 100_000, b"\xff"])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(UndecodableMessage):
        parse_json(data)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "messages",
    "stop",
    "response_format",
    "edge_rag",
    "stream_options",
    "seed",
    "temperature",
    "top_p",
    "n",
    "tools",
)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, max_size=4))
def test_any_value_of_any_field_is_a_legal_request_or_a_named_error(fields: dict[str, Any]) -> None:
    try:
        assert 1 <= parse(**fields).query.sampling.max_tokens <= 8192
    except EdgeRagError as error:
        assert str(error)


PASSAGE = Passage(ChunkId(1), DocumentId("doc/1"), "pump.pdf", 3, 100, 140, "Grease the bearings every 500 hours.")
EVENTS: tuple[AnswerEvent, ...] = (
    PassagesFound((RankedPassage(PASSAGE, 1.0, ()),), 0.75, AnswerMode.CITE, model="smollm2"),
    TextDelta("Grease "),
    TextDelta("the bearings."),
    Citation(0, "pump.pdf", 3, 100, 112, "Grease the b", 0, 20, "en"),
    Unsupported(7, 20),
    Finished(FinishReason.LENGTH, Usage(11, 4, 5), (), 0.1),
)


def written(events: tuple[AnswerEvent, ...] = EVENTS, **fields: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    streaming, whole = (ChatWriter(parse(**fields), 1_700_000_000, "http://box:7480") for _ in range(2))
    chunks = [chunk for event in events for chunk in streaming.events(event)]
    for event in events:
        list(whole.events(event))
    return chunks, whole.whole()


def test_a_completion_has_text_citation_usage_and_what_is_unsupported() -> None:
    _, done = written()
    assert done["choices"][0]["message"]["content"] == "Grease the bearings."
    assert done["choices"][0]["finish_reason"] == "length"
    cited = done["choices"][0]["message"]["annotations"][0]["url_citation"]
    assert cited["url"] == "http://box:7480/documents/doc%2F1?collection=manuals&start=100&end=112&page=3"
    assert (cited["title"], cited["start_index"], cited["end_index"]) == ("pump.pdf, page 3", 0, 20)
    assert cited["edge_rag"]["text"] == "Grease the b"
    assert done["usage"]["total_tokens"] == 16
    assert done["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    unsupported = {"start_index": 7, "end_index": 20, "reason": "no_source"}
    expected = {"evidence": 0.75, "found": True, "unsupported": [unsupported]}
    assert done["edge_rag"] == {**expected, "mode": "cite", "model": "smollm2"}


def test_what_nothing_checked_has_no_source_and_tells_what_the_model_was_given() -> None:
    found = PassagesFound((RankedPassage(PASSAGE, 1.0, ()),), 0.75, AnswerMode.FREE)
    chunks, done = written((found, *EVENTS[1:3], EVENTS[-1]), stream=True, edge_rag={"sources": True})
    assert done["choices"][0]["message"]["annotations"] == []
    assert not any("event" in chunk or "annotations" in chunk["choices"][0]["delta"] for chunk in chunks)
    assert done["edge_rag"]["mode"] == "free"
    (given,) = done["edge_rag"]["given_to_model"]
    assert (given["document"], given["start"], given["end"]) == ("pump.pdf", 100, 140)
    assert given["url"] == "http://box:7480/documents/doc%2F1?collection=manuals&start=100&end=140&page=3"


def test_what_was_not_found_tells_the_nearest_passages_as_data_only() -> None:
    lacking = ("bearings", "grease")
    near = NearestPassage(0, "pump.pdf", 3, 100, 112, "Grease the b", 0.1, NearestReason.LACKS_WORDS, lacking, 0.5, 0.7)
    end = Finished(FinishReason.NOT_FOUND, Usage(), (), 0.1, (near,))
    chunks, done = written((EVENTS[0], TextDelta("Not found."), end), stream=True, edge_rag={"sources": True})
    assert done["choices"][0]["message"]["annotations"] == []
    assert not any("event" in chunk for chunk in chunks)
    (told,) = done["edge_rag"]["nearest"]
    assert (told["document_id"], told["reason"], told["lacks"]) == ("doc/1", "lacks_words", list(lacking))
    assert told["url"] == "http://box:7480/documents/doc%2F1?collection=manuals&start=100&end=112&page=3"


def test_a_continued_conversation_has_neither_citations_nor_evidence() -> None:
    chunks, done = written((TextDelta("So."), EVENTS[-1]), model="quoter", stream=True)
    assert "edge_rag" not in done
    assert done["choices"][0]["message"]["annotations"] == []
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "So."}, {}]


def test_chunks_add_up_to_the_completion() -> None:
    chunks, done = written(stream=True)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == done["choices"][0]["message"]["content"]
    annotated = [delta["annotations"] for delta in deltas if "annotations" in delta]
    assert annotated == [done["choices"][0]["message"]["annotations"]]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert not any("usage" in chunk for chunk in chunks)


def test_open_webui_gets_the_quotes_of_each_document_if_it_wants_them() -> None:
    again = Citation(0, "pump.pdf", None, 120, 125, "every", 0, 20)
    events = (*EVENTS[:4], again, *EVENTS[4:])
    chunks, _ = written(events, stream=True, edge_rag={"sources": True})
    (card,) = [chunk["event"]["data"] for chunk in chunks if "event" in chunk]
    assert card["document"] == ["Grease the b", "every"]
    url = "http://box:7480/documents/doc%2F1?collection=manuals&start=100&end=112&page=3"
    assert card["source"] == {"id": "doc/1", "name": "pump.pdf", "url": url}
    assert card["metadata"][0] == {"source": "doc/1", "name": "pump.pdf", "source_url": url, "page": 2}
    assert "page" not in card["metadata"][1]
    assert not any("event" in chunk for chunk in written(events, stream=True)[0])
    assert refused_field(edge_rag={"sources": 1}) == "edge_rag.sources"


def test_usage_comes_last_and_only_if_asked_for() -> None:
    chunks, done = written(stream=True, stream_options={"include_usage": True})
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert (chunks[-1]["choices"], chunks[-1]["usage"]) == ([], done["usage"])
