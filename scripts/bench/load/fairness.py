"""How long one caller waits beside another that sends all it may.

    python -m scripts.bench.load.fairness [--at-once 16] [--calls 40] [--shared] [--json]

A daemon with TLS has two callers with a token each. One searches for a word, asks a short question or stores a page of
text, again and again: first alone, then beside the other one, which keeps as many calls under way as told: searches of
8,190 characters for a hundred passages with explanations, long asks of the same length, or documents of 300 KB. The
target is a 95th percentile of at most twice the one alone plus one step, the longest thing that a stage or the engine
does at once for one of the other's calls, measured on the idle box: the time of a stage, or of the generator divided by
its model steps. All figures are from one run. Clients work on the last processor and the daemon on the others, unless
--shared is given. Exits with 1 where the target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from edge_rag.api.v1 import documents_pb2, documents_pb2_grpc, rag_pb2, rag_pb2_grpc
from scripts.bench.harness.command import SMALL_GENERATOR, make_parser, print_json
from scripts.bench.harness.daemon import Daemon, add_generator, ingest_samples, running
from scripts.bench.harness.figures import percentile
from scripts.bench.harness.processors import divided, on, work_on

CHARACTERS: Final = 8190
DOCUMENT_BYTES: Final = 300_000
PAIRS: Final = (
    ("search", "searches"),
    ("search", "asks"),
    ("ask", "searches"),
    ("ask", "asks"),
    ("ingest", "documents"),
)
"""Who is measured, and what the other one sends meanwhile."""

_WORDS = ("pump", "bearing", "grease", "seal", "valve", "filter", "compressor", "alarm", "cabinet", "oil", "motor")
_PAGE = "The {0} of the {1} is checked every {2} hours and replaced after {3} hours of work. "
_BACKGROUND_DOCUMENTS = 40
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Waited:
    """How long one caller's calls took alone and beside the other's."""

    call: str
    beside: str
    alone_p50_s: float
    alone_p95_s: float
    beside_p50_s: float
    beside_p95_s: float
    step_s: float
    failed: int
    others_answered: int
    others_refused: int

    @property
    def ratio(self) -> float:
        return self.beside_p95_s / self.alone_p95_s

    @property
    def kept(self) -> bool:
        return self.failed == 0 and self.beside_p95_s <= 2 * self.alone_p95_s + self.step_s


class Caller:
    """A caller of the daemon."""

    def __init__(self, channel: grpc.aio.Channel, seed: int) -> None:
        self._rag: Any = rag_pb2_grpc.RagStub(channel)
        self._documents: Any = documents_pb2_grpc.DocumentsStub(channel)
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._seed = seed

    async def search(self) -> float:
        """Searches for a word; returns the longest time of a stage, seconds."""
        found = await self._rag.Search(rag_pb2.SearchRequest(query=self._random.choice(_WORDS)), timeout=_TIMEOUT_S)
        return _longest(found.stages)

    async def ask(self) -> float:
        return await self._ask(f"How often is the {self._random.choice(_WORDS)} checked?", 24)

    async def ingest(self) -> float:
        await self._ingest(2000)
        return 0.0

    async def searches(self) -> float:
        request = rag_pb2.SearchRequest(query=self._text(CHARACTERS), limit=100, explain=True)
        return _longest((await self._rag.Search(request, timeout=_TIMEOUT_S)).stages)

    async def asks(self) -> float:
        return await self._ask(self._text(CHARACTERS // 4) + "?", 256)

    async def documents(self) -> float:
        await self._ingest(DOCUMENT_BYTES)
        return 0.0

    async def step(self, call: str) -> float:
        """Makes one of its calls, an ask for one token only; returns the time of its longest step, seconds."""
        if call == "asks":
            return await self._ask(self._text(CHARACTERS // 4) + "?", 1)
        return float(await getattr(self, call)())

    async def _ask(self, question: str, tokens: int) -> float:
        request = rag_pb2.AskRequest(question=question, mode=rag_pb2.ANSWER_MODE_FREE)
        request.sampling.max_tokens = tokens
        longest = 0.0
        async for event in self._rag.Ask(request, timeout=_TIMEOUT_S):
            if event.HasField("finished"):
                *stages, generator = event.finished.stages
                steps = max(1, event.finished.usage.model_steps)
                longest = max(_longest(stages), generator.compute_seconds / steps)
        return longest

    async def _ingest(self, size: int) -> None:
        name, text = f"page-{self._seed}-{next(self._numbers)}.txt", self._text(size)

        async def parts() -> AsyncIterator[documents_pb2.IngestRequest]:
            yield documents_pb2.IngestRequest(
                header=documents_pb2.IngestRequest.Header(name=name, collection=f"c{self._seed}")
            )
            for first in range(0, len(text), 1 << 16):
                yield documents_pb2.IngestRequest(content=text[first : first + (1 << 16)].encode())

        await self._documents.Ingest(parts(), timeout=_TIMEOUT_S)

    def _text(self, size: int) -> str:
        draw = self._random
        text = ""
        while len(text) < size:
            text += _PAGE.format(draw.choice(_WORDS), draw.choice(_WORDS), draw.randrange(9999), draw.randrange(9999))
        return text[:size].strip()


def _longest(stages: Any) -> float:
    return max((stage.compute_seconds for stage in stages), default=0.0)


@contextlib.asynccontextmanager
async def caller(address: str, authority: bytes, token: str, seed: int) -> AsyncIterator[Caller]:
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(authority), grpc.access_token_call_credentials(token)
    )
    async with grpc.aio.secure_channel(address, credentials) as channel:
        yield Caller(channel, seed)


async def measured(call: Callable[[], Awaitable[float]], count: int) -> tuple[list[float], int]:
    """Makes calls one after the other; returns their times and how many failed."""
    times: list[float] = []
    failed = 0
    for _ in range(count):
        began = time.perf_counter()
        try:
            await call()
        except grpc.aio.AioRpcError as error:
            print(f"{error.code().name}: {error.details()}", file=sys.stderr)
            failed += 1
        times.append(time.perf_counter() - began)
    return times, failed


async def press(wanted: argparse.Namespace, trusted: bytes) -> None:
    """Keeps so many calls under way until standard input ends, then prints how many were answered and refused."""
    address, _, token = wanted.to
    answered, refused = itertools.count(), itertools.count()
    async with caller(address, trusted, token, 3) as other:

        async def one() -> None:
            while True:
                try:
                    await getattr(other, wanted.press)()
                    next(answered)
                except grpc.aio.AioRpcError:
                    next(refused)
                    await asyncio.sleep(0.05)

        tasks = [asyncio.create_task(one()) for _ in range(wanted.at_once)]
        print("under way", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps([next(answered), next(refused)]))


@contextlib.contextmanager
def pressing(arguments: list[str], counts: list[int]) -> Iterator[None]:
    """Has another process press the daemon for the duration of the block; adds answered and refused calls."""
    command = [sys.executable, "-m", "scripts.bench.load.fairness", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        out, _ = process.communicate(timeout=60)
        counts += json.loads(out)
    finally:
        process.kill()
        process.wait()


async def compared(
    daemon: Daemon, authority: Path, trusted: bytes, tokens: Sequence[str], wanted: argparse.Namespace
) -> list[Waited]:
    """Measures each pair, over documents that are there."""
    async with grpc.aio.insecure_channel(daemon.local) as channel:
        background = Caller(channel, 0)
        for _ in range(_BACKGROUND_DOCUMENTS):
            await background.ingest()
    found: list[Waited] = []
    async with (
        caller(daemon.address, trusted, tokens[0], 1) as one,
        caller(daemon.address, trusted, tokens[1], 2) as other,
    ):
        for call, beside in (pair for pair in PAIRS if wanted.only is None or pair[0] in wanted.only):
            act = getattr(one, call)
            await measured(act, 3)
            alone, failed = await measured(act, wanted.calls)
            step_s = max([await other.step(beside) for _ in range(2)])
            counts: list[int] = []
            to = [daemon.address, str(authority), tokens[1]]
            with pressing(["--press", beside, "--at-once", str(wanted.at_once), *to], counts):
                await measured(act, 2)
                others, more_failed = await measured(act, wanted.calls)
            alone_p50, alone_p95 = percentile(alone, 0.5), percentile(alone, 0.95)
            times = (alone_p50, alone_p95, percentile(others, 0.5), percentile(others, 0.95))
            found.append(Waited(call, beside, *times, step_s, failed + more_failed, counts[0], counts[1]))
            print(_line(found[-1]), file=sys.stderr)
    return found


def _line(waited: Waited) -> str:
    return (
        f"{waited.call:7} beside {waited.beside:10} alone p50 {waited.alone_p50_s:.3f} p95 {waited.alone_p95_s:.3f} s, "
        f"beside p50 {waited.beside_p50_s:.3f} p95 {waited.beside_p95_s:.3f} s ({waited.ratio:.1f} times), "
        f"step {waited.step_s:.3f} s, others {waited.others_answered} answered {waited.others_refused} refused"
        f"{'' if waited.kept else ': NOT KEPT'}"
    )


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--at-once", type=int, default=16, help="calls that the other keeps under way (default: 16)")
    parser.add_argument("--calls", type=int, default=40, help="calls that are measured of each kind (default: 40)")
    parser.add_argument("--only", action="append", choices=["search", "ask", "ingest"], help="measure this call only")
    parser.add_argument("--shared", action="store_true", help="clients and daemon work on the same processors")
    parser.add_argument("--press", choices=sorted({beside for _, beside in PAIRS}), help=argparse.SUPPRESS)
    parser.add_argument("to", nargs="*", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.press:
        asyncio.run(press(wanted, Path(wanted.to[1]).read_bytes()))
        return
    processors = divided()
    if not wanted.shared:
        work_on(processors.senders)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")

        def command(*arguments: str) -> str:
            given = [sys.executable, "-m", "edge_rag", *arguments, "--data-dir", str(data)]
            return subprocess.run(given, check=True, capture_output=True, text=True).stdout.strip()

        command("tls", "init", "--host", "127.0.0.1")
        create = ("token", "create", "--roles", "reader,writer", "--name")
        tokens = [command(*create, name) for name in ("one", "other")]
        prefix = [] if wanted.shared else on(processors.daemon)
        config = add_generator(SMALL_GENERATOR, data) + "[tls]\nalways = true\n"
        with running(data, config, prefix=prefix) as daemon:
            ingest_samples(daemon.local)
            authority = data / "tls" / "ca.pem"
            found = asyncio.run(compared(daemon, authority, authority.read_bytes(), tokens, wanted))
    if wanted.json:
        print_json([asdict(each) | {"ratio": each.ratio, "kept": each.kept} for each in found])
    else:
        for each in found:
            print(_line(each))
    sys.exit(0 if all(each.kept for each in found) else 1)


if __name__ == "__main__":
    main()
