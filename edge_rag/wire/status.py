"""The daemon's report on itself, to and from protobuf."""

from __future__ import annotations

from edge_rag.api.v1 import admin_pb2
from edge_rag.core.ids import Unrecognized
from edge_rag.core.monitoring.resources import Throttling
from edge_rag.core.monitoring.status import DaemonStatus, IndexInUse, ModelInUse, PageMap, SlotUse
from edge_rag.core.placement import ModelStage, Placement
from edge_rag.core.query import Priority
from edge_rag.wire.codec import Codec, Part

_STAGES = {stage.value: stage for stage in ModelStage}


def model_to_message(model: ModelInUse) -> admin_pb2.Model:
    placement = _PLACEMENT.to_message(model.placement)
    return admin_pb2.Model(role=model.role, name=model.name, detail=model.detail, placement=placement)


def model_from_message(message: admin_pb2.Model) -> ModelInUse:
    stage = _STAGES.get(message.role) or Unrecognized(message.role)
    return ModelInUse(message.name, message.detail, _PLACEMENT.from_message(message.placement, stage=stage))


def index_to_message(index: IndexInUse) -> admin_pb2.VectorIndex:
    return _INDEX.to_message(index)


def index_from_message(message: admin_pb2.VectorIndex) -> IndexInUse:
    return _INDEX.from_message(message)


def status_to_message(status: DaemonStatus) -> admin_pb2.GetStatusResponse:
    return _STATUS.to_message(status)


def status_from_message(message: admin_pb2.GetStatusResponse) -> DaemonStatus:
    """Returns the daemon's report on itself, without measures and causes that this version does not know."""
    return _STATUS.from_message(message)


_PLACEMENT = Codec(Placement, admin_pb2.Placement, omit=("stage",))
_INDEX = Codec(IndexInUse, admin_pb2.VectorIndex)
Codec(SlotUse, admin_pb2.Slot, unknown={"priority": Priority.NORMAL})
Codec(PageMap, admin_pb2.PageMap, parts={"cell_pages": Part(read=lambda pages: max(1, pages))})
Codec(Throttling, admin_pb2.Throttling, parts={"share": Part(read=lambda share: share or 1.0)})
_STATUS = Codec(
    DaemonStatus,
    admin_pb2.GetStatusResponse,
    parts={
        "models": Part(
            lambda models: map(model_to_message, models), lambda models: tuple(map(model_from_message, models))
        )
    },
)
