"""In which order a prompt holds its passages."""

from __future__ import annotations

from enum import Enum


class PassageOrder(Enum):
    """What decides.

    HOT: a list of what is asked for often, then the place in the documents. What is asked for often stands first and so
    in the same place in many prompts, whose common beginning is computed once. The list is renewed rarely; between two
    renewals equal questions over equal passages make equal prompts.
    DOCUMENT: the place in the documents only; equal questions over equal passages always make equal prompts.
    RANK: best first, as the reranker has them.
    """

    HOT = "hot"
    DOCUMENT = "document"
    RANK = "rank"
