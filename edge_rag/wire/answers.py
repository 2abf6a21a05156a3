"""Answers, search results and documents, to and from protobuf, and bounds on the size of responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Final, TypeVar

from google.protobuf.message import Message

from edge_rag.api.v1 import common_pb2, documents_pb2, rag_pb2
from edge_rag.core.answer import AnswerEvent, Citation, Finished, PassagesFound, StageTime, TextDelta, Unsupported
from edge_rag.core.documents.document import DocumentInfo, IngestOutcome
from edge_rag.core.passage import Explanation, FoundPassage, HitExplanation, RankedPassage
from edge_rag.wire.codec import Codec
from edge_rag.wire.metadata import METADATA
from edge_rag.wire.requests import MODES
from edge_rag.wire.types import (
    AskEvent,
    PassagesReceived,
    SearchReply,
    StoredDocument,
)

MAX_RESPONSE_BYTES: Final = 512 << 10
"""Most bytes of a response, but for one element that alone has more."""

_FRAMING_BYTES: Final = 8
"""Tag and length of an element of a repeated field."""

_Element = TypeVar("_Element")
_Sent = TypeVar("_Sent", bound=Message)


def size_of(message: Message) -> int:
    """Returns the bytes that a message takes as an element of a repeated field."""
    return message.ByteSize() + _FRAMING_BYTES


def fitting(
    elements: Iterable[_Element], size: Callable[[_Element], int], most_bytes: int = MAX_RESPONSE_BYTES
) -> list[_Element]:
    """Returns the first elements that fit a response together, and at least one if there is any."""
    taken: list[_Element] = []
    for element in elements:
        most_bytes -= size(element)
        if taken and most_bytes < 0:
            break
        taken.append(element)
    return taken


def without_excess(messages: Iterable[_Sent], field: str, most_bytes: int = MAX_RESPONSE_BYTES) -> list[_Sent]:
    """Returns all messages; from the first one on that would not fit, they lack a field."""
    sent: list[_Sent] = []
    for message in messages:
        most_bytes -= size_of(message)
        if most_bytes < 0:
            message.ClearField(field)
        sent.append(message)
    return sent


_PASSAGE = Codec(FoundPassage, common_pb2.Passage, parts={"metadata": METADATA})
_PASSAGES = Codec(PassagesReceived, rag_pb2.Passages)
_CITATION = Codec(Citation, rag_pb2.Citation)
_UNSUPPORTED = Codec(Unsupported, rag_pb2.Unsupported)
_FINISHED = Codec(Finished, rag_pb2.Finished)
_EXPLANATION = Codec(HitExplanation, rag_pb2.Explanation)
_STAGE_TIME = Codec(StageTime, rag_pb2.StageTime)
_SEARCH_REPLY = Codec(SearchReply, rag_pb2.SearchResponse)
_DOCUMENT = Codec(DocumentInfo, documents_pb2.Document, names={"document_id": "id"}, parts={"metadata": METADATA})
_OUTCOME = Codec(IngestOutcome, documents_pb2.IngestResponse.Outcome, omit=("cause",))
_STORED_DOCUMENT = Codec(StoredDocument, documents_pb2.GetDocumentResponse, names={"info": "document"})


def event_to_message(event: AnswerEvent) -> rag_pb2.AskResponse:
    """Returns one message of an answer."""
    match event:
        case TextDelta():
            return rag_pb2.AskResponse(text=rag_pb2.TextDelta(text=event.text))
        case PassagesFound():
            found = without_excess(map(passage_to_message, event.passages), "metadata")
            passages = rag_pb2.Passages(
                passages=found,
                evidence=event.evidence,
                question_language=event.question_language,
                standalone_question=event.standalone_question,
                did_you_mean=event.did_you_mean,
                mode=MODES.to_number(event.mode),
                model=event.model,
            )
            return rag_pb2.AskResponse(passages=passages)
        case Citation():
            return rag_pb2.AskResponse(citation=_CITATION.to_message(event))
        case Unsupported():
            return rag_pb2.AskResponse(unsupported=_UNSUPPORTED.to_message(event))
        case Finished():
            return rag_pb2.AskResponse(finished=finished_to_message(event))


def event_from_message(message: rag_pb2.AskResponse) -> AskEvent | None:
    """Returns the event in one message of an answer; None for a kind of event that this version does not know."""
    match message.WhichOneof("event"):
        case "text":
            return TextDelta(message.text.text)
        case "passages":
            return _PASSAGES.from_message(message.passages)
        case "citation":
            return _CITATION.from_message(message.citation)
        case "unsupported":
            return _UNSUPPORTED.from_message(message.unsupported)
        case "finished":
            return finished_from_message(message.finished)
        case _:
            return None


def finished_to_message(event: Finished) -> rag_pb2.Finished:
    return _FINISHED.to_message(event)


def finished_from_message(message: rag_pb2.Finished) -> Finished:
    return _FINISHED.from_message(message)


def passage_to_message(ranked: RankedPassage) -> common_pb2.Passage:
    return _PASSAGE.to_message(FoundPassage.of(ranked))


def search_to_message(
    passages: Iterable[RankedPassage],
    stages: Iterable[StageTime],
    explanations: Iterable[Explanation],
    standalone_question: str | None = None,
    did_you_mean: str | None = None,
) -> rag_pb2.SearchResponse:
    """Returns the result of a search as a message: as many of the best hits as fit."""
    hits = map(passage_to_message, passages)
    explained = map(_EXPLANATION.to_message, map(HitExplanation.of, explanations))
    pairs = fitting(zip_longest(hits, explained), lambda pair: sum(size_of(part) for part in pair if part is not None))
    return rag_pb2.SearchResponse(
        hits=[hit for hit, _ in pairs],
        stages=map(_STAGE_TIME.to_message, stages),
        explanations=[each for _, each in pairs if each is not None],
        standalone_question=standalone_question,
        did_you_mean=did_you_mean,
    )


def search_reply_from_message(message: rag_pb2.SearchResponse) -> SearchReply:
    return _SEARCH_REPLY.from_message(message)


def document_to_message(info: DocumentInfo) -> documents_pb2.Document:
    return _DOCUMENT.to_message(info)


def document_from_message(message: documents_pb2.Document) -> DocumentInfo:
    return _DOCUMENT.from_message(message)


def stored_document_from_message(message: documents_pb2.GetDocumentResponse) -> StoredDocument:
    return _STORED_DOCUMENT.from_message(message)


def outcome_to_message(outcome: IngestOutcome) -> documents_pb2.IngestResponse.Outcome:
    return _OUTCOME.to_message(outcome)


def outcome_from_message(message: documents_pb2.IngestResponse.Outcome) -> IngestOutcome:
    return _OUTCOME.from_message(message)
