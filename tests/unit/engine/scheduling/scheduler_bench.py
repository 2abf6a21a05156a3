"""A bench for the scheduler: it runs without a model, and everything is accounted for."""

from collections.abc import Iterable, Mapping
from math import inf

from edge_rag.core.monitoring.event import AuditEventKind
from edge_rag.core.query import Priority
from edge_rag.engine.kv_cache.block_pool import BlockPool, Reservation, violations
from edge_rag.engine.scheduling.plan import SchedulingEvent, StepPlan, pack, token_moves
from edge_rag.engine.scheduling.policy import SchedulerLimits
from edge_rag.engine.scheduling.scheduler import Scheduler
from edge_rag.engine.sequence import PageId, PassageSpan, Sequence, SequenceId, Status

PAGE = 4


class Bench:
    """A scheduler over a pool, with steps that compute nothing but account for everything."""

    def __init__(self, pages: int, limits: SchedulerLimits, max_context: int = 10_000, aging_s: float = inf) -> None:
        self.limits = limits
        self.pool = BlockPool(pages, PAGE)
        self.scheduler = Scheduler(limits, self.pool, max_context, aging_s)
        self.now = 0.0
        self.sequences: dict[SequenceId, Sequence] = {}
        self.finished: list[SequenceId] = []
        self.events: dict[SequenceId, list[SchedulingEvent]] = {}
        self.content: dict[int, int] = {}

    def submit(
        self,
        prompt: int | list[int],
        max_tokens: int,
        priority: Priority = Priority.NORMAL,
        domain: str = "d",
        client: str = "c",
        deadline: float | None = None,
        spans: tuple[PassageSpan, ...] = (),
    ) -> Sequence:
        name = SequenceId(len(self.sequences) + 1)
        tokens = prompt if isinstance(prompt, list) else [1000 * name + i for i in range(prompt)]
        sequence = Sequence(
            name, priority, domain, list(tokens), max_tokens, client=client, arrived=self.now, deadline=deadline
        )
        sequence.spans = spans
        self.scheduler.submit(sequence, self.now)
        self.sequences[name] = sequence
        self.events[name] = []
        return sequence

    def kinds(self, sequence: Sequence) -> list[AuditEventKind]:
        return [event.kind for event in self.events[sequence.id]]

    def step(self, fail: bool = False, draft: int = 0, right: int = 0) -> StepPlan:
        """Runs a step."""
        for sequence in self.scheduler.running:
            room = sequence.max_tokens - sequence.generated - 1
            comes = range(len(sequence.tokens), len(sequence.tokens) + right)
            sequence.draft = (*comes, *[7] * draft)[: min(draft, room)] if sequence.pending == 1 else ()
        plan = self.scheduler.schedule(self.now)
        self.now += 1
        self.check(plan)
        if fail:
            with Reservation(self.pool, plan.ends()):
                pass
            self.scheduler.remove([self.sequences[entry.sequence] for entry in plan.entries])
            return plan
        with Reservation(self.pool, plan.ends()) as pages:
            self.check_writes(plan, pages.tables)
            self.compute(plan, pages.tables)
            accepted = {entry.sequence: min(right, entry.drafted) for entry in plan.entries}
            pages.commit(plan.ends(accepted))
        self.scheduler.commit(plan)
        for entry in plan.entries:
            sequence = self.sequences[entry.sequence]
            if entry.wants_logits:
                generated = accepted[entry.sequence] + 1
                sequence.tokens += range(len(sequence.tokens), len(sequence.tokens) + generated)
                if sequence.generated == sequence.max_tokens:
                    self.scheduler.remove([sequence])
                    self.finished.append(sequence.id)
                else:
                    self.scheduler.accept(sequence, generated - 1)
        return plan

    def compute(self, plan: StepPlan, tables: Mapping[SequenceId, tuple[PageId, ...]]) -> None:
        """Copies and writes tokens where a model would their keys and values."""
        for move in token_moves(plan, tables, PAGE):
            copied = [self.content[slot] for slot in move.sources.tolist()]
            self.content.update(zip(move.targets.tolist(), copied, strict=True))
        if plan.entries:
            step = pack(plan, self.sequences, tables, PAGE)
            assert len(set(step.slot_mapping.tolist())) == plan.tokens
            self.content.update(zip(step.slot_mapping.tolist(), step.input_ids.tolist(), strict=True))

    def check_writes(self, plan: StepPlan, tables: Mapping[SequenceId, tuple[PageId, ...]]) -> None:
        before = self.pool.snapshot()
        for entry in plan.entries:
            end = entry.end + entry.drafted
            written = tables[entry.sequence][entry.first // PAGE : -(-end // PAGE)]
            assert len(written) == -(-end // PAGE) - entry.first // PAGE
            assert all(before.references[page] == 1 and page not in before.parents for page in written)

    def check(self, plan: StepPlan) -> None:
        for event in plan.events:
            self.events[event.sequence].append(event)
        assert plan.tokens <= self.limits.max_step_tokens
        assert len(self.scheduler.running) <= max(self.limits.max_slots, self.scheduler.limits.max_slots)
        assert len({entry.sequence for entry in plan.entries}) == len(plan.entries)
        for entry in plan.entries:
            sequence = self.sequences[entry.sequence]
            assert sequence.status is Status.RUNNING
            assert entry.first == sequence.computed
            assert entry.wants_logits == (entry.end == len(sequence.tokens))
            assert entry.drafted <= len(sequence.draft)
        assert plan.tokens <= self.scheduler.limits.max_step_tokens
        if not self.scheduler.idle:
            assert plan.entries, "there was work, and none of it was planned"

    def pause(self, sequence: Sequence) -> None:
        numbers = self.scheduler.pause(sequence)
        self.events[sequence.id].append(
            SchedulingEvent(AuditEventKind.PAUSED, sequence.id, "its reader is slow", numbers)
        )

    def run(self) -> int:
        """Steps until there is nothing to do; returns the number of steps."""
        steps = 0
        while not self.scheduler.idle:
            self.step()
            steps += 1
            assert steps < 10_000, "livelock"
        return steps

    def wrong(self) -> list[str]:
        held = {s.id: s.computed for s in self.scheduler.running}
        return violations(self.pool.snapshot(), held) + [
            f"sequence {s.id} has something else than its token {position} in the cache"
            for s in self.scheduler.running
            for position, token in enumerate(s.tokens[: s.computed])
            if self.content[self.pool.table(s.id)[position // PAGE] * PAGE + position % PAGE] != token
        ]


BEGINNING = tuple(range(6))


def alone(passage: int) -> tuple[int, ...]:
    text = (*BEGINNING, *range(500 + 20 * passage, 500 + 20 * passage + 7 + passage))
    return (*text, *[9] * (-len(text) % PAGE + 1))


def with_passages(passages: Iterable[int], recompute: int) -> tuple[list[int], tuple[PassageSpan, ...]]:
    prompt, spans = list(BEGINNING), []
    for passage in passages:
        text = alone(passage)[len(BEGINNING) : len(BEGINNING) + 7 + passage]
        start, offset = len(prompt) + recompute, len(BEGINNING) + recompute
        spans.append(PassageSpan(start, len(text) - recompute, alone(passage), offset))
        prompt += text
    return [*prompt, 9], tuple(spans)


def entries(plan: StepPlan) -> list[tuple[int, int, int]]:
    return [(entry.sequence, entry.first, entry.count) for entry in plan.entries]
