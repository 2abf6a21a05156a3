"""Strangers on the network that want to keep everybody else out: a process of its own, in their network namespace.

Reads its orders as JSON from standard input, says ``flooding`` once it has opened many connections, and on SIGTERM what
it did, as JSON: connections opened and calls answered by kind of stranger.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import signal
import socket
import ssl
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass

import h2.config
import h2.connection
import h2.events

from edge_rag.api.v1 import access_pb2
from edge_rag.core.pairing_code import SYMBOLS

_FREEBIND = 15
"""IP_FREEBIND of linux/in.h: any address that is routed here can be used, without an interface that has it."""

_PAIR = "/edge_rag.v1.Access/Pair"
_ASK = "/edge_rag.v1.Rag/Ask"
_RESETS_AT_ONCE = 20
_MANY = 400
"""Connections from which on there is a flood."""


@dataclass(frozen=True)
class Orders:
    """What strangers do.

    Attributes:
        address: The daemon's, without the port, by version of IP.
        port: Its port.
        sources: Addresses that they come from; each is of one kind.
        connections: How many each address has at once, by kind: silent, handshake, idle, codes, resets.
        pause_s: How long each waits before it opens another connection after its was closed, seconds.
    """

    address: dict[str, str]
    port: int
    sources: list[str]
    connections: dict[str, int]
    pause_s: float

    def json(self) -> str:
        return json.dumps(asdict(self))


class Strangers:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._tls.set_alpn_protocols(["h2"])
        self._kinds: dict[str, Callable[[str], Awaitable[None]]] = {
            "silent": self._silent,
            "handshake": self._handshake,
            "idle": self._idle,
            "codes": self._codes,
            "resets": self._resets,
        }
        self._many = asyncio.Event()
        self.opened: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    async def flood(self) -> None:
        wanted = [
            (kind, source)
            for index, (kind, count) in enumerate(self._orders.connections.items())
            for source in self._orders.sources[index :: len(self._orders.connections)]
            for _ in range(count)
        ]
        random.Random(0).shuffle(wanted)
        done = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
        self._tasks = [asyncio.create_task(self._again_and_again(kind, source)) for kind, source in wanted]
        await self._many.wait()
        _say("flooding")
        await done.wait()
        _say(json.dumps({"opened": self.opened, "answered": self.answered}))
        os._exit(0)  # thousands of connections need not be closed one by one

    async def _again_and_again(self, kind: str, source: str) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._kinds[kind](source)
            await asyncio.sleep(self._orders.pause_s)

    def _count(self, kind: str, source: str) -> None:
        self.opened[f"{kind} over IPv{_version(source)}"] += 1
        if self.opened.total() >= _MANY:
            self._many.set()

    async def _connect(self, source: str) -> socket.socket:
        version = _version(source)
        connection = socket.socket(socket.AF_INET6 if version == "6" else socket.AF_INET)
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_IP, _FREEBIND, 1)
            connection.bind((source, 0))
            to = (self._orders.address[version], self._orders.port)
            await asyncio.wait_for(asyncio.get_running_loop().sock_connect(connection, to), 3)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _silent(self, source: str, hello: bytes = b"") -> None:
        connection = await self._connect(source)
        with connection:
            self._count("handshake" if hello else "silent", source)
            loop = asyncio.get_running_loop()
            if hello:
                await loop.sock_sendall(connection, hello)
            while await loop.sock_recv(connection, 1 << 16):
                pass

    async def _handshake(self, source: str) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            self._tls.wrap_bio(incoming, outgoing, server_hostname="box").do_handshake()
        await self._silent(source, outgoing.read())

    async def _idle(self, source: str) -> None:
        connection = await _Http2.connect(await self._connect(source), self._tls)
        self._count("idle", source)
        try:
            while await connection.receive():
                pass
        finally:
            connection.close()

    async def _codes(self, source: str) -> None:
        connection = await _Http2.connect(await self._connect(source), self._tls)
        self._count("codes", source)
        try:
            while True:
                key = "".join(random.choices(SYMBOLS, k=4))
                request = access_pb2.PairRequest(key=key, secret="0" * 12).SerializeToString()
                stream = connection.call(_PAIR, request)
                while stream not in connection.ended:
                    if not await connection.receive():
                        return
                self.answered["codes"] += 1
                await asyncio.sleep(0.2)
        finally:
            connection.close()

    async def _resets(self, source: str) -> None:
        connection = await _Http2.connect(await self._connect(source), self._tls)
        self._count("resets", source)
        try:
            while True:
                for _ in range(_RESETS_AT_ONCE):
                    connection.reset(connection.call(_ASK, b""))
                self.answered["resets"] += _RESETS_AT_ONCE
                if not await connection.receive(0.02):
                    return
        finally:
            connection.close()


class _Http2:
    """HTTP/2 over TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self._h2.initiate_connection()
        self.ended: set[int] = set()
        self._send()

    @classmethod
    async def connect(cls, connection: socket.socket, tls: ssl.SSLContext) -> _Http2:
        try:
            return cls(*await asyncio.open_connection(sock=connection, ssl=tls, server_hostname="box"))
        except BaseException:
            connection.close()
            raise

    def call(self, path: str, message: bytes) -> int:
        stream = self._h2.get_next_available_stream_id()
        headers = [(":method", "POST"), (":scheme", "https"), (":path", path), (":authority", "box")]
        self._h2.send_headers(stream, [*headers, ("content-type", "application/grpc"), ("te", "trailers")])
        self._h2.send_data(stream, b"\0" + struct.pack(">I", len(message)) + message, end_stream=True)
        self._send()
        return stream

    def reset(self, stream: int) -> None:
        self._h2.reset_stream(stream, 8)
        self._send()

    async def receive(self, seconds: float | None = None) -> bool:
        """Takes in what comes within the time; returns whether the connection is open."""
        try:
            data = await asyncio.wait_for(self._reader.read(1 << 16), seconds)
        except TimeoutError:
            return True
        if not data:
            return False
        for event in self._h2.receive_data(data):
            match event:
                case h2.events.StreamEnded() | h2.events.StreamReset():
                    self.ended.add(event.stream_id or 0)
                case h2.events.ConnectionTerminated():
                    return False
        self._send()
        return True

    def close(self) -> None:
        self._writer.transport.abort()

    def _send(self) -> None:
        if data := self._h2.data_to_send():
            self._writer.write(data)


def _version(address: str) -> str:
    return "6" if ":" in address else "4"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(Strangers(Orders(**json.loads(sys.stdin.readline()))).flood())


if __name__ == "__main__":
    main()
