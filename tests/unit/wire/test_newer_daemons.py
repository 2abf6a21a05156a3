"""A client reads the messages of newer daemons, except for values that it does not know."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from edge_rag.api.v1 import access_pb2, admin_pb2, collections_pb2, common_pb2, documents_pb2, metadata_pb2, rag_pb2
from edge_rag.core.answer import Finished
from edge_rag.core.documents.collection import ValueBoost
from edge_rag.core.ids import Unrecognized
from edge_rag.core.placement import OffloadRule
from edge_rag.core.query import KvReuse
from edge_rag.wire import admin, answers, collections, jobs, status
from edge_rag.wire.metadata import metadata_from_message

LATER: Final = 4000
"""A number that no enumeration of this version has."""

READERS: Final[dict[type[Message], Callable[[Any], object]]] = {
    access_pb2.WhoAmIResponse: admin.identity_from_message,
    admin_pb2.AuditEvent: admin.audit_entry_from_message,
    admin_pb2.GetStatusResponse: status.status_from_message,
    admin_pb2.GetUsageResponse: admin.usage_from_message,
    admin_pb2.Model: status.model_from_message,
    admin_pb2.VectorIndex: status.index_from_message,
    collections_pb2.Collection: collections.collection_from_message,
    documents_pb2.Document: answers.document_from_message,
    documents_pb2.GetDocumentResponse: answers.stored_document_from_message,
    documents_pb2.IngestResponse.Outcome: answers.outcome_from_message,
    documents_pb2.Job: jobs.job_from_message,
    documents_pb2.StartIngestResponse: jobs.ingest_event_from_message,
    documents_pb2.WatchJobResponse: jobs.progress_from_message,
    rag_pb2.AskResponse: answers.event_from_message,
    rag_pb2.SearchResponse: answers.search_reply_from_message,
}


def filled(kind: Any, enumerator: int, choice: int = 0) -> Message:
    """A message with everything in it: one of each repeated field, every enumeration at a number."""
    message = GetMessageClass(kind)()
    left_out = {
        field.name
        for oneof in kind.oneofs
        for number, field in enumerate(oneof.fields)
        if number != min(choice, len(oneof.fields) - 1)
    }
    for field in kind.fields:
        if field.name in left_out:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            entries = getattr(message, field.name)
            if value.message_type is None:
                entries["key"] = plain(value, enumerator)
            else:
                entries["key"].CopyFrom(filled(value.message_type, enumerator, choice))
        elif field.message_type is not None:
            inner = filled(field.message_type, enumerator, choice)
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            else:
                getattr(message, field.name).CopyFrom(inner)
        elif field.is_repeated:
            getattr(message, field.name).append(plain(field, enumerator))
        else:
            setattr(message, field.name, plain(field, enumerator))
    return message


def plain(field: FieldDescriptor, enumerator: int) -> Any:
    if field.enum_type is not None:
        return enumerator
    if field.type == FieldDescriptor.TYPE_STRING:
        return "text"
    return field.type == FieldDescriptor.TYPE_BOOL or 1


@pytest.mark.parametrize("enumerator", [0, LATER])
@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.__name__)
def test_messages_with_unknown_enum_numbers_are_read(kind: type[Message], enumerator: int) -> None:
    choices = max((len(oneof.fields) for oneof in kind.DESCRIPTOR.oneofs), default=1)
    for choice in range(choices):
        assert READERS[kind](filled(kind.DESCRIPTOR, enumerator, choice)) is not None


def test_an_unknown_value_has_a_name_in_place_of_a_known_one() -> None:
    decision = admin.audit_entry_from_message(admin_pb2.AuditEvent(kind=LATER, reason="moved to the attic")).event  # type: ignore[arg-type]
    assert (decision.kind, decision.reason) == (Unrecognized("unrecognized_4000"), "moved to the attic")
    assert admin.audit_entry_from_message(admin_pb2.AuditEvent()).event.kind == Unrecognized("unspecified")
    model = status.model_from_message(admin_pb2.Model(role="translator", name="small"))
    assert (model.role, model.name) == ("translator", "small")


def test_an_answer_with_an_unknown_finish_reason_is_read() -> None:
    event = answers.event_from_message(rag_pb2.AskResponse(finished=rag_pb2.Finished(reason=LATER)))  # type: ignore[arg-type]
    assert isinstance(event, Finished)
    assert event.reason == Unrecognized("unrecognized_4000")


def test_an_unknown_rule_is_read_as_the_most_careful_one() -> None:
    settings = collections_pb2.CollectionSettings(offload=LATER, kv_reuse=LATER)  # type: ignore[arg-type]
    read = collections.collection_from_message(collections_pb2.Collection(settings=settings)).settings
    assert (read.offload, read.kv_reuse) == (OffloadRule.NEVER, KvReuse.EXACT)


def test_values_of_unknown_types_are_left_out_and_the_others_stay() -> None:
    later, text = metadata_pb2.MetadataValue(), metadata_pb2.MetadataValue(text="pump")
    assert metadata_from_message({"shape": later, "kind": text}) == {"kind": "pump"}
    passage = common_pb2.Passage(document="a.md", metadata={"shape": later})
    assert [hit.document for hit in answers.search_reply_from_message(rag_pb2.SearchResponse(hits=[passage])).hits] == [
        "a.md"
    ]
    boosts = [
        collections_pb2.ValueBoost(field="shape", value=later, factor=2.0),
        collections_pb2.ValueBoost(field="kind", value=text, factor=3.0),
    ]
    message = collections_pb2.Collection(settings=collections_pb2.CollectionSettings(boosts=boosts))
    assert collections.collection_from_message(message).settings.boosts == (ValueBoost("kind", "pump", 3.0),)
