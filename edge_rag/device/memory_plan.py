"""Plans the memory of the daemon: everything that grows has a bound, and the bounds fit the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from edge_rag.core.monitoring.resources import MemoryItem, MemoryPlanReport
from edge_rag.errors import ConfigurationError

_MIB: Final = 1 << 20
SMALLEST_STEP: Final = 64
"""Smallest step, tokens; it is not halved further."""

_USUAL_TOKENS: Final = 2048
"""Context that question, passages and answer seldom exceed together, tokens."""

_RESERVE_SHARE: Final = 8
"""The reserve is at most this share of the budget."""


@dataclass(frozen=True, slots=True)
class GeneratorNeeds:
    """Memory needs of a generator.

    Attributes:
        weights_bytes: Weights, tokenizer and grammar; mapped weights count, since they are slow unless resident.
        token_bytes: Intermediate results of one token of a step.
        max_context: Longest sequence, tokens.
        least_context: Tokens of the longest sequence that must fit at least.
        spare_sequences: Multiple of full slots for which pages are useful; more pages would only hold cold prefixes.
    """

    weights_bytes: int
    token_bytes: int
    slot_bytes: int
    page_bytes: int
    page_tokens: int
    max_context: int
    least_context: int
    spare_sequences: int = 2

    @property
    def sequence_pages(self) -> int:
        return -(-self.max_context // self.page_tokens)

    def most_pages(self, slots: int) -> int:
        """Pages beyond this number would only hold cold prefixes."""
        return self.spare_sequences * slots * self.sequence_pages

    def least_pages(self, slots: int) -> int:
        """Least pages for a number of slots: one longest sequence, and a usual one in each other slot.

        A usual sequence is half of the longest, or 2,048 tokens where that is less.
        """
        longest = -(-self.least_context // self.page_tokens)
        usual = min(-(-self.sequence_pages // 2), -(-_USUAL_TOKENS // self.page_tokens))
        return longest if slots == 1 else max(longest, slots * usual)


@dataclass(frozen=True, slots=True)
class RerankerNeeds:
    """Memory needs of the reranker.

    Attributes:
        weights_bytes: Weights and tokenizer; 0 where the embedder reranks.
    """

    weights_bytes: int
    question_bytes: int
    arena_bytes: int


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """Sizes that shrink where memory is short."""

    slots: int
    step_tokens: int
    questions: int
    cache_bytes: int
    least_slots: int = 1

    def halved(self) -> BatchSizes:
        """Returns half of every size, within the lower bounds."""
        return replace(
            self,
            slots=max(self.least_slots, self.slots // 2),
            step_tokens=max(min(SMALLEST_STEP, self.step_tokens), self.step_tokens // 2),
            questions=max(1, self.questions // 2),
            cache_bytes=self.cache_bytes // 2,
        )


@dataclass(frozen=True, slots=True)
class MemoryBounds:
    """Bounds of the plan.

    Attributes:
        kv_share: Share of the budget that KV pages may take, (0, 1].
        kv_bytes: Size of the KV cache by the settings; None to use the share.
    """

    budget_bytes: int
    reserve_bytes: int
    kv_share: float
    kv_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The use of the memory.

    Attributes:
        items: Every use, the KV pages last.
    """

    budget_bytes: int
    items: tuple[MemoryItem, ...]
    pages: int
    sizes: BatchSizes
    shrink_steps: int
    spare_bytes: int

    @property
    def summary(self) -> MemoryPlanReport:
        return MemoryPlanReport(self.budget_bytes, self.items, self.shrink_steps)

    @property
    def kv_bytes(self) -> int:
        return self.items[-1].bytes

    @property
    def planned_bytes(self) -> int:
        """All uses together, without the reserve."""
        return sum(item.bytes for item in self.items)


def plan_memory(
    bounds: MemoryBounds,
    fixed: Sequence[MemoryItem],
    reranker: RerankerNeeds,
    generator: GeneratorNeeds,
    wanted: BatchSizes,
) -> MemoryPlan:
    """Divides the memory. Where not everything fits, slots, step and batches are halved together until it does."""
    configured = None if bounds.kv_bytes is None else _configured_pages(bounds.kv_bytes, generator, wanted.slots)
    # A size in the settings replaces share and reserve.
    reserve = min(bounds.reserve_bytes, bounds.budget_bytes // _RESERVE_SHARE) if configured is None else 0
    share = int(bounds.budget_bytes * bounds.kv_share) // generator.page_bytes
    sizes, shrink_steps = wanted, 0
    while True:
        items = [*fixed, *_sized(reranker, generator, sizes)]
        room = bounds.budget_bytes - reserve - sum(item.bytes for item in items)
        least = generator.least_pages(sizes.slots) if configured is None else configured
        if room // generator.page_bytes >= least:
            pages = configured or min(
                room // generator.page_bytes, max(least, share), generator.most_pages(sizes.slots)
            )
            kv = MemoryItem("KV pages", pages * generator.page_bytes, f"{pages} of {generator.page_tokens} tokens")
            return MemoryPlan(bounds.budget_bytes, (*items, kv), pages, sizes, shrink_steps, room - kv.bytes + reserve)
        smaller = sizes.halved()
        if smaller == sizes:
            uses = [*items, MemoryItem("KV pages", least * generator.page_bytes), MemoryItem("reserve", reserve)]
            raise _nothing_fits(bounds, [item for item in uses if item.bytes], sizes)
        sizes, shrink_steps = smaller, shrink_steps + 1


def _sized(reranker: RerankerNeeds, generator: GeneratorNeeds, sizes: BatchSizes) -> list[MemoryItem]:
    passages = sizes.questions * reranker.question_bytes
    step = sizes.step_tokens * generator.token_bytes + sizes.slots * generator.slot_bytes
    return [
        MemoryItem(
            "reranker",
            reranker.weights_bytes + reranker.arena_bytes + passages + sizes.cache_bytes,
            f"{sizes.questions} questions at once, {sizes.cache_bytes // _MIB} MiB of passages kept",
        ),
        MemoryItem("generator's weights", generator.weights_bytes, "with tokenizer and grammars"),
        MemoryItem("generator's steps", step, f"{sizes.step_tokens} tokens, {sizes.slots} slots"),
    ]


def _configured_pages(kv_bytes: int, generator: GeneratorNeeds, slots: int) -> int:
    """Returns how many pages fit the bounds, without those that would only hold cold prefixes."""
    pages, least = kv_bytes // generator.page_bytes, generator.least_pages(1)
    if pages < least:
        raise ConfigurationError(
            f"generator.kv_memory_mib: {kv_bytes // _MIB} MiB hold {pages * generator.page_tokens} tokens, one "
            f"sequence needs {generator.least_context} ({-(-least * generator.page_bytes // _MIB)} MiB)"
        )
    return min(pages, generator.most_pages(slots))


def _nothing_fits(bounds: MemoryBounds, uses: Sequence[MemoryItem], sizes: BatchSizes) -> ConfigurationError:
    needed = sum(item.bytes for item in uses)
    advice = (
        "give the device or the cgroup more memory, end other programs, lower "
        "limits.concurrent_calls, or choose a smaller generator"
    )
    if bounds.kv_bytes is not None:
        advice = f"lower generator.kv_memory_mib, {advice}"
    if sizes.least_slots > 1:
        advice = f"lower generator.max_slots, {advice}"
    return ConfigurationError(
        f"memory: {bounds.budget_bytes // _MIB} MiB can be had, at least {-(-needed // _MIB)} are needed: "
        f"{', '.join(f'{item.name} {-(-item.bytes // _MIB)}' for item in uses)}; {advice}"
    )
