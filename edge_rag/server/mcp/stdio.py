"""The Model Context Protocol over standard input and output: a message is a line."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from edge_rag.errors import EdgeRagError
from edge_rag.server.mcp import protocol
from edge_rag.server.mcp.box import Box
from edge_rag.server.mcp.protocol import Cancellation, Ignored, ProtocolError, Reply, ToolCall

MOST_LINE_BYTES: Final = 4 << 20
"""Longest message."""

MOST_CALLS: Final = 32
"""Most calls of tools that run at once; the daemon has bounds of its own for each of them."""

_READ_BYTES: Final = 64 << 10


class StdioServer:
    """Answers messages. Calls of tools run beside each other; their responses come in any order.

    Args:
        failures: Errors of the daemon whose text the caller of a tool gets.
    """

    def __init__(self, box: Box, failures: tuple[type[Exception], ...], write: Callable[[bytes], None]) -> None:
        self._box = box
        self._failures: tuple[type[Exception], ...] = (EdgeRagError, *failures)
        self._write = write
        self._running: dict[protocol.Token, asyncio.Task[None]] = {}

    async def serve(self, lines: AsyncIterator[bytes | None]) -> None:
        """Answers each line until there are no more; then calls that still run are cancelled.

        Args:
            lines: The lines; None for one that is longer than ``MOST_LINE_BYTES``.
        """
        async with asyncio.TaskGroup() as calls:
            async for line in lines:
                if line is None:
                    problem = f"the message has more than {MOST_LINE_BYTES:,} bytes"
                    self._send(protocol.error_response(None, protocol.INVALID_REQUEST, problem))
                elif line.strip():
                    self._answer(line, calls)
            for task in self._running.values():
                task.cancel()

    def _answer(self, line: bytes, calls: asyncio.TaskGroup) -> None:
        try:
            message = protocol.read(line)
        except ProtocolError as error:
            self._send(error.response())
            return
        match message:
            case Reply():
                self._send(message.response)
            case Cancellation() if message.request_id in self._running:
                self._running[message.request_id].cancel()
            case ToolCall() if message.request_id in self._running:
                problem = "a call with this id still runs"
                self._send(protocol.error_response(message.request_id, protocol.INVALID_REQUEST, problem))
            case ToolCall() if len(self._running) >= MOST_CALLS:
                self._send(message.failure(f"{MOST_CALLS} calls run already; call again when one of them has ended"))
            case ToolCall():
                task = calls.create_task(self._call(message))
                self._running[message.request_id] = task
                task.add_done_callback(lambda _: self._running.pop(message.request_id))
            case Cancellation() | Ignored():
                pass

    async def _call(self, wanted: ToolCall) -> None:
        async def report(amount: int, message: str) -> None:
            self._send(wanted.progress(amount, message))

        try:
            value = await wanted.tool.call(
                self._box, wanted.arguments, None if wanted.progress_token is None else report
            )
            response = wanted.response(value, json.dumps(value, ensure_ascii=False))
        except self._failures as error:
            response = wanted.failure(str(error))
        except Exception:  # noqa: BLE001 - one call that fails must not end the others
            traceback.print_exc()
            response = wanted.failure("internal error; the standard error of `edge-rag mcp` has it")
        self._send(response)

    def _send(self, message: Mapping[str, Any]) -> None:
        self._write(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


async def lines_of(descriptor: int) -> AsyncIterator[bytes | None]:
    """Yields the lines that a file descriptor has, as they come; None for each that is longer than ``MOST_LINE_BYTES``.

    A thread reads, because descriptors of files cannot be waited for. It reads no further than requested, and
    keeps no process alive.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue(1)

    def read() -> None:
        while True:
            piece = os.read(descriptor, _READ_BYTES)
            try:
                asyncio.run_coroutine_threadsafe(pieces.put(piece), loop).result()
            except (RuntimeError, asyncio.CancelledError):  # the loop has ended
                return
            if not piece:
                return

    threading.Thread(target=read, name="standard input", daemon=True).start()
    line, too_long = bytearray(), False
    while piece := await pieces.get():
        *ended, rest = piece.split(b"\n")
        for part in ended:
            line += part
            yield None if too_long or len(line) > MOST_LINE_BYTES else bytes(line)
            line, too_long = bytearray(), False
        line += rest
        if len(line) > MOST_LINE_BYTES:
            line, too_long = bytearray(), True
    if line and not too_long:
        yield bytes(line)
