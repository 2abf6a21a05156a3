"""Answers, searches, and conversations with the language model alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from edge_rag.analysis.languages import sure_language_of
from edge_rag.core.answer import AnswerEvent, Citation, Finished, FinishReason, PassagesFound, TextDelta
from edge_rag.core.generation import CompletionEvent, CompletionRequest
from edge_rag.core.identity import Role
from edge_rag.core.ids import DocumentId
from edge_rag.core.query import AnswerMode, Query, SearchQuery, Turn
from edge_rag.errors import AnswerTruncated, EdgeRagError, InvalidRequest, NotReady, SlowConsumer
from edge_rag.generator.functions import read_answer, with_functions
from edge_rag.pipeline.pipeline import AnswerStream, SearchResult
from edge_rag.reranker.candidate import model_text
from edge_rag.service.call import Call, Operation

ASK: Final = Operation("Ask", Role.READER)
SEARCH: Final = Operation("Search", Role.READER)
GET_ASK_OPTIONS: Final = Operation("GetAskOptions", Role.READER)

log = structlog.get_logger()


@asynccontextmanager
async def ask(call: Call, query: Query) -> AsyncIterator[AsyncIterator[AnswerEvent]]:
    """Answers a question; yields the answer's events. Leaving the block cancels an unfinished answer.

    A transport reports a client that does not read by raising SlowConsumer inside the block.
    """
    call.check_collection(query.collection)
    await call.check_format(query.format)
    log.debug("question", question=query.question, characters=len(query.question), turns=len(query.turns))
    to_its_end = query.format is not None and not query.allow_truncated
    asked = [*_texts(query.turns), query.question]
    answer = _Answer(call, asked, call.backend.pipeline.ask(query, call.trace), to_its_end, query.collection)
    async with _yielded(answer) as events:
        yield events


def language_model(call: Call) -> str | None:
    """Returns the name of the language model that continues conversations; None if the box has none."""
    model = call.backend.generator.current.model
    return None if model is None else model.name


def answer_modes(call: Call) -> tuple[AnswerMode, ...]:
    has_model = language_model(call) is not None
    return tuple(mode for mode in AnswerMode if has_model or not mode.needs_model)


def not_found_below(call: Call) -> float:
    """Returns the evidence below which nothing is quoted or checked, 0 to 1: the answer is the not-found answer."""
    return call.backend.generator.current.generator.not_found_below


@asynccontextmanager
async def complete(call: Call, request: CompletionRequest) -> AsyncIterator[AsyncIterator[CompletionEvent]]:
    """Continues a conversation by the language model alone, without documents; yields the events as ``ask`` does.

    With functions, the answer comes as a whole: a call, or a text.
    """
    calling = bool(request.functions)
    if calling:
        request = with_functions(request)
    try:
        await call.check_format(request.format)
    except InvalidRequest as error:
        raise InvalidRequest("tools", error.problem) if calling else error from None
    backend, conversation = call.backend, request.conversation
    log.debug("conversation", turns=len(conversation.turns), characters=sum(map(len, conversation.turns)))
    stream = backend.pipeline.complete(request, partial(backend.generator.complete, request), call.trace)
    texts = [text for text in (conversation.system, *conversation.turns) if text]
    async with _yielded(_Answer(call, texts, stream)) as events:
        if not calling:
            yield events
            return
        async with aclosing(_read_whole(events)) as whole:
            yield whole


async def _read_whole(events: AsyncIterator[AnswerEvent]) -> AsyncGenerator[CompletionEvent, None]:
    text = ""
    async for event in events:
        if isinstance(event, TextDelta):
            text += event.text
            continue
        if isinstance(event, Finished):
            answer = read_answer(text)
            yield TextDelta(answer) if isinstance(answer, str) else answer
        yield event


async def search(call: Call, query: SearchQuery) -> SearchResult:
    """Searches a collection."""
    call.check_collection(query.collection)
    log.debug("search", question=query.query, characters=len(query.query), turns=len(query.turns))
    read = [*_texts(query.turns), query.query]
    async with call.charged(read):
        found = await call.backend.pipeline.search(query, call.trace)
        read += (model_text(passage) for passage in found.candidates)
        return found


def _texts(turns: Sequence[Turn]) -> Iterator[str]:
    return (text for turn in turns for text in turn.texts() if text)


class _Answer:
    """An answer in progress.

    Args:
        collection: Name of the collection of the passages; empty if there are none.
    """

    def __init__(
        self, call: Call, asked: list[str], stream: AnswerStream, to_its_end: bool = False, collection: str = ""
    ) -> None:
        self._call = call
        self._to_its_end = to_its_end
        self._question = asked[-1]
        self.stream = stream
        self._characters = 0
        self._charged_texts = asked
        self._collection = collection
        self._documents: list[DocumentId] = []

    @property
    def progress(self) -> str:
        return f"{self._characters} characters of the answer were sent"

    async def events(self) -> AsyncGenerator[AnswerEvent, None]:
        """Yields the events.

        An answer is charged the tokens of the model. One that does not finish, or that was quoted without a model, is
        charged the earlier turns, the question, the passages and the text sent.
        """
        async with self._call.charged(self._charged_texts):
            async for event in self.stream:
                match event:
                    case Finished():
                        if event.usage.prompt_tokens or event.reason is FinishReason.NOT_FOUND:
                            self._charged_texts.clear()
                        self._call.answered(event)
                        if self._to_its_end and event.reason is FinishReason.LENGTH:
                            raise AnswerTruncated(event.usage.generated_tokens)
                    case PassagesFound():
                        self._charged_texts += (model_text(ranked.passage) for ranked in event.passages)
                        self._documents = [ranked.passage.document_id for ranked in event.passages]
                    case TextDelta():
                        self._characters += len(event.text)
                        self._charged_texts.append(event.text)
                yield await self._with_particulars(event)

    async def _with_particulars(self, event: AnswerEvent) -> AnswerEvent:
        match event:
            case PassagesFound():
                model = language_model(self._call) if event.mode.needs_model else None
                return replace(event, question_language=sure_language_of(self._question), model=model)
            case Citation():
                return replace(event, language=sure_language_of(event.text), line=await self._line(event))
            case _:
                return event

    async def _line(self, citation: Citation) -> int | None:
        """Returns the line of the source on which a citation starts; None if the document was removed meanwhile."""
        if citation.page is not None:
            return None
        read, document = self._call.backend.documents.place, self._documents[citation.passage]
        with suppress(EdgeRagError):  # the answer is right without it
            return (await self._call.run(read, self._collection, document, citation.start)).line
        return None


@asynccontextmanager
async def _yielded(answer: _Answer) -> AsyncIterator[AsyncIterator[AnswerEvent]]:
    try:
        async with aclosing(answer.events()) as events:
            yield events
    except NotReady as error:
        raise NotReady(f"{error}; {answer.progress}") from error
    except SlowConsumer as error:
        answer.stream.cancel(error)
        raise SlowConsumer(error.seconds, answer.progress) from error
    finally:
        answer.stream.cancel()
