"""A request as the scheduler sees it: its tokens, how many of them the cache holds, and its rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NewType

from edge_rag.core.query import Priority
from edge_rag.engine.kv_cache.page_copy import KvCopy, PassageSpan, copied_tokens
from edge_rag.engine.kv_cache.prefix_cache import PageKey

if TYPE_CHECKING:
    from edge_rag.engine.request import TokenRequest

SequenceId = NewType("SequenceId", int)
"""Positive, in order of arrival, never reused."""


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


class DomainEpochs:
    """The current epoch of each trust domain; an epoch ends when text of the domain is removed. One thread."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}

    def advance(self, trust_domain: str, epoch: int) -> int:
        self._epochs[trust_domain] = current = max(epoch, self._epochs.get(trust_domain, 0))
        return current

    def is_over(self, request: TokenRequest) -> bool:
        """Whether a request's epoch has ended, so that its prompt may hold text that was removed."""
        return request.epoch < self._epochs.get(request.trust_domain, 0)


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
