"""Clients that ask questions, in a process of their own: so many at a time, or so many a second whatever comes of them.

    python -m scripts.bench.load.clients ADDRESS --at-once 16 --seconds 10
    python -m scripts.bench.load.clients ADDRESS --a-second 200 --seconds 10

Prints one line of JSON: for each call how it ended, when it began and how long it took.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, cast

import grpc

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc

QUESTIONS = (
    "How often must the pump bearings be greased?",
    "What do I do when the gas alarm sounds?",
    "Which seal belongs to the inlet valve?",
    "Who may open the electrical cabinet?",
    "When is the duty pump changed?",
    "What is checked before the compressor is started?",
    "Where is the emergency stop?",
    "How is the filter cleaned?",
)
PUSHBACK = "grpc-retry-pushback-ms"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended: its gRPC status, its begin (``time.time()``), and whether the end said when to come back."""

    status: str
    began_s: float
    took_s: float
    pushback: bool


async def ask(stub: Any, number: int, deadline_s: float) -> Ended:
    began, at = time.perf_counter(), time.time()
    status, pushback = "OK", False
    try:
        request = rag_pb2.AskRequest(question=QUESTIONS[number % len(QUESTIONS)])
        async for _ in stub.Ask(request, timeout=deadline_s):
            pass
    except grpc.aio.AioRpcError as error:
        status = error.code().name
        pushback = PUSHBACK in dict(cast(Any, error.trailing_metadata()) or ())
    return Ended(status, at, time.perf_counter() - began, pushback)


async def at_once(stub: Any, count: int, seconds: float, deadline_s: float) -> list[Ended]:
    """Keeps so many questions under way; one that is refused waits a tenth of a second before the next."""
    ends: list[Ended] = []
    until = time.perf_counter() + seconds
    numbers = itertools.count(random.randrange(len(QUESTIONS)))

    async def client() -> None:
        while time.perf_counter() < until:
            ends.append(await ask(stub, next(numbers), deadline_s))
            if ends[-1].status != "OK":
                await asyncio.sleep(0.1)

    await asyncio.gather(*(client() for _ in range(count)))
    return ends


async def a_second(stub: Any, rate: float, seconds: float, deadline_s: float) -> list[Ended]:
    """Begins so many questions a second at random moments, whatever becomes of those before (a Poisson process)."""
    began = time.perf_counter()
    in_flight: list[asyncio.Task[Ended]] = []
    draw = random.Random(7)
    next_at = 0.0
    while (next_at := next_at + draw.expovariate(rate)) < seconds:
        await asyncio.sleep(max(0.0, began + next_at - time.perf_counter()))
        in_flight.append(asyncio.create_task(ask(stub, len(in_flight), deadline_s)))
    return list(await asyncio.gather(*in_flight))


def run(wanted: argparse.Namespace) -> list[Ended]:
    """Asks as wanted. Python's pauses for collecting garbage are kept short: they would be measured as the daemon's."""
    gc.freeze()
    gc.set_threshold(20_000, 1_000_000)
    return asyncio.run(_run(wanted))


async def _run(wanted: argparse.Namespace) -> list[Ended]:
    async with contextlib.AsyncExitStack() as stack:
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(wanted.address))
        stub = rag_pb2_grpc.RagStub(channel)
        if wanted.at_once:
            return await at_once(stub, wanted.at_once, wanted.seconds, wanted.deadline)
        return await a_second(stub, wanted.a_second, wanted.seconds, wanted.deadline)


class Clients:
    """Such a process, as its starter sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ends(self) -> list[Ended]:
        out, _ = self._process.communicate()
        if self._process.returncode:
            raise SystemExit("the clients failed")
        return [Ended(**each) for each in json.loads(out)]


@contextlib.contextmanager
def clients(
    address: str, seconds: float, deadline_s: float, at_once: int | None = None, a_second: float | None = None
) -> Iterator[Clients]:
    """Has a process keep so many questions under way, or begin so many a second, and ends it in any case."""
    loop = ["--at-once", str(at_once)] if at_once is not None else ["--a-second", str(a_second)]
    times = ["--seconds", str(seconds), "--deadline", str(deadline_s)]
    command = [sys.executable, "-m", "scripts.bench.load.clients", address, *loop, *times]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield Clients(process)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--at-once", type=int)
    kind.add_argument("--a-second", type=float)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--deadline", type=float, default=30)
    print(json.dumps([asdict(end) for end in run(parser.parse_args())]))


if __name__ == "__main__":
    main()
