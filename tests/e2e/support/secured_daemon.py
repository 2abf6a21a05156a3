"""A daemon that asks for credentials, who there is, and which calls there are."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from edge_rag.cli.main import main
from tests.e2e.support.running_daemon import ROOT, RunningDaemon

SECRET = "The reactor code is 4711 and the valve is called Persephone."
OPEN = "The galley opens at six in the morning and closes at nine in the evening."


@dataclass(frozen=True)
class Box:
    """A daemon that asks for credentials, and the tokens there are."""

    running: RunningDaemon
    data: Path
    tokens: dict[str, str]

    def channel(self, name: str | None = None, token: str | None = None) -> grpc.Channel:
        credentials = grpc.ssl_channel_credentials((self.data / "tls" / "ca.pem").read_bytes())
        shown = self.tokens[name] if name is not None else token
        if shown is not None:
            credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(shown))
        return grpc.secure_channel(self.running.address, credentials)


def edge_rag(*arguments: object, data: Path) -> str:
    result = CliRunner().invoke(main, [*map(str, arguments), "--data-dir", str(data)])
    assert result.exit_code == 0, result.output
    return result.stdout


def token(name: str, data: Path, *options: str) -> str:
    return edge_rag("token", "create", "--name", name, *options, data=data).strip()


def refused(call: Callable[[], object]) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value


def ask(channel: grpc.Channel, question: str, collection: str) -> list[rag_pb2.AskResponse]:
    return list(rag_pb2_grpc.RagStub(channel).Ask(rag_pb2.AskRequest(question=question, collection=collection)))


METHODS = {
    (service, method)
    for file in sorted((ROOT / "proto" / "edge_rag" / "v1").glob("*.proto"))
    for service, described in import_module(f"edge_rag.api.v1.{file.stem}_pb2").DESCRIPTOR.services_by_name.items()
    for method in described.methods_by_name
}
READ = {("Rag", "Ask"), ("Rag", "Search")}
READ |= {(service, name) for service in ("Documents", "Collections") for name in ("Get", "List")}
WRITE = {("Documents", name) for name in ("Ingest", "StartIngest", "WatchJob", "ListJobs", "CancelJob", "Delete")}
OPERATE = {
    ("Admin", name)
    for name in ("GetStatus", "WatchStatus", "ListAuditEvents", "GetUsage", "UseModel", "MoveIndex", "Backup")
}
OPERATE |= {("Collections", name) for name in ("Create", "Update", "Delete")}
BORROW = {("Generation", "Generate")}
BORROW |= {("Encoding", name) for name in ("DescribeEncoders", "Embed")}
ANYBODY = {("Access", "WhoAmI")}
STRANGERS = {("Access", "Pair")}
"""All that may be called without an identity: with a one-time code, and with nothing but that."""


def call(channel: grpc.Channel, service: str, method: str) -> grpc.StatusCode:
    """Calls a method with an empty request, which every role that may call it gets past the door with.

    Returns:
        How it ended; OK as soon as anything came, because some go on until they are left.
    """
    described = descriptor_pool.Default().FindServiceByName(f"edge_rag.v1.{service}").methods_by_name[method]
    return _called(channel, service, method, message_factory.GetMessageClass(described.input_type)(), 1)[0]


def end(channel: grpc.Channel, service: str, method: str, request: Message) -> tuple[grpc.StatusCode, str]:
    return _called(channel, service, method, request, None)


def _called(
    channel: grpc.Channel, service: str, method: str, request: Message, most: int | None
) -> tuple[grpc.StatusCode, str]:
    """Calls a method and takes in so many replies at most, all if None."""
    described = descriptor_pool.Default().FindServiceByName(f"edge_rag.v1.{service}").methods_by_name[method]
    response = message_factory.GetMessageClass(described.output_type)
    kinds = ("stream" if described.client_streaming else "unary", "stream" if described.server_streaming else "unary")
    made = getattr(channel, "_".join(kinds))(
        f"/edge_rag.v1.{service}/{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=response.FromString,
    )
    try:
        outcome = made(iter([request]) if described.client_streaming else request, timeout=60)
        if described.server_streaming:
            list(islice(outcome, most))
            outcome.cancel()
    except grpc.RpcError as error:
        return error.code(), str(error.details())
    return grpc.StatusCode.OK, ""
