"""A request as the scheduler sees it: tokens, how many of them the cache holds, and its rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

from edge_rag.core.query import Priority
from edge_rag.engine.kv_cache.page_copy import KvCopy, PassageSpan
from edge_rag.engine.kv_cache.prefix_cache import PageKey

SequenceId = NewType("SequenceId", int)
"""Positive, handed out in order of arrival, never reused."""


class Status(Enum):
    """Where a sequence is."""

    NEW = "new"
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"


class WaitReason(Enum):
    """Why a sequence waits, as a sentence."""

    SLOTS = "every slot is taken"
    PAGES = "not enough pages are free"
    ORDER = "others go first"
    MEMORY = "memory is short, and it can wait"


def domain_key(trust_domain: str, epoch: int | None = None) -> str:
    """Returns what pages of a trust domain's epoch are found by; without one, what all of the domain's begin with."""
    return f"{trust_domain}\0" if epoch is None else f"{trust_domain}\0{epoch}"


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens on their way through the model.

    The cache holds the first ``computed`` of ``tokens``; the rest is pending, but for what is copied from other texts.
    A sequence with one pending token decodes, one with more prefills: a prompt, a forced run and a recomputation after
    preemption are the same thing.

    Attributes:
        id: Its id; smaller came earlier.
        priority: Scheduling class it came in.
        trust_domain: Key of its trust domain and epoch; cached pages are shared only inside one.
        tokens: Prompt followed by what was generated; only ever appended to.
        max_tokens: Most tokens that may be generated.
        client: Whose it is.
        arrived: When it came, seconds.
        deadline: When it is worthless, seconds, or None.
        prompt_tokens: Length of the prompt.
        level: Scheduling class it has risen to; never lower than ``priority``.
        computed: Tokens whose keys and values the cache holds.
        status: Where it is.
        admitted: Whether it has had a slot.
        cached_tokens: Prompt tokens found in the cache when it was first admitted.
        steps: Model runs it took part in.
        preemptions: How often it had to give its pages back.
        shortages: How many of these were because pages ran out.
        waited_s: How long it has waited, seconds, without the present wait.
        waiting_since: When the present wait began, seconds.
        deferral: Why it was last said to wait, or None.
        charged_tokens: Tokens its client was charged for, or found in the cache; a recomputation is free.
        keys: Keys of its full pages, as far as they were needed.
        withdrawn: Whether its trust domain is its own.
        draft: What it may well say next, to be checked in the next step if there is room.
        spans: Parts of the prompt that stand in other texts as well and may be copied from there.
        loans: Those that will be, in order; they lie after the first ``computed`` tokens.
        copied_tokens: Prompt tokens that were copied when it was first admitted.
        exact_until: Position from which on what the cache holds of it is an approximation; None where nothing is.
    """

    id: SequenceId
    priority: Priority
    trust_domain: str
    tokens: list[int]
    max_tokens: int
    client: str = field(kw_only=True)
    arrived: float = field(kw_only=True)
    deadline: float | None = field(kw_only=True)
    prompt_tokens: int = field(init=False)
    level: Priority = field(init=False)
    computed: int = 0
    status: Status = Status.NEW
    admitted: bool = False
    cached_tokens: int = 0
    steps: int = 0
    preemptions: int = 0
    shortages: int = 0
    waited_s: float = 0.0
    waiting_since: float = 0.0
    wait_reason: WaitReason | None = None
    charged_tokens: int = 0
    keys: list[PageKey] = field(default_factory=list)
    excluded: bool = False
    draft: tuple[int, ...] = ()
    spans: tuple[PassageSpan, ...] = ()
    copies: tuple[KvCopy, ...] = ()
    copied_tokens: int = 0
    exact_until: int | None = None

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.tokens)
        self.level = self.priority

    @property
    def pending(self) -> int:
        """Tokens that are yet to be computed."""
        return len(self.tokens) - self.computed - sum(copy.length for copy in self.copies)

    @property
    def needs_logits(self) -> bool:
        """Whether a token is chosen once all are computed; one that may say nothing is computed for its pages."""
        return self.max_tokens > 0

    @property
    def generated(self) -> int:
        """Tokens after the prompt."""
        return len(self.tokens) - self.prompt_tokens

    def exclude_from_cache(self) -> None:
        """Moves the sequence to a trust domain of its own: what it caches from now on, no other can find.

        Nor does it copy what others have cached.
        """
        if not self.excluded:
            self.trust_domain = f"{self.trust_domain}\0{self.id}"
            self.keys.clear()
            self.excluded = True
        self.spans = ()

    @property
    def rank(self) -> tuple[int, int]:
        """Smaller goes first and is preempted last; does not change while the sequence runs."""
        return (self.level, self.id)
