"""Puts a program under a load of requests that arrive when they do, and notes when their tokens come.

NumPy and the standard library only: every program reads it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scripts.bench.passages.workload import Trace


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
        light: Requests at a rate at which they seldom meet.
        light_rate: That rate, requests a second.
        trial: Requests of a trial.
        p95_s: Most that the 95th percentile of the time to the first token may be, seconds.
        first_rate: Rate of the first trial.
        factor: Between the rates of two trials.
        most_trials: Trials there are at most.
    """

    warm: int
    light: int
    light_rate: float
    trial: int
    p95_s: float
    first_rate: float
    factor: float
    most_trials: int

    @property
    def requests(self) -> int:
        """Requests that it can take at most."""
        return self.warm + self.light + self.most_trials * self.trial


@dataclass(frozen=True, slots=True)
class Trial:
    """One rate.

    Attributes:
        offered: Requests a second that came, as drawn.
        p50_s: Median time to the first token, seconds.
        p95_s: 95th percentile of it.
        served: Requests a second from the first arrival to the last token.
    """

    offered: float
    p50_s: float
    p95_s: float
    served: float


@dataclass(frozen=True, slots=True)
class Served:
    """What was measured of a program.

    Attributes:
        light: The light load.
        trials: The trials, in order.
        best: The highest rate at which the 95th percentile was kept, requests a second; 0 if none.
    """

    light: Trial
    trials: tuple[Trial, ...]
    best: float


def measure(server: Server, trace: Trace, plan: Plan) -> Served:
    """Warms a program up, then looks for the highest rate that it bears.

    Rates rise by the factor until one is too high, or fall until one is not.
    """
    prompts = iter(range(len(trace.prompts)))
    _flood(server, trace, [next(prompts) for _ in range(plan.warm)])

    def trial(count: int, rate: float) -> Trial:
        return _arriving(server, trace, [next(prompts) for _ in range(count)], rate)

    light = trial(plan.light, plan.light_rate)
    trials: list[Trial] = []
    rate, best = plan.first_rate, 0.0
    while len(trials) < plan.most_trials:
        trials.append(trial(plan.trial, rate))
        kept = trials[-1].p95_s <= plan.p95_s
        if kept:
            best = max(best, rate)
        if len(trials) > 1 and kept != (trials[-2].p95_s <= plan.p95_s):
            break
        rate = rate * plan.factor if kept else rate / plan.factor
    return Served(light, tuple(trials), best)


def _flood(server: Server, trace: Trace, numbers: list[int]) -> None:
    waiting, running = list(reversed(numbers)), 0
    while waiting or running:
        while waiting and running < 8:
            number = waiting.pop()
            server.submit(number, trace.prompts[number], 1)
            running += 1
        running -= sum(last for _, last in server.turn(1.0))


def _arriving(server: Server, trace: Trace, numbers: list[int], rate: float) -> Trial:
    gaps = trace.gaps[numbers] / rate
    due = np.cumsum(gaps) - gaps[0]
    started = time.perf_counter()
    first: dict[int, float] = {}
    sent = over = 0
    while over < len(numbers):
        now = time.perf_counter() - started
        while sent < len(numbers) and due[sent] <= now:
            server.submit(numbers[sent], trace.prompts[numbers[sent]], trace.answer_tokens)
            sent += 1
        wait = 1.0 if sent == len(numbers) else max(0.0, float(due[sent]) - now)
        for number, last in server.turn(wait):
            first.setdefault(number, time.perf_counter() - started)
            over += last
    ended = time.perf_counter() - started
    times = np.array([first[number] - at for number, at in zip(numbers, due, strict=True)])
    return Trial(
        offered=len(numbers) / float(due[-1]) if due[-1] > 0 else rate,
        p50_s=float(np.median(times)),
        p95_s=float(np.percentile(times, 95)),
        served=len(numbers) / ended,
    )


def program(description: str | None, begin: Callable[[argparse.Namespace], Server]) -> None:
    """Runs a measured program: arguments in, figures into a file."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--plan", required=True, help="JSON")
    parser.add_argument("--figures", type=Path, required=True, help="file to write to")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=8, help="requests that run at once")
    parser.add_argument("--cache-mib", type=int, default=512, help="memory for keys and values")
    arguments = parser.parse_args()
    trace, plan = Trace.read(arguments.trace), Plan(**json.loads(arguments.plan))
    arguments.room = trace.prompts.shape[1] + trace.answer_tokens
    served = measure(begin(arguments), trace, plan)
    arguments.figures.write_text(json.dumps(asdict(served)), encoding="utf-8")
