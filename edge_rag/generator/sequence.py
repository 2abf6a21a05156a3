"""A request as the scheduler sees it: tokens, how many of them the cache holds, and its rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

from edge_rag.core.query import Priority

SequenceId = NewType("SequenceId", int)
"""Positive, handed out in order of arrival, never reused."""


class Status(Enum):
    """Where a sequence is."""

    NEW = "new"
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens on their way through the model.

    The cache holds the first ``computed`` of ``tokens``; the rest is pending. A sequence with one pending token
    decodes, one with more prefills: a prompt, a forced run and a recomputation after preemption are the same thing.

    Attributes:
        id: Its id; smaller came earlier.
        priority: Scheduling class.
        trust_domain: Cached pages are shared only inside one.
        tokens: Prompt followed by what was generated.
        prompt_tokens: Length of the prompt.
        max_tokens: Most tokens that may be generated.
        computed: Tokens whose keys and values the cache holds.
        status: Where it is.
        cached_tokens: Prompt tokens found in the cache when it was first admitted.
        steps: Model runs it took part in.
        preemptions: How often it had to give its pages back.
    """

    id: SequenceId
    priority: Priority
    trust_domain: str
    tokens: list[int]
    max_tokens: int
    prompt_tokens: int = field(init=False)
    computed: int = 0
    status: Status = Status.NEW
    cached_tokens: int = 0
    steps: int = 0
    preemptions: int = 0

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.tokens)

    @property
    def pending(self) -> int:
        """Tokens that the cache does not hold yet."""
        return len(self.tokens) - self.computed

    @property
    def generated(self) -> int:
        """Tokens after the prompt."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def rank(self) -> tuple[int, int]:
        """Smaller goes first and is preempted last."""
        return (self.priority, self.id)
