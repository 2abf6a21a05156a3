"""Puts a program under a load of requests that arrive when they do, and notes when their tokens come.

NumPy and the standard library only: every program reads it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scripts.bench.passages.workload import Trace

_AT_ONCE = 8
_WARM_NUMBERS, _ALONE_NUMBERS = 1_000_000, 2_000_000
"""Numbers of requests that are none of the trace's own."""


class Server(Protocol):
    """A program that answers prompts, several at once, and keeps what it computed for those that begin alike."""

    def submit(self, number: int, prompt: NDArray[np.int64], answer_tokens: int) -> None:
        """Takes a request; returns at once."""
        ...

    def turn(self, wait_s: float) -> list[tuple[int, bool]]:
        """Goes on with what there is, or waits at most that long if there is nothing.

        Returns:
            For each request of which tokens came: its number, and whether these were the last.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What a program is put through; requests are taken from the trace one after the other.

    Attributes:
        warm: Requests that fill its caches, eight at a time, with answers of one token.
        alone: Requests sent one at a time, and as many again with other questions about the same passages.
        trial_s: How long requests arrive in a trial, seconds.
        least: Requests of a trial at least.
        p95_s: Most that the 95th percentile of the time to the first token may be, seconds.
        first_rate: Rate of the first trial, requests a second.
        factor: Between the rates of two trials.
        most_trials: Trials there are at most.
    """

    warm: int
    alone: int
    trial_s: float
    least: int
    p95_s: float
    first_rate: float
    factor: float
    most_trials: int

    def trial(self, rate: float) -> int:
        """Returns how many requests a trial of a rate has."""
        return max(self.least, round(rate * self.trial_s))

    @property
    def requests(self) -> int:
        """Requests that it can take at most."""
        highest = (self.trial(self.first_rate * self.factor**number) for number in range(self.most_trials))
        return self.warm + 2 * self.alone + sum(highest)


@dataclass(frozen=True, slots=True)
class Trial:
    """One rate.

    Attributes:
        rate: Requests a second that were to come.
        requests: How many came; fewer than planned where so many were late that the bound could not be kept.
        late: How many had no first token within the bound.
        p50_s: Median time to the first token, seconds.
        p95_s: 95th percentile of it.
        kept: Whether at most one in twenty of those planned was late.
    """

    rate: float
    requests: int
    late: int
    p50_s: float
    p95_s: float
    kept: bool


@dataclass(frozen=True, slots=True)
class Served:
    """What was measured of a program.

    Attributes:
        next_p50_s: Median time to the first token of one request at a time, as the law draws them, seconds.
        again_p50_s: The same where the passages were asked about before, in this order, and the question is new.
        trials: The trials, in order.
        best: The highest rate at which the 95th percentile was kept, requests a second; 0 if none.
    """

    next_p50_s: float
    again_p50_s: float
    trials: tuple[Trial, ...]
    best: float


def warm(server: Server, trace: Trace, plan: Plan) -> None:
    """Fills the caches: with each passage once where the trace begins so, and with the first requests."""
    prompts = [*trace.cover, *trace.prompts[: plan.warm]]
    waiting, running = list(reversed(range(len(prompts)))), 0
    while waiting or running:
        while waiting and running < _AT_ONCE:
            number = waiting.pop()
            server.submit(_WARM_NUMBERS + number, prompts[number], 1)
            running += 1
        running -= sum(last for _, last in server.turn(1.0))


def measure(server: Server, trace: Trace, plan: Plan) -> Served:
    """Looks for the highest rate that a warm program bears.

    Rates rise by the factor until one is too high, or fall until one is not; one between these two is the last.
    """
    begin = plan.warm
    alone = trace.prompts[begin : begin + plan.alone]
    begin += plan.alone
    asked = trace.prompts[begin : begin + plan.alone, -trace.question_tokens :]
    again = np.concatenate([alone[:, : -trace.question_tokens], asked], axis=1)
    begin += plan.alone
    first = [_one(server, _ALONE_NUMBERS + number, prompt) for number, prompt in enumerate([*alone, *again])]
    trials: list[Trial] = []
    low, high, rate = 0.0, np.inf, plan.first_rate
    while len(trials) < plan.most_trials:
        count = plan.trial(rate)
        trials.append(_arriving(server, trace, range(begin, begin + count), rate, plan.p95_s))
        begin += count
        bracketed = low > 0 and high < np.inf
        low, high = (rate, high) if trials[-1].kept else (low, rate)
        if bracketed:
            break
        if low > 0 and high < np.inf:
            rate = float(np.sqrt(low * high))
        else:
            rate = rate * plan.factor if trials[-1].kept else rate / plan.factor
    next_p50_s, again_p50_s = (float(np.median(times)) for times in np.split(np.array(first), 2))
    return Served(next_p50_s, again_p50_s, tuple(trials), low)


def _one(server: Server, number: int, prompt: NDArray[np.int64]) -> float:
    began = time.perf_counter()
    server.submit(number, prompt, 1)
    while not any(last for _, last in server.turn(1.0)):
        pass
    return time.perf_counter() - began


def _arriving(server: Server, trace: Trace, numbers: range, rate: float, bound_s: float) -> Trial:
    gaps = trace.gaps[numbers.start : numbers.stop]
    due = (np.cumsum(gaps) - gaps[0]) / (gaps.mean() * rate)
    most_late = len(numbers) // 20
    started = time.perf_counter()
    waiting: dict[int, float] = {}
    times: list[float] = []
    sent = over = 0
    while over < sent or sent < len(numbers):
        now = time.perf_counter() - started
        while sent < len(numbers) and due[sent] <= now:
            number = numbers[sent]
            waiting[number] = float(due[sent])
            server.submit(number, trace.prompts[number], trace.answer_tokens)
            sent += 1
        wait = 1.0 if sent == len(numbers) else max(0.0, float(due[sent]) - now)
        for number, last in server.turn(wait):
            now = time.perf_counter() - started
            if number in waiting:
                times.append(now - waiting.pop(number))
            over += last
        late = sum(t > bound_s for t in times) + sum(now - since > bound_s for since in waiting.values())
        if late > most_late:
            numbers = numbers[:sent]
    late = sum(t > bound_s for t in times)
    return Trial(
        rate=rate,
        requests=sent,
        late=late,
        p50_s=float(np.median(times)),
        p95_s=float(np.percentile(times, 95)),
        kept=late <= most_late,
    )


def program(description: str | None, begin: Callable[[argparse.Namespace, Trace], Server]) -> None:
    """Runs a measured program: arguments in, figures into a file."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--plan", required=True, help="JSON")
    parser.add_argument("--figures", type=Path, required=True, help="file to write to")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=32, help="requests that run at once")
    parser.add_argument("--cache-mib", type=int, default=1024, help="memory for keys and values")
    parser.add_argument("--lock", type=Path, help="file whose lock is held meanwhile")
    parser.add_argument("--recompute", type=int, help="copy passages but for so many first tokens; ours only")
    arguments = parser.parse_args()
    trace, plan = Trace.read(arguments.trace), Plan(**json.loads(arguments.plan))
    server = begin(arguments, trace)
    with quiet(arguments.lock):
        warm(server, trace, plan)
        served = measure(server, trace, plan)
    arguments.figures.write_text(json.dumps(asdict(served)), encoding="utf-8")


@contextmanager
def quiet(lock: Path | None) -> Iterator[None]:
    """Holds a file's lock, on a machine where several programs measure or must not be measured beside."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
