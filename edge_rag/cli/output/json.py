"""Values as JSON objects; these shapes are stable."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from edge_rag.client import FoundPassage, HitExplanation, UsageReport
from edge_rag.core.answer import Citation, StageTime
from edge_rag.core.documents.collection import CollectionInfo
from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.documents.metadata import Metadata, MetadataValue
from edge_rag.core.monitoring.metrics import Latency
from edge_rag.core.monitoring.resources import MemoryPressureState, Throttling
from edge_rag.core.monitoring.status import (
    DaemonStatus,
    EngineStats,
    IndexInUse,
    ModelInUse,
)


def citation_object(citation: Citation) -> dict[str, Any]:
    """Returns a citation: document, page, character span and text."""
    return {
        "document": citation.document,
        "page": citation.page,
        "start": citation.start,
        "end": citation.end,
        "text": citation.text,
    }


def hit_object(hit: FoundPassage) -> dict[str, Any]:
    """Returns a hit: document, page, character span, score, text, the document's metadata and what it stands for."""
    return {
        "document": hit.document,
        "page": hit.page,
        "start": hit.start,
        "end": hit.end,
        "score": hit.score,
        "text": hit.text,
        "metadata": metadata_object(hit.metadata),
        "duplicates": [asdict(duplicate) for duplicate in hit.duplicates],
    }


def explanation_object(explanation: HitExplanation) -> dict[str, Any]:
    """Returns how a hit got its place."""
    return asdict(explanation)


def stage_objects(stages: tuple[StageTime, ...]) -> list[dict[str, Any]]:
    """Returns the stages in pipeline order, seconds."""
    return [asdict(stage) for stage in stages]


def document_object(info: DocumentInfo) -> dict[str, Any]:
    """Returns a document's record; the time as ISO 8601 in UTC."""
    fields = asdict(info)
    return {
        "id": fields.pop("document_id"),
        **fields,
        "ingested_at": info.ingested_at.isoformat(),
        "metadata": metadata_object(info.metadata),
    }


def collection_object(info: CollectionInfo) -> dict[str, Any]:
    """Returns a collection; the time as ISO 8601 in UTC."""
    settings = asdict(info.settings)
    settings["offload"] = info.settings.offload.value
    settings["kv_reuse"] = info.settings.kv_reuse.value
    settings["boosts"] = [{**boost, "value": _plain(boost["value"])} for boost in settings["boosts"]]
    return {
        "name": info.name,
        "documents": info.documents,
        "chunks": info.chunks,
        "kept": info.kept,
        "created_at": None if info.created_at is None else info.created_at.isoformat(),
        "settings": settings,
    }


def metadata_object(metadata: Metadata) -> dict[str, Any]:
    """Returns metadata by key; moments as ISO 8601 in UTC, numbers without a fraction as integers, tags as arrays."""
    return {key: _plain(value) for key, value in sorted(metadata.items())}


def _plain(value: MetadataValue) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case float() if value.is_integer():
            return int(value)
        case tuple():
            return list(value)
        case _:
            return value


def status_object(status: DaemonStatus) -> dict[str, Any]:
    """Returns what a daemon reports of itself."""
    return {
        "version": status.version,
        "state": status.state.value,
        "started_at": status.started_at.isoformat(),
        "address": status.address,
        "data_directory": str(status.data_directory),
        "profile": status.profile,
        "resident_bytes": status.resident_bytes,
        "models": [model_object(model) for model in status.models],
        "stages": [asdict(stage) for stage in status.stages],
        "engine": engine_object(status.engine),
        "devices": [asdict(device) for device in status.devices],
        "temperatures": {reading.zone: reading.celsius for reading in status.temperatures},
        "throttling": throttling_object(status.throttling),
        "memory": asdict(status.memory) | {"planned_bytes": status.memory.planned_bytes},
        "pressure": pressure_object(status.pressure),
        "collections": dict(status.collections),
        "indexes": [index_object(index) for index in status.indexes],
        "remotes": [asdict(remote) for remote in status.remotes],
        "latencies": {latency.measure.value: latency_object(latency) for latency in status.latencies},
    }


def model_object(model: ModelInUse) -> dict[str, Any]:
    """Returns a model and the role it fills; ``execution_provider`` is what it runs on."""
    placement = model.placement
    return {
        "role": model.role,
        "name": model.name,
        "detail": model.detail,
        "execution_provider": placement.used.value,
        "wanted_provider": placement.wanted.value,
        "reason": placement.reason,
        "precision": placement.precision.value,
    }


def throttling_object(throttling: Throttling) -> dict[str, Any]:
    """Returns what the board suffers from, and how much is done."""
    return {**asdict(throttling), "causes": [cause.value for cause in throttling.causes]}


def pressure_object(memory: MemoryPressureState) -> dict[str, Any]:
    """Returns how short memory is."""
    return {**asdict(memory), "shed": [ballast.value for ballast in memory.shed]}


def engine_object(engine: EngineStats) -> dict[str, Any]:
    """Returns the generator's batch and cache."""
    slots = [{**asdict(slot), "priority": slot.priority.name.lower()} for slot in engine.sequences]
    return {**asdict(engine), "sequences": slots}


def index_object(index: IndexInUse) -> dict[str, Any]:
    """Returns how a collection is searched; the time as ISO 8601 in UTC, None for what its kind does not have."""
    built_at = None if index.built_at is None else index.built_at.isoformat()
    return {**asdict(index), "kind": index.kind.value, "built_at": built_at}


def latency_object(latency: Latency) -> dict[str, Any]:
    """Returns percentiles, seconds."""
    return {name: value for name, value in asdict(latency).items() if name != "measure"}


def usage_object(report: UsageReport) -> dict[str, Any]:
    """Returns what clients used; the time as ISO 8601 in UTC, the clients that are not kept apart without a name."""
    return {"since": report.since.isoformat(), "clients": [asdict(client) for client in report.clients]}
