"""The standard health service."""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as aio_health  # type: ignore[attr-defined]


class HealthService(aio_health.HealthServicer):  # type: ignore[misc]
    """Says of the server (the service without a name) and of each service whether it serves: all do, or none.

    Args:
        services: Full names of the services.
    """

    def __init__(self, services: tuple[str, ...]) -> None:
        super().__init__()
        self._services = ("", *services)
        self._state = health_pb2.HealthCheckResponse.NOT_SERVING

    async def say(self, state: health_pb2.HealthCheckResponse.ServingStatus.ValueType) -> None:
        """Says it from now on, to those who watch too."""
        self._state = state
        for service in self._services:
            await self.set(service, state)

    async def List(  # noqa: N802 - named by the proto
        self, request: health_pb2.HealthListRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> health_pb2.HealthListResponse:
        """Says it of all at once; the library's service leaves this out."""
        said = health_pb2.HealthCheckResponse(status=self._state)
        return health_pb2.HealthListResponse(statuses=dict.fromkeys(self._services, said))
