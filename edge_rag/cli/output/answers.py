"""Answers, collected from the stream of events, and how they and explained hits are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from edge_rag.analysis.languages import DEFAULT_LANGUAGE
from edge_rag.core.answer import (
    Citation,
    Finished,
    FinishReason,
    NearestPassage,
    NearestReason,
    NumberConflict,
    StageTime,
    TextDelta,
    Unsupported,
    still_unsupported,
)
from edge_rag.core.ids import Unrecognized
from edge_rag.core.query import AnswerMode
from edge_rag.core.shapes.encoder import encode
from edge_rag.core.shapes.views import GivenPassage, WholeAnswer, given_passages
from edge_rag.generator.messages import MESSAGES, Message, message

if TYPE_CHECKING:
    from edge_rag.client import AskEvent, HitExplanation, PassagesReceived


_NEAREST_CHARACTERS: Final = 160
"""Characters of the closest sentence of a passage that are shown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer.

    Attributes:
        citations: In the order of the stream.
    """

    request_id: str
    question: str
    found: PassagesReceived
    text: str
    citations: tuple[Citation, ...]
    unsupported: tuple[Unsupported, ...]
    finished: Finished

    def as_json(self) -> dict[str, Any]:
        """Returns the stable JSON shape."""
        whole = WholeAnswer.of(
            self.request_id,
            self.question,
            self.found,
            self.text,
            self.citations,
            self.unsupported,
            self.finished,
        )
        shown: dict[str, Any] = encode(whole)
        return shown


def collect(request_id: str, question: str, events: Iterable[AskEvent], on_text: Callable[[str], None]) -> Answer:
    """Reads a stream to its end.

    Args:
        on_text: Called with every text delta, and with a note, which is not part of the answer, after a sentence
            without support.
    """
    from edge_rag.client import PassagesReceived

    found = PassagesReceived(())
    pieces: list[str] = []
    citations: list[Citation] = []
    unsupported: list[Unsupported] = []
    finished: Finished | None = None
    for event in events:
        match event:
            case PassagesReceived():
                found = event
            case TextDelta():
                pieces.append(event.text)
                on_text(event.text)
            case Citation():
                citations.append(event)
            case Unsupported():
                unsupported.append(event)
                on_text(f" [{message(Message.NO_SOURCE, found.question_language or DEFAULT_LANGUAGE)}]")
            case Finished():
                finished = event
    if finished is None:
        raise ValueError("the stream of events ended without Finished")
    return Answer(request_id, question, found, "".join(pieces), tuple(citations), tuple(unsupported), finished)


def searched_line(question: str, standalone_question: str | None, did_you_mean: str | None) -> str:
    if did_you_mean is not None:
        return f"did you mean: {did_you_mean}"
    if standalone_question is None or standalone_question == question:
        return ""
    return f"searched for: {standalone_question}"


def format_source(document: str, page: int | None, start: int, end: int) -> str:
    where = f", page {page}" if page is not None else ""
    return f"{document}{where}, characters {start}-{end}"


def source_lines(answer: Answer) -> list[str]:
    return _citation_lines(answer) or _given_lines(answer) or _nearest_lines(answer)


def cited_by_source(answer: Answer) -> dict[str, list[Citation]]:
    """Returns the citations by their source, in the order in which sources are cited first.

    A source is one line of text, with the language where it is not the question's. A quote that only introduces
    another one is no source of its own.
    """
    sources: dict[str, list[Citation]] = {}
    for each in answer.citations:
        if not each.context:
            sources.setdefault(_source(each) + _language_note(each, answer), []).append(each)
    return sources


def _citation_lines(answer: Answer) -> list[str]:
    return [
        f"[{number}] {text}{_fields_note(citations)}"
        for number, (text, citations) in enumerate(cited_by_source(answer).items(), start=1)
    ]


def _fields_note(citations: Sequence[Citation]) -> str:
    fields = [each.field for each in citations if each.field]
    return f": {', '.join(fields)}" if fields else ""


def _given_lines(answer: Answer) -> list[str]:
    """Formats the passages that the model was given in mode free, a line each after a heading; empty in other modes.

    The lines are no numbered sources: the text need not come from them.
    """
    passages = map(GivenPassage.of, given_passages(answer.found, answer.finished))
    given = dict.fromkeys(format_source(each.document, each.page, each.start, each.end) for each in passages)
    return ["Given to the model, not checked against it:", *(f"  {text}" for text in given)] if given else []


def _nearest_lines(answer: Answer) -> list[str]:
    """Formats the nearest passages of an answer that was not found, two lines each after a heading; else nothing."""
    lines = ["Nearest passages:"] if answer.finished.nearest else []
    for each in answer.finished.nearest:
        text = " ".join(each.text.split())
        shown = text if len(text) <= _NEAREST_CHARACTERS else f"{text[:_NEAREST_CHARACTERS]}…"
        lines.append(f"  {format_source(each.document, each.page, each.start, each.end)}: {_why(each)}")
        lines.append(f"    {shown}")
    return lines


def _why(nearest: NearestPassage) -> str:
    """Returns why a passage was not taken for an answer."""
    lacks = f"lacks: {', '.join(nearest.lacks)}"
    match nearest.reason:
        case NearestReason.LACKS_WORDS:
            return lacks
        case NearestReason.NOT_SIMILAR:
            return "no sentence is close enough to the question"
        case NearestReason.OTHER_LANGUAGE:
            return "in another language, and not close enough to the question"
        case NearestReason.NOT_SUPPORTED:
            return "does not support what the model wrote"
        case Unrecognized():
            return lacks if nearest.lacks else "not taken for an answer"


def warning_lines(answer: Answer) -> list[str]:
    """Returns the warnings below an answer: numbers that a document contradicts.

    A sentence that was streamed with a note, and got its source at the end, is named here, too.
    """
    left = still_unsupported(answer.unsupported, answer.citations)
    texts = (answer.text[each.answer_start : each.answer_end] for each in answer.unsupported if each not in left)
    return [
        *(f"A source was found at the end for: {text}" for text in texts),
        *(f"The answer says {each.claimed}; {_place(each)} says {each.stated}." for each in answer.finished.conflicts),
    ]


def _place(where: NumberConflict) -> str:
    return where.document if where.page is None else f"{where.document}, page {where.page}"


def mode_line(answer: Answer) -> str:
    """Returns the promise of the answer's mode; empty if there is no answer, or a daemon of an earlier version."""
    if answer.finished.reason is FinishReason.NOT_FOUND:
        return ""
    match answer.found.mode:
        case AnswerMode.QUOTE:
            return "quoted from the documents"
        case AnswerMode.EXTRACT:
            return "extracted from the documents"
        case AnswerMode.CITE:
            return f"written by {answer.found.model or 'a language model'}, checked against the documents"
        case AnswerMode.FREE:
            return f"unchecked: written by {answer.found.model or 'a language model'}, may be wrong"
        case _:
            return ""


def _source(citation: Citation) -> str:
    where = citation.document if citation.page is None else f"{citation.document}, page {citation.page}"
    where = where if citation.line is None else f"{where}, line {citation.line:,}"
    if citation.section:
        where += f", {' › '.join(citation.section)}"
    if where == citation.document:
        where += f", characters {citation.start}-{citation.end}"
    return where


def _language_note(citation: Citation, answer: Answer) -> str:
    if citation.language is None or answer.found.question_language in (None, citation.language):
        return ""
    return f" ({message(Message.NAME, citation.language) if citation.language in MESSAGES else citation.language})"


def stage_line(stages: tuple[StageTime, ...]) -> str:
    return " · ".join(_stage(stage) for stage in stages)


def cut_line(finished: Finished) -> str:
    """Returns what happened to an answer that did not come to its end, and what to do; empty for one that did."""
    match finished.reason:
        case FinishReason.STOP | FinishReason.NOT_FOUND:
            return ""
        case FinishReason.LENGTH:
            tokens = finished.usage.generated_tokens
            return f"The answer is cut after {tokens:,} tokens: allow more with --max-tokens."
        case Unrecognized():
            return f"The answer ended for a reason that this version does not know: {finished.reason.value}."


def finish_line(finished: Finished) -> str:
    """Formats times of an answer on one line, and token usage where a language model ran."""
    usage = finished.usage
    first = (
        f" · first token after {format_duration(finished.first_token_s)}" if finished.first_token_s is not None else ""
    )
    if not usage.model_steps:
        return f"{stage_line(finished.stages)}{first}"
    cached = f" ({usage.cached_prompt_tokens} cached)" if usage.cached_prompt_tokens else ""
    if usage.copied_prompt_tokens:
        cached += f" ({usage.copied_prompt_tokens} copied, approximate)"
    tokens = f"{usage.prompt_tokens} prompt{cached} + {usage.generated_tokens} answer tokens"
    steps = "1 step" if usage.model_steps == 1 else f"{usage.model_steps} steps"
    return f"{stage_line(finished.stages)}{first} · {tokens} in {steps}"


def _stage(stage: StageTime) -> str:
    waited = f" (+{format_duration(stage.queue_s)} queued)" if stage.queue_s >= 0.001 else ""
    return f"{stage.stage} {format_duration(stage.compute_s)}{waited}"


def format_duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


_HEADINGS = ("hit", "dense", "cosine", "BM25", "score", "fused", "boost", "retriever", "reranker", "merged from")


def explanation_table(explanations: Sequence[HitExplanation]) -> list[str]:
    """Formats a table, one line per hit in order; ``-`` marks missing values."""
    rows = [_HEADINGS, *(_row(number, each) for number, each in enumerate(explanations, start=1))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _row(number: int, each: HitExplanation) -> tuple[str, ...]:
    return (
        str(number),
        _rank(each.dense_rank),
        _score(each.dense_score, 3),
        _rank(each.lexical_rank),
        _score(each.lexical_score, 2),
        _score(each.fused_score, 5),
        f"x{each.boost:.3g}",
        str(each.retriever_rank),
        _score(each.rerank_score, 3),
        ", ".join(f"{part.start}-{part.end}" for part in each.merged_from) or "-",
    )


def _rank(rank: int | None) -> str:
    return "-" if rank is None else str(rank)


def _score(score: float | None, digits: int) -> str:
    return "-" if score is None else f"{score:.{digits}f}"
