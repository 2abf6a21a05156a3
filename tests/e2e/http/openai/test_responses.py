"""The Responses API by the official client: whole and streamed, from both kinds of client, valid in every field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

MODEL = "edge-rag/default"
QUESTION = "How often must the pump bearings be greased?"
RESULTS = "file_search_call.results"

NOT_NULL = (
    "background",
    "created_at",
    "completed_at",
    "frequency_penalty",
    "metadata",
    "parallel_tool_calls",
    "presence_penalty",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "usage",
)
"""Fields of a completed response that Open Responses wants to have a value."""

NULLABLE = (
    "error",
    "incomplete_details",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
)
"""Fields that it wants to be there, with or without a value."""

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def check(response: Any) -> dict[str, Any]:
    found: dict[str, Any] = response.model_dump(exclude_unset=True, by_alias=True)
    Response.model_validate(found, strict=True)
    assert [name for name in NOT_NULL if found.get(name) is None] == []
    assert [name for name in NULLABLE if name not in found] == []
    return found


def checked_events(events: list[Any]) -> Any:
    """Returns the response at the end of a stream; the client's types accept all of its events."""
    for event in events:
        EVENT.validate_python(event.model_dump(exclude_unset=True, by_alias=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events[-1].response


def without_times(response: dict[str, Any]) -> dict[str, Any]:
    """Returns a response without what differs between two calls."""
    left = {name: value for name, value in response.items() if name not in ("id", "created_at", "completed_at")}
    return {**left, "output": [{**item, "id": ""} for item in left["output"]]}


@pytest.mark.smoke
def test_an_answer_has_its_search_its_text_and_both_kinds_of_citation(client: Any) -> None:
    chat = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": QUESTION}])
    response = client.responses.create(model=MODEL, input=QUESTION, include=[RESULTS])
    check(response)
    assert response.output_text == chat.choices[0].message.content
    search, message = response.output
    assert (search.type, search.queries) == ("file_search_call", [QUESTION])
    assert all(0 <= result.score <= 1 and result.text for result in search.results)
    cited = {each.type: each for each in message.content[0].annotations}
    url, expected = cited["url_citation"], chat.choices[0].message.annotations[-1].url_citation
    assert (url.url, url.title, url.start_index, url.end_index) == (
        expected.url,
        expected.title,
        expected.start_index,
        expected.end_index,
    )
    file = cited["file_citation"]
    assert file.file_id in {result.file_id for result in search.results}
    assert file.index == url.end_index
    assert response.store is False


@pytest.mark.smoke
def test_a_stream_is_the_whole_response_in_parts(client: Any) -> None:
    whole = check(client.responses.create(model=MODEL, input=QUESTION))
    events = list(client.responses.create(model=MODEL, input=QUESTION, stream=True))
    done = checked_events(events)
    assert without_times(check(done)) == without_times(whole)
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == done.output_text
    added = [event for event in events if event.type == "response.output_text.annotation.added"]
    assert len(added) == len(done.output[1].content[0].annotations) > 0


def test_a_schema_is_kept_and_too_few_tokens_make_it_incomplete(client: Any) -> None:
    hours = {"enum": [500, 2000]}
    schema = {"type": "object", "properties": {"hours": hours}, "required": ["hours"], "additionalProperties": False}
    form = {"format": {"type": "json_schema", "name": "hours", "schema": schema, "strict": True}}
    response = client.responses.create(model=MODEL, input=QUESTION, text=form)
    assert response.status == "completed"
    assert json.loads(response.output_text)["hours"] in (500, 2000)
    assert check(response)["text"]["format"]["schema"] == schema
    cut = client.responses.create(model=MODEL, input=QUESTION, text=form, max_output_tokens=1)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    *_, last = client.responses.create(model=MODEL, input=QUESTION, text=form, max_output_tokens=1, stream=True)
    assert last.type == "response.incomplete"
