"""The tools that an agent may call, with their arguments and results. They know no protocol and no transport.

A tool reaches the daemon through ``Box``: inside the daemon that is its service layer, elsewhere a client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from edge_rag.core.answer import Citation, Finished, FinishReason, TextDelta, Unsupported, still_unsupported
from edge_rag.core.documents.checks import checked_filter
from edge_rag.core.documents.document import DocumentInfo
from edge_rag.core.documents.filters import MAX_REMOTE_FILTER_CHARACTERS, Filter
from edge_rag.core.limits.request_fields import DEFAULT_COLLECTION, MAX_PASSAGES, MAX_SENTENCES, newest_turns
from edge_rag.core.query import AnswerMode, Turn
from edge_rag.core.shapes.encoder import encode
from edge_rag.errors import InvalidRequest
from edge_rag.server.mcp.arguments import checked
from edge_rag.server.mcp.box import Box, Passages, Question

FETCHED_CHARACTERS: Final = 20_000
"""Characters of a document that ``fetch`` returns unless the caller names an end."""

MOST_FETCHED_CHARACTERS: Final = 65_536
"""Most characters that one call of ``fetch`` returns; of any text, they fit a response of the daemon."""

PROGRESS_CHARACTERS: Final = 80
"""Characters of an answer after which its progress is reported."""

_MAX_POSITION: Final = (1 << 53) - 1
_DECIMALS: Final = 3
"""Decimals of scores: a model that reads them pays for each digit."""


Report = Callable[[int, str], Awaitable[None]]
"""Reports progress: the characters of the answer that are written, and those that are new since the last report. The
first report is that passages were found."""

_Run = Callable[[Box, Mapping[str, Any], Report | None], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool.

    Attributes:
        name: Its name.
        title: Its name for people.
        description: Its purpose, for the model that decides to call it.
        arguments: Schema of each argument by name. One without ``default`` is required.
        result: Schema of each field of the result by name; all are always there.
        run: Runs it.
    """

    name: str
    title: str
    description: str
    arguments: Mapping[str, Mapping[str, Any]]
    result: Mapping[str, Any]
    run: _Run

    async def call(self, box: Box, given: Mapping[str, Any], report: Report | None) -> dict[str, Any]:
        return await self.run(box, self.checked(given), report)

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns legal arguments, with the defaults of those that are absent or null."""
        for name in given:
            if name not in self.arguments:
                raise InvalidRequest(
                    name[:256], f"is not an argument of {self.name}; it has {', '.join(self.arguments)}"
                )
        return {name: checked(name, schema, given.get(name)) for name, schema in self.arguments.items()}

    def description_json(self) -> dict[str, Any]:
        """Returns its description as the protocol lists tools."""
        properties = {
            name: {key: value for key, value in schema.items() if key != "default" or value is not None}
            for name, schema in self.arguments.items()
        }
        inputs = {"type": "object", "properties": properties, "additionalProperties": False}
        required = [name for name, schema in self.arguments.items() if "default" not in schema]
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": inputs | ({"required": required} if required else {}),
            "outputSchema": _object(self.result),
            "annotations": {"title": self.title, "readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
        }


def document_key(collection: str, document_id: str) -> str:
    return f"{collection}/{document_id}"


def local_url(collection: str, document_id: str, start: int, end: int) -> str:
    return f"edge-rag://{collection}/{document_id}?start={start}&end={end}"


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _integer(description: str, least: int, most: int, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "description": description, "minimum": least, "maximum": most, **more}


def _array(items: Mapping[str, Any], description: str) -> dict[str, Any]:
    return {"type": "array", "description": description, "items": items}


_COLLECTION: Final = _text("Collection of documents.", default=DEFAULT_COLLECTION, pattern="^[a-z0-9_-]{1,64}$")
_FILTER: Final = _text(
    'Only documents that match, for example: year >= 2020 and tag in ("a", "b") and name ~ "pump*". Fields are name, '
    "media_type, page, ingested_at and keys of metadata.",
    default="",
    maxLength=MAX_REMOTE_FILTER_CHARACTERS,
)
_TURNS: Final = _array(
    {
        "type": "object",
        "properties": {
            "question": _text("The question as it was asked.", minLength=1),
            "answer": _text("Its answer.", default=""),
        },
        "required": ["question"],
        "additionalProperties": False,
    },
    "Earlier questions of the conversation, oldest first, of which the newest eight are read.",
) | {"default": []}
_PAGE: Final = {"type": ["integer", "null"], "description": "Page on which it starts, counted from 1."}
_NUMBER: Final = {"type": "number"}
_DID_YOU_MEAN: Final = {
    "type": ["string", "null"],
    "description": "The question as the documents spell its misspelled words, which was searched for, too, or null.",
}
_WHERE: Final = {
    "id": _text("Id of the document, for fetch."),
    "title": _text("Document and page, for people."),
    "url": _text("Where the cited characters can be looked up."),
    "page": _PAGE,
    "start": {"type": "integer", "description": "First character in the document's text."},
    "end": {"type": "integer", "description": "One past the last character."},
}
_METADATA: Final = {"type": "object", "description": "Metadata of the document by key."}


async def _search(box: Box, given: Mapping[str, Any], report: Report | None) -> dict[str, Any]:
    collection = given["collection"]
    hits = await box.search(collection, given["query"], given["limit"], _filter(given["filter"]))
    return {
        "results": [
            _where(box, collection, one.document_id, one.document, one.page, one.start, one.end)
            | {"text": one.text, "score": round(one.score, _DECIMALS)}
            for one in hits.found
        ],
        "did_you_mean": hits.did_you_mean,
    }


async def _ask(box: Box, given: Mapping[str, Any], report: Report | None) -> dict[str, Any]:
    collection = given["collection"]
    question = Question(
        text=given["question"],
        collection=collection,
        mode=AnswerMode(given["mode"]),
        max_sentences=given["max_sentences"],
        passages=given["passages"],
        filter=_filter(given["filter"]),
        turns=newest_turns([Turn(each["question"], each["answer"]) for each in given["turns"]]),
    )
    text, reported = "", 0
    passages = Passages((), 0.0)
    cited: list[Citation] = []
    unsupported: list[Unsupported] = []
    finished: Finished | None = None
    async with box.ask(question) as parts:
        async for part in parts:
            match part:
                case Passages():
                    passages = part
                    if report is not None:
                        await report(0, f"passages found: {len(part.found)}")
                case TextDelta():
                    text += part.text
                    if report is not None and len(text) - reported >= PROGRESS_CHARACTERS:
                        await report(len(text), text[reported:])
                        reported = len(text)
                case Citation():
                    cited.append(part)
                case Unsupported():
                    unsupported.append(part)
                case Finished():
                    finished = part
    assert finished is not None, "an answer ends with its end"
    if report is not None and len(text) > reported:
        await report(len(text), text[reported:])
    return {
        "answer": text,
        "found": finished.reason is not FinishReason.NOT_FOUND,
        "complete": finished.reason is not FinishReason.LENGTH,
        "mode": question.mode.value,
        "model": passages.model,
        "standalone_question": passages.standalone_question,
        "did_you_mean": passages.did_you_mean,
        "evidence": round(passages.evidence, _DECIMALS),
        "citations": [
            _where(box, collection, found.document_id, each.document, each.page, each.start, each.end)
            | {
                "section": list(each.section),
                "line": each.line,
                "quote": each.text,
                "context": each.context,
                "answer_start": each.answer_start,
                "answer_end": each.answer_end,
            }
            for each in cited
            for found in (passages.found[each.passage],)
        ],
        "unsupported": [
            {"answer_start": each.answer_start, "answer_end": each.answer_end, "reason": each.reason.value}
            for each in still_unsupported(unsupported, cited)
        ],
        "conflicts": [
            _where(box, collection, found.document_id, each.document, each.page, each.start, each.end)
            | {
                "text": each.text,
                "claimed": each.claimed,
                "stated": each.stated,
                "answer_start": each.answer_start,
                "answer_end": each.answer_end,
            }
            for each in finished.conflicts
            for found in (passages.found[each.passage],)
        ],
        "nearest": [
            _where(box, collection, found.document_id, each.document, each.page, each.start, each.end)
            | {"text": each.text, "lacks": list(each.lacks), "reason": each.reason.value}
            for each in finished.nearest
            for found in (passages.found[each.passage],)
        ],
        "given_to_model": []
        if question.mode is not AnswerMode.FREE
        else [
            _where(box, collection, each.document_id, each.document, each.page, each.start, each.end)
            for each in passages.found[: finished.prompt_passages]
        ],
    }


async def _fetch(box: Box, given: Mapping[str, Any], report: Report | None) -> dict[str, Any]:
    before, slash, after = given["id"].partition("/")
    collection, name = (before, after) if slash else (DEFAULT_COLLECTION, before)
    checked("id", {"type": "string", "pattern": _COLLECTION["pattern"]}, collection)
    start, end = given["start"], given["end"]
    if end is None:
        end = start + FETCHED_CHARACTERS
    if not start <= end <= start + MOST_FETCHED_CHARACTERS:
        raise InvalidRequest("end", f"must be start to {MOST_FETCHED_CHARACTERS:,} characters after it")
    info, text = await box.document(collection, name, start, end)
    first = min(start, info.characters)
    last = first + len(text)
    return {
        "id": document_key(info.collection, info.document_id),
        "title": info.title or info.name,
        "text": text,
        "url": box.url(info.collection, info.document_id, first, last),
        "metadata": {
            **encode(info)["metadata"],
            "name": info.name,
            "collection": info.collection,
            "media_type": info.media_type,
            "pages": info.pages,
            "characters": info.characters,
            "start": first,
            "end": last,
            "next_start": last if last < info.characters else None,
        },
    }


async def _list_documents(box: Box, given: Mapping[str, Any], report: Report | None) -> dict[str, Any]:
    found, cursor = await box.documents(given["collection"], given["cursor"], given["limit"])
    return {"documents": [_document(box, info) for info in found], "next_cursor": cursor or None}


async def _list_collections(box: Box, given: Mapping[str, Any], report: Report | None) -> dict[str, Any]:
    return {
        "collections": [
            {"name": info.name, "description": info.settings.description, "documents": info.documents}
            for info in await box.collections()
        ]
    }


def _filter(text: str) -> Filter | None:
    if not text:
        return None
    from edge_rag.core.documents.filter_text import parse_filter  # its parser takes time to import

    return checked_filter(parse_filter(text))


def _where(
    box: Box, collection: str, document_id: str, name: str, page: int | None, start: int, end: int
) -> dict[str, Any]:
    return {
        "id": document_key(collection, document_id),
        "title": name if page is None else f"{name}, page {page}",
        "url": box.url(collection, document_id, start, end, page),
        "page": page,
        "start": start,
        "end": end,
    }


def _document(box: Box, info: DocumentInfo) -> dict[str, Any]:
    described = encode(info)
    return {
        "id": document_key(info.collection, info.document_id),
        "title": info.title or info.name,
        "url": box.url(info.collection, info.document_id, 0, info.characters),
        "name": info.name,
        "media_type": info.media_type,
        "pages": info.pages,
        "characters": info.characters,
        "ingested_at": described["ingested_at"],
        "metadata": described["metadata"],
    }


_ALL: Final = (
    Tool(
        "search",
        "Search the documents",
        "Finds the passages of the documents that fit a query best, word for word, with document, page and position. "
        "No answer is written; use ask for that.",
        {
            "query": _text("What to find: a question or keywords, in any language.", minLength=1),
            "collection": _COLLECTION,
            "filter": _FILTER,
            "limit": _integer("Most passages.", 1, 100, default=10),
        },
        {
            "results": _array(
                _object(
                    _WHERE
                    | {
                        "text": _text("The passage, word for word."),
                        "score": _NUMBER | {"description": "Larger is better; comparable within one result only."},
                    }
                ),
                "Passages, best first.",
            ),
            "did_you_mean": _DID_YOU_MEAN,
        },
        _search,
    ),
    Tool(
        "fetch",
        "Read a document",
        f"Returns a document's text, or a range of it. Of a long text it returns {FETCHED_CHARACTERS:,} characters; "
        "metadata.next_start says where the next call begins, null at the end.",
        {
            "id": _text("Id of the document, from search, ask or list_documents.", minLength=1),
            "start": _integer("First character.", 0, _MAX_POSITION, default=0),
            "end": _integer(
                f"One past the last character, at most {MOST_FETCHED_CHARACTERS:,} after start.",
                0,
                _MAX_POSITION,
                default=None,
            ),
        },
        {
            "id": _WHERE["id"],
            "title": _text("Title of the document."),
            "text": _text("The text in the range."),
            "url": _text("Where the range can be looked up."),
            "metadata": {
                "type": "object",
                "description": "Metadata of the document by key, and its name, collection, media_type, pages, "
                "characters, start, end and next_start.",
            },
        },
        _fetch,
    ),
    Tool(
        "ask",
        "Ask the documents",
        "Answers a question from the documents, with the exact quotes that support the answer and where they are; in "
        "mode free without any. If the documents do not answer it, found is false.",
        {
            "question": _text(
                "The question, in any language: complete in itself, or one that leaves something to earlier turns.",
                minLength=1,
            ),
            "turns": _TURNS,
            "collection": _COLLECTION,
            "filter": _FILTER,
            "mode": _text(
                "quote: sentences of the documents, word for word. cite: written by a model, each sentence checked "
                "against the documents. free: written by a model, not checked, without citations. "
                "extract: one value of the documents, such as a number, a date or a name.",
                enum=[mode.value for mode in AnswerMode],
                default=AnswerMode.QUOTE.value,
            ),
            "max_sentences": _integer(
                "Most points in mode quote; leave it out for as many as the answer needs.",
                1,
                MAX_SENTENCES,
                default=None,
            ),
            "passages": _integer("Most passages that are read for the answer.", 1, MAX_PASSAGES, default=None),
        },
        {
            "answer": _text("The answer."),
            "found": {"type": "boolean", "description": "Whether the documents answer the question."},
            "complete": {"type": "boolean", "description": "Whether the answer ends by itself; else it was cut."},
            "mode": _text("How it was written. free: nothing of it is checked, and it may be wrong."),
            "model": {
                "type": ["string", "null"],
                "description": "Language model of the box that wrote it, or null.",
            },
            "standalone_question": {
                "type": ["string", "null"],
                "description": "The question with what it leaves to turns, which was searched for, too, or null.",
            },
            "did_you_mean": _DID_YOU_MEAN,
            "evidence": _NUMBER | {"description": "Evidence that the passages answer the question, 0 to 1."},
            "citations": _array(
                _object(
                    _WHERE
                    | {
                        "section": _array(
                            {"type": "string"}, "Headings above the place, outermost first; empty if there are none."
                        ),
                        "line": {
                            "type": ["integer", "null"],
                            "description": "Line of the source on which it starts, counted from 1; null for formats "
                            "without lines.",
                        },
                        "quote": _text("The cited text, word for word."),
                        "context": {
                            "type": "boolean",
                            "description": "Whether it is quoted only to tell what the next quote is about.",
                        },
                        "answer_start": {
                            "type": "integer",
                            "description": "First character of the answer that it supports.",
                        },
                        "answer_end": {"type": "integer", "description": "One past the last one."},
                    }
                ),
                "What supports the answer, in order of the answer.",
            ),
            "unsupported": _array(
                _object(
                    {
                        "answer_start": {"type": "integer"},
                        "answer_end": {"type": "integer"},
                        "reason": _text("no_source or other_number."),
                    }
                ),
                "Parts of the answer that no passage supports.",
            ),
            "conflicts": _array(
                _object(
                    _WHERE
                    | {
                        "text": _text("The sentence of the document, word for word."),
                        "claimed": _text("The number in the answer."),
                        "stated": _text("The number in the document."),
                        "answer_start": {"type": "integer"},
                        "answer_end": {"type": "integer"},
                    }
                ),
                "Numbers of the answer that a document contradicts.",
            ),
            "nearest": _array(
                _object(
                    _WHERE
                    | {
                        "text": _text("Its sentence that is closest to the question, word for word."),
                        "lacks": _array(
                            {"type": "string"}, "Words of the question that the passage lacks, rarest first."
                        ),
                        "reason": _text(
                            "Why it is no answer: lacks_words, not_similar, other_language or not_supported."
                        ),
                    }
                ),
                "If found is false, the best passages. They are no answer.",
            ),
            "given_to_model": _array(
                _object(_WHERE), "In mode free, passages that the model was given; they are no support of the answer."
            ),
        },
        _ask,
    ),
    Tool(
        "list_documents",
        "List the documents",
        "Lists the documents of a collection in pages, with their metadata.",
        {
            "collection": _COLLECTION,
            "limit": _integer("Most documents.", 1, 200, default=50),
            "cursor": _text("next_cursor of the page before; leave it out for the first page.", default=""),
        },
        {
            "documents": _array(
                _object(
                    {
                        "id": _WHERE["id"],
                        "title": _text("Title of the document."),
                        "url": _text("Where its text can be looked up."),
                        "name": _text("Name, usually a path."),
                        "media_type": _text("Media type."),
                        "pages": {"type": ["integer", "null"]},
                        "characters": {"type": "integer", "description": "Length of its text."},
                        "ingested_at": _text("When it was stored, ISO 8601."),
                        "metadata": _METADATA,
                    }
                ),
                "Documents in order of id.",
            ),
            "next_cursor": {"type": ["string", "null"], "description": "Cursor of the next page; null at the end."},
        },
        _list_documents,
    ),
    Tool(
        "list_collections",
        "List the collections",
        "Lists the collections of documents that the other tools can use.",
        {},
        {
            "collections": _array(
                _object(
                    {
                        "name": _text("Name of the collection."),
                        "description": _text("What is in it; may be empty."),
                        "documents": {"type": "integer", "description": "Number of documents."},
                    }
                ),
                "Collections by name.",
            )
        },
        _list_collections,
    ),
)

TOOLS: Final[Mapping[str, Tool]] = {tool.name: tool for tool in _ALL}
"""All tools by name, in the order in which they are listed."""
