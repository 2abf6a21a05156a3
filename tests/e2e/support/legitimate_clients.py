"""Clients with a right to be served: each call over a connection of its own, in a process in their network namespace.

Reads its orders as JSON from standard input and says as JSON what came of them.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import grpc

from edge_rag.api.v1 import access_pb2, access_pb2_grpc
from tests.support.raw_connection import RawConnection

_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Calls:
    """What the clients do, in turns."""

    address: str
    authority: str
    token: str
    known: int
    codes: list[tuple[str, str, str]]

    def json(self) -> str:
        return json.dumps(asdict(self))


@dataclass
class Outcomes:
    """What came of it.

    Attributes:
        known: Successful calls of the known client.
        paired: Redeemed codes.
        failures: Why others failed.
        slowest_s: The longest time of a call with its connection, seconds.
    """

    known: int = 0
    paired: int = 0
    failures: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


def make(calls: Calls) -> Outcomes:
    outcomes = Outcomes()
    # gRPC shuts itself down with its last channel, which waits for threads that wait for the interpreter's lock.
    _open = grpc.insecure_channel("unix:unused")
    for number in range(max(calls.known, len(calls.codes))):
        if number < calls.known:
            outcomes.known += _timed(outcomes, "call", lambda: _call(calls))
        if number < len(calls.codes):
            code = calls.codes[number]
            outcomes.paired += _timed(outcomes, "code", lambda code=code: _pair(calls, *code))  # type: ignore[misc]
    return outcomes


def _timed(outcomes: Outcomes, what: str, work: Callable[[], None]) -> bool:
    began = time.monotonic()
    try:
        work()
    except (grpc.RpcError, OSError) as error:
        outcomes.failures.append(f"{what}: {error}")
        return False
    outcomes.slowest_s = max(outcomes.slowest_s, time.monotonic() - began)
    return True


def _call(calls: Calls) -> None:
    """Makes a call of the known client, with gRPC and without retries."""
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(Path(calls.authority).read_bytes()),
        grpc.access_token_call_credentials(calls.token),
    )
    own = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    with grpc.secure_channel(calls.address, credentials, options=own) as channel:
        access_pb2_grpc.AccessStub(channel).WhoAmI(
            access_pb2.WhoAmIRequest(), timeout=_TIMEOUT_S, metadata=(("authorization", f"Bearer {calls.token}"),)
        )


def _pair(calls: Calls, key: str, secret: str, source: str) -> None:
    """Redeems a code from an address of its own, which gRPC's clients cannot choose."""
    request = access_pb2.PairRequest(key=key, secret=secret).SerializeToString()
    with RawConnection(
        calls.address, source=source, authority=Path(calls.authority), within_s=_TIMEOUT_S
    ) as connection:
        stream = connection.read_until_ended(connection.call("/edge_rag.v1.Access/Pair", request), _TIMEOUT_S)
    if stream.headers.get("grpc-status") != "0":
        raise OSError(f"no token: {dict(stream.headers)}")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(make(Calls(**json.loads(sys.stdin.readline()))))))
