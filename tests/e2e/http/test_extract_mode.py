"""Extracted values by gRPC, the command line, the JSON API and OpenAI's client."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edge_rag.cli.main import main
from edge_rag.client import (
    AnswerMode,
    AskOptions,
    CallStatus,
    Citation,
    Client,
    ClientError,
    Finished,
    FinishReason,
    PassagesReceived,
    TextDelta,
)
from tests.e2e.support.running_daemon import RunningDaemon

QUESTION = "How often must the pump bearings be greased?"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "interval": {"type": "string"},
        "hours": {"type": "integer", "description": "operating hours"},
        "colour": {"type": ["string", "null"]},
    },
    "required": ["interval", "hours", "colour"],
}
FILLED = {"interval": "every 2,000 operating hours", "hours": 2000, "colour": None}


def ask(daemon: RunningDaemon, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["ask", "--mode", "extract", "--server", daemon.address, *arguments])


@pytest.mark.smoke
def test_fields_are_filled_and_cited_by_their_pointers(http_daemon: RunningDaemon) -> None:
    options = AskOptions(mode=AnswerMode.EXTRACT, json_schema=json.dumps(SCHEMA))
    with Client(http_daemon.address) as client:
        events = list(client.ask(QUESTION, options))
        cited = [event for event in events if isinstance(event, Citation)]
        stored = {each.document: client.document(each.document).text for each in cited}
    found, finished = events[0], events[-1]
    assert isinstance(found, PassagesReceived)
    assert (found.mode, found.model) == (AnswerMode.EXTRACT, None)
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.usage.generated_tokens) == (FinishReason.STOP, 0)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert json.loads(text) == FILLED
    assert [(each.field, json.loads(text[each.answer_start : each.answer_end])) for each in cited] == [
        ("/interval", "every 2,000 operating hours"),
        ("/hours", 2000),
    ]
    for each in cited:
        assert stored[each.document][each.start : each.end] == each.text
        assert "every 2,000 operating hours" in each.text


def test_what_no_document_holds_is_not_found_or_named(http_daemon: RunningDaemon) -> None:
    required = SCHEMA | {
        "properties": SCHEMA["properties"] | {"colour": {"type": "string", "pattern": "^#[0-9a-f]{6}$"}}
    }
    options = AskOptions(mode=AnswerMode.EXTRACT, json_schema=json.dumps(required))
    with Client(http_daemon.address) as client:
        with pytest.raises(ClientError, match=r"no value for /colour") as failed:
            list(client.ask(QUESTION, options))
        assert failed.value.status is CallStatus.NOT_FOUND
        *events, finished = client.ask("Who won the chess championship of Kansas in 1931?", options)
    assert isinstance(finished, Finished)
    assert finished.reason is FinishReason.NOT_FOUND
    assert not any(isinstance(event, TextDelta | Citation) for event in events)


def test_the_command_line_takes_a_schema_as_a_file_or_as_it_is(http_daemon: RunningDaemon, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    for schema in (str(file), json.dumps(SCHEMA)):
        shown = ask(http_daemon, "--schema", schema, QUESTION)
        first, *others = shown.stdout.splitlines()
        assert json.loads(first) == FILLED
        assert others[-1].endswith(": /interval, /hours")
    whole = json.loads(ask(http_daemon, "--schema", str(file), "--json", QUESTION).stdout)
    assert (whole["mode"], json.loads(whole["answer"])) == ("extract", FILLED)
    assert [each["field"] for each in whole["citations"]] == ["/interval", "/hours"]


def test_chat_completions_fill_their_response_format(client: Any) -> None:
    answer = client.chat.completions.create(
        model="edge-rag/default",
        messages=[{"role": "user", "content": QUESTION}],
        response_format={"type": "json_schema", "json_schema": {"name": "greasing", "schema": SCHEMA}},
        extra_body={"edge_rag": {"mode": "extract"}},
    )
    message = answer.choices[0].message
    assert json.loads(message.content) == FILLED
    cited: Sequence[Any] = message.annotations
    assert [each.url_citation.edge_rag["field"] for each in cited] == ["/interval", "/hours"]
