"""Checks questions and searches of a caller, over any transport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_rag.core.documents.filters import Filter
from edge_rag.core.identity import Identity
from edge_rag.core.ids import RequestId
from edge_rag.core.limits.request_fields import (
    MAX_HITS,
    MAX_PASSAGES,
    MAX_SENTENCES,
    RequestLimits,
    bounded_int,
    check_format,
    checked_turns,
    parse_text,
)
from edge_rag.core.query import AnswerFormat, AnswerMode, Priority, Query, Sampling, SearchQuery, Turn


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and within what. Its methods raise InvalidRequest with the name of the first unusable field."""

    request_id: RequestId
    identity: Identity
    deadline: float
    limits: RequestLimits

    def query(
        self,
        question: str,
        collection: str,
        *,
        mode: AnswerMode | None = None,
        max_sentences: int | None = None,
        passages: int | None = None,
        sampling: Sampling | None = None,
        priority: Priority = Priority.INTERACTIVE,
        form: AnswerFormat | None = None,
        allow_truncated: bool = False,
        condition: Filter | None = None,
        turns: Sequence[Turn] = (),
        fields: QueryFields | None = None,
    ) -> Query:
        """Returns a valid question.

        Args:
            mode: None for the default, or FREE if there is a format.
            passages: None for the default.
            sampling: Checked parameters; None for the default.
            fields: Names of fields in errors; None for those of our own interfaces.
        """
        limits, names = self.limits, fields or QueryFields()
        sampling = sampling or Sampling()
        if mode is None:
            mode = limits.default_mode if form is None else AnswerMode.FREE
        if form is not None:
            check_format(names.form, form, mode, names.stop if sampling.stop else None)
        if max_sentences is not None:
            bounded_int(f"{names.prefix}max_sentences", max_sentences, 1, MAX_SENTENCES)
        if passages is None:
            passages = limits.default_passages
        return Query(
            request_id=self.request_id,
            question=parse_text(names.question, question, limits.question_characters),
            collection=collection,
            mode=mode,
            max_sentences=max_sentences,
            passages=bounded_int(f"{names.prefix}passages", passages, 1, MAX_PASSAGES),
            sampling=sampling,
            priority=self.identity.capped_priority(priority),
            client=self.identity.name,
            deadline=self.deadline,
            format=form,
            allow_truncated=allow_truncated,
            filter=condition,
            turns=checked_turns("turns", turns, limits.question_characters),
        )

    def search(
        self,
        query: str,
        collection: str,
        limit: int,
        *,
        rerank: bool = True,
        condition: Filter | None = None,
        explain: bool = False,
        turns: Sequence[Turn] = (),
        field: str = "query",
    ) -> SearchQuery:
        """Returns a valid search; ``field`` is the name of its text in errors."""
        return SearchQuery(
            request_id=self.request_id,
            query=parse_text(field, query, self.limits.question_characters),
            collection=collection,
            limit=bounded_int("limit", limit, 1, MAX_HITS),
            rerank=rerank,
            client=self.identity.name,
            deadline=self.deadline,
            filter=condition,
            explain=explain,
            turns=checked_turns("turns", turns, self.limits.question_characters),
        )


@dataclass(frozen=True, slots=True)
class QueryFields:
    """Names of the fields of a question in errors.

    Attributes:
        prefix: What precedes ``max_sentences`` and ``passages``.
    """

    question: str = "question"
    form: str = "format"
    stop: str = "stop"
    prefix: str = ""
