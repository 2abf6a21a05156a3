"""What is measured: steps and requests as the engine saw them, and what operators and bookkeepers read of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from edge_rag.core.answer import Usage


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step was.

    Attributes:
        tokens: Tokens computed.
        decodes: Sequences in it that computed one token.
        sequences: Sequences in it.
        slots: Slots that could have been taken.
        slots_busy: Slots taken while it ran.
        waiting: Requests that have had no slot.
        pages_used: Pages that sequences hold.
        preempted: Sequences that gave way before it.
        cache_query_tokens: Tokens of the sequences that entered with it, which the prefix cache was asked for.
        cache_hit_tokens: Those of them that were found.
        drafted: Drafted tokens it checked.
        accepted: Those of them that were right.
        schedule_s: Time to plan it, seconds.
        run_s: Time in the model, seconds.
        choose_s: Time to choose, commit and report tokens, seconds.
        generated_tokens: Tokens said since the step before, forced ones included.
        token_gaps_s: For each sequence that said something, not for the first time: seconds since it last did. Tokens
            that a constraint forces come at once and make one gap.
        failed: Whether the model failed.
    """

    tokens: int
    decodes: int
    sequences: int
    slots: int
    slots_busy: int
    waiting: int
    pages_used: int
    preempted: int
    cache_query_tokens: int
    cache_hit_tokens: int
    drafted: int
    accepted: int
    schedule_s: float
    run_s: float
    choose_s: float
    generated_tokens: int
    token_gaps_s: tuple[float, ...]
    failed: bool


@dataclass(frozen=True, slots=True)
class RequestReport:
    """What one request was, said when it left the engine, however it ended.

    Attributes:
        client: Who asked.
        usage: What it used; the prompt counts from the first step on.
        queue_s: From submission to the first slot, or to the end if it never had one, seconds.
        slot_s: Time in a slot, without the time between preemption and resumption, seconds.
        first_token_s: From submission to the first token, seconds; None if there was none.
        last_token_s: From submission to the last token, seconds; None if there was none.
        completed: Whether it ended well.
    """

    client: str
    usage: Usage
    queue_s: float
    slot_s: float
    first_token_s: float | None
    last_token_s: float | None
    completed: bool

    @property
    def per_token_s(self) -> float | None:
        """Mean time of a token after the first, seconds; None with fewer than two tokens."""
        if self.first_token_s is None or self.last_token_s is None or self.usage.generated_tokens < 2:
            return None
        return (self.last_token_s - self.first_token_s) / (self.usage.generated_tokens - 1)


class LatencyMetric(Enum):
    """What percentiles are kept of.

    QUEUE: waiting for a slot. FIRST_TOKEN: from the call to the first text. PER_TOKEN: mean time of a token after the
    first, of one answer. TOKEN_GAP: between two moments at which tokens came. COMPLETION: from the call to the end of
    its answer.
    """

    QUEUE = "queue"
    FIRST_TOKEN = "first_token"
    PER_TOKEN = "per_token"
    TOKEN_GAP = "token_gap"
    COMPLETION = "completion"


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of the latest samples.

    Attributes:
        measure: Of what.
        samples: How many samples they are of, at least 1.
        p50_s: Median, seconds.
        p95_s: 95th percentile, seconds.
        p99_s: 99th percentile, seconds.
    """

    measure: LatencyMetric
    samples: int
    p50_s: float
    p95_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class ClientUsage:
    """What a client used since the daemon was started, for metering.

    Attributes:
        client: Who asked; None for all the clients together that came when there was no room to keep them apart.
        requests: Requests that reached the generator, here or on another machine, and are over, however they ended.
        refused: Requests that were refused: no room, or they could never run.
        prompt_tokens: Prompt tokens, cached ones included.
        cached_prompt_tokens: Those of them that were not computed again.
        generated_tokens: Tokens generated, here or on another machine, forced ones included.
        slot_s: Time in slots here, seconds.
    """

    client: str | None
    requests: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    generated_tokens: int = 0
    slot_s: float = 0.0
