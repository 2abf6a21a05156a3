import json
import re

import grpc
import jsonschema
import pytest

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from tests.e2e.support.running_daemon import RunningDaemon

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
