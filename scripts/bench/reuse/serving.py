"""Puts a program under a load of requests that arrive when they do, and notes when their tokens come.

NumPy and the standard library only: every program reads it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scripts.bench.harness.workload import Trace

_AT_ONCE = 8
_WARM_NUMBERS, _ALONE_NUMBERS, _FLOOD_NUMBERS = 1_000_000, 2_000_000, 3_000_000
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
        flood: Requests that come all at once, for what the machine can do at most.
        trial_s: How long requests arrive in a trial, seconds.
        least: Requests of a trial at least.
        p95_s: Most that the 95th percentile of the time to the first token may be, seconds.
        begin: Share of the rate of the flood that is tried first.
        factor: Between the rates of two trials.
        most_trials: Trials there are at most.
    """

    warm: int
    alone: int
    flood: int
    trial_s: float
    least: int
    p95_s: float
    begin: float
    factor: float
    most_trials: int

    def trial(self, rate: float) -> int:
        """Returns how many requests a trial of a rate has."""
        return max(self.least, round(rate * self.trial_s))

    def requests(self, highest_rate: float) -> int:
        """Returns how many requests it can take at most where no rate is higher than that."""
        return self.warm + 2 * self.alone + self.flood + self.most_trials * self.trial(highest_rate)


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
        flood_rate: Requests a second that come to an end where all are there from the beginning.
        flood_cpu_s: Processor time that each of these took, seconds.
        trials: The trials, in order.
        best: The highest rate at which the 95th percentile was kept, requests a second; 0 if none.
    """

    next_p50_s: float
    again_p50_s: float
    flood_rate: float
    flood_cpu_s: float
    trials: tuple[Trial, ...]
    best: float


def warm(server: Server, trace: Trace, plan: Plan) -> None:
    """Fills the caches: with each passage once where the trace begins so, and with the first requests."""
    prompts = [*trace.cover, *trace.prompts[: plan.warm]]
    _answer(server, prompts, _WARM_NUMBERS, 1, _AT_ONCE)


def _answer(
    server: Server, prompts: Sequence[NDArray[np.int64]], first_number: int, answer_tokens: int, most: int
) -> None:
    waiting, running = list(reversed(range(len(prompts)))), 0
    while waiting or running:
        while waiting and running < most:
            number = waiting.pop()
            server.submit(first_number + number, prompts[number], answer_tokens)
            running += 1
        running -= sum(last for _, last in server.turn(1.0))


def measure(server: Server, trace: Trace, plan: Plan) -> Served:
    """Asks a warm program one question at a time, then many at once, then looks for the highest rate that it bears."""
    begin = plan.warm
    alone = trace.prompts[begin : begin + plan.alone]
    begin += plan.alone
    asked = trace.prompts[begin : begin + plan.alone, -trace.question_tokens :]
    again = np.concatenate([alone[:, : -trace.question_tokens], asked], axis=1)
    first = [_one(server, _ALONE_NUMBERS + number, prompt) for number, prompt in enumerate([*alone, *again])]
    begin += plan.alone
    flood = trace.prompts[begin : begin + plan.flood]
    began, computed = time.perf_counter(), time.process_time()
    _answer(server, list(flood), _FLOOD_NUMBERS, trace.answer_tokens, len(flood))
    flood_rate = len(flood) / (time.perf_counter() - began)
    flood_cpu_s = (time.process_time() - computed) / len(flood)
    left = iter(range(begin + plan.flood, len(trace.prompts)))

    def trial(rate: float) -> Trial:
        numbers = list(islice(left, plan.trial(rate)))
        if len(numbers) < plan.trial(rate):
            raise RuntimeError(f"the trace ran out of requests at {rate:.1f}/s")
        return _arriving(server, trace, numbers, rate, plan.p95_s)

    trials, best = find_rate(trial, plan.begin * flood_rate, plan)
    next_p50_s, again_p50_s = (float(np.median(times)) for times in np.split(np.array(first), 2))
    return Served(next_p50_s, again_p50_s, flood_rate, flood_cpu_s, trials, best)


def find_rate(trial: Callable[[float], Trial], first: float, plan: Plan) -> tuple[tuple[Trial, ...], float]:
    """Tries rates that rise by the factor until one is too high, or fall until one is not, then one between these two.

    Returns:
        The trials, in order, and the highest rate that was kept; 0 if none was.
    """
    trials: list[Trial] = []
    low, high, rate = 0.0, np.inf, first
    while len(trials) < plan.most_trials:
        between = low > 0 and high < np.inf
        trials.append(trial(rate))
        low, high = (rate, high) if trials[-1].kept else (low, rate)
        if between:
            break
        if low > 0 and high < np.inf:
            rate = float(np.sqrt(low * high))
        else:
            rate = rate * plan.factor if trials[-1].kept else rate / plan.factor
    return tuple(trials), low


def _one(server: Server, number: int, prompt: NDArray[np.int64]) -> float:
    began = time.perf_counter()
    server.submit(number, prompt, 1)
    while not any(last for _, last in server.turn(1.0)):
        pass
    return time.perf_counter() - began


def _arriving(server: Server, trace: Trace, numbers: list[int], rate: float, bound_s: float) -> Trial:
    gaps = trace.gaps[numbers]
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
