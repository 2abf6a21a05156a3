"""Checks answer formats in a process with limits before a request may use them, fairly among callers.

One format is checked at a time, that of the caller whose checks have taken the least processor time so far. Verdicts
are cached, so a format that is used again costs nothing, and neither does one that was refused.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from edge_rag.core.limits.limited_process import LimitedProcess, ProcessAnswer, ProcessFailure, ProcessLimits
from edge_rag.core.query import AnswerFormat, JsonSchema
from edge_rag.errors import InvalidRequest, Overloaded
from edge_rag.generator.constraints.trial import encode_trial

CHECK_LIMITS: Final = ProcessLimits(memory_bytes=128 << 20, cpu_seconds=3, wall_seconds=20.0, answer_bytes=8192)
"""Limits of one check. The costliest formats within the bounds of size take a tenth of them."""

MOST_WAITING: Final = 8
"""Checks of one caller that may wait; further ones are refused."""

CACHED_VERDICTS: Final = 1024
"""Verdicts kept, some hundred bytes each."""

IDLE_SECONDS: Final = 60.0
"""Time after the last check until the process is ended; it holds about 40 MiB."""

_TRIAL: Final = "edge_rag.generator.constraints.trial:try_format"
_RETRY_S: Final = 2.0
_LONGEST_PROBLEM: Final = 400


class FormatChecker:
    """Checks formats. Used from one event loop.

    Args:
        try_format: Tries a format and returns why it cannot be used, or nothing; None for a process of its own.
        idle_s: Time after the last check until the process is ended, seconds.
    """

    def __init__(
        self, try_format: Callable[[bytes], ProcessAnswer] | None = None, idle_s: float = IDLE_SECONDS
    ) -> None:
        self._process = LimitedProcess(_TRIAL, CHECK_LIMITS)
        self._try = try_format or self._process.call
        self._idle_s = idle_s
        self._thread = ThreadPoolExecutor(1, "format-check")
        self._verdicts: OrderedDict[bytes, str] = OrderedDict()
        self._used_s: dict[str, float] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._busy = False
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """Id of the process, or None while there is none."""
        return self._process.pid

    async def check(self, form: AnswerFormat, client: str, charge: Callable[[float], None]) -> None:
        """Checks a format.

        Args:
            charge: Called with the processor seconds that the check took, if any.

        Raises:
            InvalidRequest: It cannot be used; has the field and the reason.
        """
        message = encode_trial(form)
        key = hashlib.sha256(message).digest()
        problem = self._verdicts.get(key)
        if problem is None:
            await self._turn(client)
            try:
                problem = self._verdicts.get(key)  # an equal one may have been checked meanwhile
                if problem is None:
                    problem = await self._checked(key, message, client, charge)
            finally:
                self._next()
        else:
            self._verdicts.move_to_end(key)
        if problem:
            raise InvalidRequest("json_schema" if isinstance(form, JsonSchema) else "regex", problem)

    def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._process.kill()
        self._thread.submit(self._process.close)
        self._thread.shutdown()

    async def _checked(self, key: bytes, message: bytes, client: str, charge: Callable[[float], None]) -> str:
        # A caller that has gone is charged all the same, and the next check waits for the end of this one.
        trying = asyncio.get_running_loop().run_in_executor(self._thread, self._twice, message)
        gone: asyncio.CancelledError | None = None
        try:
            answer = await asyncio.shield(trying)
        except asyncio.CancelledError as cancelled:
            gone, answer = cancelled, await trying
        self._used_s[client] += answer.cpu_s
        charge(answer.cpu_s)
        if gone is not None:
            raise gone
        if answer.body is ProcessFailure.START:
            raise Overloaded("format check", _RETRY_S)
        if isinstance(answer.body, ProcessFailure):  # not cached: the machine may just be short of time or memory
            return f"cannot be compiled: {answer.body.value}; use a simpler one"
        problem = answer.body.decode("utf-8", "replace")[:_LONGEST_PROBLEM]
        self._verdicts[key] = problem
        if len(self._verdicts) > CACHED_VERDICTS:
            self._verdicts.popitem(last=False)
        return problem

    def _twice(self, message: bytes) -> ProcessAnswer:
        """Tries a format, and again if the process was ended: it may not have been because of the format."""
        answer = self._try(message)
        if answer.body is not ProcessFailure.CRASH:
            return answer
        again = self._try(message)
        return replace(again, cpu_s=answer.cpu_s + again.cpu_s)

    async def _turn(self, client: str) -> None:
        """Waits until it is this caller's turn."""
        waiting = self._waiting.setdefault(client, deque())
        if sum(not turn.done() for turn in waiting) >= MOST_WAITING:
            raise Overloaded("format check", _RETRY_S)
        if client not in self._used_s:
            # A newcomer starts beside the least charged one: absence saves nothing up (start-time fair queueing).
            self._used_s[client] = min(self._used_s.values(), default=0.0)
        turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        if not self._busy:
            self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the turn had come, and is passed on
                self._next()
            raise

    def _next(self) -> None:
        """Gives the turn to the waiting caller that was charged least."""
        # Callers may have gone meanwhile.
        left = {client: deque(turn for turn in turns if not turn.done()) for client, turns in self._waiting.items()}
        self._waiting = {client: turns for client, turns in left.items() if turns}
        self._busy = bool(self._waiting)
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._waiting:
            client = min(self._waiting, key=lambda each: self._used_s[each])
            self._waiting[client].popleft().set_result(None)
        else:
            self._used_s.clear()
            self._idle = asyncio.get_running_loop().call_later(
                self._idle_s, lambda: self._thread.submit(self._process.close)
            )
