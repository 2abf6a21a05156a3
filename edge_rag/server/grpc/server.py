"""The gRPC server: services, health checks and reflection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import grpc
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

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
from edge_rag.core.limits.request_fields import RequestLimits
from edge_rag.errors import ConfigurationError, NotFound
from edge_rag.server.grpc.access_service import AccessService
from edge_rag.server.grpc.admin_service import AdminService
from edge_rag.server.grpc.call import GrpcCalls, ServicerContext, serves
from edge_rag.server.grpc.collections_service import CollectionsService
from edge_rag.server.grpc.documents_service import DocumentsService
from edge_rag.server.grpc.interceptor import AdmissionInterceptor
from edge_rag.server.grpc.peers_service import EncodingService, GenerationService
from edge_rag.server.grpc.rag_service import RagService
from edge_rag.server.grpc.unix_socket import UnixSocket
from edge_rag.server.limits.connections import Connections
from edge_rag.server.limits.transport import TransportLimits
from edge_rag.server.listeners import CertificateFiles, Listeners, ServedCertificate, TlsOptions
from edge_rag.service.call import CallContext, Operation

_CHECK: Final = Operation("Check", None, anonymous=True, probe=True)
_WATCH: Final = Operation("Watch", None, long=True, anonymous=True)
_LIST: Final = Operation("HealthList", None, anonymous=True)
_REFLECTION: Final = Operation("ServerReflectionInfo", None, anonymous=True)

log = structlog.get_logger()

WRITES: Final = "writes"
"""The name by which health checks ask whether the library can be changed."""


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """The standard health service. The server (the service without a name) and all services have the same status.

    ``writes`` is a name of its own: it is not served where the library is in recovery mode. The library's servicer lets
    all watchers share a lock, aborts for unknown services, and lacks ``List``.
    """

    def __init__(self, services: tuple[str, ...]) -> None:
        self._states = dict.fromkeys(("", WRITES, *services), health_pb2.HealthCheckResponse.NOT_SERVING)
        self._changed = asyncio.Event()

    def set_all(self, state: health_pb2.HealthCheckResponse.ServingStatus.ValueType, *, but: str | None = None) -> None:
        self._states |= {service: state for service in self._states if service != but}
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    @serves(_CHECK)
    async def Check(  # noqa: N802 - named by the proto
        self, request: health_pb2.HealthCheckRequest, context: ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in self._states:
            raise NotFound("the service is not known")
        return health_pb2.HealthCheckResponse(status=self._states[request.service])

    @serves(_WATCH)
    async def Watch(  # noqa: N802 - named by the proto
        self, request: health_pb2.HealthCheckRequest, context: ServicerContext
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Yields the status of a service, and each change."""
        sent = None
        while True:
            changed = self._changed
            status = self._states.get(request.service, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            if status != sent:
                sent = status
                yield health_pb2.HealthCheckResponse(status=status)
            await changed.wait()

    @serves(_LIST)
    async def List(  # noqa: N802 - named by the proto
        self, request: health_pb2.HealthListRequest, context: ServicerContext
    ) -> health_pb2.HealthListResponse:
        statuses = {name: health_pb2.HealthCheckResponse(status=state) for name, state in self._states.items()}
        return health_pb2.HealthListResponse(statuses=statuses)


class ReflectionService(reflection.aio.ReflectionServicer):  # type: ignore[misc, name-defined]
    """The standard reflection service."""

    @serves(_REFLECTION)
    async def ServerReflectionInfo(  # noqa: N802 - named by the proto
        self, request_iterator: AsyncIterator[Any], context: ServicerContext
    ) -> AsyncIterator[Any]:
        async with aclosing(super().ServerReflectionInfo(request_iterator, context)) as responses:
            async for response in responses:
                yield response


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
    """Serves the services, standard health checks and reflection.

    Args:
        slow_client_s: How long a client may leave a message unread, seconds.
    """

    def __init__(
        self,
        listeners: Listeners,
        calls: CallContext,
        limits: RequestLimits,
        slow_client_s: float,
        transport: TransportLimits,
        connections: Connections,
    ) -> None:
        self._listeners = listeners
        self._connections = connections
        self._enforcing: asyncio.Task[None] | None = None
        self._unix_sockets: list[UnixSocket] = []
        interceptor = AdmissionInterceptor(calls, slow_client_s, transport.message_bytes, self._connections)
        self._server = grpc.aio.server(interceptors=(interceptor,), options=transport.options())
        self._certificates = None if listeners.tls is None else CertificateFiles(listeners.tls)
        grpc_calls = GrpcCalls(calls)
        self._rag = RagService(grpc_calls, limits)
        rag_pb2_grpc.add_RagServicer_to_server(self._rag, self._server)
        documents_pb2_grpc.add_DocumentsServicer_to_server(DocumentsService(grpc_calls), self._server)
        collections_pb2_grpc.add_CollectionsServicer_to_server(CollectionsService(grpc_calls), self._server)
        admin_pb2_grpc.add_AdminServicer_to_server(AdminService(grpc_calls), self._server)
        access_pb2_grpc.add_AccessServicer_to_server(AccessService(grpc_calls), self._server)
        self._generation = GenerationService(grpc_calls, limits)
        generation_pb2_grpc.add_GenerationServicer_to_server(self._generation, self._server)
        encoding_pb2_grpc.add_EncodingServicer_to_server(EncodingService(grpc_calls), self._server)
        self._health = HealthService(_SERVICES)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        described = ReflectionService((*_SERVICES, HEALTH_SERVICE, reflection.SERVICE_NAME))
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(described, self._server)

    async def start(self) -> tuple[str, ...]:
        """Binds and starts; health checks return NOT_SERVING until ``serving``.

        Returns:
            The bound addresses with their ports; the first is the main one.
        """
        listeners = self._listeners
        bound = [self._bind(listeners.main, self._certificates)]
        if listeners.local is not None:
            bound.append(self._bind(listeners.local, None))
        if listeners.socket is not None and _unix(listeners.socket) not in bound:
            bound += self._bind_own(listeners.socket)
        self._health.set_all(health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._server.start()
        self._connections.add_ports(int(a.rpartition(":")[2]) for a in bound if not a.startswith("unix:"))
        self._enforcing = asyncio.create_task(self._connections.enforce(), name="connections")
        return tuple(bound)

    async def serving(self, *, writes: bool = True) -> None:
        self._health.set_all(health_pb2.HealthCheckResponse.SERVING, but=None if writes else WRITES)

    async def draining(self) -> None:
        self._health.set_all(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def stop(self, grace_s: float) -> None:
        """Ends all calls within the grace period, seconds."""
        await self._server.stop(grace_s)
        if self._enforcing is not None:
            self._enforcing.cancel()
        for held in self._unix_sockets:
            held.release()

    def reload(self, limits: RequestLimits, tls: TlsOptions | None) -> None:
        """Applies other limits to later requests, and other certificates to new connections.

        Args:
            tls: The TLS options; ignored unless the server was started with TLS.
        """
        if tls is not None and self._certificates is not None:
            self._certificates.replace(tls.files)
        self._rag.limits = self._generation.limits = limits

    def _bind(self, address: str, certificates: CertificateFiles | None) -> str:
        try:
            if address.startswith("unix:"):
                path = Path(address.removeprefix("unix:"))
                self._bind_unix(path, private=path == self._listeners.socket)
                return address
            if certificates is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, _credentials(certificates))
        except RuntimeError as error:
            raise ConfigurationError(f"listen: {address} cannot be bound; is another daemon running there?") from error
        return f"{address.rpartition(':')[0]}:{port}"

    def _bind_own(self, path: Path) -> list[str]:
        """Opens the socket for the user that the daemon runs as; without it, the other addresses still serve."""
        try:
            self._bind_unix(path, private=True)
        except (ConfigurationError, RuntimeError) as error:
            log.warning("no Unix socket for commands on this host", path=str(path), error=str(error))
            return []
        return [_unix(path)]

    def _bind_unix(self, path: Path, private: bool) -> None:
        held = UnixSocket(path)
        self._unix_sockets.append(held)
        held.bind(self._server.add_insecure_port, private)


def _credentials(certificates: CertificateFiles) -> grpc.ServerCredentials:
    def reload() -> grpc.ServerCertificateConfiguration | None:
        changed = certificates.changed()
        return None if changed is None else _configuration(changed)

    first = _configuration(certificates.first())
    # The callback may return None for no change, which the stubs do not declare.
    return grpc.dynamic_ssl_server_credentials(first, reload, certificates.client_certificates)  # type: ignore[arg-type]


def _configuration(served: ServedCertificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(served.pair.key, served.pair.certificate)], served.authority)


def _unix(path: Path) -> str:
    return f"unix:{path}"
