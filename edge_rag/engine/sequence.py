"""A request as the scheduler sees it: its tokens, how many of them the cache holds, what it copies, and its rank.

A copied passage was computed on its own. It has not attended to the tokens before it here, so everything after it is an
approximation.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

from edge_rag.core.query import Priority

SequenceId = NewType("SequenceId", int)
"""Positive, in order of arrival, never reused."""

PageId = NewType("PageId", int)
"""Index of a page in the cache, from 0."""

PageKey = NewType("PageKey", bytes)
"""Identity of a page's content together with everything before it."""


class Status(Enum):
    """State of a sequence."""

    NEW = "new"
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"


class WaitReason(Enum):
    """Why a sequence waits, as a sentence for audit events."""

    SLOTS = "every slot is taken"
    PAGES = "not enough pages are free"
    ORDER = "others go first"
    MEMORY = "memory is short, and it can wait"


def domain_key(trust_domain: str, epoch: int | None = None) -> str:
    """Returns the key of a trust domain's epoch in the prefix cache; without an epoch, the prefix of all its keys."""
    return f"{trust_domain}\0" if epoch is None else f"{trust_domain}\0{epoch}"


@dataclass(frozen=True, slots=True)
class PassageSpan:
    """A part of a prompt that also occurs, token by token, in another text.

    Attributes:
        start: Position of its first token in the prompt.
        length: Tokens, at least 1.
        alone: The other text: the prompt's beginning, the passage, and what fills up its last page.
        offset: Position of its first token there, at most ``start``.
    """

    start: int
    length: int
    alone: tuple[int, ...]
    offset: int

    @property
    def end(self) -> int:
        """Position after its last token in the prompt."""
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class KvCopy:
    """A part of a sequence that is copied instead of computed.

    Attributes:
        start: Position of its first token in the sequence.
        length: Tokens, at least 1.
        pages: Pages of the text it is copied from, in order.
        offset: Position of its first token there, at most ``start``.
    """

    start: int
    length: int
    pages: tuple[PageId, ...]
    offset: int

    @property
    def end(self) -> int:
        """Position after its last token in the sequence."""
        return self.start + self.length


def copied_tokens(copies: SequenceOf[KvCopy]) -> int:
    """Returns how many tokens the copies hold."""
    # Nearly every sequence of every step has none, and setting up the sum costs more than it.
    return sum([copy.length for copy in copies]) if copies else 0


def computed_ranges(first: int, end: int, copies: SequenceOf[KvCopy]) -> Iterator[tuple[int, int]]:
    """Yields the computed ranges between two positions of a sequence, as first and end positions; none is empty."""
    for copy in copies:
        if first < copy.start:
            yield first, copy.start
        first = copy.end
    if first < end:
        yield first, end


def next_copies(first: int, count: int, copies: SequenceOf[KvCopy]) -> tuple[KvCopy, ...]:
    """Returns the copies that come before the last of the next ``count`` computed tokens.

    Args:
        first: Position of the first of these tokens, or of a copy before it.
    """
    count_copies = 0
    for copy in copies:
        if count <= copy.start - first:
            break
        count -= copy.start - first
        first = copy.end
        count_copies += 1
    return tuple(copies[:count_copies])


def tokens_until(first: int, end: int, copies: SequenceOf[KvCopy]) -> int:
    """Returns how many tokens can be computed before a position, together with the copies between them.

    Args:
        first: Position of the first token that is neither computed nor copied.
    """
    count = 0
    for copy in copies:
        if copy.end >= end:
            return count + max(0, min(end, copy.start) - first)
        count += copy.start - first
        first = copy.end
    return count + max(0, end - first)


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens to be computed by the model.

    The cache holds the first ``computed`` of ``tokens``; the others are pending, except those copied from other texts.
    A sequence with one pending token decodes, one with more prefills: a prompt, a forced run and a recomputation after
    preemption are the same.

    Attributes:
        trust_domain: Key of its trust domain and epoch; cached pages are shared only inside one.
        tokens: Prompt followed by generated tokens; only ever appended to.
        max_tokens: Most tokens that may be generated; 0 for a sequence that only fills the cache.
        deadline: Time after which the result is of no use, seconds, or None.
        level: Scheduling class it has risen to by aging; never lower than ``priority``.
        cached_tokens: Prompt tokens found in the cache at its first admission.
        waited_s: Time it waited for slots before the present wait, seconds.
        waiting_since: Start of the present wait, seconds.
        keys: Keys of its first full pages, as far as they were needed.
        draft: Drafted tokens to verify in the next step if there is room.
        copies: Copies that are planned and not done, in order; all after the first ``computed`` tokens.
        exact_until: Position of the first token whose keys and values are an approximation; None if there is none.
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
        return len(self.tokens) - self.computed - copied_tokens(self.copies)

    @property
    def needs_logits(self) -> bool:
        """Whether a token is sampled once all are computed."""
        return self.max_tokens > 0

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    def exclude_from_cache(self) -> None:
        """Moves the sequence to a trust domain of its own: other sequences cannot find the pages it fills from now on.

        It copies no cached passages either.
        """
        if not self.excluded:
            self.trust_domain = f"{self.trust_domain}\0{self.id}"
            self.keys.clear()
            self.excluded = True
        self.spans = ()

    @property
    def rank(self) -> tuple[int, int]:
        return (self.level, self.id)
