"""What becomes of answers when ten times as many questions come as can be answered.

    python -m scripts.bench.load.overload [--full] [--times 10] [--seconds 30] [--generator FOLDER] [--shared] [--json]

A daemon of its own serves the samples with its defaults. First clients ask as much as it can answer, several numbers of
them after each other; the most answers a second are the peak. Then ten times as many questions a second come, whatever
becomes of them, for half a minute, with --full for ten. Clients have the last processor to themselves and the daemon
the others, as if they were on another machine; with --shared all have all. Take the figures on a machine that does
nothing else. Exits with 1 where a bound is not kept:

- answers a second at least 90% of the peak
- 99% of refusals within 50 ms, and each of them says when to come back
- no queue longer than its bound
- memory flat: the most of the last third at most 5% over the most of the first
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import grpc

from edge_rag.api.v1 import rag_pb2, rag_pb2_grpc
from scripts.bench.harness.command import make_parser, print_json
from scripts.bench.harness.daemon import Daemon, Watched, daemon_with_samples
from scripts.bench.harness.figures import percentile
from scripts.bench.harness.processors import divided, work_on

LEAST_GOODPUT = 0.9
SLOWEST_REFUSAL_S = 0.05
MOST_GROWTH = 1.05
_AT_ONCE = (8, 32, 96)
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


def clients(
    address: str, seconds: float, deadline_s: float, at_once: int | None = None, a_second: float | None = None
) -> list[Ended]:
    """Has another process keep so many questions under way, or begin so many a second; returns how they ended."""
    loop = ["--at-once", str(at_once)] if at_once is not None else ["--a-second", str(a_second)]
    times = ["--seconds", str(seconds), "--deadline", str(deadline_s)]
    command = [sys.executable, "-m", "scripts.bench.load.overload", "--asking", address, *loop, *times]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [Ended(**each) for each in json.loads(done.stdout)]


@dataclass(frozen=True)
class Figures:
    """What was measured; rates are a second, ``share`` is goodput by peak, ``fill`` the fullest queue by its bound."""

    peak: float
    offered: float
    goodput: float
    share: float
    refused: int
    failed: dict[str, int]
    without_pushback: int
    refusal_p50_ms: float
    refusal_p99_ms: float
    answer_p50_s: float
    fill: float
    resident_first_mib: float
    resident_last_mib: float
    unanswered: int

    def broken(self) -> list[str]:
        """The bounds that are not kept."""
        growth = self.resident_last_mib / self.resident_first_mib
        bounds = (
            (self.share < LEAST_GOODPUT, f"goodput is {self.share:.0%} of the peak, at least {LEAST_GOODPUT:.0%}"),
            (
                self.refusal_p99_ms > 1000 * SLOWEST_REFUSAL_S,
                f"99% of refusals take {self.refusal_p99_ms:.0f} ms, at most {1000 * SLOWEST_REFUSAL_S:.0f}",
            ),
            (self.without_pushback > 0, f"{self.without_pushback} refusals did not say when to come back"),
            (self.fill > 1, f"a queue was at {self.fill:.0%} of its bound"),
            (growth > MOST_GROWTH, f"memory grew to {growth:.0%}, at most {MOST_GROWTH:.0%}"),
            (self.refused == 0, "nothing was refused: that was no overload"),
        )
        return [problem for is_broken, problem in bounds if is_broken]


def answers_a_second(ends: list[Ended], began_s: float, seconds: float) -> float:
    """Answers that came within the time, a second."""
    done = (end for end in ends if end.status == "OK" and began_s <= end.began_s + end.took_s <= began_s + seconds)
    return sum(1 for _ in done) / seconds


def peak_of(there: Daemon, seconds: float, deadline_s: float) -> float:
    """Most answers a second with several numbers of clients, after some to warm up."""
    best = 0.0
    for at_once in (_AT_ONCE[0], *_AT_ONCE):
        ends = clients(there.address, seconds, deadline_s, at_once=at_once)
        first = min(end.began_s for end in ends)
        rate = answers_a_second(ends, first, seconds)
        print(f"{at_once:4} at once: {rate:6.1f} answers a second", file=sys.stderr)
        best = max(best, rate)
    return best


def figures(peak: float, offered: float, ends: list[Ended], seen: Watched, seconds: float) -> Figures:
    """Sums an overload up. Goodput is counted once queues are full: the first tenth is left out."""
    first = min(end.began_s for end in ends) + 0.1 * seconds
    goodput = answers_a_second(ends, first, 0.9 * seconds)
    refused = [end for end in ends if end.status == "RESOURCE_EXHAUSTED"]
    others = [end.status for end in ends if end.status not in ("OK", "RESOURCE_EXHAUSTED")]
    third = max(1, len(seen.resident_mib) // 3)
    return Figures(
        peak=peak,
        offered=offered,
        goodput=goodput,
        share=goodput / peak,
        refused=len(refused),
        failed={status: others.count(status) for status in sorted(set(others))},
        without_pushback=sum(not end.pushback for end in refused),
        refusal_p50_ms=1000 * percentile([end.took_s for end in refused], 0.5),
        refusal_p99_ms=1000 * percentile([end.took_s for end in refused], 0.99),
        answer_p50_s=percentile([end.took_s for end in ends if end.status == "OK"], 0.5),
        fill=seen.fill,
        resident_first_mib=max(seen.resident_mib[:third]),
        resident_last_mib=max(seen.resident_mib[-third:]),
        unanswered=seen.unanswered,
    )


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--full", action="store_true", help="ten minutes of overload")
    parser.add_argument("--seconds", type=float, default=30, help="how long otherwise, seconds (default: 30)")
    parser.add_argument("--peak-seconds", type=float, default=10, help="how long the peak is looked for (default: 10)")
    parser.add_argument("--times", type=float, default=10, help="how much more than the peak (default: 10)")
    parser.add_argument("--deadline", type=float, default=60, help="deadline of each question, seconds (default: 60)")
    parser.add_argument("--generator", type=Path, help="folder of a language model [none: answers are quotes]")
    parser.add_argument("--shared", action="store_true", help="clients and daemon work on the same processors")
    parser.add_argument("--asking", dest="address", help=argparse.SUPPRESS)
    parser.add_argument("--at-once", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--a-second", type=float, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.address:
        print(json.dumps([asdict(end) for end in run(wanted)]))
        return
    seconds = 600.0 if wanted.full else wanted.seconds
    processors = divided()
    if not wanted.shared:
        work_on(processors.senders)
    with daemon_with_samples(
        processors=None if wanted.shared else processors.daemon, generator=wanted.generator
    ) as there:
        peak = peak_of(there, wanted.peak_seconds, wanted.deadline)
        offered = wanted.times * peak
        print(f"{offered:.0f} questions a second for {seconds:.0f} s", file=sys.stderr)
        with there.watched() as seen:
            ends = clients(there.address, seconds, wanted.deadline, a_second=offered)
    found = figures(peak, offered, ends, seen, seconds)
    if wanted.json:
        print_json(found)
    else:
        print(f"peak        {found.peak:8.1f} answers a second")
        print(f"offered     {found.offered:8.1f} questions a second, {found.refused} refused, failed: {found.failed}")
        print(f"goodput     {found.goodput:8.1f} answers a second, {found.share:.0%} of the peak")
        print(f"refusals    p50 {found.refusal_p50_ms:.1f} ms, p99 {found.refusal_p99_ms:.1f} ms")
        print(f"answers     p50 {found.answer_p50_s:.2f} s")
        print(f"queues      at most {found.fill:.0%} of their bounds, {found.unanswered} looks without an answer")
        print(f"memory      {found.resident_first_mib:.0f} MiB at first, {found.resident_last_mib:.0f} MiB at last")
    problems = found.broken()
    for problem in problems:
        print(f"not kept: {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
