"""Answers and searches."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from itertools import starmap, zip_longest
from typing import Annotated, Any, Final

from edge_rag.core.answer import AnswerEvent, Citation, Finished, PassagesFound, TextDelta, Unsupported
from edge_rag.core.limits.asker import QueryFields
from edge_rag.core.limits.request_fields import (
    DEFAULT_COLLECTION,
    MAX_HITS,
    MAX_PASSAGES,
    MAX_SEED,
    MAX_SENTENCES,
    MAX_TOKENS,
    MAX_TOP_K,
    RequestLimits,
    checked_sampling,
    parse_text,
)
from edge_rag.core.passage import FoundPassage, HitExplanation, RankedPassage
from edge_rag.core.query import (
    AnswerFormat,
    AnswerMode,
    JsonSchema,
    Priority,
    Query,
    Regex,
    Sampling,
    Turn,
)
from edge_rag.core.shapes.views import FoundHits, SearchHit, SearchTimings, WholeAnswer
from edge_rag.errors import InvalidRequest
from edge_rag.server.http.api.decode import Between, Collection, Condition, Legal, decoded_filter
from edge_rag.server.http.api.endpoints import MAX_RESPONSE_BYTES, fitting, size_of
from edge_rag.service import ask as service
from edge_rag.service.call import Call

_NOT_EMPTY: Final = (("minLength", 1),)
_SAMPLING: Final = Sampling()


Text = Annotated[str, Legal(lambda field, value: parse_text(field, value, len(value)), _NOT_EMPTY)]
"""A question; how long it may be is a setting."""


@dataclass(frozen=True, slots=True)
class AskRequest:
    """A question.

    Attributes:
        question: The question.
        collection: Name of the collection.
        mode: How the answer is written; null for the daemon's default, or ``free`` if there is a format.
        max_sentences: Most points quoted, each of a sentence with what belongs to it; as many as the answer needs if
            it is left out.
        passages: Most passages in the prompt; null for the daemon's default.
        max_tokens: Most tokens generated.
        temperature: 0 is greedy.
        top_k: Keeps the k most likely tokens; 0 keeps all.
        top_p: Keeps the smallest set of tokens whose probability reaches this, above 0.
        repetition_penalty: Penalty for repeated tokens; 1 is off.
        seed: Equal seeds give equal answers; null for a random one.
        stop: Texts that end the answer, at most 8.
        priority: Scheduling class.
        json_schema: JSON Schema that the answer validates under. In mode free the model writes it, and an answer that
            is cut at ``max_tokens`` is an error of status 422. In mode extract its fields are filled with values of the
            documents.
        regex: Regular expression that the whole answer matches. Mode free, likewise.
        allow_truncated: Whether an answer that is cut before it is complete in its format is sent as it is.
        filter: Condition on passages, for example ``year >= 2020 and name ~ "pump*"``; as of ``edge-rag ask --filter``.
        turns: Earlier turns of the conversation, oldest first, at most 8; an incomplete question is completed
            from them. The daemon keeps none.
        stream: Whether the answer is sent as events; ``Accept: text/event-stream`` asks for the same.
    """

    question: Text
    collection: Collection = DEFAULT_COLLECTION
    mode: AnswerMode | None = None
    max_sentences: Annotated[int, Between(1, MAX_SENTENCES)] | None = None
    passages: Annotated[int, Between(1, MAX_PASSAGES)] | None = None
    max_tokens: Annotated[int, Between(1, MAX_TOKENS)] = _SAMPLING.max_tokens
    temperature: Annotated[float, Between(0, 2)] = _SAMPLING.temperature
    top_k: Annotated[int, Between(0, MAX_TOP_K)] = _SAMPLING.top_k
    top_p: Annotated[float, Between(0, 1)] = _SAMPLING.top_p
    repetition_penalty: Annotated[float, Between(1, 10)] = _SAMPLING.repetition_penalty
    seed: Annotated[int, Between(0, MAX_SEED)] | None = None
    stop: tuple[str, ...] = ()
    priority: Priority = Priority.INTERACTIVE
    json_schema: Mapping[str, Any] | None = None
    regex: str | None = None
    allow_truncated: bool = False
    filter: Condition | None = None
    turns: tuple[Turn, ...] = ()
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Answer(WholeAnswer):
    """A whole answer.

    Attributes:
        passages: The passages that it is based on, best first; citations refer to them by position. In mode ``free``
            those that the model was given, as far as they fit its context.
        evidence: Evidence that an answer is among them, 0 to 1.
    """

    passages: tuple[RankedPassage, ...]
    evidence: float


async def ask(call: Call, request: AskRequest, limits: RequestLimits) -> AsyncGenerator[AnswerEvent, None]:
    """Answers a question from the documents and cites its sources; in mode ``free`` nothing is checked, nor cited.

    The events are the passages, then text, citations and unsupported parts in the order in which they arise, then the
    end. Positions in the answer are characters of the concatenated texts.
    """
    async with service.ask(call, _query(call, request, limits)) as events:
        async for event in events:
            yield replace(event, passages=_bounded(event.passages)) if isinstance(event, PassagesFound) else event


@dataclass(frozen=True, slots=True)
class AskOptions:
    """How questions can be asked.

    Attributes:
        modes: Answer modes that can be chosen; without a language model those that need none: ``quote`` and
            ``extract``.
        default_mode: Mode of a question without one.
        language_model: Name of the language model; null if there is none.
        not_found_below: Evidence below which the answer is that there is none in the documents, 0 to 1; not in mode
            ``free``.
        question_characters: Longest question, characters.
        max_sentences: Most sentences that can be quoted.
    """

    modes: tuple[AnswerMode, ...]
    default_mode: AnswerMode
    language_model: str | None
    not_found_below: float
    question_characters: int
    max_sentences: int


async def ask_options(call: Call, limits: RequestLimits) -> AskOptions:
    """Tells how questions can be asked: modes, language model, bounds."""
    return AskOptions(
        service.answer_modes(call),
        limits.default_mode,
        service.language_model(call),
        service.not_found_below(call),
        limits.question_characters,
        MAX_SENTENCES,
    )


def whole_answer(request: AskRequest, call: Call, events: list[AnswerEvent]) -> Answer:
    """Returns an answer of its events."""
    found = next(event for event in events if isinstance(event, PassagesFound))
    answer = Answer.of(
        call.request_id,
        request.question,
        found,
        "".join(event.text for event in events if isinstance(event, TextDelta)),
        [event for event in events if isinstance(event, Citation)],
        [event for event in events if isinstance(event, Unsupported)],
        next(event for event in events if isinstance(event, Finished)),
        passages=found.passages,
        evidence=found.evidence,
    )
    assert isinstance(answer, Answer)
    return answer


def _query(call: Call, request: AskRequest, limits: RequestLimits) -> Query:
    sampling = checked_sampling(
        Sampling(
            request.max_tokens,
            request.temperature,
            request.top_k,
            request.top_p,
            request.repetition_penalty,
            request.seed,
            request.stop,
        )
    )
    return call.asker(limits).query(
        request.question,
        request.collection,
        mode=request.mode,
        max_sentences=request.max_sentences,
        passages=request.passages,
        sampling=sampling,
        priority=request.priority,
        form=_format(request),
        allow_truncated=request.allow_truncated,
        condition=decoded_filter(request.filter),
        turns=request.turns,
        fields=QueryFields(form="regex" if request.json_schema is None else "json_schema"),
    )


def _format(request: AskRequest) -> AnswerFormat | None:
    if request.json_schema is not None and request.regex is not None:
        raise InvalidRequest("regex", "an answer has one format; leave json_schema or regex out")
    if request.json_schema is not None:
        return JsonSchema(json.dumps(request.json_schema, ensure_ascii=False))
    return None if request.regex is None else Regex(request.regex)


def _bounded(passages: tuple[RankedPassage, ...]) -> tuple[RankedPassage, ...]:
    """Returns all passages; from the first one on that would not fit a response, they lack metadata."""
    sent: list[RankedPassage] = []
    left = MAX_RESPONSE_BYTES
    for ranked in passages:
        left -= size_of(ranked)
        sent.append(ranked if left >= 0 else replace(ranked, passage=replace(ranked.passage, metadata={})))
    return tuple(sent)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search.

    Attributes:
        question: What to look for.
        collection: Name of the collection.
        limit: Most hits.
        rerank: Whether the reranker orders the hits; otherwise fusion does.
        filter: Condition on passages, for example ``year >= 2020 and name ~ "pump*"``; as of
            ``edge-rag search --filter``.
        explain: Whether hits have an explanation of their rank.
        turns: Earlier turns of the conversation, as for an answer.
    """

    question: Text
    collection: Collection = DEFAULT_COLLECTION
    limit: Annotated[int, Between(1, MAX_HITS)] = 10
    rerank: bool = True
    filter: Condition | None = None
    explain: bool = False
    turns: tuple[Turn, ...] = ()


async def search(call: Call, request: SearchRequest, limits: RequestLimits) -> FoundHits:
    """Finds passages without generating an answer."""
    query = call.asker(limits).search(
        request.question,
        request.collection,
        request.limit,
        rerank=request.rerank,
        condition=decoded_filter(request.filter),
        explain=request.explain,
        turns=request.turns,
        field="question",
    )
    found = await service.search(call, query)
    explanations = map(HitExplanation.of, found.explanations)
    hits = starmap(SearchHit.explained, zip_longest(map(FoundPassage.of, found.passages), explanations))
    times = SearchTimings(found.stages)
    return FoundHits(query.query, found.standalone_question, found.did_you_mean, fitting(hits), times)
