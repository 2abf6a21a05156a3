"""The state of an answer for chat completions and responses: its text, citations and the other events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from edge_rag.core.address import document_url
from edge_rag.core.answer import (
    Citation,
    Finished,
    FinishReason,
    NearestPassage,
    NumberConflict,
    PassagesFound,
    TextDelta,
    Unsupported,
    still_unsupported,
)
from edge_rag.core.generation import CompletionEvent, CompletionRequest, FunctionCall
from edge_rag.core.passage import Passage, RankedPassage
from edge_rag.core.query import AnswerMode, Query
from edge_rag.core.shapes.encoder import encode
from edge_rag.server.http.exchange import Exchange
from edge_rag.server.http.openai.requests import EXTENSION
from edge_rag.service.ask import ask, complete
from edge_rag.service.call import Call


@dataclass(slots=True)
class Answer:
    """An answer, from its events so far.

    Attributes:
        collection: Collection whose documents it cites; empty if it cites none.
        base_url: Where the client reached the server.
        passages: The passages that it is based on.
        evidence: Evidence that an answer is among them, 0 to 1.
        citations: Citations, in order.
        extension: What OpenAI's API has no field for; complete at the end.
        finished: The last event; None before.
        call: The function to call instead of an answer.
    """

    collection: str
    base_url: str
    passages: tuple[RankedPassage, ...] = ()
    evidence: float = 0.0
    citations: list[Citation] = field(default_factory=list)
    extension: dict[str, Any] = field(default_factory=dict)
    finished: Finished | None = None
    call: FunctionCall | None = None
    _mode: AnswerMode | None = None
    _texts: list[str] = field(default_factory=list)
    _unsupported: list[Unsupported] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def end(self) -> Finished:
        assert self.finished is not None, "the answer has not ended"
        return self.finished

    @property
    def cut(self) -> bool:
        """Whether the answer ended for want of tokens."""
        return self.end.reason is FinishReason.LENGTH

    def take(self, event: CompletionEvent) -> None:
        """Takes the next event."""
        match event:
            case FunctionCall():
                self.call = event
            case TextDelta():
                self._texts.append(event.text)
            case PassagesFound():
                self.passages, self.evidence, self._mode = event.passages, event.evidence, event.mode
                self.extension |= {"evidence": event.evidence, "mode": event.mode.value}
                if event.standalone_question is not None:
                    self.extension["standalone_question"] = event.standalone_question
                if event.did_you_mean is not None:
                    self.extension["did_you_mean"] = event.did_you_mean
                if event.model is not None:
                    self.extension["model"] = event.model
            case Citation():
                self.citations.append(event)
            case Unsupported():
                self._unsupported.append(event)
            case Finished():
                self.finished = event
                if not self.collection:
                    return
                if self._mode is AnswerMode.FREE:
                    given = self.passages[: event.prompt_passages]
                    self.extension["given_to_model"] = [self._place(ranked.passage) for ranked in given]
                self.extension["found"] = event.reason is not FinishReason.NOT_FOUND
                if event.nearest:
                    self.extension["nearest"] = [self._nearest(each) for each in event.nearest]
                if event.conflicts:
                    self.extension["conflicts"] = [self._conflict(each) for each in event.conflicts]
                self.extension["unsupported"] = [
                    {"start_index": each.answer_start, "end_index": each.answer_end, "reason": each.reason.value}
                    for each in still_unsupported(self._unsupported, self.citations)
                ]

    def sources(self) -> list[dict[str, Any]]:
        """Returns the cited documents with their quotes as Open WebUI reads the data of its event ``source``.

        It counts pages from 0, and makes one card of all quotes with the same ``source``.
        """
        found: dict[str, dict[str, Any]] = {}
        for citation in self.citations:
            name, place = citation.document, self.url_citation(citation)
            key = self.document_id(citation)
            source = {"id": key, "name": name, "url": place["url"]}
            card = found.setdefault(key, {"source": source, "document": [], "metadata": []})
            page = {} if citation.page is None else {"page": citation.page - 1}
            card["document"].append(citation.text)
            card["metadata"].append({"source": key, "name": name, "source_url": place["url"], **page})
        return list(found.values())

    def document_id(self, citation: Citation) -> str:
        return self.passages[citation.passage].passage.document_id

    def _place(self, passage: Passage) -> dict[str, Any]:
        where = passage.document_id, self.collection, passage.start, passage.end, passage.page
        return {
            "document_id": passage.document_id,
            "document": passage.document,
            "page": passage.page,
            "start": passage.start,
            "end": passage.end,
            "url": document_url(self.base_url, *where),
        }

    def _nearest(self, nearest: NearestPassage) -> dict[str, Any]:
        """Returns a passage that was not taken for an answer, under no name that is shown as a source."""
        found = self.passages[nearest.passage].passage
        where = found.document_id, self.collection, nearest.start, nearest.end, nearest.page
        return {"document_id": found.document_id, **encode(nearest), "url": document_url(self.base_url, *where)}

    def _conflict(self, conflict: NumberConflict) -> dict[str, Any]:
        found = self.passages[conflict.passage].passage
        where = found.document_id, self.collection, conflict.start, conflict.end, conflict.page
        return {"document_id": found.document_id, **encode(conflict), "url": document_url(self.base_url, *where)}

    def url_citation(self, citation: Citation) -> dict[str, Any]:
        """Returns a citation as a ``url_citation``, whose URL leads to exactly the cited characters."""
        document_id = self.document_id(citation)
        page = "" if citation.page is None else f", page {citation.page}"
        where = document_id, self.collection, citation.start, citation.end, citation.page
        return {
            "url": document_url(self.base_url, *where),
            "title": f"{citation.document}{page}",
            "start_index": citation.answer_start,
            "end_index": citation.answer_end,
            EXTENSION: {
                "document_id": document_id,
                "document": citation.document,
                "page": citation.page,
                "line": citation.line,
                "start": citation.start,
                "end": citation.end,
                "text": citation.text,
                "language": citation.language,
                "section": list(citation.section),
                "context": citation.context,
                **({} if citation.field is None else {"field": citation.field}),
            },
        }


DONE: Final = b"data: [DONE]\n\n"
"""The end of a stream."""


class AnswerWriter(Protocol):
    """Writes the events of an answer in the shape of one interface."""

    def events(self, event: CompletionEvent) -> Iterable[dict[str, Any]]:
        """Takes an event; returns its chunks for a stream, which must be read."""
        ...

    def line(self, event: Mapping[str, Any]) -> bytes:
        """Returns one of these as it is sent."""
        ...

    def whole(self) -> dict[str, Any]:
        """Returns the whole answer; the last event must have been taken."""
        ...

    def failed(self, error: Mapping[str, Any]) -> bytes:
        """Returns the end of a stream whose call failed, of its ``error_object``."""
        ...


async def send_answer(
    call: Call, exchange: Exchange, request: Query | CompletionRequest, stream: bool, writer: AnswerWriter
) -> None:
    """Answers a question or continues a conversation, whole or as a stream that begins with the first event."""
    async with ask(call, request) if isinstance(request, Query) else complete(call, request) as events:
        async for event in events:
            written = list(writer.events(event))
            if not stream:
                continue
            if not exchange.started:
                await exchange.start_events(call, writer.failed)
            for each in written:
                await exchange.write(writer.line(each))
        if stream:
            await exchange.write(DONE)
            await exchange.finish()
    if not stream:
        await exchange.respond_json(call, writer.whole())
