"""What a client learns and can do that has no file of ours: reflection and the standard health service."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.e2e.operations.test_service import DOCUMENT, Load
from tests.e2e.support.running_daemon import RunningDaemon, ingest

OK, INVALID, NOT_FOUND = grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
UNMET = grpc.StatusCode.FAILED_PRECONDITION
DENIED = grpc.StatusCode.PERMISSION_DENIED  # not over TLS
HEADER = {"header": {"collection": "reflected", "name": "note.txt"}}
CONTENT = {"content": "VGhlIGJpbGdlIHB1bXAgaXMgcmVkLiBZZXMuIA=="}

CALLS: dict[str, tuple[list[dict[str, Any]], grpc.StatusCode]] = {
    "edge_rag.v1.Collections/Create": ([{"name": "reflected", "settings": {"description": "by reflection"}}], OK),
    "edge_rag.v1.Documents/Ingest": ([HEADER, CONTENT], OK),
    "edge_rag.v1.Documents/StartIngest": ([HEADER, CONTENT], OK),
    "edge_rag.v1.Documents/ListJobs": ([{"limit": 5}], OK),
    "edge_rag.v1.Documents/WatchJob": ([{"jobId": "0" * 32}], NOT_FOUND),
    "edge_rag.v1.Documents/CancelJob": ([{"jobId": "0" * 32}], NOT_FOUND),
    "edge_rag.v1.Documents/List": ([{"collection": "reflected"}], OK),
    "edge_rag.v1.Documents/Get": ([{"collection": "reflected", "document": "note.txt"}], OK),
    "edge_rag.v1.Rag/Ask": ([{"collection": "reflected", "question": "What colour is the bilge pump?"}], OK),
    "edge_rag.v1.Rag/Search": ([{"collection": "reflected", "query": "bilge pump", "explain": True}], OK),
    "edge_rag.v1.Collections/Get": ([{"name": "reflected"}], OK),
    "edge_rag.v1.Collections/List": ([{}], OK),
    "edge_rag.v1.Collections/Update": (
        [{"name": "reflected", "settings": {"description": "anew"}, "updateMask": "description"}],
        OK,
    ),
    "edge_rag.v1.Documents/Delete": ([{"collection": "reflected", "document": "note.txt"}], OK),
    "edge_rag.v1.Collections/Delete": ([{"name": "reflected"}], OK),
    "edge_rag.v1.Admin/GetStatus": ([{}], OK),
    "edge_rag.v1.Admin/WatchStatus": ([{"intervalSeconds": 0.1}], OK),
    "edge_rag.v1.Admin/ListAuditEvents": ([{"limit": 3}], OK),
    "edge_rag.v1.Admin/GetUsage": ([{}], OK),
    "edge_rag.v1.Admin/UseModel": ([{"role": "generator", "name": "nobody-s"}], NOT_FOUND),
    "edge_rag.v1.Admin/MoveIndex": ([{"collection": "nowhere", "backend": "INDEX_BACKEND_FAISS"}], NOT_FOUND),
    "edge_rag.v1.Admin/Backup": ([{}], OK),
    "edge_rag.v1.Access/WhoAmI": ([{}], OK),
    "edge_rag.v1.Access/Pair": ([{"key": "0000", "secret": "0" * 16}], DENIED),
    "edge_rag.v1.Generation/Generate": ([{}], INVALID),
    "edge_rag.v1.Encoding/DescribeEncoders": ([{}], OK),
    "edge_rag.v1.Encoding/Embed": ([{"embedder": "another", "texts": ["a"]}], UNMET),
    "grpc.health.v1.Health/Check": ([{"service": "edge_rag.v1.Rag"}], OK),
    "grpc.health.v1.Health/Watch": ([{}], OK),
    "grpc.health.v1.Health/List": ([{}], OK),
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": ([{"listServices": ""}], OK),
}
"""What each RPC is asked, in an order in which one finds what the other left, and how it ends."""


class Reflected:
    """A client that knows what the server says of itself and nothing else."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._database = ProtoReflectionDescriptorDatabase(channel)
        self._pool = descriptor_pool.DescriptorPool(self._database)

    def methods(self) -> dict[str, MethodDescriptor]:
        return {
            f"{service}/{name}": method
            for service in self._database.get_services()
            for name, method in self._pool.FindServiceByName(service).methods_by_name.items()
        }

    def call(self, method: MethodDescriptor, requests: list[dict[str, Any]]) -> grpc.StatusCode:
        """Calls a method; of a stream of replies takes the first."""
        kind = message_factory.GetMessageClass(method.input_type)
        messages = [json_format.ParseDict(request, kind(), descriptor_pool=self._pool) for request in requests]
        reply = message_factory.GetMessageClass(method.output_type)
        path = f"/{method.containing_service.full_name}/{method.name}"
        codecs = (kind.SerializeToString, reply.FromString)
        try:
            match method.client_streaming, method.server_streaming:
                case False, False:
                    self._channel.unary_unary(path, *codecs)(messages[0], timeout=60)
                case True, False:
                    self._channel.stream_unary(path, *codecs)(iter(messages), timeout=60)
                case False, True:
                    first(self._channel.unary_stream(path, *codecs)(messages[0], timeout=60))
                case _:
                    first(self._channel.stream_stream(path, *codecs)(iter(messages), timeout=60))
        except grpc.RpcError as error:
            return error.code()
        return OK


def first(call: Any) -> None:
    try:
        assert next(call) is not None
    finally:
        call.cancel()


@pytest.mark.smoke
def test_every_call_of_every_service_is_listed_described_and_can_be_made_from_reflection_alone(
    daemon: RunningDaemon,
) -> None:
    with grpc.insecure_channel(daemon.address) as channel:
        client = Reflected(channel)
        described = client.methods()
        assert described.keys() == CALLS.keys()
        ends = {name: client.call(described[name], requests) for name, (requests, _) in CALLS.items()}
    assert ends == {name: end for name, (_, end) in CALLS.items()}


class Watched:
    """What ``Health.Watch`` says of a service, as it changes."""

    def __init__(self, address: str, service: str = "") -> None:
        patient = (("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 50))
        self._channel = grpc.insecure_channel(address, options=patient)
        request = health_pb2.HealthCheckRequest(service=service)
        self._call: Any = health_pb2_grpc.HealthStub(self._channel).Watch(request, timeout=300, wait_for_ready=True)

    def __iter__(self) -> Iterator[int]:
        try:
            for reply in self._call:
                yield reply.status
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        finally:
            self._channel.close()


def check(address: str, service: str) -> int:
    with grpc.insecure_channel(address) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=30)
        return int(reply.status)


@pytest.mark.parametrize("service", ["", "edge_rag.v1.Rag"])
def test_health_says_not_serving_while_warming_and_draining_and_serving_in_between(
    start: Callable[..., RunningDaemon], tmp_path: Path, service: str
) -> None:
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    socket = f"unix:{tmp_path}/socket"
    with ThreadPoolExecutor(1) as watcher:
        watched = watcher.submit(list, Watched(socket, service))
        daemon = start(config=f'local_listen = "{socket}"\n[limits]\ndrain_seconds = 60\n')
        assert check(daemon.address, service) == serving
        ingest(daemon.address, DOCUMENT)
        load = Load(daemon.address, tokens=400, clients=1).begun()
        daemon.process.send_signal(signal.SIGTERM)
        outcomes = load.outcomes()
        assert daemon.process.wait(60) == 0
        assert [code for code, _ in outcomes] == [OK]
        assert watched.result(60) == [not_serving, serving, not_serving]


def test_a_service_that_there_is_not_has_no_health(daemon: RunningDaemon) -> None:
    with pytest.raises(grpc.RpcError) as missing:
        check(daemon.address, "edge_rag.v1.Nothing")
    assert missing.value.code() is NOT_FOUND
    unknown = iter(Watched(daemon.address, "edge_rag.v1.Nothing"))
    assert next(unknown) == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
