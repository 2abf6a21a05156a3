"""Values whose JSON shape differs from their fields: other names, omitted fields, and shapes of their own.

A new field of a core value is in its JSON without a line here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from edge_rag.core.answer import (
    Citation,
    Finished,
    FinishReason,
    NearestPassage,
    NumberConflict,
    StageTime,
    Unsupported,
    UnsupportedReason,
    Usage,
    still_unsupported,
)
from edge_rag.core.documents.document import DocumentInfo, IngestOutcome
from edge_rag.core.documents.evaluation import StoredQuestion
from edge_rag.core.documents.jobs import Job, JobDocument
from edge_rag.core.identity import Identity, Role
from edge_rag.core.ids import DocumentId, RequestId, Unrecognized
from edge_rag.core.monitoring.event import AuditEntry, AuditEventKind
from edge_rag.core.monitoring.metrics import Latency
from edge_rag.core.monitoring.resources import MemoryPlanReport, Temperature
from edge_rag.core.monitoring.status import ModelInUse
from edge_rag.core.passage import Explanation, FoundPassage, HitExplanation, RankedPassage
from edge_rag.core.placement import Precision, Provider
from edge_rag.core.query import AnswerMode, Priority


@dataclass(frozen=True, slots=True)
class Shape:
    """How the fields of a dataclass become members of a JSON object.

    Attributes:
        optional: Fields whose member is absent where they are None; others are null.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    computed: tuple[str, ...] = ()
    optional: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of an answer went.

    Attributes:
        first_token_s: From submission to the first text, seconds; null without text.
        stages: Time per stage, in pipeline order.
    """

    first_token_s: float | None
    stages: tuple[StageTime, ...]


@dataclass(frozen=True, slots=True)
class FinishedView:
    """The end of an answer.

    Attributes:
        finish_reason: Why it ended.
        usage: Tokens and steps that it used.
        timings: Where its time went.
        nearest: If no answer was found, the best passages and the words that they lack.
        prompt_passages: How many of the passages, the best ones, were in the model's prompt; null if none was asked.
        conflicts: Numbers of the answer that a passage contradicts, in mode cite.
    """

    finish_reason: FinishReason | Unrecognized
    usage: Usage
    timings: Timings
    nearest: tuple[NearestPassage, ...]
    prompt_passages: int | None
    conflicts: tuple[NumberConflict, ...]

    @classmethod
    def of(cls, finished: Finished) -> FinishedView:
        """Returns the shape of an end."""
        timings = Timings(finished.first_token_s, finished.stages)
        end = finished.nearest, finished.prompt_passages, finished.conflicts
        return cls(finished.reason, finished.usage, timings, *end)


@dataclass(frozen=True, slots=True)
class UnsupportedPart:
    """A part of an answer that no passage supports.

    Attributes:
        start: First character of the part in the answer.
        end: One past the last.
        text: The part.
        reason: Why it is not cited.
    """

    start: int
    end: int
    text: str
    reason: UnsupportedReason | Unrecognized


@dataclass(frozen=True, slots=True)
class GivenPassage:
    """A passage that the model was given; it need not support the answer.

    Attributes:
        document_id: Id of the document.
        document: Its name.
        page: 1-based page on which it starts; null if the format has no pages.
        start: First character in the document's stored text.
        end: One past the last character.
    """

    document_id: DocumentId
    document: str
    page: int | None
    start: int
    end: int

    @classmethod
    def of(cls, passage: RankedPassage | FoundPassage) -> GivenPassage:
        """Returns where a passage is."""
        where = passage.passage if isinstance(passage, RankedPassage) else passage
        return cls(where.document_id, where.document, where.page, where.start, where.end)


class Found(Protocol):
    """The first event of an answer."""

    @property
    def passages(self) -> Sequence[RankedPassage | FoundPassage]:
        """The passages, best first."""
        ...

    @property
    def question_language(self) -> str | None:
        """Language of the question, a BCP 47 tag; None if it is not sure."""
        ...

    @property
    def standalone_question(self) -> str | None:
        """The question, completed from earlier turns; None if it is complete."""
        ...

    @property
    def did_you_mean(self) -> str | None:
        """The question with misspelled words as the documents spell them; None if nothing is misspelled."""
        ...

    @property
    def mode(self) -> AnswerMode | Unrecognized:
        """How the answer is written."""
        ...

    @property
    def model(self) -> str | None:
        """Name of the box's language model; None if the mode needs none."""
        ...


def given_passages(found: Found, finished: Finished) -> Sequence[RankedPassage | FoundPassage]:
    """Returns the passages that the model was given in mode free; none in other modes."""
    return found.passages[: finished.prompt_passages] if found.mode is AnswerMode.FREE else ()


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """A whole answer.

    Attributes:
        request_id: The id in the daemon's log and audit log.
        question: The question.
        question_language: Its language, a BCP 47 tag; null if it is not sure.
        standalone_question: The question, completed from earlier turns, which was searched for as well; null
            if it is complete.
        did_you_mean: The question with misspelled words as the documents spell them, which was searched for as well;
            null if nothing is misspelled.
        mode: How it was written: ``quote`` is quoted from the documents, ``extract`` is values of them, ``cite`` is
            checked against them, ``free`` is unchecked.
        model: Name of the box's language model; null if the mode needs none.
        answer: The text.
        citations: In the order of the text.
        unsupported: Parts that no passage supports, in mode cite.
        given_to_model: Passages that the model was given in mode free: those that fit its context.
        finish_reason: Why it ended.
        usage: Tokens and steps that it used.
        timings: Where its time went.
        nearest: If no answer was found, the best passages and the words that they lack.
        prompt_passages: How many of the passages, the best ones, were in the model's prompt; null if none was asked.
        conflicts: Numbers of the answer that a passage contradicts, in mode cite.
    """

    request_id: str
    question: str
    question_language: str | None
    standalone_question: str | None
    did_you_mean: str | None
    mode: AnswerMode | Unrecognized
    model: str | None
    answer: str
    citations: tuple[Citation, ...]
    unsupported: tuple[UnsupportedPart, ...]
    given_to_model: tuple[GivenPassage, ...]
    finish_reason: FinishReason | Unrecognized
    usage: Usage
    timings: Timings
    nearest: tuple[NearestPassage, ...]
    prompt_passages: int | None
    conflicts: tuple[NumberConflict, ...]

    @classmethod
    def of(
        cls,
        request_id: str,
        question: str,
        found: Found,
        text: str,
        citations: Sequence[Citation],
        unsupported: Sequence[Unsupported],
        finished: Finished,
        **more: Any,
    ) -> WholeAnswer:
        """Returns an answer from its events, beginning with ``found``; ``more`` are the fields of a subclass."""
        end = FinishedView.of(finished)
        return cls(
            request_id,
            question,
            found.question_language,
            found.standalone_question,
            found.did_you_mean,
            found.mode,
            found.model,
            text,
            tuple(citations),
            tuple(
                UnsupportedPart(
                    part.answer_start, part.answer_end, text[part.answer_start : part.answer_end], part.reason
                )
                for part in still_unsupported(unsupported, citations)
            ),
            tuple(map(GivenPassage.of, given_passages(found, finished))),
            end.finish_reason,
            end.usage,
            end.timings,
            end.nearest,
            end.prompt_passages,
            end.conflicts,
            **more,
        )


@dataclass(frozen=True, slots=True)
class SearchHit(FoundPassage):
    """A passage that a search found.

    Attributes:
        explanation: How it was ranked, if that was asked for.
    """

    explanation: HitExplanation | None = None

    @classmethod
    def explained(cls, passage: FoundPassage, explanation: HitExplanation | None) -> SearchHit:
        """Returns a hit from a passage and its explanation."""
        given = {name: getattr(passage, name) for name in FoundPassage.__dataclass_fields__}
        return cls(**given, explanation=explanation)


@dataclass(frozen=True, slots=True)
class SearchTimings:
    """Where the time of a search went.

    Attributes:
        stages: Time per stage, in pipeline order.
    """

    stages: tuple[StageTime, ...]


@dataclass(frozen=True, slots=True)
class FoundHits:
    """The result of a search.

    Attributes:
        question: The question.
        standalone_question: The question, completed from earlier turns, which was searched for as well; null
            if it is complete.
        did_you_mean: The question with misspelled words as the documents spell them, which was searched for as well;
            null if nothing is misspelled.
        hits: Best first.
        timings: Where the time went.
    """

    question: str
    standalone_question: str | None
    did_you_mean: str | None
    hits: tuple[SearchHit, ...]
    timings: SearchTimings


@dataclass(frozen=True, slots=True)
class ModelView:
    """A model that fills a role.

    Attributes:
        role: ``embedder``, ``reranker`` or ``generator``.
        name: Name of its folder.
        detail: How it runs.
        execution_provider: Execution provider that it runs on.
        wanted_provider: First provider of the profile.
        reason: Why it runs there.
        precision: Number format that it computes in.
    """

    role: str
    name: str
    detail: str
    execution_provider: Provider | Unrecognized
    wanted_provider: Provider | Unrecognized
    reason: str
    precision: Precision | Unrecognized

    @classmethod
    def of(cls, model: ModelInUse) -> ModelView:
        """Returns the shape of a model."""
        placed = model.placement
        return cls(model.role, model.name, model.detail, placed.used, placed.wanted, placed.reason, placed.precision)


@dataclass(frozen=True, slots=True)
class IdentityView:
    """A caller.

    Attributes:
        name: Its name.
        roles: Its roles.
        collections: Collections it may access; null for all.
        priority_max: Most urgent scheduling class of its requests.
        requests_per_minute: Calls started within a minute; null is unlimited.
        tokens_per_minute: Prompt and generated tokens within a minute; null is unlimited.
        concurrent_requests: Calls in progress at once; null is unlimited.
    """

    name: str
    roles: frozenset[Role]
    collections: frozenset[str] | None
    priority_max: Priority
    requests_per_minute: int | None
    tokens_per_minute: int | None
    concurrent_requests: int | None

    @classmethod
    def of(cls, identity: Identity) -> IdentityView:
        """Returns the shape of a caller."""
        quota = identity.quota
        return cls(
            identity.name,
            identity.roles,
            identity.collections,
            identity.priority_ceiling,
            quota.requests_per_minute,
            quota.tokens_per_minute,
            quota.concurrent_requests,
        )


@dataclass(frozen=True, slots=True)
class AuditView:
    """An event of the audit log.

    Attributes:
        number: 1 for the first event since the start of the daemon, then one more each.
        at: Time of recording, UTC.
        monotonic_s: Monotonic clock of the box, seconds.
        kind: The decision.
        request_id: Id of the request; null for a decision about no request.
        client: Client of the request; empty if there is none.
        priority: Scheduling class; null if there is none.
        reason: Why.
        preempted_for: For ``preempted``, the request that needed the slot or the pages.
        numbers: The numbers behind the decision, by name; null where a number is not finite.
    """

    number: int
    at: datetime
    monotonic_s: float
    kind: AuditEventKind | Unrecognized
    request_id: RequestId | None
    client: str
    priority: Priority | None
    reason: str
    preempted_for: RequestId | None
    numbers: Mapping[str, float | None]

    @classmethod
    def of(cls, entry: AuditEntry) -> AuditView:
        """Returns the shape of an entry."""
        event = entry.event
        return cls(
            entry.number,
            entry.at,
            event.at_s,
            event.kind,
            event.request_id,
            event.client,
            event.priority,
            event.reason,
            event.preempted_for,
            event.numbers,
        )


VIEWS: Final[Mapping[type, Any]] = {
    RankedPassage: FoundPassage,
    Explanation: HitExplanation,
    Finished: FinishedView,
    ModelInUse: ModelView,
    Identity: IdentityView,
    AuditEntry: AuditView,
}
"""Values with a shape of their own: a dataclass whose ``of`` makes it."""

SHAPES: Final[Mapping[type, Shape]] = {
    DocumentInfo: Shape({"document_id": "id"}),
    IngestOutcome: Shape(without=frozenset({"cause"})),
    Job: Shape({"job_id": "id"}, frozenset({"collections"})),
    JobDocument: Shape(without=frozenset({"ticket", "change"})),
    MemoryPlanReport: Shape(computed=("planned_bytes",)),
    StoredQuestion: Shape({"question_id": "id"}),
    SearchHit: Shape(optional=frozenset({"explanation"})),
    Unsupported: Shape({"answer_start": "start", "answer_end": "end"}),
}
"""Shapes of the dataclasses that need one."""

KEYS: Final[Mapping[type, str]] = {Temperature: "zone", Latency: "measure"}
"""Types whose tuples become an object. The key of each value is its field of this name; the rest is an object of its
other fields or, if there is only one, the value of that field."""
