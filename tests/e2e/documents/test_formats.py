from __future__ import annotations

import json
import re

import grpc
import jsonschema
import pytest

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from edge_rag.client import AskOptions, CallStatus, Client, ClientError
from edge_rag.core.answer import Finished, FinishReason, TextDelta
from tests.e2e.support.running_daemon import RunningDaemon, status_of

QUESTION = "How often must the pump bearings be greased?"
FREE = rag_pb2.ANSWER_MODE_FREE
SCHEMA = {
    "type": "object",
    "properties": {
        "greasing_interval_in_operating_hours": {"type": "integer", "minimum": 1, "maximum": 99999},
        "lubricant": {"enum": ["lithium grease", "mineral oil"]},
        "remark": {"type": "string", "maxLength": 20},
    },
    "required": ["greasing_interval_in_operating_hours", "lubricant", "remark"],
    "additionalProperties": False,
}


def ask(daemon: RunningDaemon, request: rag_pb2.AskRequest) -> list[rag_pb2.AskResponse]:
    with grpc.insecure_channel(daemon.address) as channel:
        return list(rag_pb2_grpc.RagStub(channel).Ask(request, timeout=60))


def text_of(events: list[rag_pb2.AskResponse]) -> str:
    return "".join(event.text.text for event in events)


@pytest.mark.smoke
def test_an_answer_under_a_schema_validates_and_its_keys_are_forced(daemon: RunningDaemon) -> None:
    events = ask(daemon, rag_pb2.AskRequest(question=QUESTION, mode=FREE, json_schema=json.dumps(SCHEMA)))
    jsonschema.validate(json.loads(text_of(events)), SCHEMA)
    finished = events[-1].finished
    assert finished.reason == rag_pb2.FINISH_REASON_STOP
    assert finished.usage.forced_tokens > finished.usage.model_steps
    assert {event.WhichOneof("event") for event in events} == {"passages", "text", "finished"}


@pytest.mark.smoke
def test_an_answer_under_a_regular_expression_matches_it(daemon: RunningDaemon) -> None:
    pattern = r"every [1-9][0-9]{0,4} (hours|days)"
    assert re.fullmatch(pattern, text_of(ask(daemon, rag_pb2.AskRequest(question=QUESTION, mode=FREE, regex=pattern))))


def test_a_cut_answer_is_an_error_unless_it_is_allowed(daemon: RunningDaemon) -> None:
    request = rag_pb2.AskRequest(
        question=QUESTION, mode=FREE, json_schema=json.dumps(SCHEMA), sampling=rag_pb2.Sampling(max_tokens=12)
    )
    with pytest.raises(grpc.RpcError) as refused:
        ask(daemon, request)
    code, details = status_of(refused.value)
    assert code is grpc.StatusCode.OUT_OF_RANGE
    assert details.startswith("the answer was cut after 12 tokens")
    assert "--max-tokens" in details
    request.allow_truncated = True
    events = ask(daemon, request)
    assert events[-1].finished.reason == rag_pb2.FINISH_REASON_LENGTH
    assert events[-1].finished.usage.generated_tokens == 12


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (rag_pb2.AskRequest(mode=FREE, json_schema="{"), "json_schema: is not JSON"),
        (rag_pb2.AskRequest(mode=FREE, json_schema='{"type": "colour"}'), "json_schema: .*colour"),
        (rag_pb2.AskRequest(mode=FREE, json_schema='{"not": {}}'), "json_schema: .*not"),
        (rag_pb2.AskRequest(mode=FREE, json_schema=""), "json_schema: must be 1 to 65,536"),
        (rag_pb2.AskRequest(mode=FREE, json_schema="[" * 65_000), "json_schema: "),
        (rag_pb2.AskRequest(mode=FREE, regex="(a"), "regex: unclosed group"),
        (rag_pb2.AskRequest(mode=FREE, regex="x" * 65_537), "regex: must be 1 to 65,536"),
        (rag_pb2.AskRequest(mode=FREE, regex="(" * 5_000 + "a" + ")" * 5_000), "regex: "),
        (rag_pb2.AskRequest(mode=rag_pb2.ANSWER_MODE_QUOTE, regex="a"), "regex: needs mode free"),
        (rag_pb2.AskRequest(mode=rag_pb2.ANSWER_MODE_CITE, json_schema="{}"), "json_schema: needs mode free"),
        (rag_pb2.AskRequest(json_schema="{}"), "json_schema: needs mode free"),
        (rag_pb2.AskRequest(mode=FREE, regex="a", sampling=rag_pb2.Sampling(stop=["b"])), "sampling.stop: "),
    ],
)
def test_an_unusable_format_is_refused_by_name_and_the_daemon_goes_on(
    daemon: RunningDaemon, request_: rag_pb2.AskRequest, names: str
) -> None:
    request_.question = QUESTION
    with pytest.raises(grpc.RpcError) as refused:
        ask(daemon, request_)
    code, details = status_of(refused.value)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert re.match(names, details), details
    assert "2,000" in text_of(ask(daemon, rag_pb2.AskRequest(question=QUESTION)))


def test_the_client_asks_for_a_format(daemon: RunningDaemon) -> None:
    with Client(daemon.address) as client:
        events = list(client.ask(QUESTION, AskOptions(json_schema=json.dumps(SCHEMA))))
        jsonschema.validate(json.loads("".join(e.text for e in events if isinstance(e, TextDelta))), SCHEMA)
        last = events[-1]
        assert isinstance(last, Finished)
        assert last.reason is FinishReason.STOP
        with pytest.raises(ClientError, match="regex: unclosed group") as refused:
            list(client.ask(QUESTION, AskOptions(regex="(")))
        assert refused.value.status is CallStatus.INVALID_ARGUMENT
