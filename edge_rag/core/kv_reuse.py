"""How much of the work on passages that other prompts had before is done again."""

from __future__ import annotations

from enum import Enum


class KvReuse(Enum):
    """Which keys and values of other prompts a prompt takes over.

    EXACT: those of an equal beginning; the answer is the same as without. PASSAGE: those of each passage, computed
    alone and moved to where it stands, but for its first tokens; the answer is an approximation and says so.
    """

    EXACT = "exact"
    PASSAGE = "passage"
