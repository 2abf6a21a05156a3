"""The gRPC server: services, health, reflection.

The standard health service.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_health.v1.health import aio as aio_health  # type: ignore[attr-defined]
from grpc_reflection.v1alpha import reflection

from edge_rag.api.v1 import (
    access_pb2,
    access_pb2_grpc,
    admin_pb2,
    admin_pb2_grpc,
    collections_pb2,
    collections_pb2_grpc,
    documents_pb2,
    documents_pb2_grpc,
    encoding_pb2,
    encoding_pb2_grpc,
    generation_pb2,
    generation_pb2_grpc,
    rag_pb2,
    rag_pb2_grpc,
)
from edge_rag.errors import ConfigurationError
from edge_rag.server.authentication import Authenticator
from edge_rag.server.call import CallContext
from edge_rag.server.grpc.access_service import AccessService
from edge_rag.server.grpc.admin_service import AdminService
from edge_rag.server.grpc.collections_service import CollectionsService
from edge_rag.server.grpc.documents_service import DocumentsService
from edge_rag.server.grpc.encoding_service import EncodingService
from edge_rag.server.grpc.generation_service import GenerationService
from edge_rag.server.grpc.interceptor import AdmissionInterceptor
from edge_rag.server.grpc.listeners import Listeners, ServedCertificates, TlsOptions
from edge_rag.server.grpc.rag_service import RagService
from edge_rag.server.lifecycle import Lifecycle
from edge_rag.server.limits.concurrency import ConcurrencyLimiter
from edge_rag.server.limits.connections import Connections
from edge_rag.server.limits.timeouts import Deadlines
from edge_rag.server.limits.transport import CallLimits, TransportLimits
from edge_rag.telemetry.metrics.calls import Metrics
from edge_rag.telemetry.tracing import UNTRACED, Traces
from edge_rag.wire.requests import RequestLimits


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


_SERVICES: Final = tuple(
    file.DESCRIPTOR.services_by_name[name].full_name
    for file, name in (
        (rag_pb2, "Rag"),
        (documents_pb2, "Documents"),
        (collections_pb2, "Collections"),
        (admin_pb2, "Admin"),
        (access_pb2, "Access"),
        (generation_pb2, "Generation"),
        (encoding_pb2, "Encoding"),
    )
)


class GrpcServer:
    """Serves the services, standard health and reflection.

    Args:
        doors: Where it listens.
        doorkeeper: Knows who calls.
        gate: Open while the daemon serves.
        metrics: Counts calls.
        limits: What one request may ask for.
        document_bytes: Largest document.
        calls: Bounds of calls.
        transport: Bounds of messages and connections.
        traces: Traces calls.
    """

    def __init__(
        self,
        doors: Listeners,
        doorkeeper: Authenticator,
        gate: Lifecycle,
        metrics: Metrics,
        limits: RequestLimits,
        document_bytes: int,
        calls: CallLimits,
        transport: TransportLimits,
        traces: Traces = UNTRACED,
    ) -> None:
        self._doors = doors
        self._deadlines = Deadlines(calls.request_s, calls.long_call_s)
        self._connections = Connections(transport.connections_per_address)
        self._keeping: asyncio.Task[None] | None = None
        places = ConcurrencyLimiter(calls.concurrent)
        turnstile = AdmissionInterceptor(places, self._deadlines, calls.unread_s, gate, self._connections, metrics)
        self._server = grpc.aio.server(interceptors=(turnstile,), options=transport.options())
        self._certificates = None if doors.tls is None else ServedCertificates(doors.tls)
        served = CallContext(gate, doorkeeper, metrics, self._deadlines, traces)
        self._rag = RagService(served, limits, metrics)
        rag_pb2_grpc.add_RagServicer_to_server(self._rag, self._server)
        documents_pb2_grpc.add_DocumentsServicer_to_server(DocumentsService(served, document_bytes), self._server)
        collections_pb2_grpc.add_CollectionsServicer_to_server(CollectionsService(served), self._server)
        admin_pb2_grpc.add_AdminServicer_to_server(AdminService(served), self._server)
        access_pb2_grpc.add_AccessServicer_to_server(AccessService(served, doorkeeper), self._server)
        self._generation = GenerationService(served, limits)
        generation_pb2_grpc.add_GenerationServicer_to_server(self._generation, self._server)
        self._encoding = EncodingService(served, limits)
        encoding_pb2_grpc.add_EncodingServicer_to_server(self._encoding, self._server)
        self._health = HealthService(_SERVICES)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((*_SERVICES, HEALTH_SERVICE, reflection.SERVICE_NAME), self._server)

    async def start(self) -> tuple[str, ...]:
        """Binds and starts; health says NOT_SERVING until ``serving``.

        Returns:
            The addresses in use, with the ports that were picked; the first is the main one.

        Raises:
            ConfigurationError: An address cannot be bound, or the certificate cannot be used.
        """
        bound = [self._bind(self._doors.main, self._certificates)]
        if self._doors.local is not None:
            bound.append(self._bind(self._doors.local, None))
        await self._health.say(health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._server.start()
        self._connections.belong_to(frozenset(int(a.rpartition(":")[2]) for a in bound if not a.startswith("unix:")))
        self._keeping = asyncio.create_task(self._connections.keep(), name="connections")
        return tuple(bound)

    async def serving(self) -> None:
        """Lets health say SERVING."""
        await self._health.say(health_pb2.HealthCheckResponse.SERVING)

    async def draining(self) -> None:
        """Lets health say NOT_SERVING."""
        await self._health.say(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def stop(self, grace_s: float) -> None:
        """Ends every call within the grace time, seconds."""
        await self._server.stop(grace_s)
        if self._keeping is not None:
            self._keeping.cancel()

    def adopt(self, limits: RequestLimits, calls: CallLimits, tls: TlsOptions | None) -> None:
        """Takes other limits for requests that come from now on, and other certificates for new connections.

        Args:
            limits: What one request may ask for.
            calls: How long a call may take; how many there may be stays.
            tls: How TLS is served; nothing changes where it was not served or is not to be.

        Raises:
            ConfigurationError: The certificates cannot be used; all stays as it was.
        """
        if tls is not None and self._certificates is not None:
            self._certificates.use(tls.files)
        self._rag.limit(limits)
        self._generation.limit(limits)
        self._encoding.limit(limits)
        self._deadlines.limit(calls.request_s, calls.long_call_s)

    def _bind(self, address: str, certificates: ServedCertificates | None) -> str:
        try:
            if certificates is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, certificates.credentials())
        except RuntimeError as error:
            raise ConfigurationError(f"listen: {address} cannot be bound; is another daemon running there?") from error
        return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
