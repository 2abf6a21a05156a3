"""Reports of engine steps and requests, latency percentiles, and usage by client."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from edge_rag.core.answer import Usage


@dataclass(frozen=True, slots=True)
class StepReport:
    """Figures of one engine step.

    Attributes:
        cache_query_tokens: Tokens of newly admitted sequences that were looked up in the prefix cache.
        schedule_s: Time of planning the step, seconds.
        run_s: Time in the model, seconds.
        sample_s: Time of sampling, committing and emitting tokens, seconds.
        generated_tokens: Tokens emitted since the step before, forced ones included.
        token_gaps_s: For each sequence that emitted tokens, except its first: time since it last did, seconds. Tokens
            forced by a constraint are emitted together and make one gap.
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
    sample_s: float
    generated_tokens: int
    token_gaps_s: tuple[float, ...]
    failed: bool


@dataclass(frozen=True, slots=True)
class RequestReport:
    """Figures of one request, reported when it left the engine.

    Attributes:
        usage: Its tokens; the prompt counts from the first step on.
        queue_s: From submission to the first slot, or to the end if it never had one, seconds.
        slot_s: Time in a slot, without the time between preemption and resumption, seconds.
        first_token_s: From submission to the first token, seconds; None without tokens.
        last_token_s: From submission to the last token, seconds; None without tokens.
        completed: Whether it ended normally.
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
        """Mean time per token after the first, seconds; None with fewer than two tokens."""
        if self.first_token_s is None or self.last_token_s is None or self.usage.generated_tokens < 2:
            return None
        return (self.last_token_s - self.first_token_s) / (self.usage.generated_tokens - 1)


class LatencyMetric(Enum):
    """Latencies for which percentiles are kept.

    QUEUE: waiting for a slot. FIRST_TOKEN: from the call to the first text. PER_TOKEN: mean time per token of an answer
        after the first. TOKEN_GAP: between two emissions of tokens. COMPLETION: from the call to the end of its answer.
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
        measure: The latency measured.
        samples: Number of samples, at least 1.
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
    """Usage of a client since the start of the daemon, for metering.

    Attributes:
        client: Name of the client; None for all clients together that exceed the number counted separately.
        requests: Requests that reached the generator, here or on another machine, and have ended.
        refused: Requests refused because of a full queue or because they could never run.
        prompt_tokens: Prompt tokens, cached ones included.
        cached_prompt_tokens: Those of them that were not computed again.
        generated_tokens: Tokens generated, here or on another machine, forced ones included.
        slot_s: Time in slots here, seconds.
        ingest_s: Parsing, chunking and embedding of the client's documents here, seconds.
    """

    client: str | None
    requests: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    generated_tokens: int = 0
    slot_s: float = 0.0
    ingest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """How much of its quota a client has used.

    Attributes:
        client: Name of the client.
        requests_per_minute: Calls that it may start within a minute; None for no limit.
        requests_left: Those of them that it may start now.
        tokens_per_minute: Prompt and generated tokens within a minute; None for no limit.
        tokens_left: Those of them that are left; 0 if it has used more.
        concurrent_requests: Calls in progress at once; None for no limit.
        in_flight: Calls in progress now.
    """

    client: str
    requests_per_minute: int | None
    requests_left: int | None
    tokens_per_minute: int | None
    tokens_left: int | None
    concurrent_requests: int | None
    in_flight: int


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage of the generator by client.

    Attributes:
        since: Start of the counts, UTC.
        clients: Usage by name; the last one has no name and stands for all clients that are not counted apart.
        quotas: By name, of the clients that have a quota and have called since the start.
    """

    since: datetime
    clients: tuple[ClientUsage, ...]
    quotas: tuple[QuotaUse, ...] = ()
