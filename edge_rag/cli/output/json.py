"""Values as JSON objects of stable shape."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from edge_rag.client import FoundPassage, HitExplanation, UsageReport


def citation_json(citation: Citation) -> dict[str, Any]:
    """A citation: document, page, character span, text and its language."""
    return {
        "document": citation.document,
        "page": citation.page,
        "start": citation.start,
        "end": citation.end,
        "text": citation.text,
        "language": citation.language,
    }


def hit_json(hit: FoundPassage) -> dict[str, Any]:
    """A hit: document, page, character span, score, text, metadata of the document, and duplicates."""
    return {
        "document": hit.document,
        "page": hit.page,
        "start": hit.start,
        "end": hit.end,
        "score": hit.score,
        "text": hit.text,
        "metadata": metadata_json(hit.metadata),
        "duplicates": [asdict(duplicate) for duplicate in hit.duplicates],
    }


def explanation_json(explanation: HitExplanation) -> dict[str, Any]:
    """How a hit was ranked."""
    return asdict(explanation)


def stages_json(stages: tuple[StageTime, ...]) -> list[dict[str, Any]]:
    """Times of the stages in pipeline order, seconds."""
    return [asdict(stage) for stage in stages]


def document_json(info: DocumentInfo) -> dict[str, Any]:
    """A document's record; time as ISO 8601 in UTC."""
    fields = asdict(info)
    return {
        "id": fields.pop("document_id"),
        **fields,
        "ingested_at": info.ingested_at.isoformat(),
        "metadata": metadata_json(info.metadata),
    }


def collection_json(info: CollectionInfo) -> dict[str, Any]:
    """A collection; time as ISO 8601 in UTC."""
    settings = asdict(info.settings)
    settings["offload"] = info.settings.offload.value
    settings["kv_reuse"] = info.settings.kv_reuse.value
    settings["boosts"] = [{**boost, "value": _to_json(boost["value"])} for boost in settings["boosts"]]
    return {
        "name": info.name,
        "documents": info.documents,
        "chunks": info.chunks,
        "kept": info.kept,
        "created_at": None if info.created_at is None else info.created_at.isoformat(),
        "settings": settings,
    }


def metadata_json(metadata: Metadata) -> dict[str, Any]:
    """Metadata by key: times as ISO 8601 in UTC, whole numbers as integers, tags as arrays."""
    return {key: _to_json(value) for key, value in sorted(metadata.items())}


def _to_json(value: MetadataValue) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case float() if value.is_integer():
            return int(value)
        case tuple():
            return list(value)
        case _:
            return value


def status_json(status: DaemonStatus) -> dict[str, Any]:
    """The daemon's status."""
    return {
        "version": status.version,
        "state": status.state.value,
        "started_at": status.started_at.isoformat(),
        "address": status.address,
        "data_directory": str(status.data_directory),
        "damage": None if status.damage is None else asdict(status.damage),
        "profile": status.profile,
        "resident_bytes": status.resident_bytes,
        "models": [model_json(model) for model in status.models],
        "stages": [asdict(stage) for stage in status.stages],
        "engine": engine_json(status.engine),
        "devices": [asdict(device) for device in status.devices],
        "temperatures": {reading.zone: reading.celsius for reading in status.temperatures},
        "throttling": throttling_json(status.throttling),
        "memory": asdict(status.memory) | {"planned_bytes": status.memory.planned_bytes},
        "pressure": pressure_json(status.pressure),
        "collections": dict(status.collections),
        "indexes": [index_json(index) for index in status.indexes],
        "remotes": [asdict(remote) for remote in status.remotes],
        "latencies": {latency.measure.value: latency_json(latency) for latency in status.latencies},
    }


def model_json(model: ModelInUse) -> dict[str, Any]:
    """A model with its role; ``execution_provider`` is the one in use."""
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


def throttling_json(throttling: Throttling) -> dict[str, Any]:
    """Throttling of the board: causes and remaining share."""
    return {**asdict(throttling), "causes": [cause.value for cause in throttling.causes]}


def pressure_json(memory: MemoryPressureState) -> dict[str, Any]:
    """Memory pressure."""
    return {**asdict(memory), "shed": [target.value for target in memory.shed]}


def engine_json(engine: EngineStats) -> dict[str, Any]:
    """The engine's batch and KV cache."""
    slots = [{**asdict(slot), "priority": slot.priority.name.lower()} for slot in engine.sequences]
    return {**asdict(engine), "sequences": slots}


def index_json(index: IndexInUse) -> dict[str, Any]:
    """The index of a collection; time as ISO 8601 in UTC, None for fields its kind lacks."""
    built_at = None if index.built_at is None else index.built_at.isoformat()
    return {**asdict(index), "kind": index.kind.value, "built_at": built_at}


def latency_json(latency: Latency) -> dict[str, Any]:
    """Latency percentiles, seconds."""
    return {name: value for name, value in asdict(latency).items() if name != "measure"}


def usage_json(report: UsageReport) -> dict[str, Any]:
    """Usage per client; time as ISO 8601 in UTC. The aggregate of all other clients has no name."""
    return {"since": report.since.isoformat(), "clients": [asdict(client) for client in report.clients]}
