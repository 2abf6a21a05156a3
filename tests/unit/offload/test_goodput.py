"""The policy against a modelled clock: a slow board, a faster machine, clients that ask one thing after the other."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from itertools import count

import pytest

from edge_rag.core.placement import OffloadMode, OffloadRule
from edge_rag.core.query import Priority
from edge_rag.offload.generation.routing import Candidate, Facts, Place, RemoteFacts, choose
from edge_rag.offload.remotes.latency_model import LatencyModel, Sample

PROMPT, TOKENS = 400, 60
SECONDS = 600.0


@dataclass
class Machine:
    """So many slots, each serving one request at a time, the others waiting in order of arrival."""

    slots: int
    service_s: float
    meter: LatencyModel = field(default_factory=LatencyModel)
    waiting: list[tuple[float, int]] = field(default_factory=list)
    running: int = 0


def goodput(
    mode: OffloadMode, clients: int, deadline_s: float, board: Machine, lender: Machine, varies: float
) -> float:
    """Returns answers in time, a second; one that would be late is given up at its deadline."""
    rng, numbers = random.Random(7), count()
    events: list[tuple[float, int, str, Machine | None, float]] = []
    good = 0

    def ask(now: float) -> None:
        ahead = board.running + len(board.waiting)
        there = lender.running + len(lender.waiting)
        facts = Facts(
            mode=mode,
            rule=OffloadRule.ALLOWED,
            can_redact=False,
            priority=Priority.INTERACTIVE,
            deadline_in_s=deadline_s,
            prompt_tokens=PROMPT,
            documents=b"",
            waiting=len(board.waiting),
            strained=False,
            local=board.meter.outlook(PROMPT, 256, ahead, board.slots),
            remotes=(
                RemoteFacts(
                    Candidate("lender", None, there, lender.slots - there),
                    lender.meter.outlook(PROMPT, 256, there, lender.slots),
                    True,
                    True,
                ),
            ),
        )
        machine = board if choose(facts).place is Place.LOCAL else lender
        machine.waiting.append((now, next(numbers)))
        begin(machine, now)

    def begin(machine: Machine, now: float) -> None:
        while machine.waiting and machine.running < machine.slots:
            asked, number = machine.waiting.pop(0)
            if now >= asked + deadline_s:
                heapq.heappush(events, (now, number, "ask", None, 0.0))
                continue
            machine.running += 1
            takes = machine.service_s * rng.uniform(1 - varies, 1 + varies)
            ends = min(now + takes, asked + deadline_s)
            if now + takes <= asked + deadline_s:
                sample = Sample(now - asked, now - asked + takes / 4, now - asked + takes, PROMPT, TOKENS)
                heapq.heappush(events, (ends, number, "good", machine, 0.0))
                samples[number] = sample
            else:
                heapq.heappush(events, (ends, number, "late", machine, 0.0))

    samples: dict[int, Sample] = {}
    for _ in range(clients):
        heapq.heappush(events, (rng.random(), next(numbers), "ask", None, 0.0))
    while events and events[0][0] < SECONDS:
        now, number, what, machine, _ = heapq.heappop(events)
        if machine is not None:
            machine.running -= 1
            if what == "good":
                good += 1
                machine.meter.observe(samples.pop(number))
            begin(machine, now)
        ask(now)
    return good / SECONDS


@pytest.mark.parametrize("varies", [0.0, 0.3, 0.6])
@pytest.mark.parametrize(("deadline_s", "board_clients", "lender_clients"), [(3.5, 2, 8), (6.0, 3, 12), (20.0, 8, 20)])
def test_overflow_serves_nine_tenths_of_what_both_machines_serve_alone(
    varies: float, deadline_s: float, board_clients: int, lender_clients: int
) -> None:
    def served(mode: OffloadMode, clients: int) -> float:
        return goodput(mode, clients, deadline_s, Machine(1, 1.0), Machine(8, 1.5), varies)

    alone = served(OffloadMode.NEVER, board_clients)
    elsewhere = served(OffloadMode.PREFER_REMOTE, lender_clients)
    both = served(OffloadMode.OVERFLOW, board_clients + lender_clients)
    assert alone > 0.5
    assert elsewhere > 3
    assert both >= 0.9 * (alone + elsewhere), f"{both:.2f} of {alone:.2f} + {elsewhere:.2f}"
