"""Whether what a collection holds may be computed on elsewhere."""

from __future__ import annotations

from enum import Enum


class OffloadRule(Enum):
    """What of a collection may leave the box.

    NEVER: nothing, in any mode. REDACTED: questions and passages in which the configured patterns were replaced by
    placeholders. ALLOWED: questions and passages as they are.
    """

    NEVER = "never"
    REDACTED = "redacted"
    ALLOWED = "allowed"


class OffloadMode(Enum):
    """When other machines compute.

    NEVER: at no time. OVERFLOW: when this box would miss a request's deadline, or is held back; documents are embedded
    on both sides. PREFER_REMOTE: whenever one is there. RACE: interactive requests are begun on both sides, and the
    first to speak goes on; the others as OVERFLOW.
    """

    NEVER = "never"
    OVERFLOW = "overflow"
    PREFER_REMOTE = "prefer-remote"
    RACE = "race"


class OffloadUse(Enum):
    """What another machine is used for.

    GENERATE: writing answers. EMBED: turning questions and passages into vectors. RERANK: ordering passages.
    """

    GENERATE = "generate"
    EMBED = "embed"
    RERANK = "rerank"
