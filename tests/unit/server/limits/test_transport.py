from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc

from edge_rag.bootstrap.network import transport_limits
from edge_rag.config.settings import Settings
from tests.support.raw_connection import RawConnection

ECHO = "/test.Test/Echo"
HASTY_CONNECTIONS = 9
RESETS = 500


class Echo(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Answers every call with its request."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        async def echo(request: bytes, _: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            return request

        return grpc.unary_unary_rpc_method_handler(echo)


def open_and_reset(address: str) -> None:
    with suppress(ConnectionError), RawConnection(address, source="127.0.0.68") as hasty:
        for _ in range(RESETS):
            hasty.reset(hasty.call(ECHO, b"never mind"))
        hasty.read(0.2)


async def test_resets_of_one_connection_cancel_no_call_of_another_while_the_server_is_busy() -> None:
    server = grpc.aio.server(options=transport_limits(Settings()).options())
    server.add_generic_rpc_handlers((Echo(),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    begun = threading.Barrier(2)

    def flooded_and_asked(call: Callable[..., Any]) -> list[grpc.Future[bytes]]:
        for _ in range(HASTY_CONNECTIONS):
            open_and_reset(address)
        asked = [call.future(b"%d" % number, timeout=60) for number in range(50)]  # type: ignore[attr-defined]
        begun.wait(60)
        return asked

    try:
        with ThreadPoolExecutor(1) as pool, grpc.insecure_channel(address) as channel:
            coming = pool.submit(flooded_and_asked, channel.unary_unary(ECHO, bytes, bytes))
            begun.wait(60)  # on the event loop, which so looks at no call before all have begun
            answers = await asyncio.to_thread(lambda: [each.result() for each in coming.result()])
    finally:
        await server.stop(0)
    assert answers == [b"%d" % number for number in range(50)]
