"""The JSON shape of values: fields by name, and what differs from them."""

import json
from dataclasses import fields
from datetime import UTC, datetime
from math import inf, nan
from pathlib import Path

import pytest

from edge_rag.core.answer import Citation, Finished, FinishReason, PassagesFound, StageTime, Unsupported, Usage
from edge_rag.core.documents.collection import CollectionInfo, CollectionSettings, ValueBoost
from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.documents.jobs import Job, JobDocumentState, JobId, JobState
from edge_rag.core.documents.metadata import Metadata
from edge_rag.core.identity import Identity, Quota, Role
from edge_rag.core.ids import ChunkId, DocumentId, RequestId, Unrecognized
from edge_rag.core.monitoring.event import AuditEntry, AuditEvent, AuditEventKind
from edge_rag.core.monitoring.metrics import Latency, LatencyMetric
from edge_rag.core.monitoring.resources import (
    MemoryItem,
    MemoryPlanReport,
    MemoryPressureState,
    ShedTarget,
    Temperature,
    Throttling,
)
from edge_rag.core.monitoring.status import DaemonState, DaemonStatus, EngineStats, ModelInUse, SlotUse
from edge_rag.core.passage import Explanation, FoundPassage, Hit, HitPart, Passage, RankedPassage
from edge_rag.core.placement import ModelStage, Placement, Precision, Provider
from edge_rag.core.query import AnswerMode, Priority
from edge_rag.core.shapes.encoder import encode, members
from edge_rag.core.shapes.views import KEYS, SHAPES, VIEWS, FoundHits, SearchHit, SearchTimings, WholeAnswer

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
PASSAGE = Passage(ChunkId(7), DocumentId("d"), "a.md", 2, 10, 14, "text", ("Heading",), {"year": 2020.0, "due": NOON})
CITATION = Citation(0, "a.md", 2, 10, 14, "text", 0, 4)
FINISHED = Finished(FinishReason.STOP, Usage(3), (StageTime("retriever", 0.0, 1.0),), None)


def test_every_table_names_fields_that_exist() -> None:
    for kind, shape in SHAPES.items():
        names = {field.name for field in fields(kind)}
        assert {*shape.names, *shape.without, *shape.optional} <= names
        assert all(isinstance(getattr(kind, name), property) for name in shape.computed)
    for kind, key in KEYS.items():
        assert key in {field.name for field in fields(kind)}
    assert all(callable(view.of) for view in VIEWS.values())


def test_a_document_has_an_id_and_its_metadata_are_sorted_and_plain() -> None:
    metadata: Metadata = {"year": 2020.0, "share": 0.5, "due": NOON, "draft": False, "tag": ("a", "b"), "author": "Eva"}
    info = DocumentInfo(DocumentId("d1"), "c", "a.md", "", "text/markdown", "0" * 64, 3, 3, 1, None, NOON, metadata)
    shown = encode(info)
    assert (shown["id"], shown["ingested_at"], "document_id" in shown) == ("d1", "2026-06-01T12:00:00+00:00", False)
    assert json.dumps(shown["metadata"]) == (
        '{"author": "Eva", "draft": false, "due": "2026-06-01T12:00:00+00:00", "share": 0.5, "tag": ["a", "b"], '
        '"year": 2020}'
    )


def test_a_job_counts_documents_of_every_state_and_hides_collections() -> None:
    job = Job(JobId("j"), JobState.RUNNING, NOON, None, frozenset({"secret"}), {JobDocumentState.ADDED: 2}, 9, 4)
    shown = encode(job)
    assert (shown["id"], shown["state"], shown["finished_at"]) == ("j", "running", None)
    assert shown["documents"] == {
        state.value: 2 if state is JobDocumentState.ADDED else 0 for state in JobDocumentState
    }
    assert "collections" not in shown


def test_a_passage_shows_its_public_part_whatever_it_was_found_as() -> None:
    ranked = RankedPassage(PASSAGE, 0.5, ())
    shown = encode(PassagesFound((ranked,), 0.9, AnswerMode.QUOTE, "en"))
    assert shown["passages"] == [encode(FoundPassage.of(ranked))]
    assert shown["passages"][0] == {
        **{"document_id": "d", "document": "a.md", "page": 2, "start": 10, "end": 14, "text": "text", "score": 0.5},
        **{"context": ["Heading"], "metadata": {"due": NOON.isoformat(), "year": 2020}, "duplicates": []},
    }


def test_a_hit_has_an_explanation_only_if_it_was_explained() -> None:
    passage = FoundPassage.of(RankedPassage(PASSAGE, 0.5, ()))
    part = HitPart(ChunkId(1), 10, 12, 1, None, 0.1)
    explained = Explanation(Hit(PASSAGE, 0.5, parts=(part, part)), 1, 0.5)
    plain, full = SearchHit.explained(passage, None), SearchHit.explained(passage, VIEWS[Explanation].of(explained))
    shown = encode(FoundHits("q", "q of it", None, (plain, full), SearchTimings(())))
    assert "explanation" not in shown["hits"][0]
    assert len(shown["hits"][1]["explanation"]["merged_from"]) == 2
    assert shown["timings"] == {"stages": []}


def test_a_whole_answer_has_the_text_of_unsupported_parts() -> None:
    found = PassagesFound((), 0.5, AnswerMode.CITE, model="smollm2")
    shown = encode(WholeAnswer.of("r", "q", found, "Yes. No.", [CITATION], [Unsupported(5, 8)], FINISHED))
    assert (shown["mode"], shown["model"], shown["question_language"]) == ("cite", "smollm2", None)
    assert shown["unsupported"] == [{"start": 5, "end": 8, "text": "No.", "reason": "no_source"}]
    assert (shown["citations"][0]["answer_end"], shown["finish_reason"]) == (4, "stop")
    assert shown["timings"] == {
        "first_token_s": None,
        "stages": [{"stage": "retriever", "queue_s": 0.0, "compute_s": 1.0}],
    }
    end = {key: shown[key] for key in ("finish_reason", "usage", "timings", "nearest", "prompt_passages", "conflicts")}
    assert encode(FINISHED) == end


def test_numbers_that_are_not_finite_are_null() -> None:
    numbers = {"b": inf, "a": 1.5, "c": nan}
    event = AuditEvent(AuditEventKind.QUEUED, RequestId("r"), "c", Priority.BATCH, "why", numbers, 3.0)
    shown = encode(AuditEntry(4, NOON, event))
    assert shown["numbers"] == {"a": 1.5, "b": None, "c": None}
    assert (shown["priority"], shown["kind"], shown["number"]) == ("batch", "queued", 4)


def test_settings_of_a_collection_keep_whole_numbers_whole() -> None:
    settings = CollectionSettings(boosts=(ValueBoost("year", 2020.0, 2.0), ValueBoost("due", NOON, 0.5)))
    shown = encode(CollectionInfo("c", settings, 0, 0, True, None))["settings"]
    assert json.dumps([boost["value"] for boost in shown["boosts"]]) == '[2020, "2026-06-01T12:00:00+00:00"]'
    assert (shown["offload"], shown["recency"]) == ("never", None)


def test_a_caller_has_its_rights_and_quota() -> None:
    caller = Identity("ward", frozenset({Role.WRITER, Role.READER}), frozenset({"b", "a"}), Priority.NORMAL, Quota(60))
    assert encode(caller) == {
        **{"name": "ward", "roles": ["reader", "writer"], "collections": ["a", "b"], "priority_max": "normal"},
        **{"requests_per_minute": 60, "tokens_per_minute": None, "concurrent_requests": None},
    }


def test_a_status_is_one_object_without_surprises() -> None:
    slot = SlotUse(RequestId("r"), "c", Priority.NORMAL, 0.1, 1, 0, 1, 0, 9, 1, 0)
    placement = Placement(ModelStage.RERANKER, Provider.QNN, Provider.CPU, "why", Precision.MODEL)
    status = DaemonStatus(
        version="1",
        state=DaemonState.SERVING,
        started_at=NOON,
        data_directory=Path("/data"),
        profile="cpu",
        models=(ModelInUse("minilm", "how", placement),),
        stages=(),
        engine=EngineStats(
            slots=1, slots_busy=1, pages=1, pages_used=1, pages_cached=0, page_tokens=8, sequences=(slot,)
        ),
        collections={"b": 2, "a": 1},
        indexes=(),
        resident_bytes=5,
        address="127.0.0.1:1",
        latencies=(Latency(LatencyMetric.QUEUE, 3, 0.1, 0.2, 0.3),),
        devices=(),
        temperatures=(Temperature("soc", 41.0), Temperature("board", 30.5)),
        remotes=(),
        throttling=Throttling(),
        memory=MemoryPlanReport(10, (MemoryItem("kv", 4), MemoryItem("code", 3)), 0),
        pressure=MemoryPressureState(shed=(ShedTarget.BATCH,)),
    )
    shown = encode(status)
    assert shown["temperatures"] == {"soc": 41.0, "board": 30.5}
    assert shown["latencies"] == {"queue": {"samples": 3, "p50_s": 0.1, "p95_s": 0.2, "p99_s": 0.3}}
    assert (shown["memory"]["planned_bytes"], shown["data_directory"]) == (7, "/data")
    assert shown["models"][0] == {
        **{"role": "reranker", "name": "minilm", "detail": "how", "execution_provider": "cpu"},
        **{"wanted_provider": "qnn", "reason": "why", "precision": "model"},
    }
    assert (shown["engine"]["sequences"][0]["priority"], shown["pressure"]["shed"]) == ("normal", ["batch requests"])
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown


@pytest.mark.parametrize("value", [Unrecognized("unrecognized_9"), [Unrecognized("unrecognized_9")]])
def test_a_value_of_a_newer_daemon_is_shown_as_it_is_called(value: object) -> None:
    assert encode(value) in ("unrecognized_9", ["unrecognized_9"])
    assert next(member for member in members(Finished) if member.field == "reason").name == "reason"
