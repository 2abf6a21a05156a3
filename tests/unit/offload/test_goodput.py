"""The routing policy in a simulation: a slow board, a faster remote, clients that send one request after the other."""

import heapq
import random
from dataclasses import dataclass, field
from itertools import count

import pytest

from edge_rag.core.placement import OffloadMode, OffloadRule
from edge_rag.offload.generation.routing import RoutingInputs, choose
from edge_rag.offload.remotes.latency_model import LatencyModel, Sample
from edge_rag.offload.routing import AffinityCandidate, Place, RemoteInputs

PROMPT, TOKENS = 400, 60
SECONDS = 600.0


@dataclass
class Machine:
    """A generator with slots and a first-come first-served queue."""

    slots: int
    service_s: float
    model: LatencyModel = field(default_factory=LatencyModel)
    waiting: list[tuple[float, int]] = field(default_factory=list)
    running: int = 0


def goodput(
    mode: OffloadMode, clients: int, deadline_s: float, board: Machine, remote: Machine, varies: float
) -> float:
    """Returns answers in time a second; a late one is cancelled at its deadline."""
    rng, numbers = random.Random(7), count()
    events: list[tuple[float, int, str, Machine | None, float]] = []
    good = 0

    def submit(now: float) -> None:
        local_load = board.running + len(board.waiting)
        remote_load = remote.running + len(remote.waiting)
        inputs = RoutingInputs(
            mode=mode,
            rule=OffloadRule.ALLOWED,
            can_redact=False,
            deadline_in_s=deadline_s,
            prompt_tokens=PROMPT,
            documents=b"",
            waiting=len(board.waiting),
            constrained=False,
            local=board.model.estimate(PROMPT, 256, local_load, board.slots),
            remotes=(
                RemoteInputs(
                    AffinityCandidate("remote", None, remote_load, remote.slots - remote_load),
                    remote.model.estimate(PROMPT, 256, remote_load, remote.slots),
                    True,
                    True,
                ),
            ),
        )
        machine = board if choose(inputs).place is Place.LOCAL else remote
        machine.waiting.append((now, next(numbers)))
        begin(machine, now)

    def begin(machine: Machine, now: float) -> None:
        while machine.waiting and machine.running < machine.slots:
            sent, number = machine.waiting.pop(0)
            if now >= sent + deadline_s:
                heapq.heappush(events, (now, number, "submit", None, 0.0))
                continue
            machine.running += 1
            duration = machine.service_s * rng.uniform(1 - varies, 1 + varies)
            ends = min(now + duration, sent + deadline_s)
            if now + duration <= sent + deadline_s:
                sample = Sample(now - sent, now - sent + duration / 4, now - sent + duration, PROMPT, TOKENS)
                heapq.heappush(events, (ends, number, "good", machine, 0.0))
                samples[number] = sample
            else:
                heapq.heappush(events, (ends, number, "late", machine, 0.0))

    samples: dict[int, Sample] = {}
    for _ in range(clients):
        heapq.heappush(events, (rng.random(), next(numbers), "submit", None, 0.0))
    while events and events[0][0] < SECONDS:
        now, number, kind, machine, _ = heapq.heappop(events)
        if machine is not None:
            machine.running -= 1
            if kind == "good":
                good += 1
                machine.model.observe(samples.pop(number))
            begin(machine, now)
        submit(now)
    return good / SECONDS


@pytest.mark.parametrize("varies", [0.0, 0.3, 0.6])
@pytest.mark.parametrize(("deadline_s", "board_clients", "remote_clients"), [(3.5, 2, 8), (6.0, 3, 12), (20.0, 8, 20)])
def test_overflow_serves_nine_tenths_of_what_both_machines_serve_alone(
    varies: float, deadline_s: float, board_clients: int, remote_clients: int
) -> None:
    def served(mode: OffloadMode, clients: int) -> float:
        return goodput(mode, clients, deadline_s, Machine(1, 1.0), Machine(8, 1.5), varies)

    local_only = served(OffloadMode.NEVER, board_clients)
    remote_only = served(OffloadMode.PREFER_REMOTE, remote_clients)
    both = served(OffloadMode.OVERFLOW, board_clients + remote_clients)
    assert local_only > 0.5
    assert remote_only > 3
    assert both >= 0.9 * (local_only + remote_only), f"{both:.2f} of {local_only:.2f} + {remote_only:.2f}"
